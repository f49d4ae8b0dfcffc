use core::mem::MaybeUninit;

use crate::error::DecodeError;
use crate::fields_view::{FieldSlots, FieldsView};
use crate::framing::{BodyLength, Notes, Role};
use crate::head::{self, Parse, Span, Version};
use crate::limits::{Limit, Limits};
use crate::syntax;
use crate::target;

/// The head of a request, borrowed from the bytes it came in (RFC 9112 §3).
///
/// The cheapest way to look at a head: nothing is copied, counted or allocated. It passes every
/// check that [`ServerExchange`](crate::ServerExchange) makes on a head; what follows the head
/// (body, reuse) is the exchange's.
///
/// ```
/// use http_codec::{FieldSlots, Limits, RequestView};
///
/// let bytes = b"GET /a HTTP/1.1\r\nHost: example.org\r\n\r\n";
/// let mut slots = FieldSlots::new();
/// let parsed = RequestView::parse(bytes, &Limits::default(), &mut slots)?;
/// let (head, len) = parsed.expect("it is whole");
/// assert_eq!((head.method(), head.target(), len), ("GET", "/a", bytes.len()));
/// assert_eq!(head.authority(), Some("example.org"));
/// # Ok::<(), http_codec::DecodeError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct RequestView<'a> {
    method: &'a str,
    target: &'a str,
    host: Option<&'a [u8]>,
    fields: FieldsView<'a>,
    terms: Terms,
}

/// What a head says of the message and the connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) version: Version,
    pub(crate) body: BodyLength,
    pub(crate) keep_alive: bool,
    /// The client has said `Connection: close`.
    pub(crate) close: bool,
    pub(crate) expects_continue: bool,
    pub(crate) upgrade: bool,
}

impl<'a> RequestView<'a> {
    /// Reads the head at the front of `bytes`, empty lines before it skipped (RFC 9112 §2.2);
    /// returns it with the number of bytes it takes, or `None` while it is not whole.
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
        limits: &Limits,
        slots: &'a mut FieldSlots<'b>,
    ) -> Result<Option<(Self, usize)>, DecodeError> {
        let limits = &limits.with_max_fields(limits.max_fields().min(FieldSlots::CAPACITY));
        head::view(bytes, limits.max_head_bytes(), |window| {
            parse(window, limits, slots.take(limits.max_fields()))
        })
    }

    #[inline]
    fn of<'b: 'a>(
        request: httparse::Request<'a, 'b>,
        block: &'b [u8],
    ) -> Result<Self, DecodeError> {
        let httparse::Request {
            method: Some(method),
            path: Some(target),
            version: Some(minor),
            headers,
        } = request
        else {
            return Err(DecodeError::bad_head("the request line is not whole"));
        };
        let version = Version::from_minor(minor);
        let notes = Notes::of(headers);
        check_line_ends(block, headers)?;
        target::check_target(method, target.as_bytes()).map_err(DecodeError::bad_head)?;
        check_host(&notes, version)?;
        let body = frame(method, version, &notes)?;
        let newer = version == Version::Http11;
        let offers = newer && notes.upgrade_option && notes.upgrade_field;
        Ok(Self {
            method,
            target,
            host: (notes.hosts > 0).then_some(notes.host),
            fields: FieldsView::new(headers),
            terms: Terms {
                version,
                body,
                keep_alive: notes.persistent(version),
                close: notes.close,
                expects_continue: newer && notes.expect_continue,
                upgrade: method == "CONNECT" || offers,
            },
        })
    }

    /// The method as received; methods are case-sensitive (RFC 9110 §9.1).
    #[must_use]
    pub fn method(&self) -> &'a str {
        self.method
    }

    /// The request target as received, in any of its four forms (RFC 9112 §3.2).
    #[must_use]
    pub fn target(&self) -> &'a str {
        self.target
    }

    /// The version on the request line.
    #[must_use]
    pub fn version(&self) -> Version {
        self.terms.version
    }

    /// The field lines.
    #[must_use]
    pub fn fields(&self) -> FieldsView<'a> {
        self.fields
    }

    /// How the body is framed on the wire.
    #[must_use]
    pub fn body_length(&self) -> BodyLength {
        self.terms.body
    }

    /// Whom the request is for: the authority of the target where it has one, else `Host`
    /// (RFC 9112 §3.3). `None` where both are missing or empty.
    #[must_use]
    pub fn authority(&self) -> Option<&'a str> {
        let host = self.host.and_then(|host| str::from_utf8(host).ok());
        target::authority(self.method, self.target, host)
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

    pub(crate) fn terms(&self) -> Terms {
        self.terms
    }

    pub(crate) fn host(&self) -> Option<&'a [u8]> {
        self.host
    }
}

const BARE_LF: &str = "a line of the head must end with CR LF, not with LF alone";

/// Parses a head that starts at the first byte of `window`.
#[inline]
pub(crate) fn parse<'a, 'b: 'a>(
    window: &'b [u8],
    limits: &Limits,
    slots: &'a mut [MaybeUninit<httparse::Header<'b>>],
) -> Parse<RequestView<'a>> {
    let mut request = httparse::Request::new(&mut []);
    let parsed = request.parse_with_uninit_headers(window, slots);
    let target = measure_target(&request, window, limits.max_target_bytes());
    if matches!(target, Target::TooLong) {
        return Parse::Failed(DecodeError::too_large(Limit::TargetBytes));
    }
    match parsed {
        Ok(httparse::Status::Complete(len)) => match RequestView::of(request, &window[..len]) {
            Ok(view) => Parse::Complete(view, len),
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
        Err(error) => Parse::Failed(refused(window, limits, error)),
    }
}

/// A bare LF before what `error` is about is the older fault: it would have been seen first, had
/// the bytes come one by one.
fn refused(window: &[u8], limits: &Limits, error: httparse::Error) -> DecodeError {
    if let Some(at) = syntax::bare_lf(window).filter(|at| at + 1 < window.len()) {
        let lines = &window[..=at];
        let room = head::fields_within(lines, limits.max_fields());
        let parsed = head::with_slots(room, |slots| parse(lines, limits, slots).map(|_| ()));
        if let Parse::Failed(older) = parsed {
            return older;
        }
    }
    match error {
        httparse::Error::TooManyHeaders => DecodeError::too_large(Limit::Fields),
        error => DecodeError::bad_head(head::describe(error)),
    }
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

/// The parser takes a bare LF for a line end. From outside that is refused, as the next hop may
/// not read it so (RFC 9112 §2.2 permits either). Only line ends can hold an LF by now, so it is
/// enough to look before each field and at the end.
fn check_line_ends(block: &[u8], fields: &[httparse::Header<'_>]) -> Result<(), DecodeError> {
    let ends_well = |name: &str| {
        let start = name.as_ptr().addr() - block.as_ptr().addr();
        block.get(start - 2..start) == Some(b"\r\n")
    };
    let fine = fields.iter().all(|field| ends_well(field.name)) && block.ends_with(b"\r\n\r\n");
    if fine {
        Ok(())
    } else {
        let at = syntax::bare_lf(block).unwrap_or_default();
        Err(DecodeError::bad_head(BARE_LF).at(at))
    }
}

#[inline]
fn check_host(notes: &Notes<'_>, version: Version) -> Result<(), DecodeError> {
    match notes.hosts {
        0 if version == Version::Http11 => Err(DecodeError::bad_head(
            "an HTTP/1.1 request must have a Host field",
        )),
        0 => Ok(()),
        1 => target::check_authority(notes.host).map_err(DecodeError::bad_head),
        _ => Err(DecodeError::bad_head(
            "a request must not have more than one Host field",
        )),
    }
}

#[inline]
fn frame(method: &str, version: Version, notes: &Notes<'_>) -> Result<BodyLength, DecodeError> {
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

    /// The authority of the head, if it is whole.
    fn parse_all(text: &str, limits: &Limits) -> Result<Option<Option<String>>, DecodeErrorKind> {
        let mut slots = FieldSlots::new();
        let parsed = RequestView::parse(text.as_bytes(), limits, &mut slots);
        let parsed = parsed.map_err(|error| error.category())?;
        Ok(parsed.map(|(head, _)| head.authority().map(str::to_owned)))
    }

    #[test]
    fn the_authority_of_the_target_outranks_host() {
        let authority = |text| {
            let parsed = parse_all(text, &Limits::default());
            parsed.ok().flatten().expect("a head")
        };
        let some = |authority: &str| Some(authority.to_owned());
        let absolute = "GET http://b.example/x HTTP/1.1\r\nHost: a.example\r\n\r\n";
        assert_eq!(authority(absolute), some("b.example"));
        assert_eq!(
            authority("GET / HTTP/1.1\r\nHost: a:1\r\n\r\n"),
            some("a:1")
        );
        assert_eq!(authority("GET / HTTP/1.1\r\nHost:\r\n\r\n"), None);
        assert_eq!(
            authority("CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n"),
            some("a:1")
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
