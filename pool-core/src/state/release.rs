//! From a holder back to a waiter or to idle, and the ways in which a connection ends.

use super::entries::{Conn, ConnStatus, Key};
use super::{ConnId, Disposition, Effect, PoolState, Rejection, WaiterId};
use crate::{CloseReason, Timestamp};

/// What becomes of a connection that nobody holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Idle,
    With(WaiterId),
    Gone(CloseReason),
}

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
        let Some(entry) = self.conns.get(conn) else {
            return;
        };
        if entry.status != ConnStatus::Acquired {
            return;
        }
        match disposition {
            Disposition::Reuse if self.just_becomes_idle(now, entry) => {
                self.become_idle(now, conn);
            }
            _ => self.release_with_consequences(now, conn, disposition),
        }
    }

    /// A release that may change more than that the connection becomes idle.
    #[inline(never)]
    fn release_with_consequences(&mut self, now: Timestamp, id: ConnId, disposition: Disposition) {
        let conn = self.conns.live_mut(id);
        let (key, since) = (conn.key, conn.since);
        conn.uses = conn
            .uses
            .saturating_add(u32::from(disposition == Disposition::Reuse));
        self.count_hold(now, since);
        match disposition {
            Disposition::Reuse => self.place(now, id),
            Disposition::Close(reason) => self.close(id, reason, Effect::Close),
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
                self.count_hold(now, since);
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

    #[inline]
    fn count_hold(&mut self, now: Timestamp, since: Timestamp) {
        if since >= now {
            self.held_for_no_time += 1;
        } else {
            let held = now.saturating_duration_since(since);
            self.histograms.hold.record(held);
        }
    }

    /// Whether a held connection becomes idle at its release and nothing else is to be done, told
    /// by a few comparisons; `false` if it takes more to tell.
    #[inline]
    fn just_becomes_idle(&self, now: Timestamp, conn: &Conn) -> bool {
        let key = self.keys.live(conn.key);
        let config = &self.config;
        let is_plain = !conn.retired && !conn.unpooled;
        is_plain
            && !self.is_closed_soon(conn)
            && now < conn.expires
            && config.max_uses().is_none_or(|most| conn.uses < most - 1)
            && key.queue.is_empty()
            && key.stats.idle.current < config.max_idle()
            && key.pooled() <= config.max_connections()
            && config.min_idle() == 0
            && self.phase.is_open()
            && (!self.room.is_capped() || self.caps_are_calm())
    }

    /// Whether the caps over all keys leave a used connection where it is.
    fn caps_are_calm(&self) -> bool {
        let total = self.config.max_total();
        self.room.is_ample()
            && !self.owes_permit()
            && total.is_none_or(|cap| self.totals.live() <= cap)
    }

    /// Makes a held connection idle: all that its release changes in one go.
    #[inline]
    fn become_idle(&mut self, now: Timestamp, id: ConnId) {
        let conn = self.conns.live_mut(id);
        conn.uses = conn.uses.saturating_add(1);
        conn.status = ConnStatus::Idle;
        let (key, timer) = (conn.key, conn.timer);
        let since = std::mem::replace(&mut conn.since, now);
        let entry = self.keys.live_mut(key);
        entry.idle.push_front(&mut self.conns, id);
        self.room.idle_began(&mut self.conns, id);
        for stats in [&mut entry.stats, &mut self.totals] {
            stats.acquired.lower();
            stats.idle.raise();
        }
        self.timers.freshen(timer);
        self.count_hold(now, since);
        debug_assert_eq!(self.next_place(now, id), Place::Idle);
    }

    /// Finds the place of a connection that nobody holds any more; its key has still to be settled.
    pub(super) fn place(&mut self, now: Timestamp, conn: ConnId) {
        let place = self.next_place(now, conn);
        self.take_to(now, conn, place);
    }

    pub(super) fn take_to(&mut self, now: Timestamp, conn: ConnId, place: Place) {
        match place {
            Place::Idle => self.move_to(now, conn, ConnStatus::Idle),
            Place::With(waiter) => self.deliver(now, conn, waiter),
            Place::Gone(reason) => self.close(conn, reason, Effect::Close),
        }
    }

    /// Where a connection goes that nobody holds.
    #[inline]
    pub(super) fn next_place(&self, now: Timestamp, conn: ConnId) -> Place {
        let conn = &self.conns[conn];
        let key = &self.keys[conn.key];
        let used = conn.uses > 0;
        if let Some(reason) = self.worn_out(now, conn, key) {
            Place::Gone(reason)
        } else if used && self.has_to_go(now, key) {
            Place::Gone(CloseReason::Evicted)
        } else if let Some(waiter) = self.waiter_for(key, used) {
            Place::With(waiter)
        } else if let Some(reason) = self.unwanted(conn, key) {
            Place::Gone(reason)
        } else {
            Place::Idle
        }
    }

    /// Why a connection is given out no more, if it is not.
    #[inline]
    fn worn_out(&self, now: Timestamp, conn: &Conn, key: &Key) -> Option<CloseReason> {
        let config = &self.config;
        if conn.retired {
            Some(CloseReason::Drained)
        } else if config.max_uses().is_some_and(|most| conn.uses >= most) {
            Some(CloseReason::MaxUses)
        } else if conn.expires <= now {
            Some(CloseReason::MaxLifetime)
        } else if conn.unpooled && conn.uses > 0 {
            Some(CloseReason::Overflow)
        } else if conn.keep_alive == Some(0) {
            Some(CloseReason::KeepAliveExpired)
        } else if key.pooled() > config.max_connections()
            || config
                .max_total()
                .is_some_and(|cap| self.totals.live() > cap)
        {
            // A limit was lowered.
            Some(CloseReason::Surplus)
        } else {
            None
        }
    }

    /// Why a connection that no waiter takes is not kept, if it is not.
    #[inline]
    fn unwanted(&self, conn: &Conn, key: &Key) -> Option<CloseReason> {
        let others = key.stats.idle.current - u32::from(conn.is_idle());
        if !self.phase.is_open() {
            Some(CloseReason::Drained)
        } else if conn.unpooled {
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
