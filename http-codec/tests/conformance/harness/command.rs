//! The command: files in, a table out.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::CORPUS;
use super::case::Case;

const HELP: &str = "\
Runs HTTP/1.1 conformance cases, one JSON object a line, through the codec: each whole, at the
splits it suggests, cut in two everywhere, and byte by byte. Without a FILE it runs the cases of
http-codec/tests/data.

Usage: conformance [FILE]...

Ends with 0 if every case passed, with 1 if one differs, and with 2 if a file cannot be used.
";

/// The command's whole life; returns its exit status.
pub(crate) fn command(
    arguments: impl Iterator<Item = OsString>,
    out: &mut impl Write,
    err: &mut impl Write,
) -> u8 {
    let arguments: Vec<PathBuf> = arguments.map(PathBuf::from).collect();
    let help = arguments
        .iter()
        .any(|argument| argument.as_os_str() == "--help");
    let ran = match help {
        true => out
            .write_all(HELP.as_bytes())
            .map_err(Stop::Output)
            .map(|()| true),
        false => read_all(&arguments).and_then(|cases| run(&cases, out).map_err(Stop::Output)),
    };
    match ran {
        Ok(true) => 0,
        Ok(false) => 1,
        Err(stop) => {
            // Where standard error is gone too, the status alone has to tell.
            let _ = writeln!(err, "error: {stop}");
            2
        }
    }
}

/// Why the command ended before every case had run.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error("cannot read {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{}:{line}: expected a case, one JSON object a line: {what}", path.display())]
    Malformed {
        path: PathBuf,
        line: usize,
        what: String,
    },
    #[error("{}: expected cases, one JSON object a line, and it is empty", path.display())]
    Empty { path: PathBuf },
    #[error("cannot write the results: {0}")]
    Output(io::Error),
}

fn read_all(paths: &[PathBuf]) -> Result<Vec<Case>, Stop> {
    if paths.is_empty() {
        return parse(Path::new("http1-conformance.jsonl"), CORPUS);
    }
    let mut cases = Vec::new();
    for path in paths {
        let text = fs::read(path).map_err(|error| Stop::Unreadable {
            path: path.clone(),
            error,
        })?;
        cases.extend(parse(path, &text)?);
    }
    Ok(cases)
}

fn parse(path: &Path, text: &[u8]) -> Result<Vec<Case>, Stop> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    if text.is_empty() {
        // It would pass without a case having run.
        return Err(Stop::Empty { path: path.into() });
    }
    let lines = text.split(|&b| b == b'\n').enumerate();
    lines
        .map(|(at, line)| {
            Case::parse(line).map_err(|what| Stop::Malformed {
                path: path.into(),
                line: at + 1,
                what,
            })
        })
        .collect()
}

/// Runs `cases` and prints the result; did all pass?
fn run(cases: &[Case], out: &mut impl Write) -> io::Result<bool> {
    let mut groups: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for case in cases {
        let [passed, failed] = groups.entry(&case.group).or_default();
        match case.judge() {
            Ok(()) => *passed += 1,
            Err(why) => {
                *failed += 1;
                writeln!(out, "{} ({:?}): {why}", case.id, case.strictness)?;
            }
        }
    }
    const GROUP: &str = "group";
    let names = groups.keys().copied().chain([GROUP]);
    let width = names.map(str::len).max().unwrap_or(0);
    writeln!(out, "{GROUP:width$}  passed  failed")?;
    for (group, [passed, failed]) in &groups {
        writeln!(out, "{group:width$}  {passed:>6}  {failed:>6}")?;
    }
    let [passed, failed] = [0, 1].map(|n| groups.values().map(|counts| counts[n]).sum::<usize>());
    writeln!(out, "{passed} passed, {failed} failed")?;
    Ok(failed == 0)
}
