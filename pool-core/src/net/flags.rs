//! What is known of a socket: a bit each, so that a look at all of them is one.

use std::cell::Cell;
use std::fmt;

use crate::CloseReason;

/// Something that is known of a socket, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Flag {
    Readable = 1 << 0,
    Writable = 1 << 1,
    /// The peer will send no more (FIN), or the connection is dead.
    PeerClosed = 1 << 2,
    /// Reset, or given up by the network.
    Dead = 1 << 3,
    /// The peer has sent urgent data, which ends reads before the kernel's buffer is empty.
    Urgent = 1 << 4,
    /// We have shut down our sending side: a refused write says nothing of the peer any more.
    WriteShut = 1 << 5,
}

/// What an idle connection must not show.
const COME_IN: u8 =
    Flag::Readable as u8 | Flag::PeerClosed as u8 | Flag::Dead as u8 | Flag::Urgent as u8;

/// The flags of a socket; none is set at first.
#[derive(Default)]
pub(super) struct Flags(Cell<u8>);

impl Flags {
    #[inline]
    pub(super) fn has(&self, flag: Flag) -> bool {
        self.0.get() & flag as u8 != 0
    }

    pub(super) fn set(&self, flag: Flag) {
        self.0.set(self.0.get() | flag as u8);
    }

    pub(super) fn clear(&self, flag: Flag) {
        self.0.set(self.0.get() & !(flag as u8));
    }

    /// Nothing has come in: neither bytes nor an end.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.0.get() & COME_IN == 0
    }

    /// Whether the connection may be used again; none: something has come in, or the last read has
    /// filled its buffer, and it takes more to tell.
    #[inline]
    pub(super) fn verdict(&self) -> Option<Result<(), CloseReason>> {
        if self.is_quiet() {
            Some(Ok(()))
        } else if self.has(Flag::Dead) {
            Some(Err(CloseReason::Reset))
        } else if self.has(Flag::PeerClosed) {
            Some(Err(CloseReason::PeerClosed))
        } else {
            None
        }
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flags")
            .field("readable", &self.has(Flag::Readable))
            .field("writable", &self.has(Flag::Writable))
            .field("peer_closed", &self.has(Flag::PeerClosed))
            .field("dead", &self.has(Flag::Dead))
            .finish_non_exhaustive()
    }
}
