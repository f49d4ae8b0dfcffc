//! What the shell keeps beside the ids of the state.

use std::cell::Cell;
use std::future::poll_fn;
use std::panic::Location;
use std::rc::Rc;
use std::task::{Poll, Waker};

use crate::error::AcquireError;
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
    /// A guard has it.
    Held {
        readiness: Readiness,
        acquired_at: &'static Location<'static>,
    },
}

/// Stops a connect: its task drops the connector's future when it is woken.
#[derive(Clone, Default)]
pub(super) struct Abort(Rc<(Cell<bool>, Cell<Option<Waker>>)>);

impl Abort {
    pub(super) fn fire(&self) {
        self.0.0.set(true);
        if let Some(waker) = self.0.1.take() {
            waker.wake();
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

/// What a waiter finds when it looks.
pub(super) enum Mail<E> {
    Nothing(Option<Waker>),
    Connection(ConnId),
    Failure(AcquireError<E>),
}
