//! Pools the connections of a protocol that is not HTTP; see README.md beside this folder.

use std::process::ExitCode;

use pinpool_examples::lines;

fn main() -> ExitCode {
    match lines::run() {
        Ok(report) => {
            print!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("lines: {error}");
            ExitCode::FAILURE
        }
    }
}
