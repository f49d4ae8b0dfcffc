//! What the tests of the pool share: a connector without a protocol, and the check that a pool is
//! in order again.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::mpsc;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use pool_core::{
    ConnectOptions, Connector, Core, DestinationStats, JobError, Pool, PoolConfig,
    PoolConfigBuilder, Pooled, Submitted, TcpStream,
};
use test_support::{OK, Peer, Server};

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

/// Blocks the thread until a job has ended, and says so if it never does.
pub(crate) fn wait_for<T: Send + 'static>(job: Submitted<T>) -> Result<T, JobError> {
    let (sender, ended) = mpsc::channel();
    // The thread is left behind if the job never ends: the test has failed then.
    std::thread::spawn(move || sender.send(job.wait()));
    let ended = ended.recv_timeout(DEADLINE);
    ended.expect("no job waits for ever")
}

pub(crate) fn total<C: Connector>(pool: &Pool<C>) -> DestinationStats {
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

/// Numbers that look random and are the same for the same seed: xorshift64*.
pub(crate) struct Random(Cell<u64>);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Cell::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1))
    }

    pub(crate) fn below(&self, bound: u64) -> u64 {
        let mut x = self.0.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.0.set(x);
        (x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % bound
    }

    pub(crate) fn one_in(&self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    pub(crate) fn pick<T: Copy>(&self, items: &[T]) -> T {
        let bound = u64::try_from(items.len()).expect("a short list");
        items[usize::try_from(self.below(bound)).expect("below a length")]
    }

    /// Less than `bound` milliseconds, and at least a microsecond.
    pub(crate) fn millis(&self, bound: u64) -> Duration {
        Duration::from_micros(1 + self.below(bound * 1000))
    }
}

/// Answers like any server until, after an answer, it resets, closes or says what nobody asked
/// for.
pub(crate) fn moody(peer: &mut Peer) -> io::Result<()> {
    let random = Random::new(u64::try_from(peer.index()).expect("an index") + 1);
    while peer.read_request()?.is_some() {
        peer.answer(OK)?;
        match random.below(12) {
            0 => return peer.reset(),
            1 => {
                peer.fin()?;
                return peer.stall();
            }
            2 => {
                peer.send("stray")?;
                return peer.stall();
            }
            _ => {}
        }
    }
    Ok(())
}

/// Each acquire has ended in one of the ways that are counted.
pub(crate) fn assert_all_accounted(stats: &DestinationStats) {
    let acquires = &stats.acquires;
    let ended = acquires.fresh
        + acquires.reused
        + acquires.cancelled
        + acquires.failed
        + stats.timeouts.acquire
        + stats.rejected.queue_full
        + stats.rejected.draining;
    assert_eq!(acquires.requested, ended, "{stats:?}");
}
