//! The cap that the pools of several cores share, and whoever answers for it.

use std::collections::VecDeque;
use std::time::Duration;

use super::super::Effect;
use super::agenda::Happening;
use super::files::Asking;
use super::oracle::Verdict;
use super::trace::{Act, Event};
use super::world::World;

#[derive(Debug)]
pub(super) struct Cap {
    size: u32,
    /// Permits that cores have, or that are on their way to one.
    out: u32,
    /// The cores that wait for one, by their index.
    queue: VecDeque<usize>,
    /// How many cores have been asked for one and have not answered.
    reclaims: usize,
}

/// How soon another core is asked for what one has not.
const PATIENCE: Duration = Duration::from_millis(1);

impl Cap {
    pub(super) const fn new(size: u32) -> Self {
        Self {
            size,
            out: 0,
            queue: VecDeque::new(),
            reclaims: 0,
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.out == 0 && self.queue.is_empty()
    }
}

impl World<'_> {
    pub(super) fn ask_cap(&mut self, effect: Effect) {
        match effect {
            Effect::AskPermit => {
                let at = self.now + self.swarm.look_time(self.dice);
                self.core.agenda.plan(at, Happening::PermitAnswer);
            }
            Effect::ReturnPermit => {
                self.cap.out = self.cap.out.saturating_sub(1);
                self.serve_queue();
            }
            _ => self.cap.queue.retain(|core| *core != self.core.index),
        }
    }

    /// Sends permits that are there to those who wait for them.
    fn serve_queue(&mut self) {
        while self.cap.out < self.cap.size
            && let Some(index) = self.cap.queue.pop_front()
        {
            self.cap.out += 1;
            let at = self.now + self.swarm.look_time(self.dice);
            let mut parked = self.parked.iter_mut();
            let core = match parked.find(|core| core.index == index) {
                Some(core) => core,
                None => &mut self.core,
            };
            core.agenda.plan(at, Happening::Grant);
        }
    }

    /// Asks another core for what this one waits for.
    fn ask_another(&mut self, after: Duration) {
        if self.cap.reclaims >= self.cap.queue.len() {
            return;
        }
        self.cap.reclaims += 1;
        let at = self.now + after + self.swarm.look_time(self.dice);
        let core = match self.dice.place(self.parked.len()) {
            Some(place) => &mut self.parked[place],
            None => &mut self.core,
        };
        core.agenda.plan(at, Happening::Reclaim);
    }

    pub(super) fn answer_permit(&mut self) -> Verdict {
        if self.cap.out < self.cap.size {
            self.cap.out += 1;
            return self.grant_permit();
        }
        self.note(Act::DenyPermit);
        self.core.oracle.events.count(Event::Denied);
        self.cap.queue.push_back(self.core.index);
        self.ask_another(Duration::ZERO);
        if let Some(permits) = &mut self.core.oracle.permits {
            permits.asking = Asking::Queued;
            permits.denied = true;
        }
        self.core.state.deny_permit(self.now);
        self.settle()
    }

    pub(super) fn grant_permit(&mut self) -> Verdict {
        self.note(Act::GrantPermit);
        self.core.oracle.events.count(Event::Granted);
        if let Some(permits) = &mut self.core.oracle.permits {
            permits.held += 1;
            permits.asking = Asking::No;
        }
        self.core.state.grant_permit(self.now);
        self.settle()
    }

    pub(super) fn reclaim(&mut self) -> Verdict {
        self.cap.reclaims -= 1;
        if self.cap.queue.is_empty() {
            return self.settle();
        }
        self.note(Act::Reclaim);
        // It justifies the eviction that is to come.
        if let Some(permits) = &mut self.core.oracle.permits {
            permits.owed = true;
        }
        let reclaimed = self.core.state.reclaim(self.now);
        if reclaimed {
            self.core.oracle.events.count(Event::Reclaimed);
            self.core.oracle.reclaimed();
            self.carry_out()?;
            self.cap.out = self.cap.out.saturating_sub(1);
            self.serve_queue();
        } else {
            self.note(Act::OwePermit);
            self.core.oracle.events.count(Event::Owed);
            self.core.state.owe_permit();
        }
        let live = self.core.oracle.sum().live();
        if let Some(permits) = &mut self.core.oracle.permits {
            permits.owed = !reclaimed && live > 0;
        }
        self.ask_another(PATIENCE);
        self.settle()
    }
}
