//! What a head turns into on its way through the gateway: hop-by-hop fields stay behind, and what
//! the gateway has to say is added. No map is built.

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use http_client::Destination;
use http_codec::{
    BodyLength, EncodeError, Field, Fields, InterimWriter, RequestHead, RequestWriter,
    ResponseHead, ResponseWriter, SentRequest, Version, connection_tokens, is_hop_by_hop,
};

const NAME: &str = "pinpool";

/// Room for a typical head and what is added.
const HEAD_BYTES: usize = 1 << 10;

/// Encodes a client's request for the upstream.
///
/// # Errors
///
/// The request cannot be passed on.
pub(super) fn request(
    head: &RequestHead,
    client: SocketAddr,
    destination: &Destination,
) -> Result<(Bytes, SentRequest), EncodeError> {
    let mut encoded = BytesMut::with_capacity(HEAD_BYTES);
    let target = origin_form(head.method(), head.target());
    let mut writer = RequestWriter::new(&mut encoded, head.method(), &target)?;
    match head.authority() {
        Some(authority) => writer.field("Host", authority)?,
        None => writer.field("Host", destination.host_field())?,
    }
    let mut forwarded_for = Vec::new();
    for field in end_to_end(head.fields()) {
        match Rewritten::of(field.name) {
            None => writer.field(field.name, field.value)?,
            Some(Rewritten::ForwardedFor) => {
                forwarded_for.extend_from_slice(field.value);
                forwarded_for.extend_from_slice(b", ");
            }
            Some(Rewritten::Dropped) => {}
        }
    }
    forwarded_for.extend_from_slice(client.ip().to_canonical().to_string().as_bytes());
    writer.field("X-Forwarded-For", forwarded_for)?;
    writer.field("X-Forwarded-Proto", "http")?;
    writer.field("Via", via(head.version()))?;
    let sent = writer.finish(head.body_length())?;
    Ok((encoded.freeze(), sent))
}

/// Fields of a request that are not passed on as they are.
#[derive(Clone, Copy)]
enum Rewritten {
    /// Joined into one line, the client's address at its end.
    ForwardedFor,
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
            14 if is("content-length") => Some(Self::Dropped),
            15 if is("x-forwarded-for") => Some(Self::ForwardedFor),
            17 if is("x-forwarded-proto") => Some(Self::Dropped),
            _ => None,
        }
    }
}

/// The origin form of a target (RFC 9112 §3.2.1); a client that takes us for its own proxy sends
/// the absolute form (§3.2.2).
fn origin_form<'a>(method: &str, target: &'a str) -> std::borrow::Cow<'a, str> {
    let Some((_, rest)) = target
        .split_once("://")
        .filter(|_| !target.starts_with('/'))
    else {
        return target.into();
    };
    match rest.find(['/', '?']) {
        Some(at) if rest[at..].starts_with('/') => rest[at..].into(),
        Some(at) => format!("/{}", &rest[at..]).into(),
        None if method == "OPTIONS" => "*".into(),
        None => "/".into(),
    }
}

/// The status line's reason and the fields of a final response for the client.
///
/// # Errors
///
/// The upstream's response cannot be passed on.
pub(super) fn response(
    head: &ResponseHead,
    writer: &mut ResponseWriter<'_>,
) -> Result<(), EncodeError> {
    // A reason that cannot be sent is no loss: it means nothing (RFC 9112 §4).
    let _ = writer.reason(head.reason());
    for field in end_to_end(head.fields()) {
        if !field.name.eq_ignore_ascii_case("content-length") {
            writer.field(field.name, field.value)?;
        }
    }
    writer.field("Via", via(head.version()))
}

/// The fields of an interim response for the client.
///
/// # Errors
///
/// The upstream's response cannot be passed on.
pub(super) fn interim(
    head: &ResponseHead,
    writer: &mut InterimWriter<'_>,
) -> Result<(), EncodeError> {
    for field in end_to_end(head.fields()) {
        if !field.name.eq_ignore_ascii_case("content-length") {
            writer.field(field.name, field.value)?;
        }
    }
    Ok(())
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

/// The fields that are meant for the other end (RFC 9110 §7.6.1): not the hop-by-hop ones, and
/// not those that a `Connection` line names.
///
/// What the gateway adds itself is written apart from them, so a client that names one of ours,
/// `X-Forwarded-For` say, cannot make it disappear.
fn end_to_end(fields: &Fields) -> impl Iterator<Item = Field<'_>> {
    let any_named = fields.contains("connection");
    let is_named =
        |name: &str| connection_tokens(fields).any(|option| option.eq_ignore_ascii_case(name));
    fields.iter().filter(move |field| {
        let left_behind = is_hop_by_hop(field.name) || (any_named && is_named(field.name));
        !left_behind
    })
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
        let (encoded, _) = request(&parse(head), client, &destination).unwrap();
        String::from_utf8(encoded.to_vec()).unwrap()
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
}
