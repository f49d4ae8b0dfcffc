//! A load generator over the client: closed loop and open loop, and a report.
//!
//! [`run`] does what a [`Plan`] says and gives a [`Report`]. Each thread is a core with a pool and
//! a client of its own, and a task for each connection; it records for itself, and tells once a
//! second. In the order of the files: [`Plan`] → `worker` (a thread's load) and `arrivals` (the open
//! loop's schedule and queue) → `counted` (connections that count what is read) → `record` (what a
//! thread measures) → [`Report`] → `page` and `plot` (the same to look at).
//!
//! ```
//! use std::sync::mpsc;
//!
//! use pinpool_examples::loadgen::{Plan, run};
//!
//! let plan = Plan::read(["loadgen", "-c", "2", "-n", "100"])?;
//! let (_stop, stopped) = mpsc::channel();
//! let report = run(&plan, &stopped, |second| eprintln!("{second}"))?;
//! assert_eq!((report.requests, report.errors), (100, 0));
//! assert_eq!(report.statuses[&200], 100);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod arrivals;
mod counted;
mod page;
mod plan;
mod plot;
mod record;
mod report;
mod worker;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use http::Uri;
use http_codec::EncodeError;
use pool_core::StartError;

use crate::origin;
use crate::server::{Service, ServiceError};
use record::{Interval, Tally};
use worker::{News, Share, Worker, part};

pub use plan::{Header, NotAHeader, Plan};
pub use report::{Point, Report, Second};

/// How often the thread that waits for the others looks whether it is to stop.
const LOOK_FOR_STOP: Duration = Duration::from_millis(100);

/// Why nothing could be measured. Each text says what to change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadgenError {
    /// The embedded origin could not be started.
    #[error("the origin: {0}")]
    Origin(#[from] ServiceError),
    /// A thread could not be started.
    #[error(transparent)]
    Core(#[from] StartError),
    /// The request cannot be written.
    #[error("the request cannot be sent: {0}")]
    Request(#[from] EncodeError),
    /// The embedded origin has no URI.
    #[error(transparent)]
    Uri(#[from] http::Error),
    /// No connection to the server could be made.
    #[error("{url} cannot be reached: {why}")]
    Unreachable {
        /// What was to be asked for.
        url: String,
        /// Why not.
        why: String,
    },
    /// A thread has died; its panic is on standard error.
    #[error("a thread of the load generator died")]
    Died,
}

/// Loads the server as the plan says, and reports. It ends when the plan is done, or early once
/// something has come from `stop` or its sender is gone. `progress` gets each second as it has
/// passed.
///
/// # Errors
///
/// [`LoadgenError`]; nothing is left running then. That requests fail is none: the report tells.
pub fn run(
    plan: &Plan,
    stop: &mpsc::Receiver<()>,
    progress: impl FnMut(&Second),
) -> Result<Report, LoadgenError> {
    let (cpus, origin_cpu) = plan.cpus();
    let (url, origin) = match &plan.url {
        Some(url) => (url.clone(), None),
        None => {
            let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let origin = origin::start_on(origin_cpu, anywhere)?;
            (plan::embedded(origin.address())?, Some(origin))
        }
    };
    let _origin = Stopped(origin);
    let (teller, news) = mpsc::channel();
    let mut threads = Threads(Vec::new());
    for share in shares(plan, &url, &cpus)? {
        threads.0.push(Worker::start(share, teller.clone())?);
    }
    drop(teller);
    await_ready(cpus.len(), &news, &url)?;
    let begun = Instant::now();
    threads.0.iter_mut().for_each(|thread| thread.begin(begun));
    let mut series = Series::new(cpus.len(), progress);
    series.follow(&news, || {
        // An error means that nobody can say it any more: as in any program here, that ends it.
        if stop.try_recv() != Err(TryRecvError::Empty) {
            threads.0.iter_mut().for_each(Worker::stop);
        }
    });
    let tally = threads.join().ok_or(LoadgenError::Died)?;
    let seconds = series.seconds;
    Ok(Report::of(
        plan,
        url.to_string(),
        cpus.len(),
        &tally,
        seconds,
    ))
}

/// What each thread has of the plan.
fn shares(plan: &Plan, url: &Uri, cpus: &[usize]) -> Result<Vec<Share>, EncodeError> {
    let request = plan.encode(url)?;
    let threads = cpus.len();
    let shares = cpus.iter().enumerate().map(|(thread, cpu)| Share {
        thread,
        threads,
        cpu: *cpu,
        // A part of what is a u32 is one too.
        connections: u32::try_from(part(plan.connections.into(), thread, threads))
            .unwrap_or(u32::MAX),
        request: request.clone(),
        timeout: plan.timeout.get(),
        warmup: plan.warmup.get().unwrap_or_default(),
        longest: plan.longest(),
        requests: plan.requests,
        rate: plan.rate,
        max_waiting: usize::try_from(part(plan.max_waiting.into(), thread, threads))
            .unwrap_or(usize::MAX),
    });
    Ok(shares.collect())
}

fn await_ready(threads: usize, news: &mpsc::Receiver<News>, url: &Uri) -> Result<(), LoadgenError> {
    for _ in 0..threads {
        match news.recv() {
            Ok(News::Ready) => {}
            Ok(News::Unreachable(why)) => {
                let url = url.to_string();
                return Err(LoadgenError::Unreachable { url, why });
            }
            // Before the begin the others are told by nobody but a thread that died.
            Ok(News::Second(..) | News::Ended(_)) | Err(_) => return Err(LoadgenError::Died),
        }
    }
    Ok(())
}

/// The origin, stopped at the end, whatever that is.
struct Stopped(Option<Service>);

impl Drop for Stopped {
    fn drop(&mut self) {
        if let Some(origin) = self.0.take() {
            origin.stop();
        }
    }
}

/// The threads that were started, stopped and awaited at the end, whatever that is.
struct Threads(Vec<Worker>);

impl Threads {
    /// What all of them have measured; `None` if one has died.
    fn join(mut self) -> Option<Tally> {
        let mut all = Tally::new();
        // All of them are awaited, even where one has died.
        let tallies: Vec<_> = self.0.drain(..).map(Worker::join).collect();
        for tally in tallies {
            all.merge(&tally?);
        }
        Some(all)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(Worker::stop);
        for thread in self.0.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The seconds of all threads, put together as they come in.
struct Series<P> {
    progress: P,
    /// The last second that each thread has told.
    told: Vec<u64>,
    open: BTreeMap<u64, Interval>,
    seconds: Vec<Second>,
}

impl<P: FnMut(&Second)> Series<P> {
    fn new(threads: usize, progress: P) -> Self {
        Self {
            progress,
            told: vec![0; threads],
            open: BTreeMap::new(),
            seconds: Vec::new(),
        }
    }

    /// Takes what the threads tell, until all have ended, and calls `look` in between.
    fn follow(&mut self, news: &mpsc::Receiver<News>, mut look: impl FnMut()) {
        loop {
            match news.recv_timeout(LOOK_FOR_STOP) {
                Ok(News::Second(thread, number, interval)) => {
                    self.add(thread, number, &interval);
                }
                Ok(News::Ended(thread)) => self.end(thread),
                Ok(News::Ready | News::Unreachable(_)) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            look();
        }
    }

    fn add(&mut self, thread: usize, number: u64, interval: &Interval) {
        let open = self.open.entry(number).or_insert_with(Interval::new);
        open.merge(interval);
        self.reach(thread, number);
    }

    fn end(&mut self, thread: usize) {
        self.reach(thread, u64::MAX);
    }

    fn reach(&mut self, thread: usize, number: u64) {
        if let Some(told) = self.told.get_mut(thread) {
            *told = number;
        }
        let by_all = self.told.iter().min().copied().unwrap_or_default();
        while let Some(first) = self.open.first_entry()
            && *first.key() <= by_all
        {
            let (number, interval) = first.remove_entry();
            let second = Second::of(number, &interval);
            (self.progress)(&second);
            self.seconds.push(second);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_is_told_once_every_thread_has_told_it_or_has_ended() {
        let mut seen = Vec::new();
        let mut series = Series::new(2, |second: &Second| seen.push(second.second));
        series.add(0, 1, &Interval::new());
        series.add(0, 2, &Interval::new());
        assert!(series.seconds.is_empty());
        series.add(1, 1, &Interval::new());
        assert_eq!(series.seconds.len(), 1);
        series.end(1);
        assert_eq!(series.seconds.len(), 2);
        series.add(0, 3, &Interval::new());
        assert_eq!(seen, [1, 2, 3]);
    }

    #[test]
    fn parts_of_the_threads_add_up_to_the_whole() {
        let plan = Plan::read(["loadgen", "-c", "7", "-n", "11", "--rate", "5"]).unwrap();
        let url = Uri::from_static("http://a/");
        let shares = shares(&plan, &url, &[0, 1, 2]).unwrap();
        let connections: Vec<_> = shares.iter().map(|share| share.connections).collect();
        assert_eq!(connections, [3, 2, 2]);
        let waiting: usize = shares.iter().map(|share| share.max_waiting).sum();
        assert_eq!(waiting, 10_000);
    }
}
