//! From idle to a guard and back.
//!
//! A connection is looked at on both ways: nothing that has come in while it was idle may reach its
//! next holder, and nothing that its holder has left unread may become idle.

use std::panic::Location;
use std::rc::Rc;

use super::guard::Pooled;
use super::shared::Shared;
use super::slot::{Open, Slot, Whereabouts};
use crate::CloseReason;
use crate::connector::{Connection, Connector};
use crate::net::{SocketId, WatchMode};
use crate::state::{ConnId, Disposition, KeyId};

impl<C: Connector> Shared<C> {
    /// Takes the idle connection of a key that would be reused next. Those that are no longer fit
    /// are closed.
    #[inline]
    pub(super) fn acquire_idle(
        self: &Rc<Self>,
        id: KeyId,
        acquired_at: &'static Location<'static>,
    ) -> Option<Pooled<C>> {
        let now = self.core.now();
        let mut state = self.state.borrow_mut();
        let candidate = state.idle_candidate(now, id)?;
        let (conn, reused) = (candidate.conn(), candidate.is_reused());
        let mut conns = self.conns.borrow_mut();
        let open = conns.get_mut(conn).and_then(Slot::open_mut);
        let quiet = open.filter(|open| open.readiness.is_quiet());
        let Some(connection) = quiet.and_then(|open| open.hand_out(acquired_at)) else {
            drop(conns);
            drop(state);
            return self.acquire_idle_checked(id, acquired_at);
        };
        drop(conns);
        candidate.acquire();
        let pooled = Pooled::new(Rc::clone(self), connection, conn, reused);
        self.finish(state);
        Some(pooled)
    }

    /// As [`acquire_idle`](Self::acquire_idle), for when something has come in.
    #[cold]
    fn acquire_idle_checked(
        self: &Rc<Self>,
        id: KeyId,
        acquired_at: &'static Location<'static>,
    ) -> Option<Pooled<C>> {
        loop {
            let candidate = self.drive(|state, now| {
                let candidate = state.idle_candidate(now, id)?;
                Some((candidate.conn(), candidate.is_reused()))
            });
            let (conn, reused) = candidate?;
            if let Err(reason) = self.fitness(conn) {
                self.drive(|state, now| state.force_close(now, conn, reason));
            } else if self.drive(|state, now| state.acquire_idle(now, conn)) {
                return self.hold(conn, reused, acquired_at);
            }
        }
    }

    /// Whether a connection that is here may be handed out (invariant 9). Only the flags are read,
    /// unless they say that something has come in: that may be the connection's own business, or
    /// what a read to the last byte has left behind.
    pub(super) fn fitness(&self, conn: ConnId) -> Result<(), CloseReason> {
        let mut conns = self.conns.borrow_mut();
        let Some(open) = conns.get_mut(conn).and_then(Slot::open_mut) else {
            return Ok(());
        };
        match open.at {
            Whereabouts::Here(_) => {}
            // It cannot be waited for: whoever asks is called by the check.
            Whereabouts::Checked => return Err(CloseReason::StrayBytes),
            Whereabouts::Probed(_) | Whereabouts::Held(_) => return Ok(()),
        }
        if let Some(verdict) = open.readiness.flags() {
            return verdict;
        }
        let taken = open.take(Whereabouts::Checked);
        drop(conns);
        taken.map_or(Ok(()), |connection| self.check_here(conn, connection))
    }

    /// Looks at a connection whose watch has just begun: the watch tells changes only, and what came
    /// before it is asked for here.
    pub(super) fn look_once(&self, conn: ConnId) {
        if let Err(reason) = self.fitness(conn) {
            self.drive(|state, now| state.force_close(now, conn, reason));
        }
    }

    /// Checks a connection that was taken out of its slot for it, and puts it back unless the
    /// check has made the pool close it.
    fn check_here(&self, conn: ConnId, mut connection: C::Connection) -> Result<(), CloseReason> {
        let tasks = self.core.tasks();
        let verdict = tasks.fence("a connection's check", || connection.check());
        let mut conns = self.conns.borrow_mut();
        if let Some(open) = conns.get_mut(conn).and_then(Slot::open_mut)
            && matches!(open.at, Whereabouts::Checked)
        {
            open.at = Whereabouts::Here(connection);
            return verdict.unwrap_or(Err(CloseReason::ExchangeFailed));
        }
        drop(conns);
        self.fence_drop(connection);
        Ok(())
    }

    /// Makes the guard of a connection that the state has just given out.
    pub(super) fn hold(
        self: &Rc<Self>,
        conn: ConnId,
        reused: bool,
        acquired_at: &'static Location<'static>,
    ) -> Option<Pooled<C>> {
        let mut conns = self.conns.borrow_mut();
        let connection = conns.get_mut(conn)?.open_mut()?.hand_out(acquired_at)?;
        drop(conns);
        Some(Pooled::new(Rc::clone(self), connection, conn, reused))
    }

    /// A guard gives its connection back, for reuse if `reason` is none.
    pub(super) fn release(
        &self,
        conn: ConnId,
        mut connection: C::Connection,
        reason: Option<CloseReason>,
    ) {
        let Some(socket) = self.held_socket(conn) else {
            // Force-closed in the meantime: the state has counted it out.
            self.fence_drop(connection);
            return;
        };
        let verdict = match reason {
            None => self.check_returned(conn, socket, &mut connection),
            Some(reason) => Err(reason),
        };
        let (connection, reason) = match verdict {
            Ok(()) => match self.put_back(conn, connection, Open::is_held) {
                Ok(()) => {
                    return self.drive(|state, now| state.release(now, conn, Disposition::Reuse));
                }
                // Its check has made the pool force-close it.
                Err(connection) => (connection, CloseReason::Abandoned),
            },
            Err(reason) => (connection, reason),
        };
        let slot = self.take_slot(conn);
        drop(slot);
        self.fence_drop(connection);
        self.drive(|state, now| state.release(now, conn, Disposition::Close(reason)));
    }

    #[inline]
    fn held_socket(&self, conn: ConnId) -> Option<SocketId> {
        let conns = self.conns.borrow();
        let open = conns.get(conn)?.open()?;
        open.is_held().then(|| open.readiness.socket())
    }

    /// Asks a connection that is given back whether it is fit; one that panics is not. It has to be
    /// the one that was given out: a guard gives `&mut` to it, and what was put in its place the
    /// pool has never watched.
    #[inline]
    fn check_returned(
        &self,
        conn: ConnId,
        ours: SocketId,
        connection: &mut C::Connection,
    ) -> Result<(), CloseReason> {
        let verdict = self.core.tasks().fence("a connection's check", || {
            (connection.readiness().socket() == ours).then(|| connection.check())
        });
        match verdict {
            Some(Some(verdict)) => verdict,
            Some(None) => {
                tracing::warn!(?conn, "another connection was given back in its place");
                Err(CloseReason::ExchangeFailed)
            }
            None => Err(CloseReason::ExchangeFailed),
        }
    }

    /// Puts a connection back into its slot, where it still has to be expected.
    #[inline]
    pub(super) fn put_back(
        &self,
        conn: ConnId,
        connection: C::Connection,
        is_expected: impl FnOnce(&Open<C::Connection>) -> bool,
    ) -> Result<(), C::Connection> {
        let mut conns = self.conns.borrow_mut();
        match conns.get_mut(conn).and_then(Slot::open_mut) {
            Some(open) if is_expected(open) => {
                // What stood there is dropped under the borrow, so it may be no user's value: a probe's
                // task has its own half of the `Abort`, and with it the waker.
                debug_assert!(!open.is_here(), "a user's value would be dropped");
                open.at = Whereabouts::Here(connection);
                let waiters = open.readiness.forget_waiters();
                open.readiness.set_watch(WatchMode::Any);
                drop(conns);
                drop(waiters);
                Ok(())
            }
            _ => Err(connection),
        }
    }

    /// A guard's connection leaves the pool for good, open.
    pub(super) fn detach(&self, conn: ConnId) {
        if let Some(Slot::Open(open)) = self.take_slot(conn) {
            open.readiness.unwatch();
        }
        let disposition = Disposition::Close(CloseReason::Detached);
        self.drive(|state, now| state.release(now, conn, disposition));
    }
}
