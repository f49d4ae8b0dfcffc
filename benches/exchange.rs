//! What does a warm GET cost, beside the same bytes over a bare socket?
//!
//! Both ends are served on one core, by the same peer in all cases, so that a round trip is all that
//! happens in its time: the client writes 4 fields, the peer reads them and writes 8 fields and
//! 1 KiB, the client reads that to its end, and its connection is idle again. The bare socket has the
//! same readiness set under it, and no more than the reads and writes. What is made for
//! `Client::send`, a request of the `http` crate, is made in its time.
//!
//! Then the ways take turns, 50 round trips at a time, and what counts is the middle one of the times,
//! and of the ratios of two turns side by side: a machine that others use too changes its speed more
//! slowly than that.
//!
//! The allocations are those of the client alone, up to the connection's return, without those of
//! whoever made the request.

use std::time::{Duration, Instant};

use criterion::Criterion;
use pinpool_benches::{Allocated, Counting, WarmGet, Way, allocated, measures, median, within};
use pool_core::Core;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const WAYS: [(Way, &str); 3] = [
    (Way::Bare, "bare socket"),
    (Way::Exchange, "Client::exchange"),
    (Way::Send, "Client::send"),
];

/// Round trips before the other ways have their turn.
const PER_TURN: u64 = 50;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("warm GET, 1 KiB");
    for (way, name) in WAYS {
        group.bench_function(name, |b| {
            b.iter_custom(|rounds| on_core(async move |warm| timed(warm, way, rounds).await));
        });
    }
    group.finish();
    criterion.final_summary();
    on_core(side_by_side);
    on_core(count_allocations);
}

fn on_core<T>(work: impl AsyncFnOnce(&WarmGet) -> T + 'static) -> T
where
    T: 'static,
{
    let ran = Core::builder().run(|core| async move { work(&WarmGet::open(&core).await).await });
    ran.expect("a core starts")
}

async fn timed(warm: &WarmGet, way: Way, rounds: u64) -> Duration {
    let began = Instant::now();
    for _ in 0..rounds {
        warm.run(warm.prepare(way)).await;
    }
    began.elapsed()
}

async fn side_by_side(warm: &WarmGet) {
    let turns = if measures() { 4001 } else { 1 };
    let mut times: [Vec<f64>; WAYS.len()] = Default::default();
    let mut ratios = times.clone();
    for _ in 0..turns {
        for (number, (way, _)) in WAYS.iter().enumerate() {
            let spent = timed(warm, *way, PER_TURN).await.as_secs_f64();
            times[number].push(spent * 1e6 / PER_TURN as f64);
            // The bare socket had its turn first.
            let bare = times[0].last().expect("a turn");
            let ratio = times[number].last().expect("a turn") / bare;
            ratios[number].push(ratio);
        }
    }
    for ((_, name), (times, ratios)) in WAYS.iter().zip(times.into_iter().zip(ratios)) {
        let time = median(times).expect("a turn");
        let ratio = median(ratios).expect("a turn");
        println!("{name:<17} {time:.2} µs, {ratio:.2} of a bare socket's");
    }
}

async fn count_allocations(warm: &WarmGet) {
    for (way, name) in WAYS {
        let mut made = Allocated::default();
        // In the first ones what is kept grows to its size.
        for _ in 0..PER_TURN {
            made = Allocated::default();
            let count = |poll: &mut dyn FnMut()| {
                let more = allocated(poll);
                made.blocks += more.blocks;
                made.bytes += more.bytes;
            };
            within(warm.run(warm.prepare(way)), count).await;
        }
        let Allocated { blocks, bytes } = made;
        println!("{name:<17} {blocks} allocations, {bytes} bytes");
    }
}
