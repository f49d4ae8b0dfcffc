//! What the state asks for, made ready and carried out.
//!
//! Effects name things by ids, and an id may be stale already and given out anew. So they are
//! looked up at once, before any code of a user can run and change what an id stands for; what
//! comes out needs no look-up any more.

use std::panic::Location;
use std::task::Waker;

use super::shared::Shared;
use super::slot::{Abort, Open, Slot, Whereabouts};
use crate::CloseReason;
use crate::connector::Connector;
use crate::error::AcquireError;
use crate::fence::wake;
use crate::net::Readiness;
use crate::state::{ConnId, Effect, Rejection};

/// An effect that is ready to be carried out.
pub(super) enum Action<C: Connector> {
    Connect(ConnId, C::Key, Abort),
    Abort(Abort),
    AbortProbe(Abort, Readiness),
    /// Of a connection that somebody else drops. It may be the last to keep the socket, and with it
    /// a user's waker.
    Unwatch(Readiness),
    Wake(Waker),
    Close(ConnId, CloseReason, C::Connection, Readiness),
    /// Shut the socket down under its holder.
    ForceClose(Readiness, CloseReason, &'static Location<'static>),
    Probe(ConnId, C::Connection, Abort),
    ReportLeak(ConnId, &'static Location<'static>),
    AskPermit,
    ReturnPermit,
    WithdrawPermit,
    /// A key's copies, for their destructors.
    Forget(Option<C::Key>, Option<C::Key>),
}

impl<C: Connector> Shared<C> {
    /// Looks up what an effect means. Runs no code of a user but that of keys.
    pub(super) fn make_ready(&self, effect: Effect, actions: &mut Vec<Action<C>>) {
        let action = match effect {
            Effect::Connect(conn, key) => self.names.borrow().get(key).cloned().map(|key| {
                let abort = Abort::default();
                self.put_slot(conn, Slot::Connecting(abort.clone()));
                Action::Connect(conn, key, abort)
            }),
            Effect::AbortConnect(conn, _) => match self.take_slot(conn) {
                Some(Slot::Connecting(abort)) => Some(Action::Abort(abort)),
                _ => None,
            },
            Effect::Probe(conn) => self.take_for_probe(conn),
            Effect::ReportLeak(conn) => self
                .acquired_at(conn)
                .map(|acquired_at| Action::ReportLeak(conn, acquired_at)),
            Effect::AskPermit => Some(Action::AskPermit),
            Effect::ReturnPermit => Some(Action::ReturnPermit),
            Effect::WithdrawPermit => Some(Action::WithdrawPermit),
            Effect::Deliver(waiter, conn) => {
                let waker = self.answer(waiter).give(Ok(conn));
                waker.map(Action::Wake)
            }
            Effect::Reject(waiter, why) => self.reject(waiter, why.into()).map(Action::Wake),
            Effect::Close(conn, reason) | Effect::ForceClose(conn, reason) => {
                self.ready_to_close(conn, reason)
            }
            Effect::ForgetKey(key) => {
                let name = self.names.borrow_mut().remove(key);
                let entry = name.as_ref().and_then(|name| self.forget_key(name));
                Some(Action::Forget(name, entry))
            }
            Effect::Drained => {
                let wakers = self.take_drained();
                actions.extend(wakers.into_iter().map(Action::Wake));
                None
            }
        };
        actions.extend(action);
    }

    fn ready_to_close(&self, conn: ConnId, reason: CloseReason) -> Option<Action<C>> {
        let Some(Slot::Open(Open { readiness, at })) = self.take_slot(conn) else {
            return None;
        };
        match at {
            Whereabouts::Here(connection) => {
                Some(Action::Close(conn, reason, connection, readiness))
            }
            // Its task has the connection, and drops it.
            Whereabouts::Probed(abort) => Some(Action::AbortProbe(abort, readiness)),
            Whereabouts::Held(acquired_at) => {
                Some(Action::ForceClose(readiness, reason, acquired_at))
            }
            // Whoever has it out for a check drops it.
            Whereabouts::Checked => Some(Action::Unwatch(readiness)),
        }
    }

    /// Carries out actions, in order. No borrow is held: a user's code may do anything.
    pub(super) fn act(&self, mut actions: Vec<Action<C>>) {
        if actions.capacity() == 0 {
            return;
        }
        for action in actions.drain(..) {
            match action {
                Action::Connect(conn, key, abort) => self.start_connect(conn, key, abort),
                Action::Abort(abort) => abort.fire(),
                Action::AbortProbe(abort, readiness) => {
                    readiness.unwatch();
                    abort.fire();
                }
                Action::Unwatch(readiness) => readiness.unwatch(),
                Action::Wake(waker) => wake(waker),
                Action::Close(conn, reason, connection, readiness) => {
                    tracing::debug!(?conn, %reason, "closed");
                    readiness.unwatch();
                    drop(readiness);
                    self.fence_drop(connection);
                }
                Action::ForceClose(readiness, reason, acquired_at) => {
                    tracing::warn!(%reason, %acquired_at, "force-closed while acquired");
                    readiness.unwatch();
                    // What arrived before a reset can still be read; the socket needs no shutting
                    // down.
                    if reason != CloseReason::Reset {
                        readiness.force_close(reason, acquired_at);
                    }
                }
                Action::Probe(conn, connection, abort) => self.start_probe(conn, connection, abort),
                Action::ReportLeak(conn, acquired_at) => {
                    tracing::warn!(?conn, %acquired_at, "held for half the hold timeout");
                }
                Action::AskPermit => self.ask_permit(),
                Action::ReturnPermit => self.return_permit(),
                Action::WithdrawPermit => self.withdraw_permit(),
                Action::Forget(name, entry) => self.fence_drop((name, entry)),
            }
        }
        self.keep_room(actions);
    }
}

impl<E> From<Rejection> for AcquireError<E> {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::AcquireTimeout => Self::AcquireTimeout,
            Rejection::ConnectTimeout => Self::ConnectTimeout,
            Rejection::ClosedUnused(reason) => Self::ClosedUnused(reason),
            Rejection::QueueFull { pending } => Self::QueueFull { pending },
            Rejection::Draining => Self::Draining,
        }
    }
}
