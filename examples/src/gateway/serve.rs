//! A client's connection, from its first request to its close.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use http_body::Body as _;
use http_client::{Body, Error, IncomingBody, Outgoing, TcpConnector, is_idempotent};
use http_codec::{BodyLength, RequestHead, ResponseHead};

use super::forward;
use super::reply::Reply;
use super::worker::Upstream;
use crate::server::{Connection, DRAINED_BYTES, Fault, Refusal, RequestBody, Session};

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
            Err(Refusal::TooSlow) => reply(&session, &upstream, Reply::TOO_SLOW),
            Err(Refusal::Fault(Fault::Malformed(error))) => {
                reply(&session, &upstream, Reply::to_malformed(&error))
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
    if head.method() == "CONNECT" {
        return reply(session, upstream, Reply::NO_TUNNEL);
    }
    let connection = Rc::clone(session.connection());
    let destination = upstream.destination();
    let Ok((encoded, sent)) = forward::request(head, connection.peer_addr(), destination) else {
        return reply(session, upstream, Reply::UNFORWARDABLE);
    };
    let body = match head.body_length() {
        BodyLength::None => Body::empty(),
        length => Body::stream(RequestBody::new(Rc::clone(&connection), length)),
    };
    let outgoing = Outgoing::new(encoded, sent, body).idempotent(is_idempotent(head.method()));
    let exchanged = upstream.client.exchange(destination, outgoing, |interim| {
        pass_interim(&connection, &interim);
    });
    match beside_the_client(session, exchanged).await? {
        Ok((head, body)) => respond(session, upstream, &head, body).await,
        Err(error) => {
            tracing::debug!(%error, phase = ?error.phase(), "exchange failed");
            let Some(answer) = Reply::to_failure(&error) else {
                return Err(Broken);
            };
            reply(session, upstream, answer)
        }
    }
}

/// 100 is between two hops, and the gateway has said it itself. The rest is the client's.
fn pass_interim(connection: &Connection, head: &ResponseHead) {
    if head.status() != 100 {
        // One that cannot be encoded is not worth failing the request for.
        let _ = connection.interim(head.status(), |writer| forward::interim(head, writer));
    }
}

/// What the upstream has to say, or nothing if the client goes away first. What is queued for the
/// client meanwhile leaves at once.
async fn beside_the_client<T>(
    session: &mut Session,
    exchanged: impl Future<Output = Result<T, Error>>,
) -> Result<Result<T, Error>, Broken> {
    let mut exchanged = pin!(exchanged);
    poll_fn(|cx| {
        if let Poll::Ready(outcome) = exchanged.as_mut().poll(cx) {
            return Poll::Ready(Ok(outcome));
        }
        poll_client(session, cx).map(Err)
    })
    .await
}

/// Writes what is queued; ready when the client is gone.
fn poll_client(session: &mut Session, cx: &mut Context<'_>) -> Poll<Broken> {
    if let Poll::Ready(Err(_)) = session.poll_flush(cx) {
        return Poll::Ready(Broken);
    }
    session.connection().poll_gone(cx).map(|_| Broken)
}

/// Passes the upstream's response on. Its head leaves together with the first of the body.
async fn respond(
    session: &mut Session,
    upstream: &Upstream,
    head: &ResponseHead,
    mut body: IncomingBody<TcpConnector>,
) -> Result<(), Broken> {
    let connection = Rc::clone(session.connection());
    let close = must_close(session);
    let begun = connection.respond(head.status(), forward::response_length(head), |writer| {
        forward::response(head, writer)?;
        if close {
            writer.close();
        }
        Ok(())
    });
    if begun.is_err() {
        return reply(session, upstream, Reply::UNPRESENTABLE);
    }
    upstream.counts.response(head.status());
    let passed = poll_fn(|cx| {
        if let Poll::Ready(passed) = poll_pass(&connection, &mut body, cx) {
            return Poll::Ready(passed);
        }
        poll_client(session, cx).map(Err)
    });
    let passed = passed.await;
    if passed.is_err() {
        upstream.counts.broken();
        // The client gets what came before the break.
        let _ = session.flush().await;
    }
    passed
}

/// Moves the body on to the client's queue as far as both sides allow; ready at its end.
fn poll_pass(
    connection: &Connection,
    body: &mut IncomingBody<TcpConnector>,
    cx: &mut Context<'_>,
) -> Poll<Result<(), Broken>> {
    loop {
        if connection.queued() >= QUEUED_BYTES {
            match connection.poll_flush(cx) {
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
                    let trailers = frame.into_trailers().unwrap_or_default();
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

/// Answers in the gateway's own name.
fn reply(session: &Session, upstream: &Upstream, reply: Reply) -> Result<(), Broken> {
    upstream.counts.response(reply.status());
    reply
        .send(session.connection(), must_close(session))
        .map_err(|_| Broken)
}

/// Whether the client has to be told that this response is the last: the gateway is closing, or
/// too much of the request is unread to be thrown away.
fn must_close(session: &Session) -> bool {
    let connection = session.connection();
    let unread = !connection.request_done()
        && (connection.awaits_continue()
            || connection
                .body_left()
                .is_some_and(|left| left > DRAINED_BYTES));
    session.is_closing() || unread
}
