//! An origin that breaks HTTP as it is asked to: see `--help`, and README.md beside this folder.

use std::process::ExitCode;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use clap::Parser;
use pinpool_examples::faulty::{FaultyOrigin, Settings};
use pinpool_examples::signals;

/// How soon a core that has died is noticed.
const LOOK_AFTER_CORE: Duration = Duration::from_secs(1);

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
    loop {
        match signals.recv_timeout(LOOK_AFTER_CORE) {
            Err(RecvTimeoutError::Timeout) if origin.has_died() => {
                return fail(&"its core died; the panic is above");
            }
            Err(RecvTimeoutError::Timeout) => {}
            // An error means that the watcher is gone; ending is better than not being endable.
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
        }
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
