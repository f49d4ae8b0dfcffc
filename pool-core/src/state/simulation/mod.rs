//! Random worlds around a [`PoolState`](super::PoolState), in virtual time: millions of steps a
//! minute, each followed by everything that has to hold.
//!
//! A seed is a series of worlds. Each draws a config, a mix of operations, and peers and holders
//! that refuse, hang, close while idle, send stray bytes or half a response (`swarm`). The world
//! drives the state as a core would (`world`, `driver`), with what is to happen planned in an agenda
//! (`agenda`). A naive model keeps the history of calls and effects (`oracle`) and judges each
//! effect by it (`effects`, and `closes` for the end of a connection); between two calls it judges
//! what holds at every moment (`promises`), and the state's insides are checked (`invariants`). At
//! its end a world comes to rest: nobody comes any more, peers behave, and everything has to finish.
//!
//! Faults can be planted (`plant`), to see that each is caught.
//!
//! Built for tests, and with the feature `simulation` for `examples/simulate`.

mod agenda;
mod cap;
mod closes;
mod dice;
mod driver;
mod effects;
mod files;
mod oracle;
mod plant;
mod promises;
mod roster;
mod swarm;
#[cfg(test)]
mod tests;
mod trace;
mod world;

use std::any::Any;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::time::Duration;

use dice::Dice;
pub use plant::Fault;
use plant::Plant;
use promises::Finding;
use trace::{Counts, Trace};
use world::World;

/// Longer than any timer may be late.
const TICK: Duration = Duration::from_nanos(1 << 19);

/// The longest that connects are held back after a failure.
const LONGEST_BACKOFF: Duration = Duration::from_millis(100);

/// What was promised.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// An invariant of docs/INVARIANTS.md, by its number.
    Invariant(u8),
    /// Idle connections are handed out in the configured order.
    ReuseOrder,
    /// A destination that nobody uses leaves nothing behind.
    StateThatEnds,
    /// `min_idle` connections are kept idle to a destination in use.
    Warmth,
    /// The counters say what has happened.
    Counts,
    /// With peers that behave, everything ends.
    Liveness,
    /// The state does not panic.
    Panic,
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invariant(number) => write!(f, "invariant {number}"),
            Self::ReuseOrder => f.write_str("the order of reuse"),
            Self::StateThatEnds => f.write_str("state that ends"),
            Self::Warmth => f.write_str("min_idle"),
            Self::Counts => f.write_str("the counters"),
            Self::Liveness => f.write_str("liveness"),
            Self::Panic => f.write_str("no panic"),
        }
    }
}

/// What one or more seeds did.
#[derive(Clone, Debug)]
pub struct Report {
    /// Calls of the state, each with its effects.
    pub steps: u64,
    /// How often the planted fault struck.
    pub strikes: u64,
    events: Counts,
}

impl Report {
    /// What no seed did.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            steps: 0,
            strikes: 0,
            events: Counts::new(),
        }
    }

    /// Adds what another seed did.
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.strikes += other.strikes;
        self.events.add(&other.events);
    }

    /// How often each kind of event happened.
    pub fn events(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.events.iter()
    }
}

impl Default for Report {
    fn default() -> Self {
        Self::new()
    }
}

/// A promise that was not kept.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The seed that shows it.
    pub seed: u64,
    /// What was promised.
    pub promise: Promise,
    /// What happened instead.
    pub what: String,
    /// The last calls and effects before it, the oldest first, a line each.
    pub trace: Vec<String>,
    /// How often the planted fault had struck by then.
    pub strikes: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {}: {}", self.seed, self.promise, self.what)
    }
}

impl std::error::Error for Violation {}

/// Runs the worlds of a seed for so many steps, and each to its rest, which adds some. The same
/// arguments give the same run.
///
/// # Errors
///
/// The first promise that is not kept. A panic of the state is one.
pub fn run(seed: u64, steps: u64, fault: Option<Fault>) -> Result<Report, Box<Violation>> {
    let mut dice = Dice::new(seed);
    let mut trace = Trace::new();
    let mut plant = fault.map(Plant::new);
    let mut report = Report::new();
    let ran = panic::catch_unwind(AssertUnwindSafe(|| {
        while report.steps < steps {
            let most = u64::from(dice.from(50, 4000)).min(steps - report.steps);
            let mut world = World::new(&mut dice, &mut trace, plant.as_mut(), report.steps)?;
            report.steps += world.run(most)?;
            report.events.add(&world.events());
        }
        Ok(())
    }));
    let strikes = plant.map_or(0, |plant| plant.strikes);
    report.strikes = strikes;
    match ran.unwrap_or_else(|panic| Err(panicked(&*panic))) {
        Ok(()) => Ok(report),
        Err(Finding { promise, what }) => Err(Box::new(Violation {
            seed,
            promise,
            what,
            trace: trace.lines(),
            strikes,
        })),
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Finding {
    let message = panic.downcast_ref::<String>().map(String::as_str);
    let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
    let message = message.unwrap_or("a panic without a message");
    let promise = match message {
        "time went back" => Promise::Invariant(10),
        _ => Promise::Panic,
    };
    Finding::new(promise, format_args!("panicked: {message}"))
}
