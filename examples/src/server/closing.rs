//! The end of a server: tells its connections, and waits for them.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Whether a server is closing, and who still has to leave. Cheap to clone; the clones are one.
#[derive(Clone, Debug, Default)]
pub struct Closing(Rc<State>);

#[derive(Debug, Default)]
struct State {
    begun: Cell<bool>,
    live: Cell<usize>,
    /// A place per member, for whom to wake when the closing begins.
    places: RefCell<Vec<Option<Waker>>>,
    free: RefCell<Vec<usize>>,
    waits_for_all: RefCell<Option<Waker>>,
}

impl Closing {
    /// Begins the closing and wakes the members that wait for it.
    pub fn begin(&self) {
        self.0.begun.set(true);
        let wakers: Vec<_> = {
            let mut places = self.0.places.borrow_mut();
            places.iter_mut().filter_map(Option::take).collect()
        };
        for waker in wakers {
            waker.wake();
        }
    }

    /// Adds a member, until it is dropped.
    #[must_use]
    pub fn enter(&self) -> Member {
        let state = Rc::clone(&self.0);
        state.live.set(state.live.get() + 1);
        let free = state.free.borrow_mut().pop();
        let place = free.unwrap_or_else(|| {
            let mut places = state.places.borrow_mut();
            places.push(None);
            places.len() - 1
        });
        Member { state, place }
    }

    /// Waits until the last member has left.
    pub async fn all_left(&self) {
        poll_fn(|cx| {
            if self.0.live.get() == 0 {
                return Poll::Ready(());
            }
            let old = self.0.waits_for_all.replace(Some(cx.waker().clone()));
            drop(old);
            Poll::Pending
        })
        .await;
    }
}

/// One connection of a server that may close.
#[derive(Debug)]
pub struct Member {
    state: Rc<State>,
    place: usize,
}

impl Member {
    /// Whether the closing has begun.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.state.begun.get()
    }

    /// Ready once the closing has begun.
    pub fn poll_begun(&self, cx: &Context<'_>) -> Poll<()> {
        if self.has_begun() {
            return Poll::Ready(());
        }
        let known = self.state.places.borrow()[self.place]
            .as_ref()
            .is_some_and(|waker| waker.will_wake(cx.waker()));
        if !known {
            self.put(Some(cx.waker().clone()));
        }
        Poll::Pending
    }

    fn put(&self, waker: Option<Waker>) {
        let old = std::mem::replace(&mut self.state.places.borrow_mut()[self.place], waker);
        drop(old);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.put(None);
        self.state.free.borrow_mut().push(self.place);
        let live = self.state.live.get() - 1;
        self.state.live.set(live);
        if live == 0
            && let Some(waker) = self.state.waits_for_all.take()
        {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    #[test]
    fn members_hear_of_the_closing_and_the_last_one_ends_the_wait() {
        let mut cx = Context::from_waker(Waker::noop());
        let closing = Closing::default();
        let members = [closing.enter(), closing.enter()];
        assert!(members[0].poll_begun(&cx).is_pending());
        closing.begin();
        assert!(members[0].poll_begun(&cx).is_ready() && members[1].has_begun());
        let mut all_left = pin!(closing.all_left());
        assert!(all_left.as_mut().poll(&mut cx).is_pending());
        drop(members);
        assert!(all_left.poll(&mut cx).is_ready());
    }

    #[test]
    fn places_are_used_again() {
        let closing = Closing::default();
        for _ in 0..10 {
            drop(closing.enter());
        }
        assert_eq!(closing.0.places.borrow().len(), 1);
    }
}
