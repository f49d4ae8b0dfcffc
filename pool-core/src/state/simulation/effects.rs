//! What the state has asked for: each effect, judged by what came before it.

use super::super::entries::ConnStatus;
use super::super::{ConnId, Effect, KeyId, PoolState, Rejection, WaiterId};
use super::files::{Asking, Conn, Destination, Place};
use super::oracle::{Oracle, Verdict};
use super::promises::ensure;
use super::trace::Event;
use crate::CloseReason;

impl Oracle {
    pub(super) fn effect(&mut self, effect: Effect, state: &PoolState) -> Verdict {
        match effect {
            Effect::Connect(id, key) => self.connect_started(id, key, state),
            Effect::AbortConnect(id, reason) => self.connect_aborted(id, reason),
            Effect::Deliver(waiter, conn) => self.delivered(waiter, conn),
            Effect::Reject(waiter, rejection) => self.rejected(waiter, rejection),
            Effect::Close(id, reason) => self.closed(id, reason, false),
            Effect::ForceClose(id, reason) => self.closed(id, reason, true),
            Effect::Probe(id) => self.probe_began(id),
            Effect::ReportLeak(id) => self.leak_reported(id),
            Effect::AskPermit | Effect::ReturnPermit | Effect::WithdrawPermit => {
                self.permit(effect)
            }
            Effect::ForgetKey(key) => self.forgotten(key),
            Effect::Drained => self.drain_ended(state),
        }
    }

    fn connect_started(&mut self, id: ConnId, key: KeyId, state: &PoolState) -> Verdict {
        let Some(&destination) = self.by_key.get(key) else {
            ensure!(false, 8, "{id:?} connects to {key:?}, which is forgotten");
            return Ok(());
        };
        // No effect says for whom an unpooled connect is. It may have ended in the same call.
        let status = state.conns.get(id).map(|conn| conn.status);
        self.cut_short |= status.is_none();
        let place = match status {
            Some(ConnStatus::ConnectingFor(waiter)) => Place::ConnectingFor(waiter),
            _ => Place::Connecting,
        };
        let conn = Conn::new(destination, place, self.now);
        ensure!(self.conns.insert(id, conn), 8, "{id:?} is in use");
        self.history.connects += 1;
        let (tally, sum) = (self.tally(destination), self.sum());
        let total = self.config.max_total();
        ensure!(
            total.is_none_or(|most| sum.live() <= most),
            2,
            "{id:?} is one too many in total: {sum:?}"
        );
        let permits = self.permits.map_or(u32::MAX, |permits| permits.held);
        ensure!(sum.live() <= permits, 2, "{id:?} has no permit: {sum:?}");
        if let Place::ConnectingFor(waiter) = place {
            return self.overflowed(id, waiter);
        }
        let over = self.drain.is_some_and(|end| end <= self.now);
        ensure!(
            tally.pooled() <= self.config.max_connections() || over,
            2,
            "{id:?} is one too many: {tally:?}"
        );
        let warm = tally.idle + tally.probed + tally.dials.saturating_sub(tally.waiting);
        let wanted = tally.dials <= tally.waiting || over;
        if !wanted {
            self.events.count(Event::Warmed);
        }
        ensure!(
            wanted || warm <= self.config.min_idle(),
            4,
            "{id:?} is wanted by nobody: {tally:?}"
        );
        Ok(())
    }

    fn overflowed(&mut self, id: ConnId, waiter: WaiterId) -> Verdict {
        self.events.count(Event::Overflow);
        let unpooled = self.conns.values().filter(|conn| conn.unpooled);
        let destination = self.conns.get(id).map(|conn| conn.destination);
        let unpooled = unpooled.filter(|conn| Some(conn.destination) == destination);
        let most = self.config.max_unpooled() as usize;
        ensure!(
            unpooled.count() <= most,
            2,
            "{id:?} is one overflow too many"
        );
        let now = self.now;
        let entry = self.waiters.get_mut(waiter);
        let entry = entry.filter(|waiter| waiter.is_waiting());
        let Some(entry) = entry else {
            ensure!(false, 7, "{id:?} is for {waiter:?}, who does not wait");
            return Ok(());
        };
        ensure!(
            entry.deadline.is_some_and(|deadline| deadline <= now),
            10,
            "{id:?} overflows before the time of {entry:?}"
        );
        entry.overflown = Some(id);
        Ok(())
    }

    fn connect_aborted(&mut self, id: ConnId, reason: CloseReason) -> Verdict {
        let Some(conn) = self.conns.get(id).copied() else {
            ensure!(false, 8, "{id:?} is aborted, and is gone");
            return Ok(());
        };
        ensure!(
            conn.is_connecting(),
            8,
            "{id:?} is aborted, and is {conn:?}"
        );
        self.judge_close(id, &conn, reason)?;
        self.end_conn(id);
        let end = if reason == CloseReason::ConnectTimeout {
            self.events.count(Event::ConnectTimeout);
            self.history.timeouts.connect += 1;
            self.history.connect_failed += 1;
            self.destinations[conn.destination].failed = Some(self.now);
            Rejection::ConnectTimeout
        } else {
            self.events.count(Event::Aborted);
            self.history.connect_aborted += 1;
            if conn.place == Place::Connecting {
                return Ok(());
            }
            match self.drain.is_some_and(|end| end <= self.now) {
                true => Rejection::Draining,
                false => Rejection::AcquireTimeout,
            }
        };
        if let Some(waiter) = self.served_by(&conn) {
            if let Some(waiter) = self.waiters.get_mut(waiter) {
                waiter.overflown = None;
            }
            self.doom(waiter, end);
        }
        Ok(())
    }

    fn delivered(&mut self, waiter: WaiterId, id: ConnId) -> Verdict {
        let waiting = self.waiters.get(waiter).copied();
        let Some(entry) = waiting.filter(|waiter| waiter.delivered.is_none()) else {
            ensure!(false, 7, "{id:?} is delivered to {waiter:?}, {waiting:?}");
            return Ok(());
        };
        let Some(conn) = self.conns.get(id).copied() else {
            ensure!(false, 9, "{id:?} is delivered, and is gone");
            return Ok(());
        };
        ensure!(
            conn.place == Place::Idle && conn.destination == entry.destination,
            8,
            "{id:?} is delivered to {entry:?}, and is {conn:?}"
        );
        if entry.overflown.is_some() {
            ensure!(
                entry.overflown == Some(id),
                7,
                "{id:?} is delivered to {entry:?}"
            );
        } else {
            self.judge_order(waiter, id, &conn)?;
        }
        self.judge_fitness(&conn)?;
        if let Some(waiter) = self.waiters.get_mut(waiter) {
            (waiter.delivered, waiter.overflown) = (Some(id), None);
        }
        self.enter(id, Place::Delivered(waiter));
        Ok(())
    }

    /// First come, first served, among the waiters of a destination; and where there is no room, a
    /// destination that has nothing comes before those who came later elsewhere.
    fn judge_order(&mut self, waiter: WaiterId, id: ConnId, conn: &Conn) -> Verdict {
        let used = conn.uses > 0;
        let first = self.oldest(conn.destination, used);
        ensure!(
            first == Some(waiter),
            6,
            "{id:?} is delivered to {waiter:?} before {first:?}"
        );
        let oldest = self.oldest(conn.destination, false);
        if oldest != first {
            self.events.count(Event::PassedFresh);
            let under_way = self.tally(conn.destination).dials > 0;
            let later = self.config.dial_delay().is_some() || self.retuned;
            ensure!(
                under_way || later || self.may_back_off(conn.destination),
                6,
                "{waiter:?} passes {oldest:?}, for which no connect is under way"
            );
        }
        if used && self.given_back == Some(id) {
            self.judge_yield(conn.destination)?;
        }
        Ok(())
    }

    /// A destination that has no connection, and whose oldest waiter came before those here, gets
    /// the room of what is released here.
    fn judge_yield(&self, here: usize) -> Verdict {
        if self.config.dial_delay().is_some() || self.retuned {
            return Ok(());
        }
        let arrival = |destination| {
            let oldest = self.oldest(destination, false);
            let oldest = oldest.and_then(|id| self.waiters.get(id));
            oldest.map_or(u64::MAX, |waiter| waiter.arrival)
        };
        let destitute = |there: &usize| {
            let tally = self.tally(*there);
            tally.live() == 0 && tally.waiting > 0
        };
        let mut starving = (0..self.destinations.len()).filter(destitute);
        // Of several, the one that began to starve first decides, which need not be the oldest.
        if let (Some(there), None) = (starving.next(), starving.next()) {
            let failed = self.destinations[there].failed;
            ensure!(
                failed.is_some() || arrival(there) > arrival(here),
                5,
                "destination {there} has nothing, and {here} keeps all"
            );
        }
        Ok(())
    }

    fn rejected(&mut self, id: WaiterId, rejection: Rejection) -> Verdict {
        let Some(waiter) = self.waiters.get(id).copied() else {
            ensure!(false, 7, "{id:?} is rejected, and has ended");
            return Ok(());
        };
        ensure!(waiter.is_waiting(), 7, "{id:?} is rejected: {waiter:?}");
        let doomed = waiter.doomed == Some(rejection) || self.cut_short;
        let (history, events) = (&mut self.history, &mut self.events);
        match rejection {
            Rejection::AcquireTimeout => {
                events.count(Event::AcquireTimeout);
                history.timeouts.acquire += 1;
                let late = waiter.deadline.is_some_and(|deadline| deadline <= self.now);
                ensure!(late || doomed, 10, "{id:?} times out early: {waiter:?}");
            }
            Rejection::Draining => {
                events.count(Event::RejectedDraining);
                history.rejected.draining += 1;
                let over = self.drain.is_some_and(|end| end <= self.now);
                ensure!(over, 11, "{id:?} is rejected before the drain's deadline");
            }
            Rejection::ConnectTimeout | Rejection::ClosedUnused(_) => {
                if rejection != Rejection::ConnectTimeout {
                    events.count(Event::ClosedUnused);
                }
                history.acquires.failed += 1;
                ensure!(
                    doomed,
                    7,
                    "{id:?} is rejected for {rejection:?}: {waiter:?}"
                );
            }
            Rejection::QueueFull { pending } => {
                events.count(Event::Shed);
                history.rejected.queue_full += 1;
                // It was let in because there might have been a permit.
                let denied = self.permits.is_some_and(|permits| permits.denied);
                let cap = self.config.max_pending();
                let beyond = cap.is_some_and(|cap| self.tally(waiter.destination).pending() > cap);
                ensure!(denied && beyond, 2, "{id:?} is shed with {pending} pending");
            }
        }
        self.end_waiter(id)
    }

    fn closed(&mut self, id: ConnId, reason: CloseReason, forced: bool) -> Verdict {
        let Some(conn) = self.conns.get(id).copied() else {
            ensure!(false, 8, "{id:?} is closed, and is gone");
            return Ok(());
        };
        let held = conn.place == Place::Held;
        ensure!(
            held == forced && !conn.is_connecting(),
            8,
            "{id:?} is closed, and is {conn:?}"
        );
        self.judge_close(id, &conn, reason)?;
        self.end_conn(id);
        self.history.count_close(reason);
        self.history.timeouts.hold += u64::from(reason == CloseReason::HoldTimeout);
        let Place::Delivered(waiter) = conn.place else {
            return Ok(());
        };
        if let Some(waiter) = self.waiters.get_mut(waiter) {
            waiter.put_back(self.now, &self.config);
        }
        if reason == CloseReason::HoldTimeout {
            self.events.count(Event::ForgottenDelivery);
            self.doom(waiter, Rejection::AcquireTimeout);
        } else if conn.uses == 0 && reason.is_peers() {
            self.destinations[conn.destination].failed = Some(self.now);
            self.doom(waiter, Rejection::ClosedUnused(reason));
        } else {
            self.events.count(Event::PutBack);
        }
        Ok(())
    }

    fn probe_began(&mut self, id: ConnId) -> Verdict {
        self.history.probes += 1;
        self.events.count(Event::Probed);
        let now = self.now;
        let interval = self.config.heartbeat_interval();
        let most = self.config.dials_in_flight();
        let Some(conn) = self.conns.get_mut(id) else {
            ensure!(false, 9, "{id:?} is probed, and is gone");
            return Ok(());
        };
        let due = interval.is_some_and(|interval| conn.timed + interval <= now);
        ensure!(
            conn.place == Place::Idle && (due || self.retuned),
            10,
            "{id:?} is probed too early: {conn:?}"
        );
        conn.place = Place::Probed { began: now };
        let timeout = Some(self.config.heartbeat_timeout());
        (conn.least, conn.most) = (timeout, timeout);
        let destination = conn.destination;
        let tally = self.tally(destination);
        ensure!(tally.probed <= most, 2, "{id:?} is probed: {tally:?}");
        Ok(())
    }

    fn leak_reported(&mut self, id: ConnId) -> Verdict {
        self.events.count(Event::Leak);
        let now = self.now;
        let Some(conn) = self.conns.get_mut(id) else {
            ensure!(false, 8, "{id:?} is reported, and is gone");
            return Ok(());
        };
        let half = conn.least.map(|least| conn.since + least / 2);
        let due = half.is_some_and(|half| half <= now) && !conn.reported;
        ensure!(
            conn.place == Place::Held && (due || self.retuned),
            10,
            "{id:?} is reported too early, or twice: {conn:?}"
        );
        conn.reported = true;
        Ok(())
    }

    fn permit(&mut self, effect: Effect) -> Verdict {
        let Some(permits) = &mut self.permits else {
            ensure!(false, 5, "{effect:?} without a shared cap");
            return Ok(());
        };
        match effect {
            Effect::AskPermit => {
                self.events.count(Event::Asked);
                let twice = permits.asking != Asking::No;
                permits.asking = Asking::Asked;
                ensure!(!twice, 5, "asks for a permit twice");
            }
            Effect::WithdrawPermit => {
                self.events.count(Event::Withdrawn);
                let queued = permits.asking == Asking::Queued;
                permits.asking = Asking::No;
                ensure!(queued, 5, "leaves a queue in which it does not stand");
            }
            _ => {
                self.events.count(Event::Returned);
                permits.paid = true;
                ensure!(permits.held > 0, 1, "gives back a permit that it has not");
                permits.held -= 1;
            }
        }
        Ok(())
    }

    fn forgotten(&mut self, key: KeyId) -> Verdict {
        let Some(destination) = self.by_key.remove(key) else {
            ensure!(false, 8, "{key:?} is forgotten twice");
            return Ok(());
        };
        self.events.count(Event::Forgotten);
        let tally = self.tally(destination);
        ensure!(
            tally.is_empty(),
            8,
            "{key:?} is forgotten while in use: {tally:?}"
        );
        self.destinations[destination] = Destination::default();
        Ok(())
    }

    fn drain_ended(&mut self, state: &PoolState) -> Verdict {
        let Some(end) = self.drain else {
            ensure!(false, 11, "drained, and nobody has asked for it");
            return Ok(());
        };
        ensure!(!self.drained, 11, "drained twice");
        self.events.count(if self.now < end {
            Event::DrainedEarly
        } else {
            Event::DrainedLate
        });
        self.drained = true;
        let left = (self.conns.len(), self.waiters.len());
        ensure!(
            left == (0, 0),
            11,
            "drained with {left:?} connections and waiters"
        );
        let timer = state.next_timeout();
        ensure!(timer.is_none(), 11, "drained with a timer for {timer:?}");
        Ok(())
    }

    /// Once the effects have run dry: nothing that was due may be missing.
    pub(super) fn judge_effects(&mut self) -> Verdict {
        self.given_back = None;
        if let Some(retiring) = self.retiring.take() {
            let mut conns = self.conns.values();
            let kept =
                conns.find(|conn| conn.destination == retiring && conn.retired && conn.is_idle());
            ensure!(kept.is_none(), 9, "idle in spite of retirement: {kept:?}");
        }
        if let Some(permits) = &mut self.permits {
            permits.owed &= !std::mem::take(&mut permits.paid);
            permits.denied = false;
        }
        let asked = self.asked.pop();
        ensure!(asked.is_none(), 9, "{asked:?} was not closed");
        if std::mem::take(&mut self.cut_short) {
            self.waiters
                .values_mut()
                .for_each(|waiter| waiter.doomed = None);
        }
        let mut waiters = self.waiters.iter();
        let doomed = waiters.find(|(_, waiter)| waiter.doomed.is_some());
        ensure!(doomed.is_none(), 7, "{doomed:?} was not told");
        Ok(())
    }
}
