//! What happens when a time has come.

use super::entries::{Conn, ConnStatus, TimerOwner, Waiter, WaiterStatus};
use super::{ConnId, Effect, PoolState, WaiterId};
use crate::{CloseReason, Timestamp};

impl PoolState {
    /// When to call [`handle_timeout`](Self::handle_timeout) next, if nothing else happens
    /// before. It may come without anything to time out.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Timestamp> {
        self.timers.next_deadline()
    }

    /// Lets everything time out whose deadline has passed: waiters, connects, idle and acquired
    /// connections, backoffs, the drain. Afterwards [`next_timeout`](Self::next_timeout) is later
    /// than `now`.
    ///
    /// `now` is a reading of the clock: what has begun since the last call is timed from here, as
    /// it did not begin later. So a timer is not early by what a turn has taken.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.observe(now);
        loop {
            while let Some(timer) = self.timers.pop_fresh() {
                match self.timers.get_mut(timer).copied() {
                    Some(TimerOwner::Conn(id)) => self.time_conn(now, id),
                    Some(TimerOwner::Waiter(id)) => self.time_waiter(now, id),
                    Some(TimerOwner::Key(_) | TimerOwner::Drain) | None => {}
                }
            }
            let Some(timer) = self.timers.pop_expired(now) else {
                return;
            };
            match self.timers.get_mut(timer).copied() {
                Some(TimerOwner::Conn(id)) => self.conn_timed_out(now, id),
                Some(TimerOwner::Waiter(id)) => self.waiter_timed_out(now, id),
                Some(TimerOwner::Key(id)) => self.backoff_ended(now, id),
                Some(TimerOwner::Drain) => self.end_drain(now),
                None => {}
            }
        }
    }

    /// Starts the time of what a connection has begun.
    fn time_conn(&mut self, now: Timestamp, id: ConnId) {
        self.conns[id].since = now;
        self.reschedule_conn(now, id);
    }

    /// Sets a connection's timer for its next time, in the middle of what it does.
    pub(super) fn reschedule_conn(&mut self, now: Timestamp, id: ConnId) {
        let deadline = self.conn_deadline(now, id);
        self.schedule_conn(id, deadline);
    }

    fn schedule_conn(&mut self, id: ConnId, deadline: Timestamp) {
        let timer = self.conns[id].timer;
        match deadline {
            Timestamp::MAX => self.timers.cancel(timer),
            deadline => self.timers.schedule(timer, deadline),
        }
    }

    /// When to look at a connection next.
    fn conn_deadline(&self, now: Timestamp, id: ConnId) -> Timestamp {
        let Conn { status, since, .. } = self.conns[id];
        let config = &self.config;
        let timeout = match status {
            ConnStatus::Connecting | ConnStatus::ConnectingFor(_) => config.connect_timeout(),
            ConnStatus::Probed => return now + config.heartbeat_timeout(),
            ConnStatus::Delivered(_) => config.hold_timeout(),
            ConnStatus::Acquired => match config.hold_timeout() {
                Some(timeout) if config.report_leaks() && now < since + timeout / 2 => {
                    Some(timeout / 2)
                }
                timeout => timeout,
            },
            ConnStatus::Idle => {
                let probe = config.heartbeat_interval();
                let probe = probe.map_or(Timestamp::MAX, |interval| now + interval);
                return self.idle_ends(id).0.min(probe);
            }
        };
        timeout.map_or(Timestamp::MAX, |timeout| since + timeout)
    }

    /// When the time of an idle connection is over, and why.
    fn idle_ends(&self, id: ConnId) -> (Timestamp, CloseReason) {
        let conn = &self.conns[id];
        let idle = self.config.idle_timeout();
        let idle = idle.map_or(Timestamp::MAX, |timeout| conn.since + timeout);
        let announced = conn.keep_alive.map_or(Timestamp::MAX, |_| {
            conn.since + self.announced(conn).unwrap_or_default()
        });
        [
            (conn.expires, CloseReason::MaxLifetime),
            (announced, CloseReason::KeepAliveExpired),
            (idle, CloseReason::IdleTimeout),
        ]
        .into_iter()
        .min_by_key(|(end, _)| *end)
        .unwrap_or((idle, CloseReason::IdleTimeout))
    }

    /// Why the time of an idle connection is over, if it is.
    #[inline(always)]
    pub(super) fn idle_end(&self, now: Timestamp, id: ConnId) -> Option<CloseReason> {
        let conn = self.conns.live(id);
        // Its timer may be due and not yet handled; one that is fresh has no deadline.
        if conn.expires <= now || self.timers.is_due(conn.timer, now) {
            return self.ended(now, id);
        }
        None
    }

    #[cold]
    pub(super) fn ended(&self, now: Timestamp, id: ConnId) -> Option<CloseReason> {
        let (end, reason) = self.idle_ends(id);
        (end <= now).then_some(reason)
    }

    fn conn_timed_out(&mut self, now: Timestamp, id: ConnId) {
        let Conn {
            key, status, since, ..
        } = self.conns[id];
        match status {
            ConnStatus::Connecting | ConnStatus::ConnectingFor(_) => {
                self.connect_timed_out(now, id);
            }
            ConnStatus::Idle => match self.ended(now, id) {
                Some(reason) if !self.stays_warm(now, id, reason) => {
                    self.force_close(now, id, reason);
                }
                Some(_) => self.reschedule_conn(now, id),
                None => self.begin_probe(now, id),
            },
            ConnStatus::Probed => self.force_close(now, id, CloseReason::HeartbeatFailed),
            ConnStatus::Acquired | ConnStatus::Delivered(_) => {
                let end = self.config.hold_timeout().map(|timeout| since + timeout);
                if status == ConnStatus::Acquired && end.is_none_or(|end| now < end) {
                    if self.config.report_leaks() {
                        self.effects.push_back(Effect::ReportLeak(id));
                    }
                    return self.reschedule_conn(now, id);
                }
                self.tally(key, |stats| stats.timeouts.hold += 1);
                self.force_close(now, id, CloseReason::HoldTimeout);
            }
        }
    }

    /// Starts the time of a waiter.
    fn time_waiter(&mut self, now: Timestamp, id: WaiterId) {
        self.waiters[id].since = now;
        self.schedule_waiter(id);
    }

    /// Sets a waiter's timer for the next of its times: the end of its patience with releases,
    /// or of its patience altogether.
    pub(super) fn schedule_waiter(&mut self, id: WaiterId) {
        let Waiter {
            since,
            ripe,
            timer,
            ref mut deadline,
            ..
        } = self.waiters[id];
        let timeout = self.config.acquire_timeout();
        let end = *deadline
            .get_or_insert_with(|| timeout.map_or(Timestamp::MAX, |timeout| since + timeout));
        let delay = self.config.dial_delay().filter(|_| !ripe);
        let next = delay.map_or(end, |delay| end.min(since + delay));
        match next {
            Timestamp::MAX => self.timers.cancel(timer),
            next => self.timers.schedule(timer, next),
        }
    }

    fn waiter_timed_out(&mut self, now: Timestamp, id: WaiterId) {
        let Waiter {
            key,
            status,
            deadline,
            ..
        } = self.waiters[id];
        debug_assert_eq!(status, WaiterStatus::Waiting);
        if deadline.is_none_or(|deadline| now < deadline) {
            self.ripen(id);
            self.schedule_waiter(id);
            return self.settle(now, key);
        }
        self.acquire_timed_out(now, id);
    }
}
