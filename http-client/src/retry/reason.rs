use std::fmt;

/// Why a request is sent again, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Again: the peer closed a reused connection the moment it was acquired.
    Stale,
    /// Again: not one byte had left.
    NothingSent,
    /// Again: not all of it had left.
    NotWhollySent,
    /// Again: it may be repeated, by its method or by the caller's word.
    Idempotent,
    /// Again: it carries no entity.
    NoEntity,
    /// Again: the policy retries this whatever the request.
    Always,
    /// Not: it succeeded, or the policy never retries this.
    Final,
    /// Not: it may have been acted on, and may not be repeated.
    NotIdempotent,
    /// Not: it carries an entity.
    Entity,
    /// Not: all of it had left, and the policy retries only what had not.
    WhollySent,
    /// Not: the connection was fresh, or an answer had begun to come, and the policy retries only
    /// what a reused connection loses before that.
    NotStale,
    /// Not: it was retried for this already, as often as the policy allows.
    RetriedBefore,
    /// Not: no attempt is left.
    NoAttemptLeft,
    /// Not: its body was a stream, and has been read.
    BodyNotReplayable,
    /// Not: the retry budget of the destination is used up.
    NoBudget,
    /// Not: the deadline of the request comes before the end of the pause.
    NoTime,
    /// Not: the response asks for a longer pause than the policy allows.
    RetryAfterTooLong,
    /// Not: the caller has dropped it.
    Cancelled,
}

impl Reason {
    const fn text(self) -> &'static str {
        match self {
            Self::Stale => "the reused connection had been closed",
            Self::NothingSent => "nothing had been sent",
            Self::NotWhollySent => "not all of it had been sent",
            Self::Idempotent => "it may be repeated",
            Self::NoEntity => "it carries no entity",
            Self::Entity => "it carries an entity",
            Self::Always => "always retried",
            Self::Final => "never retried",
            Self::NotIdempotent => "it may not be repeated",
            Self::WhollySent => "all of it had been sent",
            Self::NotStale => "the connection was not stale",
            Self::RetriedBefore => "retried for this before",
            Self::NoAttemptLeft => "no attempt left",
            Self::BodyNotReplayable => "its body cannot be sent again",
            Self::NoBudget => "the retry budget is used up",
            Self::NoTime => "no time left",
            Self::RetryAfterTooLong => "the pause asked for is too long",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}
