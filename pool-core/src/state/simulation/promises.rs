//! What has to hold after every step, judged by the model alone and then against the state.

use std::fmt;

use super::super::entries::{ConnStatus, WaiterStatus};
use super::super::{DestinationStats, PoolState};
use super::files::{Asking, Conn, Place, Waiter};
use super::oracle::Oracle;
use super::{Promise, TICK};
use crate::Timestamp;

/// A promise that was not kept.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) promise: Promise,
    pub(super) what: String,
}

impl Finding {
    #[cold]
    pub(super) fn new(promise: Promise, what: fmt::Arguments<'_>) -> Self {
        Self {
            promise,
            what: super::trace::shorten(&what.to_string()),
        }
    }
}

/// Returns a [`Finding`] unless the condition holds.
macro_rules! ensure {
    ($condition:expr, order, $($what:tt)+) => {
        ensure!(@ $condition, $crate::state::simulation::Promise::ReuseOrder, $($what)+)
    };
    ($condition:expr, liveness, $($what:tt)+) => {
        ensure!(@ $condition, $crate::state::simulation::Promise::Liveness, $($what)+)
    };
    ($condition:expr, ends, $($what:tt)+) => {
        ensure!(@ $condition, $crate::state::simulation::Promise::StateThatEnds, $($what)+)
    };
    ($condition:expr, warm, $($what:tt)+) => {
        ensure!(@ $condition, $crate::state::simulation::Promise::Warmth, $($what)+)
    };
    ($condition:expr, counts, $($what:tt)+) => {
        ensure!(@ $condition, $crate::state::simulation::Promise::Counts, $($what)+)
    };
    ($condition:expr, $number:literal, $($what:tt)+) => {
        ensure!(@ $condition, $crate::state::simulation::Promise::Invariant($number), $($what)+)
    };
    (@ $condition:expr, $promise:expr, $($what:tt)+) => {
        if !$condition {
            return Err($crate::state::simulation::promises::Finding::new(
                $promise,
                format_args!($($what)+),
            ));
        }
    };
}
pub(super) use ensure;

/// What one destination has, or all of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) dials: u32,
    pub(super) unpooled_dials: u32,
    pub(super) idle: u32,
    pub(super) probed: u32,
    /// Held, or delivered.
    pub(super) acquired: u32,
    pub(super) unpooled: u32,
    /// Waiters in the queue.
    pub(super) waiting: u32,
    /// Those of them that take a connection that was used before.
    pub(super) takers: u32,
    /// Those for whom a connect has to be started even while somebody may release.
    pub(super) ripe: u32,
}

impl Tally {
    pub(super) const fn live(&self) -> u32 {
        self.dials + self.unpooled_dials + self.idle + self.probed + self.acquired
    }

    pub(super) const fn pooled(&self) -> u32 {
        self.live() - self.unpooled
    }

    pub(super) const fn pending(&self) -> u32 {
        self.waiting.saturating_sub(self.dials)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.live() == 0 && self.waiting == 0
    }

    pub(super) fn count_conn(&mut self, conn: &Conn) {
        self.unpooled += u32::from(conn.unpooled);
        match conn.place {
            Place::Connecting => self.dials += 1,
            Place::ConnectingFor(_) => self.unpooled_dials += 1,
            Place::Idle => self.idle += 1,
            Place::Probed { .. } => self.probed += 1,
            Place::Delivered(_) | Place::Held => self.acquired += 1,
        }
    }

    pub(super) fn count_waiter(&mut self, waiter: &Waiter, looked: Timestamp) {
        if waiter.is_waiting() {
            self.waiting += 1;
            self.takers += u32::from(!waiter.fresh);
            self.ripe += u32::from(waiter.is_ripe(looked));
        }
    }
}

impl Oracle {
    /// Everything that has to hold between two calls.
    pub(super) fn judge(&mut self, state: &PoolState) -> Result<(), Finding> {
        for tally in &mut self.tallies {
            *tally = Tally::default();
        }
        let mut sum = Tally::default();
        let mut earliest = Timestamp::MAX;
        for (id, waiter) in self.waiters.iter() {
            self.tallies[waiter.destination].count_waiter(waiter, self.looked);
            sum.count_waiter(waiter, self.looked);
            if waiter.is_waiting() {
                let deadline = match waiter.clocked {
                    true => waiter.deadline,
                    false => Some(self.now),
                };
                earliest = earliest.min(deadline.unwrap_or(Timestamp::MAX));
            }
            let status = state.waiters.get(id).map(|waiter| waiter.status);
            let agrees = match status {
                Some(WaiterStatus::Waiting) => waiter.is_waiting(),
                Some(WaiterStatus::Delivered(conn)) => waiter.delivered == Some(conn),
                Some(WaiterStatus::Overflown(conn)) => waiter.overflown == Some(conn),
                None => false,
            };
            ensure!(agrees, 7, "{id:?} is {status:?} for the state: {waiter:?}");
        }
        for (id, conn) in self.conns.iter() {
            self.tallies[conn.destination].count_conn(conn);
            sum.count_conn(conn);
            earliest = earliest.min(self.latest_end(conn));
            let status = state.conns.get(id).map(|conn| conn.status);
            let agrees = match (status, conn.place) {
                (Some(ConnStatus::Connecting), Place::Connecting)
                | (Some(ConnStatus::Idle), Place::Idle)
                | (Some(ConnStatus::Probed), Place::Probed { .. })
                | (Some(ConnStatus::Acquired), Place::Held) => true,
                (Some(ConnStatus::ConnectingFor(one)), Place::ConnectingFor(other))
                | (Some(ConnStatus::Delivered(one)), Place::Delivered(other)) => one == other,
                _ => false,
            };
            ensure!(agrees, 8, "{id:?} is {status:?} for the state: {conn:?}");
        }
        self.judge_timers(state, earliest)?;
        for destination in 0..self.destinations.len() {
            self.judge_destination(state, destination, &sum)?;
        }
        self.judge_room(&sum)?;
        self.judge_counts(state, &sum)?;
        self.judge_drain(&sum)
    }

    /// When what a connection does has to be over, or its timer has to be set.
    fn latest_end(&self, conn: &Conn) -> Timestamp {
        if !conn.clocked {
            return self.now;
        }
        let end = match conn.place {
            Place::Idle => self.idle_ends(conn),
            Place::Probed { began } => match conn.most {
                Some(most) => began + most,
                None => Timestamp::MAX,
            },
            _ => match conn.most {
                Some(most) => conn.since + most,
                None => Timestamp::MAX,
            },
        };
        end.max(conn.timed)
    }

    fn judge_destination(
        &self,
        state: &PoolState,
        destination: usize,
        sum: &Tally,
    ) -> Result<(), Finding> {
        let tally = &self.tallies[destination];
        let entry = &self.destinations[destination];
        let Some(key) = entry.key else {
            ensure!(tally.is_empty(), 8, "in use without a key: {tally:?}");
            return Ok(());
        };
        self.judge_limits(destination)?;
        ensure!(
            tally.idle == 0 || tally.takers == 0,
            3,
            "{key:?} has idle connections and waiters: {tally:?}"
        );
        self.judge_demand(destination, sum)?;
        let Some(known) = state.keys.get(key) else {
            ensure!(false, 8, "{key:?} is unknown to the state");
            return Ok(());
        };
        let stats = &known.stats;
        let gauges = [
            stats.connecting,
            stats.idle,
            stats.acquired,
            stats.unpooled,
            stats.pending,
        ];
        let gauges = gauges.map(|gauge| gauge.current);
        let counts = [
            tally.dials + tally.unpooled_dials,
            tally.idle + tally.probed,
            tally.acquired,
            tally.unpooled,
            tally.pending(),
        ];
        ensure!(
            gauges == counts,
            1,
            "{key:?} has {gauges:?} by its gauges: {tally:?}"
        );
        let unused = entry.used && tally.is_empty();
        ensure!(
            !unused || self.may_back_off(destination),
            ends,
            "{key:?} is kept though nobody uses it"
        );
        Ok(())
    }

    /// Invariant 2. A limit that was lowered leaves what is held or probed, and unpooled dials.
    fn judge_limits(&self, destination: usize) -> Result<(), Finding> {
        let (config, tally) = (&self.config, &self.tallies[destination]);
        let yielding = tally.idle + tally.dials;
        ensure!(
            tally.pooled() <= config.max_connections() || (self.retuned && yielding == 0),
            2,
            "destination {destination} has too many connections: {tally:?}"
        );
        ensure!(
            tally.idle + tally.probed <= config.max_idle() || (self.retuned && tally.idle == 0),
            2,
            "destination {destination} has too many idle ones: {tally:?}"
        );
        ensure!(
            tally.dials <= config.dials_in_flight(),
            2,
            "destination {destination} has too many connects in flight: {tally:?}"
        );
        Ok(())
    }

    /// Invariants 4 and 5.
    fn judge_demand(&self, destination: usize, sum: &Tally) -> Result<(), Finding> {
        let (config, tally) = (&self.config, &self.tallies[destination]);
        // Where nobody can release, nobody waits for a release.
        let wanting = if tally.acquired == 0 {
            tally.waiting
        } else {
            tally.ripe
        };
        let full = tally.pooled() >= config.max_connections() && tally.idle == 0;
        let own_limit = full || tally.dials >= config.dials_in_flight();
        if wanting <= tally.dials || own_limit || self.may_back_off(destination) {
            return self.judge_warmth(destination);
        }
        let total = config.max_total().is_some_and(|most| sum.live() >= most);
        let permits = self.permits.unwrap_or_default();
        let without_permit = self.permits.is_some() && permits.held <= sum.live();
        ensure!(
            total || without_permit,
            4,
            "destination {destination} has lost demand: {tally:?}, {sum:?}"
        );
        ensure!(
            total || permits.asking != Asking::No,
            5,
            "destination {destination} wants a permit and does not ask: {tally:?}, {permits:?}"
        );
        ensure!(
            sum.idle == 0 || (!total && permits.asking == Asking::Asked),
            5,
            "destination {destination} starves beside idle connections: {tally:?}, {sum:?}"
        );
        Ok(())
    }

    /// `min_idle` is kept while a destination is in use and nothing is in the way.
    fn judge_warmth(&self, destination: usize) -> Result<(), Finding> {
        let (config, tally) = (&self.config, &self.tallies[destination]);
        let entry = &self.destinations[destination];
        let used = entry.asked.is_some_and(|asked| {
            let timeout = config.idle_timeout();
            timeout.is_none_or(|timeout| self.now < asked + timeout)
        });
        let free = entry.failed.is_none()
            && self.drain.is_none()
            && self.permits.is_none()
            && config.max_total().is_none()
            && tally.dials < config.dials_in_flight()
            && tally.pooled() < config.max_connections();
        let warm = tally.idle + tally.probed + tally.dials.saturating_sub(tally.waiting);
        ensure!(
            !used || !free || warm >= config.min_idle(),
            warm,
            "destination {destination} is not kept warm: {tally:?}"
        );
        Ok(())
    }

    /// The caps over all destinations.
    fn judge_room(&self, sum: &Tally) -> Result<(), Finding> {
        let total = self.config.max_total();
        let yielding = sum.idle + sum.dials;
        ensure!(
            total.is_none_or(|most| sum.live() <= most) || (self.retuned && yielding == 0),
            2,
            "too many connections in total: {sum:?}"
        );
        let Some(permits) = self.permits else {
            return Ok(());
        };
        ensure!(
            sum.live() <= permits.held,
            2,
            "connections without permits: {permits:?}, {sum:?}"
        );
        ensure!(
            sum.live() == permits.held || sum.pending() > 0 || sum.waiting > 0,
            1,
            "permits are kept for nobody: {permits:?}, {sum:?}"
        );
        Ok(())
    }

    /// No timer is more than a tick late, neither now nor when the state asks to be called next.
    fn judge_timers(&self, state: &PoolState, earliest: Timestamp) -> Result<(), Finding> {
        if let Some(end) = self.drain.filter(|_| !self.drained) {
            let next = state.next_timeout();
            ensure!(
                self.looked < end + TICK && next.is_some_and(|next| next < end + TICK),
                11,
                "not drained at its deadline, {end:?}, {next:?}"
            );
        }
        if earliest == Timestamp::MAX {
            return Ok(());
        }
        ensure!(
            self.looked < earliest + TICK,
            10,
            "what was due at {earliest:?} is left at {:?}",
            self.looked
        );
        let next = state.next_timeout();
        ensure!(
            next.is_some_and(|next| next < earliest + TICK),
            10,
            "something is due at {earliest:?}, and the state asks for {next:?}"
        );
        Ok(())
    }

    fn judge_counts(&self, state: &PoolState, sum: &Tally) -> Result<(), Finding> {
        let counted = (state.conns.len(), state.waiters.len());
        let known = (self.conns.len(), self.waiters.len());
        ensure!(
            counted == known,
            1,
            "{counted:?} connections and waiters for the state, {known:?} by its effects"
        );
        let history = &self.history;
        let open = u64::from(sum.idle + sum.probed + sum.acquired);
        ensure!(
            history.opened == history.closed_total() + open,
            1,
            "opened and not closed: {history:?}, {sum:?}"
        );
        let told = state.totals();
        ensure!(
            same_counts(told, history),
            counts,
            "counted {told:?}, happened {history:?}"
        );
        Ok(())
    }

    fn judge_drain(&self, sum: &Tally) -> Result<(), Finding> {
        if self.drain.is_none() {
            return Ok(());
        }
        let idle = sum.idle + sum.probed;
        ensure!(idle == 0, 11, "idle connections in a drain: {sum:?}");
        let empty = self.conns.is_empty() && self.waiters.is_empty();
        ensure!(empty <= self.drained, 11, "empty, and not drained");
        Ok(())
    }
}

/// Whether the state has counted what has happened. `queued` depends on what it decided.
fn same_counts(told: &DestinationStats, happened: &DestinationStats) -> bool {
    let acquires = crate::Acquires {
        queued: happened.acquires.queued,
        ..told.acquires
    };
    acquires == happened.acquires
        && told.connects == happened.connects
        && told.opened == happened.opened
        && told.connect_failed == happened.connect_failed
        && told.connect_aborted == happened.connect_aborted
        && told.probes == happened.probes
        && told.timeouts == happened.timeouts
        && told.rejected == happened.rejected
        && told.closed == happened.closed
}
