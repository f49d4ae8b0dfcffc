//! A request on its way out: an encoded head, and a body.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;
use http_codec::{BodyLength, SentRequest};

use crate::body::Body;
use crate::error::BoxError;
use crate::options::{Overrides, RequestOptions};

/// A request that is encoded: the bytes of its head, and a body framed as the head says.
///
/// This is what a gateway builds, which forwards a head without making a map of it.
#[derive(Debug)]
pub struct Outgoing {
    pub(crate) head: Bytes,
    pub(crate) sent: SentRequest,
    pub(crate) body: Body,
    pub(crate) idempotent: bool,
    pub(crate) overrides: Option<Arc<Overrides>>,
}

impl Outgoing {
    /// `head` is what a [`RequestWriter`](http_codec::RequestWriter) wrote and `sent` what its
    /// `finish` returned; `body` has to have the length promised there.
    #[must_use]
    pub fn new(head: Bytes, sent: SentRequest, body: Body) -> Self {
        let mut outgoing = Self {
            head,
            sent,
            body,
            idempotent: false,
            overrides: None,
        };
        outgoing.idempotent = is_idempotent(outgoing.method());
        outgoing
    }

    /// What is said of the request beyond its head. Default: nothing.
    #[must_use]
    pub fn options(mut self, options: RequestOptions) -> Self {
        self.idempotent = options.is_idempotent().unwrap_or(self.idempotent);
        self.overrides = options.into_overrides();
        self
    }

    /// The method that the head begins with.
    pub(crate) fn method(&self) -> &str {
        let end = self.head.iter().position(|b| *b == b' ');
        let method = &self.head[..end.unwrap_or_default()];
        str::from_utf8(method).unwrap_or_default()
    }

    /// Whether the head announces a body.
    pub(crate) fn has_body(&self) -> bool {
        self.sent.body_length() != BodyLength::None
    }

    /// What is left in an exchange that the request was taken out of.
    pub(crate) fn taken(sent: SentRequest) -> Self {
        Self::new(Bytes::new(), sent, Body::empty())
    }

    /// Whether the request can be sent again as it was.
    pub(crate) fn is_replayable(&self) -> bool {
        self.body.is_replayable()
    }

    /// Sees to it that the next frame is the first one. To be called before each sending.
    pub(crate) fn rewind(&mut self) {
        self.body.rewind();
    }

    /// Takes the next frame; `None` is the end.
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.body.poll_frame(cx)
    }

    /// The body, if it is there as a whole.
    pub(crate) fn whole_body(&self) -> Option<Bytes> {
        self.body.whole()
    }
}

/// Whether a method is idempotent (RFC 9110 §9.2.2, and QUERY). Methods are case-sensitive, and
/// an unknown one is not.
#[must_use]
pub fn is_idempotent(method: &str) -> bool {
    matches!(
        method,
        "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE" | "QUERY"
    )
}

#[cfg(test)]
mod tests {
    use super::is_idempotent;

    /// Fault E5.
    #[test]
    fn only_known_methods_in_upper_case_are_idempotent() {
        for method in ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY"] {
            assert!(is_idempotent(method), "{method}");
        }
        for method in ["POST", "PATCH", "CONNECT", "FOO", "get", "Put", ""] {
            assert!(!is_idempotent(method), "{method}");
        }
    }
}
