//! What the state machine remembers of a connection, a waiter and a key.

use super::dial::Backoff;
use super::list::{Linked, Links, List};
use super::wheel::TimerId;
use super::{ConnId, KeyId, WaiterId};
use crate::Timestamp;
use crate::stats::{DestinationStats, Gauge};

/// Where a connection stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnStatus {
    /// In its key's list of connecting ones, under the connect timer.
    Connecting,
    /// Unpooled, under the connect timer: for this waiter and nobody else.
    ConnectingFor(WaiterId),
    /// In its key's idle list, under the idle timer.
    Idle,
    /// Idle and at its place in the idle list, but in the hands of a probe, so that nobody can
    /// acquire it; under the heartbeat timer.
    Probed,
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
    /// For how long the peer keeps it idle, in milliseconds, if it has said so.
    pub(super) keep_alive: Option<u32>,
    /// Made beyond `max_connections`, to be used once.
    pub(super) unpooled: bool,
    /// Made before its destination was retired: it is given out no more.
    pub(super) retired: bool,
    /// From when on it is given out no more.
    pub(super) expires: Timestamp,
    /// Since when it is connecting, idle or held, by the first reading of the clock afterwards.
    pub(super) since: Timestamp,
    /// The one timer of whatever it is doing now.
    pub(super) timer: TimerId,
    /// In the list of its status.
    pub(super) by_status: Links,
    /// In the list of all idle connections, if there is one.
    pub(super) by_age: Links,
}

impl Conn {
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.status, ConnStatus::Idle | ConnStatus::Probed)
    }
}

impl DestinationStats {
    /// What a connection counts as.
    #[inline]
    pub(super) fn gauge(&mut self, status: ConnStatus) -> &mut Gauge {
        match status {
            ConnStatus::Connecting | ConnStatus::ConnectingFor(_) => &mut self.connecting,
            ConnStatus::Idle | ConnStatus::Probed => &mut self.idle,
            ConnStatus::Acquired | ConnStatus::Delivered(_) => &mut self.acquired,
        }
    }
}

impl Linked for Conn {
    fn links(&self) -> &Links {
        &self.by_status
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.by_status
    }
}

/// The list of all idle connections.
#[derive(Debug)]
pub(super) enum ByAge {}

impl Linked<ByAge> for Conn {
    fn links(&self) -> &Links {
        &self.by_age
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.by_age
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaiterStatus {
    /// In its key's queue, under the acquire timer.
    Waiting,
    /// Out of the queue, without a timer: the connection's hold timer bounds the claim.
    Delivered(ConnId),
    /// Timed out, and out of the queue: this unpooled connect is for it. Without a timer: the
    /// connect's bounds it.
    Overflown(ConnId),
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) key: KeyId,
    pub(super) status: WaiterStatus,
    /// Its place in the order of arrival, which it keeps when it is put back.
    pub(super) arrival: u64,
    /// When it came, by the first reading of the clock afterwards.
    pub(super) since: Timestamp,
    /// When its acquire times out, counted from then; [`Timestamp::MAX`] for never. `None` until
    /// the clock has been read.
    pub(super) deadline: Option<Timestamp>,
    /// It takes no connection that has been used before.
    pub(super) fresh: bool,
    /// No connect could be started for it when it came.
    pub(super) queued: bool,
    /// It was let in because a permit may be had, which has to be asked for.
    pub(super) on_trial: bool,
    /// It has waited long enough for a release: a connect may be started for it.
    pub(super) ripe: bool,
    pub(super) timer: TimerId,
    pub(super) links: Links,
}

impl Linked for Waiter {
    fn links(&self) -> &Links {
        &self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

/// How badly a key needs room under the caps over all keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hunger {
    /// It would use one more connection.
    More,
    /// It has waiters and no connection at all.
    Any,
}

#[derive(Debug)]
pub(super) struct Key {
    /// The most recently used in front.
    pub(super) idle: List<ConnId>,
    /// The most recently started in front; the unpooled ones are not in it.
    pub(super) connecting: List<ConnId>,
    /// The oldest in front.
    pub(super) queue: List<WaiterId>,
    /// The length of `connecting`.
    pub(super) dials: u32,
    /// How many in `idle` are being probed.
    pub(super) probed: u32,
    /// The length of `queue`.
    pub(super) waiting: u32,
    /// How many in `queue`, from the front, a connect may be started for.
    pub(super) ripe: u32,
    pub(super) backoff: Backoff,
    /// In the list of starving keys of that kind.
    pub(super) hunger: Option<Hunger>,
    pub(super) links: Links,
    /// When it was last asked for a connection, if it was since it was retired.
    pub(super) asked: Option<Timestamp>,
    /// It is kept although it may be unused.
    pub(super) pins: u32,
    /// Already in the list of keys that may have become unused.
    pub(super) maybe_unused: bool,
    pub(super) stats: DestinationStats,
}

impl Linked for Key {
    fn links(&self) -> &Links {
        &self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl Key {
    pub(super) fn new() -> Self {
        Self {
            idle: List::new(),
            connecting: List::new(),
            queue: List::new(),
            dials: 0,
            probed: 0,
            waiting: 0,
            ripe: 0,
            backoff: Backoff::default(),
            hunger: None,
            links: Links::new(),
            asked: None,
            pins: 0,
            maybe_unused: false,
            stats: DestinationStats::default(),
        }
    }

    /// Waiters that no connect in flight will serve.
    pub(super) fn pending(&self) -> u32 {
        self.waiting.saturating_sub(self.dials)
    }

    /// Connections that count against `max_connections`.
    #[inline]
    pub(super) fn pooled(&self) -> u32 {
        self.stats.live() - self.stats.unpooled.current
    }

    /// Whether there is an idle connection that is not being probed.
    #[inline]
    pub(super) fn has_idle(&self) -> bool {
        self.stats.idle.current > self.probed
    }

    /// Neither a connection nor a waiter, a timer or a user needs it. A waiter outside the queue
    /// counts by its connection.
    pub(super) fn is_unused(&self) -> bool {
        self.stats.live() == 0
            && self.waiting == 0
            && self.backoff.timer.is_none()
            && self.pins == 0
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
