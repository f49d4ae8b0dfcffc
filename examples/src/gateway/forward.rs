//! What a head turns into on its way through the gateway: hop-by-hop fields stay behind, and what
//! the gateway has to say is added. No map is built.

use std::borrow::Cow;
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use http_client::Destination;
use http_codec::{
    BodyLength, EncodeError, Field, InterimWriter, RequestHead, RequestWriter, ResponseHead,
    ResponseWriter, SentRequest, Version,
};

use super::hop::{ConnectionOptions, TooManyOptions};
use super::reply::Reply;

const NAME: &str = "pinpool";

/// Room for a typical head and what is added.
const HEAD_BYTES: usize = 1 << 10;

/// A request as the upstream gets it, without its body.
pub(super) struct Encoded {
    pub(super) head: Bytes,
    pub(super) sent: SentRequest,
    /// What the client's `Connection` lines name. It concerns the trailers too.
    pub(super) options: ConnectionOptions,
}

/// Encodes a client's request for the upstream.
///
/// # Errors
///
/// The request is not passed on; this is the answer to it.
pub(super) fn request(
    head: &RequestHead,
    client: SocketAddr,
    destination: &Destination,
) -> Result<Encoded, Reply> {
    if head.method() == "CONNECT" {
        return Err(Reply::NO_TUNNEL);
    }
    let options =
        ConnectionOptions::of(head.fields()).map_err(|TooManyOptions| Reply::TOO_MANY_OPTIONS)?;
    let target = origin_form(head.method(), head.target()).ok_or(Reply::OTHER_SCHEME)?;
    let hops_left = hops_left(head)?;
    let host = match head.authority() {
        Some(authority) => Cow::from(authority),
        None => destination.host_field().into(),
    };
    let mut encoded = BytesMut::with_capacity(HEAD_BYTES);
    let sent = RequestWriter::new(&mut encoded, head.method(), &target)
        .and_then(|mut writer| {
            writer.field("Host", &*host)?;
            write_fields(head, &options, client, hops_left, &mut writer)?;
            writer.finish(head.body_length())
        })
        .map_err(|_: EncodeError| Reply::UNFORWARDABLE)?;
    Ok(Encoded {
        head: encoded.freeze(),
        sent,
        options,
    })
}

fn write_fields(
    head: &RequestHead,
    options: &ConnectionOptions,
    client: SocketAddr,
    hops_left: Option<u64>,
    writer: &mut RequestWriter<'_>,
) -> Result<(), EncodeError> {
    let mut forwarded_for = Vec::new();
    for field in options.end_to_end(head.fields()) {
        match Rewritten::of(field.name) {
            Some(Rewritten::ForwardedFor) => {
                forwarded_for.extend_from_slice(field.value);
                forwarded_for.extend_from_slice(b", ");
            }
            Some(Rewritten::Dropped) => {}
            Some(Rewritten::MaxForwards) if hops_left.is_some() => {}
            None | Some(Rewritten::MaxForwards) => writer.field(field.name, field.value)?,
        }
    }
    if let Some(hops_left) = hops_left {
        writer.field("Max-Forwards", hops_left.to_string())?;
    }
    forwarded_for.extend_from_slice(client.ip().to_canonical().to_string().as_bytes());
    writer.field("X-Forwarded-For", forwarded_for)?;
    writer.field("X-Forwarded-Proto", "http")?;
    writer.field("Via", via(head.version()))
}

/// How many more hops a TRACE or OPTIONS may take behind this one, if it says so (RFC 9110
/// §7.6.2); for other methods it means nothing. What cannot be counted down could go in circles.
///
/// # Errors
///
/// It ends here.
fn hops_left(head: &RequestHead) -> Result<Option<u64>, Reply> {
    let answer = match head.method() {
        "OPTIONS" => Reply::OPTIONS,
        "TRACE" => Reply::NO_TRACE,
        _ => return Ok(None),
    };
    let mut values = head.fields().get_all("max-forwards");
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    if !is_number || values.next().is_some() {
        return Err(Reply::BAD_MAX_FORWARDS);
    }
    // More than fits becomes as much as fits, which the RFC allows.
    let received = str::from_utf8(value)
        .ok()
        .and_then(|text| text.parse().ok());
    match received.unwrap_or(u64::MAX).checked_sub(1) {
        Some(left) => Ok(Some(left)),
        None => Err(answer),
    }
}

/// Fields of a request that are not passed on as they are.
#[derive(Clone, Copy)]
enum Rewritten {
    /// Joined into one line, the client's address at its end.
    ForwardedFor,
    /// Counted down for the methods that it concerns.
    MaxForwards,
    /// Said by the gateway itself: `Host`, the framing, the scheme; and `Expect`, which the
    /// gateway answers.
    Dropped,
}

impl Rewritten {
    fn of(name: &str) -> Option<Self> {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        match name.len() {
            4 if is("host") => Some(Self::Dropped),
            6 if is("expect") => Some(Self::Dropped),
            12 if is("max-forwards") => Some(Self::MaxForwards),
            14 if is("content-length") => Some(Self::Dropped),
            15 if is("x-forwarded-for") => Some(Self::ForwardedFor),
            17 if is("x-forwarded-proto") => Some(Self::Dropped),
            _ => None,
        }
    }
}

/// The origin form of a target (RFC 9112 §3.2.1); a client that takes us for its own proxy sends
/// the absolute form (§3.2.2). `None`: of another scheme than http.
fn origin_form<'a>(method: &str, target: &'a str) -> Option<Cow<'a, str>> {
    let Some((scheme, rest)) = target
        .split_once("://")
        .filter(|_| !target.starts_with('/'))
    else {
        return Some(target.into());
    };
    if !scheme.eq_ignore_ascii_case("http") {
        return None;
    }
    Some(match rest.find(['/', '?']) {
        Some(at) if rest[at..].starts_with('/') => rest[at..].into(),
        Some(at) => format!("/{}", &rest[at..]).into(),
        None if method == "OPTIONS" => "*".into(),
        None => "/".into(),
    })
}

/// The status line's reason and the fields of a final response for the client.
///
/// # Errors
///
/// The upstream's response cannot be passed on.
pub(super) fn response(
    head: &ResponseHead,
    options: &ConnectionOptions,
    writer: &mut ResponseWriter<'_>,
) -> Result<(), EncodeError> {
    // A reason that cannot be sent is no loss: it means nothing (RFC 9112 §4).
    let _ = writer.reason(head.reason());
    for field in passed_on(head, options) {
        writer.field(field.name, field.value)?;
    }
    writer.field("Via", via(head.version()))
}

/// The status line's reason and the fields of an interim response for the client.
///
/// # Errors
///
/// The upstream's response cannot be passed on.
pub(super) fn interim(
    head: &ResponseHead,
    options: &ConnectionOptions,
    writer: &mut InterimWriter<'_>,
) -> Result<(), EncodeError> {
    // As in a final response.
    let _ = writer.reason(head.reason());
    for field in passed_on(head, options) {
        writer.field(field.name, field.value)?;
    }
    Ok(())
}

/// The fields of a response that the client gets as they came; its framing is the gateway's own.
fn passed_on<'a>(
    head: &'a ResponseHead,
    options: &ConnectionOptions,
) -> impl Iterator<Item = Field<'a>> {
    options
        .end_to_end(head.fields())
        .filter(|field| !field.name.eq_ignore_ascii_case("content-length"))
}

/// How the client gets a response's body.
///
/// A body that ends with the upstream's connection is chunked, so that the client can tell its end
/// from a break. Answers without a body say what they would have had. A 205 has no content, but an
/// upstream may frame that as it likes.
pub(super) fn response_length(head: &ResponseHead) -> BodyLength {
    match head.body_length() {
        _ if matches!(head.status(), 204 | 205) => BodyLength::None,
        BodyLength::UntilClose => BodyLength::Chunked,
        BodyLength::None => match head.content_length() {
            Some(length) => BodyLength::Exact(length),
            None if head.fields().contains("transfer-encoding") => BodyLength::Chunked,
            None => BodyLength::None,
        },
        length => length,
    }
}

fn via(version: Version) -> String {
    let version = match version {
        Version::Http10 => "1.0",
        Version::Http11 => "1.1",
    };
    format!("{version} {NAME}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_codec::{Limits, RequestEvent, ServerExchange};

    fn parse(head: &str) -> RequestHead {
        let mut src = BytesMut::from(head);
        match ServerExchange::new(&Limits::default()).decode(&mut src) {
            Ok(RequestEvent::Head(head)) => head,
            other => panic!("{other:?}"),
        }
    }

    fn forwarded(head: &str) -> String {
        let client = "192.0.2.7:1234".parse().unwrap();
        let destination = "http://upstream:81".parse().unwrap();
        let encoded = request(&parse(head), client, &destination)
            .map_err(|reply| reply.status())
            .unwrap();
        String::from_utf8(encoded.head.to_vec()).unwrap()
    }

    /// What the sender of a request is told that is not passed on.
    fn refused(head: &str) -> Reply {
        let client = "192.0.2.7:1234".parse().unwrap();
        let destination = "http://upstream:81".parse().unwrap();
        match request(&parse(head), client, &destination) {
            Ok(encoded) => panic!("{:?}", encoded.head),
            Err(reply) => reply,
        }
    }

    const ADDED: &str = "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: http\r\n";

    #[test]
    fn hop_by_hop_fields_stay_behind_and_the_rest_goes_on_as_it_came() {
        let head = "GET /a?b HTTP/1.1\r\nHost: site\r\nConnection: keep-alive, X-Hop\r\n\
                    Keep-Alive: timeout=5\r\nX-Hop: 1\r\nTE: trailers\r\nUpgrade: h2c\r\n\
                    Proxy-Connection: close\r\naCCept: */*\r\nCookie: a\r\nCookie: b\r\n\r\n";
        assert_eq!(
            forwarded(head),
            format!(
                "GET /a?b HTTP/1.1\r\nHost: site\r\naCCept: */*\r\nCookie: a\r\nCookie: b\r\n\
                 {ADDED}Via: 1.1 pinpool\r\n\r\n"
            )
        );
    }

    #[test]
    fn forwarding_fields_are_continued_and_cannot_be_named_away() {
        let head = "GET / HTTP/1.1\r\nHost: site\r\nX-Forwarded-For: 203.0.113.9\r\n\
                    X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-Proto: https\r\n\
                    Via: 1.0 other\r\nConnection: x-forwarded-proto\r\n\r\n";
        let joined = forwarded(head);
        assert!(joined.contains("X-Forwarded-For: 203.0.113.9, 10.0.0.1, 192.0.2.7\r\n"));
        assert!(joined.contains("X-Forwarded-Proto: http\r\n"));
        assert!(joined.contains("Via: 1.0 other\r\nX-"), "{joined}");
        let head = "GET / HTTP/1.1\r\nHost: site\r\nX-Forwarded-For: 203.0.113.9\r\n\
                    Connection: X-Forwarded-For\r\n\r\n";
        assert!(forwarded(head).contains(ADDED));
    }

    #[test]
    fn body_is_framed_anew_and_expect_is_ours() {
        let head = "POST / HTTP/1.1\r\nHost: site\r\nContent-Length: 5\r\n\
                    Expect: 100-continue\r\n\r\n";
        let forwarded_head = forwarded(head);
        assert!(
            forwarded_head.ends_with("Content-Length: 5\r\n\r\n"),
            "{forwarded_head}"
        );
        assert!(!forwarded_head.contains("Expect"));
        let head = "POST / HTTP/1.1\r\nHost: site\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(forwarded(head).ends_with("Transfer-Encoding: chunked\r\n\r\n"));
    }

    #[test]
    fn target_is_sent_in_origin_form_and_its_authority_as_host() {
        for (line, expected) in [
            (
                "GET http://other/a?b",
                "GET /a?b HTTP/1.1\r\nHost: other\r\n",
            ),
            ("GET http://other", "GET / HTTP/1.1\r\nHost: other\r\n"),
            ("GET http://other?q", "GET /?q HTTP/1.1\r\nHost: other\r\n"),
            (
                "OPTIONS http://other:8080",
                "OPTIONS * HTTP/1.1\r\nHost: other:8080\r\n",
            ),
            ("OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: site\r\n"),
            (
                "GET /r?u=http://x/",
                "GET /r?u=http://x/ HTTP/1.1\r\nHost: site\r\n",
            ),
        ] {
            let forwarded = forwarded(&format!("{line} HTTP/1.1\r\nHost: site\r\n\r\n"));
            assert!(forwarded.starts_with(expected), "{forwarded}");
        }
    }

    #[test]
    fn old_client_without_a_host_gets_the_upstreams() {
        let forwarded = forwarded("GET / HTTP/1.0\r\n\r\n");
        assert!(
            forwarded.starts_with("GET / HTTP/1.1\r\nHost: upstream:81\r\n"),
            "{forwarded}"
        );
        assert!(forwarded.ends_with("Via: 1.0 pinpool\r\n\r\n"));
    }

    #[test]
    fn absolute_form_of_another_scheme_is_not_passed_on_as_http() {
        for target in ["https://b/", "ftp://b/", "httpx://b", "h://b?http://b/"] {
            let head = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(refused(&head), Reply::OTHER_SCHEME, "{target}");
        }
        let head = "GET HTTP://b:80/x HTTP/1.1\r\nHost: a\r\n\r\n";
        assert!(forwarded(head).starts_with("GET /x HTTP/1.1\r\nHost: b:80\r\n"));
    }

    fn limited(method: &str, lines: &str) -> String {
        format!("{method} / HTTP/1.1\r\nHost: site\r\n{lines}\r\n")
    }

    #[test]
    fn hops_are_counted_down_where_they_count() {
        for (method, value, passed) in [
            ("OPTIONS", "1", "0"),
            ("TRACE", "0010", "9"),
            ("OPTIONS", "18446744073709551615", "18446744073709551614"),
            ("OPTIONS", "99999999999999999999", "18446744073709551614"),
            ("GET", "0", "0"),
            ("GET", "many", "many"),
        ] {
            let head = limited(method, &format!("max-forwards: {value}\r\n"));
            let forwarded = forwarded(&head).to_lowercase();
            let expected = format!("max-forwards: {passed}\r\n");
            assert!(forwarded.contains(&expected), "{forwarded}");
            assert_eq!(forwarded.matches("max-forwards").count(), 1);
        }
        let named = limited("OPTIONS", "Max-Forwards: 2\r\nConnection: max-forwards\r\n");
        assert!(forwarded(&named).contains("Max-Forwards: 1\r\n"));
        assert!(!forwarded(&limited("OPTIONS", "")).contains("Max-Forwards"));
    }

    #[test]
    fn request_that_may_take_no_more_hops_is_answered() {
        let zero = "Max-Forwards: 0\r\n";
        assert_eq!(refused(&limited("OPTIONS", zero)), Reply::OPTIONS);
        assert_eq!(refused(&limited("TRACE", zero)), Reply::NO_TRACE);
        for lines in [
            "Max-Forwards:\r\n",
            "Max-Forwards: -1\r\n",
            "Max-Forwards: +1\r\n",
            "Max-Forwards: 1, 1\r\n",
            "Max-Forwards: 1\r\nMax-Forwards: 1\r\n",
        ] {
            let head = limited("OPTIONS", lines);
            assert_eq!(refused(&head), Reply::BAD_MAX_FORWARDS, "{lines}");
        }
    }
}
