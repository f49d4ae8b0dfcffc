//! To and from the types of the `http` crate (feature `http`).

use bytes::Bytes;

use crate::error::EncodeError;
use crate::frame;
use crate::framing::Notes;
use crate::head::Version;
use crate::request::RequestHead;
use crate::request_writer::RequestWriter;
use crate::response::ResponseHead;
use crate::response_writer::ResponseWriter;

/// The reason phrase of a response, in the extensions of an [`http::Response`] whose reason is not
/// the usual one for its status. That type has no place of its own for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReasonPhrase(Bytes);

impl ReasonPhrase {
    /// The phrase as received; it may be empty or hold bytes above 0x7F.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<Version> for http::Version {
    fn from(version: Version) -> Self {
        match version {
            Version::Http10 => Self::HTTP_10,
            Version::Http11 => Self::HTTP_11,
        }
    }
}

impl RequestHead {
    /// The head as a request without a body. Field values share the received buffer; of the names
    /// only the spelling is lost.
    ///
    /// # Errors
    ///
    /// The target is one that [`http::Uri`] cannot hold, such as one longer than 65,534 bytes or with
    /// characters that RFC 3986 does not allow.
    ///
    /// # Panics
    ///
    /// As [`Fields::to_header_map`](crate::Fields::to_header_map).
    pub fn to_http(&self) -> Result<http::Request<()>, http::Error> {
        let mut request = http::Request::builder()
            .method(self.method())
            .uri(http::Uri::from_maybe_shared(self.target_bytes())?)
            .version(self.version().into())
            .body(())?;
        *request.headers_mut() = self.fields().to_header_map();
        Ok(request)
    }
}

impl ResponseHead {
    /// The head as a response without a body. Field values share the received buffer; of the names
    /// only the spelling is lost. A reason phrase that is not the usual one stands in the extensions,
    /// as [`ReasonPhrase`].
    ///
    /// # Panics
    ///
    /// As [`Fields::to_header_map`](crate::Fields::to_header_map).
    #[must_use]
    pub fn to_http(&self) -> http::Response<()> {
        let mut response = http::Response::new(());
        // The decoder takes no status below 100, and three digits are at most 999.
        let status = http::StatusCode::from_u16(self.status()).unwrap_or_default();
        *response.status_mut() = status;
        *response.version_mut() = self.version().into();
        *response.headers_mut() = self.fields().to_header_map();
        if status.canonical_reason().map(str::as_bytes) != Some(self.reason()) {
            let phrase = ReasonPhrase(self.reason_bytes());
            response.extensions_mut().insert(phrase);
        }
        response
    }
}

/// Writes what a message of the `http` crate says of itself, for the writers' conversions.
fn write_fields(
    map: &http::HeaderMap,
    is_ours: impl Fn(&[u8]) -> bool,
    mut write: impl FnMut(&[u8], &[u8]) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    for (name, value) in map {
        let name = name.as_str().as_bytes();
        if !is_ours(name) {
            write(name, value.as_bytes())?;
        }
    }
    Ok(())
}

impl RequestWriter<'_> {
    /// Adds the lines of `map` but `Content-Length` and `Transfer-Encoding`, which
    /// [`finish`](Self::finish) writes from the [`BodyLength`](crate::BodyLength).
    ///
    /// # Errors
    ///
    /// [`EncodeError::DuplicateHost`]. The lines before are written then, and the writer goes on.
    pub fn fields(&mut self, map: &http::HeaderMap) -> Result<(), EncodeError> {
        write_fields(map, frame::is_framing_field, |name, value| {
            self.field(name, value)
        })
    }
}

impl ResponseWriter<'_> {
    /// Adds the lines of `map` but `Content-Length`, `Transfer-Encoding` and `Connection`, which
    /// [`finish`](Self::finish) writes. `Connection: close` in `map` counts as a call of
    /// [`close`](Self::close).
    ///
    /// # Errors
    ///
    /// None that a [`HeaderMap`](http::HeaderMap) can cause: its names and values are checked alike.
    pub fn fields(&mut self, map: &http::HeaderMap) -> Result<(), EncodeError> {
        let mut notes = Notes::default();
        for value in map.get_all(http::header::CONNECTION) {
            notes.note_connection(value.as_bytes());
        }
        if notes.close {
            self.close();
        }
        let is_ours = |name: &[u8]| frame::is_framing_field(name) || name == b"connection";
        write_fields(map, is_ours, |name, value| self.field(name, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        BodyLength, ClientExchange, Limits, RequestEvent, ResponseEvent, SentRequest,
        ServerExchange,
    };
    use bytes::BytesMut;

    fn request_head(bytes: &[u8]) -> RequestHead {
        let mut exchange = ServerExchange::new(&Limits::default());
        match exchange.decode(&mut BytesMut::from(bytes)) {
            Ok(RequestEvent::Head(head)) => head,
            other => panic!("{other:?}"),
        }
    }

    fn sent() -> SentRequest {
        let mut dst = BytesMut::new();
        let mut writer = RequestWriter::new(&mut dst, "GET", "/").expect("a good line");
        writer.field("Host", "a").expect("a good field");
        writer.finish(BodyLength::None).expect("a whole head")
    }

    fn response_head(bytes: &[u8]) -> ResponseHead {
        let mut exchange = ClientExchange::new(sent(), &Limits::default());
        match exchange.decode(&mut BytesMut::from(bytes)) {
            Ok(ResponseEvent::Head(head)) => head,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn request_goes_to_the_http_crate_and_back() {
        let head = request_head(
            b"POST /a?b HTTP/1.1\r\nHost: x:1\r\nVia: 1\r\nvia: 2\r\nX-B: \xff\r\nContent-Length: 3\r\n\r\n",
        );
        let request = head.to_http().expect("a target like any other");
        assert_eq!(
            (request.method(), request.version()),
            (&http::Method::POST, http::Version::HTTP_11)
        );
        assert_eq!(request.uri(), "/a?b");
        assert_eq!(request.headers().len(), head.fields().len());

        let mut dst = BytesMut::new();
        let target = request.uri().to_string();
        let mut writer =
            RequestWriter::new(&mut dst, request.method().as_str(), &target).expect("a good line");
        writer.fields(request.headers()).expect("good fields");
        writer.finish(head.body_length()).expect("a whole head");
        let again = request_head(&dst);
        assert_eq!(
            (again.method(), again.target()),
            (head.method(), head.target())
        );
        assert_eq!(again.body_length(), head.body_length());
        let sorted = |head: &RequestHead| {
            let lines = head.fields().iter();
            let lines = lines.map(|field| (field.name.to_lowercase(), field.value.to_vec()));
            let mut lines: Vec<_> = lines.collect();
            // Lines of one name keep their order, which the sort must not hide.
            lines.sort_by(|one, other| one.0.cmp(&other.0));
            lines
        };
        assert_eq!(sorted(&again), sorted(&head));
    }

    #[test]
    fn every_form_of_target_becomes_a_uri() {
        for (line, authority) in [
            ("GET http://h:1/x", Some("h:1")),
            ("CONNECT h:1", Some("h:1")),
            ("OPTIONS *", None),
            ("GET /x", None),
        ] {
            let head = request_head(format!("{line} HTTP/1.1\r\nHost: h:1\r\n\r\n").as_bytes());
            let request = head.to_http().expect(line);
            let found = request.uri().authority().map(http::uri::Authority::as_str);
            assert_eq!(found, authority, "{line}");
        }
    }

    #[test]
    fn target_that_no_uri_can_hold_is_an_error() {
        let head = request_head(b"GET /{ HTTP/1.1\r\nHost: h\r\n\r\n");
        // RFC 3986 does not allow it; the crate may, and then it has to be the same.
        if let Ok(request) = head.to_http() {
            assert_eq!(request.uri(), "/{");
        }
        let long = format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(70_000));
        let limits = Limits::default()
            .with_max_target_bytes(100_000)
            .with_max_head_bytes(200_000);
        let mut src = BytesMut::from(long.as_bytes());
        let Ok(RequestEvent::Head(head)) = ServerExchange::new(&limits).decode(&mut src) else {
            panic!("within the limits");
        };
        assert!(head.to_http().is_err());
    }

    #[test]
    fn response_goes_to_the_http_crate_and_back() {
        let mut server = ServerExchange::new(&Limits::default());
        let mut request = BytesMut::from(&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..]);
        assert!(matches!(
            server.decode(&mut request),
            Ok(RequestEvent::Head(_))
        ));
        let head = response_head(
            b"HTTP/1.1 299 Odd\xe9 enough\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        );
        let response = head.to_http();
        assert_eq!(
            (response.status().as_u16(), response.headers().len()),
            (299, 4)
        );
        let phrase = response.extensions().get::<ReasonPhrase>();
        assert_eq!(
            phrase.map(ReasonPhrase::as_bytes),
            Some(&b"Odd\xe9 enough"[..])
        );

        let mut dst = BytesMut::new();
        let mut writer = server
            .respond(&mut dst, response.status().as_u16())
            .expect("it may answer");
        writer
            .reason(phrase.expect("it is odd").as_bytes())
            .expect("it is text");
        writer.fields(response.headers()).expect("good fields");
        writer.finish(head.body_length()).expect("a whole head");
        let again = response_head(&dst);
        assert_eq!(
            (again.status(), again.reason()),
            (head.status(), head.reason())
        );
        assert_eq!(again.keep_alive(), head.keep_alive());
        let cookies = again.fields().get_all("set-cookie").collect::<Vec<_>>();
        assert_eq!(cookies, [b"a", b"b"]);
        assert_eq!(again.fields().len(), head.fields().len());
    }

    #[test]
    fn usual_reason_takes_no_extension() {
        let response =
            response_head(b"HTTP/1.0 404 Not Found\r\nContent-Length: 0\r\n\r\n").to_http();
        assert_eq!(
            (response.status().as_u16(), response.version()),
            (404, http::Version::HTTP_10)
        );
        assert!(response.extensions().get::<ReasonPhrase>().is_none());
    }
}
