//! Responses as bytes. The codec writes none of these, as most of them are wrong.

use std::time::{Duration, SystemTime};

use http::StatusCode;

use super::plan::{Place, Refused, RetryAfter};

/// The body of an answer that is to be cut.
pub(super) const TEN: &[u8; 10] = b"0123456789";

/// What to send where no HTTP is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed {
    pub(super) bytes: &'static str,
    /// A field value goes on behind it, for much longer than anybody takes.
    pub(super) endless: bool,
}

const fn malformed(bytes: &'static str) -> Malformed {
    Malformed {
        bytes,
        endless: false,
    }
}

/// By name; the first is the default.
#[rustfmt::skip]
pub(super) static MALFORMED: [(&str, Malformed); 11] = [
    ("status-line", malformed("ICY 200 OK\r\nContent-Length: 0\r\n\r\n")),
    ("version", malformed("HTTP/3.1 200 OK\r\nContent-Length: 0\r\n\r\n")),
    ("status", malformed("HTTP/1.1 2x0 OK\r\nContent-Length: 0\r\n\r\n")),
    ("field", malformed("HTTP/1.1 200 OK\r\nno colon\r\nContent-Length: 0\r\n\r\n")),
    ("fold", malformed("HTTP/1.1 200 OK\r\n A: folded\r\nContent-Length: 0\r\n\r\n")),
    ("length", malformed("HTTP/1.1 200 OK\r\nContent-Length: +3\r\n\r\nabc")),
    ("lengths", malformed("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc")),
    ("both", malformed("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n\
        3\r\nabc\r\n0\r\n\r\n")),
    ("chunk-size", malformed("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n")),
    ("chunk-overflow", malformed("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
        ffffffffffffffff\r\nabc\r\n")),
    ("endless", Malformed { bytes: "HTTP/1.1 200 OK\r\nEndless: ", endless: true }),
];

/// A head, begun.
pub(super) struct Head(String);

impl Head {
    pub(super) fn new(status: u16) -> Self {
        let known = StatusCode::from_u16(status).ok();
        let reason = known.and_then(|status| status.canonical_reason());
        Self(format!(
            "HTTP/1.1 {status} {}\r\n",
            reason.unwrap_or_default()
        ))
    }

    pub(super) fn field(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        self.0 += &format!("{name}: {value}\r\n");
        self
    }

    /// With `Connection: close`, if this is to be the last.
    pub(super) fn last(self, last: bool) -> Self {
        match last {
            true => self.field("Connection", "close"),
            false => self,
        }
    }

    pub(super) fn end(mut self) -> Vec<u8> {
        self.0 += "\r\n";
        self.0.into_bytes()
    }
}

/// A refusal's head so far, without what its body asks for.
pub(super) fn refusal(refused: Refused) -> Head {
    let head = Head::new(refused.status);
    match refused.retry_after {
        None => head,
        Some(RetryAfter::Seconds(seconds)) => head.field("Retry-After", seconds),
        Some(RetryAfter::Date(ahead)) => {
            // The last second is not over before it has begun: rounded down, the date would lie
            // less far ahead than was asked for.
            let date = SystemTime::now() + Duration::from_secs(ahead) + Duration::from_secs(1);
            head.field("Retry-After", httpdate::fmt_http_date(date))
        }
        Some(RetryAfter::Unparsable) => head.field("Retry-After", "in a little while"),
    }
}

/// An answer of [`TEN`], cut in two.
pub(super) fn cut(at: Place, is_head: bool, last: bool) -> (Vec<u8>, Vec<u8>) {
    let head = Head::new(200).last(last);
    let chunked = matches!(at, Place::MidChunk | Place::BeforeLastChunk);
    let (head, body) = if chunked {
        let head = head.field("Transfer-Encoding", "chunked");
        (head.end(), &b"a\r\n0123456789\r\n0\r\n\r\n"[..])
    } else {
        (head.field("Content-Length", TEN.len()).end(), &TEN[..])
    };
    // An answer to HEAD ends with its head, wherever it was to be cut behind that.
    let body = if is_head { &[][..] } else { body };
    let first = match at {
        Place::BeforeHead => 0,
        Place::MidHead => head.len() / 2,
        Place::AfterHead => head.len(),
        Place::MidBody => head.len() + 5,
        Place::MidChunk => head.len() + 8,
        Place::BeforeLastChunk => head.len() + 15,
    };
    let mut answer = head;
    answer.extend_from_slice(body);
    let rest = answer.split_off(first.min(answer.len()));
    (answer, rest)
}
