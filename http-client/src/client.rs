//! Sending requests: acquire, exchange, and the rule for stale connections.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, StatusCode, Version};
use http_codec::{Limits, ResponseEvent, ResponseHead};
use pool_core::{Connector, Core, Pool, Pooled, Sleep};

use crate::body::Body;
use crate::destination::Destination;
use crate::error::{At, Error, ErrorKind, Failure, Sent};
use crate::exchange::Exchange;
use crate::incoming::IncomingBody;
use crate::outgoing::Outgoing;
use crate::request;
use crate::transport::Transport;

/// How a client behaves. Connections are configured in the pool.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    response_head_timeout: Option<Duration>,
    limits: Limits,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            response_head_timeout: Some(Duration::from_secs(10)),
            limits: Limits::default(),
        }
    }
}

impl ClientConfig {
    /// How long the peer may take to answer: from the moment the kernel took the last of the
    /// request, or the last that it would take, to the end of the response head. Bytes that drip
    /// in do not extend it. While nothing is ready to leave because the request's own body pauses,
    /// it does not run: a deadline on that body is the caller's. Default: 10 s; `None` is no limit.
    #[must_use]
    pub fn response_head_timeout(mut self, limit: Option<Duration>) -> Self {
        self.response_head_timeout = limit;
        self
    }

    /// The codec's limits on responses. Default: [`Limits::default`].
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }
}

/// Sends requests over a pool. Cheap to clone, and pinned to the pool's core.
pub struct Client<C: Connector> {
    pool: Pool<C>,
    config: ClientConfig,
}

impl<C: Connector> Clone for Client<C> {
    fn clone(&self) -> Self {
        Self {
            pool: self.pool.clone(),
            config: self.config.clone(),
        }
    }
}

impl<C> Client<C>
where
    C: Connector<Key = Destination>,
    C::Connection: Transport,
{
    /// A client over `pool`.
    #[must_use]
    pub fn new(pool: Pool<C>, config: ClientConfig) -> Self {
        Self { pool, config }
    }

    /// The pool that the client sends over.
    #[must_use]
    pub fn pool(&self) -> &Pool<C> {
        &self.pool
    }

    /// Sends a request to the destination that its URI names, and returns the response once its
    /// head has come. Interim responses are skipped.
    ///
    /// The URI of CONNECT may be `host:port`. To reach that host through a proxy, encode the request
    /// and [`exchange`](Self::exchange) it with the proxy.
    ///
    /// `Host` is filled in from the URI if it is missing. The body is framed by its own length;
    /// a `Content-Length` given beside it has to agree.
    ///
    /// A reused connection that closes before the first byte of an answer was probably closed
    /// before the request reached the peer. Then the request is sent once more, on a fresh
    /// connection, if not one byte of it had left or if it is idempotent and can be replayed.
    ///
    /// # Errors
    ///
    /// [`Error`] tells what went wrong, how far the request had come, and how much had left. A
    /// request body that fails is an error even where an answer without a body has come already.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection that the request was on, if it was on one.
    pub async fn send(&self, request: Request<Body>) -> Result<Response<IncomingBody<C>>, Error> {
        let destination = request::destination(&request)?;
        let outgoing = request::encode(request, &destination)?;
        let (head, body) = self.exchange(&destination, outgoing, |_| {}).await?;
        let mut response = Response::new(body);
        *response.version_mut() = match head.version() {
            http_codec::Version::Http10 => Version::HTTP_10,
            http_codec::Version::Http11 => Version::HTTP_11,
        };
        *response.headers_mut() = head.fields().to_header_map();
        *response.status_mut() = StatusCode::from_u16(head.status())
            .unwrap_or_else(|_| unreachable!("the codec lets 100 to 999 through"));
        Ok(response)
    }

    /// Sends an encoded request and returns the head of the final response as it came, with the
    /// body. `interim` gets every 1xx before it.
    ///
    /// This is [`send`](Self::send) without the maps, for gateways.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    ///
    /// # Cancel safety
    ///
    /// As [`send`](Self::send).
    pub async fn exchange(
        &self,
        destination: &Destination,
        mut outgoing: Outgoing,
        mut interim: impl FnMut(ResponseHead),
    ) -> Result<(ResponseHead, IncomingBody<C>), Error> {
        for attempt in 1.. {
            let conn = self.acquire(destination, attempt).await?;
            let exchange = Exchange::new(conn, outgoing, &self.config.limits);
            let mut awaiting = AwaitHead::new(exchange, self);
            let outcome = poll_fn(|cx| awaiting.poll(cx, &mut interim)).await;
            let exchange = awaiting.exchange;
            match outcome {
                Ok(head) => return self.accept(head, exchange, destination, attempt).await,
                Err(failure) => {
                    let retry = attempt == 1 && is_stale(&failure, &exchange);
                    let at = At {
                        phase: exchange.phase(),
                        sent: exchange.sent(),
                        reused: exchange.is_reused(),
                        attempt,
                        destination: destination.clone(),
                    };
                    outgoing = exchange.fail();
                    let repeatable = at.sent == Sent::None || outgoing.idempotent;
                    if !(retry && repeatable && outgoing.is_replayable()) {
                        return Err(Error::new(failure, &at));
                    }
                    tracing::debug!(%destination, kind = ?failure.kind, "stale, once more");
                }
            }
        }
        unreachable!("the second attempt goes over a fresh connection and ends either way")
    }

    /// The first attempt takes any connection, the second a fresh one only.
    async fn acquire(&self, destination: &Destination, attempt: u32) -> Result<Pooled<C>, Error> {
        let acquired = match attempt {
            1 => self.pool.acquire(destination).await,
            _ => self.pool.acquire_fresh(destination).await,
        };
        acquired.map_err(|error| {
            let (failure, phase) = Failure::of_acquire(error);
            let destination = destination.clone();
            Error::new(
                failure,
                &At {
                    phase,
                    sent: Sent::None,
                    reused: false,
                    attempt,
                    destination,
                },
            )
        })
    }

    async fn accept(
        &self,
        head: ResponseHead,
        exchange: Exchange<C>,
        destination: &Destination,
        attempt: u32,
    ) -> Result<(ResponseHead, IncomingBody<C>), Error> {
        let length = head.body_length();
        let mut body = IncomingBody::new(exchange, destination.clone(), attempt, length);
        poll_fn(|cx| Poll::Ready(body.finish_if_empty(cx))).await?;
        Ok((head, body))
    }
}

impl<C: Connector> fmt::Debug for Client<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

/// The keep-alive race: the peer closed an idle connection while it was being acquired.
///
/// A fresh connection cannot be stale, and an answer that has begun shows that the peer was there.
fn is_stale<C: Connector>(failure: &Failure, exchange: &Exchange<C>) -> bool
where
    C::Connection: Transport,
{
    let closed = matches!(
        failure.kind,
        ErrorKind::ClosedBeforeResponse | ErrorKind::Reset | ErrorKind::WriteFailed
    );
    closed && exchange.is_reused() && !exchange.has_answer()
}

/// An exchange until the head of its final response, under the head timeout.
struct AwaitHead<C: Connector> {
    exchange: Exchange<C>,
    core: Core,
    limit: Option<Duration>,
    /// Runs while the peer is waited for, from the write that brought `timed_from` bytes out.
    timer: Option<Sleep>,
    timed_from: u64,
}

impl<C> AwaitHead<C>
where
    C: Connector<Key = Destination>,
    C::Connection: Transport,
{
    fn new(exchange: Exchange<C>, client: &Client<C>) -> Self {
        let (core, limit) = (
            client.pool.core().clone(),
            client.config.response_head_timeout,
        );
        Self {
            exchange,
            core,
            limit,
            timer: None,
            timed_from: 0,
        }
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        interim: &mut impl FnMut(ResponseHead),
    ) -> Poll<Result<ResponseHead, Failure>> {
        loop {
            match self.exchange.poll_event(cx) {
                Poll::Pending => return self.poll_timer(cx),
                Poll::Ready(Err(failure)) => return Poll::Ready(Err(failure)),
                Poll::Ready(Ok(ResponseEvent::Interim(head))) => interim(head),
                Poll::Ready(Ok(ResponseEvent::Head(head))) => return Poll::Ready(Ok(head)),
                Poll::Ready(Ok(_)) => unreachable!("data or an end before the head"),
            }
        }
    }

    fn poll_timer<T>(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Failure>> {
        let Some(limit) = self.limit else {
            return Poll::Pending;
        };
        if !self.exchange.awaits_peer() {
            self.timer = None;
            return Poll::Pending;
        }
        let bytes_sent = self.exchange.bytes_sent();
        let timer = match &mut self.timer {
            Some(timer) => {
                // A request that is still leaving is progress; an answer that drips in is not.
                if self.timed_from != bytes_sent {
                    timer.restart(limit);
                }
                timer
            }
            none => none.insert(self.core.sleep(limit)),
        };
        self.timed_from = bytes_sent;
        Pin::new(timer)
            .poll(cx)
            .map(|()| Err(Failure::new(ErrorKind::HeadTimeout)))
    }
}
