//! From a policy's verdict and the bounds of all retries to a decision.

use std::fmt;
use std::time::Duration;

use super::{FailedAttempt, Reason, RefusedResponse, RetryPolicy, Verdict};

/// What became of a request after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// It was sent again, or was to be, after a pause.
    Retry {
        /// Why.
        reason: Reason,
        /// For how long it waited first.
        pause: Duration,
    },
    /// It was not sent again.
    Stop(Reason),
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retry { reason, pause } => write!(f, "again after {pause:?}: {reason}"),
            Self::Stop(reason) => write!(f, "not again: {reason}"),
        }
    }
}

/// What bounds all retries alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) attempt: u32,
    /// Whether the body can be sent again.
    pub(crate) replayable: bool,
    /// Until the deadline of the request; `None` without one.
    pub(crate) time_left: Option<Duration>,
    /// Drawn evenly from 0 to 1, 1 excluded.
    pub(crate) chance: f64,
}

/// The decision, and whether the next attempt has to go over a fresh connection.
pub(crate) type Decided = (Decision, bool);

/// Decides after an attempt without a response.
pub(crate) fn after_failure(
    policy: &dyn RetryPolicy,
    failed: &FailedAttempt<'_>,
    bounds: &Bounds,
) -> Decided {
    decide(policy, policy.after_failure(failed), None, bounds)
}

/// Decides after a response; `asked` is its `Retry-After`.
pub(crate) fn after_response(
    policy: &dyn RetryPolicy,
    refused: &RefusedResponse<'_>,
    asked: Option<Duration>,
    bounds: &Bounds,
) -> Decided {
    decide(policy, policy.after_response(refused), asked, bounds)
}

fn decide(
    policy: &dyn RetryPolicy,
    verdict: Verdict,
    asked: Option<Duration>,
    bounds: &Bounds,
) -> Decided {
    let stop = |reason| (Decision::Stop(reason), false);
    let (reason, fresh) = match verdict {
        Verdict::RetryFresh(reason) => (reason, true),
        Verdict::Retry(reason) => (reason, false),
        Verdict::Stop(reason) => return stop(reason),
    };
    if bounds.attempt >= policy.max_attempts() {
        return stop(Reason::NoAttemptLeft);
    }
    if !bounds.replayable {
        return stop(Reason::BodyNotReplayable);
    }
    let asked = asked.unwrap_or_default();
    if asked > policy.max_retry_after() {
        return stop(Reason::RetryAfterTooLong);
    }
    // On top of what was asked for: all that were refused together would come back together.
    let pause = match fresh {
        true => asked,
        false => asked.saturating_add(policy.pause(bounds.attempt, bounds.chance)),
    };
    if bounds.time_left.is_some_and(|left| left <= pause) {
        return stop(Reason::NoTime);
    }
    (Decision::Retry { reason, pause }, fresh)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{ErrorKind, Phase, Sent};
    use crate::retry::{Backoff, RetryRequest, RetryTable};

    const BOUNDS: Bounds = Bounds {
        attempt: 1,
        replayable: true,
        time_left: None,
        chance: 0.5,
    };

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn policy() -> RetryTable {
        RetryTable::default().backoff(Backoff::fixed(seconds(1)))
    }

    fn timed_out<'a>() -> FailedAttempt<'a> {
        let mut failed = FailedAttempt::new(RetryRequest::new("GET"), ErrorKind::HeadTimeout);
        (failed.phase, failed.sent) = (Phase::Wait, Sent::All);
        failed
    }

    fn again(reason: Reason, pause: Duration) -> Decided {
        (Decision::Retry { reason, pause }, false)
    }

    fn not(reason: Reason) -> Decided {
        (Decision::Stop(reason), false)
    }

    #[test]
    fn what_bounds_all_retries_overrules_the_policy_and_nothing_overrules_its_refusal() {
        let failed = timed_out();
        let decided = |bounds: Bounds| after_failure(&policy(), &failed, &bounds);
        assert_eq!(decided(BOUNDS), again(Reason::Idempotent, seconds(1)));
        for attempt in [3, 4, u32::MAX] {
            let bounds = Bounds { attempt, ..BOUNDS };
            assert_eq!(decided(bounds), not(Reason::NoAttemptLeft));
        }
        let replayable = false;
        let bounds = Bounds {
            replayable,
            ..BOUNDS
        };
        assert_eq!(decided(bounds), not(Reason::BodyNotReplayable));
        for (left, expected) in [
            (Duration::ZERO, not(Reason::NoTime)),
            (seconds(1), not(Reason::NoTime)),
            (
                seconds(1) + Duration::from_nanos(1),
                again(Reason::Idempotent, seconds(1)),
            ),
        ] {
            let time_left = Some(left);
            assert_eq!(
                decided(Bounds {
                    time_left,
                    ..BOUNDS
                }),
                expected,
                "{left:?}"
            );
        }
        let refused = FailedAttempt {
            kind: ErrorKind::TlsFailed,
            ..failed
        };
        let bounds = Bounds {
            attempt: 9,
            replayable,
            ..BOUNDS
        };
        assert_eq!(
            after_failure(&policy(), &refused, &bounds),
            not(Reason::Final)
        );
    }

    #[test]
    fn a_stale_connection_is_replaced_at_once_by_a_fresh_one() {
        let stale = FailedAttempt {
            kind: ErrorKind::ClosedBeforeResponse,
            reused: true,
            ..timed_out()
        };
        let (decision, fresh) = after_failure(&policy(), &stale, &BOUNDS);
        let (reason, pause) = (Reason::Stale, Duration::ZERO);
        assert_eq!(decision, Decision::Retry { reason, pause });
        assert!(fresh);
    }

    #[test]
    fn a_retry_is_never_earlier_than_the_response_asks_and_too_long_a_pause_is_not_waited_for() {
        let refused = RefusedResponse::new(RetryRequest::new("GET"), 503);
        let decided = |asked| after_response(&policy(), &refused, asked, &BOUNDS);
        assert_eq!(decided(None), again(Reason::Idempotent, seconds(1)));
        assert_eq!(
            decided(Some(seconds(7))),
            again(Reason::Idempotent, seconds(8))
        );
        assert_eq!(
            decided(Some(seconds(30))),
            again(Reason::Idempotent, seconds(31))
        );
        for asked in [seconds(30) + Duration::from_nanos(1), Duration::MAX] {
            assert_eq!(decided(Some(asked)), not(Reason::RetryAfterTooLong));
        }
        let patient = policy().longest_retry_after(Duration::MAX);
        let forever = after_response(&patient, &refused, Some(Duration::MAX), &BOUNDS);
        assert_eq!(forever, again(Reason::Idempotent, Duration::MAX));
    }
}
