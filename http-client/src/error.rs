//! What went wrong with a request, how far it had come, and whose fault it was.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use http_codec::{DecodeError, DecodeErrorKind, EncodeError};
use pool_core::{AcquireError, CloseReason, ForceClosed};

use crate::connector::ConnectError;
use crate::destination::{Destination, InvalidDestination};
use crate::retry::Attempt;

/// Any error, for causes that come from outside.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// How far a request had come when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// It was being checked and encoded.
    Prepare,
    /// It waited for a connection.
    Acquire,
    /// A connection was being made for it.
    Connect,
    /// It was being written.
    Send,
    /// It was written; no byte of an answer had come.
    Wait,
    /// An answer had begun to come.
    Receive,
}

/// How much of the request the kernel had taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Sent {
    /// Not one byte: the peer cannot have seen it.
    None,
    /// Some of it.
    Part,
    /// All of it.
    All,
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller's request cannot be sent as it is.
    InvalidRequest,
    /// The caller's request body failed.
    RequestBody,
    /// The destination's breaker is open: it has failed too much of late to be asked.
    BreakerOpen,
    /// No connection came within the acquire timeout.
    AcquireTimeout,
    /// The cap on connections binds and the pending queue is full.
    QueueFull,
    /// The pool is draining.
    Draining,
    /// The destination's name could not be resolved.
    UnknownHost,
    /// The destination refused the connection.
    ConnectRefused,
    /// No connection could be made, for another reason.
    ConnectFailed,
    /// No connection was made within the connect timeout.
    ConnectTimeout,
    /// The TLS handshake failed: retrying it does not make a certificate valid.
    TlsFailed,
    /// The request could not be written, and no answer came.
    WriteFailed,
    /// The peer took nothing of the request for too long.
    WriteTimeout,
    /// The peer closed before the first byte of an answer.
    ClosedBeforeResponse,
    /// The connection was reset, or broke.
    Reset,
    /// The response head did not come in time.
    HeadTimeout,
    /// The attempt took longer than one attempt may.
    AttemptTimeout,
    /// The peer's answer is not HTTP, or exceeds a limit.
    MalformedResponse,
    /// The peer closed in the middle of its answer.
    Truncated,
    /// The body of the response paused for too long.
    BodyTimeout,
    /// The connection was held longer than the pool's hold timeout.
    HoldTimeout,
    /// The request took longer than it may, all its attempts and pauses together.
    TotalTimeout,
    /// The caller dropped the request. Nobody is left to be told; it stands in records of attempts.
    Cancelled,
}

impl ErrorKind {
    /// Every kind there is.
    pub const ALL: [Self; 23] = [
        Self::InvalidRequest,
        Self::RequestBody,
        Self::BreakerOpen,
        Self::AcquireTimeout,
        Self::QueueFull,
        Self::Draining,
        Self::UnknownHost,
        Self::ConnectRefused,
        Self::ConnectFailed,
        Self::ConnectTimeout,
        Self::TlsFailed,
        Self::WriteFailed,
        Self::WriteTimeout,
        Self::ClosedBeforeResponse,
        Self::Reset,
        Self::HeadTimeout,
        Self::AttemptTimeout,
        Self::MalformedResponse,
        Self::Truncated,
        Self::BodyTimeout,
        Self::HoldTimeout,
        Self::TotalTimeout,
        Self::Cancelled,
    ];

    const fn text(self) -> &'static str {
        match self {
            Self::InvalidRequest => "the request cannot be sent",
            Self::RequestBody => "the request body failed",
            Self::BreakerOpen => "the breaker is open",
            Self::AcquireTimeout => "no connection within the acquire timeout",
            Self::QueueFull => "the pending queue is full",
            Self::Draining => "the pool is draining",
            Self::UnknownHost => "the name could not be resolved",
            Self::ConnectRefused => "connection refused",
            Self::ConnectFailed => "connect failed",
            Self::ConnectTimeout => "connect timed out",
            Self::TlsFailed => "the TLS handshake failed",
            Self::WriteFailed => "the request could not be written",
            Self::WriteTimeout => "the request stalled on its way out",
            Self::ClosedBeforeResponse => "closed before a response",
            Self::Reset => "the connection was reset",
            Self::HeadTimeout => "no response head in time",
            Self::AttemptTimeout => "the attempt took too long",
            Self::MalformedResponse => "malformed response",
            Self::Truncated => "closed in the middle of the response",
            Self::BodyTimeout => "the response body paused for too long",
            Self::HoldTimeout => "the connection was held too long",
            Self::TotalTimeout => "the request took too long",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Why a request has no response, or a response no end.
#[derive(Debug)]
pub struct Error {
    details: Box<Details>,
}

#[derive(Debug)]
struct Details {
    kind: ErrorKind,
    phase: Phase,
    sent: Sent,
    reused: bool,
    attempt: u32,
    destination: Option<Box<str>>,
    attempts: Vec<Attempt>,
    source: Option<BoxError>,
}

impl Error {
    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.details.kind
    }

    /// How far the request had come.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.details.phase
    }

    /// How much of the request the kernel had taken, in the last attempt.
    #[must_use]
    pub fn sent(&self) -> Sent {
        self.details.sent
    }

    /// Whether the last attempt went over a connection that had been used before.
    #[must_use]
    pub fn is_reused(&self) -> bool {
        self.details.reused
    }

    /// The number of the last attempt, from 1; 0 if there was none.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.details.attempt
    }

    /// Where the request was to go, unless that was what was wrong.
    #[must_use]
    pub fn destination(&self) -> Option<&str> {
        self.details.destination.as_deref()
    }

    /// What became of each attempt and why, in order, the last one included. Empty where there was
    /// none, and where the body of a response that was accepted failed.
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        &self.details.attempts
    }

    /// The error of the operating system at the bottom of it, if there is one.
    #[must_use]
    pub fn io(&self) -> Option<&io::Error> {
        let mut source = StdError::source(self);
        while let Some(error) = source {
            if let Some(error) = error.downcast_ref() {
                return Some(error);
            }
            source = error.source();
        }
        None
    }

    pub(crate) fn new(failure: Failure, at: &At, attempts: Vec<Attempt>) -> Self {
        let details = Details {
            kind: failure.kind,
            phase: at.phase,
            sent: at.sent,
            reused: at.reused,
            attempt: at.attempt,
            destination: Some(at.destination.to_string().into()),
            attempts,
            source: failure.source,
        };
        Self {
            details: Box::new(details),
        }
    }

    pub(crate) fn invalid(source: impl Into<BoxError>) -> Self {
        let details = Details {
            kind: ErrorKind::InvalidRequest,
            phase: Phase::Prepare,
            sent: Sent::None,
            reused: false,
            attempt: 0,
            destination: None,
            attempts: Vec::new(),
            source: Some(source.into()),
        };
        Self {
            details: Box::new(details),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.details.kind.text())?;
        if let Some(destination) = &self.details.destination {
            write!(f, " ({destination})")?;
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.details.source.as_deref().map(|source| source as _)
    }
}

impl From<InvalidDestination> for Error {
    fn from(error: InvalidDestination) -> Self {
        Self::invalid(error)
    }
}

impl From<EncodeError> for Error {
    fn from(error: EncodeError) -> Self {
        Self::invalid(error)
    }
}

/// Where an attempt stood when it failed.
pub(crate) struct At {
    pub(crate) phase: Phase,
    pub(crate) sent: Sent,
    pub(crate) reused: bool,
    pub(crate) attempt: u32,
    pub(crate) destination: Destination,
}

impl At {
    /// Before anything was sent.
    pub(crate) fn unsent(phase: Phase, attempt: u32, destination: &Destination) -> Self {
        Self {
            phase,
            sent: Sent::None,
            reused: false,
            attempt,
            destination: destination.clone(),
        }
    }
}

/// What went wrong in an attempt, before it is known where that stood.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: ErrorKind,
    pub(crate) source: Option<BoxError>,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind) -> Self {
        Self { kind, source: None }
    }

    pub(crate) fn because(kind: ErrorKind, source: impl Into<BoxError>) -> Self {
        Self {
            kind,
            source: Some(source.into()),
        }
    }

    /// A read failed; `otherwise` is the kind where it is nothing more special.
    pub(crate) fn of_io(error: io::Error, otherwise: ErrorKind) -> Self {
        let forced = ForceClosed::find(&error).map(ForceClosed::reason);
        let kind = match (forced, error.kind()) {
            (Some(CloseReason::HoldTimeout), _) => ErrorKind::HoldTimeout,
            (Some(_), _) => ErrorKind::Draining,
            (None, io::ErrorKind::ConnectionReset) => ErrorKind::Reset,
            _ => otherwise,
        };
        Self::because(kind, error)
    }

    /// The bytes that came, or their end, are not a response. `begun`: some had come.
    pub(crate) fn of_decode(error: DecodeError, begun: bool) -> Self {
        match error.category() {
            DecodeErrorKind::Incomplete if begun => Self::because(ErrorKind::Truncated, error),
            DecodeErrorKind::Incomplete => Self::because(ErrorKind::ClosedBeforeResponse, error),
            _ => Self::because(ErrorKind::MalformedResponse, error),
        }
    }

    /// No connection was acquired.
    pub(crate) fn of_acquire<E>(error: AcquireError<E>) -> (Self, Phase)
    where
        E: StdError + Send + Sync + 'static,
    {
        let (kind, phase) = match &error {
            AcquireError::AcquireTimeout => (ErrorKind::AcquireTimeout, Phase::Acquire),
            AcquireError::QueueFull { .. } => (ErrorKind::QueueFull, Phase::Acquire),
            AcquireError::Draining => (ErrorKind::Draining, Phase::Acquire),
            AcquireError::ConnectTimeout => (ErrorKind::ConnectTimeout, Phase::Connect),
            error => (of_connect(error), Phase::Connect),
        };
        (Self::because(kind, error), phase)
    }
}

/// Why no connection was made: the first cause that says more than that none was.
fn of_connect(error: &(dyn StdError + 'static)) -> ErrorKind {
    let mut cause = Some(error);
    while let Some(error) = cause {
        match error.downcast_ref() {
            // Too many names at a time: nothing is known of this one.
            Some(ConnectError::Resolve { source, .. })
                if source.kind() == io::ErrorKind::ResourceBusy =>
            {
                return ErrorKind::ConnectFailed;
            }
            Some(ConnectError::Resolve { .. }) => return ErrorKind::UnknownHost,
            Some(ConnectError::Tls { .. }) => return ErrorKind::TlsFailed,
            Some(ConnectError::Connect { .. }) | None => {}
        }
        let io = error.downcast_ref().map(io::Error::kind);
        if io == Some(io::ErrorKind::ConnectionRefused) {
            return ErrorKind::ConnectRefused;
        }
        cause = error.source();
    }
    ErrorKind::ConnectFailed
}
