//! Runs files of HTTP/1.1 conformance cases through the codec; see `--help`.

// The integration test `conformance` runs the same harness over the cases of this package.
#[path = "../../tests/conformance/harness/mod.rs"]
#[allow(dead_code, reason = "the test uses more of it")]
mod harness;

use std::process::ExitCode;
use std::{env, io};

fn main() -> ExitCode {
    let arguments = env::args_os().skip(1);
    ExitCode::from(harness::command(
        arguments,
        &mut io::stdout().lock(),
        &mut io::stderr().lock(),
    ))
}
