//! Counters of a destination, as plain values.

use crate::CloseReason;

/// How many of something there are now, and the most there were at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauge {
    /// How many there are now.
    pub current: u32,
    /// The most there were at one time.
    pub highest: u32,
}

impl Gauge {
    pub(crate) fn raise(&mut self) {
        self.set(self.current + 1);
    }

    /// # Panics
    ///
    /// Below zero: whatever is lowered here was never counted.
    pub(crate) fn lower(&mut self) {
        assert!(self.current > 0, "a gauge went below zero");
        self.current -= 1;
    }

    pub(crate) fn set(&mut self, current: u32) {
        self.current = current;
        self.highest = self.highest.max(current);
    }

    fn merge(&mut self, other: &Self) {
        self.current = self.current.saturating_add(other.current);
        self.highest = self.highest.saturating_add(other.highest);
    }
}

/// How acquires ended, apart from those rejected or timed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acquires {
    /// Calls of acquire.
    pub requested: u64,
    /// Served by a connection that was never used before.
    pub fresh: u64,
    /// Served by a connection that was used before.
    pub reused: u64,
    /// Those among the served ones that had to wait because a cap or the backoff allowed no
    /// connect for them.
    pub queued: u64,
    /// Given up by the caller before it had a connection.
    pub cancelled: u64,
    /// Ended by a connect that failed or timed out.
    pub failed: u64,
}

/// How often each timeout struck. Idle timeouts are closes: [`CloseReason::IdleTimeout`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// Acquires that failed because they got no connection in time.
    pub acquire: u64,
    /// Connects that did not finish in time.
    pub connect: u64,
    /// Connections that were held for too long.
    pub hold: u64,
}

/// Acquires that were refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rejected {
    /// Because `max_pending` waiters were waiting already.
    pub queue_full: u64,
    /// Because the pool was draining: refused at once, or still waiting at its deadline.
    pub draining: u64,
}

/// What happened to the connections and acquires of a destination.
///
/// At any moment, with `closed` standing for the sum over all reasons and `waiting` for the
/// callers that wait or have not yet picked up what they were given:
///
/// - `connects` = `opened` + `connect_failed` + `connect_aborted` + `connecting.current`
/// - `opened` = `closed` + `idle.current` + `acquired.current`
/// - `acquires.requested` = `fresh` + `reused` + `cancelled` + `failed` + `timeouts.acquire` +
///   `rejected.queue_full` + `rejected.draining` + `waiting`
/// - `queued` ≤ `fresh` + `reused`
/// - `pending.current` = the callers that wait, less `connecting.current`, but not below 0
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DestinationStats {
    /// Connections that are held, or given to a caller who has not yet picked them up.
    pub acquired: Gauge,
    /// Connections ready for reuse.
    pub idle: Gauge,
    /// Connects in flight.
    pub connecting: Gauge,
    /// Waiters that no connect in flight will serve.
    pub pending: Gauge,
    /// Connections beyond `max_connections`, for acquires that had timed out. They are among those
    /// connecting or acquired.
    pub unpooled: Gauge,
    /// How acquires ended.
    pub acquires: Acquires,
    /// Connects started.
    pub connects: u64,
    /// Connects that gave a connection.
    pub opened: u64,
    /// Connects that failed or timed out.
    pub connect_failed: u64,
    /// Connects that the pool gave up itself.
    pub connect_aborted: u64,
    /// Probes of idle connections that were begun.
    pub probes: u64,
    /// Timeouts by kind.
    pub timeouts: Timeouts,
    /// Acquires refused by reason.
    pub rejected: Rejected,
    pub(crate) closed: [u64; CloseReason::COUNT],
}

impl DestinationStats {
    /// How many opened connections were closed for `reason`.
    #[must_use]
    pub fn closed(&self, reason: CloseReason) -> u64 {
        self.closed[reason.index()]
    }

    /// How many opened connections were closed.
    #[must_use]
    pub fn closed_total(&self) -> u64 {
        self.closed.iter().sum()
    }

    /// Connections of any kind: connecting, idle and acquired.
    #[must_use]
    pub fn live(&self) -> u32 {
        self.connecting.current + self.idle.current + self.acquired.current
    }

    /// Adds the counters and gauges of `other`.
    ///
    /// The sum of two highest values is an upper bound: the two need not have been reached at the
    /// same time.
    pub fn merge(&mut self, other: &Self) {
        self.acquired.merge(&other.acquired);
        self.idle.merge(&other.idle);
        self.connecting.merge(&other.connecting);
        self.pending.merge(&other.pending);
        self.unpooled.merge(&other.unpooled);
        self.acquires.requested += other.acquires.requested;
        self.acquires.fresh += other.acquires.fresh;
        self.acquires.reused += other.acquires.reused;
        self.acquires.queued += other.acquires.queued;
        self.acquires.cancelled += other.acquires.cancelled;
        self.acquires.failed += other.acquires.failed;
        self.connects += other.connects;
        self.opened += other.opened;
        self.connect_failed += other.connect_failed;
        self.connect_aborted += other.connect_aborted;
        self.probes += other.probes;
        self.timeouts.acquire += other.timeouts.acquire;
        self.timeouts.connect += other.timeouts.connect;
        self.timeouts.hold += other.timeouts.hold;
        self.rejected.queue_full += other.rejected.queue_full;
        self.rejected.draining += other.rejected.draining;
        for (sum, count) in self.closed.iter_mut().zip(&other.closed) {
            *sum += count;
        }
    }

    pub(crate) fn count_close(&mut self, reason: CloseReason) {
        self.closed[reason.index()] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_adds_every_field() {
        let mut one = DestinationStats::default();
        one.acquired.raise();
        one.opened = 1;
        one.count_close(CloseReason::Reset);
        one.timeouts.hold = 3;
        let mut sum = one;
        sum.merge(&one);
        assert_eq!(
            sum.acquired,
            Gauge {
                current: 2,
                highest: 2
            }
        );
        assert_eq!((sum.opened, sum.timeouts.hold), (2, 6));
        assert_eq!((sum.closed(CloseReason::Reset), sum.closed_total()), (2, 2));
    }

    #[test]
    fn a_gauge_remembers_its_highest_value() {
        let mut gauge = Gauge::default();
        gauge.raise();
        gauge.raise();
        gauge.lower();
        assert_eq!(
            gauge,
            Gauge {
                current: 1,
                highest: 2
            }
        );
    }

    /// Fault row G8.
    #[test]
    #[should_panic(expected = "below zero")]
    fn a_gauge_does_not_go_below_zero() {
        Gauge::default().lower();
    }
}
