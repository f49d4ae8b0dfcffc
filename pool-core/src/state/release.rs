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
        let key = entry.key;
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
        let Some(&Conn { key, status, .. }) = self.conns.get(conn) else {
            return;
        };
        match status {
            ConnStatus::Connecting => self.abort_connect(conn, reason),
            ConnStatus::Idle => self.close(conn, reason, Effect::Close),
            ConnStatus::Acquired => self.close(conn, reason, Effect::ForceClose),
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
        let key = &self.keys[id];
        if let Some(reason) = self.worn_out(now, conn) {
            self.close(conn, reason, Effect::Close);
        } else if uses > 0 && self.makes_room(now, key) {
            self.close(conn, CloseReason::Evicted, Effect::Close);
        } else if let Some(waiter) = self.waiter_for(id, uses > 0) {
            self.deliver(now, conn, waiter);
        } else if !self.phase.is_open() {
            self.close(conn, CloseReason::Drained, Effect::Close);
        } else if key.stats.idle.current >= self.config.max_idle() {
            self.close(conn, CloseReason::Surplus, Effect::Close);
        } else {
            let quiet = key.queue.is_empty();
            self.move_to(now, conn, ConnStatus::Idle);
            return quiet;
        }
        false
    }

    /// Why a connection is given out no more, if it is not.
    #[inline]
    fn worn_out(&self, now: Timestamp, conn: ConnId) -> Option<CloseReason> {
        let Conn { uses, expires, .. } = self.conns[conn];
        if self.config.max_uses().is_some_and(|most| uses >= most) {
            Some(CloseReason::MaxUses)
        } else if expires <= now {
            Some(CloseReason::MaxLifetime)
        } else {
            None
        }
    }

    /// Whether a used connection has to go so that the oldest waiter, who takes only a fresh one,
    /// gets its connect. At a cap that binds it would starve otherwise: all that is released would
    /// go to those behind it.
    #[inline]
    fn makes_room(&self, now: Timestamp, key: &Key) -> bool {
        let Some(oldest) = key.queue.front() else {
            return false;
        };
        self.waiters[oldest].fresh
            && key.stats.connecting.current == 0
            && key.stats.live() >= self.config.max_connections()
            && key.backoff.allows(now)
    }

    /// Ends an open connection.
    pub(super) fn close(
        &mut self,
        conn: ConnId,
        reason: CloseReason,
        effect: fn(ConnId, CloseReason) -> Effect,
    ) {
        if let Some(Conn { key, .. }) = self.end_conn(conn) {
            self.keys[key].stats.count_close(reason);
            self.effects.push_back(effect(conn, reason));
        }
    }
}
