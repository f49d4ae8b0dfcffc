//! HTTP/1.1 requests over a pinned connection pool.
//!
//! A [`Client`] joins a [`Pool`](pool_core::Pool) and the codec. [`Client::send`] takes a request
//! of the `http` crate; [`Client::exchange`] takes an encoded one and is what a gateway uses, which
//! passes heads on without making maps of them.
//!
//! - Writing the request and reading the response run side by side, so an early answer is seen and
//!   an answer that has reached the kernel is not lost to a failed write.
//! - A connection goes back to the pool only when both messages ended clean and the codec says that
//!   it may be used again; otherwise it is closed. Of a response that is dropped, the little that
//!   may be left is read first ([`DrainLimits`]).
//! - A request has a [`Body`] in full, from a factory that can make it again, or from a stream that
//!   can be read once. With `Expect: 100-continue` it is held back until the peer asks for it.
//! - Each wait for the peer has a limit ([`Timeouts`]). One that the caller gives up is no timeout.
//! - After 101 and 2xx to CONNECT the connection leaves the pool as a [`Tunnel`].
//! - A request is sent again as a [`RetryPolicy`] says, within attempts, deadline and a
//!   [budget](BudgetConfig). By default only what had not left, or may be repeated
//!   ([`is_idempotent`]).
//! - An [`Error`] tells the [phase](Phase), [how much was sent](Sent), whether the connection was
//!   reused, and the cause.
//!
//! With the feature `tower` a client is a `tower_service::Service` too.
//!
//! ```
//! use http::Request;
//! use http_client::{Body, Client, ClientConfig, TcpConnector};
//! use pool_core::{ConnectOptions, Core, Pool, PoolConfig};
//! use test_support::{Server, keep_alive_ok};
//!
//! let server = Server::script(keep_alive_ok());
//! let uri = format!("http://{}/", server.addr());
//!
//! let status = Core::builder().run(|core| async move {
//!     let connector = TcpConnector::new(&core, ConnectOptions::default());
//!     let pool = Pool::new(&core, PoolConfig::default(), connector);
//!     let client = Client::new(pool, ClientConfig::default());
//!     let request = Request::get(uri).body(Body::empty())?;
//!     let response = client.send(request).await?;
//!     let status = response.status();
//!     // Read to its end, the body gives its connection back.
//!     response.into_body().bytes(1 << 20).await?;
//!     Ok::<_, Box<dyn std::error::Error>>(status)
//! })?.unwrap();
//!
//! assert_eq!(status, 200);
//! # Ok::<(), pool_core::StartError>(())
//! ```

mod await_head;
mod body;
mod breakers;
mod budgets;
mod call;
mod client;
mod connector;
mod data_stream;
mod destination;
mod drain;
mod error;
mod exchange;
mod incoming;
mod options;
mod outgoing;
mod per_destination;
mod request;
mod resolver;
mod retry;
#[cfg(feature = "tower")]
mod service;
mod timeouts;
mod timer;
mod transport;
mod tunnel;

pub use body::Body;
pub use budgets::RetryCounts;
pub use client::{Client, ClientConfig};
pub use connector::{ConnectError, TcpConnector};
pub use data_stream::DataStream;
pub use destination::{Destination, InvalidDestination};
pub use drain::DrainLimits;
pub use error::{BoxError, Error, ErrorKind, Phase, Sent};
pub use incoming::{IncomingBody, ReadError};
pub use options::RequestOptions;
pub use outgoing::{Outgoing, is_idempotent};
pub use retry::{
    Attempt, Backoff, BreakerConfig, BreakerConfigBuilder, BreakerCounts, BreakerState,
    BudgetConfig, BudgetConfigBuilder, Decision, FailedAttempt, JdkSwitches, Jitter, Outcome,
    Reason, RefusedResponse, RetryPolicy, RetryRequest, RetryTable, Rule, Verdict,
};
#[cfg(feature = "tower")]
pub use service::ResponseFuture;
pub use timeouts::{Timeouts, TimeoutsBuilder};
pub use transport::{Transport, WriteQueue};
pub use tunnel::Tunnel;

/// The README's example is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
