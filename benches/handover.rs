//! What does it cost to hand a released connection over to a waiter?
//!
//! From the call of release to the next holder's guard: the delivery to the oldest waiter, and the
//! poll in which that one takes it. The wake-up in between is the runtime's. The waiters stand in
//! the queue before the time is taken.

use std::hint::black_box;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use criterion::Criterion;
use pinpool_benches::{Counting, Tcp, at_once, queue};
use pool_core::{Core, Pool, PoolConfig};
use test_support::{Server, keep_alive_ok};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// So many wait at a time.
const WAITERS: u64 = 256;

fn main() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("hand-over");
    group.bench_function("release to the oldest waiter", |b| {
        b.iter_custom(|rounds| {
            let spent = Core::builder().run(move |core| hand_over(core, address, rounds));
            spent.expect("a core starts")
        });
    });
    group.finish();
    criterion.final_summary();
    server.finish();
}

async fn hand_over(core: Core, address: SocketAddr, rounds: u64) -> Duration {
    // One connection only, so that everybody else waits.
    let config = PoolConfig::builder().max_connections(1).build();
    let pool = Pool::new(&core, config.expect("a config"), Tcp(core.clone()));
    let first = pool.acquire(&address).await.expect("the server accepts");
    let mut held = Some(first);
    let mut spent = Duration::ZERO;
    let mut left = rounds;
    while left > 0 {
        let batch = left.min(WAITERS);
        left -= batch;
        let waiters = queue(&pool, &address, u32::try_from(batch).unwrap_or(1)).await;
        let began = Instant::now();
        for waiter in waiters {
            let last = held.take().expect("it is held");
            last.release();
            held = Some(black_box(at_once(waiter)).expect("it was delivered"));
        }
        spent += began.elapsed();
    }
    spent
}
