//! What a client gets when the gateway answers itself: a status, and if something is wrong a line
//! that names the reason and a `Proxy-Status` field (RFC 9209).

use std::io;

use http_client::{Error, ErrorKind};
use http_codec::{DecodeError, EncodeError};

use crate::server::{Fault, Session};

/// An answer of the gateway's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    status: u16,
    /// A proxy error type of RFC 9209 §2.3; empty where nothing is wrong.
    error: &'static str,
    reason: &'static str,
}

/// The client may come again after so many seconds.
const RETRY_AFTER: &str = "1";

impl Reply {
    const fn new(status: u16, error: &'static str, reason: &'static str) -> Self {
        Self {
            status,
            error,
            reason,
        }
    }

    /// The request head did not come in time.
    pub(super) const TOO_SLOW: Self =
        Self::new(408, "http_request_error", "the request head took too long");

    /// The client paused in its request body.
    pub(super) const BODY_TOO_SLOW: Self =
        Self::new(408, "http_request_error", "the request body took too long");

    /// `Connection` names more than anybody needs.
    pub(super) const TOO_MANY_OPTIONS: Self =
        Self::new(400, "http_request_error", "too many connection options");

    /// `Max-Forwards` is not one number.
    pub(super) const BAD_MAX_FORWARDS: Self =
        Self::new(400, "http_request_error", "malformed Max-Forwards");

    /// The target is a URI that no upstream speaks for. It may well be right elsewhere, which is
    /// what 421 says (RFC 9110 §7.4); a bad request it is not.
    pub(super) const OTHER_SCHEME: Self = Self::new(
        421,
        "http_request_error",
        "this gateway serves http targets only",
    );

    /// An OPTIONS that may go no further. What the upstream offers is not known here.
    pub(super) const OPTIONS: Self = Self::new(200, "", "");

    /// A TRACE that may go no further. To send a request back would show its cookies to scripts
    /// that must not see them.
    pub(super) const NO_TRACE: Self =
        Self::new(501, "http_request_denied", "this gateway answers no TRACE");

    /// No connection to the upstream was made in time.
    pub(super) const CONNECT_TIMEOUT: Self = Self::new(
        504,
        "connection_timeout",
        "connecting to the upstream took too long",
    );

    /// CONNECT asks for a tunnel.
    pub(super) const NO_TUNNEL: Self =
        Self::new(501, "http_request_denied", "this gateway opens no tunnels");

    /// The request cannot be encoded for the upstream.
    pub(super) const UNFORWARDABLE: Self =
        Self::new(400, "http_request_error", "the request cannot be passed on");

    /// The upstream's response cannot be encoded for the client.
    pub(super) const UNPRESENTABLE: Self = Self::new(
        502,
        "http_protocol_error",
        "the upstream's answer cannot be passed on",
    );

    /// The client's bytes are no request.
    pub(super) fn to_malformed(error: &DecodeError) -> Self {
        let reason = match error.reply_status() {
            413 => "the request body is too large",
            414 => "the request target is too long",
            431 => "the request head is too large",
            501 => "the transfer coding is not supported",
            505 => "the HTTP version is not supported",
            _ => "malformed request",
        };
        Self::new(error.reply_status(), "http_request_error", reason)
    }

    /// The exchange with the upstream failed. `None`: because the client went away, and nobody
    /// is left to answer.
    pub(super) fn to_failure(error: &Error) -> Option<Self> {
        Some(match error.kind() {
            ErrorKind::AcquireTimeout => Self::new(
                503,
                "connection_limit_reached",
                "no upstream connection became free in time",
            ),
            ErrorKind::QueueFull => Self::new(
                503,
                "connection_limit_reached",
                "too many requests wait for an upstream connection",
            ),
            ErrorKind::Draining => Self::new(
                503,
                "destination_unavailable",
                "the gateway is shutting down",
            ),
            ErrorKind::UnknownHost => Self::new(
                502,
                "dns_error",
                "the upstream's name could not be resolved",
            ),
            ErrorKind::ConnectRefused => Self::new(
                502,
                "connection_refused",
                "the upstream refused the connection",
            ),
            ErrorKind::ConnectFailed => to_failed_connect(error),
            ErrorKind::ConnectTimeout => Self::CONNECT_TIMEOUT,
            ErrorKind::BreakerOpen => Self::new(
                503,
                "destination_unavailable",
                "the upstream has failed too much of late",
            ),
            ErrorKind::TlsFailed => Self::new(
                502,
                "tls_protocol_error",
                "the TLS handshake with the upstream failed",
            ),
            ErrorKind::WriteTimeout => Self::new(
                504,
                "http_response_timeout",
                "the upstream took too long to take the request",
            ),
            ErrorKind::AttemptTimeout | ErrorKind::TotalTimeout => {
                Self::new(504, "http_response_timeout", "the exchange took too long")
            }
            ErrorKind::HeadTimeout => Self::new(
                504,
                "http_response_timeout",
                "the upstream took too long to answer",
            ),
            ErrorKind::HoldTimeout => {
                Self::new(504, "http_response_timeout", "the exchange took too long")
            }
            ErrorKind::WriteFailed | ErrorKind::ClosedBeforeResponse => Self::new(
                502,
                "connection_terminated",
                "the upstream closed the connection without an answer",
            ),
            ErrorKind::Reset => Self::new(
                502,
                "connection_terminated",
                "the upstream reset the connection",
            ),
            ErrorKind::Truncated => Self::new(
                502,
                "http_response_incomplete",
                "the upstream closed in the middle of its answer",
            ),
            ErrorKind::MalformedResponse => Self::new(
                502,
                "http_protocol_error",
                "the upstream's answer is malformed",
            ),
            ErrorKind::RequestBody => return to_failed_body(error),
            ErrorKind::InvalidRequest => Self::UNFORWARDABLE,
            _ => Self::new(502, "proxy_internal_error", "the exchange failed"),
        })
    }

    pub(super) fn status(&self) -> u16 {
        self.status
    }

    /// Queues the answer.
    ///
    /// # Errors
    ///
    /// A response has begun already.
    pub(super) fn send(&self, session: &Session) -> Result<(), EncodeError> {
        if self.error.is_empty() {
            return session.answer(self.status, "", |_| Ok(()));
        }
        session.answer(self.status, format!("{}\n", self.reason), |writer| {
            writer.field("Content-Type", "text/plain")?;
            writer.field("Proxy-Status", format!("pinpool; error={}", self.error))?;
            if self.status == 503 {
                writer.field("Retry-After", RETRY_AFTER)?;
            }
            Ok(())
        })
    }
}

fn to_failed_connect(error: &Error) -> Reply {
    match error.io().map(io::Error::kind) {
        Some(io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable) => Reply::new(
            502,
            "destination_ip_unroutable",
            "there is no route to the upstream",
        ),
        _ => Reply::new(
            502,
            "destination_unavailable",
            "the upstream cannot be connected to",
        ),
    }
}

/// The client's own body failed: it is malformed, or the client is gone.
fn to_failed_body(error: &Error) -> Option<Reply> {
    match std::error::Error::source(error)?.downcast_ref::<Fault>()? {
        Fault::Malformed(error) if error.reply_status() == 431 => Some(Reply::new(
            431,
            "http_request_error",
            "the trailers are too large",
        )),
        Fault::Malformed(error) => Some(Reply::to_malformed(error)),
        Fault::Gone(_) => None,
    }
}
