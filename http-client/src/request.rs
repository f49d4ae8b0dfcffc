//! How a request of the `http` crate is put on the wire.

use std::borrow::Cow;

use bytes::BytesMut;
use http::uri::PathAndQuery;
use http::{Method, Request, Uri};
use http_codec::{BodyLength, RequestWriter};

use crate::body::Body;
use crate::destination::{Destination, InvalidDestination};
use crate::error::Error;
use crate::options::RequestOptions;
use crate::outgoing::Outgoing;

/// Where a request goes: to what its URI names.
///
/// The URI of CONNECT may be in authority form, `host:port`.
pub(crate) fn destination<B>(request: &Request<B>) -> Result<Destination, Error> {
    let uri = request.uri();
    if request.method() == Method::CONNECT {
        return Ok(tunnelled(uri)?);
    }
    Ok(Destination::from_uri(uri)?)
}

/// Writes the head, with `Host` filled in.
pub(crate) fn encode(request: Request<Body>, destination: &Destination) -> Result<Outgoing, Error> {
    let (mut parts, body) = request.into_parts();
    let mut head = BytesMut::with_capacity(512);
    let method = parts.method.as_str();
    let target = target(&parts.method, &parts.uri)?;
    let mut writer = RequestWriter::new(&mut head, method, &target)?;
    if !parts.headers.contains_key(http::header::HOST) {
        // The authority of the target, where it has one (RFC 9112 §3.2).
        match parts.method {
            Method::CONNECT => writer.field("Host", &*target)?,
            _ => writer.field("Host", destination.host_field())?,
        }
    }
    let mut length = body.length();
    for (name, value) in &parts.headers {
        if name == http::header::CONTENT_LENGTH {
            length = agreed_length(length, value.as_bytes())?;
        } else {
            writer.field(name.as_str(), value.as_bytes())?;
        }
    }
    let sent = writer.finish(length)?;
    let outgoing = Outgoing::new(head.freeze(), sent, body);
    Ok(match parts.extensions.remove::<RequestOptions>() {
        Some(options) => outgoing.options(options),
        None => outgoing,
    })
}

/// The request target: the origin form, or the form that the method has for itself
/// (RFC 9112 §3.2).
fn target<'u>(method: &Method, uri: &'u Uri) -> Result<Cow<'u, str>, Error> {
    if method == Method::CONNECT {
        return Ok(tunnelled(uri)?.authority().to_owned().into());
    }
    match uri.path_and_query().map_or("/", PathAndQuery::as_str) {
        "*" if method == Method::OPTIONS => Ok("*".into()),
        "*" => Err(Error::invalid(
            "the path \"*\" belongs to OPTIONS: expected a path that begins with \"/\"",
        )),
        path if path.starts_with('/') => Ok(path.into()),
        // An empty path is written as "/" (RFC 9112 §3.2.1).
        query => Ok(format!("/{query}").into()),
    }
}

/// What a CONNECT asks for. Without a scheme there is no default port, and it has to be told
/// (RFC 9110 §9.3.6).
fn tunnelled(uri: &Uri) -> Result<Destination, InvalidDestination> {
    if uri
        .path_and_query()
        .is_some_and(|path| path.as_str() != "/")
    {
        return Err(InvalidDestination::Path);
    }
    match uri.authority() {
        Some(authority) if uri.scheme().is_none() => {
            let destination = Destination::from_authority(authority)?;
            match authority.port() {
                Some(_) => Ok(destination),
                None => Err(InvalidDestination::Port),
            }
        }
        _ => Destination::from_uri(uri),
    }
}

/// A caller's `Content-Length` tells the length of a stream that does not know it; beside a body
/// that does, it has to be right.
fn agreed_length(length: BodyLength, given: &[u8]) -> Result<BodyLength, Error> {
    let given = str::from_utf8(given)
        .ok()
        .and_then(|text| text.parse::<u64>().ok());
    match (length, given) {
        (BodyLength::Chunked, Some(given)) => Ok(BodyLength::Exact(given)),
        (BodyLength::Exact(known), Some(given)) if known == given => Ok(length),
        (BodyLength::None, Some(0)) => Ok(length),
        _ => Err(Error::invalid(
            "the Content-Length given differs from the length of the body",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    /// The head that a request without a body has on the wire, or what is wrong with it.
    fn written(method: &str, uri: Uri, host: Option<&str>) -> Result<String, String> {
        let mut request = Request::builder().method(method).uri(uri);
        if let Some(host) = host {
            request = request.header("Host", host);
        }
        let request = request.body(Body::empty()).unwrap();
        let encoded = destination(&request).and_then(|to| encode(request, &to));
        match encoded {
            Ok(outgoing) => Ok(String::from_utf8(outgoing.head.to_vec()).unwrap()),
            Err(error) => Err(error.source().unwrap().to_string()),
        }
    }

    fn asterisk() -> Uri {
        let uri = Uri::builder().scheme("http").authority("a.example:81");
        uri.path_and_query("*").build().unwrap()
    }

    #[test]
    fn target_has_the_form_of_its_method_and_host_is_its_authority() {
        let table = [
            ("GET", "http://a.example/b?c", "/b?c", "a.example"),
            ("GET", "http://A.example:80", "/", "a.example"),
            ("GET", "http://a.example:81?c", "/?c", "a.example:81"),
            ("OPTIONS", "http://a.example?c", "/?c", "a.example"),
            ("GET", "http://[2001:db8::1]:81/", "/", "[2001:db8::1]:81"),
            ("GET", "http://a.example/b#c", "/b", "a.example"),
            ("CONNECT", "a.example:443", "a.example:443", "a.example:443"),
            ("CONNECT", "a.example:80", "a.example:80", "a.example:80"),
            (
                "CONNECT",
                "http://a.example",
                "a.example:80",
                "a.example:80",
            ),
            ("CONNECT", "[::1]:443", "[::1]:443", "[::1]:443"),
        ];
        for (method, uri, target, host) in table {
            let head = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            let uri = uri.parse().unwrap();
            assert_eq!(written(method, uri, None), Ok(head));
        }
        let head = "OPTIONS * HTTP/1.1\r\nHost: a.example:81\r\n\r\n".to_owned();
        assert_eq!(written("OPTIONS", asterisk(), None), Ok(head));
    }

    #[test]
    fn host_of_the_caller_stands_beside_the_uri() {
        for (method, uri, target) in [
            ("GET", "http://127.0.0.1:81/b", "/b"),
            ("CONNECT", "127.0.0.1:443", "127.0.0.1:443"),
        ] {
            let head = format!("{method} {target} HTTP/1.1\r\nhost: b.example\r\n\r\n");
            let uri = uri.parse().unwrap();
            assert_eq!(written(method, uri, Some("b.example")), Ok(head));
        }
    }

    #[test]
    fn target_that_is_not_one_is_refused_by_what_is_wrong_with_it() {
        for (method, uri, wrong) in [
            ("CONNECT", "a.example", "port"),
            ("CONNECT", "a.example:0", "port"),
            ("CONNECT", "me@a.example:443", "user name"),
            ("GET", "http://me:pw@a.example/", "user name"),
            ("CONNECT", "http://a.example/b", "path"),
            ("CONNECT", "/b", "path"),
            ("CONNECT", "/", "no scheme"),
            ("CONNECT", "https://a.example", "scheme"),
            ("GET", "a.example:443", "no scheme"),
            ("OPTIONS", "*", "no scheme"),
        ] {
            let error = written(method, uri.parse().unwrap(), None).unwrap_err();
            assert!(error.contains(wrong), "{method} {uri}: {error}");
        }
        let error = written("GET", asterisk(), None).unwrap_err();
        assert!(error.contains("OPTIONS"), "{error}");
    }
}
