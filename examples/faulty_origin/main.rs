//! An origin that breaks HTTP as it is asked to: see `--help`, and README.md beside this folder.

use std::process::ExitCode;

use clap::Parser;
use pinpool_examples::faulty::{FaultyOrigin, Settings};
use pinpool_examples::signals;

fn main() -> ExitCode {
    let settings = Settings::parse();
    let signals = match signals::watch() {
        Ok(signals) => signals,
        Err(error) => return fail(&error),
    };
    let origin = match FaultyOrigin::with(&settings) {
        Ok(origin) => origin,
        Err(error) => return fail(&error),
    };
    println!("serving  http://{}, seed {}", origin.addr(), settings.seed);
    println!("try      curl -i http://{}/", origin.addr());
    let died = signals::wait(&signals, || origin.has_died().then_some(()));
    if died.is_some() {
        return fail(&"its core died; the panic is above");
    }
    let counts = origin.counts();
    println!(
        "{} requests over {} connections",
        counts.total(),
        counts.connections
    );
    ExitCode::SUCCESS
}

fn fail(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("faulty_origin: {error}");
    ExitCode::FAILURE
}
