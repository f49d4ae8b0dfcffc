//! Every decision of the pool, as a state machine without resources.
//!
//! [`PoolState`] knows connections, waiters and destinations by their ids and time by what it is
//! told. It opens no socket, reads no clock, wakes no task and calls no user code. Whoever drives
//! it owns the sockets, keeps a table from destinations to [`KeyId`]s, and follows one rule: call
//! one method, carry out the [`Effect`]s until [`PoolState::poll_effect`] returns `None`, then arm
//! a timer for [`PoolState::next_timeout`].
//!
//! The hot path leaves no effect: an acquire answered by [`Admission::Reuse`], and a release that
//! makes the connection idle.
//!
//! The transitions stand in the order of a connection's life: `acquire`, `dial`, `release`,
//! `drain`. Invariants are cited by their number in docs/INVARIANTS.md and checked in
//! `invariants`.

mod acquire;
mod dial;
mod drain;
mod effect;
mod entries;
#[cfg(test)]
mod invariants;
mod list;
mod random;
mod release;
pub(crate) mod slab;
#[cfg(test)]
mod tests;
pub(crate) mod wheel;

use std::collections::VecDeque;

use drain::Phase;
use entries::{Conn, ConnStatus, Key, TimerOwner, Waiter, WaiterStatus};
use random::Random;
use slab::Slab;
use wheel::Wheel;

pub use crate::stats::{Acquires, DestinationStats, Gauge, Rejected, Timeouts};
use crate::{CloseReason, PoolConfig, Timestamp};
pub use effect::{Admission, Disposition, Effect, Rejection};
pub use slab::{ConnId, KeyId, WaiterId};

/// The state of one core's pool; see the [module documentation](self) for how to drive it.
///
/// Ids that have ended are stale: methods that take one change nothing, unless they say
/// otherwise.
///
/// # Panics
///
/// Every method that takes `now` panics if time goes back.
#[derive(Debug)]
pub struct PoolState {
    config: PoolConfig,
    now: Timestamp,
    conns: Slab<ConnId, Conn>,
    waiters: Slab<WaiterId, Waiter>,
    keys: Slab<KeyId, Key>,
    timers: Wheel<TimerOwner>,
    effects: VecDeque<Effect>,
    /// Keys to be forgotten if they are still unused once the effects have run dry. Not sooner:
    /// a driver that closes the last idle connection of a key on its way to an acquire still
    /// needs the key.
    maybe_unused: Vec<KeyId>,
    phase: Phase,
    random: Random,
    /// Waiters so far.
    arrivals: u64,
    /// The gauges of all keys together, and the counts of the forgotten ones.
    totals: DestinationStats,
}

impl PoolState {
    /// A pool without destinations, at [`Timestamp::ZERO`]. `seed` decides by how much the
    /// lifetimes of its connections differ: the same seed and the same calls give the same state.
    #[must_use]
    pub fn new(config: PoolConfig, seed: u64) -> Self {
        Self {
            config,
            now: Timestamp::ZERO,
            conns: Slab::new(),
            waiters: Slab::new(),
            keys: Slab::new(),
            timers: Wheel::new(),
            effects: VecDeque::new(),
            maybe_unused: Vec::new(),
            phase: Phase::Open,
            random: Random::new(seed),
            arrivals: 0,
            totals: DestinationStats::default(),
        }
    }

    /// The limits and timeouts.
    #[must_use]
    pub fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// Names a destination that has no id. The id lives until [`Effect::ForgetKey`], which comes
    /// at some time after its first acquire, or with a drain.
    pub fn insert_key(&mut self) -> KeyId {
        self.keys.insert(Key::new())
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) next, if nothing else happens
    /// before. It may come without anything to time out.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Timestamp> {
        self.timers.next_deadline()
    }

    /// Lets everything time out whose deadline has passed: waiters, connects, idle and acquired
    /// connections, backoffs, the drain. Afterwards [`next_timeout`](Self::next_timeout) is later
    /// than `now`.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.observe(now);
        while let Some(timer) = self.timers.pop_expired(now) {
            match self.timers.get_mut(timer).copied() {
                Some(TimerOwner::Conn(id)) => self.conn_timed_out(now, id),
                Some(TimerOwner::Waiter(id)) => self.acquire_timed_out(now, id),
                Some(TimerOwner::Key(id)) => self.backoff_ended(now, id),
                Some(TimerOwner::Drain) => self.end_drain(now),
                None => {}
            }
        }
    }

    fn conn_timed_out(&mut self, now: Timestamp, id: ConnId) {
        let Conn { key, status, .. } = self.conns[id];
        match status {
            ConnStatus::Connecting => self.connect_timed_out(now, id),
            ConnStatus::Idle => self.force_close(now, id, self.end_of_idle(now, id)),
            ConnStatus::Acquired | ConnStatus::Delivered(_) => {
                self.keys[key].stats.timeouts.hold += 1;
                self.force_close(now, id, CloseReason::HoldTimeout);
            }
        }
    }

    /// The next thing to do, oldest first.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        if let Some(effect) = self.effects.pop_front() {
            return Some(effect);
        }
        while let Some(id) = self.maybe_unused.pop() {
            let key = &mut self.keys[id];
            key.maybe_unused = false;
            if key.is_unused() {
                self.totals.add_counts(&key.stats);
                self.keys.remove(id);
                return Some(Effect::ForgetKey(id));
            }
        }
        self.phase.announce_end().then_some(Effect::Drained)
    }

    /// Whether to call [`poll_effect`](Self::poll_effect): `false` means that it would return
    /// `None`.
    #[must_use]
    #[inline]
    pub fn has_effects(&self) -> bool {
        !self.effects.is_empty() || !self.maybe_unused.is_empty() || self.phase.has_news()
    }

    /// Whether the connection was used before by a holder who released it. A connection that was
    /// given to a waiter and not claimed is not used by that.
    #[must_use]
    pub fn is_reused(&self, conn: ConnId) -> bool {
        self.conns.get(conn).is_some_and(|conn| conn.uses > 0)
    }

    /// The counters of a destination since it was inserted.
    #[must_use]
    pub fn destination_stats(&self, key: KeyId) -> Option<DestinationStats> {
        self.keys.get(key).map(|key| key.stats)
    }

    /// The destinations that have a connection, a waiter or a timer.
    pub fn keys(&self) -> impl Iterator<Item = KeyId> {
        self.keys.iter().map(|(id, _)| id)
    }

    /// The counters of all destinations, including those forgotten, so that no count ever goes
    /// down. The highest values are those of the pool as a whole.
    #[must_use]
    pub fn totals(&self) -> DestinationStats {
        let mut totals = self.totals;
        for (_, key) in self.keys.iter() {
            totals.add_counts(&key.stats);
        }
        totals
    }

    /// Invariant 10: time does not go back.
    #[inline]
    #[track_caller]
    fn observe(&mut self, now: Timestamp) {
        assert!(now >= self.now, "time went back");
        self.now = now;
    }

    /// Moves a connection to its next status: list, gauge and timer change together.
    #[inline]
    fn move_to(&mut self, now: Timestamp, id: ConnId, status: ConnStatus) {
        self.leave(id);
        self.enter(now, id, status);
    }

    /// Takes a connection out of the list and the gauge of its status.
    #[inline]
    fn leave(&mut self, id: ConnId) {
        let Conn { key, status, .. } = self.conns[id];
        let key = &mut self.keys[key];
        match status {
            ConnStatus::Connecting => {
                key.connecting.remove(&mut self.conns, id);
                key.stats.connecting.lower();
                self.totals.connecting.lower();
            }
            ConnStatus::Idle => {
                key.idle.remove(&mut self.conns, id);
                key.stats.idle.lower();
                self.totals.idle.lower();
            }
            ConnStatus::Acquired | ConnStatus::Delivered(_) => {
                key.stats.acquired.lower();
                self.totals.acquired.lower();
            }
        }
    }

    /// Brings a connection that is in no list into a status, under that status's timer.
    #[inline]
    fn enter(&mut self, now: Timestamp, id: ConnId, status: ConnStatus) {
        let conn = &mut self.conns[id];
        conn.status = status;
        let timer = conn.timer;
        let key = &mut self.keys[conn.key];
        let expires = conn.expires;
        let timeout = match status {
            ConnStatus::Connecting => {
                key.connecting.push_front(&mut self.conns, id);
                key.stats.connecting.raise();
                self.totals.connecting.raise();
                self.config.connect_timeout()
            }
            ConnStatus::Idle => {
                key.idle.push_front(&mut self.conns, id);
                key.stats.idle.raise();
                self.totals.idle.raise();
                self.config.idle_timeout()
            }
            ConnStatus::Acquired | ConnStatus::Delivered(_) => {
                key.stats.acquired.raise();
                self.totals.acquired.raise();
                self.config.hold_timeout()
            }
        };
        let mut deadline = timeout.map_or(Timestamp::MAX, |timeout| now + timeout);
        if status == ConnStatus::Idle {
            deadline = deadline.min(expires);
        }
        match deadline {
            Timestamp::MAX => self.timers.cancel(timer),
            deadline => self.timers.schedule(timer, deadline),
        }
    }

    /// Frees a connection's slot and timer, whatever its status.
    fn end_conn(&mut self, id: ConnId) -> Option<Conn> {
        self.leave(id);
        let conn = self.conns.remove(id)?;
        self.timers.remove(conn.timer);
        Some(conn)
    }

    /// Frees a waiter and its timer, whatever its status.
    fn end_waiter(&mut self, id: WaiterId) -> Option<Waiter> {
        if self.waiters.get(id)?.status == WaiterStatus::Waiting {
            self.leave_queue(id);
        }
        let waiter = self.waiters.remove(id)?;
        self.timers.remove(waiter.timer);
        Some(waiter)
    }

    fn leave_queue(&mut self, id: WaiterId) {
        let key = &mut self.keys[self.waiters[id].key];
        key.queue.remove(&mut self.waiters, id);
        key.waiting -= 1;
    }

    /// Ends every transition that may have changed a key's demand or room: starts the connects
    /// that are due (invariant 4), counts who is left pending, and sees to keys and drains that
    /// have nothing left.
    fn settle(&mut self, now: Timestamp, id: KeyId) {
        self.start_connects(now, id);
        self.shed_demand_when_draining(id);
        let key = &mut self.keys[id];
        let (before, pending) = (key.stats.pending.current, key.pending());
        key.stats.pending.set(pending);
        self.totals
            .pending
            .set(self.totals.pending.current - before + pending);
        if key.is_unused() && !key.maybe_unused {
            key.maybe_unused = true;
            self.maybe_unused.push(id);
        }
        self.end_drain_when_empty();
    }
}
