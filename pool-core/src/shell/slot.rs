//! What the shell keeps beside the ids of the state.

use std::cell::Cell;
use std::future::poll_fn;
use std::panic::Location;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::CloseReason;
use crate::error::AcquireError;
use crate::fence::wake;
use crate::net::Readiness;
use crate::state::ConnId;

/// What stands beside a connection's id.
pub(super) enum Slot<T> {
    Connecting(Abort),
    /// Idle, or delivered to a waiter that has not looked yet.
    Here {
        connection: T,
        readiness: Readiness,
    },
    /// On the stack of [`Shared::readiness_changed`](super::shared::Shared), whose check by the user
    /// may call the pool.
    Checked,
    /// Idle, in the hands of a probe.
    Probed {
        readiness: Readiness,
        abort: Abort,
    },
    /// A guard has it.
    Held {
        readiness: Readiness,
        acquired_at: &'static Location<'static>,
    },
}

impl<T> Slot<T> {
    /// What the flags say of a connection that is here; none: that it has to be asked.
    pub(super) fn flags(&self) -> Option<Result<(), CloseReason>> {
        match self {
            Self::Here { readiness, .. } => readiness.flags(),
            _ => Some(Ok(())),
        }
    }

    /// Takes out a connection that is here, for its check.
    pub(super) fn begin_check(&mut self) -> Option<(T, Readiness)> {
        if !matches!(self, Self::Here { .. }) {
            return None;
        }
        let Self::Here {
            connection,
            readiness,
        } = std::mem::replace(self, Self::Checked)
        else {
            unreachable!("just seen to be here");
        };
        Some((connection, readiness))
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
