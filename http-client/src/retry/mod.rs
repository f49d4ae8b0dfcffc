//! When a request is sent again, and when not: pure decisions. Time and chance are passed in.
//!
//! An attempt ends in a failure or in a response, and the two are judged apart: a [`FailedAttempt`]
//! by its kind, its phase and what was sent, a [`RefusedResponse`] by its status. A [`RetryPolicy`]
//! gives the [`Verdict`]; what bounds all retries alike (attempts, deadline, budget, a body that
//! cannot be sent again) is not left to it.

mod attempt;
mod backoff;
mod breaker;
mod budget;
mod engine;
mod policy;
mod presets;
mod reason;
mod retry_after;

pub use attempt::{Attempt, Outcome};
pub use backoff::{Backoff, Jitter};
pub use breaker::{BreakerConfig, BreakerConfigBuilder, BreakerCounts, BreakerState};
pub use budget::{BudgetConfig, BudgetConfigBuilder};
pub use engine::Decision;
pub use policy::{RetryTable, Rule};
pub use presets::JdkSwitches;
pub use reason::Reason;

pub(crate) use attempt::retried_before;
pub(crate) use breaker::{Breaker, Open, Outcome as Report, Permit, Transition};
pub(crate) use budget::RetryBudget;
pub(crate) use engine::{Bounds, Decided, after_failure, after_response};
pub(crate) use retry_after::longest as longest_retry_after;

use std::time::Duration;

use crate::error::{ErrorKind, Phase, Sent};
use crate::outgoing::is_idempotent;

/// What a policy is told of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryRequest<'a> {
    /// The method. Case matters (RFC 9110 §9.1).
    pub method: &'a str,
    /// Whether sending it twice has the effect of sending it once: by its method (RFC 9110
    /// §9.2.2, and QUERY), or because the caller says so.
    pub idempotent: bool,
    /// Whether its head announces a body, even one of length 0.
    pub has_body: bool,
}

impl<'a> RetryRequest<'a> {
    /// A request without a body, idempotent by its method.
    #[must_use]
    pub fn new(method: &'a str) -> Self {
        Self {
            method,
            idempotent: is_idempotent(method),
            has_body: false,
        }
    }
}

/// An attempt that brought no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedAttempt<'a> {
    /// What was sent, or was to be.
    pub request: RetryRequest<'a>,
    /// What went wrong.
    pub kind: ErrorKind,
    /// How far the attempt had come.
    pub phase: Phase,
    /// How much of the request the kernel had taken.
    pub sent: Sent,
    /// Whether it went over a connection that had been used before.
    pub reused: bool,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// How many attempts before it were retried for the same cause: that no connection could be
    /// made, that a reused one was lost before the first byte of an answer, or otherwise the same
    /// kind.
    pub retried_before: u32,
}

impl<'a> FailedAttempt<'a> {
    /// The first attempt, over a fresh connection, that failed before anything was sent.
    #[must_use]
    pub fn new(request: RetryRequest<'a>, kind: ErrorKind) -> Self {
        Self {
            request,
            kind,
            phase: Phase::Acquire,
            sent: Sent::None,
            reused: false,
            attempt: 1,
            retried_before: 0,
        }
    }
}

/// An attempt that brought a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefusedResponse<'a> {
    /// What was sent.
    pub request: RetryRequest<'a>,
    /// The status of the response, from 400.
    pub status: u16,
    /// The number of the attempt, from 1.
    pub attempt: u32,
}

impl<'a> RefusedResponse<'a> {
    /// The response to the first attempt.
    #[must_use]
    pub fn new(request: RetryRequest<'a>, status: u16) -> Self {
        Self {
            request,
            status,
            attempt: 1,
        }
    }
}

/// What a policy says of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// At once, on a fresh connection: nothing says that the destination is in trouble.
    RetryFresh(Reason),
    /// After a pause.
    Retry(Reason),
    /// Not again: the caller gets the failure, or the response.
    Stop(Reason),
}

/// When to send a request again. The presets are values of one table type.
///
/// A policy says what it would do. What bounds all retries alike is looked at besides: how many
/// attempts there may be, whether the body can be sent again, the deadline, the budget.
///
/// It is asked after every failure, and after responses of status 400 and above.
pub trait RetryPolicy {
    /// How many attempts a request may have, the first included; 1 is no retry.
    fn max_attempts(&self) -> u32;

    /// Judges an attempt without a response.
    fn after_failure(&self, failed: &FailedAttempt<'_>) -> Verdict;

    /// Judges a response by its status.
    fn after_response(&self, refused: &RefusedResponse<'_>) -> Verdict;

    /// The pause before retry number `retry`, from 1. `chance` is drawn evenly from 0 to 1, 1
    /// excluded.
    fn pause(&self, retry: u32, chance: f64) -> Duration;

    /// The longest `Retry-After` that is waited for. A response that asks for more is handed over.
    fn max_retry_after(&self) -> Duration;
}
