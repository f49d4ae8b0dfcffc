//! What does it cost to hand a released connection over to a waiter?
//!
//! From the call of release to the next holder's guard: the delivery to the oldest waiter, and the
//! poll in which that one takes it. The wake-up in between is the runtime's. The waiters stand in
//! the queue before the time is taken.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::Criterion;
use pinpool_benches::{Counting, Tcp, at_once, enter_turn, queue};
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
    let ran = Core::builder().run(|core| async move {
        // One connection only, so that everybody else waits.
        let config = PoolConfig::builder().max_connections(1).build();
        let config = config.expect("a config");
        let pool = Pool::new(&core, config, Tcp(core.clone()));
        let first = pool.acquire(&address).await.expect("the server accepts");
        let mut held = Some(first);
        enter_turn(&core).await;

        let mut group = criterion.benchmark_group("hand-over");
        group.bench_function("release to the oldest waiter", |b| {
            b.iter_custom(|rounds| {
                let mut spent = Duration::ZERO;
                let mut left = rounds;
                while left > 0 {
                    let batch = left.min(WAITERS);
                    left -= batch;
                    let waiters = queue(&pool, &address, u32::try_from(batch).unwrap_or(1));
                    let began = Instant::now();
                    for waiter in waiters {
                        let last = held.take().expect("it is held");
                        last.release();
                        held = Some(black_box(at_once(waiter)).expect("it was delivered"));
                    }
                    spent += began.elapsed();
                }
                spent
            });
        });
        group.finish();
        criterion.final_summary();
    });
    ran.expect("a core starts");
    server.finish();
}
