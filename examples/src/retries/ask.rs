//! A request that is to be sent, and what becomes of it.

use std::convert::Infallible;

use bytes::{Bytes, BytesMut};
use futures_lite::stream;
use http::{Method, Request, Uri};
use http_client::{
    Body, Client, Destination, Error, IncomingBody, Outgoing, RequestOptions, TcpConnector,
};
use http_codec::RequestWriter;
use pool_core::Timestamp;

use super::told::{Connection, End, Row, Told};

/// So much of a body is read; nobody waits here for one that has no end.
const MOST_BYTES: u64 = 16 << 20;

/// A request to be sent.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) note: String,
    pub(super) payload: Payload,
    pub(super) idempotent: bool,
    /// Where it goes instead of to what its URI names; retries go to one after the other.
    pub(super) instead: Vec<Destination>,
}

/// The body of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Payload {
    None,
    /// There as a whole, to be sent as often as need be.
    Whole(Bytes),
    /// A stream that can be read once.
    Once(Bytes),
}

impl Payload {
    fn body(&self) -> Body {
        match self {
            Self::None => Body::empty(),
            Self::Whole(bytes) => Body::full(bytes.clone()),
            Self::Once(bytes) => {
                let pieces = [Ok::<_, Infallible>(bytes.clone())];
                Body::from_stream(stream::iter(pieces))
            }
        }
    }
}

type Answer = (u16, IncomingBody<TcpConnector>);

impl Ask {
    /// Sends it, reads the response to its end, and tells what happened.
    pub(super) async fn send(&self, client: &Client<TcpConnector>) -> Told {
        let begun = client.pool().core().now();
        let answered = match self.instead.is_empty() {
            true => self.send_to_uri(client).await,
            false => self.send_instead(client).await,
        };
        let (rows, end) = match answered {
            Ok((status, body)) => {
                let rows = answered_rows(client, begun, status, &body);
                (rows, read(status, body).await)
            }
            Err(error) => {
                let rows = error.attempts().iter().map(Row::of).collect();
                (rows, End::Failed(error))
            }
        };
        Told {
            line: format!("{} {}", self.method, self.target()),
            note: self.note.clone(),
            rows,
            end,
        }
    }

    fn target(&self) -> &str {
        let target = self.uri.path_and_query();
        target.map_or("/", |target| target.as_str())
    }

    fn options(&self) -> RequestOptions {
        let options = RequestOptions::new();
        match self.idempotent {
            true => options.idempotent(true),
            // Its method says whether.
            false => options,
        }
    }

    async fn send_to_uri(&self, client: &Client<TcpConnector>) -> Result<Answer, Error> {
        let mut request = Request::new(self.payload.body());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        request.extensions_mut().insert(self.options());
        let response = client.send(request).await?;
        Ok((response.status().as_u16(), response.into_body()))
    }

    /// Encodes the request once, for all destinations.
    async fn send_instead(&self, client: &Client<TcpConnector>) -> Result<Answer, Error> {
        let (method, body) = (self.method.as_str(), self.payload.body());
        let mut head = BytesMut::new();
        let mut writer = RequestWriter::new(&mut head, method, self.target())?;
        let host = self.uri.authority().map_or("", |host| host.as_str());
        writer.field("Host", host)?;
        let sent = writer.finish(body.length())?;
        let outgoing = Outgoing::new(head.freeze(), sent, body).options(self.options());
        let answered = client.exchange_with(&self.instead, outgoing, |_| {});
        let (head, body) = answered.await?;
        Ok((head.status(), body))
    }
}

/// The attempts that were judged, and the one that was answered if its response was no error.
fn answered_rows(
    client: &Client<TcpConnector>,
    begun: Timestamp,
    status: u16,
    body: &IncomingBody<TcpConnector>,
) -> Vec<Row> {
    let mut rows: Vec<_> = body.attempts().iter().map(Row::of).collect();
    let judged = body.attempts().last().map_or(0, |last| last.number());
    if judged < body.attempt() {
        let now = client.pool().core().now();
        rows.push(Row {
            number: body.attempt(),
            destination: body.destination().to_string(),
            connection: Connection::of(body.is_reused()),
            outcome: format!("status {status}"),
            decision: None,
            elapsed: now.saturating_duration_since(begun),
        });
    }
    rows
}

async fn read(status: u16, mut body: IncomingBody<TcpConnector>) -> End {
    // The protocol that was changed to is none that is spoken here; dropped, it closes.
    if body.is_tunnel() {
        return End::Answered { status, length: 0 };
    }
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => length += frame.data_ref().map_or(0, |data| data.len() as u64),
            Err(error) => {
                return End::Broken {
                    status,
                    length,
                    error,
                };
            }
        }
        if length > MOST_BYTES {
            let limit = MOST_BYTES;
            return End::TooLong { status, limit };
        }
    }
    End::Answered { status, length }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_codec::BodyLength;

    #[test]
    fn a_payload_is_framed_as_what_it_is() {
        let bytes = Bytes::from_static(b"pay");
        assert_eq!(Payload::None.body().length(), BodyLength::None);
        let whole = Payload::Whole(bytes.clone()).body();
        assert_eq!(whole.length(), BodyLength::Exact(3));
        assert_eq!(Payload::Once(bytes).body().length(), BodyLength::Chunked);
    }
}
