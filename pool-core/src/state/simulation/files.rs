//! What the model keeps of a connection, a waiter and a destination.

use std::time::Duration;

use super::super::{ConnId, KeyId, Rejection, WaiterId};
use super::dice::Dice;
use crate::{CloseReason, PoolConfig, Timestamp};

/// Where a connection stands, by what calls and effects have told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Connecting,
    /// Beyond `max_connections`, for this waiter.
    ConnectingFor(WaiterId),
    Idle,
    Probed {
        began: Timestamp,
    },
    Delivered(WaiterId),
    Held,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Conn {
    pub(super) destination: usize,
    pub(super) place: Place,
    /// Since when it is there; a probe does not interrupt what was before.
    pub(super) since: Timestamp,
    /// Whether that is a reading of the clock.
    pub(super) clocked: bool,
    /// After how long it may time out, and after how long it has to. They differ once the limits
    /// were changed meanwhile.
    pub(super) least: Option<Duration>,
    pub(super) most: Option<Duration>,
    /// When its timer was last set anew in the middle of what it does.
    pub(super) timed: Timestamp,
    /// Its place in the order in which connections became idle.
    pub(super) turn: u64,
    pub(super) made: Timestamp,
    pub(super) lifetime: Option<Duration>,
    pub(super) uses: u32,
    /// By the limit that held when it was given back.
    pub(super) used_up: bool,
    pub(super) unpooled: bool,
    /// Its destination was retired since it was made.
    pub(super) retired: bool,
    /// For how long its peer has promised to keep it.
    pub(super) hint: Option<Duration>,
    /// Its holder has been reported.
    pub(super) reported: bool,
    /// What its peer has done to it and the pool does not know yet.
    pub(super) dead: Option<CloseReason>,
}

impl Conn {
    pub(super) fn new(destination: usize, place: Place, now: Timestamp) -> Self {
        Self {
            destination,
            place,
            since: now,
            clocked: false,
            least: None,
            most: None,
            timed: now,
            turn: 0,
            made: Timestamp::ZERO,
            lifetime: None,
            uses: 0,
            used_up: false,
            retired: false,
            unpooled: matches!(place, Place::ConnectingFor(_)),
            hint: None,
            reported: false,
            dead: None,
        }
    }

    pub(super) fn is_connecting(&self) -> bool {
        matches!(self.place, Place::Connecting | Place::ConnectingFor(_))
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self.place, Place::Idle | Place::Probed { .. })
    }

    pub(super) fn enter(&mut self, place: Place, now: Timestamp, turn: u64) {
        (self.place, self.since, self.clocked) = (place, now, false);
        (self.timed, self.turn, self.reported) = (now, turn, false);
        (self.least, self.most) = (None, None);
    }

    fn timeout(&self, config: &PoolConfig) -> Option<Duration> {
        match self.place {
            Place::Connecting | Place::ConnectingFor(_) => config.connect_timeout(),
            Place::Idle => config.idle_timeout(),
            Place::Probed { .. } => Some(config.heartbeat_timeout()),
            Place::Delivered(_) | Place::Held => config.hold_timeout(),
        }
    }

    pub(super) fn clock(&mut self, now: Timestamp, config: &PoolConfig) {
        (self.since, self.timed, self.clocked) = (now, now, true);
        self.least = self.timeout(config);
        self.most = self.least;
    }

    /// The limits have changed.
    pub(super) fn retune(&mut self, now: Timestamp, config: &PoolConfig) {
        if self.place == Place::Idle {
            self.timed = now;
        }
        let timeout = self.timeout(config);
        self.least = self.least.into_iter().chain(timeout).min();
        self.most = self.most.zip(timeout).map(|(old, new)| old.max(new));
    }

    /// How much of its peer's promise the margin leaves; `None` if none was given.
    pub(super) fn promised(&self, config: &PoolConfig) -> Option<Duration> {
        let millis = u64::try_from(self.hint?.as_millis()).unwrap_or(u64::MAX);
        Some(Duration::from_millis(millis).saturating_sub(config.keep_alive_margin()))
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) destination: usize,
    pub(super) arrival: u64,
    pub(super) clocked: bool,
    /// When it came, by the reading of the clock since.
    came: Timestamp,
    pub(super) deadline: Option<Timestamp>,
    pub(super) fresh: bool,
    /// No connect need be started for it before this time, or at all until the clock is read.
    pub(super) unripe: bool,
    pub(super) ripe: Option<Timestamp>,
    pub(super) delivered: Option<ConnId>,
    /// The unpooled connect for it.
    pub(super) overflown: Option<ConnId>,
    /// What must be its end in the same call.
    pub(super) doomed: Option<Rejection>,
}

impl Waiter {
    pub(super) fn new(destination: usize, arrival: u64, fresh: bool, unripe: bool) -> Self {
        Self {
            destination,
            arrival,
            clocked: false,
            came: Timestamp::ZERO,
            deadline: None,
            fresh,
            unripe,
            ripe: None,
            delivered: None,
            overflown: None,
            doomed: None,
        }
    }

    /// Whether it is in its queue.
    pub(super) fn is_waiting(&self) -> bool {
        self.delivered.is_none() && self.overflown.is_none()
    }

    pub(super) fn clock(&mut self, now: Timestamp, config: &PoolConfig) {
        self.clocked = true;
        self.came = now;
        self.deadline = config.acquire_timeout().map(|timeout| now + timeout);
        self.ripe = config.dial_delay().map(|delay| now + delay);
    }

    /// It is back in its queue, and its timers are set again, by the config of now.
    pub(super) fn put_back(&mut self, now: Timestamp, config: &PoolConfig) {
        self.delivered = None;
        let delay = config.dial_delay().map(|delay| self.came + delay);
        self.ripe = self.ripe.map(|_| delay.unwrap_or(now).max(now));
        self.deadline = self.deadline.map(|deadline| deadline.max(now));
    }

    /// Whether a connect has to be started for it, even while somebody may release.
    pub(super) fn is_ripe(&self, looked: Timestamp) -> bool {
        let ripe = self.ripe.is_none_or(|ripe| ripe + super::TICK <= looked);
        !self.unripe || (self.clocked && ripe)
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Destination {
    pub(super) key: Option<KeyId>,
    /// Whether anybody has asked for a connection since the key was made.
    pub(super) used: bool,
    /// When somebody has last done so, since the destination was retired.
    pub(super) asked: Option<Timestamp>,
    /// The last failure since the last success: connects may be held back for a while.
    pub(super) failed: Option<Timestamp>,
}

/// What a core has of a cap that it shares.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Permits {
    pub(super) held: u32,
    pub(super) asking: Asking,
    /// Another core waits for one.
    pub(super) owed: bool,
    /// It has got one in this call, whose effect comes before that of the close.
    pub(super) paid: bool,
    /// It has just been told that there is none, until the effects have run dry.
    pub(super) denied: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Asking {
    #[default]
    No,
    Asked,
    Queued,
}

/// The last few of many.
#[derive(Debug)]
pub(super) struct Ring<T> {
    kept: [Option<T>; 16],
    next: usize,
}

impl<T: Copy> Ring<T> {
    pub(super) const fn new() -> Self {
        Self {
            kept: [None; 16],
            next: 0,
        }
    }

    pub(super) fn push(&mut self, value: T) {
        self.kept[self.next % self.kept.len()] = Some(value);
        self.next += 1;
    }

    pub(super) fn draw(&self, dice: &mut Dice) -> Option<T> {
        self.kept[dice.place(self.kept.len())?]
    }
}
