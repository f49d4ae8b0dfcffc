//! What is done to a world's pool: the calls of its driver, on behalf of callers, holders and peers.

use std::time::Duration;

use super::super::{Admission, ConnId, Disposition, IdleCandidate, KeyId, WaiterId};
use super::agenda::Happening;
use super::files::Place;
use super::oracle::Verdict;
use super::promises::{Finding, ensure};
use super::swarm::{Answer, Exchange, Mischief};
use super::trace::{Act, Event};
use super::world::{World, build};
use crate::{CloseReason, Timestamp};

/// How long it takes for whoever hangs to be noticed otherwise than by a timeout.
const HANG: Duration = Duration::from_secs(2);

impl World<'_> {
    pub(super) fn waiter_hears(&mut self, waiter: WaiterId) {
        if self.calm || !self.dice.one_in(self.swarm.forgets) {
            let at = self.now + self.swarm.look_time(self.dice);
            self.core.agenda.plan(at, Happening::Look(waiter));
        }
    }

    /// Draws how the peer answers a connect.
    pub(super) fn peer_meets(&mut self, conn: ConnId) {
        let answer = match self.calm {
            true => Answer::Accept,
            false => self.swarm.answers.draw(self.dice),
        };
        let mut at = self.now + self.swarm.connect_time(self.dice);
        if answer == Answer::Hang {
            self.core.oracle.events.count(Event::Hung);
            at = at + HANG;
        }
        let accepts = answer == Answer::Accept;
        self.core.agenda.plan(at, Happening::Answer(conn, accepts));
    }

    /// Draws what a probe finds.
    pub(super) fn peer_is_probed(&mut self, conn: ConnId) {
        let answer = match self.calm {
            true => Answer::Accept,
            false => self.swarm.answers.draw(self.dice),
        };
        let mut at = self.now + self.swarm.look_time(self.dice);
        if answer == Answer::Hang {
            at = at + HANG;
        }
        let healthy = answer == Answer::Accept;
        self.core
            .agenda
            .plan(at, Happening::ProbeEnds(conn, healthy));
    }

    /// Draws what a holder does with its connection.
    pub(super) fn holder_takes(&mut self, conn: ConnId) {
        let exchange = match self.calm {
            true => Exchange::Whole,
            false => self.swarm.exchanges.draw(self.dice),
        };
        let mut at = self.now + self.swarm.exchange_time(self.dice);
        if exchange == Exchange::Hangs {
            self.core.oracle.events.count(Event::HolderHangs);
            at = at + HANG;
        }
        self.core.agenda.plan(at, Happening::Done(conn, exchange));
    }

    pub(super) fn happen(&mut self, happening: Happening) -> Verdict {
        match happening {
            Happening::Answer(conn, true) => self.connected(conn),
            Happening::Answer(conn, false) => {
                self.note(Act::ConnectFailed(conn));
                let told = self.core.state.connect_failed(self.now, conn);
                self.core.oracle.connect_failed(conn, told)?;
                self.settle()
            }
            Happening::Mischief(conn, mischief) => self.peer_acts(conn, mischief),
            Happening::Notice(conn) => {
                let dead = self.core.oracle.conns.get(conn);
                match dead.and_then(|conn| conn.dead.filter(|_| conn.is_idle())) {
                    Some(reason) => self.force_close(conn, reason),
                    None => self.settle(),
                }
            }
            Happening::Look(waiter) => self.look(waiter),
            Happening::GiveUp(waiter) => self.cancel(waiter),
            Happening::Done(conn, exchange) => self.done(conn, exchange),
            Happening::ProbeEnds(conn, healthy) => self.probe_ended(conn, healthy),
            Happening::PermitAnswer => self.answer_permit(),
            Happening::Grant => self.grant_permit(),
            Happening::Reclaim => self.reclaim(),
        }
    }

    pub(super) fn acquire(&mut self) -> Verdict {
        let Some(destination) = self.dice.place(self.core.keys.len()) else {
            return Ok(());
        };
        let key = match self.core.keys[destination] {
            Some(key) => key,
            None => {
                let key = self.core.state.insert_key();
                self.core.keys[destination] = Some(key);
                self.core.oracle.named(destination, key)?;
                key
            }
        };
        let fresh = self.dice.one_in(self.swarm.fresh);
        self.note(Act::Acquire { destination, fresh });
        if !fresh && self.dice.one_in(self.swarm.looks_first) {
            while let Some(conn) = self.candidate(destination, key)? {
                let entry = self.core.oracle.conns.get(conn);
                if let Some(reason) = entry.and_then(|conn| conn.dead) {
                    self.core.oracle.events.count(Event::FoundDead);
                    self.note(Act::ForceClose(conn, reason));
                    self.core.oracle.force_closed(conn, reason);
                    self.core.state.force_close(self.now, conn, reason);
                    self.carry_out_closes()?;
                    continue;
                }
                self.note(Act::AcquireIdle(conn));
                let acquired = match self.dice.one_in(2) {
                    true => self.core.state.acquire_idle(self.now, conn),
                    false => {
                        let candidate = self.core.state.idle_candidate(self.now, key);
                        let candidate = candidate.filter(|found| found.conn() == conn);
                        candidate.map(IdleCandidate::acquire).is_some()
                    }
                };
                ensure!(acquired, 9, "{conn:?} was on offer and is not given");
                self.core.oracle.acquired_idle(conn)?;
                self.holder_takes(conn);
                return self.settle();
            }
        }
        self.ask(destination, key, fresh)
    }

    pub(super) fn candidate(
        &mut self,
        destination: usize,
        key: KeyId,
    ) -> Result<Option<ConnId>, Finding> {
        let found = self.core.state.idle_candidate(self.now, key);
        let found = found.map(|candidate| candidate.conn());
        self.core.oracle.judge_candidate(destination, found)?;
        Ok(found)
    }

    pub(super) fn ask(&mut self, destination: usize, key: KeyId, fresh: bool) -> Verdict {
        let before = self.core.oracle.tally(destination);
        let admission = if fresh {
            self.core.state.acquire_fresh(self.now, key)
        } else {
            self.core.state.acquire(self.now, key)
        };
        self.note(Act::Admitted(admission));
        self.core
            .oracle
            .admitted(destination, fresh, before, admission)?;
        match admission {
            Admission::Reuse(conn) => self.holder_takes(conn),
            Admission::Wait(waiter) if self.dice.one_in(self.swarm.gives_up) => {
                let at = self.now + self.swarm.patience(self.dice);
                self.core.agenda.plan(at, Happening::GiveUp(waiter));
            }
            _ => {}
        }
        self.carry_out()?;
        self.core.oracle.judge_admission(destination, before)?;
        self.settle()
    }

    pub(super) fn connected(&mut self, conn: ConnId) -> Verdict {
        self.note(Act::Connected(conn));
        let expected = self.core.state.connected(self.now, conn);
        self.core.oracle.connected(conn, expected)?;
        if expected && !self.calm {
            let mischief = self.swarm.mischief.draw(self.dice);
            if mischief != Mischief::None {
                let at = self.now + self.swarm.until_mischief(self.dice);
                self.core
                    .agenda
                    .plan(at, Happening::Mischief(conn, mischief));
            }
        }
        self.settle()
    }

    pub(super) fn peer_acts(&mut self, id: ConnId, mischief: Mischief) -> Verdict {
        let (Some(reason), Some(conn)) = (mischief.reason(), self.core.oracle.conns.get_mut(id))
        else {
            return self.settle();
        };
        let place = conn.place;
        if place != Place::Held {
            conn.dead = Some(reason);
        }
        match place {
            // What it sends to a holder is for the holder to judge.
            Place::Held if mischief == Mischief::StrayBytes => self.settle(),
            Place::Held if mischief == Mischief::Fin => {
                // The holder reads to the end what came before.
                conn.dead = Some(reason);
                self.core.oracle.events.count(Event::DiedHeld);
                self.settle()
            }
            Place::Held => {
                self.core.oracle.events.count(Event::DiedHeld);
                self.force_close(id, reason)
            }
            Place::Idle | Place::Probed { .. } => {
                self.note(Act::PeerEnds(id, reason));
                let at = self.now + self.swarm.look_time(self.dice);
                self.core.agenda.plan(at, Happening::Notice(id));
                self.core.oracle.events.count(Event::DiedIdle);
                self.settle()
            }
            Place::Delivered(_) | Place::Connecting | Place::ConnectingFor(_) => {
                self.note(Act::PeerEnds(id, reason));
                self.settle()
            }
        }
    }

    /// The waiter looks at the connection before it claims it.
    pub(super) fn look(&mut self, waiter: WaiterId) -> Verdict {
        let delivered = self
            .core
            .oracle
            .waiters
            .get(waiter)
            .and_then(|waiter| waiter.delivered);
        let dead = delivered.and_then(|conn| Some((conn, self.core.oracle.conns.get(conn)?.dead?)));
        if let Some((conn, reason)) = dead {
            return self.force_close(conn, reason);
        }
        self.note(Act::Claim(waiter));
        let given = self.core.state.claim(self.now, waiter);
        self.core.oracle.claimed(waiter, given)?;
        if let Some(conn) = given {
            self.holder_takes(conn);
        }
        self.settle()
    }

    pub(super) fn cancel(&mut self, waiter: WaiterId) -> Verdict {
        self.note(Act::Cancel(waiter));
        self.core.state.cancel(self.now, waiter);
        self.core.oracle.cancelled(waiter)?;
        self.settle()
    }

    pub(super) fn done(&mut self, conn: ConnId, exchange: Exchange) -> Verdict {
        let dead = self.core.oracle.conns.get(conn).and_then(|conn| conn.dead);
        let (event, disposition) = match exchange {
            Exchange::Whole => match dead {
                Some(reason) => (Event::Last, Disposition::Close(reason)),
                None => (Event::Whole, Disposition::Reuse),
            },
            Exchange::Last => (
                Event::Last,
                Disposition::Close(CloseReason::ConnectionClose),
            ),
            Exchange::Half => (Event::Half, Disposition::Close(CloseReason::ExchangeFailed)),
            Exchange::Abandoned | Exchange::Hangs => {
                (Event::Abandoned, Disposition::Close(CloseReason::Abandoned))
            }
            Exchange::Detached => (Event::Detached, Disposition::Close(CloseReason::Detached)),
        };
        self.core.oracle.events.count(event);
        let held = self.core.oracle.conns.get(conn);
        let held = held.is_some_and(|conn| conn.place == Place::Held);
        if held && disposition == Disposition::Reuse && self.dice.one_in(self.swarm.hints) {
            self.hint(conn);
        }
        self.release(conn, disposition)
    }

    /// The response has said for how long the peer keeps the connection, or no more.
    fn hint(&mut self, id: ConnId) {
        let hint = (!self.dice.one_in(4)).then(|| self.swarm.promise(self.dice));
        self.note(Act::Hint(id, hint));
        self.core.state.hint_keep_alive(id, hint);
        if let Some(conn) = self.core.oracle.conns.get_mut(id) {
            conn.hint = hint;
        }
    }

    pub(super) fn probe_ended(&mut self, conn: ConnId, healthy: bool) -> Verdict {
        self.note(Act::ProbeEnded(conn, healthy));
        self.core.oracle.events.count(match healthy {
            true => Event::Healthy,
            false => Event::Unhealthy,
        });
        self.core.oracle.probe_ended(conn, healthy);
        self.core.state.probe_ended(self.now, conn, healthy);
        self.settle()
    }

    /// The peer of a destination is to be left.
    pub(super) fn retire_any(&mut self) -> Verdict {
        let named = self.dice.place(self.core.keys.len());
        let named = named.and_then(|place| Some((place, self.core.keys[place]?)));
        let Some((destination, key)) = named else {
            return self.acquire();
        };
        self.note(Act::Retire(destination));
        self.core.oracle.events.count(Event::Retired);
        self.core.oracle.retired(destination);
        self.core.state.retire(self.now, key);
        self.settle()
    }

    /// Other limits, from now on.
    pub(super) fn retune(&mut self) -> Verdict {
        self.note(Act::SetConfig);
        self.core.oracle.events.count(Event::Retuned);
        let drawn = self.swarm.draw_config(self.dice);
        let told = match &mut self.plant {
            Some(plant) => build(&plant.config(&drawn))?,
            None => build(&drawn)?,
        };
        self.core.oracle.set_config(build(&drawn)?);
        self.core.state.set_config(self.now, told);
        self.settle()
    }

    pub(super) fn release(&mut self, conn: ConnId, disposition: Disposition) -> Verdict {
        self.note(Act::Release(conn, disposition));
        self.core.oracle.released(conn, disposition);
        self.core.state.release(self.now, conn, disposition);
        self.settle()
    }

    pub(super) fn release_any(&mut self) -> Verdict {
        match self.dice.place(self.core.oracle.conns.len()) {
            Some(place) => {
                let (conn, _) = self.core.oracle.conns.at(place);
                self.done(conn, Exchange::Whole)
            }
            None => self.acquire(),
        }
    }

    pub(super) fn force_close(&mut self, conn: ConnId, reason: CloseReason) -> Verdict {
        self.note(Act::ForceClose(conn, reason));
        self.core.oracle.force_closed(conn, reason);
        let deaf = match &mut self.plant {
            Some(plant) => plant.is_deaf(self.dice),
            None => false,
        };
        if !deaf {
            self.core.state.force_close(self.now, conn, reason);
        }
        self.settle()
    }

    pub(super) fn force_close_any(&mut self) -> Verdict {
        match self.dice.place(self.core.oracle.conns.len()) {
            Some(place) => {
                let (conn, _) = self.core.oracle.conns.at(place);
                self.core.oracle.events.count(Event::ForceClosed);
                let reason = match self.dice.below(3) {
                    0 => CloseReason::Reset,
                    1 => CloseReason::StrayBytes,
                    _ => CloseReason::PeerClosed,
                };
                self.force_close(conn, reason)
            }
            None => self.acquire(),
        }
    }

    /// Invariant 8.
    pub(super) fn use_stale_ids(&mut self) -> Verdict {
        self.note(Act::UseStaleIds);
        self.core.oracle.events.count(Event::StaleIds);
        let conn = self.core.oracle.stale_conn(self.dice);
        if let Some(mut conn) = conn {
            if let Some(plant) = &mut self.plant {
                conn = plant.mistaken(conn, &self.core.oracle);
            }
            self.core.state.hint_keep_alive(conn, Some(HANG));
            self.core.state.probe_ended(self.now, conn, false);
            let told = self.core.state.connect_failed(self.now, conn);
            ensure!(told.is_none(), 8, "{told:?} failed by the stale {conn:?}");
            let expected = self.core.state.connected(self.now, conn);
            ensure!(!expected, 8, "the stale {conn:?} is expected");
            self.core.state.release(self.now, conn, Disposition::Reuse);
            self.core
                .state
                .force_close(self.now, conn, CloseReason::Reset);
            let acquired = self.core.state.acquire_idle(self.now, conn);
            ensure!(!acquired, 8, "the stale {conn:?} is acquired");
            ensure!(
                !self.core.state.is_reused(conn),
                8,
                "the stale {conn:?} is in use"
            );
        }
        if let Some(waiter) = self.core.oracle.stale_waiter(self.dice) {
            let given = self.core.state.claim(self.now, waiter);
            ensure!(given.is_none(), 8, "the stale {waiter:?} claims {given:?}");
            self.core.state.cancel(self.now, waiter);
        }
        let effects = self.core.state.has_effects();
        ensure!(!effects, 8, "stale ids have effects: {conn:?}");
        self.settle()
    }

    pub(super) fn drain(&mut self) -> Verdict {
        let grace = self.dice.duration(self.swarm.overshoot_bits + 4);
        let deadline = self.now + grace;
        self.note(Act::Drain(deadline));
        self.core.oracle.events.count(Event::Drain);
        self.start_drain(deadline)
    }

    pub(super) fn start_drain(&mut self, deadline: Timestamp) -> Verdict {
        let earlier = self
            .core
            .oracle
            .drain
            .map_or(deadline, |end| end.min(deadline));
        self.core.oracle.drain = Some(earlier);
        self.core.state.drain(self.now, deadline);
        self.settle()
    }
}
