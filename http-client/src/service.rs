//! The client as a service of the tower ecosystem.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use pool_core::Connector;
use tower_service::Service;

use crate::body::Body;
use crate::client::Client;
use crate::destination::Destination;
use crate::error::Error;
use crate::incoming::IncomingBody;
use crate::transport::Transport;

/// A [`Client`] is always ready: a request waits in its pool for a connection, at most for the
/// acquire timeout and in a queue that has a bound, so what pushes back is `call` and not
/// `poll_ready`. Like the client the service and its futures are pinned to their core; layers that
/// ask for `Send` do not go around them.
///
/// ```
/// # use http::Request;
/// # use http_client::{Body, Client, ClientConfig, TcpConnector};
/// # use pool_core::{ConnectOptions, Core, Pool, PoolConfig};
/// # use test_support::{Server, keep_alive_ok};
/// use tower_service::Service;
///
/// # let server = Server::script(keep_alive_ok());
/// # let uri = format!("http://{}/", server.addr());
/// # Core::builder().run(|core| async move {
/// # let connector = TcpConnector::new(&core, ConnectOptions::default());
/// # let pool = Pool::new(&core, PoolConfig::default(), connector);
/// let mut client = Client::new(pool, ClientConfig::default());
/// std::future::poll_fn(|cx| client.poll_ready(cx)).await?;
/// let response = client.call(Request::get(uri).body(Body::empty())?).await?;
/// assert_eq!(response.status(), 200);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?.unwrap();
/// # Ok::<(), pool_core::StartError>(())
/// ```
impl<C> Service<Request<Body>> for Client<C>
where
    C: Connector<Key = Destination> + 'static,
    C::Connection: Transport,
{
    type Response = Response<IncomingBody<C>>;
    type Error = Error;
    type Future = ResponseFuture<C>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> ResponseFuture<C> {
        (&*self).call(request)
    }
}

/// As of the client itself.
impl<C> Service<Request<Body>> for &Client<C>
where
    C: Connector<Key = Destination> + 'static,
    C::Connection: Transport,
{
    type Response = Response<IncomingBody<C>>;
    type Error = Error;
    type Future = ResponseFuture<C>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> ResponseFuture<C> {
        let client = Client::clone(self);
        ResponseFuture(Box::pin(async move { client.send(request).await }))
    }
}

/// A request that is under way through [`Service::call`]: [`Client::send`] in a box.
///
/// # Cancel safety
///
/// As [`Client::send`].
#[must_use = "a request is not sent unless it is polled"]
pub struct ResponseFuture<C: Connector>(Sending<C>)
where
    C::Connection: Transport;

type Sending<C> = Pin<Box<dyn Future<Output = Result<Response<IncomingBody<C>>, Error>>>>;

impl<C: Connector> Future for ResponseFuture<C>
where
    C::Connection: Transport,
{
    type Output = Result<Response<IncomingBody<C>>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl<C: Connector> fmt::Debug for ResponseFuture<C>
where
    C::Connection: Transport,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
