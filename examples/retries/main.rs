//! Requests with every attempt of theirs, as a table: see `--help`, and README.md beside this
//! folder.

use std::io;
use std::process::ExitCode;

use pinpool_examples::retries::{self, Settings};

fn main() -> ExitCode {
    let settings = Settings::read(std::env::args_os()).unwrap_or_else(|error| error.exit());
    let report = match retries::run(&settings, &mut io::stdout().lock()) {
        Ok(report) => report,
        Err(error) => return fail(&error),
    };
    if !report.is_clean() {
        return fail(&"the pool has not got everything back");
    }
    // Of the demonstration's requests most are to fail.
    match settings.urls.is_empty() || report.all_answered() {
        true => ExitCode::SUCCESS,
        false => fail(&"not every request got a whole response"),
    }
}

fn fail(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("retries: {error}");
    ExitCode::FAILURE
}
