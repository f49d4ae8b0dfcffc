use core::fmt;

use crate::limits::Limit;
use crate::reuse::Reuse;

/// What kind of fault the peer's bytes have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// The peer closed before the message was whole; nothing else was wrong with it.
    Incomplete,
    /// The start line, a field line, the target or `Host` breaks the grammar or its rules.
    BadHead,
    /// `Content-Length` is not one number that fits 64 bits.
    BadLength,
    /// Anything wrong after the head in chunked framing, trailers included.
    BadChunk,
    /// Two framings that contradict each other, or a transfer coding that is not decoded here
    /// (RFC 9112 §6.1, §6.3).
    AmbiguousFraming,
    /// The named limit was exceeded.
    TooLarge(Limit),
    /// A well-formed HTTP version other than 1.0 and 1.1.
    UnsupportedVersion,
}

impl fmt::Display for DecodeErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Incomplete => f.write_str("message cut short"),
            Self::BadHead => f.write_str("malformed head"),
            Self::BadLength => f.write_str("bad Content-Length"),
            Self::BadChunk => f.write_str("malformed chunked body"),
            Self::AmbiguousFraming => f.write_str("ambiguous framing"),
            Self::TooLarge(limit) => write!(f, "limit {limit} exceeded"),
            Self::UnsupportedVersion => f.write_str("unsupported HTTP version"),
        }
    }
}

/// The peer sent something that cannot be read as HTTP/1.x here.
///
/// The message is lost and so is the place in the stream: the exchange keeps returning this same
/// error, and the connection must be closed. How the input was split never changes the kind, the
/// offset nor the reply status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeError {
    kind: DecodeErrorKind,
    detail: &'static str,
    offset: Option<u64>,
    reply: u16,
}

impl DecodeError {
    pub(crate) fn new(kind: DecodeErrorKind, detail: &'static str) -> Self {
        let reply = match kind {
            DecodeErrorKind::TooLarge(Limit::HeadBytes | Limit::Fields | Limit::TrailerBytes) => {
                431
            }
            DecodeErrorKind::TooLarge(Limit::TargetBytes) => 414,
            DecodeErrorKind::TooLarge(Limit::BodyBytes) => 413,
            DecodeErrorKind::UnsupportedVersion => 505,
            _ => 400,
        };
        Self {
            kind,
            detail,
            offset: None,
            reply,
        }
    }

    pub(crate) fn bad_head(detail: &'static str) -> Self {
        Self::new(DecodeErrorKind::BadHead, detail)
    }

    pub(crate) fn bad_chunk(detail: &'static str) -> Self {
        Self::new(DecodeErrorKind::BadChunk, detail)
    }

    pub(crate) fn incomplete(detail: &'static str) -> Self {
        Self::new(DecodeErrorKind::Incomplete, detail)
    }

    pub(crate) fn too_large(limit: Limit) -> Self {
        let detail = match limit {
            Limit::HeadBytes => "the head does not end within the bytes allowed",
            Limit::Fields => "more field lines than allowed",
            Limit::TargetBytes => "the request target is longer than allowed",
            Limit::ChunkLineBytes => "a chunk-size line is longer than allowed",
            Limit::ChunkExtensionBytes => "more bytes of chunk extensions than allowed",
            Limit::TrailerBytes => "the trailer section does not end within the bytes allowed",
            Limit::Interim => "more interim responses than allowed",
            Limit::BodyBytes => "the body is larger than allowed",
        };
        Self::new(DecodeErrorKind::TooLarge(limit), detail)
    }

    pub(crate) fn with_reply(mut self, status: u16) -> Self {
        self.reply = status;
        self
    }

    /// Places the error `at` bytes into the input not yet taken.
    pub(crate) fn at(mut self, at: usize) -> Self {
        self.offset = Some(at as u64);
        self
    }

    pub(crate) fn shifted_by(mut self, taken: u64) -> Self {
        self.offset = self.offset.map(|offset| offset + taken);
        self
    }

    /// The kind of fault.
    #[must_use]
    pub fn category(&self) -> DecodeErrorKind {
        self.kind
    }

    /// Bytes from the first byte this exchange was given to the byte at fault, where that is known.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        self.offset
    }

    /// The status to answer with: 400, 413, 414, 431, 501 or 505 to the client that sent the
    /// request, and 502 to the gateway's own client when it was a response that could not be read.
    #[must_use]
    pub fn reply_status(&self) -> u16 {
        self.reply
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.detail)?;
        if let Some(offset) = self.offset {
            write!(f, " (at byte {offset})")?;
        }
        Ok(())
    }
}

impl core::error::Error for DecodeError {}

/// The caller asked for something that must not be put on the wire. Nothing of it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The method is not a token (RFC 9110 §9.1).
    #[error("the method is not a token")]
    BadMethod,
    /// The request target is empty or has a byte other than visible ASCII.
    #[error("the request target is empty or has a byte other than visible ASCII")]
    BadTarget,
    /// The status cannot stand here: 1xx belongs to `interim`, all else to `respond`.
    #[error("status {0} cannot be sent here")]
    BadStatus(u16),
    /// The reason phrase has a control character.
    #[error("the reason phrase has a control character")]
    BadReason,
    /// The reason phrase was given after a field.
    #[error("the reason phrase must be given before the first field")]
    ReasonAfterFields,
    /// The field name is not a token (RFC 9110 §5.1).
    #[error("the field name is not a token")]
    BadFieldName,
    /// The field value has CR, LF, NUL or another control character (RFC 9110 §5.5).
    #[error("the field value has a control character")]
    BadFieldValue,
    /// `Content-Length` or `Transfer-Encoding`: written from the [`BodyLength`](crate::BodyLength).
    #[error("framing fields are written by the codec")]
    FramingField,
    /// `Connection` in a response: written from the reuse verdict.
    #[error("the Connection field of a response is written by the codec")]
    ConnectionField,
    /// An HTTP/1.1 request has no `Host` (RFC 9112 §3.2).
    #[error("the request has no Host field")]
    MissingHost,
    /// A request has a second `Host`.
    #[error("the request has more than one Host field")]
    DuplicateHost,
    /// The message may have no body: CONNECT and TRACE requests, answers to HEAD, 1xx, 204, 205, 304,
    /// and a response whose head was written with an empty one.
    #[error("this message may have no body")]
    BodyNotAllowed,
    /// A request body must end without closing the connection (RFC 9112 §6.3).
    #[error("a request body cannot be delimited by closing")]
    UntilCloseRequest,
    /// More body bytes than the head promised.
    #[error("{excess} body bytes more than the head promised")]
    BodyTooLong {
        /// Bytes beyond the promise.
        excess: u64,
    },
    /// The body ended before the bytes that the head promised.
    #[error("{missing} body bytes fewer than the head promised")]
    BodyTooShort {
        /// Bytes still owed.
        missing: u64,
    },
    /// The body was already ended.
    #[error("the body has already ended")]
    BodyEnded,
    /// The field may not stand in a trailer section (RFC 9110 §6.5.1).
    #[error("the field may not be sent as a trailer")]
    ForbiddenTrailer,
    /// The final response head was already written.
    #[error("the final response has already begun")]
    ResponseStarted,
    /// Body bytes were framed before the final response head was written.
    #[error("the final response head has not been written")]
    ResponseNotStarted,
    /// 101 in answer to a request that offered no upgrade (RFC 9110 §15.2.2).
    #[error("the request offered no upgrade")]
    UpgradeNotOffered,
    /// The next request cannot be read on this connection, or not yet.
    #[error("the next request cannot start: {0}")]
    NotReusable(Reuse),
}
