//! What the state machine remembers of a connection, a waiter and a key.

use super::dial::Backoff;
use super::list::{Linked, Links, List};
use super::wheel::TimerId;
use super::{ConnId, KeyId, WaiterId};
use crate::Timestamp;
use crate::stats::DestinationStats;

/// Where a connection stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnStatus {
    /// In its key's list of connecting ones, under the connect timer.
    Connecting,
    /// In its key's idle list, under the idle timer.
    Idle,
    /// Given to a waiter who has not claimed it yet: acquired in every other respect.
    Delivered(WaiterId),
    /// Held, under the hold timer.
    Acquired,
}

#[derive(Debug)]
pub(super) struct Conn {
    pub(super) key: KeyId,
    pub(super) status: ConnStatus,
    /// How many times it was released for reuse.
    pub(super) uses: u32,
    /// From when on it is given out no more.
    pub(super) expires: Timestamp,
    /// The one timer of whatever it is doing now.
    pub(super) timer: TimerId,
    pub(super) links: Links<ConnId>,
}

impl Linked<ConnId> for Conn {
    fn links(&self) -> &Links<ConnId> {
        &self.links
    }

    fn links_mut(&mut self) -> &mut Links<ConnId> {
        &mut self.links
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaiterStatus {
    /// In its key's queue, under the acquire timer.
    Waiting,
    /// Out of the queue, without a timer: the connection's hold timer bounds the claim.
    Delivered(ConnId),
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) key: KeyId,
    pub(super) status: WaiterStatus,
    /// Its place in the order of arrival, which it keeps when it is put back.
    pub(super) arrival: u64,
    /// When its acquire times out, counted from the call; kept for when it is put back.
    pub(super) deadline: Option<Timestamp>,
    /// It takes no connection that has been used before.
    pub(super) fresh: bool,
    /// No connect could be started for it when it came.
    pub(super) queued: bool,
    pub(super) timer: TimerId,
    pub(super) links: Links<WaiterId>,
}

impl Linked<WaiterId> for Waiter {
    fn links(&self) -> &Links<WaiterId> {
        &self.links
    }

    fn links_mut(&mut self) -> &mut Links<WaiterId> {
        &mut self.links
    }
}

#[derive(Debug)]
pub(super) struct Key {
    /// The most recently used in front.
    pub(super) idle: List<ConnId>,
    /// The most recently started in front.
    pub(super) connecting: List<ConnId>,
    /// The oldest in front.
    pub(super) queue: List<WaiterId>,
    /// The length of `queue`.
    pub(super) waiting: u32,
    pub(super) backoff: Backoff,
    /// Already in the list of keys that may have become unused.
    pub(super) maybe_unused: bool,
    pub(super) stats: DestinationStats,
}

impl Key {
    pub(super) fn new() -> Self {
        Self {
            idle: List::new(),
            connecting: List::new(),
            queue: List::new(),
            waiting: 0,
            backoff: Backoff::default(),
            maybe_unused: false,
            stats: DestinationStats::default(),
        }
    }

    /// Waiters that no connect in flight will serve.
    pub(super) fn pending(&self) -> u32 {
        self.waiting.saturating_sub(self.stats.connecting.current)
    }

    /// Neither a connection nor a waiter nor a timer needs it. A waiter with a delivered
    /// connection counts by that connection.
    pub(super) fn is_unused(&self) -> bool {
        self.stats.live() == 0 && self.waiting == 0 && self.backoff.timer.is_none()
    }
}

/// Whose time has come when a timer expires.
#[derive(Clone, Copy, Debug)]
pub(super) enum TimerOwner {
    Conn(ConnId),
    Waiter(WaiterId),
    /// The key's backoff ends.
    Key(KeyId),
    /// The drain's deadline.
    Drain,
}
