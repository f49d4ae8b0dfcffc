use core::mem::MaybeUninit;

use crate::error::DecodeError;
use crate::fields_view::{FieldSlots, FieldsView};
use crate::framing::{BodyLength, Notes, Role};
use crate::head::{self, Parse, Version};
use crate::limits::{Limit, Limits};
use crate::request_writer::SentRequest;
use crate::response::KeepAliveHint;
use crate::reuse::MustClose;
use crate::syntax;

/// The head of a response, borrowed from the bytes it came in (RFC 9112 §4).
///
/// The cheapest way to look at a head: nothing is copied, counted or allocated. It passes every
/// check that [`ClientExchange`](crate::ClientExchange) makes on a head; what follows the head (body,
/// reuse) is the exchange's.
///
/// ```
/// use bytes::BytesMut;
/// use http_codec::{BodyLength, FieldSlots, Limits, RequestWriter, ResponseView};
///
/// let mut request = BytesMut::new();
/// let mut writer = RequestWriter::new(&mut request, "GET", "/")?;
/// writer.field("Host", "example.org")?;
/// let sent = writer.finish(BodyLength::None)?;
///
/// let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
/// let mut slots = FieldSlots::new();
/// let parsed = ResponseView::parse(bytes, sent, &Limits::default(), &mut slots)?;
/// let (head, len) = parsed.expect("it is whole");
/// assert_eq!((head.status(), head.body_length()), (200, BodyLength::Exact(5)));
/// assert_eq!(&bytes[len..], b"hello");
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct ResponseView<'a> {
    status: u16,
    reason: &'a [u8],
    version: Version,
    fields: FieldsView<'a>,
    framed: Framed,
}

/// What a head and the request that it answers say of the body and the connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Framed {
    pub(crate) body: BodyLength,
    pub(crate) content_length: Option<u64>,
    pub(crate) must_close: Option<MustClose>,
}

impl Framed {
    pub(crate) fn upgrade(&self) -> bool {
        self.must_close == Some(MustClose::Upgraded)
    }

    pub(crate) fn keep_alive(&self) -> bool {
        self.must_close.is_none()
    }
}

impl<'a> ResponseView<'a> {
    /// Reads the head at the front of `bytes`, empty lines before it skipped, as an answer to `sent`;
    /// returns it with the number of bytes it takes, or `None` while it is not whole. Interim
    /// responses are heads of their own.
    ///
    /// Each call starts over. Where heads come in small pieces, an exchange, which remembers how far
    /// it has looked, is the better choice.
    ///
    /// # Errors
    ///
    /// The head cannot become one that may be used. [`Limit::Fields`] is the lower of
    /// `limits.max_fields()` and [`FieldSlots::CAPACITY`].
    #[inline]
    pub fn parse<'b: 'a>(
        bytes: &'b [u8],
        sent: SentRequest,
        limits: &Limits,
        slots: &'a mut FieldSlots<'b>,
    ) -> Result<Option<(Self, usize)>, DecodeError> {
        let slots = slots.take(limits.max_fields());
        let parsed = head::view(bytes, limits.max_head_bytes(), |window| {
            parse(window, sent, slots)
        });
        parsed.map_err(|error| error.with_reply(502))
    }

    #[inline]
    fn of<'b: 'a>(
        response: httparse::Response<'a, 'b>,
        block: &'b [u8],
        sent: SentRequest,
    ) -> Result<Self, DecodeError> {
        let httparse::Response {
            version: Some(minor),
            code: Some(status),
            reason,
            headers,
        } = response
        else {
            return Err(DecodeError::bad_head("the status line is not whole"));
        };
        if status < 100 {
            return Err(DecodeError::bad_head("the status must be 100 or more"));
        }
        let version = Version::from_minor(minor);
        let notes = Notes::of(headers);
        let mut framed = frame(status, version, &notes, sent)?;
        framed.must_close = framed
            .must_close
            .or_else(|| closing_word(status, version, &notes, framed.body));
        // The parser gives no reason that has bytes above 0x7F.
        let reason = match reason {
            Some(reason) if !reason.is_empty() => syntax::trim(reason.as_bytes()),
            _ => reason_of(block),
        };
        Ok(Self {
            status,
            reason,
            version,
            fields: FieldsView::new(headers),
            framed,
        })
    }

    /// The status code, 100 to 999.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The reason phrase, which may be empty and may hold bytes above 0x7F.
    #[must_use]
    pub fn reason(&self) -> &'a [u8] {
        self.reason
    }

    /// The version on the status line.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The field lines.
    #[must_use]
    pub fn fields(&self) -> FieldsView<'a> {
        self.fields
    }

    /// How the body is framed on the wire: as
    /// [`ResponseHead::body_length`](crate::ResponseHead::body_length).
    #[must_use]
    pub fn body_length(&self) -> BodyLength {
        self.framed.body
    }

    /// As [`ResponseHead::content_length`](crate::ResponseHead::content_length).
    #[must_use]
    pub fn content_length(&self) -> Option<u64> {
        self.framed.content_length
    }

    /// The parameters of all `Keep-Alive` fields; the first of each name counts.
    #[must_use]
    pub fn keep_alive_hint(&self) -> KeepAliveHint {
        KeepAliveHint::of(self.fields.get_all("keep-alive"))
    }

    /// Does the connection leave HTTP with this head: 101, or 2xx to CONNECT?
    #[must_use]
    pub fn upgrade(&self) -> bool {
        self.framed.upgrade()
    }

    /// Does the response, by its own framing and fields, leave the connection open for another
    /// exchange?
    #[must_use]
    pub fn keep_alive(&self) -> bool {
        self.framed.keep_alive()
    }

    pub(crate) fn framed(&self) -> Framed {
        self.framed
    }
}

/// Parses a head that starts at the first byte of `window` and answers what was sent.
#[inline]
pub(crate) fn parse<'a, 'b: 'a>(
    window: &'b [u8],
    sent: SentRequest,
    slots: &'a mut [MaybeUninit<httparse::Header<'b>>],
) -> Parse<ResponseView<'a>> {
    const UNKNOWN: usize = usize::MAX;
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        window,
        slots,
    );
    match parsed {
        Ok(httparse::Status::Complete(len)) => {
            match ResponseView::of(response, &window[..len], sent) {
                Ok(view) => Parse::Complete(view, len),
                Err(error) => Parse::Failed(error),
            }
        }
        Ok(httparse::Status::Partial) => Parse::Partial { recheck: UNKNOWN },
        Err(httparse::Error::Version) => match head::judge_version(window, b' ') {
            Some(error) => Parse::Failed(error.at(0)),
            None => Parse::Partial { recheck: UNKNOWN },
        },
        Err(httparse::Error::TooManyHeaders) => {
            Parse::Failed(DecodeError::too_large(Limit::Fields))
        }
        Err(error) => Parse::Failed(DecodeError::bad_head(head::describe(error))),
    }
}

/// What stands behind the status.
fn reason_of(block: &[u8]) -> &[u8] {
    const START: usize = "HTTP/1.1 200".len();
    let line_end = block.iter().position(|&b| b == b'\n').unwrap_or(START);
    let line = &block[..line_end];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    syntax::trim(&line[START.min(line.len())..])
}

/// Frames the body by what the request was (RFC 9112 §6.3).
fn frame(
    status: u16,
    version: Version,
    notes: &Notes<'_>,
    sent: SentRequest,
) -> Result<Framed, DecodeError> {
    let no_body = |content_length, must_close| Framed {
        body: BodyLength::None,
        content_length,
        must_close,
    };
    if status == 101 {
        if !sent.upgrade_offered() {
            return Err(DecodeError::bad_head("101 although no upgrade was offered"));
        }
        return Ok(no_body(None, Some(MustClose::Upgraded)));
    }
    if status < 200 {
        // Framing fields mean nothing here (RFC 9112 §6.1).
        return Ok(no_body(None, None));
    }
    if sent.is_connect() && status < 300 {
        return Ok(no_body(None, Some(MustClose::Upgraded)));
    }
    let both = (notes.has_coding() && notes.has_length()).then_some(MustClose::AmbiguousFraming);
    if sent.is_head() || status == 204 || status == 304 {
        let length = notes.content_length(Role::Response)?;
        let announced = notes.has_coding() || length.is_some_and(|length| length > 0);
        let announced = (status == 204 && announced).then_some(MustClose::LengthWithoutBody);
        return Ok(no_body(
            length.filter(|_| !notes.has_coding()),
            both.or(announced),
        ));
    }
    // A length that is no number spoils the message even where chunked overrides it.
    let length = notes.content_length(Role::Response)?;
    let body = match length {
        _ if notes.chunked(Role::Response, version)? => BodyLength::Chunked,
        Some(length) => BodyLength::Exact(length),
        None => BodyLength::UntilClose,
    };
    let content_length = if body == BodyLength::Chunked {
        None
    } else {
        length
    };
    Ok(Framed {
        body,
        content_length,
        must_close: both,
    })
}

fn closing_word(
    status: u16,
    version: Version,
    notes: &Notes<'_>,
    body: BodyLength,
) -> Option<MustClose> {
    if status < 200 {
        None
    } else if body == BodyLength::UntilClose {
        Some(MustClose::UntilClose)
    } else if notes.close {
        Some(MustClose::CloseReceived)
    } else if notes.persistent(version) {
        None
    } else {
        Some(MustClose::Http10)
    }
}
