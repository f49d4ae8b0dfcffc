//! Faults that are planted to see whether they are caught.
//!
//! The state itself has no switch for them. A fault damages its insides between two calls, in
//! such a way that they still agree with each other where they can; or it loses or doubles an
//! effect on its way; or it gives the state other limits than the world believes in.

use std::fmt;
use std::time::Duration;

use super::super::drain::Phase;
use super::super::entries::{Conn, ConnStatus, TimerOwner, WaiterStatus};
use super::super::{Admission, ConnId, Disposition, Effect, KeyId, PoolState, WaiterId};
use super::dice::Dice;
use super::oracle::Oracle;
use super::{Promise, TICK};
use crate::config::PoolConfigBuilder;
use crate::{CloseReason, Timestamp};

macro_rules! faults {
    ($($name:ident $label:literal $promise:ident$(($number:literal))? $what:literal,)+) => {
        /// A fault that can be planted.
        #[non_exhaustive]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault {
            $(#[doc = $what] $name,)+
        }

        impl Fault {
            /// Every fault, in the order of the invariants.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Its name, such as `lost-connect`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $label,)+
                }
            }

            /// The promise that it breaks.
            #[must_use]
            pub const fn breaks(self) -> Promise {
                match self {
                    $(Self::$name => Promise::$promise$(($number))?,)+
                }
            }

            /// What it does, in a sentence.
            #[must_use]
            pub const fn what(self) -> &'static str {
                match self {
                    $(Self::$name => $what,)+
                }
            }
        }
    };
}

faults! {
    Uncounted "uncounted" Invariant(1)
        "A connection has ended and is still counted as acquired.",
    LostPermit "lost-permit" Invariant(1)
        "A permit that is given back does not arrive.",
    OverMaxConnections "over-max-connections" Invariant(2)
        "One connection more than `max_connections` is allowed.",
    OverMaxTotal "over-max-total" Invariant(2)
        "One connection more than `max_total` is allowed.",
    WithoutPermit "without-permit" Invariant(2)
        "A connection is made without a permit of the shared cap.",
    OverMaxIdle "over-max-idle" Invariant(2)
        "One idle connection more than `max_idle` is kept.",
    OverDialsInFlight "over-dials-in-flight" Invariant(2)
        "One connect more than `dials_in_flight` is started.",
    OverMaxPending "over-max-pending" Invariant(2)
        "One waiter more than `max_pending` is admitted.",
    OverMaxUnpooled "over-max-unpooled" Invariant(2)
        "One connection more than `max_unpooled` is made for waiters whose time is over.",
    IdleBesideWaiter "idle-beside-waiter" Invariant(3)
        "A caller waits though an idle connection is there for it.",
    LostConnect "lost-connect" Invariant(4)
        "A connect ends and its waiter gets no other.",
    LongBackoff "long-backoff" Invariant(4)
        "A backoff lasts for a second.",
    Starved "starved" Invariant(5)
        "A connection becomes idle though another destination starves for its room.",
    Greedy "greedy" Invariant(5)
        "The oldest waiter of a destination without any connection is taken for the youngest.",
    Barging "barging" Invariant(6)
        "The two oldest waiters change places.",
    LostDelivery "lost-delivery" Invariant(7)
        "A waiter is not told of the connection delivered to it.",
    DoubleDelivery "double-delivery" Invariant(7)
        "A connection is delivered twice.",
    LostRejection "lost-rejection" Invariant(7)
        "A waiter is not told that it was rejected.",
    StaleId "stale-id" Invariant(8)
        "A stale id is taken for the one that has its index now.",
    TwoOwners "two-owners" Invariant(8)
        "A held connection is idle as well.",
    TooManyUses "too-many-uses" Invariant(9)
        "Uses of a connection are not counted.",
    TooOld "too-old" Invariant(9)
        "The end of a connection's life is forgotten.",
    DeafToPeer "deaf-to-peer" Invariant(9)
        "A connection that its peer has closed stays.",
    EarlyTimer "early-timer" Invariant(10)
        "A waiter times out before its time.",
    LateTimer "late-timer" Invariant(10)
        "A waiter times out ten ticks late.",
    TimeGoesBack "time-goes-back" Invariant(10)
        "A call comes with an earlier time than the one before.",
    EarlyDrained "early-drained" Invariant(11)
        "A drain is announced as over while connections are left.",
    LostDrain "lost-drain" Invariant(11)
        "The timer of a drain is lost.",
    KeptKey "kept-key" StateThatEnds
        "A destination is kept though nobody uses it.",
    NotWarm "not-warm" Warmth
        "No connections are kept idle for `min_idle`.",
    Miscounted "miscounted" Counts
        "An acquire timeout is counted that did not happen.",
    WrongOrder "wrong-order" ReuseOrder
        "The idle connection used last goes to the other end of the list.",
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What becomes of an effect on its way to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Passes,
    Lost,
    Doubled,
}

/// How rare its moments are.
const MOMENT: u32 = 8;

/// A fault that strikes at random moments.
#[derive(Debug)]
pub(super) struct Plant {
    pub(super) fault: Fault,
    /// How often it has struck so far.
    pub(super) strikes: u64,
}

impl Plant {
    pub(super) const fn new(fault: Fault) -> Self {
        Self { fault, strikes: 0 }
    }

    fn struck(&mut self) -> bool {
        self.strikes += 1;
        true
    }

    /// The limits for the state, where the world believes in those of `config`.
    pub(super) fn config(&mut self, builder: &PoolConfigBuilder) -> PoolConfigBuilder {
        let builder = builder.clone();
        let Ok(config) = builder.clone().build() else {
            return builder;
        };
        let builder = match self.fault {
            Fault::OverMaxConnections => builder
                .max_connections(config.max_connections() + 1)
                .max_idle(config.max_idle()),
            Fault::OverMaxUnpooled => builder.max_unpooled(config.max_unpooled() + 1),
            Fault::NotWarm => builder.min_idle(0),
            Fault::OverMaxTotal => builder.max_total(config.max_total().map(|cap| cap + 1)),
            Fault::OverMaxIdle if config.max_idle() < config.max_connections() => {
                builder.max_idle(config.max_idle() + 1)
            }
            Fault::OverDialsInFlight => builder.dials_in_flight(config.dials_in_flight() + 1),
            Fault::OverMaxPending => builder.max_pending(config.max_pending().map(|cap| cap + 1)),
            _ => return builder,
        };
        self.struck();
        builder
    }

    pub(super) fn fate(&mut self, effect: Effect, dice: &mut Dice) -> Fate {
        let fate = match (self.fault, effect) {
            (Fault::LostDelivery, Effect::Deliver(..))
            | (Fault::LostRejection, Effect::Reject(..))
            | (Fault::LostPermit, Effect::ReturnPermit) => Fate::Lost,
            (Fault::DoubleDelivery, Effect::Deliver(..)) => Fate::Doubled,
            _ => return Fate::Passes,
        };
        if !dice.one_in(MOMENT) {
            return Fate::Passes;
        }
        self.struck();
        fate
    }

    /// Whether a call of `force_close` does not reach the state.
    pub(super) fn is_deaf(&mut self, dice: &mut Dice) -> bool {
        self.fault == Fault::DeafToPeer && dice.one_in(MOMENT) && self.struck()
    }

    /// The id that a stale one is taken for.
    pub(super) fn mistaken(&mut self, stale: ConnId, oracle: &Oracle) -> ConnId {
        if self.fault != Fault::StaleId {
            return stale;
        }
        let owner = oracle.conns.successor(stale).filter(|_| self.struck());
        owner.unwrap_or(stale)
    }

    /// Does its damage, if this is a moment for it.
    pub(super) fn strike(
        &mut self,
        state: &mut PoolState,
        oracle: &mut Oracle,
        now: Timestamp,
        dice: &mut Dice,
    ) -> bool {
        dice.one_in(MOMENT)
            && damage(self.fault, state, oracle, now, dice).is_some()
            && self.struck()
    }
}

/// `None` if nothing can be damaged now.
fn damage(
    fault: Fault,
    state: &mut PoolState,
    oracle: &mut Oracle,
    now: Timestamp,
    dice: &mut Dice,
) -> Option<()> {
    match fault {
        Fault::Uncounted => {
            let key = any_key(state, dice)?;
            state.keys[key].stats.acquired.raise();
            state.totals.acquired.raise();
        }
        Fault::Miscounted => {
            let key = any_key(state, dice)?;
            state.tally(key, |stats| stats.timeouts.acquire += 1);
        }
        Fault::WithoutPermit => {
            let permits = state.room.permits.as_mut()?;
            permits.spare += 1;
        }
        Fault::Starved => starve(state, oracle, now, dice)?,
        Fault::Greedy => {
            let key = state.room.destitute.front(&state.keys)?;
            let queue = &state.keys[key].queue;
            let alone = queue.front(&state.waiters);
            let alone = alone.filter(|_| queue.front(&state.waiters) == queue.back(&state.waiters));
            state.waiters[alone?].arrival = u64::MAX;
        }
        Fault::IdleBesideWaiter => idle_beside_waiter(state, oracle, now, dice)?,
        Fault::LostConnect => lose_connect(state, oracle, dice)?,
        Fault::LongBackoff => {
            let key = any_key(state, dice)?;
            state.keys[key].queue.front(&state.waiters)?;
            let timer = state.keys[key].backoff.timer?;
            state.timers.schedule(timer, now + Duration::from_secs(1));
        }
        Fault::Barging => {
            let key = any_key(state, dice)?;
            let queue = &mut state.keys[key].queue;
            let oldest = queue.front(&state.waiters)?;
            let second = queue.iter(&state.waiters).nth(1)?;
            queue.remove(&mut state.waiters, oldest);
            queue.insert_after(&mut state.waiters, second, oldest);
            let arrival = state.waiters[oldest].arrival;
            state.waiters[oldest].arrival = state.waiters[second].arrival;
            state.waiters[second].arrival = arrival;
        }
        Fault::TwoOwners => {
            let conn = any_conn(state, dice, |conn| conn.status == ConnStatus::Acquired)?;
            state.move_to(now, conn, ConnStatus::Idle);
        }
        Fault::TooManyUses => {
            let conn = any_conn(state, dice, |conn| conn.uses > 1)?;
            state.conns[conn].uses = 1;
        }
        Fault::TooOld => {
            // One that is held while others wait is not looked at by any timer.
            let conn = any_conn(state, dice, |conn| conn.status == ConnStatus::Acquired)?;
            let key = state.conns[conn].key;
            state.keys[key].queue.front(&state.waiters)?;
            state.conns[conn].expires = Timestamp::MAX;
        }
        Fault::EarlyTimer => move_deadline(state, dice, |deadline| {
            (deadline > now + 2 * TICK).then_some(now)
        })?,
        Fault::LateTimer => move_deadline(state, dice, |deadline| Some(deadline + 10 * TICK))?,
        Fault::TimeGoesBack => state.now = state.now + TICK,
        Fault::EarlyDrained => {
            let Phase::Draining { timer, .. } = state.phase else {
                return None;
            };
            state.timers.remove(timer);
            state.phase = Phase::Over { announced: false };
        }
        Fault::LostDrain => {
            let Phase::Draining { timer, .. } = state.phase else {
                return None;
            };
            state.timers.cancel(timer);
        }
        Fault::KeptKey => {
            let key = any_key(state, dice)?;
            if state.keys[key].backoff.timer.is_some() {
                return None;
            }
            let timer = state.timers.insert(TimerOwner::Key(key));
            state.keys[key].backoff.timer = Some(timer);
        }
        Fault::WrongOrder => {
            let key = any_key(state, dice)?;
            let idle = &mut state.keys[key].idle;
            let last = idle
                .front(&state.conns)
                .filter(|last| idle.back(&state.conns) != Some(*last))?;
            idle.remove(&mut state.conns, last);
            idle.push_back(&mut state.conns, last);
        }
        _ => return None,
    }
    Some(())
}

fn any_key(state: &PoolState, dice: &mut Dice) -> Option<KeyId> {
    let keys: Vec<_> = state.keys().collect();
    Some(keys[dice.place(keys.len())?])
}

fn any_conn(state: &PoolState, dice: &mut Dice, wanted: fn(&Conn) -> bool) -> Option<ConnId> {
    let conns = state.conns.iter();
    let conns: Vec<_> = conns.filter(|(_, conn)| wanted(conn)).collect();
    Some(conns[dice.place(conns.len())?].0)
}

fn any_waiter(state: &PoolState, dice: &mut Dice) -> Option<WaiterId> {
    let waiters = state.waiters.iter();
    let waiting: Vec<_> = waiters
        .filter(|(_, waiter)| waiter.status == WaiterStatus::Waiting)
        .collect();
    Some(waiting[dice.place(waiting.len())?].0)
}

fn move_deadline(
    state: &mut PoolState,
    dice: &mut Dice,
    moved: impl FnOnce(Timestamp) -> Option<Timestamp>,
) -> Option<()> {
    let waiter = any_waiter(state, dice)?;
    let entry = &mut state.waiters[waiter];
    let deadline = moved(entry.deadline?)?;
    if deadline == Timestamp::MAX {
        return None;
    }
    entry.deadline = Some(deadline);
    state.timers.schedule(entry.timer, deadline);
    Some(())
}

/// Admits an ordinary caller as if it wanted a fresh connection.
fn idle_beside_waiter(
    state: &mut PoolState,
    oracle: &mut Oracle,
    now: Timestamp,
    dice: &mut Dice,
) -> Option<()> {
    let conn = any_conn(state, dice, |conn| conn.status == ConnStatus::Idle)?;
    let destination = oracle.conns.get(conn)?.destination;
    let before = oracle.tally(destination);
    let admission = state.acquire_fresh(now, state.conns[conn].key);
    if let Admission::Wait(waiter) = admission {
        state.waiters[waiter].fresh = false;
    }
    oracle.admitted(destination, false, before, admission).ok()
}

/// Makes a held connection idle without a look at those who wait for its room.
fn starve(
    state: &mut PoolState,
    oracle: &mut Oracle,
    now: Timestamp,
    dice: &mut Dice,
) -> Option<()> {
    let room = &state.room;
    let starving = room.destitute.front(&state.keys);
    let starving = starving.or_else(|| room.short.front(&state.keys))?;
    let conn = any_conn(state, dice, |conn| conn.status == ConnStatus::Acquired)?;
    let key = &state.keys[state.conns[conn].key];
    let keeps = key.stats.idle.current < state.config.max_idle() && key.queue.is_empty();
    if !keeps || state.conns[conn].key == starving || state.conns[conn].unpooled {
        return None;
    }
    oracle.released(conn, Disposition::Reuse);
    state.conns[conn].uses += 1;
    state.move_to(now, conn, ConnStatus::Idle);
    Some(())
}

/// Ends a connect without looking after those who wait.
fn lose_connect(state: &mut PoolState, oracle: &mut Oracle, dice: &mut Dice) -> Option<()> {
    let conn = any_conn(state, dice, |conn| conn.status == ConnStatus::Connecting)?;
    let id = state.conns[conn].key;
    state.keys[id].queue.front(&state.waiters)?;
    oracle.force_closed(conn, CloseReason::Reset);
    state.abort_connect(conn, CloseReason::Reset);
    let key = &mut state.keys[id];
    let (before, pending) = (key.stats.pending.current, key.pending());
    key.stats.pending.set(pending);
    let totals = &mut state.totals.pending;
    totals.set(totals.current - before + pending);
    Some(())
}
