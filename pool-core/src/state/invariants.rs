//! The invariants of docs/INVARIANTS.md that one state can show, by number.
//!
//! What only a history can show is left to whoever drives the state: that waiters are served in
//! order (6), end once (7), and are never given what has expired (9), that no timer fires early
//! (10), and that no admission exceeds `max_pending` (2).

use super::entries::{Conn, ConnStatus, Key, WaiterStatus};
use super::{ConnId, KeyId, Phase, PoolState};
use crate::Timestamp;

macro_rules! ensure {
    ($condition:expr, $($what:tt)+) => {
        if !$condition {
            return Err(format!($($what)+));
        }
    };
}

impl PoolState {
    /// The first invariant that does not hold, by number.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (id, key) in self.keys.iter() {
            self.check_counts(id, key)?;
            self.check_caps(id, key)?;
            self.check_demand(id, key)?;
            self.check_queue(id, key)?;
            // State that ends: the key is in use, or is about to be forgotten.
            let fresh = key.stats.acquires.requested == 0;
            ensure!(
                !key.is_unused() || key.maybe_unused || fresh,
                "{id:?} is unused and kept"
            );
        }
        self.check_totals()?;
        for (id, conn) in self.conns.iter() {
            self.check_conn(id, conn)?;
        }
        self.check_waiters()?;
        self.check_timers_and_end()
    }

    fn count(&self, id: KeyId, wanted: fn(&ConnStatus) -> bool) -> usize {
        let conns = self
            .conns
            .iter()
            .filter(|(_, conn)| conn.key == id && wanted(&conn.status));
        conns.count()
    }

    fn check_counts(&self, id: KeyId, key: &Key) -> Result<(), String> {
        let stats = &key.stats;
        let idle = self.count(id, |status| {
            matches!(status, ConnStatus::Idle | ConnStatus::Probed)
        });
        let connecting = self.count(id, |status| {
            matches!(
                status,
                ConnStatus::Connecting | ConnStatus::ConnectingFor(_)
            )
        });
        let acquired = self.count(id, |status| {
            matches!(status, ConnStatus::Acquired | ConnStatus::Delivered(_))
        });
        ensure!(
            stats.idle.current as usize == idle,
            "1: {id:?} idle: {stats:?}"
        );
        ensure!(
            stats.connecting.current as usize == connecting,
            "1: {id:?} connecting: {stats:?}"
        );
        ensure!(
            stats.acquired.current as usize == acquired,
            "1: {id:?} acquired: {stats:?}"
        );
        let open = u64::from(stats.idle.current + stats.acquired.current);
        ensure!(
            stats.opened == stats.closed_total() + open,
            "1: {id:?} opened: {stats:?}"
        );
        let ended = stats.opened + stats.connect_failed + stats.connect_aborted;
        let connecting = u64::from(stats.connecting.current);
        ensure!(
            stats.connects == ended + connecting,
            "1: {id:?} connects: {stats:?}"
        );
        Ok(())
    }

    fn check_caps(&self, id: KeyId, key: &Key) -> Result<(), String> {
        let (config, stats) = (&self.config, &key.stats);
        // A limit that was lowered leaves what is held, or probed.
        let over = key.pooled() > config.max_connections();
        ensure!(
            !over || (key.idle.is_empty() && key.dials == 0),
            "2: {id:?} live: {stats:?}"
        );
        let surplus = stats.idle.current > config.max_idle();
        ensure!(!surplus || key.idle.is_empty(), "2: {id:?} idle: {stats:?}");
        ensure!(
            key.dials <= config.dials_in_flight(),
            "2: {id:?} dials: {stats:?}"
        );
        Ok(())
    }

    fn check_demand(&self, id: KeyId, key: &Key) -> Result<(), String> {
        let stats = &key.stats;
        let takers = key.queue.iter(&self.waiters);
        let takers = takers.filter(|waiter| !self.waiters[*waiter].fresh).count();
        ensure!(
            takers == 0 || key.idle.is_empty(),
            "3: {id:?} idle and waiters"
        );
        ensure!(
            stats.pending.current == key.waiting.saturating_sub(key.dials),
            "4: {id:?} pending: {stats:?}"
        );
        let uncovered = key.ripe.saturating_sub(key.dials);
        let full = key.pooled() >= self.config.max_connections() && key.idle.is_empty();
        let at_cap = full || key.dials == self.config.dials_in_flight() || key.hunger.is_some();
        ensure!(
            key.hunger.is_none()
                || (!self.has_room() && self.by_age.is_empty())
                || self.is_asking(),
            "5: {id:?} starves: {key:?}"
        );
        let backing_off = key
            .backoff
            .timer
            .is_some_and(|timer| self.timers.deadline(timer).is_some());
        ensure!(
            uncovered == 0 || at_cap || backing_off,
            "4: {id:?} lost demand: {key:?}"
        );
        Ok(())
    }

    fn check_queue(&self, id: KeyId, key: &Key) -> Result<(), String> {
        let queue: Vec<_> = key.queue.iter(&self.waiters).collect();
        ensure!(
            queue.len() == key.waiting as usize,
            "1: {id:?} waiting: {key:?}"
        );
        for waiter in &queue {
            let waiter = &self.waiters[*waiter];
            ensure!(waiter.key == id, "8: {id:?} queues a waiter of another key");
            ensure!(
                waiter.status == WaiterStatus::Waiting,
                "7: {id:?} queues {waiter:?}"
            );
        }
        let arrivals = queue.iter().map(|waiter| self.waiters[*waiter].arrival);
        ensure!(arrivals.is_sorted(), "6: {id:?} queue out of order");

        let waiters = self
            .waiters
            .iter()
            .filter(|(_, waiter)| waiter.key == id)
            .count() as u64;
        let (acquires, rejected) = (&key.stats.acquires, &key.stats.rejected);
        let served = acquires.fresh + acquires.reused;
        let refused = rejected.queue_full + rejected.draining + key.stats.timeouts.acquire;
        let ended = served + refused + acquires.cancelled + acquires.failed;
        ensure!(
            acquires.requested == ended + waiters,
            "7: {id:?} acquires: {:?}",
            key.stats
        );
        ensure!(acquires.queued <= served, "7: {id:?} queued: {acquires:?}");
        Ok(())
    }

    fn check_totals(&self) -> Result<(), String> {
        let totals = *self.totals();
        let mut sum = super::DestinationStats::default();
        for (_, key) in self.keys.iter() {
            sum.merge(&key.stats);
        }
        for (name, total, sum) in [
            ("acquired", totals.acquired, sum.acquired),
            ("idle", totals.idle, sum.idle),
            ("connecting", totals.connecting, sum.connecting),
            ("pending", totals.pending, sum.pending),
        ] {
            ensure!(
                total.current == sum.current,
                "1: total {name}: {total:?}, {sum:?}"
            );
            ensure!(
                total.highest >= total.current,
                "1: highest {name}: {total:?}"
            );
        }
        let live = u64::from(totals.live());
        let ended = totals.closed_total() + totals.connect_failed + totals.connect_aborted;
        ensure!(totals.connects == ended + live, "1: totals: {totals:?}");
        ensure!(live == self.conns.len() as u64, "1: live slots: {totals:?}");
        Ok(())
    }

    fn check_conn(&self, id: ConnId, conn: &Conn) -> Result<(), String> {
        let Some(key) = self.keys.get(conn.key) else {
            return Err(format!("8: {id:?} has no key"));
        };
        let in_idle = key
            .idle
            .iter(&self.conns)
            .filter(|other| *other == id)
            .count();
        let in_connecting = key
            .connecting
            .iter(&self.conns)
            .filter(|other| *other == id)
            .count();
        let lists = match conn.status {
            ConnStatus::Connecting => (0, 1),
            ConnStatus::Idle => (1, 0),
            _ => (0, 0),
        };
        ensure!(
            (in_idle, in_connecting) == lists,
            "8: {id:?} in the wrong list: {conn:?}"
        );
        if let ConnStatus::Delivered(waiter) = conn.status {
            let status = self.waiters.get(waiter).map(|waiter| waiter.status);
            ensure!(
                status == Some(WaiterStatus::Delivered(id)),
                "7: {id:?} undelivered"
            );
        }
        Ok(())
    }

    fn check_waiters(&self) -> Result<(), String> {
        for (id, waiter) in self.waiters.iter() {
            let armed = self.timers.deadline(waiter.timer);
            match waiter.status {
                WaiterStatus::Waiting => {
                    let fresh = waiter.deadline.is_none();
                    let never = waiter.deadline == Some(Timestamp::MAX);
                    ensure!(
                        armed.is_some() || fresh || never,
                        "7: {id:?} without its timer: {waiter:?}"
                    );
                }
                WaiterStatus::Overflown(conn) => {
                    let status = self.conns.get(conn).map(|conn| conn.status);
                    ensure!(armed.is_none(), "7: {id:?} times out twice");
                    ensure!(
                        status == Some(ConnStatus::ConnectingFor(id)),
                        "7: {id:?} has no {conn:?}"
                    );
                }
                WaiterStatus::Delivered(conn) => {
                    let status = self.conns.get(conn).map(|conn| conn.status);
                    ensure!(armed.is_none(), "7: {id:?} times out after delivery");
                    ensure!(
                        status == Some(ConnStatus::Delivered(id)),
                        "7: {id:?} has no {conn:?}"
                    );
                }
            }
        }
        Ok(())
    }

    fn check_timers_and_end(&self) -> Result<(), String> {
        let backoffs = self
            .keys
            .iter()
            .filter(|(_, key)| key.backoff.timer.is_some())
            .count();
        let drain = usize::from(matches!(self.phase, Phase::Draining { .. }));
        let owners = self.conns.len() + self.waiters.len() + backoffs + drain;
        ensure!(
            self.timers.len() == owners,
            "11: {} timers, {owners}",
            self.timers.len()
        );
        let empty = self.conns.is_empty() && self.waiters.is_empty() && self.timers.len() == 0;
        ensure!(!self.phase.is_over() || empty, "11: drained but not empty");
        let idle_while_draining = !self.phase.is_open() && self.totals.idle.current > 0;
        ensure!(!idle_while_draining, "11: idle while draining");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Effect;
    use super::super::tests::{Pool, config};
    use super::*;

    fn pool_with_a_held_connection_and_a_waiter() -> Pool {
        let mut pool = Pool::new(config().max_connections(1));
        let _held = pool.open();
        let _waiter = pool.wait();
        pool
    }

    fn violated(pool: &Pool) -> String {
        let finding = pool.state.check().unwrap_err();
        finding.split(':').next().unwrap_or_default().to_owned()
    }

    #[test]
    fn planted_faults_are_caught_by_number() {
        let mut pool = pool_with_a_held_connection_and_a_waiter();
        let key = pool.key;
        pool.state.keys[key].stats.acquired.current = 0;
        assert_eq!(violated(&pool), "1");

        let mut pool = pool_with_a_held_connection_and_a_waiter();
        let key = pool.key;
        pool.state
            .close(pool.held[0], crate::CloseReason::Reset, Effect::Close);
        pool.state.keys[key].stats.pending.current = 1;
        assert_eq!(violated(&pool), "4", "the freed slot was not dialled again");

        let mut pool = pool_with_a_held_connection_and_a_waiter();
        let id = pool.held[0];
        let waiter = pool.waiters[0];
        pool.state.conns[id].status = ConnStatus::Delivered(waiter);
        assert_eq!(violated(&pool), "7");

        let mut pool = pool_with_a_held_connection_and_a_waiter();
        let other = pool.wait();
        pool.state.waiters[other].arrival = 0;
        pool.state.waiters[pool.waiters[0]].arrival = 1;
        assert_eq!(violated(&pool), "6");

        let mut pool = pool_with_a_held_connection_and_a_waiter();
        let timer = pool.state.waiters[pool.waiters[0]].timer;
        pool.state.timers.cancel(timer);
        assert_eq!(violated(&pool), "7");
    }
}
