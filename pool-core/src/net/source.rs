//! One registered descriptor: what the kernel last said of it, and who waits for more.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use rustix::event::epoll::EventFlags;
use rustix::net::{RecvFlags, Shutdown};

use super::flags::{Flag, Flags};
use super::poller::{Poller, SourceId};
use super::readiness::ForceClosed;
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

/// Why reads and writes of a socket fail for good.
#[derive(Clone, Copy)]
pub(super) enum Failure {
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

/// Every connection has one for its life, idle or not, so each byte here counts many times.
pub(crate) struct Source {
    fd: OwnedFd,
    poller: Weak<Poller>,
    id: Cell<Option<SourceId>>,
    pub(super) flags: Flags,
    pub(super) failure: Cell<Option<Failure>>,
    /// What a write was refused with. The kernel tells an error once, so the end of file that a
    /// read finds afterwards is no clean one.
    refused: Cell<Option<rustix::io::Errno>>,
    pub(super) reader: Cell<Option<Waker>>,
    pub(super) writer: Cell<Option<Waker>>,
    pub(super) watch: Cell<WatchMode>,
    pub(super) watcher: Cell<Option<WatchToken>>,
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

    /// As [`Readiness::check_quiet`](super::Readiness::check_quiet).
    #[inline]
    pub(super) fn check_quiet(&self) -> Result<(), CloseReason> {
        if self.flags.is_quiet() {
            return Ok(());
        }
        self.look_for_bytes()
    }

    #[cold]
    fn look_for_bytes(&self) -> Result<(), CloseReason> {
        if let Some(verdict) = self.flags.verdict() {
            return verdict;
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

pub(super) fn wake(slot: &Cell<Option<Waker>>) {
    if let Some(waker) = slot.take() {
        crate::fence::wake(waker);
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
