use core::fmt;

/// May the connection carry another exchange?
///
/// Only `KeepAlive` may lead to the idle set. The verdict joins every rule of RFC 9112 §9.3 with
/// what is known to put connections out of step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// The exchange is under way and nothing forbids reuse so far.
    NotYet,
    /// Both halves ended clean; the next exchange may begin.
    KeepAlive,
    /// Never again, for this reason. May be known before the exchange has ended.
    MustClose(MustClose),
}

impl fmt::Display for Reuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotYet => f.write_str("the exchange has not ended"),
            Self::KeepAlive => f.write_str("the connection may be kept"),
            Self::MustClose(why) => write!(f, "the connection must close: {why}"),
        }
    }
}

/// Why a connection must not carry another exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MustClose {
    /// The peer sent bytes that could not be decoded.
    DecodeFailed,
    /// The peer's end of file was seen.
    PeerClosed,
    /// The connection speaks another protocol now: 101, or 2xx to CONNECT.
    Upgraded,
    /// We sent `Connection: close`.
    CloseSent,
    /// The peer sent `Connection: close`.
    CloseReceived,
    /// An HTTP/1.0 peer did not ask for `keep-alive`.
    Http10,
    /// The body is delimited by the end of the connection.
    UntilClose,
    /// Length and chunked framing stood side by side (RFC 9112 §6.3).
    AmbiguousFraming,
    /// A 204 announced a body, which may follow (RFC 9110 §8.6).
    LengthWithoutBody,
    /// Bytes that nobody asked for follow the message.
    UnreadBytes,
    /// A response was written although no request head could be read.
    NoRequest,
}

impl fmt::Display for MustClose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DecodeFailed => "the peer's bytes could not be decoded",
            Self::PeerClosed => "the peer closed",
            Self::Upgraded => "the connection was upgraded",
            Self::CloseSent => "we asked to close",
            Self::CloseReceived => "the peer asked to close",
            Self::Http10 => "HTTP/1.0 without keep-alive",
            Self::UntilClose => "the body ends with the connection",
            Self::AmbiguousFraming => "ambiguous framing",
            Self::LengthWithoutBody => "a response without a body announced one",
            Self::UnreadBytes => "unread bytes after the message",
            Self::NoRequest => "no request head was read",
        })
    }
}

/// How far an exchange came, for whoever decides on a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Progress {
    /// No byte of the request has left.
    Unsent,
    /// The head has begun to leave; the body is not framed to its end.
    Sending,
    /// The request has been framed to its end.
    Sent,
    /// A byte of a response, interim or final, has come.
    Responding,
    /// The final response has come to its end.
    Done,
}
