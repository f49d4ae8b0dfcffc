//! How many connects a key has in flight, and the backoff after failures.
//!
//! A connect belongs to the pool, not to the waiter on whose account it was started.

use std::time::Duration;

use super::entries::{Conn, ConnStatus, Key, WaiterStatus};
use super::list::Links;
use super::wheel::TimerId;
use super::{ConnId, Effect, KeyId, PoolState, Rejection, TimerOwner, WaiterId};
use crate::{CloseReason, Timestamp};

const FIRST_BACKOFF: Duration = Duration::from_millis(1);
const LONGEST_BACKOFF: Duration = Duration::from_millis(100);

/// Spaces the connects of a key after failures.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backoff {
    /// Windows since the last success in which a connect failed.
    failures: u32,
    /// The end of the window: no connect starts before it.
    until: Timestamp,
    /// Armed for `until`; a window without a timer would leave its waiters behind.
    pub(super) timer: Option<TimerId>,
}

impl Backoff {
    pub(super) fn allows(&self, now: Timestamp) -> bool {
        now >= self.until
    }

    /// Whether the last connect, if there was one, succeeded.
    pub(super) fn is_clear(&self) -> bool {
        self.failures == 0
    }

    /// Opens a window, unless one is open: the failures of connects that were started together
    /// count as one.
    fn failed(&mut self, now: Timestamp) -> Option<Timestamp> {
        if !self.allows(now) {
            return None;
        }
        let factor = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        let window = FIRST_BACKOFF.saturating_mul(factor).min(LONGEST_BACKOFF);
        self.failures = self.failures.saturating_add(1);
        self.until = now + window;
        Some(self.until)
    }
}

impl PoolState {
    /// Whether one more connect should be started for the waiters of a key, as far as its own limits
    /// and its backoff are concerned.
    ///
    /// Idle connections are room too: those who wait beside them take only new ones (invariant 3).
    #[inline]
    pub(super) fn wants_connect(&self, now: Timestamp, key: &Key) -> bool {
        key.dials < key.ripe
            && key.dials < self.config.dials_in_flight()
            && (key.pooled() < self.config.max_connections() || key.has_idle())
            && key.backoff.allows(now)
            && !self.phase.is_over()
    }

    /// Whether a connect runs, or can be started, for one more waiter of a key.
    pub(super) fn is_coverable(&self, now: Timestamp, key: &Key) -> bool {
        if key.waiting < key.dials {
            return true;
        }
        if !key.backoff.allows(now) {
            return false;
        }
        let idle = key.stats.idle.current - key.probed;
        let free = self.config.max_connections().saturating_sub(key.pooled());
        let dials = self.config.dials_in_flight().saturating_sub(key.dials);
        let room = dials.min(free + idle).min(self.attainable());
        key.waiting - key.dials < room
    }

    /// Starts every connect that waiters need and the limits allow. Where keys starve, nobody goes
    /// before them: the key is listed among them when it is settled.
    pub(super) fn start_connects(&mut self, now: Timestamp, id: KeyId) {
        while self.room.is_ample()
            && self.wants_connect(now, &self.keys[id])
            && self.make_room(now, id)
        {
            self.start_connect(now, id);
        }
    }

    /// Starts a connect; there has to be room for it.
    pub(super) fn start_connect(&mut self, now: Timestamp, key: KeyId) {
        self.insert_connect(now, key, ConnStatus::Connecting);
    }

    /// Starts a connect beyond `max_connections` for a waiter whose time is over, if that is allowed
    /// and there is room under the caps over all keys.
    pub(super) fn overflow(&mut self, now: Timestamp, waiter: WaiterId) -> bool {
        let id = self.waiters[waiter].key;
        let key = &self.keys[id];
        let allowed = key.stats.unpooled.current < self.config.max_unpooled()
            && key.backoff.allows(now)
            && self.room.is_ample()
            && self.has_room();
        if allowed {
            self.leave_queue(waiter);
            let conn = self.insert_connect(now, id, ConnStatus::ConnectingFor(waiter));
            self.conns[conn].unpooled = true;
            self.tally(id, |stats| stats.unpooled.raise());
            let waiter = &mut self.waiters[waiter];
            waiter.status = WaiterStatus::Overflown(conn);
            self.timers.cancel(waiter.timer);
        }
        allowed
    }

    fn insert_connect(&mut self, now: Timestamp, key: KeyId, status: ConnStatus) -> ConnId {
        let id = self.conns.insert_with(|id| Conn {
            key,
            status,
            uses: 0,
            keep_alive: None,
            unpooled: false,
            retired: false,
            expires: Timestamp::MAX,
            since: now,
            timer: self.timers.insert(TimerOwner::Conn(id)),
            by_status: Links::new(),
            by_age: Links::new(),
        });
        self.room_taken();
        self.enter(now, id, status);
        self.tally(key, |stats| stats.connects += 1);
        self.effects.push_back(Effect::Connect(id, key));
        id
    }

    /// The waiters of a key need not wait for a release where there is nobody who could release.
    pub(super) fn ripen_if_nobody_releases(&mut self, id: KeyId) {
        let key = &mut self.keys[id];
        if key.ripe == key.waiting || key.stats.acquired.current > 0 {
            return;
        }
        let unripe: Vec<WaiterId> = key.queue.iter(&self.waiters).collect();
        for waiter in unripe {
            self.ripen(waiter);
        }
    }

    /// From now on a connect may be started for a waiter in the queue.
    pub(super) fn ripen(&mut self, id: WaiterId) {
        let waiter = &mut self.waiters[id];
        if !std::mem::replace(&mut waiter.ripe, true) {
            self.keys[waiter.key].ripe += 1;
        }
    }

    /// A connect has given a connection, which goes to the oldest waiter or becomes idle.
    ///
    /// Returns `false` if nobody expects it any more: the connect was aborted, and the driver
    /// drops what it made.
    #[must_use = "a connection that is not expected has to be dropped"]
    pub fn connected(&mut self, now: Timestamp, conn: ConnId) -> bool {
        self.observe(now);
        let Some((key, status)) = self.connecting(conn) else {
            return false;
        };
        let took = now.saturating_duration_since(self.conns[conn].since);
        self.histograms.connect.record(took);
        self.tally(key, |stats| stats.opened += 1);
        self.end_backoff(key);
        self.keys[key].backoff = Backoff::default();
        self.conns[conn].expires = self.draw_expiry(now);
        match status {
            ConnStatus::ConnectingFor(waiter) => self.hand_to(now, conn, waiter),
            _ => self.place(now, conn),
        }
        self.settle(now, key);
        true
    }

    /// When a connection that is made now expires: up to 10 % before its longest life, so that
    /// those made together do not end together.
    fn draw_expiry(&mut self, now: Timestamp) -> Timestamp {
        let Some(lifetime) = self.config.max_lifetime() else {
            return Timestamp::MAX;
        };
        let earlier = lifetime.mul_f64(0.1 * self.random.fraction());
        now + (lifetime - earlier).max(Duration::from_nanos(1))
    }

    /// A connect has failed. The oldest waiter, if there is one, has ended by it, or the one that an
    /// unpooled connect was for: the driver tells it the cause. The others get new connects once the
    /// backoff has passed.
    pub fn connect_failed(&mut self, now: Timestamp, conn: ConnId) -> Option<WaiterId> {
        self.observe(now);
        let (key, status) = self.connecting(conn)?;
        self.fail_connect(now, key, conn, None);
        let failed = self.served_by(key, status);
        if let Some(waiter) = failed {
            self.end_waiter(waiter);
            self.tally(key, |stats| stats.acquires.failed += 1);
        }
        self.settle(now, key);
        failed
    }

    pub(super) fn connect_timed_out(&mut self, now: Timestamp, conn: ConnId) {
        let Conn { key, status, .. } = self.conns[conn];
        self.tally(key, |stats| stats.timeouts.connect += 1);
        let effect = Effect::AbortConnect(conn, CloseReason::ConnectTimeout);
        self.fail_connect(now, key, conn, Some(effect));
        if let Some(waiter) = self.served_by(key, status) {
            self.reject(waiter, Rejection::ConnectTimeout);
        }
        self.settle(now, key);
    }

    /// Gives up a connect that did not fail, and with it the waiter that nothing else can serve.
    pub(super) fn abort_connect(&mut self, conn: ConnId, reason: CloseReason) {
        let effect = Effect::AbortConnect(conn, reason);
        let Some(Conn { key, status, .. }) = self.end_conn(conn, Some(effect)) else {
            return;
        };
        self.tally(key, |stats| stats.connect_aborted += 1);
        if let ConnStatus::ConnectingFor(waiter) = status {
            let over = self.phase.is_over();
            self.reject(
                waiter,
                match over {
                    true => Rejection::Draining,
                    false => Rejection::AcquireTimeout,
                },
            );
        }
    }

    /// The waiter that a connect would have served.
    fn served_by(&self, key: KeyId, status: ConnStatus) -> Option<WaiterId> {
        match status {
            ConnStatus::ConnectingFor(waiter) => Some(waiter),
            _ => self.keys[key].queue.front(&self.waiters),
        }
    }

    fn connecting(&self, conn: ConnId) -> Option<(KeyId, ConnStatus)> {
        let Conn { key, status, .. } = *self.conns.get(conn)?;
        let connecting = matches!(
            status,
            ConnStatus::Connecting | ConnStatus::ConnectingFor(_)
        );
        connecting.then_some((key, status))
    }

    fn fail_connect(&mut self, now: Timestamp, key: KeyId, conn: ConnId, effect: Option<Effect>) {
        self.end_conn(conn, effect);
        self.tally(key, |stats| stats.connect_failed += 1);
        self.start_backoff(now, key);
    }

    /// Spaces the next connects of a key whose peer has just failed one.
    pub(super) fn start_backoff(&mut self, now: Timestamp, key_id: KeyId) {
        let key = &mut self.keys[key_id];
        if let Some(until) = key.backoff.failed(now) {
            // The key outlives its window even without waiters: forgotten at once, it would let
            // a caller in a loop dial a refusing peer without any pause.
            let timers = &mut self.timers;
            let timer = key
                .backoff
                .timer
                .get_or_insert_with(|| timers.insert(TimerOwner::Key(key_id)));
            self.timers.schedule(*timer, until);
        }
    }

    pub(super) fn backoff_ended(&mut self, now: Timestamp, key: KeyId) {
        self.end_backoff(key);
        self.settle(now, key);
    }

    pub(super) fn end_backoff(&mut self, key: KeyId) {
        let backoff = &mut self.keys[key].backoff;
        backoff.until = Timestamp::ZERO;
        if let Some(timer) = backoff.timer.take() {
            self.timers.remove(timer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_double_up_to_a_bound_without_overflow() {
        let mut backoff = Backoff::default();
        let mut now = Timestamp::ZERO;
        let mut windows = Vec::new();
        for _ in 0..100 {
            let until = backoff.failed(now).unwrap();
            windows.push(until.saturating_duration_since(now).as_millis());
            now = until;
        }
        assert_eq!(windows[..9], [1, 2, 4, 8, 16, 32, 64, 100, 100]);
        assert!(windows[9..].iter().all(|window| *window == 100));
    }

    #[test]
    fn failures_within_a_window_count_once() {
        let mut backoff = Backoff::default();
        let until = backoff.failed(Timestamp::ZERO).unwrap();
        assert_eq!(
            backoff.failed(Timestamp::from_nanos(until.as_nanos() - 1)),
            None
        );
        assert_eq!((backoff.failures, backoff.until), (1, until));
        assert!(backoff.allows(until));
    }
}
