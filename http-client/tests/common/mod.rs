//! What the tests of the client share.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_client::{
    Body, BudgetConfig, Client, ClientConfig, Destination, Error, IncomingBody, ReadError,
    TcpConnector,
};
use pool_core::{ConnectOptions, Core, DestinationStats, Pool, PoolConfig, PoolConfigBuilder};
use test_support::{OK, Peer, Server, answer_together};

/// Longer than anything here takes, however slow the machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) type TestClient = Client<TcpConnector>;

/// Runs `main` on a core with a client.
pub(crate) fn with_client<F, Fut>(
    pool: PoolConfigBuilder,
    client: ClientConfig,
    main: F,
) -> Fut::Output
where
    F: FnOnce(Core, TestClient) -> Fut,
    Fut: Future,
{
    let pool = pool.build().expect("the test's config is right");
    let main = |core: Core| {
        let connector = TcpConnector::new(&core, ConnectOptions::default());
        let pool = Pool::new(&core, pool, connector);
        main(core, Client::new(pool, client))
    };
    Core::builder().run(main).expect("a core starts")
}

pub(crate) fn pool_config() -> PoolConfigBuilder {
    PoolConfig::builder()
        .acquire_timeout(Some(DEADLINE))
        .hold_timeout(None)
}

pub(crate) fn client_config() -> ClientConfig {
    ClientConfig::default().response_head_timeout(Some(DEADLINE))
}

pub(crate) fn uri(address: SocketAddr, path: &str) -> String {
    format!("http://{address}{path}")
}

pub(crate) fn get(address: SocketAddr) -> Request<Body> {
    request("GET", address, Body::empty())
}

pub(crate) fn request(method: &str, address: SocketAddr, body: Body) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(uri(address, "/"))
        .body(body)
        .expect("a good request")
}

pub(crate) async fn text(
    response: Response<IncomingBody<TcpConnector>>,
) -> Result<String, ReadError> {
    let bytes = response.into_body().bytes(16 << 20).await?;
    Ok(String::from_utf8(bytes.to_vec()).expect("the tests' bodies are text"))
}

/// Sends and reads to the end.
pub(crate) async fn fetch(client: &TestClient, request: Request<Body>) -> Result<String, Error> {
    match text(client.send(request).await?).await {
        Ok(text) => Ok(text),
        Err(ReadError::Broken(error)) => Err(error),
        Err(other) => panic!("{other}"),
    }
}

pub(crate) fn total(client: &TestClient) -> DestinationStats {
    client.pool().snapshot().total
}

/// Waits until `condition` holds, without blocking the core.
pub(crate) async fn until(core: &Core, what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < DEADLINE, "waited in vain until {what}");
        core.sleep(Duration::from_millis(1)).await;
    }
}

/// The permits balance: nothing is acquired or waits, and `max` requests are answered in parallel
/// by a server that answers only when it has them all.
pub(crate) async fn assert_in_order(core: &Core, client: &TestClient, max: usize) {
    until(core, "nothing is acquired, connecting or pending", || {
        let stats = total(client);
        (
            stats.acquired.current,
            stats.connecting.current,
            stats.pending.current,
        ) == (0, 0, 0)
    })
    .await;
    // Whatever its limits are, what is asked here is whether it is in order, not whether it is fast.
    let client = Client::new(client.pool().clone(), client_config());
    let healthy = Server::script(answer_together(max));
    let served = Rc::new(Cell::new(0));
    for _ in 0..max {
        let (client, served, request) = (client.clone(), Rc::clone(&served), get(healthy.addr()));
        core.spawn(async move {
            assert_eq!(
                fetch(&client, request).await.expect("a burst is answered"),
                "ok"
            );
            served.set(served.get() + 1);
        });
    }
    until(core, "the whole burst is answered", || served.get() == max).await;
    assert_eq!(total(&client).acquired.current, 0);
}

pub(crate) fn destination(address: SocketAddr) -> Destination {
    format!("http://{address}")
        .parse()
        .expect("a good destination")
}

pub(crate) type Polled = Poll<Option<Result<Frame<Bytes>, io::Error>>>;

/// A body made of a function that is polled.
pub(crate) struct PollFn<F>(pub(crate) F);

impl<F: FnMut(&mut Context<'_>) -> Polled + Unpin> http_body::Body for PollFn<F> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled {
        (self.0)(cx)
    }
}

pub(crate) fn body(poll: impl FnMut(&mut Context<'_>) -> Polled + Unpin + 'static) -> Body {
    Body::stream(PollFn(poll))
}

pub(crate) fn data(bytes: impl Into<Bytes>) -> Polled {
    Poll::Ready(Some(Ok(Frame::data(bytes.into()))))
}

/// Refuses the requests for which `refuses` says so, by their number from 0, and answers the others.
pub(crate) fn refuse(
    refusal: impl Into<Vec<u8>>,
    refuses: impl Fn(usize) -> bool + Send + Sync + 'static,
) -> Server {
    let (number, refusal) = (AtomicUsize::new(0), refusal.into());
    Server::script(move |peer: &mut Peer| {
        while peer.read_request()?.is_some() {
            let refused = refuses(number.fetch_add(1, Ordering::Relaxed));
            peer.answer(if refused { &refusal[..] } else { OK })?;
        }
        Ok(())
    })
}

pub(crate) fn refusal(status: u16, fields: &str) -> String {
    format!("HTTP/1.1 {status} No\r\nContent-Length: 2\r\n{fields}\r\nno")
}

/// A budget without a floor.
pub(crate) fn budget(ratio: f64) -> BudgetConfig {
    let builder = BudgetConfig::builder().ratio(ratio).floor_per_second(0);
    builder.build().unwrap()
}
