use std::fmt;
use std::time::Duration;

use super::Decision;
use crate::error::{At, ErrorKind, Failure, Phase, Sent};

/// One attempt of a request, how it ended, and what was decided then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub(crate) number: u32,
    pub(crate) destination: Box<str>,
    pub(crate) reused: bool,
    pub(crate) outcome: Outcome,
    pub(crate) decision: Decision,
    pub(crate) elapsed: Duration,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Without a response.
    Failed {
        /// What went wrong.
        kind: ErrorKind,
        /// How far it had come.
        phase: Phase,
        /// How much of the request the kernel had taken.
        sent: Sent,
    },
    /// With a response of this status.
    Refused(u16),
}

impl Outcome {
    pub(crate) fn of(failure: &Failure, at: &At) -> Self {
        Self::Failed {
            kind: failure.kind,
            phase: at.phase,
            sent: at.sent,
        }
    }
}

impl Attempt {
    /// Its number, from 1.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Where it went, or was to go.
    #[must_use]
    pub fn destination(&self) -> &str {
        &self.destination
    }

    /// Whether it went over a connection that had been used before.
    #[must_use]
    pub fn is_reused(&self) -> bool {
        self.reused
    }

    /// How it ended.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// What was decided then, and why.
    #[must_use]
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// How long the request had taken by then, earlier attempts and pauses included.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    fn was_retried_for(&self, cause: Cause) -> bool {
        let Outcome::Failed { kind, phase, .. } = self.outcome else {
            return false;
        };
        let retried = matches!(self.decision, Decision::Retry { .. });
        retried && Cause::of(kind, phase, self.reused) == cause
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { kind, .. } => fmt::Display::fmt(kind, f),
            Self::Refused(status) => write!(f, "status {status}"),
        }
    }
}

/// What counts as one where something is retried so many times for the same cause.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    Unconnected,
    /// A reused connection was lost before the first byte of an answer.
    Expired,
    Other(ErrorKind),
}

impl Cause {
    fn of(kind: ErrorKind, phase: Phase, reused: bool) -> Self {
        match kind {
            ErrorKind::ConnectRefused | ErrorKind::ConnectFailed => Self::Unconnected,
            ErrorKind::WriteFailed | ErrorKind::ClosedBeforeResponse | ErrorKind::Reset
                if reused && phase < Phase::Receive =>
            {
                Self::Expired
            }
            other => Self::Other(other),
        }
    }
}

/// [`FailedAttempt::retried_before`] of an attempt that comes after these.
pub(crate) fn retried_before(
    attempts: &[Attempt],
    kind: ErrorKind,
    phase: Phase,
    reused: bool,
) -> u32 {
    let cause = Cause::of(kind, phase, reused);
    let retried = attempts
        .iter()
        .filter(|attempt| attempt.was_retried_for(cause));
    u32::try_from(retried.count()).unwrap_or(u32::MAX)
}
