//! How an engine has ended.

use crate::state::DestinationStats;

/// How an engine has ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EngineReport {
    /// How each core has ended, in their order.
    pub cores: Vec<CoreReport>,
}

impl EngineReport {
    /// Whether every core had nothing left by the deadline.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.cores.iter().all(|core| core.end == CoreEnd::Drained)
    }

    /// The pools of all cores that have told.
    #[must_use]
    pub fn total(&self) -> DestinationStats {
        let mut total = DestinationStats::default();
        for counts in self.cores.iter().filter_map(|core| core.counts.as_ref()) {
            total.merge(&counts.pool);
        }
        total
    }
}

/// How a core of an engine has ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CoreReport {
    /// In which way.
    pub end: CoreEnd,
    /// What it has counted; none if it cannot tell any more.
    pub counts: Option<CoreCounts>,
}

/// In which way a core of an engine has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CoreEnd {
    /// Every holder and every waiter was done before the deadline.
    Drained,
    /// What was left at the deadline was ended: connections force-closed, waiters rejected.
    CutShort,
    /// The core itself had panicked, in the drain or long before.
    Died,
    /// The core still ran 100 ms after the deadline: a user's code blocks its thread, which is
    /// left behind. It ends when that code lets it.
    Stuck,
}

/// What a core of an engine has counted.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CoreCounts {
    /// Panics of jobs, tasks and connects that were caught.
    pub panics: u64,
    /// The totals of its pool.
    pub pool: DestinationStats,
}
