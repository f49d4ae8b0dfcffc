//! The body of a response.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_codec::{BodyLength, ResponseEvent};
use pool_core::Connector;

use crate::await_head::LimitTimer;
use crate::destination::Destination;
use crate::drain;
use crate::error::{Error, ErrorKind, Failure};
use crate::exchange::Exchange;
use crate::retry::Attempt;
use crate::timer::ProgressTimer;
use crate::transport::Transport;
use crate::tunnel::Tunnel;

/// The body of a response, as it comes in. Reading it also writes what is left of the request.
///
/// When it has been read to its end the connection goes back to the pool. Dropped before, it is
/// read to its end where little is left, within [`DrainLimits`](crate::DrainLimits); otherwise the
/// connection closes. It holds the connection in the meantime, and nothing of the body beyond what
/// was read in one go.
pub struct IncomingBody<C: Connector>
where
    C::Connection: Transport,
{
    exchange: Option<Box<Exchange<C>>>,
    destination: Destination,
    reused: bool,
    attempt: u32,
    attempts: Vec<Attempt>,
    deadline: LimitTimer,
    idle: ProgressTimer,
    /// How many pieces of the body have come.
    pieces: u64,
    /// What is still to come, where it is known.
    left: Option<u64>,
}

// Nothing in it is pinned.
impl<C: Connector> Unpin for IncomingBody<C> where C::Connection: Transport {}

impl<C: Connector> IncomingBody<C>
where
    C::Connection: Transport,
{
    pub(crate) fn new(
        exchange: Box<Exchange<C>>,
        destination: Destination,
        attempt: u32,
        attempts: Vec<Attempt>,
        length: BodyLength,
        deadline: LimitTimer,
    ) -> Self {
        Self {
            reused: exchange.is_reused(),
            exchange: Some(exchange),
            destination,
            attempt,
            attempts,
            deadline,
            idle: ProgressTimer::default(),
            pieces: 0,
            left: length.bytes(),
        }
    }

    /// What became of the attempts before this response and why, in order. The attempt that
    /// brought it is the last of them only if its status was an error that a retry was considered
    /// for.
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// The number of the attempt that brought the response, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Where the response came from: of several destinations, the one that answered.
    #[must_use]
    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    /// Whether it came over a connection that had been used before.
    #[must_use]
    pub fn is_reused(&self) -> bool {
        self.reused
    }

    /// Takes the next data or the trailers; `None` is the clean end.
    ///
    /// # Errors
    ///
    /// The body broke off. What came before was right, as far as it went.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn frame(&mut self) -> Option<Result<Frame<Bytes>, Error>> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_frame(cx)).await
    }

    /// Reads the whole body, at most `limit` bytes of it. Trailers are dropped.
    ///
    /// # Errors
    ///
    /// The body broke off, or is longer: then the rest is dropped.
    pub async fn bytes(mut self, limit: usize) -> Result<Bytes, ReadError> {
        let mut first = Bytes::new();
        let mut all = BytesMut::new();
        while let Some(frame) = self.frame().await {
            let Ok(data) = frame?.into_data() else {
                continue;
            };
            if first.len() + all.len() + data.len() > limit {
                return Err(ReadError::TooLong { limit });
            }
            if first.is_empty() && all.is_empty() {
                first = data;
                continue;
            }
            all.extend_from_slice(&std::mem::take(&mut first));
            all.extend_from_slice(&data);
        }
        Ok(if all.is_empty() { first } else { all.freeze() })
    }

    /// Whether the connection has left HTTP: the response was 101 (Switching Protocols), or 2xx to
    /// CONNECT, and the whole request has been sent.
    #[must_use]
    pub fn is_tunnel(&self) -> bool {
        self.exchange
            .as_ref()
            .is_some_and(|exchange| exchange.is_tunnel())
    }

    /// Takes the connection out of the pool, after 101 (Switching Protocols) or 2xx to CONNECT.
    /// The other protocol begins with the first byte behind the response's head.
    ///
    /// Such a body has no bytes. Dropped instead, it closes its connection. In front of the other
    /// protocol the request has to be sent to its end (RFC 9110 §7.8): where a 101 has come before
    /// that, read the body, which then ends together with the request.
    ///
    /// # Errors
    ///
    /// Gives the body back if it is [no tunnel](Self::is_tunnel).
    ///
    /// ```
    /// # use http::Request;
    /// # use http_client::{Body, Client, ClientConfig, TcpConnector};
    /// # use pool_core::{ConnectOptions, Core, Pool, PoolConfig};
    /// # use test_support::Server;
    /// use futures_lite::{AsyncReadExt, AsyncWriteExt};
    ///
    /// # let server = Server::script(|peer| {
    /// #     peer.read_request()?;
    /// #     peer.answer("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")?;
    /// #     let said = peer.read_exact(5)?;
    /// #     peer.send(said)
    /// # });
    /// # let uri = format!("http://{}/", server.addr());
    /// # let heard = Core::builder().run(|core| async move {
    /// #     let connector = TcpConnector::new(&core, ConnectOptions::default());
    /// #     let pool = Pool::new(&core, PoolConfig::default(), connector);
    /// #     let client = Client::new(pool, ClientConfig::default());
    /// let request = Request::get(uri)
    ///     .header("Connection", "upgrade")
    ///     .header("Upgrade", "echo")
    ///     .body(Body::empty())?;
    /// let response = client.send(request).await?;
    /// let mut tunnel = response.into_body().into_tunnel().map_err(|_| "no upgrade")?;
    /// tunnel.write_all(b"hello").await?;
    /// let mut heard = [0; 5];
    /// tunnel.read_exact(&mut heard).await?;
    /// #     Ok::<_, Box<dyn std::error::Error>>(heard)
    /// # })?.unwrap();
    /// # assert_eq!(&heard, b"hello");
    /// # Ok::<(), pool_core::StartError>(())
    /// ```
    #[expect(clippy::result_large_err, reason = "it is what was given")]
    pub fn into_tunnel(mut self) -> Result<Tunnel<C>, Self> {
        match self.exchange.take_if(|exchange| exchange.is_tunnel()) {
            Some(exchange) => Ok(exchange.into_tunnel()),
            None => Err(self),
        }
    }

    /// Polls for the end of a body that has no bytes, so that its connection goes back at once.
    ///
    /// # Errors
    ///
    /// The request body failed meanwhile. A caller with nothing to read would not hear of it later.
    pub(crate) fn finish_if_empty(&mut self, cx: &mut Context<'_>) -> Result<(), Error> {
        let (Some(0), Some(exchange)) = (self.left, &mut self.exchange) else {
            return Ok(());
        };
        match exchange.poll_event(cx) {
            Poll::Ready(Ok(ResponseEvent::End(_))) => {
                self.end();
                Ok(())
            }
            Poll::Ready(Err(failure)) => self.fail(failure).map_or(Ok(()), Err),
            Poll::Ready(Ok(_)) | Poll::Pending => Ok(()),
        }
    }

    /// Ready once the request has taken too long, or its response has paused for too long.
    fn poll_limits(&mut self, cx: &mut Context<'_>) -> Poll<Failure> {
        if let Poll::Ready(late) = self.deadline.poll(cx) {
            return Poll::Ready(late);
        }
        if let Some(exchange) = &self.exchange
            && let Some(limit) = exchange.body_idle()
        {
            let passed = self.idle.poll(cx, exchange.core(), limit, self.pieces);
            return passed.map(|()| Failure::new(ErrorKind::BodyTimeout));
        }
        Poll::Pending
    }

    /// Ends the exchange. A connection that has left HTTP stays for [`into_tunnel`](Self::into_tunnel).
    fn end(&mut self) {
        if self.is_tunnel() {
            return;
        }
        if let Some(exchange) = self.exchange.take() {
            exchange.finish();
        }
    }

    fn fail(&mut self, failure: Failure) -> Option<Error> {
        let exchange = self.exchange.take()?;
        let at = exchange.at(self.attempt, &self.destination);
        exchange.fail();
        Some(Error::new(failure, &at, Vec::new()))
    }
}

impl<C: Connector> Drop for IncomingBody<C>
where
    C::Connection: Transport,
{
    fn drop(&mut self) {
        if let Some(exchange) = self.exchange.take() {
            drain::let_go(exchange, self.left);
        }
    }
}

impl<C: Connector> HttpBody for IncomingBody<C>
where
    C::Connection: Transport,
{
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        let Some(exchange) = &mut this.exchange else {
            return Poll::Ready(None);
        };
        let event = match exchange.poll_event(cx) {
            Poll::Pending => {
                let late = std::task::ready!(this.poll_limits(cx));
                return Poll::Ready(this.fail(late).map(Err));
            }
            Poll::Ready(Err(failure)) => return Poll::Ready(this.fail(failure).map(Err)),
            Poll::Ready(Ok(event)) => event,
        };
        match event {
            ResponseEvent::Data(data) => {
                if let Some(late) = this.deadline.passed() {
                    return Poll::Ready(this.fail(late).map(Err));
                }
                this.pieces += 1;
                this.left = this.left.map(|left| left.saturating_sub(data.len() as u64));
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            ResponseEvent::End(trailers) => {
                this.end();
                let trailers = trailers.filter(|fields| !fields.is_empty());
                Poll::Ready(trailers.map(|fields| Ok(Frame::trailers(fields.to_header_map()))))
            }
            // The codec gives one head per exchange, and only data and an end after it.
            _ => unreachable!("a head in the middle of a body"),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.exchange.is_none() || self.is_tunnel()
    }

    fn size_hint(&self) -> SizeHint {
        self.left
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl<C: Connector> fmt::Debug for IncomingBody<C>
where
    C::Connection: Transport,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IncomingBody")
            .field("ended", &self.exchange.is_none())
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}

/// Why a body could not be read as a whole.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It broke off.
    #[error(transparent)]
    Broken(#[from] Error),
    /// It is longer than the caller allows.
    #[error("the body is longer than {limit} bytes")]
    TooLong {
        /// The caller's limit in bytes.
        limit: usize,
    },
}
