//! From a request of the `http` crate to one that is encoded.

use bytes::BytesMut;
use http::{Request, Uri};
use http_codec::{BodyLength, RequestWriter};

use crate::destination::Destination;
use crate::error::Error;
use crate::options::RequestOptions;
use crate::outgoing::{Body, Outgoing, is_idempotent};

/// Writes the head, with `Host` filled in.
pub(crate) fn encode(
    request: Request<Body>,
    destination: &Destination,
    options: &RequestOptions,
) -> Result<Outgoing, Error> {
    let (parts, body) = request.into_parts();
    let mut head = BytesMut::with_capacity(512);
    let method = parts.method.as_str();
    let mut writer = RequestWriter::new(&mut head, method, target(&parts.uri))?;
    if !parts.headers.contains_key(http::header::HOST) {
        writer.field("Host", destination.host_field())?;
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
    Ok(Outgoing::new(head.freeze(), sent, body).idempotent(
        options
            .is_idempotent()
            .unwrap_or_else(|| is_idempotent(method)),
    ))
}

/// The origin form (RFC 9112 §3.2.1).
fn target(uri: &Uri) -> &str {
    uri.path_and_query().map_or("/", |path| path.as_str())
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
