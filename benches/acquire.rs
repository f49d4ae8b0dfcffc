//! What does a warm acquire and release cost, beside the least that could do the job and beside
//! other pools?
//!
//! Every pool hands out and takes back one idle connection of a kind that costs nothing by itself,
//! on one thread, without a wait. What differs:
//!
//! - ours looks at what the kernel has said of the connection's socket, checks it again at the
//!   release, finds its destination by key, and sets and cancels a hold and an idle timer;
//! - deadpool and bb8 have one destination per pool, so no key; they set no timer, and ask the
//!   manager, which says yes, whether a connection is fit (bb8 is told not to ask);
//! - pingora-pool finds its destination by a hash that the caller has made beforehand. What it
//!   returns for the idle watch, which the caller would run as a task, is dropped.
//!
//! They can be used from several threads, which ours cannot, and pay for it by atomics and locks.

use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::hint::black_box;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion};
use pinpool_benches::{Counting, Tcp, allocations, at_once, enter_turn, turns};
use pool_core::{Core, Pool, PoolConfig, Pooled};
use test_support::{Server, keep_alive_ok};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("acquire");
    hash_map(&mut group);
    ours(&mut group);
    others(&mut group);
    group.finish();
    criterion.final_summary();
}

fn hash_map(group: &mut BenchmarkGroup<'_, WallTime>) {
    let address = SocketAddr::from(([127, 0, 0, 1], 80));
    let idle = RefCell::new(HashMap::from([(address, vec![7u32])]));
    group.bench_function("hash map of vectors", |b| {
        b.iter(|| {
            let taken = idle
                .borrow_mut()
                .get_mut(black_box(&address))
                .and_then(Vec::pop);
            let taken = black_box(taken.expect("one is idle"));
            idle.borrow_mut()
                .get_mut(&address)
                .expect("it is known")
                .push(taken);
        });
    });
}

fn ours(group: &mut BenchmarkGroup<'_, WallTime>) {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let mut measure = |name: &str, acquire: fn(&Pool<Tcp>, &SocketAddr) -> Option<Pooled<Tcp>>| {
        group.bench_function(name, |b| {
            b.iter_custom(|rounds| {
                let rounds = u32::try_from(rounds).expect("fewer rounds than that take for ever");
                let spent = Core::builder().run(move |core| warm(core, address, rounds, acquire));
                spent.expect("a core starts")
            });
        });
    };
    measure("pool, try_acquire", |pool, address| {
        pool.try_acquire(address)
    });
    measure("pool, acquire", |pool, address| {
        at_once(pool.acquire(address)).ok()
    });
    server.finish();
}

/// How long so many rounds take, begun with a warm pool, without what lies between two turns.
async fn warm(
    core: Core,
    address: SocketAddr,
    rounds: u32,
    acquire: fn(&Pool<Tcp>, &SocketAddr) -> Option<Pooled<Tcp>>,
) -> Duration {
    let pool = Pool::new(&core, PoolConfig::default(), Tcp(core.clone()));
    let first = pool.acquire(&address).await.expect("the server accepts");
    first.release();
    let round = || {
        let conn = acquire(&pool, black_box(&address)).expect("one is idle");
        black_box(&conn);
        conn.release();
    };
    round();
    let mut spent = Duration::ZERO;
    for turn in turns(rounds) {
        enter_turn(&core).await;
        let turn_began = core.now();
        let made = allocations(|| {
            let began = Instant::now();
            turn.for_each(|_| round());
            spent += began.elapsed();
        });
        assert_eq!(made, 0, "a warm acquire and release allocates");
        assert_eq!(core.now(), turn_began, "the clock was read in between");
    }
    spent
}

struct Manager;

impl deadpool::managed::Manager for Manager {
    type Type = u32;
    type Error = Infallible;

    async fn create(&self) -> Result<u32, Infallible> {
        Ok(7)
    }

    async fn recycle(
        &self,
        _: &mut u32,
        _: &deadpool::managed::Metrics,
    ) -> deadpool::managed::RecycleResult<Infallible> {
        Ok(())
    }
}

impl bb8::ManageConnection for Manager {
    type Connection = u32;
    type Error = Infallible;

    async fn connect(&self) -> Result<u32, Infallible> {
        Ok(7)
    }

    async fn is_valid(&self, _: &mut u32) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, _: &mut u32) -> bool {
        false
    }
}

fn others(group: &mut BenchmarkGroup<'_, WallTime>) {
    let deadpool = deadpool::managed::Pool::<Manager>::builder(Manager)
        .max_size(1000)
        .build()
        .expect("no timeouts that need a runtime");
    drop(at_once(deadpool.get()).expect("it connects"));
    group.bench_function("deadpool", |b| {
        b.iter(|| {
            let conn = at_once(black_box(&deadpool).get()).expect("one is idle");
            drop(black_box(conn));
        });
    });

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime starts");
    let bb8 = bb8::Pool::builder().max_size(1000).test_on_check_out(false);
    let bb8 = runtime.block_on(bb8.build(Manager)).expect("it is built");
    drop(runtime.block_on(bb8.get()).expect("it connects"));
    let entered = runtime.enter();
    group.bench_function("bb8", |b| {
        b.iter(|| {
            let conn = at_once(black_box(&bb8).get()).expect("one is idle");
            drop(black_box(conn));
        });
    });
    drop(entered);

    let pingora = pingora_pool::ConnectionPool::<u32>::new(1000);
    let meta = pingora_pool::ConnectionMeta::new(1, 1);
    drop(pingora.put(&meta, 7));
    group.bench_function("pingora-pool", |b| {
        b.iter(|| {
            let conn = black_box(&pingora).get(&1).expect("one is idle");
            drop(pingora.put(&meta, black_box(conn)));
        });
    });
}
