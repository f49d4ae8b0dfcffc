//! What the shell keeps beside the ids of the state.

use std::cell::Cell;
use std::future::poll_fn;
use std::panic::Location;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::error::AcquireError;
use crate::fence::wake;
use crate::net::{Readiness, WatchMode};
use crate::state::ConnId;

/// What stands beside a connection's id.
pub(super) enum Slot<T> {
    Connecting(Abort),
    Open(Open<T>),
}

/// A connection from the end of its connect on.
pub(super) struct Open<T> {
    pub(super) readiness: Readiness,
    pub(super) at: Whereabouts<T>,
}

/// Where an open connection is.
pub(super) enum Whereabouts<T> {
    /// Idle, or delivered to a waiter that has not looked yet.
    Here(T),
    /// Idle or delivered, and on the stack of [`Shared::check_here`](super::shared::Shared), while the
    /// user's check runs, which may call the pool.
    Checked,
    /// Idle, in the hands of a probe.
    Probed(Abort),
    /// A guard has it, which was acquired there.
    Held(&'static Location<'static>),
}

impl<T> Slot<T> {
    /// The connection, if it is open.
    #[inline]
    pub(super) fn open(&self) -> Option<&Open<T>> {
        match self {
            Self::Open(open) => Some(open),
            Self::Connecting(_) => None,
        }
    }

    /// The connection, if it is open.
    #[inline]
    pub(super) fn open_mut(&mut self) -> Option<&mut Open<T>> {
        match self {
            Self::Open(open) => Some(open),
            Self::Connecting(_) => None,
        }
    }
}

impl<T> Open<T> {
    #[inline]
    pub(super) fn is_here(&self) -> bool {
        matches!(self.at, Whereabouts::Here(_))
    }

    #[inline]
    pub(super) fn is_held(&self) -> bool {
        matches!(self.at, Whereabouts::Held(_))
    }

    /// Takes a connection that is here out of its slot, for a guard.
    #[inline]
    pub(super) fn hand_out(&mut self, acquired_at: &'static Location<'static>) -> Option<T> {
        let connection = self.take(Whereabouts::Held(acquired_at))?;
        self.readiness.set_watch(WatchMode::Death);
        Some(connection)
    }

    /// Takes a connection that is here out of its slot, to be there instead.
    #[inline]
    pub(super) fn take(&mut self, to: Whereabouts<T>) -> Option<T> {
        if !self.is_here() {
            return None;
        }
        match std::mem::replace(&mut self.at, to) {
            Whereabouts::Here(connection) => Some(connection),
            _ => unreachable!("just seen to be here"),
        }
    }
}

/// Stops a connect or a probe: its task drops the connector's future when it is woken.
#[derive(Clone, Default)]
pub(super) struct Abort(Rc<(Cell<bool>, Cell<Option<Waker>>)>);

impl Abort {
    pub(super) fn fire(&self) {
        self.0.0.set(true);
        if let Some(waker) = self.0.1.take() {
            wake(waker);
        }
    }

    pub(super) async fn fired(&self) {
        poll_fn(|cx| {
            if self.0.0.get() {
                return Poll::Ready(());
            }
            let old = self.0.1.replace(Some(cx.waker().clone()));
            drop(old);
            Poll::Pending
        })
        .await;
    }
}

/// What a waiter is told, kept by its acquire and not by its id: the state frees the id of a waiter
/// that it rejects, and the next one may get it before the first has looked.
pub(super) struct Answer<E> {
    given: Cell<Option<Result<ConnId, AcquireError<E>>>>,
    waker: Cell<Option<Waker>>,
}

impl<E> Default for Answer<E> {
    fn default() -> Self {
        Self {
            given: Cell::new(None),
            waker: Cell::new(None),
        }
    }
}

impl<E> Answer<E> {
    /// Gives the answer, and returns whom to wake.
    pub(super) fn give(&self, answer: Result<ConnId, AcquireError<E>>) -> Option<Waker> {
        self.given.set(Some(answer));
        self.waker.take()
    }

    /// Takes the answer, or leaves a waker for when there is one.
    pub(super) fn take(&self, cx: &Context<'_>) -> Option<Result<ConnId, AcquireError<E>>> {
        let given = self.given.take();
        if given.is_none() {
            let old = self.waker.replace(Some(cx.waker().clone()));
            drop(old);
        }
        given
    }
}
