//! What does a job cost that another thread submits, beside what a channel costs?
//!
//! One producer. The channels carry a boxed closure to a thread that calls it, and the closure
//! answers through a oneshot channel, as a job does; what a job has beyond that is its task on the
//! core, with its panic fence and its cancellation. In `many`, the producer has up to 1024 jobs under
//! way and time is per job; in `one`, it waits for each, and time is that of waking two threads.

use std::collections::VecDeque;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use criterion::Criterion;
use futures_channel::oneshot;
use pinpool_benches::{Counting, Tcp};
use pool_core::{Core, Pool, PoolConfig};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Jobs under way at a time; the mailbox takes four times as many.
const UNDER_WAY: usize = 1024;

type Job = Box<dyn FnOnce() + Send>;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    pool(&mut criterion);

    let (sender, receiver) = mpsc::sync_channel::<Job>(4 * UNDER_WAY);
    let consumer = thread::spawn(move || receiver.into_iter().for_each(|job| job()));
    channel(&mut criterion, "std mpsc", |job| {
        sender.send(job).expect("the consumer lives");
    });
    drop(sender);
    consumer.join().expect("the consumer ends");

    let (sender, receiver) = crossbeam_channel::bounded::<Job>(4 * UNDER_WAY);
    let consumer = thread::spawn(move || receiver.into_iter().for_each(|job| job()));
    channel(&mut criterion, "crossbeam", |job| {
        sender.send(job).expect("the consumer lives");
    });
    drop(sender);
    consumer.join().expect("the consumer ends");
    criterion.final_summary();
}

fn pool(criterion: &mut Criterion) {
    let (tell, told) = mpsc::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let core = Core::builder().spawn(|core| async move {
        let pool = Pool::new(&core, PoolConfig::default(), Tcp(core.clone()));
        tell.send(pool.handle()).expect("the producer waits");
        // Ends with an error when the producer drops its end, which is as good.
        let _ = stopped.await;
    });
    let core = core.expect("a core starts");
    let handle = told.recv().expect("the core tells");
    let submit = |number: u64| {
        let submitted = handle.submit(move |_| async move { number });
        submitted.expect("the mailbox has room")
    };
    bench(criterion, "pool", submit, |submitted| {
        submitted.wait().expect("the job runs")
    });
    drop(stop);
    core.join().expect("the core ends");
}

fn channel(criterion: &mut Criterion, name: &str, send: impl Fn(Job)) {
    let submit = |number: u64| {
        let (answer, answered) = oneshot::channel();
        send(Box::new(move || {
            // The producer waits for every answer.
            let _ = answer.send(number);
        }));
        answered
    };
    bench(criterion, name, submit, |answered| {
        futures_lite::future::block_on(answered).expect("the job runs")
    });
}

fn bench<T>(
    criterion: &mut Criterion,
    name: &str,
    submit: impl Fn(u64) -> T,
    wait: impl Fn(T) -> u64,
) {
    let mut group = criterion.benchmark_group("mailbox");
    group.bench_function(format!("{name}, many"), |b| {
        b.iter_custom(|jobs| timed(jobs, UNDER_WAY, &submit, &wait));
    });
    group.bench_function(format!("{name}, one"), |b| {
        b.iter_custom(|jobs| timed(jobs, 1, &submit, &wait));
    });
    group.finish();
}

/// How long `jobs` jobs take, so many of them under way at a time.
fn timed<T>(
    jobs: u64,
    under_way: usize,
    submit: &impl Fn(u64) -> T,
    wait: &impl Fn(T) -> u64,
) -> Duration {
    let mut waiting = VecDeque::with_capacity(under_way);
    let mut answered = 0;
    let began = Instant::now();
    for job in 0..jobs {
        if waiting.len() == under_way {
            answered += waiting.pop_front().map_or(0, |oldest| wait(oldest) + 1);
        }
        waiting.push_back(submit(job));
    }
    answered += waiting.into_iter().map(|last| wait(last) + 1).sum::<u64>();
    let spent = began.elapsed();
    assert_eq!(answered, (1..=jobs).sum::<u64>(), "each job answers once");
    spent
}
