//! What the tests of the pool share: a connector without a protocol, and the check that a pool is
//! in order again.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use pool_core::{
    ConnectOptions, Connector, Core, DestinationStats, Pool, PoolConfig, PoolConfigBuilder, Pooled,
    TcpStream,
};
use test_support::{OK, Server};

/// Longer than anything here takes, however slow the machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) struct Tcp(pub(crate) Core);

impl Connector for Tcp {
    type Key = SocketAddr;
    type Connection = TcpStream;
    type Error = io::Error;

    async fn connect(&self, key: &SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect(&self.0, *key, &ConnectOptions::default()).await
    }
}

/// Runs `main` on a core with an empty pool.
pub(crate) fn with_pool<F, Fut>(config: PoolConfigBuilder, main: F) -> Fut::Output
where
    F: FnOnce(Core, Pool<Tcp>) -> Fut,
    Fut: Future,
{
    let config = config.build().expect("the test's config is right");
    let main = |core: Core| {
        let pool = Pool::new(&core, config, Tcp(core.clone()));
        main(core, pool)
    };
    Core::builder().run(main).expect("a core starts")
}

pub(crate) fn config() -> PoolConfigBuilder {
    PoolConfig::builder()
        .acquire_timeout(Some(DEADLINE))
        .hold_timeout(None)
}

/// One request and its answer, to the byte.
pub(crate) async fn exchange(conn: &mut Pooled<Tcp>) -> io::Result<()> {
    conn.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n")
        .await?;
    let mut answer = [0; OK.len()];
    conn.read_exact(&mut answer).await?;
    assert_eq!(answer, OK);
    Ok(())
}

/// Waits until `condition` holds, without blocking the core.
pub(crate) async fn until(core: &Core, what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < DEADLINE, "waited in vain until {what}");
        core.sleep(Duration::from_millis(1)).await;
    }
}

pub(crate) fn total(pool: &Pool<Tcp>) -> DestinationStats {
    pool.snapshot().total
}

/// The permits balance: nothing is acquired or waits, what is idle is what the server has open,
/// and `max` requests are served in parallel, by a server that answers only when it has them all.
pub(crate) async fn assert_in_order(core: &Core, pool: &Pool<Tcp>, max: usize) {
    until(core, "nothing is acquired, connecting or pending", || {
        let stats = total(pool);
        (
            stats.acquired.current,
            stats.connecting.current,
            stats.pending.current,
        ) == (0, 0, 0)
    })
    .await;
    let healthy = Server::script(test_support::answer_together(max));
    let served = Rc::new(Cell::new(0));
    for _ in 0..max {
        let (pool, served, address) = (pool.clone(), Rc::clone(&served), healthy.addr());
        core.spawn(async move {
            let mut conn = pool.acquire(&address).await.expect("a burst is served");
            exchange(&mut conn).await.expect("a burst is answered");
            conn.release();
            served.set(served.get() + 1);
        });
    }
    until(core, "the whole burst is served", || served.get() == max).await;
    let stats = total(pool);
    assert_eq!((stats.acquired.current, stats.pending.current), (0, 0));
    assert_eq!(healthy.counts().highest_open, max);
}

/// Polls `future` `polls` times at the most, then drops it. Returns its output if it got there.
pub(crate) async fn poll_at_most<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = Some(Box::pin(future));
    let mut left = polls;
    poll_fn(move |cx| {
        if left == 0 {
            future = None;
            return Poll::Ready(None);
        }
        left -= 1;
        let Some(inner) = future.as_mut() else {
            return Poll::Ready(None);
        };
        match Pin::new(inner).poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => {
                future = None;
                Poll::Ready(None)
            }
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
