//! A request on its way out: an encoded head, and a body.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_codec::{BodyLength, SentRequest};

use crate::error::BoxError;

type BoxBody = Pin<Box<dyn HttpBody<Data = Bytes, Error = BoxError>>>;

/// The body of a request.
pub struct Body(Kind);

enum Kind {
    Empty,
    Full(Bytes),
    Stream(BoxBody),
}

impl Body {
    /// No body.
    #[must_use]
    pub const fn empty() -> Self {
        Self(Kind::Empty)
    }

    /// These bytes. They can be sent again.
    #[must_use]
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Self(Kind::Full(bytes.into()))
    }

    /// A stream that can be read once. It is framed by its length if it tells an exact one, else
    /// in chunks. An error of it ends the request, is the caller's, and is never retried.
    pub fn stream<B>(body: B) -> Self
    where
        B: HttpBody<Data = Bytes> + 'static,
        B::Error: Into<BoxError>,
    {
        Self(Kind::Stream(Box::pin(IntoBoxError(Box::pin(body)))))
    }

    /// How it is framed unless the head says otherwise.
    #[must_use]
    pub fn length(&self) -> BodyLength {
        match &self.0 {
            Kind::Empty => BodyLength::None,
            Kind::Full(bytes) => BodyLength::Exact(bytes.len() as u64),
            Kind::Stream(body) => body
                .size_hint()
                .exact()
                .map_or(BodyLength::Chunked, BodyLength::Exact),
        }
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::empty()
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::full(bytes)
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Body").field(&self.length()).finish()
    }
}

/// A caller's body with its error boxed.
struct IntoBoxError<B>(Pin<Box<B>>);

impl<B> HttpBody for IntoBoxError<B>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.as_mut().poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// A request that is encoded: the bytes of its head, and a body framed as the head says.
///
/// This is what a gateway builds, which forwards a head without making a map of it.
#[derive(Debug)]
pub struct Outgoing {
    pub(crate) head: Bytes,
    pub(crate) sent: SentRequest,
    pub(crate) body: Body,
    pub(crate) idempotent: bool,
    /// A stream that has given a frame or an error cannot be sent again; one that was empty can.
    pub(crate) consumed: bool,
}

impl Outgoing {
    /// `head` is what a [`RequestWriter`](http_codec::RequestWriter) wrote and `sent` what its
    /// `finish` returned; `body` has to have the length promised there.
    #[must_use]
    pub fn new(head: Bytes, sent: SentRequest, body: Body) -> Self {
        Self {
            head,
            sent,
            body,
            idempotent: false,
            consumed: false,
        }
    }

    /// Whether sending the request twice has the effect of sending it once. Default: no.
    #[must_use]
    pub fn idempotent(mut self, yes: bool) -> Self {
        self.idempotent = yes;
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
        !self.consumed
    }

    /// Takes the next frame; `None` is the end.
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.body.0 {
            Kind::Empty | Kind::Full(_) => Poll::Ready(None),
            Kind::Stream(body) => {
                let frame = body.as_mut().poll_frame(cx);
                match &frame {
                    Poll::Pending => {}
                    Poll::Ready(Some(_)) => self.consumed = true,
                    // Its end takes nothing from it, but it must not be polled beyond.
                    Poll::Ready(None) => self.body = Body::empty(),
                }
                frame
            }
        }
    }

    /// The body, if it is there as a whole.
    pub(crate) fn whole_body(&self) -> Option<Bytes> {
        match &self.body.0 {
            Kind::Full(bytes) => Some(bytes.clone()),
            _ => None,
        }
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
