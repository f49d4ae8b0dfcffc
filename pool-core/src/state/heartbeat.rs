//! What keeps idle connections alive, or finds out that they are not: probes, the peer's announced
//! patience, and connects in the background.

use std::time::Duration;

use super::entries::{Conn, ConnStatus, Key};
use super::release::Place;
use super::{ConnId, Effect, KeyId, PoolState};
use crate::{CloseReason, Timestamp};

impl PoolState {
    /// Notes for how long the peer keeps the connection idle, as it has announced with its last
    /// response; `None` if it has announced nothing.
    pub fn hint_keep_alive(&mut self, conn: ConnId, hint: Option<Duration>) {
        if let Some(conn) = self.conns.get_mut(conn) {
            // Rounded down, and cut off at 49 days: a hint is never taken for more than it says.
            let millis = |hint: Duration| u32::try_from(hint.as_millis()).unwrap_or(u32::MAX);
            conn.keep_alive = hint.map(millis);
        }
    }

    /// How much of the peer's announced patience the margin leaves; `None` if nothing, or if it has
    /// announced nothing.
    pub(super) fn announced(&self, conn: &Conn) -> Option<Duration> {
        let hint = Duration::from_millis(conn.keep_alive?.into());
        let left = hint.checked_sub(self.config.keep_alive_margin())?;
        (!left.is_zero()).then_some(left)
    }

    /// Whether the peer has announced that it closes the connection too soon for it to be kept.
    #[inline]
    pub(super) fn is_closed_soon(&self, conn: &Conn) -> bool {
        conn.keep_alive.is_some() && self.announced(conn).is_none()
    }

    /// A probe has ended. A healthy connection goes to the oldest waiter, or is idle again, with
    /// the time that it has been idle before; another one is closed.
    pub fn probe_ended(&mut self, now: Timestamp, id: ConnId, healthy: bool) {
        self.observe(now);
        let Some(&Conn { key, status, .. }) = self.conns.get(id) else {
            return;
        };
        if status != ConnStatus::Probed {
            return;
        }
        if !healthy {
            return self.force_close(now, id, CloseReason::HeartbeatFailed);
        }
        // Its time has gone on meanwhile.
        if let Some(reason) = self.ended(now, id)
            && !self.stays_warm(now, id, reason)
        {
            return self.force_close(now, id, reason);
        }
        // It has kept its place in the order of reuse and of eviction.
        self.conns[id].status = ConnStatus::Idle;
        self.keys[key].probed -= 1;
        self.room.probed -= 1;
        match self.next_place(now, id) {
            Place::Idle => self.reschedule_conn(now, id),
            place => self.take_to(now, id, place),
        }
        self.settle(now, key);
    }

    /// Starts the probe of an idle connection whose time for it has come, unless there are as many
    /// as there may be connects: then its turn comes an interval later.
    pub(super) fn begin_probe(&mut self, now: Timestamp, id: ConnId) {
        let key = self.conns[id].key;
        if self.keys[key].probed >= self.config.dials_in_flight() {
            return self.reschedule_conn(now, id);
        }
        self.conns[id].status = ConnStatus::Probed;
        self.keys[key].probed += 1;
        self.room.probed += 1;
        self.reschedule_conn(now, id);
        self.tally(key, |stats| stats.probes += 1);
        self.effects.push_back(Effect::Probe(id));
    }

    /// Whether an idle connection whose time is over stays for `min_idle`; its time begins anew
    /// with the last use of its destination then. One whose peer has announced for how long it
    /// keeps it does not.
    pub(super) fn stays_warm(&mut self, now: Timestamp, id: ConnId, reason: CloseReason) -> bool {
        let Conn {
            key, keep_alive, ..
        } = self.conns[id];
        let key = &self.keys[key];
        let stays = reason == CloseReason::IdleTimeout
            && keep_alive.is_none()
            && self.phase.is_open()
            && self.is_in_use(now, key)
            && key.stats.idle.current <= self.config.min_idle();
        if stays {
            self.conns[id].since = key.asked.unwrap_or(now);
        }
        stays
    }

    fn is_in_use(&self, now: Timestamp, key: &Key) -> bool {
        let timeout = self.config.idle_timeout();
        key.asked
            .is_some_and(|asked| timeout.is_none_or(|timeout| now < asked + timeout))
    }

    /// Starts the connects that `min_idle` asks for and the caps leave room for without anybody
    /// having to go.
    pub(super) fn keep_warm(&mut self, now: Timestamp, id: KeyId) {
        if self.config.min_idle() == 0 || !self.phase.is_open() {
            return;
        }
        while self.lacks_warm(now, &self.keys[id]) {
            if !self.has_room_to_spare(id) {
                return;
            }
            self.start_connect(now, id);
        }
    }

    fn lacks_warm(&self, now: Timestamp, key: &Key) -> bool {
        let spare = key.dials.saturating_sub(key.waiting);
        key.stats.idle.current + spare < self.config.min_idle()
            && self.is_in_use(now, key)
            && key.backoff.is_clear()
            && key.dials < self.config.dials_in_flight()
            && key.pooled() < self.config.max_connections()
    }
}
