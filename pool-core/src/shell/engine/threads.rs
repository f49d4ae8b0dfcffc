//! The threads of an engine: what a core of it does, and how all of them end.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures_channel::oneshot;

use super::report::{CoreCounts, CoreEnd, CoreReport, EngineReport};
use crate::connector::Connector;
use crate::fence::drop_panic;
use crate::net::runtime;
use crate::shell::core::Core;
use crate::shell::mailbox::Mailbox;
use crate::shell::pool::Pool;

/// How long after its deadline a core may take to clean up before it counts as stuck.
const CLEAN_UP: Duration = Duration::from_millis(100);

/// When a drain ends; none if never.
pub(super) type Deadline = Option<Instant>;

/// A core's thread. It ends with none if the core has not started.
pub(super) struct EngineThread {
    /// Takes the deadline. Dropped, it ends the core at once.
    pub(super) stop: Option<oneshot::Sender<Deadline>>,
    pub(super) thread: JoinHandle<Option<CoreReport>>,
}

impl EngineThread {
    /// Tells the core to drain until `deadline`, behind the jobs that it has taken.
    ///
    /// By mail, as a busy core opens it in every turn, while glommio looks every 100 ms at what
    /// other threads have woken: only a core whose mailbox is full has to wait for that.
    pub(super) fn stop(&mut self, mailbox: &Mailbox, deadline: Deadline) {
        let stop = Arc::new(Mutex::new(self.stop.take()));
        let by_mail = Arc::clone(&stop);
        let job = Box::new(move |_: &Core| send(&by_mail, deadline));
        if mailbox.push(job).is_err() {
            send(&stop, deadline);
        }
    }
}

fn send(stop: &Mutex<Option<oneshot::Sender<Deadline>>>, deadline: Deadline) {
    let stop = stop.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(stop) = stop {
        // A core that has died hears nothing, and its end will tell.
        let _ = stop.send(deadline);
    }
}

/// The threads of all cores of an engine. Dropping them ends them.
pub(super) struct Threads {
    pub(super) cores: Vec<EngineThread>,
    /// Every thread holds a sender until its executor is gone, however that comes about. The lock
    /// only makes the engine `Sync`; nobody ever waits for it.
    all_gone: Mutex<mpsc::Receiver<Infallible>>,
}

impl Threads {
    /// No thread yet, and the sender that each one has to hold.
    pub(super) fn new() -> (Self, mpsc::Sender<Infallible>) {
        let (held, all_gone) = mpsc::channel();
        let threads = Self {
            cores: Vec::new(),
            all_gone: Mutex::new(all_gone),
        };
        (threads, held)
    }

    /// Waits for the cores that were told to stop, but not for those that are stuck.
    pub(super) fn join(mut self, deadline: Deadline) -> EngineReport {
        let patience = left_until(deadline).saturating_add(CLEAN_UP);
        let all_gone = self
            .all_gone
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .recv_timeout(patience);
        let all_gone = all_gone == Err(mpsc::RecvTimeoutError::Disconnected);
        let cores = std::mem::take(&mut self.cores);
        let report = |core: EngineThread| {
            if all_gone || core.thread.is_finished() {
                join(core.thread)
            } else {
                CoreReport::without_counts(CoreEnd::Stuck)
            }
        };
        EngineReport {
            cores: cores.into_iter().map(report).collect(),
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        for core in &mut self.cores {
            core.stop = None;
        }
        if Core::current().is_none() {
            for core in self.cores.drain(..) {
                join(core.thread);
            }
        }
    }
}

fn join(thread: JoinHandle<Option<CoreReport>>) -> CoreReport {
    let report = thread.join().unwrap_or_else(|panic| {
        drop_panic(panic);
        None
    });
    report.unwrap_or_else(|| CoreReport::without_counts(CoreEnd::Died))
}

impl CoreReport {
    fn without_counts(end: CoreEnd) -> Self {
        Self { end, counts: None }
    }
}

fn left_until(deadline: Deadline) -> Duration {
    deadline.map_or(Duration::MAX, |deadline| {
        deadline.saturating_duration_since(Instant::now())
    })
}

/// The life of a core with `pool`, until it is told to stop and has drained.
pub(super) async fn serve<C: Connector>(
    core: Core,
    pool: Pool<C>,
    stopped: oneshot::Receiver<Deadline>,
) -> CoreReport {
    // Without a word the engine was dropped: no grace.
    let deadline = stopped.await.unwrap_or_else(|_| Some(Instant::now()));
    let stats = pool.snapshot().total;
    let is_quiet = stats.live() == stats.idle.current && stats.pending.current == 0;
    // The pool is to count its grace from the same reading.
    let (now, grace) = (core.read_clock(), left_until(deadline));
    pool.drain(grace).await;
    let end = match is_quiet || core.now() < now.saturating_add(grace) {
        true => CoreEnd::Drained,
        false => CoreEnd::CutShort,
    };
    // Whom the drain has woken is to find out before it is dropped.
    runtime::yield_now().await;
    let counts = CoreCounts {
        panics: core.panics(),
        pool: pool.snapshot().total,
    };
    CoreReport {
        end,
        counts: Some(counts),
    }
}
