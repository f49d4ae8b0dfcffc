//! What does it cost to set a timer and cancel it, with few and with many others pending?

use std::hint::black_box;

use criterion::Criterion;
use pinpool_benches::{Counting, FullWheel, deadline, enter_turn, measures};
use pool_core::Core;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let most = if measures() { 1_000_000 } else { 2000 };
    let ran = Core::builder().run(|core| async move {
        let mut group = criterion.benchmark_group("timers");
        for pending in [0, 1000, most] {
            let mut wheel = FullWheel::new(pending);
            let mut number = 0u32;
            group.bench_function(format!("schedule and cancel, {pending} pending"), |b| {
                b.iter(|| {
                    number = number.wrapping_add(1);
                    wheel.schedule_and_cancel(deadline(black_box(number)));
                });
            });

            // An hour ahead of now, so that none of them fires meanwhile.
            enter_turn(&core).await;
            let ahead = std::time::Duration::from_secs(3600);
            let later = |number| {
                let offset = std::time::Duration::from_nanos(deadline(number).as_nanos());
                core.now().saturating_add(ahead).saturating_add(offset)
            };
            let sleeps: Vec<_> = (0..pending).map(|n| core.sleep_until(later(n))).collect();
            group.bench_function(format!("sleep made and dropped, {pending} pending"), |b| {
                b.iter(|| {
                    number = number.wrapping_add(1);
                    drop(black_box(core.sleep_until(later(number))));
                });
            });
            drop(sleeps);
        }
        group.finish();
        criterion.final_summary();
    });
    ran.expect("a core starts");
}
