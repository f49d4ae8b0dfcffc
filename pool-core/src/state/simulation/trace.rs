//! What a world remembers for the reader: its last operations, and how often each kind of event
//! happened.

use std::fmt;
use std::time::Duration;

use super::super::{Admission, ConnId, Disposition, Effect, WaiterId};
use super::Fault;
use crate::{CloseReason, Timestamp};

macro_rules! events {
    ($($name:ident $label:literal,)+) => {
        /// A kind of event that has to happen often enough for a run to mean anything.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Event {
            $($name,)+
        }

        impl Event {
            const LABELS: &'static [&'static str] = &[$($label,)+];
        }
    };
}

events! {
    World "worlds",
    Reused "acquires served from idle",
    Waited "acquires that waited",
    Claimed "deliveries claimed",
    GaveUpWaiting "waiters that gave up while waiting",
    GaveUpDelivered "waiters that gave up what was delivered",
    PassedFresh "deliveries past a waiter for a fresh connection",
    PutBack "waiters put back after their delivery died",
    ClosedUnused "waiters rejected as their new connection died",
    QueueFull "acquires refused with a full queue",
    RefusedDraining "acquires refused while draining",
    RejectedDraining "waiters rejected at a drain's deadline",
    AcquireTimeout "acquire timeouts",
    ConnectTimeout "connect timeouts",
    HoldTimeout "hold timeouts of holders",
    ForgottenDelivery "hold timeouts of deliveries that nobody claimed",
    Connected "connects that succeeded",
    Refused "connects refused",
    Hung "connects that got no answer",
    Late "answers to connects that were over",
    Aborted "connects aborted",
    Whole "exchanges that ended well",
    Last "exchanges that were the last",
    Half "half responses",
    Abandoned "connections abandoned",
    Detached "connections detached",
    HolderHangs "holders that hang",
    StaleRelease "releases of connections that nobody holds",
    FoundDead "idle connections found dead by the acquire",
    DiedIdle "idle connections closed by their peer or a stray byte",
    DiedHeld "held connections that their peer ended",
    ForceClosed "connections closed out of the blue",
    IdleTimeout "idle timeouts",
    KeepAliveExpired "connections closed before their peers would",
    HeartbeatFailed "probes that took too long",
    MaxLifetime "connections too old",
    MaxUses "connections used up",
    Surplus "surplus connections",
    Evicted "evictions",
    OverflowClosed "unpooled connections closed at their release",
    Overflow "unpooled connects",
    Warmed "connects for min_idle",
    Probed "probes",
    Healthy "probes that found a connection healthy",
    Unhealthy "probes that failed",
    Leak "holders reported",
    Retuned "changes of limits",
    Retired "destinations retired",
    Asked "questions for a permit",
    Granted "permits granted",
    Denied "permits denied",
    Shed "waiters shed after a permit was denied",
    Reclaimed "idle connections closed for another core",
    Owed "permits owed to another core",
    Returned "permits given back",
    Withdrawn "queues for a permit left",
    Forgotten "destinations forgotten",
    StaleIds "uses of stale ids",
    Drain "drains",
    DrainedEarly "drains that ended before their deadline",
    DrainedLate "drains that ended at their deadline",
    Calm "worlds that came to rest",
}

/// How often each kind of event happened.
#[derive(Clone, Debug)]
pub(super) struct Counts([u64; Event::LABELS.len()]);

impl Counts {
    pub(super) const fn new() -> Self {
        Self([0; Event::LABELS.len()])
    }

    #[inline]
    pub(super) fn count(&mut self, event: Event) {
        self.0[event as usize] += 1;
    }

    /// What the pool closes of itself.
    pub(super) fn count_close(&mut self, reason: CloseReason) {
        self.count(match reason {
            CloseReason::IdleTimeout => Event::IdleTimeout,
            CloseReason::KeepAliveExpired => Event::KeepAliveExpired,
            CloseReason::HeartbeatFailed => Event::HeartbeatFailed,
            CloseReason::HoldTimeout => Event::HoldTimeout,
            CloseReason::MaxLifetime => Event::MaxLifetime,
            CloseReason::MaxUses => Event::MaxUses,
            CloseReason::Surplus => Event::Surplus,
            CloseReason::Evicted => Event::Evicted,
            CloseReason::Overflow => Event::OverflowClosed,
            _ => return,
        });
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (sum, count) in self.0.iter_mut().zip(&other.0) {
            *sum += count;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Event::LABELS.iter().copied().zip(self.0)
    }
}

/// One thing that was done to the state, or that it answered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    Acquire { destination: usize, fresh: bool },
    AcquireIdle(ConnId),
    Admitted(Admission),
    Connected(ConnId),
    ConnectFailed(ConnId),
    Claim(WaiterId),
    Cancel(WaiterId),
    Release(ConnId, Disposition),
    ForceClose(ConnId, CloseReason),
    PeerEnds(ConnId, CloseReason),
    HandleTimeout,
    Oversleep,
    UseStaleIds,
    Hint(ConnId, Option<Duration>),
    ProbeEnded(ConnId, bool),
    SetConfig,
    Retire(usize),
    GrantPermit,
    DenyPermit,
    Reclaim,
    OwePermit,
    Drain(Timestamp),
    Calm,
    Effect(Effect),
    Planted(Fault),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    core: usize,
    step: u64,
    at: Timestamp,
    act: Act,
}

const KEPT: usize = 64;

/// The last acts of a world.
#[derive(Debug)]
pub(super) struct Trace {
    entries: [Entry; KEPT],
    len: usize,
}

impl Trace {
    pub(super) const fn new() -> Self {
        let nothing = Entry {
            core: 0,
            step: 0,
            at: Timestamp::ZERO,
            act: Act::HandleTimeout,
        };
        Self {
            entries: [nothing; KEPT],
            len: 0,
        }
    }

    #[inline]
    pub(super) fn push(&mut self, core: usize, step: u64, at: Timestamp, act: Act) {
        self.entries[self.len % KEPT] = Entry {
            core,
            step,
            at,
            act,
        };
        self.len += 1;
    }

    /// The last acts, the oldest first, a line each.
    pub(super) fn lines(&self) -> Vec<String> {
        let kept = self.len.saturating_sub(KEPT)..self.len;
        let entries = kept.map(|place| &self.entries[place % KEPT]);
        entries.map(ToString::to_string).collect()
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            core,
            step,
            at,
            act,
        } = self;
        let micros = at.as_nanos() / 1_000;
        let act = shorten(&act.to_string());
        write!(f, "{step:>8} {micros:>12} us  core {core}  {act}")
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acquire { destination, fresh } => {
                let which = if *fresh { "acquire_fresh" } else { "acquire" };
                write!(f, "{which} from destination {destination}")
            }
            Self::AcquireIdle(conn) => write!(f, "acquire_idle {conn:?}"),
            Self::Admitted(admission) => write!(f, "  = {admission:?}"),
            Self::Connected(conn) => write!(f, "connected {conn:?}"),
            Self::ConnectFailed(conn) => write!(f, "connect_failed {conn:?}"),
            Self::Claim(waiter) => write!(f, "claim {waiter:?}"),
            Self::Cancel(waiter) => write!(f, "cancel {waiter:?}"),
            Self::Release(conn, disposition) => write!(f, "release {conn:?}: {disposition:?}"),
            Self::ForceClose(conn, reason) => write!(f, "force_close {conn:?}: {reason}"),
            Self::PeerEnds(conn, reason) => write!(f, "(the peer ends {conn:?}: {reason})"),
            Self::HandleTimeout => f.write_str("handle_timeout"),
            Self::Oversleep => f.write_str("(time passes)"),
            Self::UseStaleIds => f.write_str("stale ids are used"),
            Self::Hint(conn, hint) => write!(f, "hint_keep_alive {conn:?}: {hint:?}"),
            Self::ProbeEnded(conn, healthy) => write!(f, "probe_ended {conn:?}: {healthy}"),
            Self::SetConfig => f.write_str("set_config"),
            Self::Retire(destination) => write!(f, "retire destination {destination}"),
            Self::GrantPermit => f.write_str("grant_permit"),
            Self::DenyPermit => f.write_str("deny_permit"),
            Self::Reclaim => f.write_str("reclaim"),
            Self::OwePermit => f.write_str("owe_permit"),
            Self::Drain(deadline) => write!(f, "drain until {} ns", deadline.as_nanos()),
            Self::Calm => f.write_str("(peers behave from now on, and nobody comes)"),
            Self::Effect(effect) => write!(f, "  -> {effect:?}"),
            Self::Planted(fault) => write!(f, "(the fault {fault} strikes)"),
        }
    }
}

/// Writes `ConnId { index: 3, generation: 7 }` as `conn 3.7`, and the other ids likewise.
pub(super) fn shorten(text: &str) -> String {
    let mut short = text.to_owned();
    for (long, name) in [
        ("ConnId", "conn"),
        ("WaiterId", "waiter"),
        ("KeyId", "key"),
        ("TimerId", "timer"),
    ] {
        let opening = format!("{long} {{ index: ");
        while let Some(start) = short.find(&opening) {
            let Some(length) = short[start..].find(" }") else {
                break;
            };
            let id = &short[start + opening.len()..start + length];
            let id = format!("{name} {}", id.replace(", generation: ", "."));
            short.replace_range(start..start + length + 2, &id);
        }
    }
    short
}
