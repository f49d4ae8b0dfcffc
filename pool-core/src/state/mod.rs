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
//! `heartbeat`, `drain`; `room` is the caps over all destinations, `retune` a change of limits.
//! Invariants are cited by their number in docs/INVARIANTS.md and checked in `invariants`.

mod acquire;
mod dial;
mod drain;
mod effect;
mod entries;
mod heartbeat;
mod histograms;
#[cfg(any(test, feature = "simulation"))]
mod invariants;
mod list;
mod random;
mod release;
mod retune;
mod room;
#[cfg(any(test, feature = "simulation"))]
pub mod simulation;
pub(crate) mod slab;
#[cfg(test)]
mod tests;
mod timers;
pub(crate) mod wheel;

use std::collections::VecDeque;

use drain::Phase;
use entries::{Conn, ConnStatus, Key, TimerOwner, Waiter, WaiterStatus};
use random::Random;
use room::Room;
use slab::Slab;
use wheel::Wheel;

pub use crate::stats::{Acquires, DestinationStats, Gauge, Rejected, Timeouts};
use crate::{PoolConfig, Timestamp};
pub use acquire::IdleCandidate;
pub use effect::{Admission, Disposition, Effect, Rejection};
pub use histograms::{Histogram, Histograms};
pub use slab::{ConnId, KeyId, WaiterId};

/// An empty list of what is to be done keeps room for so many.
const KEPT_ROOM: usize = 256;

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
    room: Room,
    effects: VecDeque<Effect>,
    /// Keys to be forgotten if they are still unused once the effects have run dry. Not sooner:
    /// a driver that closes the last idle connection of a key on its way to an acquire still
    /// needs the key.
    maybe_unused: Vec<KeyId>,
    phase: Phase,
    random: Random,
    /// Waiters so far.
    arrivals: u64,
    /// Of all keys together, those included that were forgotten.
    totals: DestinationStats,
    /// Without the acquires that were served at once, and without the connections that were given
    /// back in the turn that had acquired them.
    histograms: Histograms,
    held_for_no_time: u64,
}

impl PoolState {
    /// A pool without destinations, at [`Timestamp::ZERO`]. `seed` decides by how much the
    /// lifetimes of its connections differ: the same seed and the same calls give the same state.
    #[must_use]
    pub fn new(config: PoolConfig, seed: u64) -> Self {
        Self {
            room: Room::new(config.max_total().is_some()),
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
            histograms: Histograms::default(),
            held_for_no_time: 0,
        }
    }

    /// The limits and timeouts.
    #[must_use]
    pub fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// Names a destination that has no id. The id lives until [`Effect::ForgetKey`], which comes
    /// at some time after its first acquire or its last unpin, or with a drain or a change of
    /// limits.
    pub fn insert_key(&mut self) -> KeyId {
        self.keys.insert(Key::new())
    }

    /// Keeps a destination from being forgotten, until as many calls of
    /// [`unpin_key`](Self::unpin_key).
    ///
    /// # Panics
    ///
    /// If it has been forgotten.
    pub fn pin_key(&mut self, key: KeyId) {
        self.keys[key].pins += 1;
    }

    /// Takes back one [`pin_key`](Self::pin_key).
    pub fn unpin_key(&mut self, id: KeyId) {
        let Some(key) = self.keys.get_mut(id) else {
            return;
        };
        key.pins -= 1;
        self.forget_if_unused(id);
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
                self.keys.remove(id);
                return Some(Effect::ForgetKey(id));
            }
        }
        self.give_memory_back();
        self.phase.announce_end().then_some(Effect::Drained)
    }

    /// A moment in which much has ended leaves no memory behind.
    fn give_memory_back(&mut self) {
        if self.effects.capacity() > KEPT_ROOM {
            self.effects = VecDeque::new();
        }
        if self.maybe_unused.capacity() > KEPT_ROOM {
            self.maybe_unused = Vec::new();
        }
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
    #[inline]
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
    pub fn totals(&self) -> &DestinationStats {
        &self.totals
    }

    /// How long acquires waited, connects took and connections were held.
    #[must_use]
    pub fn histograms(&self) -> Histograms {
        let mut histograms = self.histograms.clone();
        let Acquires { fresh, reused, .. } = self.totals.acquires;
        let waited = histograms.acquire_wait.count();
        histograms
            .acquire_wait
            .record_zeros(fresh + reused - waited);
        histograms.hold.record_zeros(self.held_for_no_time);
        histograms
    }

    /// Counts something for a key and for all of them.
    #[inline]
    fn tally(&mut self, key: KeyId, count: impl Fn(&mut DestinationStats)) {
        count(&mut self.keys[key].stats);
        count(&mut self.totals);
    }

    /// Invariant 10: time does not go back.
    #[inline]
    #[track_caller]
    fn observe(&mut self, now: Timestamp) {
        assert!(now >= self.now, "time went back");
        self.now = now;
    }

    /// Moves a connection to its next status: list, gauge and timer change together. `hand_out` and
    /// `become_idle` do the same for the two moves of the warm path.
    fn move_to(&mut self, now: Timestamp, id: ConnId, status: ConnStatus) {
        let conn = &mut self.conns[id];
        let before = std::mem::replace(&mut conn.status, status);
        conn.since = now;
        let (key, timer) = (conn.key, conn.timer);
        self.unlink(key, id, before);
        self.link(key, id, status);
        self.tally(key, |stats| {
            stats.gauge(before).lower();
            stats.gauge(status).raise();
        });
        self.timers.freshen(timer);
    }

    /// Takes a connection out of the list and the gauge of its status.
    fn leave(&mut self, id: ConnId) {
        let Conn { key, status, .. } = self.conns[id];
        self.unlink(key, id, status);
        self.tally(key, |stats| stats.gauge(status).lower());
    }

    /// Brings a connection that is in no list into a status, under that status's timer.
    fn enter(&mut self, now: Timestamp, id: ConnId, status: ConnStatus) {
        let conn = &mut self.conns[id];
        conn.status = status;
        conn.since = now;
        let (key, timer) = (conn.key, conn.timer);
        self.link(key, id, status);
        self.tally(key, |stats| stats.gauge(status).raise());
        self.timers.freshen(timer);
    }

    #[inline]
    fn unlink(&mut self, key: KeyId, id: ConnId, status: ConnStatus) {
        let key = &mut self.keys[key];
        match status {
            ConnStatus::Connecting => {
                key.connecting.remove(&mut self.conns, id);
                key.dials -= 1;
            }
            ConnStatus::Idle | ConnStatus::Probed => {
                if status == ConnStatus::Probed {
                    key.probed -= 1;
                    self.room.probed -= 1;
                }
                key.idle.remove(&mut self.conns, id);
                self.room.idle_ended(&mut self.conns, id);
            }
            ConnStatus::ConnectingFor(_) | ConnStatus::Acquired | ConnStatus::Delivered(_) => {}
        }
    }

    #[inline]
    fn link(&mut self, key: KeyId, id: ConnId, status: ConnStatus) {
        let key = &mut self.keys[key];
        match status {
            ConnStatus::Connecting => {
                key.connecting.push_front(&mut self.conns, id);
                key.dials += 1;
            }
            ConnStatus::Idle => {
                key.idle.push_front(&mut self.conns, id);
                self.room.idle_began(&mut self.conns, id);
            }
            ConnStatus::Probed => unreachable!("a probe leaves a connection at its place"),
            ConnStatus::ConnectingFor(_) | ConnStatus::Acquired | ConnStatus::Delivered(_) => {}
        }
    }

    /// Frees a connection's slot and timer, whatever its status, and has its socket closed as
    /// `effect` says before its room is anybody else's.
    fn end_conn(&mut self, id: ConnId, effect: Option<Effect>) -> Option<Conn> {
        self.leave(id);
        let conn = self.conns.remove(id)?;
        self.timers.remove(conn.timer);
        if conn.unpooled {
            self.tally(conn.key, |stats| stats.unpooled.lower());
        }
        self.effects.extend(effect);
        self.room_freed();
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
        let Waiter { key, ripe, .. } = self.waiters[id];
        let key = &mut self.keys[key];
        key.queue.remove(&mut self.waiters, id);
        key.waiting -= 1;
        key.ripe -= u32::from(ripe);
    }

    /// Ends every transition that may have changed a key's demand or room: starts the connects
    /// that are due (invariants 4 and 5), counts who is left pending, and sees to keys and drains
    /// that have nothing left.
    fn settle(&mut self, now: Timestamp, id: KeyId) {
        self.ripen_if_nobody_releases(id);
        self.start_connects(now, id);
        self.keep_warm(now, id);
        self.shed_demand_when_draining(id);
        self.update_hunger(now, id);
        self.update_pending(id);
        self.forget_if_unused(id);
        self.share_room(now);
        self.end_drain_when_empty();
    }

    fn update_pending(&mut self, id: KeyId) {
        let key = &mut self.keys[id];
        let (before, pending) = (key.stats.pending.current, key.pending());
        if before != pending {
            key.stats.pending.set(pending);
            let total = &mut self.totals.pending;
            total.set(total.current - before + pending);
        }
    }

    fn forget_if_unused(&mut self, id: KeyId) {
        let key = &mut self.keys[id];
        if key.is_unused() && !key.maybe_unused {
            key.maybe_unused = true;
            self.maybe_unused.push(id);
        }
    }
}
