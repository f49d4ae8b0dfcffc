//! One registered descriptor: what the kernel last said of it, and who waits for more.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::Location;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use rustix::event::epoll::EventFlags;
use rustix::net::{RecvFlags, Shutdown};

use super::poller::{Poller, SourceId};
use crate::CloseReason;
use crate::state::ConnId;
use crate::state::slab::slab_id;

/// How many times one socket may be read or written in one turn before its task gives way.
///
/// A peer that is always ready would otherwise keep its task running, and the core's other tasks,
/// timers and mailbox waiting, for as long as it likes.
const OPERATIONS_PER_TURN: u16 = 32;

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

pub(crate) struct Source {
    fd: OwnedFd,
    poller: Weak<Poller>,
    id: Cell<Option<SourceId>>,
    readable: Cell<bool>,
    writable: Cell<bool>,
    /// The peer will send no more (FIN), or the connection is dead.
    peer_closed: Cell<bool>,
    /// Reset, or given up by the network.
    dead: Cell<bool>,
    /// The peer has sent urgent data, which ends reads before the kernel's buffer is empty.
    urgent: Cell<bool>,
    /// We have shut down our sending side: a refused write says nothing of the peer any more.
    write_shut: Cell<bool>,
    failure: Cell<Option<Failure>>,
    /// What a write was refused with. The kernel tells an error once, so the end of file that a
    /// read finds afterwards is no clean one.
    refused: Cell<Option<rustix::io::Errno>>,
    reader: RefCell<Option<Waker>>,
    writer: RefCell<Option<Waker>>,
    watch: Cell<(WatchMode, Option<WatchToken>)>,
    /// The turn in which `operations` were counted.
    turn: Cell<u64>,
    operations: Cell<u16>,
}

impl Source {
    /// Registers `fd`, which has to be nonblocking. A connecting socket has to have begun to
    /// connect: an unconnected one reports a hang-up.
    pub(super) fn register(poller: &Rc<Poller>, fd: OwnedFd) -> io::Result<Rc<Self>> {
        let source = Rc::new(Self {
            fd,
            poller: Rc::downgrade(poller),
            id: Cell::new(None),
            readable: Cell::new(false),
            writable: Cell::new(false),
            peer_closed: Cell::new(false),
            dead: Cell::new(false),
            urgent: Cell::new(false),
            write_shut: Cell::new(false),
            failure: Cell::new(None),
            refused: Cell::new(None),
            reader: RefCell::new(None),
            writer: RefCell::new(None),
            watch: Cell::new((WatchMode::Off, None)),
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
        let dead = events.contains(EventFlags::ERR) || (hung_up && self.dead.get());
        let closed = dead || hung_up || events.contains(EventFlags::RDHUP);
        let urgent = events.contains(EventFlags::PRI);
        let incoming = closed || urgent || events.contains(EventFlags::IN);
        if dead {
            self.dead.set(true);
        }
        if urgent {
            self.urgent.set(true);
        }
        if closed {
            self.peer_closed.set(true);
        }
        if incoming {
            self.readable.set(true);
            wake(&self.reader);
        }
        if dead || hung_up || events.contains(EventFlags::OUT) {
            self.writable.set(true);
            wake(&self.writer);
        }
        let (mode, token) = self.watch.get();
        match mode {
            WatchMode::Any if incoming => token,
            WatchMode::Death if dead => token,
            _ => None,
        }
    }

    pub(super) fn set_writable(&self) {
        self.writable.set(true);
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
                self.peer_closed.set(true);
                Poll::Ready(match self.refused.get() {
                    Some(errno) => Err(self.fail(errno)),
                    None => Ok(0),
                })
            }
            Poll::Ready(Ok(n)) => {
                if n < wanted && !self.peer_closed.get() && !self.urgent.get() {
                    self.readable.set(false);
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
        while self.readable.get() {
            if !self.within_budget(cx) {
                return Poll::Pending;
            }
            match take(self.fd.as_fd()) {
                Err(rustix::io::Errno::AGAIN) => self.readable.set(false),
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
        while self.writable.get() {
            if !self.within_budget(cx) {
                return Poll::Pending;
            }
            match write(self.fd.as_fd()) {
                Ok(n) => {
                    if n < wanted && !self.dead.get() {
                        self.writable.set(false);
                    }
                    return Poll::Ready(Ok(n));
                }
                Err(rustix::io::Errno::AGAIN) => self.writable.set(false),
                Err(rustix::io::Errno::INTR) => {}
                // Not final for reads: an answer that arrived before the reset can still be read.
                Err(errno) => {
                    if !self.write_shut.get() {
                        self.dead.set(true);
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
        if !self.writable.get() {
            store(&self.writer, cx);
            return Poll::Pending;
        }
        let outcome = rustix::net::sockopt::socket_error(&self.fd).and_then(|error| error);
        Poll::Ready(outcome.map_err(|errno| self.fail(errno)))
    }

    /// Ready once the connection is dead, whether or not anything is read.
    pub(super) fn poll_reset(&self, cx: &Context<'_>) -> Poll<()> {
        if self.dead.get() || self.failure.get().is_some() {
            return Poll::Ready(());
        }
        store(&self.reader, cx);
        Poll::Pending
    }

    fn fail(&self, errno: rustix::io::Errno) -> io::Error {
        self.dead.set(true);
        self.failure.set(Some(Failure::Os(errno)));
        errno.into()
    }

    fn within_budget(&self, cx: &Context<'_>) -> bool {
        let Some(poller) = self.poller.upgrade() else {
            return true;
        };
        let turn = poller.turn();
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
            self.write_shut.set(true);
        }
        Ok(rustix::net::shutdown(&self.fd, how)?)
    }

    pub(super) fn is_peer_closed(&self) -> bool {
        self.peer_closed.get()
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let (Some(poller), Some(id)) = (self.poller.upgrade(), self.id.get()) {
            poller.deregister(id);
        }
    }
}

fn store(slot: &RefCell<Option<Waker>>, cx: &Context<'_>) {
    if slot
        .borrow()
        .as_ref()
        .is_some_and(|waker| waker.will_wake(cx.waker()))
    {
        return;
    }
    // A waker is user code: neither its clone nor its drop may run under the borrow.
    let new = Some(cx.waker().clone());
    let old = slot.replace(new);
    drop(old);
}

fn wake(slot: &RefCell<Option<Waker>>) {
    let waker = slot.borrow_mut().take();
    if let Some(waker) = waker {
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
        self.0.peer_closed.get()
    }

    /// Whether a connection at a message boundary may be used again: the peer has neither closed
    /// it nor sent anything that nobody asked for.
    ///
    /// Costs no syscall, unless the last read filled its buffer to the last byte.
    ///
    /// # Errors
    ///
    /// [`CloseReason::Reset`], [`CloseReason::PeerClosed`] or [`CloseReason::StrayBytes`].
    pub fn check_quiet(&self) -> Result<(), CloseReason> {
        let source = &*self.0;
        if source.dead.get() {
            return Err(CloseReason::Reset);
        }
        if source.peer_closed.get() {
            return Err(CloseReason::PeerClosed);
        }
        if source.urgent.get() {
            return Err(CloseReason::StrayBytes);
        }
        if !source.readable.get() {
            return Ok(());
        }
        let mut byte = [0u8];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match rustix::net::recv(&source.fd, &mut byte[..], flags) {
            Err(rustix::io::Errno::AGAIN) => {
                source.readable.set(false);
                Ok(())
            }
            Ok((_, 0)) => Err(CloseReason::PeerClosed),
            Ok(_) => Err(CloseReason::StrayBytes),
            Err(_) => Err(CloseReason::Reset),
        }
    }

    /// What the flags say of a connection about to be handed out; none: something has come in, or
    /// the last read has filled its buffer, and the connection has to be asked.
    pub(crate) fn flags(&self) -> Option<Result<(), CloseReason>> {
        let source = &*self.0;
        if source.dead.get() {
            Some(Err(CloseReason::Reset))
        } else if source.peer_closed.get() {
            Some(Err(CloseReason::PeerClosed))
        } else if source.readable.get() || source.urgent.get() {
            None
        } else {
            Some(Ok(()))
        }
    }

    /// Whether both speak of the same socket.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.0.dead.get()
    }

    pub(crate) fn watch(&self, mode: WatchMode, token: WatchToken) {
        self.0.watch.set((mode, Some(token)));
    }

    /// Forgets who last waited on the socket. An idle connection must not hold its last user's
    /// waker: glommio counts the clones of a task's waker in an `i16`.
    pub(crate) fn forget_waiters(&self) {
        let waiters = (self.0.reader.take(), self.0.writer.take());
        drop(waiters);
    }

    pub(crate) fn unwatch(&self) {
        self.0.watch.set((WatchMode::Off, None));
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
        f.debug_struct("Readiness")
            .field("readable", &self.0.readable.get())
            .field("writable", &self.0.writable.get())
            .field("peer_closed", &self.0.peer_closed.get())
            .field("dead", &self.0.dead.get())
            .finish()
    }
}
