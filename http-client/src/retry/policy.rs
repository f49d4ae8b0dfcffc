//! A policy as a table: a rule for each kind of failure, a set of statuses, and the pauses.

use std::fmt;
use std::time::Duration;

use pool_core::ConfigError;

use super::{Backoff, FailedAttempt, Reason, RefusedResponse, RetryPolicy, RetryRequest, Verdict};
use crate::error::{ErrorKind, Phase, Sent};

/// Which requests are sent again after a failure of some kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// None.
    Never,
    /// All.
    Always,
    /// Those of which not one byte had left, and those that may be repeated: by their method, or
    /// because the caller says so.
    Idempotent,
    /// As `Idempotent`, once, at once and over a fresh connection, where a reused connection broke
    /// before the first byte of an answer: the peer had closed it the moment it was acquired. On
    /// any other connection those of which not one byte had left.
    Stale,
    /// Those without an entity: GET, HEAD, DELETE, OPTIONS and TRACE whose head announces no body.
    NoEntity,
    /// Those without an entity, and of the others those that had not left as a whole.
    NoEntityOrNotWhollySent,
    /// GET and HEAD.
    GetOrHead,
    /// GET and HEAD, once, where a reused connection broke before the first byte of an answer.
    ExpiredGetOrHead,
    /// All, once, where a reused connection broke before the first byte of an answer.
    Expired,
    /// All, once.
    Once,
}

impl Rule {
    const fn text(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Always => "always",
            Self::Idempotent => "unsent or idempotent",
            Self::Stale => "stale and unsent or idempotent, once; else unsent",
            Self::NoEntity => "no entity",
            Self::NoEntityOrNotWhollySent => "no entity, or not wholly sent",
            Self::GetOrHead => "GET, HEAD",
            Self::ExpiredGetOrHead => "expired, GET, HEAD, once",
            Self::Expired => "expired, once",
            Self::Once => "once",
        }
    }

    fn judge(self, failed: &FailedAttempt<'_>) -> Verdict {
        let request = &failed.request;
        let pause = |reason: Option<Reason>, otherwise| {
            reason.map_or(Verdict::Stop(otherwise), Verdict::Retry)
        };
        let once = |verdict| match failed.retried_before {
            0 => verdict,
            _ => Verdict::Stop(Reason::RetriedBefore),
        };
        let expired = failed.reused && failed.phase < Phase::Receive;
        match self {
            Self::Never => Verdict::Stop(Reason::Final),
            Self::Always => Verdict::Retry(Reason::Always),
            Self::Idempotent => pause(may_be_repeated(failed), Reason::NotIdempotent),
            Self::Stale if expired && failed.retried_before == 0 => match may_be_repeated(failed) {
                Some(_) => Verdict::RetryFresh(Reason::Stale),
                None => Verdict::Stop(Reason::NotIdempotent),
            },
            Self::Stale if failed.sent == Sent::None => Verdict::Retry(Reason::NothingSent),
            Self::Stale if expired => Verdict::Stop(Reason::RetriedBefore),
            Self::Stale => Verdict::Stop(Reason::NotStale),
            Self::NoEntity => pause(no_entity(request), Reason::Entity),
            Self::NoEntityOrNotWhollySent if failed.sent != Sent::All => {
                Verdict::Retry(Reason::NotWhollySent)
            }
            Self::NoEntityOrNotWhollySent => pause(no_entity(request), Reason::WhollySent),
            Self::GetOrHead => pause(get_or_head(request), Reason::NotIdempotent),
            Self::ExpiredGetOrHead if expired => match get_or_head(request) {
                Some(_) => once(Verdict::RetryFresh(Reason::Stale)),
                None => Verdict::Stop(Reason::NotIdempotent),
            },
            Self::Expired if expired => once(Verdict::RetryFresh(Reason::Stale)),
            Self::ExpiredGetOrHead | Self::Expired => Verdict::Stop(Reason::NotStale),
            Self::Once => once(Verdict::Retry(Reason::Always)),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

fn may_be_repeated(failed: &FailedAttempt<'_>) -> Option<Reason> {
    match failed.sent {
        Sent::None => Some(Reason::NothingSent),
        _ if failed.request.idempotent => Some(Reason::Idempotent),
        _ => None,
    }
}

fn no_entity(request: &RetryRequest<'_>) -> Option<Reason> {
    let bare = matches!(
        request.method,
        "GET" | "HEAD" | "DELETE" | "OPTIONS" | "TRACE"
    );
    (bare && !request.has_body).then_some(Reason::NoEntity)
}

fn get_or_head(request: &RetryRequest<'_>) -> Option<Reason> {
    matches!(request.method, "GET" | "HEAD").then_some(Reason::Idempotent)
}

/// A rule for each kind of failure that a retry may cure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    pub(super) acquire_timeout: Rule,
    pub(super) unknown_host: Rule,
    pub(super) connect_refused: Rule,
    pub(super) connect_failed: Rule,
    pub(super) connect_timeout: Rule,
    pub(super) tls_failed: Rule,
    pub(super) write_failed: Rule,
    pub(super) write_timeout: Rule,
    pub(super) closed_before_response: Rule,
    pub(super) reset: Rule,
    pub(super) head_timeout: Rule,
    pub(super) attempt_timeout: Rule,
    pub(super) malformed_response: Rule,
}

impl Rules {
    pub(super) const NEVER: Self = Self {
        acquire_timeout: Rule::Never,
        unknown_host: Rule::Never,
        connect_refused: Rule::Never,
        connect_failed: Rule::Never,
        connect_timeout: Rule::Never,
        tls_failed: Rule::Never,
        write_failed: Rule::Never,
        write_timeout: Rule::Never,
        closed_before_response: Rule::Never,
        reset: Rule::Never,
        head_timeout: Rule::Never,
        attempt_timeout: Rule::Never,
        malformed_response: Rule::Never,
    };

    /// `None` for what no retry cures: the caller's own faults, limits that bind already, and what
    /// happens once the head has been handed over.
    fn of(&mut self, kind: ErrorKind) -> Option<&mut Rule> {
        Some(match kind {
            ErrorKind::AcquireTimeout => &mut self.acquire_timeout,
            ErrorKind::UnknownHost => &mut self.unknown_host,
            ErrorKind::ConnectRefused => &mut self.connect_refused,
            ErrorKind::ConnectFailed => &mut self.connect_failed,
            ErrorKind::ConnectTimeout => &mut self.connect_timeout,
            ErrorKind::TlsFailed => &mut self.tls_failed,
            ErrorKind::WriteFailed => &mut self.write_failed,
            ErrorKind::WriteTimeout => &mut self.write_timeout,
            ErrorKind::ClosedBeforeResponse => &mut self.closed_before_response,
            ErrorKind::Reset => &mut self.reset,
            ErrorKind::HeadTimeout => &mut self.head_timeout,
            ErrorKind::AttemptTimeout => &mut self.attempt_timeout,
            ErrorKind::MalformedResponse => &mut self.malformed_response,
            ErrorKind::InvalidRequest
            | ErrorKind::RequestBody
            | ErrorKind::BreakerOpen
            | ErrorKind::QueueFull
            | ErrorKind::Draining
            | ErrorKind::Truncated
            | ErrorKind::BodyTimeout
            | ErrorKind::HoldTimeout
            | ErrorKind::TotalTimeout
            | ErrorKind::Cancelled => return None,
        })
    }
}

/// Statuses from 400 to 599.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Statuses([u64; 4]);

impl Statuses {
    pub(super) const NONE: Self = Self([0; 4]);

    /// Those outside 400 to 599 are left out.
    pub(super) const fn of(statuses: &[u16]) -> Self {
        let mut set = Self::NONE;
        let mut at = 0;
        while at < statuses.len() {
            if let Some((word, bit)) = Self::place(statuses[at]) {
                set.0[word] |= bit;
            }
            at += 1;
        }
        set
    }

    const fn contains(&self, status: u16) -> bool {
        match Self::place(status) {
            Some((word, bit)) => self.0[word] & bit != 0,
            None => false,
        }
    }

    const fn place(status: u16) -> Option<(usize, u64)> {
        if status < 400 || status > 599 {
            return None;
        }
        let at = status - 400;
        Some(((at / 64) as usize, 1 << (at % 64)))
    }
}

/// A [`RetryPolicy`] as a table. The presets are values of it; docs/RETRIES.md shows them side by
/// side.
///
/// ```
/// use http_client::{ErrorKind, RetryTable, Rule};
///
/// let patient = RetryTable::default()
///     .retries(4)
///     .rule(ErrorKind::HeadTimeout, Rule::Never)?;
/// assert_eq!(patient.rule_of(ErrorKind::HeadTimeout), Rule::Never);
///
/// let error = patient.rule(ErrorKind::Cancelled, Rule::Always).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "kind is cancelled, expected one that a retry may cure"
/// );
/// # Ok::<(), pool_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryTable {
    pub(super) name: &'static str,
    pub(super) max_attempts: u32,
    pub(super) rules: Rules,
    pub(super) statuses: Statuses,
    pub(super) backoff: Backoff,
    pub(super) max_retry_after: Duration,
}

impl RetryTable {
    /// How many times a request may be sent again. Range: any; 0 is no retry.
    #[must_use]
    pub fn retries(mut self, retries: u32) -> Self {
        self.max_attempts = retries.saturating_add(1);
        self
    }

    /// Which requests are sent again after a failure of this kind.
    ///
    /// The rule for [`AttemptTimeout`](ErrorKind::AttemptTimeout) is for attempts that had a
    /// connection. One that ran out of time waiting for one is judged as an acquire timeout.
    ///
    /// # Errors
    ///
    /// [`ConfigError::OutOfRange`] for a kind that no retry cures: the caller's own faults, limits
    /// that bind already, and what happens once the head of a response has been handed over.
    pub fn rule(mut self, kind: ErrorKind, rule: Rule) -> Result<Self, ConfigError> {
        match self.rules.of(kind) {
            Some(place) => *place = rule,
            None => return Err(out_of_range("kind", kind, "one that a retry may cure")),
        }
        Ok(self)
    }

    /// The statuses for which a request that may be repeated is sent again.
    ///
    /// # Errors
    ///
    /// [`ConfigError::OutOfRange`] for one outside 400 to 599.
    pub fn statuses(mut self, statuses: &[u16]) -> Result<Self, ConfigError> {
        let outside = |status: &&u16| !(400..=599).contains(*status);
        if let Some(status) = statuses.iter().find(outside) {
            return Err(out_of_range("status", status, "400 to 599"));
        }
        self.statuses = Statuses::of(statuses);
        Ok(self)
    }

    /// The pauses before retries.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// The longest `Retry-After` that is waited for; a response that asks for more is handed over.
    /// Zero waits for none, [`Duration::MAX`] for all.
    #[must_use]
    pub fn longest_retry_after(mut self, longest: Duration) -> Self {
        self.max_retry_after = longest;
        self
    }

    /// The name of the preset that it began as.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The rule for this kind of failure.
    #[must_use]
    pub fn rule_of(&self, kind: ErrorKind) -> Rule {
        let mut rules = self.rules;
        rules.of(kind).map_or(Rule::Never, |rule| *rule)
    }

    /// Whether a request that may be repeated is sent again for this status.
    #[must_use]
    pub fn retries_status(&self, status: u16) -> bool {
        self.statuses.contains(status)
    }
}

fn out_of_range(field: &'static str, given: impl fmt::Display, expected: &str) -> ConfigError {
    ConfigError::OutOfRange {
        field,
        given: given.to_string(),
        expected: expected.to_owned(),
    }
}

impl RetryPolicy for RetryTable {
    fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    fn after_failure(&self, failed: &FailedAttempt<'_>) -> Verdict {
        // Else a timeout for attempts would let the queue for connections be joined again, where
        // an acquire timeout does not.
        let kind = match (failed.kind, failed.phase) {
            (ErrorKind::AttemptTimeout, Phase::Acquire) => ErrorKind::AcquireTimeout,
            (kind, _) => kind,
        };
        self.rule_of(kind).judge(failed)
    }

    /// A response answers a request that was sent, so only those that may be repeated are, even
    /// for 429 and 503.
    fn after_response(&self, refused: &RefusedResponse<'_>) -> Verdict {
        if !self.statuses.contains(refused.status) {
            Verdict::Stop(Reason::Final)
        } else if refused.request.idempotent {
            Verdict::Retry(Reason::Idempotent)
        } else {
            Verdict::Stop(Reason::NotIdempotent)
        }
    }

    fn pause(&self, retry: u32, chance: f64) -> Duration {
        self.backoff.pause(retry, chance)
    }

    fn max_retry_after(&self) -> Duration {
        self.max_retry_after
    }
}
