//! From a holder back to a waiter or to idle, and the ways in which a connection ends.

use super::entries::{Conn, ConnStatus, Key};
use super::{ConnId, Disposition, Effect, PoolState, Rejection};
use crate::{CloseReason, Timestamp};

impl PoolState {
    /// The holder gives a connection back.
    ///
    /// One that may be reused goes to the oldest waiter; without a waiter it becomes idle, unless
    /// the pool drains or keeps `max_idle` idle ones already. One that has reached its lifetime or
    /// its number of uses is closed.
    ///
    /// Changes nothing if the connection is not held, as after a force-close.
    #[inline]
    pub fn release(&mut self, now: Timestamp, conn: ConnId, disposition: Disposition) {
        self.observe(now);
        let Some(entry) = self.conns.get_mut(conn) else {
            return;
        };
        if entry.status != ConnStatus::Acquired {
            return;
        }
        let (key, since) = (entry.key, entry.since);
        self.histograms
            .hold
            .record(now.saturating_duration_since(since));
        match disposition {
            Disposition::Reuse => {
                entry.uses = entry.uses.saturating_add(1);
                if self.place(now, conn) {
                    return;
                }
            }
            Disposition::Close(reason) => self.close(conn, reason, Effect::Close),
        }
        self.settle(now, key);
    }

    /// Closes a connection whatever it is doing; its slot is free at once.
    ///
    /// A held one is shut down under its holder. If a waiter had it delivered and not claimed, the
    /// waiter goes back to its place in the queue; after a hold timeout, with its own time over,
    /// or if the peer ended a connection that was new, it is rejected. A connect is aborted, and
    /// waiters that still need it get another.
    pub fn force_close(&mut self, now: Timestamp, conn: ConnId, reason: CloseReason) {
        self.observe(now);
        let Some(&Conn {
            key, status, since, ..
        }) = self.conns.get(conn)
        else {
            return;
        };
        match status {
            ConnStatus::Connecting | ConnStatus::ConnectingFor(_) => {
                self.abort_connect(conn, reason);
            }
            ConnStatus::Idle | ConnStatus::Probed => self.close(conn, reason, Effect::Close),
            ConnStatus::Acquired => {
                let held = now.saturating_duration_since(since);
                self.histograms.hold.record(held);
                self.close(conn, reason, Effect::ForceClose);
            }
            ConnStatus::Delivered(waiter) => {
                let unused = self.conns[conn].uses == 0;
                self.close(conn, reason, Effect::Close);
                if unused && reason.is_peers() {
                    // Put back, it would dial a peer that accepts and closes without any pause.
                    self.start_backoff(now, key);
                    self.reject(waiter, Rejection::ClosedUnused(reason));
                } else {
                    self.put_back(now, waiter, reason);
                }
            }
        }
        self.settle(now, key);
    }

    /// Finds the place of a connection that nobody holds any more. Returns whether that is all:
    /// it is idle, and nobody waits; otherwise the key has to be settled.
    #[inline]
    pub(super) fn place(&mut self, now: Timestamp, conn: ConnId) -> bool {
        let Conn { key: id, uses, .. } = self.conns[conn];
        let used = uses > 0;
        if let Some(reason) = self.worn_out(now, conn) {
            self.close(conn, reason, Effect::Close);
        } else if used && self.has_to_go(now, &self.keys[id]) {
            self.close(conn, CloseReason::Evicted, Effect::Close);
        } else if let Some(waiter) = self.waiter_for(id, used) {
            self.deliver(now, conn, waiter);
        } else if let Some(reason) = self.unwanted(conn) {
            self.close(conn, reason, Effect::Close);
        } else {
            let quiet = self.keys[id].queue.is_empty() && self.config.min_idle() == 0;
            self.move_to(now, conn, ConnStatus::Idle);
            return quiet;
        }
        false
    }

    /// Why a connection is given out no more, if it is not.
    #[inline]
    fn worn_out(&self, now: Timestamp, conn: ConnId) -> Option<CloseReason> {
        let Conn {
            key,
            uses,
            expires,
            unpooled,
            retired,
            keep_alive,
            ..
        } = self.conns[conn];
        let live = self.totals.live();
        if retired {
            Some(CloseReason::Drained)
        } else if self.config.max_uses().is_some_and(|most| uses >= most) {
            Some(CloseReason::MaxUses)
        } else if expires <= now {
            Some(CloseReason::MaxLifetime)
        } else if unpooled && uses > 0 {
            Some(CloseReason::Overflow)
        } else if keep_alive == Some(0) {
            Some(CloseReason::KeepAliveExpired)
        } else if self.keys[key].pooled() > self.config.max_connections()
            || self.config.max_total().is_some_and(|cap| live > cap)
        {
            // A limit was lowered.
            Some(CloseReason::Surplus)
        } else {
            None
        }
    }

    /// Why a connection that no waiter takes is not kept, if it is not.
    #[inline]
    fn unwanted(&self, conn: ConnId) -> Option<CloseReason> {
        let entry = &self.conns[conn];
        let Conn { key, unpooled, .. } = *entry;
        let others = self.keys[key].stats.idle.current - u32::from(entry.is_idle());
        if !self.phase.is_open() {
            Some(CloseReason::Drained)
        } else if unpooled {
            Some(CloseReason::Overflow)
        } else if !self.room.is_ample() || self.owes_permit() {
            Some(CloseReason::Evicted)
        } else if others >= self.config.max_idle() {
            Some(CloseReason::Surplus)
        } else if self.is_closed_soon(conn) {
            Some(CloseReason::KeepAliveExpired)
        } else {
            None
        }
    }

    /// Whether a used connection of a key goes although somebody may wait for it: for another core,
    /// for another key, or for its own oldest waiter.
    #[inline]
    fn has_to_go(&self, now: Timestamp, key: &Key) -> bool {
        self.owes_permit() || self.yields_room(key) || self.makes_room(now, key)
    }

    /// Whether a used connection has to go so that the oldest waiter, who takes only a fresh one,
    /// gets its connect. At a cap that binds it would starve otherwise: all that is released would
    /// go to those behind it.
    #[inline]
    fn makes_room(&self, now: Timestamp, key: &Key) -> bool {
        let Some(oldest) = key.queue.front(&self.waiters) else {
            return false;
        };
        self.waiters[oldest].fresh
            && key.dials == 0
            && (key.pooled() >= self.config.max_connections() || !self.has_room())
            && key.backoff.allows(now)
    }

    /// Ends an open connection.
    pub(super) fn close(
        &mut self,
        conn: ConnId,
        reason: CloseReason,
        effect: fn(ConnId, CloseReason) -> Effect,
    ) {
        if let Some(Conn { key, .. }) = self.end_conn(conn, Some(effect(conn, reason))) {
            self.tally(key, |stats| stats.count_close(reason));
        }
    }
}
