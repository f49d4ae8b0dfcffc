//! Whether a destination has failed too much of late to be asked.

mod config;
mod window;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use pool_core::Timestamp;

pub use config::{BreakerConfig, BreakerConfigBuilder};

use config::MILLION;
use window::Window;

/// After such a time without use, what a breaker knows of its destination says nothing any more.
/// Were it kept for ever, so would the memory of each destination that broke and is gone.
const LAPSE: Duration = Duration::from_secs(600);

/// What a breaker does with attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BreakerState {
    /// They go ahead.
    Closed,
    /// They fail at once.
    Open,
    /// A few go ahead, to find out.
    HalfOpen,
}

impl fmt::Display for BreakerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half-open",
        })
    }
}

/// How an attempt ended, as far as it tells of the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Success,
    Failure,
    /// It tells nothing: cancelled, never sent, the caller's own fault.
    Neutral,
}

/// Leave to make one attempt, reported at most once. One that is never reported locks nothing, but
/// as a probe it keeps others away until the probe timeout; so an attempt that is dropped had
/// better report [`Outcome::Neutral`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a probe that is not reported keeps others away"]
pub(crate) struct Permit {
    generation: u64,
    /// Tells the probes of a generation apart; otherwise without meaning.
    probe: u64,
}

/// An attempt that goes ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    pub(crate) permit: Permit,
    pub(crate) transition: Option<Transition>,
}

/// An attempt that does not: no later one will before `retry_after`, which is never zero, unless a
/// probe is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is asked again in {retry_after:?} at the earliest")]
pub(crate) struct Open {
    pub(crate) retry_after: Duration,
}

/// A change of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transition {
    pub(crate) from: BreakerState,
    pub(crate) to: BreakerState,
    pub(crate) why: Cause,
}

/// Why a breaker changed its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    ConsecutiveFailures,
    FailureRate,
    /// It has been open for its time, and somebody asked.
    OpenTimePassed,
    ProbeFailed,
    ProbesSucceeded,
    /// Nobody had used it for so long that what it knew is worth nothing.
    Unused,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ConsecutiveFailures => "consecutive failures",
            Self::FailureRate => "failure rate",
            Self::OpenTimePassed => "its open time has passed",
            Self::ProbeFailed => "a probe failed",
            Self::ProbesSucceeded => "probes succeeded",
            Self::Unused => "unused for long",
        })
    }
}

/// What breakers have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BreakerCounts {
    /// How many times one opened.
    pub opened: u64,
    /// How many attempts failed at once.
    pub rejected: u64,
    /// How many attempts went ahead while one was half-open.
    pub probes: u64,
}

/// The breaker of one destination on one core; [`BreakerConfig`] says how it behaves.
///
/// Takes no clock: a `now` that is before an earlier one counts as that.
#[derive(Clone, Debug)]
pub(crate) struct Breaker {
    config: BreakerConfig,
    phase: Phase,
    /// Changes with every change of state, so that a permit tells under which it was given.
    generation: u64,
    latest: Timestamp,
    window: Window,
    /// Oldest first, which is the first to expire. It has the room that it needs from the moment
    /// of opening: a probe that succeeds allocates nothing.
    probes: VecDeque<Probe>,
    counts: BreakerCounts,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Closed {
        failures_in_a_row: u32,
        row_ends: Timestamp,
    },
    Open {
        until: Timestamp,
        open_for: Duration,
    },
    HalfOpen {
        successes: u32,
        /// How long it was open before.
        open_for: Duration,
        /// By then, whatever is in flight keeps nobody away.
        vacant: Timestamp,
    },
}

impl Phase {
    const CLOSED: Self = Self::Closed {
        failures_in_a_row: 0,
        row_ends: Timestamp::ZERO,
    };

    fn state(self) -> BreakerState {
        match self {
            Self::Closed { .. } => BreakerState::Closed,
            Self::Open { .. } => BreakerState::Open,
            Self::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Probe {
    number: u64,
    expires: Timestamp,
}

impl Breaker {
    pub(crate) fn new(config: &BreakerConfig, now: Timestamp) -> Self {
        Self {
            config: *config,
            phase: Phase::CLOSED,
            // Not from 0: a permit that outlives a forgotten breaker must mean nothing to the one
            // that is made in its place.
            generation: now.as_nanos(),
            latest: now,
            window: Window::new(config.window()),
            probes: VecDeque::new(),
            counts: BreakerCounts::default(),
        }
    }

    /// Asks for leave to make an attempt.
    pub(crate) fn admit(&mut self, now: Timestamp) -> Result<Admitted, Open> {
        let now = self.keep_time(now);
        let mut transition = self.lapse(now);
        if let Phase::Open { until, open_for } = self.phase {
            if now < until {
                return Err(self.reject(until, now));
            }
            let half_open = Phase::HalfOpen {
                successes: 0,
                open_for,
                vacant: until,
            };
            transition = Some(self.enter(half_open, Cause::OpenTimePassed));
        }
        let mut number = 0;
        if let Phase::HalfOpen { vacant, .. } = &mut self.phase {
            while self.probes.front().is_some_and(|p| p.expires <= now) {
                self.probes.pop_front();
            }
            let full = self.probes.len() >= self.config.probes() as usize;
            if let (true, Some(oldest)) = (full, self.probes.front()) {
                let expires = oldest.expires;
                return Err(self.reject(expires, now));
            }
            self.counts.probes += 1;
            number = self.counts.probes;
            let expires = now + self.config.probe_timeout();
            *vacant = expires;
            self.probes.push_back(Probe { number, expires });
        }
        let permit = Permit {
            generation: self.generation,
            probe: number,
        };
        Ok(Admitted { permit, transition })
    }

    /// Tells how an attempt ended. What was admitted before the last change of state changes
    /// nothing.
    pub(crate) fn report(
        &mut self,
        now: Timestamp,
        permit: Permit,
        outcome: Outcome,
    ) -> Option<Transition> {
        let now = self.keep_time(now);
        let lapsed = self.lapse(now);
        if permit.generation != self.generation {
            return lapsed;
        }
        match self.phase {
            Phase::Closed { .. } => self.report_closed(now, outcome),
            Phase::HalfOpen { .. } => self.report_probe(now, permit.probe, outcome),
            // No permit is of a generation that admits nobody.
            Phase::Open { .. } => None,
        }
    }

    /// The state. Open stays open until somebody asks, even when its time has passed.
    pub(crate) fn state(&self, now: Timestamp) -> BreakerState {
        if self.has_lapsed(now.max(self.latest)) {
            return BreakerState::Closed;
        }
        self.phase.state()
    }

    pub(crate) fn counts(&self) -> BreakerCounts {
        self.counts
    }

    /// Whether it behaves as a new one would, so that its owner may forget it. Its counts are lost
    /// with it, and attempts under way are not counted by the next.
    pub(crate) fn is_idle(&self, now: Timestamp) -> bool {
        let now = now.max(self.latest);
        match self.phase {
            Phase::Closed { row_ends, .. } => row_ends <= now && self.window.is_empty(now),
            Phase::Open { .. } | Phase::HalfOpen { .. } => self.has_lapsed(now),
        }
    }

    fn report_closed(&mut self, now: Timestamp, outcome: Outcome) -> Option<Transition> {
        let failed = match outcome {
            Outcome::Neutral => return None,
            Outcome::Success => false,
            Outcome::Failure => true,
        };
        if self.config.failure_millionths().is_some() {
            self.window.record(now, failed);
        }
        if !failed {
            self.phase = Phase::CLOSED;
            return None;
        }
        let in_a_row = self.lengthen_row(now);
        let why = if self
            .config
            .consecutive_failures()
            .is_some_and(|most| in_a_row >= most)
        {
            Cause::ConsecutiveFailures
        } else if self.fails_too_often() {
            Cause::FailureRate
        } else {
            return None;
        };
        Some(self.open(now, self.config.open_for(), why))
    }

    fn lengthen_row(&mut self, now: Timestamp) -> u32 {
        let Phase::Closed {
            failures_in_a_row,
            row_ends,
        } = &mut self.phase
        else {
            return 0;
        };
        let before = if now < *row_ends {
            *failures_in_a_row
        } else {
            0
        };
        *failures_in_a_row = before.saturating_add(1);
        *row_ends = now + self.config.window();
        *failures_in_a_row
    }

    fn fails_too_often(&self) -> bool {
        let Some(millionths) = self.config.failure_millionths() else {
            return false;
        };
        let (outcomes, failures) = self.window.counts();
        outcomes >= u64::from(self.config.min_requests())
            && failures * u64::from(MILLION) >= outcomes * u64::from(millionths)
    }

    fn report_probe(
        &mut self,
        now: Timestamp,
        number: u64,
        outcome: Outcome,
    ) -> Option<Transition> {
        // One that has expired is not there. Its outcome counts all the same: otherwise a
        // destination that is slower than the probe timeout would never be let back in.
        if let Ok(place) = self.probes.binary_search_by_key(&number, |p| p.number) {
            self.probes.remove(place);
        }
        let Phase::HalfOpen {
            successes,
            open_for,
            ..
        } = &mut self.phase
        else {
            return None;
        };
        match outcome {
            Outcome::Neutral => None,
            Outcome::Failure => {
                let longer = open_for.saturating_mul(2).min(self.config.max_open_for());
                Some(self.open(now, longer, Cause::ProbeFailed))
            }
            Outcome::Success => {
                *successes += 1;
                (*successes >= self.config.probes_to_close())
                    .then(|| self.close(Cause::ProbesSucceeded))
            }
        }
    }

    fn open(&mut self, now: Timestamp, open_for: Duration, why: Cause) -> Transition {
        self.counts.opened += 1;
        self.probes.clear();
        self.probes.reserve_exact(self.config.probes() as usize);
        let until = now + open_for;
        self.enter(Phase::Open { until, open_for }, why)
    }

    fn close(&mut self, why: Cause) -> Transition {
        self.probes = VecDeque::new();
        self.window.clear();
        self.enter(Phase::CLOSED, why)
    }

    fn enter(&mut self, phase: Phase, why: Cause) -> Transition {
        let from = self.phase.state();
        self.phase = phase;
        self.generation = self.generation.wrapping_add(1);
        Transition {
            from,
            to: phase.state(),
            why,
        }
    }

    fn reject(&mut self, until: Timestamp, now: Timestamp) -> Open {
        self.counts.rejected += 1;
        Open {
            retry_after: until.saturating_duration_since(now),
        }
    }

    fn lapse(&mut self, now: Timestamp) -> Option<Transition> {
        self.has_lapsed(now).then(|| self.close(Cause::Unused))
    }

    fn has_lapsed(&self, now: Timestamp) -> bool {
        match self.phase {
            Phase::Closed { .. } => false,
            Phase::Open { until: since, .. } | Phase::HalfOpen { vacant: since, .. } => {
                LAPSE <= now.saturating_duration_since(since)
            }
        }
    }

    fn keep_time(&mut self, now: Timestamp) -> Timestamp {
        self.latest = self.latest.max(now);
        self.latest
    }
}
