//! A client's connection, from its first request to its close.

use std::future::Future as _;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use http_body::Body as _;
use http_client::{Body, Destination, Error, ErrorKind, IncomingBody, Outgoing, TcpConnector};
use http_codec::{BodyLength, RequestHead, ResponseHead};

use super::forward::{self, Encoded};
use super::hop::{ConnectionOptions, PassedBody};
use super::reply::Reply;
use super::worker::Upstream;
use crate::server::{Connection, Fault, Lost, Refusal, RequestBody, Session};

/// The upstream's body is read only below this, so that a slow client holds it back.
const QUEUED_BYTES: usize = 128 << 10;

/// The connection cannot go on: the client is gone, or must see that its response broke off.
struct Broken;

/// Serves one client until either side closes.
pub(super) async fn serve(mut session: Session, upstream: Rc<Upstream>) {
    loop {
        let answered = match session.next_request().await {
            Ok(Some(head)) => {
                upstream.counts.request();
                exchange(&mut session, &upstream, &head).await
            }
            Ok(None) | Err(Refusal::Fault(Fault::Gone(_))) => return,
            Err(Refusal::TooSlow) => refuse(&session, &upstream, Reply::TOO_SLOW),
            Err(Refusal::Fault(Fault::Malformed(error))) => {
                refuse(&session, &upstream, Reply::to_malformed(&error))
            }
        };
        if answered.is_err() || !session.finish().await {
            return;
        }
    }
}

/// One request and its response, from the client to the upstream and back.
async fn exchange(
    session: &mut Session,
    upstream: &Upstream,
    head: &RequestHead,
) -> Result<(), Broken> {
    let connection = Rc::clone(session.connection());
    let destinations = upstream.destinations();
    let destination = &destinations[0];
    let encoded = match forward::request(head, connection.peer_addr(), destination) {
        Ok(encoded) => encoded,
        Err(answer) => return reply(session, upstream, answer).await,
    };
    let outgoing = outgoing(head, encoded, &connection);
    let outcome = {
        let pass = |interim| pass_interim(&connection, &interim);
        let exchanged = upstream.client.exchange_with(destinations, outgoing, pass);
        let mut exchanged = pin!(exchanged);
        session
            .beside_client(|_, cx| exchanged.as_mut().poll(cx))
            .await
    };
    match outcome {
        Ok(Ok((head, body))) => respond(session, upstream, &head, body).await,
        Ok(Err(error)) => {
            tracing::debug!(%error, phase = ?error.phase(), "exchange failed");
            match to_failure(&error, upstream, destination) {
                Some(answer) => reply(session, upstream, answer).await,
                None => Err(Broken),
            }
        }
        Err(Lost::BodyTooSlow) => reply(session, upstream, Reply::BODY_TOO_SLOW).await,
        Err(Lost::Gone) => Err(Broken),
    }
}

fn outgoing(head: &RequestHead, encoded: Encoded, connection: &Rc<Connection>) -> Outgoing {
    let body = match head.body_length() {
        BodyLength::None => Body::empty(),
        _ => {
            let body = RequestBody::new(Rc::clone(connection));
            Body::stream(PassedBody::new(body, encoded.options))
        }
    };
    Outgoing::new(encoded.head, encoded.sent, body)
}

/// 100 is between two hops, and the gateway has said it itself. The rest is the client's.
fn pass_interim(connection: &Connection, head: &ResponseHead) {
    if head.status() != 100
        && let Ok(options) = ConnectionOptions::of(head.fields())
    {
        // One that cannot be encoded is not worth failing the request for.
        let _ = connection.interim(head.status(), |writer| {
            forward::interim(head, &options, writer)
        });
    }
}

/// Passes the upstream's response on. Its head leaves together with the first of the body.
async fn respond(
    session: &mut Session,
    upstream: &Upstream,
    head: &ResponseHead,
    mut body: IncomingBody<TcpConnector>,
) -> Result<(), Broken> {
    let Ok(options) = ConnectionOptions::of(head.fields()) else {
        return reply(session, upstream, Reply::UNPRESENTABLE).await;
    };
    let length = forward::response_length(head);
    let begun = session.respond(head.status(), length, |writer| {
        forward::response(head, &options, writer)
    });
    if begun.is_err() {
        return reply(session, upstream, Reply::UNPRESENTABLE).await;
    }
    upstream.counts.response(head.status());
    let passed = session
        .beside_client(|session, cx| poll_pass(session, &mut body, &options, cx))
        .await
        .unwrap_or(Err(Broken));
    if passed.is_err() {
        upstream.counts.broken();
        // A client that is slow to take the rest holds no upstream connection.
        drop(body);
        // The client gets what came before the break.
        let _ = session.flush().await;
    }
    passed
}

/// Moves the body on to the client's queue as far as both sides allow; ready at its end.
fn poll_pass(
    session: &mut Session,
    body: &mut IncomingBody<TcpConnector>,
    options: &ConnectionOptions,
    cx: &mut Context<'_>,
) -> Poll<Result<(), Broken>> {
    let connection = Rc::clone(session.connection());
    loop {
        if connection.queued() >= QUEUED_BYTES {
            match session.poll_flush(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(Err(Broken)),
                Poll::Pending if connection.queued() >= QUEUED_BYTES => return Poll::Pending,
                Poll::Pending => {}
            }
        }
        let passed = match Pin::new(&mut *body).poll_frame(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(None) => return Poll::Ready(connection.end(None).map_err(|_| Broken)),
            Poll::Ready(Some(Err(error))) => {
                tracing::debug!(%error, "a response broke off");
                return Poll::Ready(Err(Broken));
            }
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => connection.push(data),
                Err(frame) => {
                    let mut trailers = frame.into_trailers().unwrap_or_default();
                    options.keep_end_to_end(&mut trailers);
                    let lines = trailers
                        .iter()
                        .map(|(name, value)| (name.as_str(), value.as_bytes()));
                    let ended = connection.end(Some(&lines.collect::<Vec<_>>()));
                    return Poll::Ready(ended.map_err(|_| Broken));
                }
            },
        };
        // More or less than the head has promised.
        if passed.is_err() {
            return Poll::Ready(Err(Broken));
        }
    }
}

/// What the client is told of a failure, if it is there to be told.
fn to_failure(error: &Error, upstream: &Upstream, destination: &Destination) -> Option<Reply> {
    match error.kind() {
        // Connects hung for so long that the acquire timeout was the first to pass. To say that a
        // limit was reached would blame the load.
        ErrorKind::AcquireTimeout if !upstream.is_connected(destination) => {
            Some(Reply::CONNECT_TIMEOUT)
        }
        _ => Reply::to_failure(error),
    }
}

/// Answers a request in the gateway's own name.
async fn reply(session: &mut Session, upstream: &Upstream, reply: Reply) -> Result<(), Broken> {
    upstream.counts.response(reply.status());
    session.discard_body().await;
    reply.send(session).map_err(|_| Broken)
}

/// Answers what has not become a request.
fn refuse(session: &Session, upstream: &Upstream, reply: Reply) -> Result<(), Broken> {
    upstream.counts.refused();
    reply.send(session).map_err(|_| Broken)
}
