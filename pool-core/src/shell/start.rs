//! The start and the end of a core.
//!
//! The driver runs beside the main future. Once that has ended, by a panic too, what it has left is
//! cleaned up on the core's own thread before its result is handed on.

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;

use futures_lite::FutureExt;

use super::core::{CURRENT, Core, CoreInner};
use super::mailbox::Mailbox;
use super::sync::Alarm;
use crate::error::StartError;
use crate::net::{Poller, runtime};

/// Sets up a core and starts it, on this thread or on one of its own.
#[derive(Clone, Debug)]
#[must_use = "a builder starts nothing until `run` or `spawn`"]
pub struct CoreBuilder {
    name: String,
    cpu: Option<usize>,
    mailbox_capacity: usize,
}

impl Default for CoreBuilder {
    fn default() -> Self {
        Self {
            name: "pinpool".to_owned(),
            cpu: None,
            mailbox_capacity: 4096,
        }
    }
}

impl CoreBuilder {
    /// The thread's name. Default: `pinpool`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Pins the core to this CPU, as the operating system numbers it. Default: not pinned.
    pub fn cpu(mut self, cpu: Option<usize>) -> Self {
        self.cpu = cpu;
        self
    }

    /// How many jobs from other threads may wait; 0 counts as 1. Default: 4096.
    pub fn mailbox_capacity(mut self, jobs: usize) -> Self {
        self.mailbox_capacity = jobs.max(1);
        self
    }

    /// Runs `main` on this thread and returns its result once everything it left is cleaned up:
    /// tasks dropped, pools closed, jobs refused.
    ///
    /// # Errors
    ///
    /// [`StartError`] names what the system refuses.
    ///
    /// # Panics
    ///
    /// Panics if a core runs on this thread already, and goes on with a panic of `main`, after the
    /// clean-up.
    pub fn run<F, Fut>(self, main: F) -> Result<Fut::Output, StartError>
    where
        F: FnOnce(Core) -> Fut,
        Fut: Future,
    {
        assert!(
            Core::current().is_none(),
            "a core runs on this thread already"
        );
        let executor = runtime::executor(&self.name, self.cpu)?;
        let _end = End;
        runtime::run(&executor, async {
            let (core, park) = self.start().map_err(StartError::Io)?;
            Ok(core.live(park, main).await)
        })
    }

    /// Starts a thread of its own for the core and runs `main` on it.
    ///
    /// # Errors
    ///
    /// [`StartError`] names what the system refuses; the thread is gone then.
    pub fn spawn<F, Fut>(self, main: F) -> Result<CoreThread<Fut::Output>, StartError>
    where
        F: FnOnce(Core) -> Fut + Send + 'static,
        Fut: Future,
        Fut::Output: Send + 'static,
    {
        let (report, started) = mpsc::channel();
        let thread = thread::Builder::new()
            .name(self.name.clone())
            .spawn(move || {
                let begun = report.clone();
                let result = self.run(|core| {
                    // The receiver waits for exactly one report.
                    let _ = begun.send(Ok(()));
                    main(core)
                });
                result.map_err(|error| drop(report.send(Err(error)))).ok()
            });
        let thread = thread.map_err(StartError::Io)?;
        match started.recv() {
            Ok(Ok(())) => Ok(CoreThread { thread }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(StartError::Io(io::Error::other(
                "the core's thread died at its start",
            ))),
        }
    }

    fn start(&self) -> io::Result<(Core, runtime::Park)> {
        let poller = Poller::new()?;
        let park = runtime::Park::new(poller.descriptor()?);
        let mailbox = Mailbox::new(self.mailbox_capacity, Alarm::new(poller.alarm()));
        let core = Core(Rc::new(CoreInner::new(poller, mailbox)));
        Ok((core, park))
    }
}

/// The end of this thread's core. However that comes, by a fault of the core too, the thread is
/// free for another one, and nobody is left waiting for this one.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        if let Some(core) = CURRENT.take().upgrade() {
            core.mailbox.close();
        }
    }
}

impl Drop for CoreInner {
    fn drop(&mut self) {
        self.mailbox.close();
    }
}

impl Core {
    /// The core's life: the driver beside `main`, then the clean-up.
    async fn live<F, Fut>(self, park: runtime::Park, main: F) -> Fut::Output
    where
        F: FnOnce(Self) -> Fut,
        Fut: Future,
    {
        CURRENT.set(Rc::downgrade(&self.0));
        let driver = {
            let core = self.clone();
            runtime::spawn(async move { core.drive(park).await })
        };
        let outcome = match catch_unwind(AssertUnwindSafe(|| main(self.clone()))) {
            Ok(future) => AssertUnwindSafe(future).catch_unwind().await,
            Err(panic) => Err(panic),
        };
        self.0.mailbox.close();
        self.close_pools();
        self.0.tasks.close().await;
        // A task that was dropped may have given a connection back.
        self.close_pools();
        driver.cancel().await;
        runtime::turn_once().await;
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn close_pools(&self) {
        let pools: Vec<_> = {
            let pools = self.0.pools.borrow();
            pools
                .iter()
                .filter_map(|(_, pool)| pool.upgrade())
                .collect()
        };
        for pool in pools {
            self.0.tasks.fence("a connection", || pool.close_now());
        }
    }
}

/// A core that runs on a thread of its own.
#[derive(Debug)]
#[must_use = "a core whose thread is not joined may outlive the program's end unseen"]
pub struct CoreThread<T> {
    thread: thread::JoinHandle<Option<T>>,
}

impl<T> CoreThread<T> {
    /// Whether the core has ended, by itself or by a panic.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits until the core has ended and returns what its main future returned.
    ///
    /// # Errors
    ///
    /// The panic of the main future, or of the core itself.
    pub fn join(self) -> thread::Result<T> {
        self.thread.join().and_then(|output| {
            // A core that did not start has told so in `spawn`.
            output.ok_or_else(|| Box::new("the core has not started") as Box<_>)
        })
    }
}
