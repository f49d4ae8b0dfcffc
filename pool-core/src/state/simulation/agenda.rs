//! What peers, holders and waiters are going to do, by time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::super::{ConnId, WaiterId};
use super::swarm::{Exchange, Mischief};
use crate::Timestamp;

/// Something that comes to the pool from outside. By then its id may be stale, and the state is
/// told all the same.
#[derive(Clone, Copy, Debug)]
pub(super) enum Happening {
    /// The peer answers a connect.
    Answer(ConnId, bool),
    /// The peer does something that nobody asked for.
    Mischief(ConnId, Mischief),
    /// The core's readiness tells of an idle connection that its peer has ended.
    Notice(ConnId),
    /// The waiter looks at what was delivered to it.
    Look(WaiterId),
    GiveUp(WaiterId),
    /// The holder is done.
    Done(ConnId, Exchange),
    /// A probe has found its connection healthy, or not.
    ProbeEnds(ConnId, bool),
    /// The shared cap answers a question.
    PermitAnswer,
    /// A permit comes for which this core has queued.
    Grant,
    /// Another core waits for a permit.
    Reclaim,
}

impl Happening {
    fn is_of_the_cap(&self) -> bool {
        matches!(self, Self::PermitAnswer | Self::Grant | Self::Reclaim)
    }
}

#[derive(Debug)]
struct Planned {
    at: Timestamp,
    /// Of two at the same time, the one that was planned first comes first.
    order: u64,
    happening: Happening,
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Planned {}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Planned {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

#[derive(Debug, Default)]
pub(super) struct Agenda {
    planned: BinaryHeap<Reverse<Planned>>,
    order: u64,
}

impl Agenda {
    pub(super) fn plan(&mut self, at: Timestamp, happening: Happening) {
        let order = self.order;
        self.order += 1;
        self.planned.push(Reverse(Planned {
            at,
            order,
            happening,
        }));
    }

    pub(super) fn next(&self) -> Option<Timestamp> {
        self.planned.peek().map(|Reverse(planned)| planned.at)
    }

    /// The first thing that happens until `now`.
    pub(super) fn pop(&mut self, now: Timestamp) -> Option<Happening> {
        self.next().filter(|at| *at <= now)?;
        self.planned.pop().map(|Reverse(planned)| planned.happening)
    }

    pub(super) fn len(&self) -> usize {
        self.planned.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.planned.is_empty()
    }

    /// Leaves only what the shared cap does.
    pub(super) fn clear(&mut self) {
        self.planned
            .retain(|Reverse(planned)| planned.happening.is_of_the_cap());
    }
}
