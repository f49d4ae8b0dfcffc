//! What a gateway has done, for its last line.

use std::cell::Cell;
use std::fmt;

use pool_core::DestinationStats;

/// What a gateway has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Requests whose head was read.
    pub requests: u64,
    /// Final responses by class, 2xx first.
    pub responses: [u64; 4],
    /// Responses that broke off.
    pub broken: u64,
    /// Heads that were malformed, too large or too slow. They are no requests, and the answers to
    /// them are not among the responses.
    pub refused: u64,
    /// The pools of all cores.
    pub pools: DestinationStats,
}

impl Totals {
    pub(super) fn plus(mut self, other: Self) -> Self {
        self.requests += other.requests;
        for (sum, other) in self.responses.iter_mut().zip(other.responses) {
            *sum += other;
        }
        self.broken += other.broken;
        self.refused += other.refused;
        self.pools.merge(&other.pools);
        self
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            requests,
            broken,
            refused,
            pools,
            ..
        } = self;
        let [ok, moved, wrong, failed] = self.responses;
        write!(
            f,
            "{requests} requests: {ok} 2xx, {moved} 3xx, {wrong} 4xx, {failed} 5xx, \
             {broken} broken off; {refused} refused; {} upstream connections, reused {} times",
            pools.opened, pools.acquires.reused
        )
    }
}

/// The counts of one core, shared by its connections.
#[derive(Debug, Default)]
pub(super) struct Counts(Cell<Totals>);

impl Counts {
    pub(super) fn request(&self) {
        self.change(|totals| totals.requests += 1);
    }

    pub(super) fn response(&self, status: u16) {
        let class = usize::from(status / 100).clamp(2, 5) - 2;
        self.change(|totals| totals.responses[class] += 1);
    }

    pub(super) fn broken(&self) {
        self.change(|totals| totals.broken += 1);
    }

    pub(super) fn refused(&self) {
        self.change(|totals| totals.refused += 1);
    }

    pub(super) fn with_pool(&self, pools: DestinationStats) -> Totals {
        Totals {
            pools,
            ..self.0.get()
        }
    }

    fn change(&self, change: impl FnOnce(&mut Totals)) {
        let mut totals = self.0.get();
        change(&mut totals);
        self.0.set(totals);
    }
}
