//! What the shell keeps beside the ids of the state.

use std::cell::Cell;
use std::future::poll_fn;
use std::panic::Location;
use std::rc::Rc;
use std::task::{Poll, Waker};

use crate::error::AcquireError;
use crate::net::Readiness;
use crate::state::ConnId;
use crate::wake::wake;

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
    Checked(Readiness),
    /// A guard has it.
    Held {
        readiness: Readiness,
        acquired_at: &'static Location<'static>,
    },
}

impl<T> Slot<T> {
    /// Takes out a connection that is here, for its check.
    pub(super) fn begin_check(&mut self) -> Option<(T, Readiness)> {
        let Self::Here { readiness, .. } = self else {
            return None;
        };
        let checked = Self::Checked(readiness.clone());
        match std::mem::replace(self, checked) {
            Self::Here {
                connection,
                readiness,
            } => Some((connection, readiness)),
            _ => unreachable!("just seen to be here"),
        }
    }
}

/// Stops a connect: its task drops the connector's future when it is woken.
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

/// What a waiter finds when it looks.
pub(super) enum Mail<E> {
    Nothing(Option<Waker>),
    Connection(ConnId),
    Failure(AcquireError<E>),
}
