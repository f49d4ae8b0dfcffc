//! Conformance cases run through the codec, for the test `conformance` and the command of the same
//! name.

mod case;
mod command;
mod seen;
mod verdict;

pub(crate) use case::Case;
pub(crate) use command::command;

const CORPUS: &[u8] = include_bytes!("../../data/http1-conformance.jsonl");

/// The cases that come with this package.
pub(crate) fn corpus() -> Vec<Case> {
    let lines = CORPUS.trim_ascii_end().split(|&b| b == b'\n');
    lines
        .map(|line| Case::parse(line).expect("a case"))
        .collect()
}
