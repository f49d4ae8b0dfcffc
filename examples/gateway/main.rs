//! The gateway: see `--help`, and README.md beside this folder.

use std::process::ExitCode;

use clap::Parser;
use pinpool_examples::gateway::{Gateway, Settings};
use pinpool_examples::signals;

fn main() -> ExitCode {
    let settings = Settings::parse();
    // Before anything runs: a signal in between must not end the process half started.
    let signals = match signals::watch() {
        Ok(signals) => signals,
        Err(error) => return fail(&error),
    };
    let gateway = match Gateway::start(&settings) {
        Ok(gateway) => gateway,
        Err(error) => return fail(&error),
    };
    println!(
        "serving   http://{} on {} cores",
        gateway.address(),
        gateway.cores()
    );
    println!("upstream  {}", gateway.upstreams().join(", "));
    println!("try       curl -i http://{}/", gateway.address());
    println!("stats     http://{}/stats", gateway.admin_address());
    let died = signals::wait(&signals, || gateway.dead_core());
    println!(
        "stopping: exchanges in flight have {}",
        settings.drain_timeout
    );
    println!("{}", gateway.stop());
    match died {
        None => ExitCode::SUCCESS,
        // Whoever supervises the process starts it anew, with all its cores.
        Some(core) => fail(&format!("core {core} died; its panic is above")),
    }
}

fn fail(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("gateway: {error}");
    ExitCode::FAILURE
}
