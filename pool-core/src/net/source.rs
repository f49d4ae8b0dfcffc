//! One registered descriptor: what the kernel last said of it, and who waits for more.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::Location;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use rustix::event::epoll::EventFlags;
use rustix::net::{RecvFlags, Shutdown};

use super::flags::{Flag, Flags};
use super::poller::{Poller, SourceId};
use crate::CloseReason;
use crate::state::ConnId;
use crate::state::slab::slab_id;

/// How many times one socket may be read or written in one turn before its task gives way.
///
/// A peer that is always ready would otherwise keep its task running, and the core's other tasks,
/// timers and mailbox waiting, for as long as it likes.
const OPERATIONS_PER_TURN: u8 = 32;

slab_id! {
    /// Names a pool of a core.
    pub(crate) PoolId
}

/// Whom the driver tells when a watched socket changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WatchToken {
    /// The pool's number within its core.
    pub(crate) pool: PoolId,
    pub(crate) conn: ConnId,
}

/// Which changes of a watched socket the pool wants to hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchMode {
    /// Nothing: the socket belongs to no pool (yet, or any more).
    Off,
    /// Acquired: only its death in both directions.
    Death,
    /// Idle: anything at all, as an idle connection has nothing to say.
    Any,
}

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

/// Why reads and writes of a socket fail for good.
#[derive(Clone, Copy)]
enum Failure {
    /// The kernel reports a reset once and a clean end of file from then on; the first is true.
    Os(rustix::io::Errno),
    Forced(ForceClosed),
}

impl Failure {
    fn error(self) -> io::Error {
        match self {
            Self::Os(errno) => errno.into(),
            Self::Forced(closed) => io::Error::new(io::ErrorKind::ConnectionAborted, closed),
        }
    }
}

/// Tells sockets that are open at the same time apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketId(*const Source);

/// Every connection has one for its life, idle or not, so each byte here counts many times.
pub(crate) struct Source {
    fd: OwnedFd,
    poller: Weak<Poller>,
    id: Cell<Option<SourceId>>,
    flags: Flags,
    failure: Cell<Option<Failure>>,
    /// What a write was refused with. The kernel tells an error once, so the end of file that a
    /// read finds afterwards is no clean one.
    refused: Cell<Option<rustix::io::Errno>>,
    reader: Cell<Option<Waker>>,
    writer: Cell<Option<Waker>>,
    watch: Cell<WatchMode>,
    watcher: Cell<Option<WatchToken>>,
    /// The turn in which `operations` were counted, cut off: that the same number comes back
    /// matters to nobody.
    turn: Cell<u32>,
    operations: Cell<u8>,
}

impl Source {
    /// Registers `fd`, which has to be nonblocking. A connecting socket has to have begun to
    /// connect: an unconnected one reports a hang-up.
    pub(super) fn register(poller: &Rc<Poller>, fd: OwnedFd) -> io::Result<Rc<Self>> {
        let source = Rc::new(Self {
            fd,
            poller: Rc::downgrade(poller),
            id: Cell::new(None),
            flags: Flags::default(),
            failure: Cell::new(None),
            refused: Cell::new(None),
            reader: Cell::new(None),
            writer: Cell::new(None),
            watch: Cell::new(WatchMode::Off),
            watcher: Cell::new(None),
            turn: Cell::new(0),
            operations: Cell::new(0),
        });
        source.id.set(Some(poller.register(&source)?));
        Ok(source)
    }

    /// Takes in what the kernel reported and wakes whom it concerns.
    ///
    /// Runs inside the harvest: notes and wakes, nothing else.
    pub(super) fn apply(&self, events: EventFlags) -> Option<WatchToken> {
        // Without an error a hang-up is the end of both directions, clean, unless the error has
        // been told to a write before.
        let hung_up = events.contains(EventFlags::HUP);
        let dead = events.contains(EventFlags::ERR) || (hung_up && self.flags.has(Flag::Dead));
        let closed = dead || hung_up || events.contains(EventFlags::RDHUP);
        let urgent = events.contains(EventFlags::PRI);
        let incoming = closed || urgent || events.contains(EventFlags::IN);
        if dead {
            self.flags.set(Flag::Dead);
        }
        if urgent {
            self.flags.set(Flag::Urgent);
        }
        if closed {
            self.flags.set(Flag::PeerClosed);
        }
        if incoming {
            self.flags.set(Flag::Readable);
            wake(&self.reader);
        }
        if dead || hung_up || events.contains(EventFlags::OUT) {
            self.flags.set(Flag::Writable);
            wake(&self.writer);
        }
        match self.watch.get() {
            WatchMode::Any if incoming => self.watcher.get(),
            WatchMode::Death if dead => self.watcher.get(),
            _ => None,
        }
    }

    pub(super) fn set_writable(&self) {
        self.flags.set(Flag::Writable);
    }

    /// Runs `read` when there is something to read, until it would block. The first error is
    /// final, and every later read fails with it.
    ///
    /// `wanted` is what a full read returns: less means that the kernel's buffer is empty, which
    /// saves the read that would end in EAGAIN (epoll(7), on edge-triggered streams).
    pub(super) fn poll_read(
        &self,
        cx: &Context<'_>,
        wanted: usize,
        read: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if let Some(failure) = self.failure.get() {
            return Poll::Ready(Err(failure.error()));
        }
        match self.poll_incoming(cx, read) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(errno)) => Poll::Ready(Err(self.fail(errno))),
            Poll::Ready(Ok(0)) if wanted > 0 => {
                self.flags.set(Flag::PeerClosed);
                Poll::Ready(match self.refused.get() {
                    Some(errno) => Err(self.fail(errno)),
                    None => Ok(0),
                })
            }
            Poll::Ready(Ok(n)) => {
                if n < wanted && !self.flags.has(Flag::PeerClosed) && !self.flags.has(Flag::Urgent)
                {
                    self.flags.clear(Flag::Readable);
                }
                Poll::Ready(Ok(n))
            }
        }
    }

    /// Runs `take` when something has come in, until it would block. Errors are not final: a
    /// listener that is out of descriptors goes on later.
    pub(super) fn poll_incoming<T>(
        &self,
        cx: &Context<'_>,
        mut take: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<T>,
    ) -> Poll<rustix::io::Result<T>> {
        while self.flags.has(Flag::Readable) {
            if !self.within_budget(cx) {
                return Poll::Pending;
            }
            match take(self.fd.as_fd()) {
                Err(rustix::io::Errno::AGAIN) => self.flags.clear(Flag::Readable),
                Err(rustix::io::Errno::INTR) => {}
                outcome => return Poll::Ready(outcome),
            }
        }
        store(&self.reader, cx);
        Poll::Pending
    }

    /// Runs `write` when there is room, until it would block. `wanted` as in
    /// [`poll_read`](Self::poll_read).
    pub(super) fn poll_write(
        &self,
        cx: &Context<'_>,
        wanted: usize,
        mut write: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if let Some(Failure::Forced(closed)) = self.failure.get() {
            return Poll::Ready(Err(Failure::Forced(closed).error()));
        }
        while self.flags.has(Flag::Writable) {
            if !self.within_budget(cx) {
                return Poll::Pending;
            }
            match write(self.fd.as_fd()) {
                Ok(n) => {
                    if n < wanted && !self.flags.has(Flag::Dead) {
                        self.flags.clear(Flag::Writable);
                    }
                    return Poll::Ready(Ok(n));
                }
                Err(rustix::io::Errno::AGAIN) => self.flags.clear(Flag::Writable),
                Err(rustix::io::Errno::INTR) => {}
                // Not final for reads: an answer that arrived before the reset can still be read.
                Err(errno) => {
                    if !self.flags.has(Flag::WriteShut) {
                        self.flags.set(Flag::Dead);
                        self.refused.set(Some(errno));
                    }
                    return Poll::Ready(Err(errno.into()));
                }
            }
        }
        store(&self.writer, cx);
        Poll::Pending
    }

    /// Waits for the end of a connect.
    pub(super) fn poll_connected(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        if !self.flags.has(Flag::Writable) {
            store(&self.writer, cx);
            return Poll::Pending;
        }
        let outcome = rustix::net::sockopt::socket_error(&self.fd).and_then(|error| error);
        Poll::Ready(outcome.map_err(|errno| self.fail(errno)))
    }

    /// Ready once the connection is dead, whether or not anything is read.
    pub(super) fn poll_reset(&self, cx: &Context<'_>) -> Poll<()> {
        if self.flags.has(Flag::Dead) || self.failure.get().is_some() {
            return Poll::Ready(());
        }
        store(&self.reader, cx);
        Poll::Pending
    }

    fn fail(&self, errno: rustix::io::Errno) -> io::Error {
        self.flags.set(Flag::Dead);
        self.failure.set(Some(Failure::Os(errno)));
        errno.into()
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "only the low digits of the turn are compared"
    )]
    fn within_budget(&self, cx: &Context<'_>) -> bool {
        let Some(poller) = self.poller.upgrade() else {
            return true;
        };
        let turn = poller.turn() as u32;
        if self.turn.replace(turn) != turn {
            self.operations.set(0);
        }
        let operations = self.operations.get();
        if operations >= OPERATIONS_PER_TURN {
            poller.defer(cx.waker());
            return false;
        }
        self.operations.set(operations + 1);
        true
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        if how != Shutdown::Read {
            self.flags.set(Flag::WriteShut);
        }
        Ok(rustix::net::shutdown(&self.fd, how)?)
    }

    pub(super) fn is_peer_closed(&self) -> bool {
        self.flags.has(Flag::PeerClosed)
    }

    /// As [`Readiness::check_quiet`].
    #[inline]
    pub(super) fn check_quiet(&self) -> Result<(), CloseReason> {
        if self.flags.is_quiet() {
            return Ok(());
        }
        self.look_for_bytes()
    }

    #[cold]
    fn look_for_bytes(&self) -> Result<(), CloseReason> {
        if self.flags.has(Flag::Dead) {
            return Err(CloseReason::Reset);
        }
        if self.flags.has(Flag::PeerClosed) {
            return Err(CloseReason::PeerClosed);
        }
        if self.flags.has(Flag::Urgent) {
            return Err(CloseReason::StrayBytes);
        }
        let mut byte = [0u8];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match rustix::net::recv(&self.fd, &mut byte[..], flags) {
            Err(rustix::io::Errno::AGAIN) => {
                self.flags.clear(Flag::Readable);
                Ok(())
            }
            Ok((_, 0)) => Err(CloseReason::PeerClosed),
            Ok(_) => Err(CloseReason::StrayBytes),
            Err(_) => Err(CloseReason::Reset),
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let (Some(poller), Some(id)) = (self.poller.upgrade(), self.id.get()) {
            poller.deregister(id);
        }
    }
}

fn store(slot: &Cell<Option<Waker>>, cx: &Context<'_>) {
    let current = slot.take();
    let is_same = current
        .as_ref()
        .is_some_and(|waker| waker.will_wake(cx.waker()));
    // Back before the clone, which is a user's code and may lead here again.
    slot.set(current);
    if !is_same {
        let old = slot.replace(Some(cx.waker().clone()));
        drop(old);
    }
}

fn wake(slot: &Cell<Option<Waker>>) {
    if let Some(waker) = slot.take() {
        crate::fence::wake(waker);
    }
}

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
        let flags = &self.0.flags;
        if flags.is_quiet() {
            Some(Ok(()))
        } else if flags.has(Flag::Dead) {
            Some(Err(CloseReason::Reset))
        } else if flags.has(Flag::PeerClosed) {
            Some(Err(CloseReason::PeerClosed))
        } else {
            None
        }
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

#[cfg(test)]
mod tests {
    use super::Source;

    #[test]
    fn a_registered_socket_takes_no_more_than_96_bytes() {
        assert!(size_of::<Source>() <= 96, "{}", size_of::<Source>());
    }
}
