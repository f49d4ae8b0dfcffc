//! The naive model: what was asked of the state, what it answered, and whether it may.
//!
//! It knows the calls and the effects, and keeps from them where each connection and waiter
//! stands. It decides nothing. An answer of the state is judged here, an effect in `effects`, from
//! that history alone and by plain scans; what holds at every moment is judged in `promises`.

use super::super::{Admission, ConnId, DestinationStats, Disposition, KeyId, Rejection, WaiterId};
use super::dice::Dice;
use super::files::{Conn, Destination, Permits, Place, Ring, Waiter};
use super::promises::{Finding, Tally, ensure};
use super::roster::Roster;
use super::trace::{Counts, Event};
use crate::{CloseReason, PoolConfig, ReuseOrder, Timestamp};

#[derive(Debug)]
pub(super) struct Oracle {
    pub(super) config: PoolConfig,
    pub(super) now: Timestamp,
    /// When the timers were last looked at.
    pub(super) looked: Timestamp,
    pub(super) conns: Roster<ConnId, Conn>,
    pub(super) waiters: Roster<WaiterId, Waiter>,
    pub(super) destinations: Vec<Destination>,
    pub(super) by_key: Roster<KeyId, usize>,
    pub(super) drain: Option<Timestamp>,
    pub(super) drained: bool,
    /// Under a shared cap.
    pub(super) permits: Option<Permits>,
    /// Whether idle connections were ever kept for `min_idle`.
    pub(super) warm: bool,
    /// Whether the limits were ever changed.
    pub(super) retuned: bool,
    /// The closes that the driver has asked for and the state has still to carry out.
    pub(super) asked: Vec<(ConnId, CloseReason)>,
    /// The destination that is being retired, until the effects have run dry.
    pub(super) retiring: Option<usize>,
    /// The connection that has just been given back, until the effects have run dry.
    pub(super) given_back: Option<ConnId>,
    /// A connect began and ended within this call, perhaps one for a single waiter: nobody can tell
    /// any more, nor who else was then the oldest.
    pub(super) cut_short: bool,
    /// Its counts are those that the state should have; its gauges stay 0.
    pub(super) history: DestinationStats,
    pub(super) events: Counts,
    arrivals: u64,
    turns: u64,
    /// What has become idle up to this turn was put into the order of eviction later, by the time
    /// that it had then been idle.
    ranked: u64,
    stale_conns: Ring<ConnId>,
    stale_waiters: Ring<WaiterId>,
    pub(super) tallies: Vec<Tally>,
}

pub(super) type Verdict = Result<(), Finding>;

impl Oracle {
    pub(super) fn new(config: PoolConfig, destinations: usize) -> Self {
        Self {
            warm: config.min_idle() > 0,
            config,
            now: Timestamp::ZERO,
            looked: Timestamp::ZERO,
            conns: Roster::new(),
            waiters: Roster::new(),
            destinations: vec![Destination::default(); destinations],
            by_key: Roster::new(),
            drain: None,
            drained: false,
            permits: None,
            retuned: false,
            asked: Vec::new(),
            retiring: None,
            given_back: None,
            cut_short: false,
            history: DestinationStats::default(),
            events: Counts::new(),
            arrivals: 0,
            turns: 0,
            ranked: 0,
            stale_conns: Ring::new(),
            stale_waiters: Ring::new(),
            tallies: vec![Tally::default(); destinations],
        }
    }

    /// Whether nobody can tell which of two idle connections is the colder: of different destinations,
    /// they became idle between the same two readings of the clock, when no cap asked for an order.
    pub(super) fn are_alike(&self, one: &Conn, other: &Conn) -> bool {
        one.turn.max(other.turn) <= self.ranked
            && one.since == other.since
            && one.destination != other.destination
    }

    /// What one destination has, counted from scratch.
    pub(super) fn tally(&self, destination: usize) -> Tally {
        self.tally_of(|of| of == destination)
    }

    /// What all have together.
    pub(super) fn sum(&self) -> Tally {
        self.tally_of(|_| true)
    }

    fn tally_of(&self, wanted: impl Fn(usize) -> bool) -> Tally {
        let mut tally = Tally::default();
        for conn in self.conns.values() {
            if wanted(conn.destination) {
                tally.count_conn(conn);
            }
        }
        for waiter in self.waiters.values() {
            if wanted(waiter.destination) {
                tally.count_waiter(waiter, self.looked);
            }
        }
        tally
    }

    /// Whether a failure may still hold connects back.
    pub(super) fn may_back_off(&self, destination: usize) -> bool {
        let failed = self.destinations[destination].failed;
        failed.is_some_and(|at| at + super::LONGEST_BACKOFF + super::TICK > self.looked)
    }

    pub(super) fn named(&mut self, destination: usize, key: KeyId) -> Verdict {
        self.destinations[destination] = Destination {
            key: Some(key),
            ..Destination::default()
        };
        ensure!(self.by_key.insert(key, destination), 8, "{key:?} is in use");
        Ok(())
    }

    pub(super) fn stale_conn(&self, dice: &mut Dice) -> Option<ConnId> {
        self.stale_conns.draw(dice)
    }

    pub(super) fn stale_waiter(&self, dice: &mut Dice) -> Option<WaiterId> {
        self.stale_waiters.draw(dice)
    }

    /// The clock is read: what has begun since the last time is timed from now.
    pub(super) fn look(&mut self) {
        self.looked = self.now;
        self.time();
    }

    /// Times what has begun since the clock was read.
    pub(super) fn time(&mut self) {
        for conn in self.conns.values_mut() {
            if !conn.clocked {
                conn.clock(self.looked, &self.config);
            }
        }
        for waiter in self.waiters.values_mut() {
            if !waiter.clocked && waiter.is_waiting() {
                waiter.clock(self.looked, &self.config);
            }
        }
    }

    pub(super) fn set_config(&mut self, config: PoolConfig) {
        self.warm |= config.min_idle() > 0;
        self.retuned = true;
        let was_capped = self.config.max_total().is_some() || self.permits.is_some();
        if config.max_total().is_some() && !was_capped {
            self.ranked = self.turns;
        }
        self.config = config;
        for conn in self.conns.values_mut() {
            conn.retune(self.now, &self.config);
        }
    }

    pub(super) fn retired(&mut self, destination: usize) {
        self.destinations[destination].asked = None;
        self.retiring = Some(destination);
        for conn in self.conns.values_mut() {
            conn.retired |= conn.destination == destination && !conn.is_connecting();
        }
    }

    /// The idle connection that is to be handed out next, if there is one.
    pub(super) fn judge_candidate(&self, destination: usize, found: Option<ConnId>) -> Verdict {
        if self.drain.is_some() {
            ensure!(found.is_none(), 11, "{found:?} is on offer while draining");
            return Ok(());
        }
        let on_offer = found.and_then(|id| self.conns.get(id));
        ensure!(
            on_offer.is_some() == found.is_some(),
            9,
            "{found:?} is on offer, and is gone"
        );
        // One that may be too old may be passed over: only the state knows how much shorter its
        // life is than that of others.
        let passed = self.conns.iter().find(|(_, conn)| {
            let sooner = on_offer.is_none_or(|found| match self.config.reuse_order() {
                ReuseOrder::Lifo => conn.turn > found.turn,
                ReuseOrder::Fifo => conn.turn < found.turn,
            });
            sooner
                && conn.destination == destination
                && conn.place == Place::Idle
                && !self.may_be_over(conn)
        });
        ensure!(
            passed.is_none(),
            order,
            "{found:?}, {on_offer:?} is on offer instead of {passed:?}"
        );
        Ok(())
    }

    pub(super) fn acquired_idle(&mut self, id: ConnId) -> Verdict {
        self.history.acquires.requested += 1;
        if let Some(conn) = self.conns.get(id) {
            self.destinations[conn.destination].asked = Some(self.now);
            self.destinations[conn.destination].used = true;
        }
        self.handed_out(id)
    }

    pub(super) fn admitted(
        &mut self,
        destination: usize,
        fresh: bool,
        before: Tally,
        admission: Admission,
    ) -> Verdict {
        self.destinations[destination].asked = Some(self.now);
        self.destinations[destination].used = true;
        self.history.acquires.requested += 1;
        match admission {
            Admission::Reuse(id) => {
                ensure!(!fresh, 6, "{id:?} has been used before");
                self.judge_candidate(destination, Some(id))?;
                self.handed_out(id)?;
            }
            Admission::Wait(id) => {
                ensure!(self.drain.is_none(), 11, "{id:?} waits while draining");
                self.events.count(Event::Waited);
                let unripe = self.config.dial_delay().is_some() && before.acquired > 0;
                let waiter = Waiter::new(destination, self.arrivals, fresh, unripe);
                self.arrivals += 1;
                let news = self.waiters.insert(id, waiter);
                ensure!(news, 8, "{id:?} is in use");
            }
            Admission::Reject(Rejection::Draining) => {
                ensure!(self.drain.is_some(), 11, "refused as draining");
                self.history.rejected.draining += 1;
                self.events.count(Event::RefusedDraining);
            }
            Admission::Reject(Rejection::QueueFull { pending }) => {
                self.history.rejected.queue_full += 1;
                self.events.count(Event::QueueFull);
                let full = self.config.max_pending().is_some_and(|cap| pending >= cap);
                ensure!(
                    full && pending == before.pending(),
                    2,
                    "refused with {pending} pending, {before:?}"
                );
                let room = before.dials < self.config.dials_in_flight()
                    && before.pooled() < self.config.max_connections()
                    && self.config.max_total().is_none()
                    && self.config.dial_delay().is_none()
                    && self.permits.is_none();
                ensure!(
                    !room || self.retuned || self.may_back_off(destination),
                    2,
                    "refused in spite of room: {before:?}"
                );
            }
            Admission::Reject(other) => ensure!(false, 7, "refused at once: {other:?}"),
        }
        Ok(())
    }

    /// No admission exceeds `max_pending`; looked at once the connects have been started.
    pub(super) fn judge_admission(&self, destination: usize, before: Tally) -> Verdict {
        let Some(cap) = self.config.max_pending() else {
            return Ok(());
        };
        let after = self.tally(destination);
        // A connect for it may come later: once nobody has released, or once there is a permit.
        let later = self.config.dial_delay().is_some() || self.permits.is_some() || self.retuned;
        ensure!(
            after.pending() <= cap.max(before.pending()) || later,
            2,
            "pending: {after:?} after {before:?}"
        );
        Ok(())
    }

    fn handed_out(&mut self, id: ConnId) -> Verdict {
        self.events.count(Event::Reused);
        let Some(conn) = self.conns.get(id) else {
            ensure!(false, 9, "{id:?} is handed out, and is gone");
            return Ok(());
        };
        ensure!(
            conn.place == Place::Idle,
            8,
            "{id:?} is handed out, and is {conn:?}"
        );
        self.judge_fitness(conn)?;
        let destination = conn.destination;
        ensure!(
            self.drain.is_none(),
            11,
            "{id:?} is handed out while draining"
        );
        let barged = self.oldest(destination, true);
        ensure!(barged.is_none(), 6, "{barged:?} was passed by a newcomer");
        self.enter(id, Place::Held);
        self.count_served(id);
        Ok(())
    }

    pub(super) fn connected(&mut self, id: ConnId, expected: bool) -> Verdict {
        let (lifetime, now) = (self.config.max_lifetime(), self.now);
        let waited_for = self.conns.get_mut(id).filter(|conn| conn.is_connecting());
        ensure!(
            expected == waited_for.is_some(),
            8,
            "{id:?} is expected: {expected}, {waited_for:?}"
        );
        let Some(conn) = waited_for else {
            self.events.count(Event::Late);
            return Ok(());
        };
        (conn.made, conn.lifetime) = (now, lifetime);
        let destination = conn.destination;
        self.events.count(Event::Connected);
        self.history.opened += 1;
        self.destinations[destination].failed = None;
        self.give_back(id);
        Ok(())
    }

    pub(super) fn connect_failed(&mut self, id: ConnId, told: Option<WaiterId>) -> Verdict {
        let Some(conn) = self.conns.get(id).copied().filter(Conn::is_connecting) else {
            ensure!(told.is_none(), 8, "{told:?} failed by {id:?}");
            self.events.count(Event::Late);
            return Ok(());
        };
        self.end_conn(id);
        self.events.count(Event::Refused);
        self.history.connect_failed += 1;
        self.destinations[conn.destination].failed = Some(self.now);
        let served = self.served_by(&conn);
        ensure!(told == served, 6, "{told:?} failed instead of {served:?}");
        if let Some(waiter) = told {
            self.history.acquires.failed += 1;
            self.end_waiter(waiter)?;
        }
        Ok(())
    }

    pub(super) fn claimed(&mut self, id: WaiterId, given: Option<ConnId>) -> Verdict {
        let delivered = self.waiters.get(id).and_then(|waiter| waiter.delivered);
        ensure!(
            given == delivered,
            7,
            "{id:?} claims {given:?}, not {delivered:?}"
        );
        let Some(conn) = given else {
            return Ok(());
        };
        self.events.count(Event::Claimed);
        self.end_waiter(id)?;
        self.enter(conn, Place::Held);
        self.count_served(conn);
        Ok(())
    }

    pub(super) fn cancelled(&mut self, id: WaiterId) -> Verdict {
        let Some(&waiter) = self.waiters.get(id) else {
            return Ok(());
        };
        self.end_waiter(id)?;
        self.history.acquires.cancelled += 1;
        match (waiter.delivered, waiter.overflown) {
            (Some(conn), _) => {
                self.events.count(Event::GaveUpDelivered);
                self.give_back(conn);
            }
            (None, Some(conn)) => self.asked.push((conn, CloseReason::Abandoned)),
            (None, None) => self.events.count(Event::GaveUpWaiting),
        }
        Ok(())
    }

    pub(super) fn released(&mut self, id: ConnId, disposition: Disposition) {
        let Some(conn) = self.conns.get_mut(id) else {
            return self.events.count(Event::StaleRelease);
        };
        if conn.place != Place::Held {
            return self.events.count(Event::StaleRelease);
        }
        match disposition {
            Disposition::Reuse => {
                conn.uses += 1;
                conn.used_up = self.config.max_uses().is_some_and(|most| conn.uses >= most);
            }
            Disposition::Close(reason) => self.asked.push((id, reason)),
        }
        self.give_back(id);
    }

    pub(super) fn probe_ended(&mut self, id: ConnId, healthy: bool) {
        let Some(conn) = self.conns.get(id).copied() else {
            return;
        };
        if !matches!(conn.place, Place::Probed { .. }) {
            return;
        }
        if !healthy {
            self.asked.push((id, CloseReason::HeartbeatFailed));
            return;
        }
        self.give_back(id);
        // Its idle time has gone on, and it has kept its place.
        if let Some(back) = self.conns.get_mut(id) {
            (back.since, back.clocked, back.timed) = (conn.since, true, self.now);
            back.turn = conn.turn;
        }
    }

    pub(super) fn force_closed(&mut self, id: ConnId, reason: CloseReason) {
        if self.conns.get(id).is_some() {
            self.asked.push((id, reason));
        }
    }

    /// The permit of an idle connection that is about to be closed is another core's now.
    pub(super) fn reclaimed(&mut self) {
        if let Some(permits) = &mut self.permits {
            permits.held = permits.held.saturating_sub(1);
        }
    }

    /// The waiter of a destination that came first and takes the connection, `used` before or not.
    pub(super) fn oldest(&self, destination: usize, used: bool) -> Option<WaiterId> {
        let takers = self.waiters.iter().filter(|(_, waiter)| {
            waiter.destination == destination && waiter.is_waiting() && !(used && waiter.fresh)
        });
        let oldest = takers.min_by_key(|(_, waiter)| waiter.arrival);
        oldest.map(|(id, _)| id)
    }

    /// The waiter that ends with a connect.
    pub(super) fn served_by(&self, conn: &Conn) -> Option<WaiterId> {
        match conn.place {
            Place::ConnectingFor(waiter) => Some(waiter),
            _ => self.oldest(conn.destination, false),
        }
    }

    pub(super) fn doom(&mut self, waiter: WaiterId, rejection: Rejection) {
        if let Some(waiter) = self.waiters.get_mut(waiter) {
            waiter.doomed = Some(rejection);
        }
    }

    /// Nobody has it any more: it is idle unless the effects say otherwise.
    fn give_back(&mut self, id: ConnId) {
        self.given_back = Some(id);
        self.enter(id, Place::Idle);
    }

    pub(super) fn enter(&mut self, id: ConnId, place: Place) {
        self.turns += 1;
        if let Some(conn) = self.conns.get_mut(id) {
            conn.enter(place, self.now, self.turns);
        }
    }

    fn count_served(&mut self, id: ConnId) {
        if self.conns.get(id).is_some_and(|conn| conn.uses > 0) {
            self.history.acquires.reused += 1;
        } else {
            self.history.acquires.fresh += 1;
        }
    }

    pub(super) fn end_conn(&mut self, id: ConnId) {
        self.stale_conns.push(id);
        self.conns.remove(id);
    }

    pub(super) fn end_waiter(&mut self, id: WaiterId) -> Verdict {
        self.stale_waiters.push(id);
        let ended = self.waiters.remove(id);
        ensure!(ended.is_some(), 7, "{id:?} ended twice");
        Ok(())
    }
}
