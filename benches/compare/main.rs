//! Proxies side by side on this machine: see `--help`, and "Proxies side by side" in README.md.

use std::process::ExitCode;

use clap::Parser;

mod cases;
mod check;
mod children;
mod failure;
mod html;
mod machine;
mod numbers;
mod origin;
mod places;
mod processes;
mod proxies;
mod report;
mod run;
mod settings;
mod strace;
mod table;
mod wrk;

use failure::Failure;
use settings::Settings;

fn main() -> ExitCode {
    let settings = Settings::parse();
    if let Some(address) = settings.serve_origin {
        return origin::serve_own(address);
    }
    match run::run(&settings) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("compare: {failure}");
            match failure {
                Failure::Interrupted => ExitCode::from(130),
                Failure::Other(_) => ExitCode::FAILURE,
            }
        }
    }
}
