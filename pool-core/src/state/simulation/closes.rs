//! Whether a connection may be closed yet, and whether it may still be handed out.

use std::time::Duration;

use super::super::ConnId;
use super::files::{Conn, Place};
use super::oracle::{Oracle, Verdict};
use super::promises::ensure;
use crate::{CloseReason, Timestamp};

impl Oracle {
    /// Whether there is a reason to close it for that reason.
    pub(super) fn judge_close(&mut self, id: ConnId, conn: &Conn, reason: CloseReason) -> Verdict {
        if let Some(place) = self.asked.iter().position(|asked| *asked == (id, reason)) {
            self.asked.swap_remove(place);
            return Ok(());
        }
        let passed = |since: Timestamp, limit: Option<Duration>| {
            limit.is_some_and(|limit| since + limit <= self.now)
        };
        let connecting = conn.is_connecting();
        let (place, due) = match reason {
            CloseReason::ConnectTimeout => (connecting, passed(conn.since, conn.least)),
            CloseReason::IdleTimeout => {
                let timeout = self.config.idle_timeout();
                (conn.is_idle(), passed(conn.since, timeout))
            }
            CloseReason::KeepAliveExpired => {
                let promised = conn.promised(&self.config);
                (conn.is_idle(), passed(conn.since, promised))
            }
            CloseReason::HeartbeatFailed => match conn.place {
                Place::Probed { began } => (true, passed(began, conn.least)),
                _ => (false, false),
            },
            CloseReason::HoldTimeout => {
                let held = matches!(conn.place, Place::Held | Place::Delivered(_));
                (held, passed(conn.since, conn.least))
            }
            CloseReason::MaxLifetime => (conn.is_idle(), self.may_be_too_old(conn)),
            CloseReason::MaxUses => {
                let used_up = self.config.max_uses().is_some_and(|most| conn.uses >= most);
                (conn.place == Place::Idle, used_up)
            }
            CloseReason::Overflow => (conn.place == Place::Idle, conn.unpooled),
            CloseReason::Surplus => (
                conn.place == Place::Idle || conn.place == Place::Connecting,
                self.is_surplus(conn),
            ),
            CloseReason::Evicted => {
                self.judge_eviction(id, conn)?;
                (conn.place == Place::Idle, true)
            }
            CloseReason::Drained => {
                let over = self.drain.is_some_and(|end| end <= self.now);
                let unneeded = self.drain.is_some() && (conn.is_idle() || connecting);
                // A retired destination keeps the connects that somebody waits for.
                let tally = self.tally(conn.destination);
                let retired = conn.retired && conn.is_idle();
                let retiring = connecting && self.retiring == Some(conn.destination);
                let retiring = retiring && tally.dials > tally.waiting;
                (true, over || unneeded || retired || retiring)
            }
            _ => (false, false),
        };
        ensure!(place, 8, "{id:?} is closed for {reason}: {conn:?}");
        ensure!(due, 10, "{id:?} is closed for {reason} too early: {conn:?}");
        self.events.count_close(reason);
        Ok(())
    }

    fn is_surplus(&self, conn: &Conn) -> bool {
        let (config, tally) = (&self.config, self.tally(conn.destination));
        let total = config.max_total();
        tally.pooled() > config.max_connections()
            || total.is_some_and(|most| self.sum().live() > most)
            || (conn.is_idle() && tally.idle + tally.probed > config.max_idle())
            || (conn.is_connecting() && tally.dials > config.dials_in_flight())
    }

    /// One that has just been given back goes, or the coldest: of its destination, for those who
    /// wait there for a fresh one, or else of all.
    fn judge_eviction(&self, id: ConnId, conn: &Conn) -> Verdict {
        let (tally, sum) = (self.tally(conn.destination), self.sum());
        let full = self.config.max_total();
        let full = full.is_some_and(|most| sum.live() >= most) || self.permits.is_some();
        let for_own =
            tally.waiting > tally.takers && tally.pooled() >= self.config.max_connections();
        let owed = self.permits.is_some_and(|permits| permits.owed);
        ensure!(
            for_own || (full && sum.waiting > 0) || owed,
            10,
            "{id:?} is evicted for nobody: {tally:?}, {sum:?}"
        );
        let colder = self.conns.iter().find(|(_, other)| {
            other.place == Place::Idle
                && other.turn < conn.turn
                && (!for_own || other.destination == conn.destination)
                && !self.are_alike(conn, other)
        });
        ensure!(
            self.given_back == Some(id) || colder.is_none(),
            order,
            "{id:?} is evicted, and {colder:?} is colder"
        );
        Ok(())
    }

    fn may_be_too_old(&self, conn: &Conn) -> bool {
        let least = conn.lifetime.map(|lifetime| lifetime.mul_f64(0.9));
        // The state rounds in another order.
        let rounding = Duration::from_nanos(1000);
        least.is_some_and(|least| conn.made + least <= self.now + rounding)
    }

    /// Whether the time of an idle connection may be over.
    pub(super) fn may_be_over(&self, conn: &Conn) -> bool {
        let idle = [self.config.idle_timeout(), conn.promised(&self.config)];
        let idle = idle.into_iter().flatten().min();
        self.may_be_too_old(conn) || idle.is_some_and(|idle| conn.since + idle <= self.now)
    }

    /// When an idle connection has to be gone by the clock.
    pub(super) fn idle_ends(&self, conn: &Conn) -> Timestamp {
        let lifetime = conn.lifetime.map(|lifetime| conn.made + lifetime);
        let mut end = lifetime.unwrap_or(Timestamp::MAX);
        if !conn.clocked {
            return end;
        }
        if let Some(idle) = self.config.idle_timeout() {
            // One that is kept for `min_idle` is timed from the last use of its destination.
            let asked = self.destinations[conn.destination].asked;
            let asked = asked.filter(|_| self.warm).unwrap_or_default();
            end = end.min(conn.since.max(asked) + idle);
        }
        if let Some(promised) = conn.promised(&self.config) {
            end = end.min(conn.since + promised);
        }
        end
    }

    /// Whether it may be handed out at all.
    pub(super) fn judge_fitness(&self, conn: &Conn) -> Verdict {
        let given_back = conn.place == Place::Idle && !conn.clocked;
        let end = match given_back {
            true => conn
                .lifetime
                .map_or(Timestamp::MAX, |life| conn.made + life),
            false => self.idle_ends(conn),
        };
        ensure!(self.now < end, 9, "handed out after its time: {conn:?}");
        ensure!(!conn.used_up, 9, "handed out after its last use: {conn:?}");
        ensure!(
            !conn.retired,
            9,
            "handed out after its retirement: {conn:?}"
        );
        ensure!(
            !conn.unpooled || conn.uses == 0,
            9,
            "an unpooled one is handed out again: {conn:?}"
        );
        Ok(())
    }
}
