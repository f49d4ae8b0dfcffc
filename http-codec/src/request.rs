use alloc::vec::Vec;

use bytes::Bytes;

use crate::fields::{Fields, Line};
use crate::framing::BodyLength;
use crate::head::{self, Parse, Span, Version};
use crate::limits::Limits;
use crate::request_view::{self, Terms};
use crate::target;

/// The head of a request as a server or gateway received it (RFC 9112 §3).
#[derive(Debug, Clone)]
pub struct RequestHead {
    method: Span,
    target: Span,
    host: Option<Span>,
    fields: Fields,
    terms: Terms,
}

impl RequestHead {
    /// The method as received; methods are case-sensitive (RFC 9110 §9.1).
    #[must_use]
    pub fn method(&self) -> &str {
        self.text(self.method)
    }

    /// The request target as received, in any of its four forms (RFC 9112 §3.2).
    #[must_use]
    pub fn target(&self) -> &str {
        self.text(self.target)
    }

    /// The version on the request line.
    #[must_use]
    pub fn version(&self) -> Version {
        self.terms.version
    }

    /// The field lines.
    #[must_use]
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// How the body is framed on the wire.
    #[must_use]
    pub fn body_length(&self) -> BodyLength {
        self.terms.body
    }

    /// Whom the request is for: the authority of the target where it has one, else `Host`
    /// (RFC 9112 §3.3). `None` where both are missing or empty.
    #[must_use]
    pub fn authority(&self) -> Option<&str> {
        let host = self.host.map(|host| self.text(host));
        target::authority(self.method(), self.target(), host)
    }

    /// Does the client wait for 100 before it sends the body (RFC 9110 §10.1.1)? Never true for
    /// HTTP/1.0.
    #[must_use]
    pub fn expects_continue(&self) -> bool {
        self.terms.expects_continue
    }

    /// Does the request offer to leave HTTP: `Upgrade` named by `Connection` in HTTP/1.1, or
    /// CONNECT?
    #[must_use]
    pub fn upgrade(&self) -> bool {
        self.terms.upgrade
    }

    /// Does the request, by itself, allow another one to follow (RFC 9112 §9.3)?
    #[must_use]
    pub fn keep_alive(&self) -> bool {
        self.terms.keep_alive
    }

    /// Did the client say `Connection: close`?
    pub(crate) fn close(&self) -> bool {
        self.terms.close
    }

    #[cfg(feature = "http")]
    pub(crate) fn target_bytes(&self) -> Bytes {
        self.fields.block().slice(self.target.range())
    }

    fn text(&self, span: Span) -> &str {
        str::from_utf8(&self.fields.block()[span.range()]).unwrap_or_default()
    }
}

/// A request head before it has its bytes.
pub(crate) struct RequestParts {
    method: Span,
    target: Span,
    host: Option<Span>,
    lines: Vec<Line>,
    terms: Terms,
}

impl RequestParts {
    pub(crate) fn with_block(self, block: Bytes) -> RequestHead {
        RequestHead {
            method: self.method,
            target: self.target,
            host: self.host,
            fields: Fields::new(block, self.lines),
            terms: self.terms,
        }
    }
}

/// Parses a head that starts at the first byte of `window`.
pub(crate) fn parse(window: &[u8], limits: &Limits) -> Parse<RequestParts> {
    let room = head::fields_within(window, limits.max_fields());
    head::with_slots(room, |slots| {
        let parsed = request_view::parse(window, limits, slots);
        parsed.map(|view| RequestParts {
            method: Span::of(window, view.method().as_bytes()),
            target: Span::of(window, view.target().as_bytes()),
            host: view.host().map(|host| Span::of(window, host)),
            lines: view.fields().lines(window),
            terms: view.terms(),
        })
    })
}
