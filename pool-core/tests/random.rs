//! A pool under random use, by tasks and by the user code that it calls itself, with random
//! timeouts and peers of every kind: whatever happened, everything ends and the permits balance.
//!
//! A failure names its seed. `POOL_RANDOM_SEED=<seed>` runs that one, many times over: sockets and
//! clocks keep a run from being the same as the last.
#![cfg(feature = "glommio")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use common::{DEADLINE, Random, assert_all_accounted, config, moody, poll_at_most, total, until};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use pool_core::{
    AcquireError, CloseReason, ConnectOptions, Connection, Connector, Core, Pool, PoolConfig,
    Pooled, Readiness, TcpStream,
};
use test_support::{
    HangingListener, OK, RefusedAddress, Server, keep_alive_ok, never_answer, refused_address,
};

const SEEDS: u64 = 48;
/// No seed begins after this.
const BUDGET: Duration = Duration::from_secs(10);
const REPLAYS: u64 = 20;
const TASKS: u64 = 24;
const STEPS: u32 = 25;

/// What the user code that the pool calls can find.
#[derive(Clone)]
struct World {
    pool: Pool<Rogue>,
    addresses: Rc<[SocketAddr]>,
    random: Rc<Random>,
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
    /// How many pieces of user code are on the stack.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// At random, user code calls the pool that has called it.
fn mischief() {
    let Some(world) = WORLD.with_borrow(Clone::clone) else {
        return;
    };
    let random = &world.random;
    if DEPTH.get() >= 3 || !random.one_in(3) {
        return;
    }
    DEPTH.set(DEPTH.get() + 1);
    let (pool, address) = (&world.pool, random.pick(&world.addresses));
    match random.below(4) {
        0 => {
            let mut acquire = pool.acquire(&address);
            if random.one_in(3) {
                acquire = pool.acquire_fresh(&address);
            }
            let mut cx = Context::from_waker(Waker::noop());
            if let Poll::Ready(Ok(conn)) = pin!(acquire).poll(&mut cx) {
                conn.release();
            }
        }
        1 => drop(pool.try_acquire(&address)),
        2 => {
            if let Some(conn) = pool.try_acquire(&address) {
                conn.release();
            }
        }
        _ => drop(pool.snapshot()),
    }
    DEPTH.set(DEPTH.get() - 1);
}

struct Rogue(Core);

impl Connector for Rogue {
    type Key = SocketAddr;
    type Connection = RogueConnection;
    type Error = io::Error;

    async fn connect(&self, address: &SocketAddr) -> io::Result<RogueConnection> {
        mischief();
        let stream = TcpStream::connect(&self.0, *address, &ConnectOptions::default()).await?;
        mischief();
        Ok(RogueConnection(stream))
    }
}

struct RogueConnection(TcpStream);

impl Connection for RogueConnection {
    fn readiness(&self) -> Readiness {
        self.0.readiness()
    }

    fn check(&mut self) -> Result<(), CloseReason> {
        mischief();
        self.0.check()
    }
}

impl Drop for RogueConnection {
    fn drop(&mut self) {
        mischief();
    }
}

struct RogueWaker(Waker);

impl Wake for RogueWaker {
    fn wake(self: Arc<Self>) {
        mischief();
        self.0.wake_by_ref();
    }
}

/// Polls under a waker that calls the pool.
async fn under_rogue_waker<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        let waker = Waker::from(Arc::new(RogueWaker(cx.waker().clone())));
        future.as_mut().poll(&mut Context::from_waker(&waker))
    })
    .await
}

async fn exchange(conn: &mut RogueConnection) -> io::Result<()> {
    let stream = &mut conn.0;
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await?;
    let mut answer = [0; OK.len()];
    stream.read_exact(&mut answer).await?;
    assert_eq!(answer, OK, "somebody else's bytes");
    Ok(())
}

async fn hold(core: &Core, random: &Random, mut conn: Pooled<Rogue>) {
    if random.one_in(3) {
        core.sleep(random.millis(20)).await;
    }
    if !random.one_in(4) {
        let exchanged = core.timeout(random.millis(50), exchange(&mut conn)).await;
        if !exchanged.is_ok_and(|exchanged| exchanged.is_ok()) {
            return;
        }
    }
    match random.below(8) {
        0 => drop(conn),
        1 => conn.close(CloseReason::ConnectionClose),
        2 => drop(conn.detach()),
        _ => conn.release(),
    }
}

async fn acquire_at_random(
    core: &Core,
    world: &World,
    random: &Random,
) -> Option<Result<Pooled<Rogue>, AcquireError<io::Error>>> {
    let address = random.pick(&world.addresses);
    let acquire = match random.below(6) {
        0 => return world.pool.try_acquire(&address).map(Ok),
        1 => world.pool.acquire_fresh(&address),
        _ => world.pool.acquire(&address),
    };
    match random.below(4) {
        0 => poll_at_most(usize::try_from(random.below(4)).unwrap(), acquire).await,
        1 => core.timeout(random.millis(6), acquire).await.ok(),
        2 => Some(under_rogue_waker(acquire).await),
        _ => Some(acquire.await),
    }
}

async fn customer(core: Core, world: World, random: Random) {
    for _ in 0..STEPS {
        match acquire_at_random(&core, &world, &random).await {
            Some(Ok(conn)) => hold(&core, &random, conn).await,
            Some(Err(AcquireError::Draining)) => return,
            Some(Err(_)) => {}
            None => core.sleep(random.millis(1)).await,
        }
    }
}

fn random_config(random: &Random) -> PoolConfig {
    let max = 1 + u32::try_from(random.below(4)).unwrap();
    let below = |bound: u32| u32::try_from(random.below(bound.into())).unwrap();
    let sometimes = |limit: Duration| (!random.one_in(3)).then_some(limit);
    let least = Duration::from_millis(1);
    config()
        .max_connections(max)
        .max_idle(below(max + 1))
        .dials_in_flight(1 + below(4))
        .max_pending((!random.one_in(2)).then_some(below(12)))
        .acquire_timeout(least + random.millis(12))
        .connect_timeout(least + random.millis(8))
        .hold_timeout(sometimes(Duration::from_millis(25) + random.millis(25)))
        .idle_timeout(sometimes(least + random.millis(20)))
        .build()
        .unwrap()
}

struct Peers {
    healthy: Server,
    others: Vec<Server>,
    refused: RefusedAddress,
    hanging: HangingListener,
}

impl Peers {
    fn new() -> Self {
        Self {
            healthy: Server::script(keep_alive_ok()),
            others: vec![
                Server::script(moody),
                Server::script(|_| Ok(())),
                Server::script(|peer| peer.reset()),
                Server::script(never_answer()),
            ],
            refused: refused_address(),
            hanging: HangingListener::new(),
        }
    }

    /// Some of them; the healthy one is always among them, and most often asked.
    fn pick(&self, random: &Random) -> Rc<[SocketAddr]> {
        let mut addresses = vec![self.healthy.addr(); 3];
        let mut others: Vec<_> = self.others.iter().map(Server::addr).collect();
        others.extend([self.refused.addr(), self.hanging.addr()]);
        addresses.extend(others.into_iter().filter(|_| random.one_in(2)));
        addresses.into()
    }
}

/// `max` connections can be held at a time, and as many exchanges are served. Short timeouts may
/// strike in between on a slow machine, so it is tried until both have been seen.
///
/// By a server of its own: one that the customers have left in a bad state is slow to accept.
async fn assert_serves_in_parallel(core: &Core, pool: &Pool<Rogue>, max: u32) {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let started = Instant::now();
    let (mut all_held, mut served) = (false, 0);
    while !all_held || served < max {
        let mut conns = Vec::new();
        while conns.len() < usize::try_from(max).unwrap()
            && let Ok(conn) = pool.acquire(&address).await
        {
            conns.push(conn);
        }
        all_held |= total(pool).acquired.current == max;
        for conn in &mut conns {
            served += u32::from(exchange(conn).await.is_ok());
        }
        conns.into_iter().for_each(Pooled::release);
        assert!(started.elapsed() < DEADLINE, "{:?}", total(pool));
        core.sleep(Duration::from_millis(1)).await;
    }
}

async fn assert_all_ended(core: &Core, pool: &Pool<Rogue>) {
    until(core, "nothing is acquired, connecting or pending", || {
        let stats = total(pool);
        let busy = [stats.acquired, stats.connecting, stats.pending];
        busy.iter().all(|gauge| gauge.current == 0)
    })
    .await;
    assert_all_accounted(&total(pool));
}

fn run(seed: u64, peers: &Peers) {
    let random = Rc::new(Random::new(seed));
    let config = random_config(&random);
    let max = config.max_connections();
    let addresses = peers.pick(&random);
    let drains_early = random.one_in(4);
    let main = |core: Core| async move {
        let pool = Pool::new(&core, config, Rogue(core.clone()));
        let world = World {
            pool: pool.clone(),
            addresses,
            random: Rc::clone(&random),
        };
        WORLD.set(Some(world.clone()));
        let left = Rc::new(Cell::new(TASKS));
        for n in 0..TASKS {
            let (world, left) = (world.clone(), Rc::clone(&left));
            let all = customer(core.clone(), world, Random::new(seed * 1000 + n));
            core.spawn(async move {
                all.await;
                left.set(left.get() - 1);
            });
        }
        if drains_early {
            core.sleep(random.millis(30)).await;
            pool.drain(random.millis(10)).await;
        }
        until(&core, "every acquire has ended", || left.get() == 0).await;
        WORLD.take();
        assert_all_ended(&core, &pool).await;
        if !drains_early {
            assert_serves_in_parallel(&core, &pool, max).await;
        }
        pool.drain(Duration::ZERO).await;
        assert_all_ended(&core, &pool).await;
        assert_eq!((total(&pool).live(), core.panics()), (0, 0));
        until(&core, "no socket is left", || {
            core.registered_sockets() == 0
        })
        .await;
    };
    Core::builder().run(main).unwrap();
}

/// Says how to repeat what failed.
struct OnFailure(u64);

impl Drop for OnFailure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("to repeat it: POOL_RANDOM_SEED={}", self.0);
        }
    }
}

#[test]
fn everything_ends_and_the_permits_balance_whatever_users_and_peers_do() {
    let peers = Peers::new();
    let started = Instant::now();
    let seeds: Vec<u64> = match std::env::var("POOL_RANDOM_SEED") {
        Ok(seed) => vec![seed.parse().unwrap(); usize::try_from(REPLAYS).unwrap()],
        Err(_) => (0..SEEDS).collect(),
    };
    let mut ran = 0;
    for seed in seeds {
        if started.elapsed() > BUDGET {
            break;
        }
        let _on_failure = OnFailure(seed);
        run(seed, &peers);
        ran += 1;
    }
    eprintln!("{ran} seeds in {:?}", started.elapsed());
}
