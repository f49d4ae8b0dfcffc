//! From the call of acquire to a connection: reuse, the queue, delivery, claim and cancel.

use super::entries::{Conn, ConnStatus, Key, Waiter, WaiterStatus};
use super::list::Links;
use super::{Admission, ConnId, Effect, KeyId, PoolState, Rejection, TimerOwner, WaiterId};
use crate::{CloseReason, ReuseOrder, Timestamp};

/// An idle connection that may be acquired: [`PoolState::idle_candidate`].
#[derive(Debug)]
#[must_use = "it stays idle unless it is acquired"]
pub struct IdleCandidate<'a> {
    state: &'a mut PoolState,
    now: Timestamp,
    key: KeyId,
    conn: ConnId,
}

impl IdleCandidate<'_> {
    /// Which connection it is.
    #[inline]
    #[must_use]
    pub fn conn(&self) -> ConnId {
        self.conn
    }

    /// As [`PoolState::is_reused`].
    #[inline]
    #[must_use]
    pub fn is_reused(&self) -> bool {
        self.state.conns.live(self.conn).uses > 0
    }

    /// Takes the connection, to be held.
    #[inline(always)]
    pub fn acquire(self) {
        self.state.observe(self.now);
        self.state.hand_out(self.now, self.key, self.conn);
    }
}

impl PoolState {
    /// The idle connection that is next to be handed out.
    ///
    /// The driver looks at its readiness first. If it is fit, it [acquires](IdleCandidate::acquire)
    /// it; if the peer has closed it or has sent bytes, it calls
    /// [`force_close`](Self::force_close), and asks again. One that has to be asked itself is acquired
    /// afterwards by [`acquire_idle`](Self::acquire_idle). The key stays valid meanwhile as long as
    /// no effect is asked for.
    #[inline(always)]
    #[must_use]
    pub fn idle_candidate(&mut self, now: Timestamp, key: KeyId) -> Option<IdleCandidate<'_>> {
        if !self.phase.is_open() {
            return None;
        }
        let entry = self.keys.get(key)?;
        let mut conn = self.next_idle(entry)?;
        if self.idle_end(now, conn).is_some() {
            conn = self.next_unexpired(now, entry)?;
        }
        Some(IdleCandidate {
            state: self,
            now,
            key,
            conn,
        })
    }

    #[cold]
    fn next_unexpired(&self, now: Timestamp, key: &Key) -> Option<ConnId> {
        let is_idle = |id: &ConnId| self.conns[*id].status == ConnStatus::Idle;
        let fit = |id: &ConnId| is_idle(id) && self.idle_end(now, *id).is_none();
        match self.config.reuse_order() {
            ReuseOrder::Lifo => key.idle.iter(&self.conns).find(fit),
            ReuseOrder::Fifo => key.idle.iter_back(&self.conns).find(fit),
        }
    }

    /// Takes an idle connection. Tells whether it was there to be taken: its time may have run out
    /// since it was looked at. Nothing has changed then.
    #[inline]
    #[must_use = "the connection is not acquired unless this says so"]
    pub fn acquire_idle(&mut self, now: Timestamp, conn: ConnId) -> bool {
        self.observe(now);
        let Some(&Conn { key, status, .. }) = self.conns.get(conn) else {
            return false;
        };
        if status != ConnStatus::Idle || !self.phase.is_open() || self.idle_end(now, conn).is_some()
        {
            return false;
        }
        self.hand_out(now, key, conn);
        true
    }

    /// Asks for a connection.
    ///
    /// An idle connection is handed out at once, in the order of reuse. Otherwise the caller waits,
    /// behind all who came before it, for whatever comes first: a released connection, or one of
    /// the connects that the pool starts as the caps and the backoff allow.
    ///
    /// It is refused while the pool drains, and when no connect can be started for it and
    /// `max_pending` callers wait already without one.
    ///
    /// # Panics
    ///
    /// If `key` has been forgotten.
    pub fn acquire(&mut self, now: Timestamp, key: KeyId) -> Admission {
        self.observe(now);
        if !self.phase.is_open() {
            self.ask(now, key);
            return self.refuse(now, key, Rejection::Draining);
        }
        let mut closed = false;
        while let Some(id) = self.next_idle(&self.keys[key]) {
            // Invariant 9: its timer may be due but not yet handled.
            if let Some(reason) = self.idle_end(now, id) {
                self.close(id, reason, Effect::Close);
                closed = true;
                continue;
            }
            self.hand_out(now, key, id);
            if closed {
                self.settle(now, key);
            }
            return Admission::Reuse(id);
        }
        self.ask(now, key);
        self.enqueue(now, key, false)
    }

    /// Asks for a connection that nobody has used before: for a request that has just met a stale
    /// one. It waits in the same queue, and lets used connections pass to those behind it while a
    /// connect is under way. At the cap the coldest idle connection is evicted for it, or, once it
    /// is the oldest waiter, the next that is released.
    ///
    /// # Panics
    ///
    /// If `key` has been forgotten.
    pub fn acquire_fresh(&mut self, now: Timestamp, key: KeyId) -> Admission {
        self.observe(now);
        self.ask(now, key);
        if !self.phase.is_open() {
            return self.refuse(now, key, Rejection::Draining);
        }
        self.enqueue(now, key, true)
    }

    fn ask(&mut self, now: Timestamp, key: KeyId) {
        self.keys[key].asked = Some(now);
        self.tally(key, |stats| stats.acquires.requested += 1);
    }

    /// Gives an idle connection to a caller who asks for one: all that its move and its counts
    /// change in one go.
    #[inline(always)]
    fn hand_out(&mut self, now: Timestamp, key: KeyId, id: ConnId) {
        let conn = self.conns.live_mut(id);
        debug_assert_eq!(conn.status, ConnStatus::Idle);
        conn.status = ConnStatus::Acquired;
        conn.since = now;
        let (timer, used) = (conn.timer, conn.uses > 0);
        let entry = self.keys.live_mut(key);
        entry.idle.remove(&mut self.conns, id);
        self.room.idle_ended(&mut self.conns, id);
        entry.asked = Some(now);
        for stats in [&mut entry.stats, &mut self.totals] {
            stats.acquires.requested += 1;
            stats.acquires.reused += u64::from(used);
            stats.acquires.fresh += u64::from(!used);
            stats.idle.lower();
            stats.acquired.raise();
        }
        self.timers.freshen(timer);
        if self.config.min_idle() > 0 {
            self.settle(now, key);
        }
    }

    fn enqueue(&mut self, now: Timestamp, key_id: KeyId, fresh: bool) -> Admission {
        let key = &self.keys[key_id];
        let covered = self.is_coverable(now, key);
        let pending = key.pending();
        if !covered && self.config.max_pending().is_some_and(|cap| pending >= cap) {
            return self.refuse(now, key_id, Rejection::QueueFull { pending });
        }
        let waits_for_release =
            self.config.dial_delay().is_some() && key.stats.acquired.current > 0;
        let id = self.waiters.insert_with(|id| Waiter {
            key: key_id,
            status: WaiterStatus::Waiting,
            arrival: self.arrivals,
            since: now,
            deadline: None,
            fresh,
            queued: !covered,
            on_trial: covered && self.room.permits.is_some(),
            ripe: !waits_for_release,
            timer: self.timers.insert(TimerOwner::Waiter(id)),
            links: Links::new(),
        });
        self.arrivals += 1;
        let key = &mut self.keys[key_id];
        key.queue.push_back(&mut self.waiters, id);
        key.waiting += 1;
        key.ripe += u32::from(!waits_for_release);
        self.settle(now, key_id);
        // After the connect's timer: of two that run out together, the connect's says more. A
        // denied permit may have ended the waiter already.
        if let Some(waiter) = self.waiters.get(id) {
            self.timers.freshen(waiter.timer);
        }
        Admission::Wait(id)
    }

    fn refuse(&mut self, now: Timestamp, key: KeyId, rejection: Rejection) -> Admission {
        self.count_rejection(key, rejection);
        self.settle(now, key);
        Admission::Reject(rejection)
    }

    /// The waiter takes the connection that was delivered to it; its hold timeout starts over.
    ///
    /// `None` if there is none (yet), or if the waiter has ended.
    pub fn claim(&mut self, now: Timestamp, waiter: WaiterId) -> Option<ConnId> {
        self.observe(now);
        let WaiterStatus::Delivered(conn) = self.waiters.get(waiter)?.status else {
            return None;
        };
        let Waiter {
            key, queued, since, ..
        } = self.end_waiter(waiter)?;
        let waited = now.saturating_duration_since(since);
        self.histograms.acquire_wait.record(waited);
        self.move_to(now, conn, ConnStatus::Acquired);
        self.count_served(key, conn, queued);
        Some(conn)
    }

    /// The waiter gives up.
    ///
    /// A connection that was delivered to it goes to the next waiter, or becomes idle. A connect
    /// that was started on its account goes on for others, or for idle.
    pub fn cancel(&mut self, now: Timestamp, waiter: WaiterId) {
        self.observe(now);
        let Some(Waiter { key, status, .. }) = self.end_waiter(waiter) else {
            return;
        };
        self.tally(key, |stats| stats.acquires.cancelled += 1);
        match status {
            WaiterStatus::Waiting => {}
            WaiterStatus::Delivered(conn) => self.place(now, conn),
            // Nobody else may have what it would make.
            WaiterStatus::Overflown(conn) => self.abort_connect(conn, CloseReason::Abandoned),
        }
        self.settle(now, key);
    }

    pub(super) fn acquire_timed_out(&mut self, now: Timestamp, waiter: WaiterId) {
        let key = self.waiters[waiter].key;
        if !self.overflow(now, waiter) {
            self.reject(waiter, Rejection::AcquireTimeout);
        }
        self.settle(now, key);
    }

    /// Gives a connection to a waiter in its key's queue.
    pub(super) fn deliver(&mut self, now: Timestamp, conn: ConnId, waiter: WaiterId) {
        self.leave_queue(waiter);
        self.hand_to(now, conn, waiter);
    }

    /// Gives a connection to a waiter that is in no queue.
    pub(super) fn hand_to(&mut self, now: Timestamp, conn: ConnId, waiter: WaiterId) {
        let entry = &mut self.waiters[waiter];
        entry.status = WaiterStatus::Delivered(conn);
        self.timers.cancel(entry.timer);
        self.move_to(now, conn, ConnStatus::Delivered(waiter));
        self.effects.push_back(Effect::Deliver(waiter, conn));
    }

    /// A waiter has lost the connection delivered to it before it could claim it: it goes back to
    /// its place in the order of arrival, unless its time is over.
    pub(super) fn put_back(&mut self, now: Timestamp, id: WaiterId, reason: CloseReason) {
        let Waiter {
            key,
            arrival,
            deadline,
            ripe,
            timer,
            ..
        } = self.waiters[id];
        if self.phase.is_over() {
            return self.reject(id, Rejection::Draining);
        }
        let out_of_time = deadline.is_some_and(|deadline| deadline <= now);
        if reason == CloseReason::HoldTimeout || out_of_time {
            return self.reject(id, Rejection::AcquireTimeout);
        }
        self.waiters[id].status = WaiterStatus::Waiting;
        let entry = &mut self.keys[key];
        // Invariant 6. Only those that were put back themselves can be older.
        let older = entry.queue.iter(&self.waiters);
        let older = older
            .take_while(|other| self.waiters[*other].arrival < arrival)
            .last();
        match older {
            Some(older) => entry.queue.insert_after(&mut self.waiters, older, id),
            None => entry.queue.push_front(&mut self.waiters, id),
        }
        entry.waiting += 1;
        entry.ripe += u32::from(ripe);
        match deadline {
            Some(_) => self.schedule_waiter(id),
            None => self.timers.freshen(timer),
        }
        self.serve_from_idle(now, key);
    }

    /// The oldest waiter of a key that takes a connection, which was `used` before or not.
    #[inline]
    pub(super) fn waiter_for(&self, key: &Key, used: bool) -> Option<WaiterId> {
        let mut queue = key.queue.iter(&self.waiters);
        queue.find(|id| !(used && self.waiters[*id].fresh))
    }

    /// Invariant 3: connections may have become idle while the waiter had its own.
    fn serve_from_idle(&mut self, now: Timestamp, key: KeyId) {
        let next = |state: &Self| {
            let key = &state.keys[key];
            Some((state.waiter_for(key, true)?, state.next_idle(key)?))
        };
        while let Some((waiter, conn)) = next(self) {
            if let Some(reason) = self.idle_end(now, conn) {
                self.close(conn, reason, Effect::Close);
            } else {
                self.deliver(now, conn, waiter);
            }
        }
    }

    /// Ends a waiter with bad news.
    pub(super) fn reject(&mut self, id: WaiterId, rejection: Rejection) {
        if let Some(waiter) = self.end_waiter(id) {
            self.count_rejection(waiter.key, rejection);
            self.effects.push_back(Effect::Reject(id, rejection));
        }
    }

    fn count_rejection(&mut self, key: KeyId, rejection: Rejection) {
        self.tally(key, |stats| match rejection {
            Rejection::AcquireTimeout => stats.timeouts.acquire += 1,
            Rejection::ConnectTimeout | Rejection::ClosedUnused(_) => stats.acquires.failed += 1,
            Rejection::QueueFull { .. } => stats.rejected.queue_full += 1,
            Rejection::Draining => stats.rejected.draining += 1,
        });
    }

    #[inline]
    fn count_served(&mut self, key: KeyId, conn: ConnId, queued: bool) {
        let used = self.conns[conn].uses > 0;
        self.tally(key, |stats| {
            let acquires = &mut stats.acquires;
            match used {
                true => acquires.reused += 1,
                false => acquires.fresh += 1,
            }
            acquires.queued += u64::from(queued);
        });
    }

    /// The idle connection that is next to be handed out, its time not looked at.
    #[inline(always)]
    fn next_idle(&self, key: &Key) -> Option<ConnId> {
        let next = match self.config.reuse_order() {
            ReuseOrder::Lifo => key.idle.front(&self.conns),
            ReuseOrder::Fifo => key.idle.back(&self.conns),
        };
        if key.probed == 0 {
            return next;
        }
        // No more than `dials_in_flight` are passed over.
        let is_idle = |id: &ConnId| self.conns[*id].status == ConnStatus::Idle;
        match self.config.reuse_order() {
            ReuseOrder::Lifo => key.idle.iter(&self.conns).find(is_idle),
            ReuseOrder::Fifo => key.idle.iter_back(&self.conns).find(is_idle),
        }
    }
}
