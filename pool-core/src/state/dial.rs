//! How many connects a key has in flight, and the backoff after failures.
//!
//! A connect belongs to the pool, not to the waiter on whose account it was started.

use std::time::Duration;

use super::entries::{Conn, ConnStatus, Key};
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
    /// Whether the caps and the backoff leave room for one more connect, given so many waiters.
    ///
    /// Idle connections are room too: those who wait beside them take only new ones (invariant 3).
    pub(super) fn may_connect(&self, now: Timestamp, key: &Key, waiting: u32) -> bool {
        let connecting = key.stats.connecting.current;
        connecting < waiting
            && connecting < self.config.dials_in_flight()
            && (key.stats.live() < self.config.max_connections() || !key.idle.is_empty())
            && key.backoff.allows(now)
    }

    /// Starts every connect that waiters need and the caps and the backoff allow.
    pub(super) fn start_connects(&mut self, now: Timestamp, key_id: KeyId) {
        loop {
            let key = &self.keys[key_id];
            if !self.may_connect(now, key, key.waiting) {
                return;
            }
            if key.stats.live() >= self.config.max_connections()
                && let Some(coldest) = key.idle.back()
            {
                self.close(coldest, CloseReason::Evicted, Effect::Close);
            }
            let id = self.conns.insert_with(|id| Conn {
                key: key_id,
                status: ConnStatus::Connecting,
                uses: 0,
                expires: Timestamp::MAX,
                timer: self.timers.insert(TimerOwner::Conn(id)),
                links: Links::new(),
            });
            self.enter(now, id, ConnStatus::Connecting);
            self.keys[key_id].stats.connects += 1;
            self.effects.push_back(Effect::Connect(id, key_id));
        }
    }

    /// A connect has given a connection, which goes to the oldest waiter or becomes idle.
    ///
    /// Returns `false` if nobody expects it any more: the connect was aborted, and the driver
    /// drops what it made.
    #[must_use = "a connection that is not expected has to be dropped"]
    pub fn connected(&mut self, now: Timestamp, conn: ConnId) -> bool {
        self.observe(now);
        let Some(key) = self.key_of_connect(conn) else {
            return false;
        };
        self.keys[key].stats.opened += 1;
        self.end_backoff(key);
        self.keys[key].backoff = Backoff::default();
        self.conns[conn].expires = self.draw_expiry(now);
        self.place(now, conn);
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

    /// A connect has failed. The oldest waiter, if there is one, has ended by it: the driver
    /// tells it the cause. The others get new connects once the backoff has passed.
    pub fn connect_failed(&mut self, now: Timestamp, conn: ConnId) -> Option<WaiterId> {
        self.observe(now);
        let key = self.key_of_connect(conn)?;
        self.fail_connect(now, key, conn);
        let oldest = self.keys[key].queue.front();
        if let Some(waiter) = oldest {
            self.end_waiter(waiter);
            self.keys[key].stats.acquires.failed += 1;
        }
        self.settle(now, key);
        oldest
    }

    pub(super) fn connect_timed_out(&mut self, now: Timestamp, conn: ConnId) {
        let key = self.conns[conn].key;
        self.keys[key].stats.timeouts.connect += 1;
        self.fail_connect(now, key, conn);
        self.effects
            .push_back(Effect::AbortConnect(conn, CloseReason::ConnectTimeout));
        if let Some(waiter) = self.keys[key].queue.front() {
            self.reject(waiter, Rejection::ConnectTimeout);
        }
        self.settle(now, key);
    }

    /// Gives up a connect that did not fail.
    pub(super) fn abort_connect(&mut self, conn: ConnId, reason: CloseReason) {
        if let Some(Conn { key, .. }) = self.end_conn(conn) {
            self.keys[key].stats.connect_aborted += 1;
            self.effects.push_back(Effect::AbortConnect(conn, reason));
        }
    }

    fn key_of_connect(&self, conn: ConnId) -> Option<KeyId> {
        let conn = self.conns.get(conn)?;
        (conn.status == ConnStatus::Connecting).then_some(conn.key)
    }

    fn fail_connect(&mut self, now: Timestamp, key_id: KeyId, conn: ConnId) {
        self.end_conn(conn);
        self.keys[key_id].stats.connect_failed += 1;
        self.start_backoff(now, key_id);
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
