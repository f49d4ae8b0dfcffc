use bytes::Bytes;

use crate::error::DecodeError;
use crate::fields::{Fields, Line};
use crate::framing::{BodyLength, Notes, Role};
use crate::head::{self, Parse, Span, Version};
use crate::limits::{Limit, Limits};
use crate::syntax;
use crate::target;

/// The head of a request as a server or gateway received it (RFC 9112 §3).
#[derive(Debug, Clone)]
pub struct RequestHead {
    method: Span,
    target: Span,
    version: Version,
    fields: Fields,
    body: BodyLength,
    host: Option<Span>,
    keep_alive: bool,
    close: bool,
    expects_continue: bool,
    upgrade: bool,
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
        self.version
    }

    /// The field lines.
    #[must_use]
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// How the body is framed on the wire.
    #[must_use]
    pub fn body_length(&self) -> BodyLength {
        self.body
    }

    /// Whom the request is for: the authority of the target where it has one, else `Host`
    /// (RFC 9112 §3.3). `None` where both are missing or empty.
    #[must_use]
    pub fn authority(&self) -> Option<&str> {
        let target = self.target();
        let authority = if self.method() == "CONNECT" {
            Some(target)
        } else {
            match target::absolute_authority(target.as_bytes()) {
                Some(authority) => str::from_utf8(authority).ok(),
                None => self.host.map(|host| self.text(host)),
            }
        };
        authority.filter(|authority| !authority.is_empty())
    }

    /// Does the client wait for 100 before it sends the body (RFC 9110 §10.1.1)? Never true for
    /// HTTP/1.0.
    #[must_use]
    pub fn expects_continue(&self) -> bool {
        self.expects_continue
    }

    /// Does the request offer to leave HTTP: `Upgrade` named by `Connection` in HTTP/1.1, or
    /// CONNECT?
    #[must_use]
    pub fn upgrade(&self) -> bool {
        self.upgrade
    }

    /// Does the request, by itself, allow another one to follow (RFC 9112 §9.3)?
    #[must_use]
    pub fn keep_alive(&self) -> bool {
        self.keep_alive
    }

    /// Did the client say `Connection: close`?
    pub(crate) fn close(&self) -> bool {
        self.close
    }

    fn text(&self, span: Span) -> &str {
        str::from_utf8(&self.fields.block()[span.range()]).unwrap_or_default()
    }
}

/// A request head before it has its bytes.
pub(crate) struct RequestParts {
    method: Span,
    target: Span,
    version: Version,
    notes: Notes,
    lines: Vec<Line>,
    body: BodyLength,
    connect: bool,
}

impl RequestParts {
    pub(crate) fn with_block(self, block: Bytes) -> RequestHead {
        let Self {
            method,
            target,
            version,
            notes,
            lines,
            body,
            connect,
        } = self;
        let newer = version == Version::Http11;
        RequestHead {
            method,
            target,
            version,
            body,
            host: (notes.hosts > 0).then_some(notes.host),
            keep_alive: notes.persistent(version),
            close: notes.close,
            expects_continue: newer && notes.expect_continue,
            upgrade: connect || (newer && notes.upgrade_option && notes.upgrade_field),
            fields: Fields::new(block, lines),
        }
    }
}

const BARE_LF: &str = "a line of the head must end with CR LF, not with LF alone";

pub(crate) fn parse(window: &[u8], limits: &Limits) -> Parse<RequestParts> {
    head::with_slots(limits.max_fields(), |slots| {
        let mut request = httparse::Request::new(&mut []);
        let parsed = request.parse_with_uninit_headers(window, slots);
        let target = measure_target(&request, window, limits.max_target_bytes());
        if matches!(target, Target::TooLong) {
            return Parse::Failed(DecodeError::too_large(Limit::TargetBytes));
        }
        match parsed {
            Ok(httparse::Status::Complete(len)) => match validate(&request, &window[..len]) {
                Ok(parts) => Parse::Complete(parts, len),
                Err(error) => Parse::Failed(error),
            },
            Ok(httparse::Status::Partial) => partial(window, target),
            Err(httparse::Error::Version) => {
                let start = request
                    .path
                    .map_or(0, |path| Span::of(window, path.as_bytes()).range().end + 1);
                match head::judge_version(&window[start..], b'\r') {
                    Some(error) => Parse::Failed(error.at(start)),
                    None => Parse::Partial {
                        recheck: usize::MAX,
                    },
                }
            }
            Err(httparse::Error::TooManyHeaders) => {
                Parse::Failed(too_many_fields(window, limits.max_fields()))
            }
            Err(error) => Parse::Failed(DecodeError::bad_head(head::describe(error))),
        }
    })
}

#[derive(Clone, Copy)]
enum Target {
    Fits,
    TooLong,
    /// Not whole yet; too long once the block has this many bytes.
    Open {
        too_long_at: usize,
    },
}

/// Measures the target even where it is not whole, as its limit bites before its end.
fn measure_target(request: &httparse::Request<'_, '_>, window: &[u8], max: usize) -> Target {
    if let Some(path) = request.path {
        return if path.len() > max {
            Target::TooLong
        } else {
            Target::Fits
        };
    }
    let Some(method) = request.method else {
        return Target::Fits;
    };
    let start = method.len() + 1;
    let so_far = &window[start..];
    let run = so_far
        .iter()
        .take_while(|&&b| b > b' ' && b != 0x7f)
        .count();
    if run > max {
        Target::TooLong
    } else if run == so_far.len() {
        Target::Open {
            too_long_at: start.saturating_add(max).saturating_add(1),
        }
    } else {
        Target::Fits
    }
}

fn partial<T>(window: &[u8], target: Target) -> Parse<T> {
    if let Some(at) = syntax::bare_lf(window) {
        return Parse::Failed(DecodeError::bad_head(BARE_LF).at(at));
    }
    let recheck = match target {
        Target::Open { too_long_at } => too_long_at,
        _ => usize::MAX,
    };
    Parse::Partial { recheck }
}

/// A bare LF in the lines that count is the older fault: it would have been seen first, had the
/// bytes come one by one.
fn too_many_fields(window: &[u8], max: usize) -> DecodeError {
    let lines = window
        .split_inclusive(|&b| b == b'\n')
        .take(max.saturating_add(2));
    let end = lines.map(<[u8]>::len).sum();
    match syntax::bare_lf(&window[..end]) {
        Some(at) => DecodeError::bad_head(BARE_LF).at(at),
        None => DecodeError::too_large(Limit::Fields),
    }
}

fn validate(
    request: &httparse::Request<'_, '_>,
    block: &[u8],
) -> Result<RequestParts, DecodeError> {
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version)
    else {
        return Err(DecodeError::bad_head("the request line is not whole"));
    };
    let version = Version::from_minor(minor);
    let (notes, lines) = Notes::gather(block, request.headers);
    check_line_ends(block, &lines)?;
    target::check_target(method, target.as_bytes()).map_err(DecodeError::bad_head)?;
    check_host(block, &notes, version)?;
    let body = frame(method, version, &notes)?;
    Ok(RequestParts {
        method: Span::of(block, method.as_bytes()),
        target: Span::of(block, target.as_bytes()),
        version,
        notes,
        lines,
        body,
        connect: method == "CONNECT",
    })
}

/// The parser takes a bare LF for a line end. From outside that is refused, as the next hop may
/// not read it so (RFC 9112 §2.2 permits either). Only line ends can hold an LF by now, so it is
/// enough to look before each field and at the end.
fn check_line_ends(block: &[u8], lines: &[Line]) -> Result<(), DecodeError> {
    let ends_well = |at: usize| block[..at].ends_with(b"\r\n");
    let fine = lines.iter().all(|line| ends_well(line.name.start as usize))
        && block.ends_with(b"\r\n\r\n");
    if fine {
        Ok(())
    } else {
        Err(DecodeError::bad_head(BARE_LF))
    }
}

fn check_host(block: &[u8], notes: &Notes, version: Version) -> Result<(), DecodeError> {
    match notes.hosts {
        0 if version == Version::Http11 => Err(DecodeError::bad_head(
            "an HTTP/1.1 request must have a Host field",
        )),
        0 => Ok(()),
        1 => target::check_authority(&block[notes.host.range()]).map_err(DecodeError::bad_head),
        _ => Err(DecodeError::bad_head(
            "a request must not have more than one Host field",
        )),
    }
}

fn frame(method: &str, version: Version, notes: &Notes) -> Result<BodyLength, DecodeError> {
    let chunked = notes.chunked(Role::Request, version)?;
    let length = notes.content_length(Role::Request)?;
    let body = match length {
        _ if chunked => BodyLength::Chunked,
        Some(length) => BodyLength::Exact(length),
        None => BodyLength::None,
    };
    let has_body = !matches!(body, BodyLength::None | BodyLength::Exact(0));
    if method == "CONNECT" && has_body {
        // Content there has no meaning (RFC 9110 §9.3.6): one hop would read it as the tunnel.
        return Err(DecodeError::new(
            crate::DecodeErrorKind::AmbiguousFraming,
            "CONNECT with a body",
        ));
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DecodeErrorKind;

    fn parse_all(text: &str, limits: &Limits) -> Result<Option<RequestHead>, DecodeErrorKind> {
        match parse(text.as_bytes(), limits) {
            Parse::Complete(parts, len) => Ok(Some(
                parts.with_block(Bytes::copy_from_slice(&text.as_bytes()[..len])),
            )),
            Parse::Partial { .. } => Ok(None),
            Parse::Failed(error) => Err(error.category()),
        }
    }

    #[test]
    fn the_authority_of_the_target_outranks_host() {
        let head = |text| {
            parse_all(text, &Limits::default())
                .ok()
                .flatten()
                .expect("a head")
        };
        let absolute = head("GET http://b.example/x HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert_eq!(absolute.authority(), Some("b.example"));
        assert_eq!(
            head("GET / HTTP/1.1\r\nHost: a:1\r\n\r\n").authority(),
            Some("a:1")
        );
        assert_eq!(head("GET / HTTP/1.1\r\nHost:\r\n\r\n").authority(), None);
        assert_eq!(
            head("CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n").authority(),
            Some("a:1")
        );
    }

    #[test]
    fn a_target_limit_bites_inside_the_target() {
        let limits = Limits::default().with_max_target_bytes(4);
        assert!(matches!(parse_all("GET /abc", &limits), Ok(None)));
        assert_eq!(
            parse_all("GET /abcd", &limits).err(),
            Some(DecodeErrorKind::TooLarge(Limit::TargetBytes))
        );
    }

    #[test]
    fn a_bare_line_feed_is_refused_before_the_end_of_the_head_is_seen() {
        let limits = Limits::default();
        let refused = Some(DecodeErrorKind::BadHead);
        assert_eq!(parse_all("GET / HTTP/1.1\nHost: a", &limits).err(), refused);
        assert_eq!(
            parse_all("GET / HTTP/1.1\r\nHost: a\n\r\n", &limits).err(),
            refused
        );
        assert_eq!(
            parse_all("GET / HTTP/1.1\r\nHost: a\r\n\n", &limits).err(),
            refused
        );
    }

    #[test]
    fn connect_carries_no_body() {
        let text = "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\nContent-Length: 3\r\n\r\n";
        let kind = parse_all(text, &Limits::default()).err();
        assert_eq!(kind, Some(DecodeErrorKind::AmbiguousFraming));
    }
}
