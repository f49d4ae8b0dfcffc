use alloc::vec::Vec;

use bytes::Bytes;

use crate::fields::{Fields, Line};
use crate::framing::BodyLength;
use crate::head::{self, Parse, Span, Version};
use crate::limits::Limits;
use crate::request_writer::SentRequest;
use crate::response_view::{self, Framed};
use crate::reuse::MustClose;
use crate::syntax;

/// The head of a response as a client or gateway received it (RFC 9112 §4).
#[derive(Debug, Clone)]
pub struct ResponseHead {
    status: u16,
    reason: Span,
    version: Version,
    fields: Fields,
    framed: Framed,
}

/// What a server says about how long it keeps an idle connection (`Keep-Alive`, RFC 2068
/// §19.7.1.1). A hint, never a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeepAliveHint {
    /// Seconds that the connection may stand idle; `None` if absent or no number.
    pub timeout: Option<u64>,
    /// Further requests that the connection may carry; `None` if absent or no number.
    pub max: Option<u64>,
}

impl KeepAliveHint {
    pub(crate) fn of<'a>(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut hint = Self::default();
        for parameter in values.flat_map(|value| value.split(|b| matches!(b, b',' | b';'))) {
            let Some(equals) = parameter.iter().position(|&b| b == b'=') else {
                continue;
            };
            let name = syntax::trim(&parameter[..equals]);
            let number = syntax::parse_decimal(syntax::trim(&parameter[equals + 1..]));
            if name.eq_ignore_ascii_case(b"timeout") {
                hint.timeout = hint.timeout.or(number);
            } else if name.eq_ignore_ascii_case(b"max") {
                hint.max = hint.max.or(number);
            }
        }
        hint
    }
}

impl ResponseHead {
    /// The status code, 100 to 999.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The reason phrase, which may be empty and may hold bytes above 0x7F.
    #[must_use]
    pub fn reason(&self) -> &[u8] {
        &self.fields.block()[self.reason.range()]
    }

    /// The version on the status line.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The field lines.
    #[must_use]
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// How the body is framed on the wire: `None` for answers to HEAD, 1xx, 204, 304 and 2xx to
    /// CONNECT whatever their fields announce (RFC 9112 §6.3).
    #[must_use]
    pub fn body_length(&self) -> BodyLength {
        self.framed.body
    }

    /// The length that `Content-Length` announces, also where no body follows (HEAD, 304), and
    /// `None` where `Transfer-Encoding` overrides it or where it has no meaning (1xx, 2xx to
    /// CONNECT).
    #[must_use]
    pub fn content_length(&self) -> Option<u64> {
        self.framed.content_length
    }

    /// The parameters of all `Keep-Alive` fields; the first of each name counts.
    #[must_use]
    pub fn keep_alive_hint(&self) -> KeepAliveHint {
        KeepAliveHint::of(self.fields.get_all("keep-alive"))
    }

    /// Has the connection left HTTP with this head: 101, or 2xx to CONNECT? The bytes after the
    /// head then belong to the other protocol and stay in the input.
    #[must_use]
    pub fn upgrade(&self) -> bool {
        self.framed.upgrade()
    }

    /// Does the response, by its own framing and fields, leave the connection open for another
    /// exchange? The verdict on the connection is [`ClientExchange::reuse`](crate::ClientExchange::reuse).
    #[must_use]
    pub fn keep_alive(&self) -> bool {
        self.framed.keep_alive()
    }

    #[cfg(feature = "http")]
    pub(crate) fn reason_bytes(&self) -> Bytes {
        self.fields.block().slice(self.reason.range())
    }

    pub(crate) fn must_close(&self) -> Option<MustClose> {
        self.framed.must_close
    }

    pub(crate) fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }
}

/// A response head before it has its bytes.
pub(crate) struct ResponseParts {
    status: u16,
    reason: Span,
    version: Version,
    lines: Vec<Line>,
    framed: Framed,
}

impl ResponseParts {
    pub(crate) fn with_block(self, block: Bytes) -> ResponseHead {
        ResponseHead {
            status: self.status,
            reason: self.reason,
            version: self.version,
            fields: Fields::new(block, self.lines),
            framed: self.framed,
        }
    }
}

/// Parses a head that starts at the first byte of `window` and answers what was sent.
pub(crate) fn parse(window: &[u8], sent: SentRequest, limits: &Limits) -> Parse<ResponseParts> {
    let room = head::fields_within(window, limits.max_fields());
    head::with_slots(room, |slots| {
        let parsed = response_view::parse(window, sent, slots);
        parsed.map(|view| ResponseParts {
            status: view.status(),
            reason: Span::of(window, view.reason()),
            version: view.version(),
            lines: view.fields().lines(window),
            framed: view.framed(),
        })
    })
}
