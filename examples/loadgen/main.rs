//! A load generator: see `--help`, and README.md beside this folder.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use pinpool_examples::loadgen::{self, Plan, Report};
use pinpool_examples::signals;

fn main() -> ExitCode {
    let plan = Plan::read(std::env::args_os()).unwrap_or_else(|error| error.exit());
    // Before anything runs: a signal in between must not end the process half started.
    let signals = match signals::watch() {
        Ok(signals) => signals,
        Err(error) => return fail(&error),
    };
    // Before the run too: a file that cannot be written is not to cost a run.
    let json = match plan.json.as_deref().map(Output::open).transpose() {
        Ok(json) => json,
        Err(error) => return fail(&error),
    };
    let html = match plan.html.as_deref().map(Output::create).transpose() {
        Ok(html) => html,
        Err(error) => return fail(&error),
    };
    let report = match loadgen::run(&plan, &signals, |second| eprintln!("{second}")) {
        Ok(report) => report,
        Err(error) => return fail(&error),
    };
    if let Err(error) = tell(&report, json, html) {
        return fail(&error);
    }
    match report.any_succeeded() {
        true => ExitCode::SUCCESS,
        false => fail(&"no request got a whole response with a status below 400"),
    }
}

/// Where a report goes.
enum Output {
    Stdout,
    File(BufWriter<File>),
}

impl Output {
    fn open(path: &Path) -> io::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        Self::create(path)
    }

    fn create(path: &Path) -> io::Result<Self> {
        let file = File::create(path).map_err(|error| {
            let text = format!("{}: {error}", path.display());
            io::Error::new(error.kind(), text)
        })?;
        Ok(Self::File(BufWriter::new(file)))
    }

    fn write(self, text: &str) -> io::Result<()> {
        match self {
            Self::Stdout => writeln!(io::stdout().lock(), "{text}"),
            Self::File(mut file) => {
                writeln!(file, "{text}")?;
                file.flush()
            }
        }
    }
}

/// The summary goes where the JSON does not.
fn tell(report: &Report, json: Option<Output>, html: Option<Output>) -> io::Result<()> {
    match json {
        Some(Output::Stdout) => eprintln!("{report}"),
        _ => writeln!(io::stdout().lock(), "{report}")?,
    }
    if let Some(json) = json {
        json.write(&serde_json::to_string_pretty(report)?)?;
    }
    if let Some(html) = html {
        html.write(&report.to_html())?;
    }
    Ok(())
}

fn fail(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("loadgen: {error}");
    ExitCode::FAILURE
}
