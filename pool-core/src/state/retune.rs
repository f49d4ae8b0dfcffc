//! A change of limits while the pool is in use.

use super::entries::{ConnStatus, WaiterStatus};
use super::{ConnId, Effect, KeyId, PoolState, WaiterId};
use crate::{CloseReason, PoolConfig, Timestamp};

impl PoolState {
    /// Changes the limits and timeouts.
    ///
    /// Where there is more than a lowered limit allows, connects are aborted and idle connections
    /// closed at once, the coldest first; acquired ones are closed at their release. Waiters stay
    /// in the queue, whatever `max_pending` is now. A raised limit is made use of at once.
    ///
    /// Timeouts apply to idle connections at once, and to others from what they do next; a hold
    /// timeout that is raised also to what is held.
    /// `max_lifetime` applies to connections made from now on.
    pub fn set_config(&mut self, now: Timestamp, config: PoolConfig) {
        self.observe(now);
        self.config = config;
        self.rank_idle();
        let keys: Vec<KeyId> = self.keys().collect();
        for key in &keys {
            self.shrink(*key);
        }
        self.shrink_total();
        if self.config.dial_delay().is_none() {
            self.ripen_all();
        }
        let idle = self.conns.iter();
        // A fresh timer is set by the new limits anyway, and by a clock that has been read.
        let idle = idle.filter(|(_, conn)| {
            conn.status == ConnStatus::Idle && !self.timers.is_fresh(conn.timer)
        });
        let idle: Vec<ConnId> = idle.map(|(id, _)| id).collect();
        for conn in idle {
            self.reschedule_conn(now, conn);
        }
        self.settle_all(now);
        if self.config.min_idle() > 0 {
            // Keys settled while another starved have connected for their waiters only.
            self.settle_all(now);
        }
    }

    /// Nobody waits for a release any more before a connect is started for it.
    fn ripen_all(&mut self) {
        let waiters: Vec<WaiterId> = self.waiters.iter().map(|(id, _)| id).collect();
        for id in waiters {
            match self.waiters[id].status {
                WaiterStatus::Waiting => self.ripen(id),
                // Counted should it be put back into the queue.
                _ => self.waiters[id].ripe = true,
            }
        }
    }

    /// Takes a key below its own limits, as far as nobody holds its connections.
    fn shrink(&mut self, key: KeyId) {
        while let Some(coldest) = self.surplus_idle(key) {
            self.close(coldest, CloseReason::Surplus, Effect::Close);
        }
        while let Some(newest) = self.surplus_dial(key) {
            self.abort_connect(newest, CloseReason::Surplus);
        }
    }

    fn surplus_idle(&self, id: KeyId) -> Option<ConnId> {
        let key = &self.keys[id];
        let surplus = key.stats.idle.current > self.config.max_idle()
            || key.pooled() > self.config.max_connections();
        self.coldest_of(key).filter(|_| surplus)
    }

    fn surplus_dial(&self, id: KeyId) -> Option<ConnId> {
        let key = &self.keys[id];
        let surplus = key.dials > self.config.dials_in_flight()
            || key.pooled() > self.config.max_connections();
        key.connecting.front(&self.conns).filter(|_| surplus)
    }

    fn shrink_total(&mut self) {
        let Some(cap) = self.config.max_total() else {
            return;
        };
        while self.totals.live() > cap
            && let Some(coldest) = self.coldest()
        {
            self.close(coldest, CloseReason::Surplus, Effect::Close);
        }
        let dials = self.conns.iter();
        let dials = dials.filter(|(_, conn)| conn.status == ConnStatus::Connecting);
        let dials: Vec<ConnId> = dials.map(|(id, _)| id).collect();
        for dial in dials {
            if self.totals.live() > cap {
                self.abort_connect(dial, CloseReason::Surplus);
            }
        }
    }
}
