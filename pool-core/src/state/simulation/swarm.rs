//! What a world draws once: its config, how often which operation comes, what its peers and
//! holders are like. Each world leaves most of it out, so that what is left happens often and in
//! combinations that an even mix would hardly ever reach.

use std::time::Duration;

use super::dice::{Choice, Dice};
use crate::config::PoolConfigBuilder;
use crate::{CloseReason, PoolConfig, ReuseOrder};

/// What the simulation does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// A caller wants a connection.
    Acquire,
    /// Time goes on to whatever is due first: something of the peers' or holders', or a timeout.
    Next,
    /// Time passes without the timers being looked at.
    Oversleep,
    /// The timers are looked at though nothing need be due.
    Look,
    /// Ids that have ended are used again.
    UseStaleIds,
    /// A connection is closed whatever it is doing.
    ForceClose,
    /// A waiter gives up, whatever it was given.
    Cancel,
    /// A holder is done before its time.
    Release,
    /// The limits change.
    Retune,
    /// A destination is retired.
    Retire,
    /// The pool begins to drain, or drains faster.
    Drain,
}

/// How a connect ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Accept,
    Refuse,
    /// So late that it does not matter how.
    Hang,
}

/// How a holder's exchange ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exchange {
    /// At a message boundary.
    Whole,
    /// The response was the last one.
    Last,
    /// The peer stopped in the middle of its response.
    Half,
    /// The holder dropped it.
    Abandoned,
    /// The holder took it out of the pool.
    Detached,
    /// It drops it at last, later than most timeouts.
    Hangs,
}

/// What the peer does to an open connection without being asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mischief {
    None,
    Fin,
    Reset,
    StrayBytes,
}

impl Mischief {
    pub(super) const fn reason(self) -> Option<CloseReason> {
        match self {
            Self::None => None,
            Self::Fin => Some(CloseReason::PeerClosed),
            Self::Reset => Some(CloseReason::Reset),
            Self::StrayBytes => Some(CloseReason::StrayBytes),
        }
    }
}

/// What a world is like.
#[derive(Debug)]
pub(super) struct Swarm {
    pub(super) config: PoolConfigBuilder,
    connections: u32,
    pub(super) destinations: usize,
    /// How many cores there are, and how many connections they may have together.
    pub(super) cores: usize,
    pub(super) cap: Option<u32>,
    /// No more callers come while so many wait.
    pub(super) crowd: usize,
    pub(super) operations: Choice<Operation, 11>,
    pub(super) answers: Choice<Answer, 3>,
    pub(super) exchanges: Choice<Exchange, 6>,
    pub(super) mischief: Choice<Mischief, 4>,
    /// Once nothing is going on, time goes on without a caller one in so many times.
    pub(super) quiet: u32,
    /// One in so many callers takes only a fresh connection.
    pub(super) fresh: u32,
    /// One in so many callers looks at the idle connections itself before it acquires.
    pub(super) looks_first: u32,
    /// One in so many responses says for how long the peer keeps the connection.
    pub(super) hints: u32,
    /// One in so many waiters gives up.
    pub(super) gives_up: u32,
    /// One in so many waiters never looks at what it was given.
    pub(super) forgets: u32,
    /// Durations of peers, holders and waiters are below 2^this ns.
    connect_bits: u32,
    exchange_bits: u32,
    look_bits: u32,
    patience_bits: u32,
    mischief_bits: u32,
    /// How far time overshoots, likewise.
    pub(super) overshoot_bits: u32,
}

impl Swarm {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        let (destinations, connections) = match dice.below(200) {
            0 => (dice.from(8, 24), dice.from(4, 60)),
            1..80 => (1, dice.from(1, 3)),
            _ => (dice.from(1, 3), dice.from(1, 5)),
        };
        let shares = dice.one_in(4);
        Self {
            config: draw_config(dice, connections),
            connections,
            destinations: destinations as usize,
            cores: if shares { dice.from(1, 3) as usize } else { 1 },
            cap: shares.then(|| dice.from(1, 2 * connections)),
            crowd: dice.from(1, 2 + connections * destinations) as usize,
            operations: draw_operations(dice),
            answers: Choice::new([
                (Answer::Accept, 12),
                (Answer::Refuse, sometimes(dice, 10)),
                (Answer::Hang, sometimes(dice, 3)),
            ]),
            exchanges: Choice::new([
                (Exchange::Whole, 20),
                (Exchange::Last, sometimes(dice, 4)),
                (Exchange::Half, sometimes(dice, 4)),
                (Exchange::Abandoned, sometimes(dice, 2)),
                (Exchange::Detached, sometimes(dice, 1)),
                (Exchange::Hangs, sometimes(dice, 3)),
            ]),
            mischief: Choice::new([
                (Mischief::None, 30),
                (Mischief::Fin, sometimes(dice, 8)),
                (Mischief::Reset, sometimes(dice, 4)),
                (Mischief::StrayBytes, sometimes(dice, 4)),
            ]),
            quiet: dice.from(2, 20),
            fresh: dice.from(3, 40),
            looks_first: dice.from(1, 3),
            hints: dice.from(2, 30),
            gives_up: dice.from(3, 30),
            forgets: dice.from(10, 100),
            connect_bits: dice.from(10, 26),
            exchange_bits: dice.from(10, 26),
            look_bits: dice.from(10, 22),
            patience_bits: dice.from(14, 28),
            mischief_bits: dice.from(14, 30),
            overshoot_bits: dice.from(10, 24),
        }
    }

    /// Other limits of the same order.
    pub(super) fn draw_config(&self, dice: &mut Dice) -> PoolConfigBuilder {
        draw_config(dice, self.connections)
    }

    pub(super) fn promise(&self, dice: &mut Dice) -> Duration {
        dice.duration(self.patience_bits)
    }

    pub(super) fn connect_time(&self, dice: &mut Dice) -> Duration {
        dice.duration(self.connect_bits)
    }

    pub(super) fn exchange_time(&self, dice: &mut Dice) -> Duration {
        dice.duration(self.exchange_bits)
    }

    pub(super) fn look_time(&self, dice: &mut Dice) -> Duration {
        dice.duration(self.look_bits)
    }

    pub(super) fn patience(&self, dice: &mut Dice) -> Duration {
        dice.duration(self.patience_bits)
    }

    pub(super) fn until_mischief(&self, dice: &mut Dice) -> Duration {
        dice.duration(self.mischief_bits)
    }
}

/// A weight that is 0 in half of the worlds, and at most `weight` in the others.
fn sometimes(dice: &mut Dice, weight: u32) -> u32 {
    if dice.one_in(2) {
        dice.from(1, weight)
    } else {
        0
    }
}

fn draw_operations(dice: &mut Dice) -> Choice<Operation, 11> {
    Choice::new([
        (Operation::Next, 1000),
        (Operation::Acquire, dice.from(100, 600)),
        (Operation::Oversleep, sometimes(dice, 60)),
        (Operation::Look, sometimes(dice, 40)),
        (Operation::UseStaleIds, sometimes(dice, 80)),
        (Operation::ForceClose, sometimes(dice, 20)),
        (Operation::Cancel, sometimes(dice, 40)),
        (Operation::Release, sometimes(dice, 40)),
        (Operation::Retune, sometimes(dice, 8)),
        (Operation::Retire, sometimes(dice, 20)),
        (Operation::Drain, sometimes(dice, 6)),
    ])
}

fn draw_config(dice: &mut Dice, connections: u32) -> PoolConfigBuilder {
    let connections = dice.from(1, connections);
    let most_idle = dice.one_in(2).then(|| dice.from(0, connections));
    let least_idle = dice.from(0, most_idle.unwrap_or(connections));
    let least_idle = if dice.one_in(4) { least_idle } else { 0 };
    let total = dice.one_in(3).then(|| dice.from(1, 2 * connections));
    let uses = dice.one_in(3).then(|| dice.from(1, 6));
    let pending = dice.one_in(2).then(|| dice.from(0, 2 * connections));
    // Kept warm, a connection that hardly lives is made anew without end.
    let lifetime = timeout(dice, 2, 34)
        .filter(|lifetime| least_idle == 0 || *lifetime > Duration::from_millis(50));
    PoolConfig::builder()
        .max_connections(connections)
        .max_total(total)
        .max_idle(most_idle)
        .min_idle(least_idle)
        .max_pending(pending)
        .max_unpooled(sometimes(dice, 2).min(sometimes(dice, 2)))
        .dials_in_flight(dice.from(1, connections + 1))
        .dial_delay(timeout(dice, 4, 26).filter(|_| dice.one_in(4)))
        .acquire_timeout(timeout(dice, 4, 30))
        .connect_timeout(timeout(dice, 4, 30))
        .hold_timeout(timeout(dice, 4, 30))
        .report_leaks(dice.one_in(2))
        .idle_timeout(timeout(dice, 4, 32))
        .keep_alive_margin(Duration::from_millis(dice.below(20).into()))
        .heartbeat_interval(timeout(dice, 4, 30).filter(|_| dice.one_in(4)))
        .heartbeat_timeout(Duration::from_millis(dice.from(1, 20).into()))
        .max_lifetime(lifetime)
        .max_uses(uses)
        .reuse_order(if dice.one_in(3) {
            ReuseOrder::Fifo
        } else {
            ReuseOrder::Lifo
        })
}

/// None in one of `none` worlds, and else below 2^`bits` ns.
fn timeout(dice: &mut Dice, none: u32, bits: u32) -> Option<Duration> {
    let bits = dice.from(18, bits);
    let nanos = 1 + dice.next() % (1 << bits);
    (!dice.one_in(none)).then(|| Duration::from_nanos(nanos))
}
