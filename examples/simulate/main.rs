//! Random worlds around the pool's state machine; see `--help`, and docs/INVARIANTS.md.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use pool_core::state::simulation::{self, Fault, Report, Violation};

/// How many of the last calls and effects are shown with a violation.
const SHOWN: usize = 40;

/// Runs seeded worlds around the pool's state machine, in virtual time, and checks every invariant
/// after every step. Ends with 1 at the first that is broken, and says how to see it again.
#[derive(Parser)]
#[command(name = "simulate")]
struct Settings {
    /// The first seed.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// How many seeds, each a series of worlds.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    seeds: u64,
    /// How many steps a seed makes. Each is a call of the state with all its effects.
    #[arg(long, value_name = "M", default_value_t = 10_000)]
    steps: u64,
    /// How many threads share the seeds.
    #[arg(long, value_name = "T", default_value_t = 1)]
    threads: u32,
    /// Plants a fault, which has to be caught for an exit with 0; `list` names them all.
    #[arg(long, value_name = "NAME", value_parser = plant)]
    plant: Option<Plant>,
}

#[derive(Clone, Copy)]
enum Plant {
    List,
    One(Fault),
}

fn plant(name: &str) -> Result<Plant, String> {
    if name == "list" {
        return Ok(Plant::List);
    }
    let fault = Fault::ALL.iter().find(|fault| fault.name() == name);
    let fault = fault.ok_or("no such fault; `list` names them all")?;
    Ok(Plant::One(*fault))
}

fn main() -> ExitCode {
    let settings = Settings::parse();
    let fault = match settings.plant {
        Some(Plant::List) => {
            list_faults();
            return ExitCode::SUCCESS;
        }
        Some(Plant::One(fault)) => Some(fault),
        None => None,
    };
    let begin = Instant::now();
    let run = Run::new(&settings, fault);
    let (report, violation) = run.finish();
    let taken = begin.elapsed();
    match (violation, fault) {
        (None, None) => {
            print_report(&settings, &report, taken);
            ExitCode::SUCCESS
        }
        (Some(violation), None) => {
            print_violation(&settings, &violation, fault);
            ExitCode::FAILURE
        }
        (Some(violation), Some(fault)) if violation.strikes > 0 => {
            print_violation(&settings, &violation, Some(fault));
            println!("{fault} breaks {}, and was caught", fault.breaks());
            ExitCode::SUCCESS
        }
        (_, Some(fault)) => {
            let Report { steps, strikes, .. } = report;
            println!("{fault} was not caught: {strikes} strikes in {steps} steps");
            ExitCode::FAILURE
        }
    }
}

/// The seeds of a run, shared by its threads.
struct Run<'a> {
    settings: &'a Settings,
    fault: Option<Fault>,
    /// How many seeds have been taken.
    taken: AtomicU64,
    found: Mutex<(Report, Option<Box<Violation>>)>,
}

impl<'a> Run<'a> {
    fn new(settings: &'a Settings, fault: Option<Fault>) -> Self {
        Self {
            settings,
            fault,
            taken: AtomicU64::new(0),
            found: Mutex::new((Report::new(), None)),
        }
    }

    fn finish(self) -> (Report, Option<Box<Violation>>) {
        thread::scope(|scope| {
            let threads = (0..self.settings.threads.max(1)).map(|_| scope.spawn(|| self.work()));
            let threads: Vec<_> = threads.collect();
            if std::io::stderr().is_terminal() {
                while !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
                    self.show_progress();
                    thread::sleep(Duration::from_millis(200));
                }
                eprint!("\r\x1b[K");
            }
        });
        self.found
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs seeds until there is none left, or one has failed.
    fn work(&self) {
        loop {
            let seed = self.taken.fetch_add(1, Ordering::Relaxed);
            if seed >= self.settings.seeds {
                return;
            }
            let seed = self.settings.seed.wrapping_add(seed);
            let ran = simulation::run(seed, self.settings.steps, self.fault);
            let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
            match ran {
                Ok(report) => found.0.add(&report),
                Err(violation) => {
                    // The lowest seed, so that several threads find what one does.
                    let first = found.1.as_ref().is_none_or(|other| seed < other.seed);
                    if first {
                        found.1 = Some(violation);
                    }
                    self.taken.store(self.settings.seeds, Ordering::Relaxed);
                }
            }
        }
    }

    fn show_progress(&self) {
        let taken = self.taken.load(Ordering::Relaxed).min(self.settings.seeds);
        eprint!("\r\x1b[Kseed {taken} of {}", self.settings.seeds);
        // Nothing depends on it.
        let _ = std::io::stderr().flush();
    }
}

fn print_report(settings: &Settings, report: &Report, taken: Duration) {
    println!("each kind of event, and how often it happened:");
    for (event, count) in report.events() {
        println!("{count:>12}  {event}");
    }
    let minutes = taken.as_secs_f64() / 60.0;
    #[expect(clippy::cast_precision_loss, reason = "a rate, to be read")]
    let rate = report.steps as f64 / minutes / 1e6;
    println!(
        "{} seeds, {} steps in {:.1} s: {rate:.1} million steps a minute; every invariant held",
        settings.seeds,
        report.steps,
        taken.as_secs_f64()
    );
}

fn print_violation(settings: &Settings, violation: &Violation, fault: Option<Fault>) {
    println!("the last calls, with the steps, the time, and what came of them:");
    let skipped = violation.trace.len().saturating_sub(SHOWN);
    for line in &violation.trace[skipped..] {
        println!("{line}");
    }
    println!("\n{violation}");
    let plant = fault.map(|fault| format!(" --plant {fault}"));
    println!(
        "replay with: cargo run --release --example simulate -- --seed {} --seeds 1 --steps {}{}",
        violation.seed,
        settings.steps,
        plant.unwrap_or_default()
    );
}

fn list_faults() {
    for fault in Fault::ALL {
        let breaks = fault.breaks().to_string();
        println!("{fault:<22} {breaks:<20} {}", fault.what());
    }
}
