//! A socket, as the pool sees it: what is known of it, whether it may be used again, and its end
//! under somebody else's hands.

use std::fmt;
use std::io;
use std::panic::Location;
use std::rc::Rc;
use std::task::Waker;

use rustix::net::Shutdown;

use super::flags::Flag;
use super::source::{Failure, Source, WatchMode, WatchToken, wake};
use crate::CloseReason;

/// What the kernel last said of a socket: the pool's watch, its validity check and its hand on a
/// connection that somebody else holds.
///
/// A [`Connection`](crate::Connection) returns that of the socket it runs over. Cheap to clone;
/// every clone speaks of the same socket. The socket closes when its stream and all of these are
/// gone.
#[derive(Clone)]
pub struct Readiness(Rc<Source>);

impl Readiness {
    pub(super) fn new(source: Rc<Source>) -> Self {
        Self(source)
    }

    /// The peer will send no more: it has sent FIN or RST.
    #[must_use]
    pub fn is_peer_closed(&self) -> bool {
        self.0.flags.has(Flag::PeerClosed)
    }

    /// Whether a connection at a message boundary may be used again: the peer has neither closed
    /// it nor sent anything that nobody asked for.
    ///
    /// Costs no syscall, unless the last read filled its buffer to the last byte.
    ///
    /// # Errors
    ///
    /// [`CloseReason::Reset`], [`CloseReason::PeerClosed`] or [`CloseReason::StrayBytes`].
    #[inline]
    pub fn check_quiet(&self) -> Result<(), CloseReason> {
        self.0.check_quiet()
    }

    /// Whether the flags say that nothing has come in.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.0.flags.is_quiet()
    }

    /// What the flags say of a connection about to be handed out; none: something has come in, or
    /// the last read has filled its buffer, and the connection has to be asked.
    #[inline]
    pub(crate) fn flags(&self) -> Option<Result<(), CloseReason>> {
        self.0.flags.verdict()
    }

    /// Whose it is: as long as one of two is kept, they are of the same socket if these are equal.
    #[inline]
    pub(crate) fn socket(&self) -> SocketId {
        SocketId(Rc::as_ptr(&self.0))
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.0.flags.has(Flag::Dead)
    }

    pub(crate) fn watch(&self, mode: WatchMode, token: WatchToken) {
        self.0.watch.set(mode);
        self.0.watcher.set(Some(token));
    }

    /// Changes what its watcher hears of.
    #[inline]
    pub(crate) fn set_watch(&self, mode: WatchMode) {
        self.0.watch.set(mode);
    }

    /// Forgets who last waited on the socket. An idle connection must not hold its last user's
    /// waker: glommio counts the clones of a task's waker in an `i16`.
    #[inline]
    #[must_use = "a user's wakers, to be dropped when nothing is borrowed"]
    pub(crate) fn forget_waiters(&self) -> [Option<Waker>; 2] {
        [self.0.reader.take(), self.0.writer.take()]
    }

    pub(crate) fn unwatch(&self) {
        self.0.watch.set(WatchMode::Off);
        self.0.watcher.set(None);
    }

    /// Shuts the socket down under its holder, whose next read or write fails with `closed`.
    pub(crate) fn force_close(&self, reason: CloseReason, at: &'static Location<'static>) {
        let closed = ForceClosed {
            reason,
            acquired_at: at,
        };
        self.0.failure.set(Some(Failure::Forced(closed)));
        // A peer that is gone already (ENOTCONN) is as closed as it can be.
        let _ = self.0.shutdown(Shutdown::Both);
        wake(&self.0.reader);
        wake(&self.0.writer);
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Readiness").field(&self.0.flags).finish()
    }
}

/// Tells sockets that are open at the same time apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketId(*const Source);

/// A connection was force-closed while it was held: the error of its holder's next read or write.
///
/// It is the inner error of an [`io::Error`] of kind `ConnectionAborted`.
#[derive(Clone, Copy, Debug)]
pub struct ForceClosed {
    reason: CloseReason,
    acquired_at: &'static Location<'static>,
}

impl ForceClosed {
    /// Why the pool closed the connection.
    #[must_use]
    pub fn reason(&self) -> CloseReason {
        self.reason
    }

    /// The line of source that acquired the connection.
    #[must_use]
    pub fn acquired_at(&self) -> &'static Location<'static> {
        self.acquired_at
    }

    /// Finds it in an I/O error.
    ///
    /// ```
    /// # use pool_core::ForceClosed;
    /// let error = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    /// assert!(ForceClosed::find(&error).is_none());
    /// ```
    #[must_use]
    pub fn find(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for ForceClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the connection acquired at {} was closed: {}",
            self.acquired_at, self.reason
        )
    }
}

impl std::error::Error for ForceClosed {}
