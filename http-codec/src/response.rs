use bytes::Bytes;

use crate::error::DecodeError;
use crate::fields::{Fields, Line};
use crate::framing::{BodyLength, Notes, Role};
use crate::head::{self, Parse, Span, Version};
use crate::limits::{Limit, Limits};
use crate::request_writer::SentRequest;
use crate::reuse::MustClose;
use crate::syntax;

/// The head of a response as a client or gateway received it (RFC 9112 §4).
#[derive(Debug, Clone)]
pub struct ResponseHead {
    status: u16,
    reason: Span,
    version: Version,
    fields: Fields,
    body: BodyLength,
    content_length: Option<u64>,
    keep_alive: bool,
    upgrade: bool,
    must_close: Option<MustClose>,
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
        self.body
    }

    /// The length that `Content-Length` announces, also where no body follows (HEAD, 304), and
    /// `None` where `Transfer-Encoding` overrides it or where it has no meaning (1xx, 2xx to
    /// CONNECT).
    #[must_use]
    pub fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// The parameters of all `Keep-Alive` fields; the first of each name counts.
    #[must_use]
    pub fn keep_alive_hint(&self) -> KeepAliveHint {
        let mut hint = KeepAliveHint::default();
        for value in self.fields.get_all("keep-alive") {
            for parameter in value.split(|b| matches!(b, b',' | b';')) {
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
        }
        hint
    }

    /// Has the connection left HTTP with this head: 101, or 2xx to CONNECT? The bytes after the
    /// head then belong to the other protocol and stay in the input.
    #[must_use]
    pub fn upgrade(&self) -> bool {
        self.upgrade
    }

    /// Does the response, by its own framing and fields, leave the connection open for another
    /// exchange? The verdict on the connection is [`ClientExchange::reuse`](crate::ClientExchange::reuse).
    #[must_use]
    pub fn keep_alive(&self) -> bool {
        self.keep_alive
    }

    pub(crate) fn must_close(&self) -> Option<MustClose> {
        self.must_close
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
    notes: Notes,
    lines: Vec<Line>,
}

pub(crate) fn parse(window: &[u8], limits: &Limits) -> Parse<ResponseParts> {
    head::with_slots(limits.max_fields(), |slots| {
        let mut response = httparse::Response::new(&mut []);
        let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
            &mut response,
            window,
            slots,
        );
        match parsed {
            Ok(httparse::Status::Complete(len)) => match validate(&response, &window[..len]) {
                Ok(parts) => Parse::Complete(parts, len),
                Err(error) => Parse::Failed(error),
            },
            Ok(httparse::Status::Partial) => Parse::Partial {
                recheck: usize::MAX,
            },
            Err(httparse::Error::Version) => match head::judge_version(window, b' ') {
                Some(error) => Parse::Failed(error.at(0)),
                None => Parse::Partial {
                    recheck: usize::MAX,
                },
            },
            Err(httparse::Error::TooManyHeaders) => {
                Parse::Failed(DecodeError::too_large(Limit::Fields))
            }
            Err(error) => Parse::Failed(DecodeError::bad_head(head::describe(error))),
        }
    })
}

fn validate(
    response: &httparse::Response<'_, '_>,
    block: &[u8],
) -> Result<ResponseParts, DecodeError> {
    let (Some(status), Some(minor)) = (response.code, response.version) else {
        return Err(DecodeError::bad_head("the status line is not whole"));
    };
    if status < 100 {
        return Err(DecodeError::bad_head("the status must be 100 or more"));
    }
    let (notes, lines) = Notes::gather(block, response.headers);
    Ok(ResponseParts {
        status,
        reason: reason_span(block),
        version: Version::from_minor(minor),
        notes,
        lines,
    })
}

/// The parser gives no reason that has bytes above 0x7F, so it is cut out of the line here.
fn reason_span(block: &[u8]) -> Span {
    const START: usize = "HTTP/1.1 200".len();
    let line_end = block.iter().position(|&b| b == b'\n').unwrap_or(START);
    let line = block[..line_end]
        .strip_suffix(b"\r")
        .unwrap_or(&block[..line_end]);
    Span::of(block, syntax::trim(&line[START.min(line.len())..]))
}

impl ResponseParts {
    /// Frames the body by what the request was (RFC 9112 §6.3) and gives the head its bytes.
    pub(crate) fn with_block(
        self,
        block: Bytes,
        sent: SentRequest,
    ) -> Result<ResponseHead, DecodeError> {
        let framed = self.frame(sent)?;
        let must_close = framed.must_close.or_else(|| self.closing_word(framed.body));
        Ok(ResponseHead {
            status: self.status,
            reason: self.reason,
            version: self.version,
            fields: Fields::new(block, self.lines),
            body: framed.body,
            content_length: framed.content_length,
            keep_alive: must_close.is_none(),
            upgrade: must_close == Some(MustClose::Upgraded),
            must_close,
        })
    }

    fn frame(&self, sent: SentRequest) -> Result<Framed, DecodeError> {
        let (status, notes) = (self.status, &self.notes);
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
        let both =
            (notes.has_coding() && notes.has_length()).then_some(MustClose::AmbiguousFraming);
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
            _ if notes.chunked(Role::Response, self.version)? => BodyLength::Chunked,
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

    fn closing_word(&self, body: BodyLength) -> Option<MustClose> {
        if self.status < 200 {
            None
        } else if body == BodyLength::UntilClose {
            Some(MustClose::UntilClose)
        } else if self.notes.close {
            Some(MustClose::CloseReceived)
        } else if self.notes.persistent(self.version) {
            None
        } else {
            Some(MustClose::Http10)
        }
    }
}

struct Framed {
    body: BodyLength,
    content_length: Option<u64>,
    must_close: Option<MustClose>,
}
