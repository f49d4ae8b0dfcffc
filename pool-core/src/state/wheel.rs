//! A hierarchical timing wheel: scheduling and cancelling cost the same with one timer or with a
//! million.
//!
//! Time is cut into ticks of 2^19 ns (about half a millisecond). A level holds 64 slots; a slot
//! of level *n* spans 64^*n* ticks. A timer waits at the level of the highest base-64 digit in
//! which its tick differs from the current one, and moves to a lower level when time reaches its
//! slot, at most seven times in all. Eight levels span more ticks than a [`Timestamp`] can
//! express, so no deadline is too far.
//!
//! A deadline is rounded up to a tick: a timer never fires early, and at most one tick late.
//! A timer whose deadline moves to later stays where it is and moves on when its slot is reached,
//! so a deadline that is put off again and again costs a comparison each time.
//!
//! Whoever sets a timer in the middle of a turn knows the time only as it was when the turn began.
//! Such a timer is made *fresh* instead, and gets its deadline at the next reading of the clock.
//!
//! Empty stretches of time are skipped by bitmaps, so what an advance costs depends on the timers
//! it meets, not on how long the loop was stalled.

use std::collections::VecDeque;

use super::list::{Linked, Links, List};
use super::slab::{Slab, slab_id};
use crate::Timestamp;

slab_id! {
    /// Names a timer from its insertion to its removal.
    pub(crate) TimerId
}

const TICK_BITS: u32 = 19;
const DIGIT_BITS: u32 = 6;
const SLOTS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = 8;
const LAST_TICK: u64 = 1 << (u64::BITS - TICK_BITS);

/// An empty list of fresh timers keeps room for so many.
const KEPT_FRESH: usize = 256;

/// Where a scheduled timer waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Nowhere: it is not scheduled.
    Idle,
    /// In the list of timers whose time has come.
    Due,
    Slot {
        level: u8,
        slot: u8,
    },
}

/// Whether a timer waits for the next reading of the clock to get a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fresh {
    No,
    /// It did, and still stands in the list of those that do.
    Listed,
    Yes,
}

#[derive(Debug)]
struct Timer<T> {
    payload: T,
    deadline: Timestamp,
    /// The tick it was put into a slot for; not later than its deadline's.
    placed_for: u64,
    place: Place,
    fresh: Fresh,
    links: Links,
}

impl<T> Linked for Timer<T> {
    fn links(&self) -> &Links {
        &self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

/// Timers that each carry a payload.
///
/// A timer is made once, by [`insert`](Self::insert), and then scheduled and cancelled at will
/// without allocation until its owner removes it.
#[derive(Debug)]
pub(crate) struct Wheel<T> {
    timers: Slab<TimerId, Timer<T>>,
    slots: Box<[[List<TimerId>; SLOTS]; LEVELS]>,
    /// A bit for each slot that holds timers.
    occupied: [u64; LEVELS],
    due: List<TimerId>,
    /// Each fresh timer once; stale ids and such that are fresh no more may stand between them.
    fresh: VecDeque<TimerId>,
    /// The last tick whose timers have been moved to `due`.
    ///
    /// Every timer in a slot is later, so its digit at its level is greater than the current one.
    current: u64,
}

impl<T> Wheel<T> {
    pub(crate) fn new() -> Self {
        Self {
            timers: Slab::new(),
            slots: Box::new([[List::new(); SLOTS]; LEVELS]),
            occupied: [0; LEVELS],
            due: List::new(),
            fresh: VecDeque::new(),
            current: 0,
        }
    }

    /// Makes a timer that is not scheduled. It stays until [`remove`](Self::remove).
    pub(crate) fn insert(&mut self, payload: T) -> TimerId {
        self.timers.insert(Timer {
            payload,
            deadline: Timestamp::MAX,
            placed_for: 0,
            place: Place::Idle,
            fresh: Fresh::No,
            links: Links::new(),
        })
    }

    /// Ends a timer, scheduled or not; `None` if it has ended before.
    pub(crate) fn remove(&mut self, id: TimerId) -> Option<T> {
        self.timers.get(id)?;
        self.cancel(id);
        let removed = self.timers.remove(id).map(|timer| timer.payload);
        if self.timers.is_empty() {
            self.fresh = VecDeque::new();
        }
        removed
    }

    /// The payload; `None` if the timer has ended.
    pub(crate) fn get_mut(&mut self, id: TimerId) -> Option<&mut T> {
        self.timers.get_mut(id).map(|timer| &mut timer.payload)
    }

    /// Lets the timer expire once at `deadline`, in place of any deadline it had. A deadline in
    /// the past expires at the next [`pop_expired`](Self::pop_expired).
    ///
    /// # Panics
    ///
    /// If the timer has ended.
    pub(crate) fn schedule(&mut self, id: TimerId, deadline: Timestamp) {
        let tick = tick_after(deadline);
        let timer = &mut self.timers[id];
        timer.not_fresh();
        timer.deadline = deadline;
        let place = timer.place;
        if place != Place::Idle {
            if place != Place::Due && timer.placed_for <= tick {
                return;
            }
            self.leave(id, place);
        }
        self.place(id, tick);
    }

    /// Takes back the deadline, and lets [`pop_fresh`](Self::pop_fresh) return the timer, for it to
    /// be scheduled by a clock that has been read anew.
    ///
    /// The timer has not ended.
    #[inline]
    pub(crate) fn freshen(&mut self, id: TimerId) {
        // It stays in the slot of its old deadline, which may be early enough for the new one.
        let fresh = &mut self.timers.live_mut(id).fresh;
        if std::mem::replace(fresh, Fresh::Yes) == Fresh::No {
            self.fresh.push_back(id);
        }
    }

    /// Whether [`pop_fresh`](Self::pop_fresh) is going to return the timer.
    pub(crate) fn is_fresh(&self, id: TimerId) -> bool {
        let timer = self.timers.get(id);
        timer.is_some_and(|timer| timer.fresh == Fresh::Yes)
    }

    /// One of the fresh timers, the first made so first; it is fresh no more.
    ///
    /// To be asked until there is none before [`pop_expired`](Self::pop_expired).
    pub(crate) fn pop_fresh(&mut self) -> Option<TimerId> {
        while let Some(id) = self.fresh.pop_front() {
            let Some(timer) = self.timers.get_mut(id) else {
                continue;
            };
            if std::mem::replace(&mut timer.fresh, Fresh::No) == Fresh::Yes {
                return Some(id);
            }
        }
        if self.fresh.capacity() > KEPT_FRESH {
            self.fresh = VecDeque::new();
        }
        None
    }

    /// Takes back the deadline, if the timer has one.
    ///
    /// # Panics
    ///
    /// If the timer has ended.
    pub(crate) fn cancel(&mut self, id: TimerId) {
        let timer = &mut self.timers[id];
        timer.not_fresh();
        let place = std::mem::replace(&mut timer.place, Place::Idle);
        self.leave(id, place);
    }

    /// Takes a timer out of the list it is in.
    #[inline]
    fn leave(&mut self, id: TimerId, place: Place) {
        match place {
            Place::Idle => {}
            Place::Due => self.due.remove(&mut self.timers, id),
            Place::Slot { level, slot } => {
                let list = &mut self.slots[usize::from(level)][usize::from(slot)];
                list.remove(&mut self.timers, id);
                if list.is_empty() {
                    self.occupied[usize::from(level)] &= !(1 << slot);
                }
            }
        }
    }

    /// Whether the time of a timer that has not ended has come: it may be due and not yet popped.
    #[inline]
    pub(crate) fn is_due(&self, id: TimerId, now: Timestamp) -> bool {
        let timer = self.timers.live(id);
        timer.deadline <= now && timer.place != Place::Idle && timer.fresh != Fresh::Yes
    }

    /// When to call [`pop_expired`](Self::pop_expired) next: not later than the first timer can
    /// expire, and after the last call unless a timer is overdue. `None` if none is scheduled.
    ///
    /// It may come earlier than the first deadline, when timers only move to another slot; that
    /// happens at most seven times for a timer, and as often again if its deadline was put off.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        if !self.due.is_empty() || !self.fresh.is_empty() {
            return Some(start_of(self.current));
        }
        self.next_slot().map(|(_, _, tick)| start_of(tick))
    }

    /// Unschedules and returns one timer that has expired at `now`; the caller asks again until
    /// there is none. Timers of the same tick come in the order in which they were scheduled,
    /// unless their deadlines were put off.
    pub(crate) fn pop_expired(&mut self, now: Timestamp) -> Option<TimerId> {
        let now = tick_reached(now);
        loop {
            if let Some(id) = self.due.front(&self.timers) {
                self.due.remove(&mut self.timers, id);
                self.timers[id].place = Place::Idle;
                return Some(id);
            }
            match self.next_slot() {
                Some((level, slot, tick)) if tick <= now => {
                    self.current = tick;
                    self.empty_slot(level, slot);
                }
                _ => {
                    self.current = self.current.max(now);
                    return None;
                }
            }
        }
    }

    /// The first occupied slot and its first tick. Lower levels come first: their timers share
    /// all higher digits with the current tick, and those of higher levels do not.
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        let (level, slots) = (0..).zip(&self.occupied).find(|(_, slots)| **slots != 0)?;
        let slot = slots.trailing_zeros();
        let shift = DIGIT_BITS * level;
        let higher_digits = self.current >> (shift + DIGIT_BITS) << DIGIT_BITS;
        Some((
            level as usize,
            slot as usize,
            (higher_digits | u64::from(slot)) << shift,
        ))
    }

    /// Moves the timers of a slot that time has reached to where they belong now.
    fn empty_slot(&mut self, level: usize, slot: usize) {
        self.occupied[level] &= !(1 << slot);
        let mut list = std::mem::replace(&mut self.slots[level][slot], List::new());
        while let Some(id) = list.front(&self.timers) {
            list.remove(&mut self.timers, id);
            let tick = tick_after(self.timers.live(id).deadline);
            self.place(id, tick);
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "levels and slots are below 64"
    )]
    #[inline]
    fn place(&mut self, id: TimerId, tick: u64) {
        let timer = self.timers.live_mut(id);
        timer.placed_for = tick;
        if tick <= self.current {
            timer.place = Place::Due;
            self.due.push_back(&mut self.timers, id);
            return;
        }
        let highest_bit = u64::BITS - 1 - (tick ^ self.current).leading_zeros();
        let level = highest_bit / DIGIT_BITS;
        let slot = (tick >> (level * DIGIT_BITS)) % (1 << DIGIT_BITS);
        timer.place = Place::Slot {
            level: level as u8,
            slot: slot as u8,
        };
        self.occupied[level as usize] |= 1 << slot;
        self.slots[level as usize][slot as usize].push_back(&mut self.timers, id);
    }
}

impl<T> Timer<T> {
    fn not_fresh(&mut self) {
        if self.fresh == Fresh::Yes {
            self.fresh = Fresh::Listed;
        }
    }
}

/// The first tick that is not before `deadline`.
fn tick_after(deadline: Timestamp) -> u64 {
    deadline.as_nanos().div_ceil(1 << TICK_BITS)
}

/// The last tick that is not after `now`. The end of time counts as a tick, so that a deadline in
/// the last, cut-off tick can expire.
fn tick_reached(now: Timestamp) -> u64 {
    if now == Timestamp::MAX {
        LAST_TICK
    } else {
        now.as_nanos() >> TICK_BITS
    }
}

fn start_of(tick: u64) -> Timestamp {
    if tick >= LAST_TICK {
        Timestamp::MAX
    } else {
        Timestamp::from_nanos(tick << TICK_BITS)
    }
}

#[cfg(any(test, feature = "simulation"))]
impl<T> Wheel<T> {
    /// How many timers there are, scheduled or not.
    pub(crate) fn len(&self) -> usize {
        self.timers.len()
    }

    /// When the timer is to expire; `None` if it is not scheduled, is fresh, or has ended.
    pub(crate) fn deadline(&self, id: TimerId) -> Option<Timestamp> {
        let timer = self.timers.get(id)?;
        (timer.place != Place::Idle && timer.fresh != Fresh::Yes).then_some(timer.deadline)
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.timers.capacity() + self.fresh.capacity()
    }
}
