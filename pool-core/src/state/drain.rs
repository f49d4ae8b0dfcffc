//! The end of a pool: it stops taking acquires, serves those that wait, and empties itself. And the
//! end of what a pool has of one destination.

use super::entries::{ConnStatus, WaiterStatus};
use super::wheel::TimerId;
use super::{ConnId, Effect, KeyId, PoolState, Rejection, TimerOwner, WaiterId};
use crate::{CloseReason, Timestamp};

/// Where the pool stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// New acquires are refused; `timer` ends the drain at its deadline.
    Draining {
        deadline: Timestamp,
        timer: TimerId,
    },
    /// No connection, waiter or timer is left.
    Over {
        announced: bool,
    },
}

impl Phase {
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        *self == Self::Open
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self, Self::Over { .. })
    }

    #[inline]
    pub(super) fn has_news(&self) -> bool {
        *self == Self::Over { announced: false }
    }

    /// Whether the end has still to be announced; it is from now on.
    pub(super) fn announce_end(&mut self) -> bool {
        let news = self.has_news();
        if news {
            *self = Self::Over { announced: true };
        }
        news
    }
}

impl PoolState {
    /// Starts to empty the pool: idle connections are closed at once, new acquires are refused,
    /// released connections serve those who wait or are closed. At `deadline` whoever still waits
    /// is rejected, connects are aborted, and held connections are force-closed.
    ///
    /// Called again, it can only bring the deadline forward. [`Effect::Drained`] tells the end.
    pub fn drain(&mut self, now: Timestamp, deadline: Timestamp) {
        self.observe(now);
        match &mut self.phase {
            Phase::Open => {
                let timer = self.timers.insert(TimerOwner::Drain);
                self.timers.schedule(timer, deadline);
                self.phase = Phase::Draining { deadline, timer };
                self.close_idle(now);
            }
            Phase::Draining {
                deadline: current,
                timer,
            } => {
                *current = deadline.min(*current);
                self.timers.schedule(*timer, *current);
            }
            Phase::Over { .. } => {}
        }
        self.end_drain_when_empty();
        if deadline <= now {
            self.end_drain(now);
        }
    }

    /// Lets go of the connections to a destination whose peer is to be left, or has been replaced:
    /// idle ones are closed at once and acquired ones at their release, as
    /// [`CloseReason::Drained`].
    ///
    /// Whoever waits, or asks from now on, gets a new connection. Connects that nobody waits for
    /// are aborted, and none is made for `min_idle` before the destination is asked for again.
    pub fn retire(&mut self, now: Timestamp, id: KeyId) {
        self.observe(now);
        let Some(key) = self.keys.get_mut(id) else {
            return;
        };
        key.asked = None;
        let conns = self.conns.iter().filter(|(_, conn)| conn.key == id);
        let conns: Vec<ConnId> = conns.map(|(conn, _)| conn).collect();
        for conn in conns {
            match self.conns[conn].status {
                ConnStatus::Idle | ConnStatus::Probed => {
                    self.close(conn, CloseReason::Drained, Effect::Close);
                }
                ConnStatus::Acquired | ConnStatus::Delivered(_) => {
                    self.conns[conn].retired = true;
                }
                ConnStatus::Connecting | ConnStatus::ConnectingFor(_) => {}
            }
        }
        self.abort_surplus_connects(id);
        self.settle(now, id);
    }

    /// Whether a drain is over: no connection, no waiter and no timer is left.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.phase.is_over()
    }

    fn close_idle(&mut self, now: Timestamp) {
        let idle = self.conns.iter().filter(|(_, conn)| conn.is_idle());
        let idle: Vec<ConnId> = idle.map(|(id, _)| id).collect();
        for conn in idle {
            self.close(conn, CloseReason::Drained, Effect::Close);
        }
        self.settle_all(now);
    }

    /// Settles every key, after a change that concerns them all.
    pub(super) fn settle_all(&mut self, now: Timestamp) {
        let keys: Vec<KeyId> = self.keys().collect();
        for key in keys {
            self.settle(now, key);
        }
    }

    /// While the pool drains, nobody will come for a connect that no waiter needs, nor for the
    /// connects after a backoff.
    pub(super) fn shed_demand_when_draining(&mut self, id: KeyId) {
        if self.phase.is_open() {
            return;
        }
        self.abort_surplus_connects(id);
        if self.keys[id].waiting == 0 {
            self.end_backoff(id);
        }
    }

    /// Aborts the connects that no waiter needs.
    fn abort_surplus_connects(&mut self, id: KeyId) {
        while let Some(conn) = self.surplus_connect(id) {
            self.abort_connect(conn, CloseReason::Drained);
        }
    }

    fn surplus_connect(&self, id: KeyId) -> Option<ConnId> {
        let key = &self.keys[id];
        let newest = key.connecting.front(&self.conns);
        newest.filter(|_| key.dials > key.waiting)
    }

    pub(super) fn end_drain_when_empty(&mut self) {
        if let Phase::Draining { timer, .. } = self.phase
            && self.conns.is_empty()
            && self.waiters.is_empty()
        {
            self.timers.remove(timer);
            self.phase = Phase::Over { announced: false };
        }
    }

    pub(super) fn end_drain(&mut self, now: Timestamp) {
        let Phase::Draining { timer, .. } = self.phase else {
            return;
        };
        self.timers.remove(timer);
        // First, so that a waiter whose delivery is force-closed is not put back.
        self.phase = Phase::Over { announced: false };
        let waiting: Vec<WaiterId> = self
            .waiters
            .iter()
            .filter(|(_, waiter)| waiter.status == WaiterStatus::Waiting)
            .map(|(id, _)| id)
            .collect();
        for waiter in waiting {
            self.reject(waiter, Rejection::Draining);
        }
        let conns: Vec<ConnId> = self.conns.iter().map(|(id, _)| id).collect();
        for conn in conns {
            self.force_close(now, conn, CloseReason::Drained);
        }
        self.settle_all(now);
    }
}
