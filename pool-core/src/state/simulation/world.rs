//! One world: a pool or several that share a cap, with drivers, callers and peers, in virtual time.
//!
//! Each step is one call of the driver's, after which it carries out the effects and everything
//! that has to hold is judged.

use std::time::Duration;

use super::super::invariants::Checker;
use super::super::{Effect, KeyId, PoolState};
use super::agenda::{Agenda, Happening};
use super::cap::Cap;
use super::dice::Dice;
use super::files::{Conn, Permits, Place};
use super::oracle::{Oracle, Verdict};
use super::plant::{Fate, Plant};
use super::promises::{Finding, ensure};
use super::swarm::{Exchange, Operation, Swarm};
use super::trace::{Act, Counts, Event, Trace};
use super::{Promise, TICK};
use crate::config::PoolConfigBuilder;
use crate::{PoolConfig, Timestamp};

/// How long nothing happens before callers come.
const LULL: Duration = Duration::from_millis(2);

/// More than ever is left of a world whose peers behave.
const LONGEST_CALM: u64 = 100_000;

/// A pool and whoever drives it.
pub(super) struct Core {
    pub(super) index: usize,
    pub(super) state: PoolState,
    pub(super) oracle: Oracle,
    checker: Checker,
    pub(super) agenda: Agenda,
    /// The driver's own table of destinations.
    pub(super) keys: Vec<Option<KeyId>>,
}

pub(super) struct World<'a> {
    pub(super) dice: &'a mut Dice,
    pub(super) trace: &'a mut Trace,
    pub(super) plant: Option<&'a mut Plant>,
    pub(super) swarm: Swarm,
    /// The core that acts.
    pub(super) core: Box<Core>,
    /// The others.
    #[expect(
        clippy::vec_box,
        reason = "cores change places all the time, and each is kilobytes long"
    )]
    pub(super) parked: Vec<Box<Core>>,
    pub(super) cap: Cap,
    pub(super) now: Timestamp,
    /// From now on peers, holders and waiters behave, and nobody comes.
    pub(super) calm: bool,
    step: u64,
}

impl<'a> World<'a> {
    /// A world of the seed's, whose first step is the seed's `step`th.
    pub(super) fn new(
        dice: &'a mut Dice,
        trace: &'a mut Trace,
        mut plant: Option<&'a mut Plant>,
        step: u64,
    ) -> Result<Self, Finding> {
        let swarm = Swarm::draw(dice);
        let config = build(&swarm.config)?;
        let told = match &mut plant {
            Some(plant) => build(&plant.config(&swarm.config))?,
            None => config.clone(),
        };
        let core = |index, seed| {
            let mut state = PoolState::new(told.clone(), seed);
            let mut oracle = Oracle::new(config.clone(), swarm.destinations);
            if swarm.cap.is_some() {
                state.share_cap();
                oracle.permits = Some(Permits::default());
            }
            Box::new(Core {
                index,
                state,
                oracle,
                checker: Checker::default(),
                agenda: Agenda::default(),
                keys: vec![None; swarm.destinations],
            })
        };
        let mut first = core(0, dice.next());
        first.oracle.events.count(Event::World);
        Ok(Self {
            core: first,
            parked: (1..swarm.cores)
                .map(|index| core(index, dice.next()))
                .collect(),
            cap: Cap::new(swarm.cap.unwrap_or(u32::MAX)),
            now: Timestamp::ZERO,
            calm: false,
            step,
            dice,
            trace,
            plant,
            swarm,
        })
    }

    /// Makes so many steps, or fewer if a pool has been drained by then, and lets the world come
    /// to rest. Returns the number of steps, those of the rest included.
    pub(super) fn run(&mut self, steps: u64) -> Result<u64, Finding> {
        let first = self.step;
        while self.step - first < steps && !self.core.oracle.drained {
            self.step()?;
        }
        self.come_to_rest()?;
        Ok(self.step - first)
    }

    /// What happened, on all cores.
    pub(super) fn events(&self) -> Counts {
        let mut events = self.core.oracle.events.clone();
        for core in &self.parked {
            events.add(&core.oracle.events);
        }
        events
    }

    /// Lets another core act; `place` is its place among those parked.
    pub(super) fn switch_to(&mut self, place: usize) {
        std::mem::swap(&mut self.core, &mut self.parked[place]);
        self.core.oracle.now = self.now;
    }

    pub(super) fn note(&mut self, act: Act) {
        self.trace.push(self.core.index, self.step, self.now, act);
    }

    fn step(&mut self) -> Verdict {
        self.damage()?;
        if self.dice.one_in(2)
            && let Some(place) = self.dice.place(self.parked.len())
        {
            self.switch_to(place);
        }
        let mut operation = self.swarm.operations.draw(self.dice);
        let crowded = self.core.oracle.waiters.len() >= self.swarm.crowd
            || self.core.agenda.len() > 4 * self.swarm.crowd + 64;
        if operation == Operation::Acquire && crowded {
            operation = Operation::Next;
        }
        match operation {
            Operation::Acquire => self.acquire(),
            Operation::Next => self.next(),
            Operation::Oversleep => {
                self.oversleep();
                self.note(Act::Oversleep);
                self.settle()
            }
            Operation::Look => self.handle_timeout(),
            Operation::UseStaleIds => self.use_stale_ids(),
            Operation::ForceClose => self.force_close_any(),
            Operation::Cancel => match self.dice.place(self.core.oracle.waiters.len()) {
                Some(place) => self.cancel(self.core.oracle.waiters.at(place).0),
                None => self.acquire(),
            },
            Operation::Release => self.release_any(),
            Operation::Retune => self.retune(),
            Operation::Retire => self.retire_any(),
            Operation::Drain => self.drain(),
        }
    }

    /// Lets the planted fault strike, if its moment has come.
    fn damage(&mut self) -> Verdict {
        if let Some(plant) = self.plant.take() {
            let struck = plant.strike(
                &mut self.core.state,
                &mut self.core.oracle,
                self.now,
                self.dice,
            );
            if struck {
                self.note(Act::Planted(plant.fault));
            }
            self.plant = Some(plant);
            if struck {
                self.carry_out()?;
                self.judge()?;
            }
        }
        Ok(())
    }

    /// Ends a step: carries out the effects, and judges.
    pub(super) fn settle(&mut self) -> Verdict {
        self.carry_out()?;
        self.judge()?;
        self.step += 1;
        Ok(())
    }

    fn judge(&mut self) -> Verdict {
        self.core.oracle.judge_effects()?;
        self.core.oracle.judge(&self.core.state)?;
        self.core.checker.check(&self.core.state).map_err(|what| {
            let number = what
                .split(':')
                .next()
                .and_then(|number| number.parse().ok());
            let promise = number.map_or(Promise::StateThatEnds, Promise::Invariant);
            Finding::new(promise, format_args!("check: {what}"))
        })
    }

    pub(super) fn carry_out(&mut self) -> Verdict {
        while let Some(effect) = self.core.state.poll_effect() {
            self.note(Act::Effect(effect));
            let fate = match &mut self.plant {
                None => Fate::Passes,
                Some(plant) => plant.fate(effect, self.dice),
            };
            match fate {
                Fate::Passes => self.carry_out_one(effect)?,
                Fate::Lost => {}
                Fate::Doubled => {
                    self.carry_out_one(effect)?;
                    self.carry_out_one(effect)?;
                }
            }
        }
        Ok(())
    }

    /// Carries out what is left of closes, and leaves the keys: one that has just lost its last
    /// connection is about to be used.
    pub(super) fn carry_out_closes(&mut self) -> Verdict {
        while !self.core.state.effects.is_empty()
            && let Some(effect) = self.core.state.poll_effect()
        {
            self.note(Act::Effect(effect));
            self.carry_out_one(effect)?;
        }
        Ok(())
    }

    fn carry_out_one(&mut self, effect: Effect) -> Verdict {
        self.core.oracle.effect(effect, &self.core.state)?;
        match effect {
            Effect::Probe(conn) => self.peer_is_probed(conn),
            Effect::AskPermit | Effect::ReturnPermit | Effect::WithdrawPermit => {
                self.ask_cap(effect);
            }
            Effect::Connect(conn, _) => self.peer_meets(conn),
            Effect::Deliver(waiter, _) => self.waiter_hears(waiter),
            Effect::ForgetKey(key) => {
                let known = self.core.keys.iter_mut().find(|known| **known == Some(key));
                ensure!(known.is_some(), 8, "{key:?} is forgotten twice");
                known.map(Option::take);
            }
            _ => {}
        }
        Ok(())
    }

    fn pass(&mut self, until: Timestamp) {
        self.now = self.now.max(until);
        self.core.oracle.now = self.now;
    }

    fn oversleep(&mut self) {
        let over = self.dice.duration(self.swarm.overshoot_bits);
        self.pass(self.now + over);
    }

    /// When something is due on a core.
    fn due(core: &Core) -> Option<Timestamp> {
        let due = core.agenda.next().into_iter();
        due.chain(core.state.next_timeout()).min()
    }

    fn next(&mut self) -> Verdict {
        let parked = (0..).zip(&self.parked);
        let parked = parked.filter_map(|(place, core)| Some((Self::due(core)?, place)));
        if let Some((due, place)) = parked.min()
            && Self::due(&self.core).is_none_or(|own| due < own)
        {
            self.switch_to(place);
        }
        let timeout = self.core.state.next_timeout();
        let Some(next) = Self::due(&self.core) else {
            return match self.calm {
                true => Ok(()),
                false => self.acquire(),
            };
        };
        // Callers seldom stay away for as long as nothing else happens.
        let lull = next > self.now + LULL && self.core.oracle.waiters.len() < self.swarm.crowd;
        if lull && !self.calm && !self.dice.one_in(self.swarm.quiet) {
            return self.acquire();
        }
        self.pass(next);
        if !self.calm && self.dice.one_in(8) {
            // The loop was busy for a while: much is due at once.
            self.oversleep();
        }
        let timers_first = timeout.is_some_and(|timeout| timeout <= self.now)
            && (self.dice.one_in(2) || self.core.agenda.next().is_none_or(|at| at > self.now));
        if timers_first {
            return self.handle_timeout();
        }
        match self.core.agenda.pop(self.now) {
            Some(happening) => self.happen(happening),
            None => self.handle_timeout(),
        }
    }

    fn handle_timeout(&mut self) -> Verdict {
        self.note(Act::HandleTimeout);
        self.core.oracle.look();
        self.core.state.handle_timeout(self.now);
        self.carry_out()?;
        // What has begun meanwhile is timed as well.
        self.core.oracle.time();
        let next = self.core.state.next_timeout();
        ensure!(
            next.is_none_or(|next| next > self.now),
            10,
            "asked at {:?} to come again at {next:?}",
            self.now
        );
        self.settle()
    }

    /// No more faults, no more callers: everybody who waits is served or times out, every holder
    /// gives back, and what is left is idle. After a drain, nothing is left.
    fn come_to_rest(&mut self) -> Verdict {
        self.note(Act::Calm);
        self.calm = true;
        let mut cores = vec![&mut self.core];
        cores.extend(&mut self.parked);
        for core in cores {
            core.agenda.clear();
            for (id, conn) in core.oracle.conns.iter() {
                let happening = match conn.place {
                    Place::Connecting | Place::ConnectingFor(_) => Happening::Answer(id, true),
                    Place::Held => Happening::Done(id, Exchange::Whole),
                    Place::Delivered(waiter) => Happening::Look(waiter),
                    Place::Probed { .. } => Happening::ProbeEnds(id, true),
                    Place::Idle => continue,
                };
                core.agenda.plan(self.now, happening);
            }
        }
        self.go_on_while(|world| world.any(Core::has_work))?;
        if self.parked.is_empty() && !self.core.is_over() && self.dice.one_in(2) {
            self.let_idle_time_out()?;
        }
        for _ in 0..=self.parked.len() {
            if !self.core.oracle.drained {
                self.note(Act::Drain(self.now));
                self.start_drain(self.now + TICK)?;
            }
            self.core.judge_end()?;
            if !self.parked.is_empty() {
                // Each comes to the front once.
                let core = self.parked.remove(0);
                self.parked.push(std::mem::replace(&mut self.core, core));
                self.core.oracle.now = self.now;
            }
        }
        self.go_on_while(|world| world.any(|core| !core.agenda.is_empty()))?;
        ensure!(
            self.cap.is_whole(),
            1,
            "permits are not given back: {:?}",
            self.cap
        );
        self.core.oracle.events.count(Event::Calm);
        Ok(())
    }

    fn any(&self, wanted: impl Fn(&Core) -> bool) -> bool {
        wanted(&self.core) || self.parked.iter().any(|core| wanted(core))
    }

    fn go_on_while(&mut self, unfinished: impl Fn(&Self) -> bool) -> Verdict {
        let last = self.step + LONGEST_CALM;
        while unfinished(self) {
            ensure!(self.step < last, liveness, "no end in sight");
            let before = self.step;
            self.next()?;
            ensure!(
                self.step > before,
                liveness,
                "nothing is due, and somebody waits"
            );
        }
        Ok(())
    }

    /// State that ends: without connection, waiter or timer nothing of a destination is left.
    fn let_idle_time_out(&mut self) -> Verdict {
        let config = &self.core.oracle.config;
        let endless = config.heartbeat_interval().is_some()
            || (config.min_idle() > 0 && config.idle_timeout().is_none());
        if endless {
            return Ok(());
        }
        self.go_on_while(|world| Self::due(&world.core).is_some())?;
        let oracle = &self.core.oracle;
        let known = oracle.destinations.iter();
        let known = known.filter(|entry| entry.key.is_some()).count();
        let mut used = vec![false; oracle.destinations.len()];
        for conn in oracle.conns.values() {
            used[conn.destination] = true;
        }
        let used = used.into_iter().filter(|used| *used).count();
        ensure!(known == used, ends, "{known} destinations, {used} in use");
        Ok(())
    }
}

impl Core {
    /// Somebody waits for something other than the end of idle connections.
    fn has_work(&self) -> bool {
        let busy = |conn: &Conn| !conn.is_idle() && conn.place != Place::Connecting;
        !self.oracle.waiters.is_empty() || self.oracle.conns.values().any(busy)
    }

    fn is_over(&self) -> bool {
        self.oracle.drained || self.oracle.drain.is_some()
    }

    fn judge_end(&self) -> Verdict {
        ensure!(self.oracle.drained, 11, "a drain without work does not end");
        ensure!(self.state.is_drained(), 11, "not drained");
        let left = (
            self.state.conns.len(),
            self.state.waiters.len(),
            self.state.timers.len(),
            self.state.keys.len(),
        );
        ensure!(
            left == (0, 0, 0, 0),
            11,
            "{left:?} connections, waiters, timers and keys are left"
        );
        ensure!(self.state.next_timeout().is_none(), 11, "a timer is left");
        Ok(())
    }
}

pub(super) fn build(config: &PoolConfigBuilder) -> Result<PoolConfig, Finding> {
    let config = config.clone().build();
    config.map_err(|error| Finding::new(Promise::Panic, format_args!("refused: {error}")))
}
