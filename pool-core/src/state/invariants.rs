//! The invariants of docs/INVARIANTS.md that one state can show, by number.
//!
//! What only a history can show is left to whoever drives the state: that waiters are served in
//! order (6), end once (7), and are never given what has expired (9), that no timer fires early
//! (10), and that no admission exceeds `max_pending` (2).

use super::entries::{Conn, ConnStatus, Key, Waiter, WaiterStatus};
use super::slab::SlabId;
use super::{ConnId, DestinationStats, KeyId, Phase, PoolState, WaiterId};
use crate::Timestamp;

macro_rules! ensure {
    ($condition:expr, $($what:tt)+) => {
        if !$condition {
            return Err(format!($($what)+));
        }
    };
}

/// What the slabs hold for one key.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    idle: u32,
    probed: u32,
    dials: u32,
    unpooled_dials: u32,
    acquired: u32,
    unpooled: u32,
    waiting: u32,
    waiters: u64,
}

/// Checks states one after the other: each entry is looked at once, or twice if it is in a list,
/// and nothing is allocated once the tallies have grown to the number of keys.
#[derive(Debug, Default)]
pub(super) struct Checker {
    /// By the index of the key.
    tallies: Vec<Tally>,
}

impl PoolState {
    /// The first invariant that does not hold, by number.
    #[cfg(test)]
    pub(crate) fn check(&self) -> Result<(), String> {
        Checker::default().check(self)
    }
}

impl Checker {
    /// The first invariant that does not hold, by number.
    pub(super) fn check(&mut self, state: &PoolState) -> Result<(), String> {
        self.tallies.clear();
        for (id, conn) in state.conns.iter() {
            state.check_conn(id, conn)?;
            let tally = self.tally(conn.key);
            tally.unpooled += u32::from(conn.unpooled);
            match conn.status {
                ConnStatus::Connecting => tally.dials += 1,
                ConnStatus::ConnectingFor(_) => tally.unpooled_dials += 1,
                ConnStatus::Idle => tally.idle += 1,
                ConnStatus::Probed => tally.probed += 1,
                ConnStatus::Acquired | ConnStatus::Delivered(_) => tally.acquired += 1,
            }
        }
        for (id, waiter) in state.waiters.iter() {
            state.check_waiter(id, waiter)?;
            let tally = self.tally(waiter.key);
            tally.waiters += 1;
            tally.waiting += u32::from(waiter.status == WaiterStatus::Waiting);
        }
        let mut sum = DestinationStats::default();
        let (mut backoffs, mut idle, mut probed) = (0, 0, 0);
        for (id, key) in state.keys.iter() {
            let tally = *self.tally(id);
            check_counts(id, key, &tally)?;
            state.check_lists(id, key, &tally)?;
            state.check_caps(id, key)?;
            state.check_demand(id, key)?;
            sum.merge(&key.stats);
            idle += tally.idle + tally.probed;
            probed += tally.probed;
            backoffs += usize::from(key.backoff.timer.is_some());
            // State that ends: the key is in use, or is about to be forgotten.
            let fresh = key.stats.acquires.requested == 0;
            ensure!(
                !key.is_unused() || key.maybe_unused || fresh,
                "{id:?} is unused and kept"
            );
        }
        state.check_totals(&sum)?;
        state.check_room(idle, probed)?;
        state.check_timers_and_end(backoffs)
    }

    fn tally(&mut self, key: KeyId) -> &mut Tally {
        let index = key.parts().0 as usize;
        if index >= self.tallies.len() {
            self.tallies.resize(index + 1, Tally::default());
        }
        &mut self.tallies[index]
    }
}

fn check_counts(id: KeyId, key: &Key, tally: &Tally) -> Result<(), String> {
    let stats = &key.stats;
    for (what, gauge, count) in [
        ("idle", stats.idle, tally.idle + tally.probed),
        (
            "connecting",
            stats.connecting,
            tally.dials + tally.unpooled_dials,
        ),
        ("acquired", stats.acquired, tally.acquired),
        ("unpooled", stats.unpooled, tally.unpooled),
    ] {
        ensure!(gauge.current == count, "1: {id:?} {what}: {stats:?}");
    }
    let lengths = (key.waiting, key.dials, key.probed);
    ensure!(
        lengths == (tally.waiting, tally.dials, tally.probed),
        "1: {id:?} waiting, dials and probed: {key:?}"
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
    let (acquires, rejected) = (&stats.acquires, &stats.rejected);
    let served = acquires.fresh + acquires.reused;
    let refused = rejected.queue_full + rejected.draining + stats.timeouts.acquire;
    let ended = served + refused + acquires.cancelled + acquires.failed;
    ensure!(
        acquires.requested == ended + tally.waiters,
        "7: {id:?} acquires: {stats:?}"
    );
    ensure!(acquires.queued <= served, "7: {id:?} queued: {acquires:?}");
    Ok(())
}

impl PoolState {
    /// That each entry is in the list of its status, once, and in no other: as many are in the
    /// lists as there are entries, and no list has one of another status.
    fn check_lists(&self, id: KeyId, key: &Key, tally: &Tally) -> Result<(), String> {
        let is_idle: fn(&Conn) -> bool = Conn::is_idle;
        let connects: fn(&Conn) -> bool = |conn| conn.status == ConnStatus::Connecting;
        for (list, belongs, count) in [
            (&key.idle, is_idle, tally.idle + tally.probed),
            (&key.connecting, connects, tally.dials),
        ] {
            let mut length = 0;
            for conn in list.iter(&self.conns) {
                let entry = &self.conns[conn];
                ensure!(
                    entry.key == id && belongs(entry),
                    "8: {conn:?} is in the wrong list of {id:?}: {entry:?}"
                );
                length += 1;
                ensure!(length <= count, "8: {id:?} lists a connection twice");
            }
            ensure!(length == count, "8: {id:?} lists {length} of {count}");
        }
        let (mut length, mut last) = (0, None);
        for waiter in key.queue.iter(&self.waiters) {
            let entry = &self.waiters[waiter];
            ensure!(entry.key == id, "8: {id:?} queues a waiter of another key");
            ensure!(
                entry.status == WaiterStatus::Waiting,
                "7: {id:?} queues {entry:?}"
            );
            ensure!(last < Some(entry.arrival), "6: {id:?} queue out of order");
            last = Some(entry.arrival);
            length += 1;
        }
        ensure!(length == key.waiting, "7: {id:?} queue: {key:?}");
        Ok(())
    }

    fn check_caps(&self, id: KeyId, key: &Key) -> Result<(), String> {
        let (config, stats) = (&self.config, &key.stats);
        // A limit that was lowered leaves what is held, or probed.
        let over = key.pooled() > config.max_connections();
        ensure!(
            !over || (!key.has_idle() && key.dials == 0),
            "2: {id:?} live: {stats:?}"
        );
        let surplus = stats.idle.current > config.max_idle();
        ensure!(!surplus || !key.has_idle(), "2: {id:?} idle: {stats:?}");
        ensure!(
            key.dials <= config.dials_in_flight(),
            "2: {id:?} dials: {stats:?}"
        );
        Ok(())
    }

    fn check_demand(&self, id: KeyId, key: &Key) -> Result<(), String> {
        let stats = &key.stats;
        let takes_idle = |waiter| !self.waiters[waiter].fresh;
        ensure!(
            !key.has_idle() || !key.queue.iter(&self.waiters).any(takes_idle),
            "3: {id:?} idle and waiters"
        );
        ensure!(
            stats.pending.current == key.waiting.saturating_sub(key.dials),
            "4: {id:?} pending: {stats:?}"
        );
        let uncovered = key.ripe.saturating_sub(key.dials);
        let full = key.pooled() >= self.config.max_connections() && !key.has_idle();
        let at_cap = full || key.dials == self.config.dials_in_flight() || key.hunger.is_some();
        ensure!(
            key.hunger.is_none()
                || (!self.has_room() && self.coldest().is_none())
                || self.is_asking(),
            "5: {id:?} starves: {key:?}"
        );
        let backing_off = || {
            let timer = key.backoff.timer;
            timer.is_some_and(|timer| self.timers.deadline(timer).is_some())
        };
        ensure!(
            uncovered == 0 || at_cap || backing_off(),
            "4: {id:?} lost demand: {key:?}"
        );
        Ok(())
    }

    /// The list of all idle connections has each of them if a cap over all keys is in
    /// force.
    fn check_room(&self, idle: u32, probed: u32) -> Result<(), String> {
        let counted = self.room.probed;
        ensure!(counted == probed, "1: {counted}, and {probed} are probed");
        let capped = self.config.max_total().is_some() || self.room.permits.is_some();
        let Some(by_age) = &self.room.by_age else {
            ensure!(!capped, "5: nobody knows the coldest");
            return Ok(());
        };
        ensure!(capped, "5: the coldest are known for nothing");
        let mut listed = 0;
        for conn in by_age.iter(&self.conns) {
            let entry = &self.conns[conn];
            ensure!(entry.is_idle(), "8: {conn:?} is listed as idle: {entry:?}");
            listed += 1;
            ensure!(listed <= idle, "8: an idle connection is listed twice");
        }
        ensure!(listed == idle, "1: {listed} listed, and {idle} are idle");
        Ok(())
    }

    /// `sum` is that of all keys, without those forgotten.
    fn check_totals(&self, sum: &DestinationStats) -> Result<(), String> {
        let totals = &self.totals;
        for (name, total, sum) in [
            ("acquired", totals.acquired, sum.acquired),
            ("idle", totals.idle, sum.idle),
            ("connecting", totals.connecting, sum.connecting),
            ("pending", totals.pending, sum.pending),
            ("unpooled", totals.unpooled, sum.unpooled),
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
        ensure!(self.keys.get(conn.key).is_some(), "8: {id:?} has no key");
        if let ConnStatus::Delivered(waiter) = conn.status {
            let status = self.waiters.get(waiter).map(|waiter| waiter.status);
            ensure!(
                status == Some(WaiterStatus::Delivered(id)),
                "7: {id:?} undelivered"
            );
        }
        Ok(())
    }

    fn check_waiter(&self, id: WaiterId, waiter: &Waiter) -> Result<(), String> {
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
        Ok(())
    }

    fn check_timers_and_end(&self, backoffs: usize) -> Result<(), String> {
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
