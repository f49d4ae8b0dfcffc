//! Sending requests, and how a client behaves.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_codec::{Limits, ResponseHead};
use pool_core::{Connector, Pool};

use crate::body::Body;
use crate::breakers::Breakers;
use crate::budgets::{Budgets, RetryCounts};
use crate::call::Call;
use crate::destination::Destination;
use crate::drain::DrainLimits;
use crate::error::Error;
use crate::incoming::IncomingBody;
use crate::outgoing::Outgoing;
use crate::request;
use crate::retry::{
    BreakerConfig, BreakerCounts, BreakerState, BudgetConfig, RetryPolicy, RetryTable,
};
use crate::timeouts::Timeouts;
use crate::transport::Transport;

/// How a client behaves. Connections are configured in the pool.
#[derive(Clone)]
pub struct ClientConfig {
    pub(crate) timeouts: Timeouts,
    pub(crate) drain_limits: DrainLimits,
    pub(crate) limits: Limits,
    pub(crate) retry: Arc<dyn RetryPolicy + Send + Sync>,
    pub(crate) retry_budget: Option<BudgetConfig>,
    pub(crate) breaker: Option<BreakerConfig>,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            timeouts: Timeouts::default(),
            drain_limits: DrainLimits::default(),
            limits: Limits::default(),
            retry: Arc::new(RetryTable::default()),
            retry_budget: Some(BudgetConfig::default()),
            breaker: None,
        }
    }
}

impl ClientConfig {
    /// Sets [`Timeouts::total`] alone. Default: `None`, no limit.
    #[must_use]
    pub fn request_timeout(mut self, limit: Option<Duration>) -> Self {
        self.timeouts.total = limit;
        self
    }

    /// Sets [`Timeouts::attempt`] alone. Default: `None`, no limit.
    #[must_use]
    pub fn attempt_timeout(mut self, limit: Option<Duration>) -> Self {
        self.timeouts.attempt = limit;
        self
    }

    /// When requests are sent again. Default: [`RetryTable::default`].
    #[must_use]
    pub fn retry(mut self, policy: impl RetryPolicy + Send + Sync + 'static) -> Self {
        self.retry = Arc::new(policy);
        self
    }

    /// How many retries a destination is worth, whatever the policy says. Those over a fresh
    /// connection after a stale one do not count: they do not tell of a destination in trouble,
    /// and there is one of them for a request at most. Default: [`BudgetConfig::default`]; `None`
    /// is no bound.
    #[must_use]
    pub fn retry_budget(mut self, budget: Option<BudgetConfig>) -> Self {
        self.retry_budget = budget;
        self
    }

    /// Whether destinations that fail too much are left alone for a while: their requests then fail
    /// with [`BreakerOpen`](crate::ErrorKind::BreakerOpen) or go to another destination. Failures
    /// are those of connecting and exchanging up to the head of the response, but for a stale
    /// connection, and the statuses 500, 502, 503 and 504; an acquire that waits for too long, a
    /// fault of the caller and a dropped request are neither failure nor success. Default: `None`,
    /// no breaker.
    #[must_use]
    pub fn breaker(mut self, breaker: Option<BreakerConfig>) -> Self {
        self.breaker = breaker;
        self
    }

    /// Sets [`Timeouts::response_head`] alone. Default: 10 s; `None` is no limit.
    #[must_use]
    pub fn response_head_timeout(mut self, limit: Option<Duration>) -> Self {
        self.timeouts.response_head = limit;
        self
    }

    /// The codec's limits on responses. Default: [`Limits::default`].
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }
}

impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConfig")
            .field("timeouts", &self.timeouts)
            .field("drain_limits", &self.drain_limits)
            .field("limits", &self.limits)
            .field("max_attempts", &self.retry.max_attempts())
            .field("retry_budget", &self.retry_budget)
            .field("breaker", &self.breaker)
            .finish_non_exhaustive()
    }
}

/// Sends requests over a pool. Cheap to clone, and pinned to the pool's core.
pub struct Client<C: Connector>(Rc<Inner<C>>);

pub(crate) struct Inner<C: Connector> {
    pub(crate) pool: Pool<C>,
    pub(crate) config: ClientConfig,
    pub(crate) budgets: Budgets,
    pub(crate) breakers: Breakers,
}

impl<C: Connector> Clone for Client<C> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
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
        let budgets = Budgets::new(config.retry_budget);
        let breakers = Breakers::new(config.breaker);
        Self(Rc::new(Inner {
            pool,
            config,
            budgets,
            breakers,
        }))
    }

    /// The pool that the client sends over.
    #[must_use]
    pub fn pool(&self) -> &Pool<C> {
        &self.0.pool
    }

    /// Sends a request to the destination that its URI names, and returns the response once its
    /// head has come. Interim responses are skipped; [`send_with`](Self::send_with) hands them over.
    ///
    /// The URI of CONNECT may be `host:port`. To reach that host through a proxy, encode the request
    /// and [`exchange`](Self::exchange) it with the proxy.
    ///
    /// `Host` is filled in from the URI if it is missing. The body is framed by its own length;
    /// a `Content-Length` given beside it has to agree.
    ///
    /// A request that fails, or is answered by an error, is sent again as the
    /// [policy](ClientConfig::retry) says, within the bounds that the configuration sets. What was
    /// decided and why is told by [`IncomingBody::attempts`] and [`Error::attempts`]. Put
    /// [`RequestOptions`](crate::RequestOptions) into the extensions of the request for what is to
    /// be otherwise for it.
    ///
    /// A reason phrase that is not the usual one stands in the extensions of the response, as
    /// [`ReasonPhrase`](http_codec::ReasonPhrase).
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
        self.send_with(request, |_| {}).await
    }

    /// [`send`](Self::send), and `interim` gets every interim response (1xx) before the final one,
    /// those of attempts that were given up among them.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    ///
    /// # Cancel safety
    ///
    /// As [`send`](Self::send).
    ///
    /// ```
    /// # use http::{Request, StatusCode};
    /// # use http_client::{Body, Client, ClientConfig, TcpConnector};
    /// # use pool_core::{ConnectOptions, Core, Pool, PoolConfig};
    /// # use test_support::{Peer, Server};
    /// # let server = Server::script(|peer: &mut Peer| {
    /// #     peer.read_request()?;
    /// #     peer.send("HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n")?;
    /// #     peer.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
    /// #     peer.wait_closed().map(drop)
    /// # });
    /// # let uri = format!("http://{}/", server.addr());
    /// # Core::builder().run(|core| async move {
    /// # let connector = TcpConnector::new(&core, ConnectOptions::default());
    /// # let pool = Pool::new(&core, PoolConfig::default(), connector);
    /// # let client = Client::new(pool, ClientConfig::default());
    /// let request = Request::get(uri).body(Body::empty())?;
    /// let mut hints = Vec::new();
    /// let response = client
    ///     .send_with(request, |interim| {
    ///         if interim.status() == StatusCode::EARLY_HINTS {
    ///             hints.extend(interim.headers().get("link").cloned());
    ///         }
    ///     })
    ///     .await?;
    /// assert_eq!(response.status(), 200);
    /// assert_eq!(hints, ["</style.css>; rel=preload"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?.unwrap();
    /// # Ok::<(), pool_core::StartError>(())
    /// ```
    pub async fn send_with(
        &self,
        request: Request<Body>,
        mut interim: impl FnMut(Response<()>),
    ) -> Result<Response<IncomingBody<C>>, Error> {
        let destination = request::destination(&request)?;
        let outgoing = request::encode(request, &destination)?;
        let hand_over = |head: ResponseHead| interim(head.to_http());
        let (head, body) = self.exchange(&destination, outgoing, hand_over).await?;
        Ok(head.to_http().map(|()| body))
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
        outgoing: Outgoing,
        interim: impl FnMut(ResponseHead),
    ) -> Result<(ResponseHead, IncomingBody<C>), Error> {
        self.exchange_with(std::slice::from_ref(destination), outgoing, interim)
            .await
    }

    /// Sends an encoded request to the first of these destinations, and retries to those after it
    /// in turn. The request is the same for all of them.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), and [`InvalidRequest`](crate::ErrorKind::InvalidRequest) without a
    /// destination.
    ///
    /// # Cancel safety
    ///
    /// As [`send`](Self::send).
    pub async fn exchange_with(
        &self,
        destinations: &[Destination],
        mut outgoing: Outgoing,
        interim: impl FnMut(ResponseHead),
    ) -> Result<(ResponseHead, IncomingBody<C>), Error> {
        if destinations.is_empty() {
            return Err(Error::invalid("no destination to send it to"));
        }
        let overrides = outgoing.overrides.take();
        Call::new(&self.0, destinations, overrides)
            .run(outgoing, interim)
            .await
    }

    /// How many retries the budgets have granted and refused so far, to all destinations.
    #[must_use]
    pub fn retry_counts(&self) -> RetryCounts {
        self.0.budgets.counts()
    }

    /// What the breakers of all destinations have done so far.
    #[must_use]
    pub fn breaker_counts(&self) -> BreakerCounts {
        self.0.breakers.counts()
    }

    /// The state of a destination's breaker; closed where there is none.
    #[must_use]
    pub fn breaker_state(&self, destination: &Destination) -> BreakerState {
        let now = self.0.pool.core().now();
        self.0.breakers.state(now, destination)
    }
}

impl<C: Connector> fmt::Debug for Client<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("pool", &self.0.pool)
            .finish_non_exhaustive()
    }
}
