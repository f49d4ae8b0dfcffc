//! A cap that several pools share, on several cores.
//!
//! While there are permits left, opening and closing a connection each change one atomic. Once all
//! are in use, whoever wants one queues behind a lock, the other members are asked for theirs
//! through their mailboxes, and a permit that is given up goes to the head of the queue without
//! ever being free.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use super::mailbox::Mailbox;
use super::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, MutexGuard};
use crate::ConfigError;

/// A cap on the connections of several pools together, whichever cores they are on.
///
/// Cheap to clone; all clones are the same cap. Idle connections count as much as acquired ones. A
/// pool that needs a connection while others use the cap up waits in a queue, in which each pool
/// stands once, and those that have an idle connection are asked to close one.
///
/// ```
/// use pool_core::SharedCap;
///
/// let cap = SharedCap::new(10_000)?;
/// assert_eq!((cap.max(), cap.in_use()), (10_000, 0));
/// # Ok::<(), pool_core::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct SharedCap {
    ledger: Arc<Ledger>,
}

impl SharedCap {
    /// A cap of so many connections, at least 1.
    ///
    /// # Errors
    ///
    /// [`ConfigError::OutOfRange`] for 0.
    pub fn new(max_connections: u32) -> Result<Self, ConfigError> {
        if max_connections == 0 {
            return Err(ConfigError::OutOfRange {
                field: "max_connections",
                given: max_connections.to_string(),
                expected: "at least 1".to_owned(),
            });
        }
        let ledger = Ledger {
            max: max_connections,
            count: AtomicU64::new(0),
            roster: Mutex::default(),
        };
        Ok(Self {
            ledger: Arc::new(ledger),
        })
    }

    /// How many connections there may be at most.
    #[must_use]
    pub fn max(&self) -> u32 {
        self.ledger.max
    }

    /// How many connections there are, or are being made, or are granted to a pool that has not
    /// started to connect yet. By the time the caller looks, others may have changed it.
    #[must_use]
    pub fn in_use(&self) -> u32 {
        in_use(self.ledger.count.load(Relaxed))
    }

    /// Makes a pool, on the core that owns `mailbox`, a member.
    pub(crate) fn join(&self, mailbox: &Arc<Mailbox>) -> Member {
        let seat = Arc::new(Seat {
            mailbox: Arc::clone(mailbox),
            granted: AtomicU32::new(0),
            holds: AtomicU32::new(0),
            asked: AtomicBool::new(false),
        });
        self.ledger.lock().seats.push(Arc::clone(&seat));
        Member {
            ledger: Arc::clone(&self.ledger),
            seat,
            held: Cell::new(0),
        }
    }
}

impl fmt::Debug for SharedCap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCap")
            .field("max", &self.max())
            .field("in_use", &self.in_use())
            .finish()
    }
}

/// One in the high half of [`Ledger::count`].
const ONE_WAITS: u64 = 1 << 32;

/// What the members share.
struct Ledger {
    max: u32,
    /// The permits in use in the low half, the length of the queue in the high half. The queue is
    /// empty unless all permits are in use, and only who holds the lock changes its length. So
    /// while anybody waits, only who holds the lock changes anything.
    ///
    /// Relaxed everywhere: every change is a compare-exchange or alike, which sees the latest
    /// value, and nothing but the value itself hangs on it.
    count: AtomicU64,
    roster: Mutex<Roster>,
}

#[derive(Default)]
struct Roster {
    seats: Vec<Arc<Seat>>,
    /// Those who want a permit, the oldest first; each at most once.
    queue: VecDeque<Arc<Seat>>,
}

/// What the others know of a member.
struct Seat {
    mailbox: Arc<Mailbox>,
    /// Permits that were transferred to it and that it has not collected. Only who holds the lock
    /// adds to it, and only while it is queued.
    granted: AtomicU32,
    /// Permits that it has. A hint to the others, who may see an old one.
    holds: AtomicU32,
    /// Somebody wants a permit of it.
    asked: AtomicBool,
}

impl Seat {
    /// Makes its core look at what it was granted and asked.
    ///
    /// A full mailbox is as good: its core looks after the jobs that are in it. A core that has
    /// ended has no use for it. Never called under the lock, as a push may drop jobs of users.
    fn nudge(&self) {
        let _ = self.mailbox.push(Box::new(|_| {}));
    }
}

impl Ledger {
    /// What a thread that panicked under the lock has left is whole: no step there can panic.
    fn lock(&self) -> MutexGuard<'_, Roster> {
        self.roster
            .lock()
            .unwrap_or_else(|poison| poison.into_inner())
    }

    fn take_free(&self) -> bool {
        let take = |count| (in_use(count) < self.max).then(|| count + 1);
        self.count.fetch_update(Relaxed, Relaxed, take).is_ok()
    }

    /// Takes a permit that has just become free, or queues and asks the others.
    fn take_or_queue(&self, seat: &Arc<Seat>) -> bool {
        let mut roster = self.lock();
        if roster.position(seat).is_some() {
            return false;
        }
        let free = |count| in_use(count) < self.max;
        let change = |count| Some(count + if free(count) { 1 } else { ONE_WAITS });
        let (Ok(before) | Err(before)) = self.count.fetch_update(Relaxed, Relaxed, change);
        if free(before) {
            return true;
        }
        roster.queue.push_back(Arc::clone(seat));
        // Of several who ask, the first sees to the nudge.
        let others = roster
            .seats
            .iter()
            .filter(|other| !Arc::ptr_eq(other, seat));
        let asked: Vec<_> = others
            .filter(|other| !other.asked.swap(true, AcqRel))
            .cloned()
            .collect();
        drop(roster);
        asked.iter().for_each(|other| other.nudge());
        false
    }

    fn give(&self) {
        let give = |count| (waiting(count) == 0).then(|| count - 1);
        if self.count.fetch_update(Relaxed, Relaxed, give).is_ok() {
            return;
        }
        let mut roster = self.lock();
        let Some(oldest) = roster.queue.pop_front() else {
            // They have withdrawn meanwhile.
            self.count.fetch_sub(1, Relaxed);
            return;
        };
        self.count.fetch_sub(ONE_WAITS, Relaxed);
        oldest.granted.fetch_add(1, AcqRel);
        if !roster.queue.is_empty() {
            // When they asked, it may have had nothing to give up yet.
            oldest.asked.store(true, Release);
        }
        drop(roster);
        oldest.nudge();
    }

    fn withdraw(&self, roster: &mut Roster, seat: &Arc<Seat>) {
        if let Some(place) = roster.position(seat) {
            roster.queue.remove(place);
            self.count.fetch_sub(ONE_WAITS, Relaxed);
        }
    }
}

impl Roster {
    fn position(&self, seat: &Arc<Seat>) -> Option<usize> {
        self.queue.iter().position(|other| Arc::ptr_eq(other, seat))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half")]
fn in_use(count: u64) -> u32 {
    count as u32
}

fn waiting(count: u64) -> u64 {
    count / ONE_WAITS
}

/// A pool's part in a cap. Dropping it gives back whatever it has.
///
/// Its owner has to look at [`collect`](Self::collect) and [`asked`](Self::asked) after each batch
/// of jobs from its core's mailbox: that is how it hears of a grant and of a request.
pub(crate) struct Member {
    ledger: Arc<Ledger>,
    seat: Arc<Seat>,
    /// Taken or collected, and not given back.
    held: Cell<u32>,
}

impl Member {
    /// Takes a permit if one is free; else stands in the queue for one, and asks the others to
    /// give one up. The grant comes by [`collect`](Self::collect).
    pub(crate) fn take(&self) -> bool {
        let taken = self.ledger.take_free() || self.ledger.take_or_queue(&self.seat);
        if taken {
            self.set_held(self.held.get() + 1);
        }
        taken
    }

    /// Gives a permit up: to whoever has waited longest, which may be this member, or to all.
    pub(crate) fn give(&self) {
        let held = self.held.get().checked_sub(1);
        debug_assert!(held.is_some(), "a permit was given back twice");
        if let Some(held) = held {
            self.set_held(held);
            self.ledger.give();
        }
    }

    /// Leaves the queue. A grant that was made before is still there to be collected.
    pub(crate) fn withdraw(&self) {
        self.ledger.withdraw(&mut self.ledger.lock(), &self.seat);
    }

    /// Whether another member waits for a permit.
    pub(crate) fn wanted(&self) -> bool {
        match waiting(self.ledger.count.load(Relaxed)) {
            0 => false,
            1 => self
                .ledger
                .lock()
                .queue
                .iter()
                .any(|other| !Arc::ptr_eq(other, &self.seat)),
            _ => true,
        }
    }

    /// Takes the permits that were granted since the last call, and says how many.
    pub(crate) fn collect(&self) -> u32 {
        // Not a load before it: whoever adds after this must see every job taken before this, so
        // that a mailbox found full is one that is looked after again.
        let granted = self.seat.granted.swap(0, AcqRel);
        self.set_held(self.held.get() + granted);
        granted
    }

    /// Whether somebody has asked for a permit since the last call. They may want several, or none
    /// any more: [`wanted`](Self::wanted) tells.
    pub(crate) fn asked(&self) -> bool {
        self.seat.asked.swap(false, AcqRel)
    }

    /// Whether another member waits for a permit that has none at all.
    pub(crate) fn needed(&self) -> bool {
        waiting(self.ledger.count.load(Relaxed)) > 0
            && self
                .ledger
                .lock()
                .queue
                .iter()
                .any(|other| !Arc::ptr_eq(other, &self.seat) && other.holds.load(Relaxed) == 0)
    }

    fn set_held(&self, held: u32) {
        self.held.set(held);
        self.seat.holds.store(held, Relaxed);
    }

    /// How many permits it has taken or collected, and not given back.
    #[cfg(test)]
    pub(crate) fn held(&self) -> u32 {
        self.held.get()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut roster = self.ledger.lock();
        self.ledger.withdraw(&mut roster, &self.seat);
        roster.seats.retain(|other| !Arc::ptr_eq(other, &self.seat));
        drop(roster);
        // It is not queued, so nobody grants it any more.
        self.collect();
        for _ in 0..self.held.get() {
            self.ledger.give();
        }
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member")
            .field("held", &self.held.get())
            .finish_non_exhaustive()
    }
}
