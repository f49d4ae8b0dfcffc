//! Open loop: requests that start as the clock says, and wait for a connection.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::iter::Peekable;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// When requests are to start, told apart by threads that take turns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    pub(super) from: Instant,
    /// How many start per second, over all threads.
    pub(super) rate: u32,
    /// The number of the thread, and how many there are.
    pub(super) thread: u64,
    pub(super) threads: u64,
}

impl Schedule {
    /// The moments of this thread, in order: as many as there may be of `count` in all.
    pub(super) fn starts(self, count: Option<u64>) -> impl Iterator<Item = Instant> {
        let step = usize::try_from(self.threads).unwrap_or(usize::MAX).max(1);
        let numbers = (self.thread..count.unwrap_or(u64::MAX)).step_by(step);
        numbers.map(move |number| self.from + self.offset(number))
    }

    /// From the number, so that nothing adds up that was rounded.
    fn offset(self, number: u64) -> Duration {
        let rate = u64::from(self.rate.max(1));
        let nanos = number % rate * 1_000_000_000 / rate;
        Duration::from_secs(number / rate) + Duration::from_nanos(nanos)
    }
}

type Starts = Box<dyn Iterator<Item = Instant>>;

/// Requests that are to be sent, each with the moment at which it is meant to start.
pub(super) struct Arrivals {
    /// Those whose time has not come, or was not seen yet.
    due: RefCell<Peekable<Starts>>,
    waiting: RefCell<VecDeque<Instant>>,
    /// More than that do not wait.
    most: usize,
    /// Connections that have nothing to do.
    idle: RefCell<Vec<Waker>>,
    /// How many those are, the woken ones among them that have not looked yet.
    takers: Cell<usize>,
    closed: Cell<bool>,
}

impl Arrivals {
    /// They are meant to start at `starts`, in this order. At most `most` of them wait, while
    /// `connections` take them.
    pub(super) fn new(
        starts: impl Iterator<Item = Instant> + 'static,
        most: usize,
        connections: usize,
    ) -> Self {
        let starts: Starts = Box::new(starts);
        Self {
            due: RefCell::new(starts.peekable()),
            waiting: RefCell::default(),
            most,
            idle: RefCell::new(Vec::with_capacity(connections)),
            takers: Cell::new(0),
            closed: Cell::new(false),
        }
    }

    /// When the next one is meant to start that has not been let in; `None` if there is none.
    pub(super) fn next_start(&self) -> Option<Instant> {
        self.due.borrow_mut().peek().copied()
    }

    /// Lets in what is meant to start until `now`. Of what is dropped, as too many wait already,
    /// `dropped` gets the moments.
    pub(super) fn admit(&self, now: Instant, mut dropped: impl FnMut(Instant)) {
        let next = || self.due.borrow_mut().next_if(|start| *start <= now);
        while let Some(start) = next() {
            if !self.push(start) {
                dropped(start);
            }
        }
    }

    /// Puts one in; `false` if too many wait already.
    fn push(&self, start: Instant) -> bool {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() >= self.takers.get() + self.most {
            return false;
        }
        waiting.push_back(start);
        drop(waiting);
        let idle = self.idle.borrow_mut().pop();
        if let Some(idle) = idle {
            idle.wake();
        }
        true
    }

    /// No more will come.
    pub(super) fn close(&self) {
        self.closed.set(true);
        for idle in self.idle.take() {
            idle.wake();
        }
    }

    /// The oldest that waits, once there is one; `None` when no more will come.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses none.
    pub(super) async fn next(&self) -> Option<Instant> {
        let taker = Taker::new(&self.takers);
        let next = poll_fn(|cx| self.poll_next(cx)).await;
        drop(taker);
        next
    }

    fn poll_next(&self, cx: &Context<'_>) -> Poll<Option<Instant>> {
        let next = self.waiting.borrow_mut().pop_front();
        if next.is_some() || self.closed.get() {
            return Poll::Ready(next);
        }
        self.idle.borrow_mut().push(cx.waker().clone());
        Poll::Pending
    }

    /// Takes all that wait.
    pub(super) fn take_waiting(&self) -> impl Iterator<Item = Instant> {
        self.waiting.take().into_iter()
    }
}

impl fmt::Debug for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arrivals")
            .field("waiting", &self.waiting.borrow().len())
            .field("most", &self.most)
            .field("takers", &self.takers)
            .finish_non_exhaustive()
    }
}

/// Somebody who waits for an arrival.
struct Taker<'c>(&'c Cell<usize>);

impl<'c> Taker<'c> {
    fn new(takers: &'c Cell<usize>) -> Self {
        takers.set(takers.get() + 1);
        Self(takers)
    }
}

impl Drop for Taker<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::{block_on, poll_once};

    fn schedule(rate: u32, thread: u64, threads: u64) -> Schedule {
        Schedule {
            from: Instant::now(),
            rate,
            thread,
            threads,
        }
    }

    #[test]
    fn threads_take_turns_and_together_keep_the_rate() {
        let (one, mut other) = (schedule(3, 0, 2), schedule(3, 1, 2));
        other.from = one.from;
        let mut starts: Vec<_> = one.starts(Some(7)).chain(other.starts(Some(7))).collect();
        starts.sort();
        let offsets: Vec<_> = starts.iter().map(|start| *start - one.from).collect();
        let expected = [0, 333_333_333, 666_666_666];
        assert_eq!(offsets.len(), 7);
        for (number, offset) in offsets.iter().enumerate() {
            let whole = Duration::from_secs(u64::try_from(number / 3).unwrap());
            assert_eq!(*offset, whole + Duration::from_nanos(expected[number % 3]));
        }
        // The last moment of the longest run at the highest rate is still exact.
        let last = schedule(1_000_000, 0, 1).offset(86_400_000_000 - 1);
        assert_eq!(last, Duration::from_secs(86_400) - Duration::from_micros(1));
    }

    fn arrivals(most: usize) -> Arrivals {
        Arrivals::new(std::iter::empty(), most, 1)
    }

    #[test]
    fn what_is_due_is_let_in_and_what_finds_no_room_is_told() {
        let one = schedule(1000, 0, 1);
        let arrivals = Arrivals::new(one.starts(Some(5)), 2, 1);
        let after = |ms| one.from + Duration::from_millis(ms);
        let mut dropped = Vec::new();
        arrivals.admit(after(0), |start| dropped.push(start));
        assert_eq!(arrivals.next_start(), Some(after(1)));
        arrivals.admit(after(3), |start| dropped.push(start));
        assert_eq!(dropped, [after(2), after(3)]);
        let waiting: Vec<_> = arrivals.take_waiting().collect();
        assert_eq!(waiting, [after(0), after(1)]);
        arrivals.admit(after(9), |start| dropped.push(start));
        assert_eq!((arrivals.next_start(), dropped.len()), (None, 2));
        assert_eq!(arrivals.take_waiting().count(), 1);
    }

    #[test]
    fn no_more_wait_than_may_beside_those_that_idle_connections_take() {
        let (arrivals, start) = (arrivals(2), Instant::now());
        block_on(async {
            {
                let mut taker = std::pin::pin!(arrivals.next());
                assert_eq!(poll_once(taker.as_mut()).await, None);
                assert!(arrivals.push(start) && arrivals.push(start) && arrivals.push(start));
                assert!(!arrivals.push(start));
                assert_eq!(taker.await, Some(start));
            }
            // Two are left, and nobody takes them.
            assert!(!arrivals.push(start));
            assert_eq!(arrivals.next().await, Some(start));
            assert!(arrivals.push(start));
            assert_eq!(arrivals.take_waiting().count(), 2);
        });
    }

    #[test]
    fn taker_that_is_dropped_leaves_its_place() {
        let arrivals = arrivals(0);
        block_on(async {
            assert_eq!(poll_once(arrivals.next()).await, None);
            assert_eq!(arrivals.takers.get(), 0);
            assert!(!arrivals.push(Instant::now()));
        });
    }

    #[test]
    fn takers_end_with_the_last_arrival() {
        let arrivals = arrivals(1);
        assert!(arrivals.push(Instant::now()));
        arrivals.close();
        block_on(async {
            assert!(arrivals.next().await.is_some());
            assert_eq!(arrivals.next().await, None);
        });
    }
}
