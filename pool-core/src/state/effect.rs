//! What the state machine answers, and what it asks its driver to do.

use super::{ConnId, KeyId, WaiterId};
use crate::CloseReason;

/// The answer to an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// This idle connection is acquired from now on.
    Reuse(ConnId),
    /// The caller waits. It ends exactly once: by [`Effect::Deliver`] and a claim, by
    /// [`Effect::Reject`], by a failed connect, or because it cancels.
    Wait(WaiterId),
    /// The caller is refused.
    Reject(Rejection),
}

/// Why an acquire gets no connection.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// No connection came within `acquire_timeout`.
    AcquireTimeout,
    /// The connect that was to serve it did not finish within `connect_timeout`.
    ConnectTimeout,
    /// No connect could be started for it, and `max_pending` callers were waiting already.
    QueueFull {
        /// How many were waiting without a connect in flight for them.
        pending: u32,
    },
    /// The peer ended the new connection that was delivered to it before it could be claimed: as
    /// good as a failed connect.
    ClosedUnused(CloseReason),
    /// The pool is draining.
    Draining,
}

/// How a holder gives a connection back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// The connection stands at a message boundary and may serve another exchange.
    Reuse,
    /// The connection must not be used again.
    Close(CloseReason),
}

/// Something the driver of the state machine has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Start a connect, and report it with `connected` or `connect_failed`.
    Connect(ConnId, KeyId),
    /// Stop the connect and drop what it made. The id is stale already.
    AbortConnect(ConnId, CloseReason),
    /// Wake the waiter, who takes the connection with `claim`.
    ///
    /// Before the claim, look at the connection's readiness: it may come from idle. If it is
    /// dead, `force_close` puts the waiter back at its place in the queue.
    Deliver(WaiterId, ConnId),
    /// Fail the waiter. The id is stale already.
    Reject(WaiterId, Rejection),
    /// Drop the socket of a connection that nobody holds. The id is stale already.
    Close(ConnId, CloseReason),
    /// Shut the socket down under its holder. The id is stale already, so the holder's release
    /// changes nothing.
    ForceClose(ConnId, CloseReason),
    /// Probe an idle connection, which nobody can acquire meanwhile, and report it with
    /// `probe_ended`.
    Probe(ConnId),
    /// A connection has been held for half the hold timeout.
    ReportLeak(ConnId),
    /// Ask the shared cap for a permit, and answer with `grant_permit` or `deny_permit`.
    AskPermit,
    /// Give a permit back to the shared cap.
    ReturnPermit,
    /// No permit is needed any more: leave the queue at the shared cap.
    WithdrawPermit,
    /// Forget the destination. The id is stale already.
    ForgetKey(KeyId),
    /// The drain is over: no connection, waiter or timer is left. Comes once.
    Drained,
}
