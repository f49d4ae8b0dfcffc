//! What does it cost to find a destination among many?
//!
//! The destination of each operation is picked at random. Real sockets to 100,000 of them are more
//! than a process may open, so the connections share as many as may be. The state by itself, which
//! knows no sockets and no keys, shows how much of the time goes into finding the key.

use std::hint::black_box;
use std::net::SocketAddr;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion};
use pinpool_benches::{
    Counting, Destinations, Sharing, enter_turn, keep_connections, measures,
    raise_descriptor_limit, shuffled, state_of_many, state_round,
};
use pool_core::{Core, Pool, Pooled, Timestamp};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Both ends of a socket are in this process.
const SOCKETS: u64 = 4096;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let most = if measures() { 100_000 } else { 2000 };
    let limit = raise_descriptor_limit();
    let sockets = SOCKETS.min(limit.saturating_sub(256) / 2).max(1);
    println!("{sockets} sockets are shared; the limit is {limit} descriptors");
    let peer = keep_connections().expect("a listener");
    let ran = Core::builder().run(|core| async move {
        let mut group = criterion.benchmark_group("destinations");
        for destinations in [1, 1000, most] {
            let sockets = sockets.min(u64::from(destinations));
            let sockets = usize::try_from(sockets).unwrap_or(1);
            let many = Destinations::open(&core, peer, destinations, sockets).await;
            enter_turn(&core).await;
            bench(
                &mut group,
                "by key",
                &many,
                |_, key| *key,
                |pool, key| pool.try_acquire(key),
            );
            bench(
                &mut group,
                "by handle",
                &many,
                |pool, key| pool.destination(key),
                |_, destination| destination.try_acquire(),
            );

            let mut order = shuffled(destinations).into_iter().cycle();
            let (mut state, keys) = state_of_many(destinations);
            let now = Timestamp::from_nanos(1_000_000);
            group.bench_function(format!("the state, of {destinations}"), |b| {
                b.iter(|| {
                    let next = order.next().unwrap_or(0) as usize;
                    state_round(&mut state, now, black_box(keys[next]));
                });
            });
        }
        group.finish();
        criterion.final_summary();
    });
    ran.expect("a core starts");
}

/// `prepare` makes what the caller keeps of a destination, and `acquire` finds it by that.
fn bench<K>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    many: &Destinations,
    prepare: impl Fn(&Pool<Sharing>, &SocketAddr) -> K,
    acquire: impl Fn(&Pool<Sharing>, &K) -> Option<Pooled<Sharing>>,
) {
    let kept = many.addresses.iter().map(|key| prepare(&many.pool, key));
    let kept: Vec<K> = kept.collect();
    let mut order = shuffled(u32::try_from(kept.len()).unwrap_or(1))
        .into_iter()
        .cycle();
    group.bench_function(format!("{name}, of {}", kept.len()), |b| {
        b.iter(|| {
            let next = order.next().unwrap_or(0) as usize;
            let conn = acquire(&many.pool, black_box(&kept[next]));
            black_box(conn).expect("one is idle").release();
        });
    });
}
