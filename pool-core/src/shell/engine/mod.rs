//! An engine: a core per CPU, each with a pool of its own, started and ended together.
//!
//! `builder` starts it, `threads` is what its cores do and how they are ended, `report` what comes
//! of that.

mod builder;
mod report;
mod threads;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use futures_channel::oneshot;

pub use self::builder::{EngineBuilder, allowed_cpus};
pub use self::report::{CoreCounts, CoreEnd, CoreReport, EngineReport};
use self::threads::{Deadline, Threads};
use super::core::Core;
use super::handle::{PoolHandle, Submitted};
use super::pool::Pool;
use super::snapshot::PoolSnapshot;
use crate::connector::Connector;
use crate::error::SubmitError;

/// A core per CPU, each with a pool of its own, and one handle to all.
///
/// Nothing is shared between the cores; `max_connections` and every other limit holds for each of
/// them. A panic of a job, a task or a connect is caught and [counted](Core::panics), and its core
/// lives on.
///
/// Dropping an engine ends its cores without grace and waits until their threads are gone, which
/// takes as long as a user's code blocks one. On the thread of a core, which must not block, it
/// does not wait.
///
/// ```
/// use std::{io, net::SocketAddr, time::Duration};
///
/// use pool_core::{ConnectOptions, Connector, Core, Engine, TcpStream};
///
/// struct Tcp(Core);
///
/// impl Connector for Tcp {
///     type Key = SocketAddr;
///     type Connection = TcpStream;
///     type Error = io::Error;
///
///     async fn connect(&self, key: &SocketAddr) -> io::Result<TcpStream> {
///         TcpStream::connect(&self.0, *key, &ConnectOptions::default()).await
///     }
/// }
///
/// let engine = Engine::builder().start(|core| Tcp(core.clone()))?;
/// let handle = engine.handle();
/// for job in handle.each(|pool| async move { pool.snapshot().total.live() }) {
///     assert_eq!(job?.wait()?, 0);
/// }
///
/// let report = engine.drain_blocking(Duration::from_secs(10));
/// assert!(report.is_drained());
/// assert!(handle.pools()[0].submit(|_| async {}).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # A service on each core
///
/// What a program does on each core for as long as the core lives is started by a job, which can
/// also tell that it could not be; it runs on as a task, and ends with the core:
///
/// ```
/// # use std::{io, net::SocketAddr};
/// # use pool_core::{ConnectOptions, Connector, Core, Engine, Pool, TcpStream};
/// use pool_core::{ListenOptions, TcpListener};
///
/// # struct Tcp(Core);
/// # impl Connector for Tcp {
/// #     type Key = SocketAddr;
/// #     type Connection = TcpStream;
/// #     type Error = io::Error;
/// #     async fn connect(&self, key: &SocketAddr) -> io::Result<TcpStream> {
/// #         TcpStream::connect(&self.0, *key, &ConnectOptions::default()).await
/// #     }
/// # }
/// # async fn serve(_: TcpStream, _: Pool<Tcp>) {}
/// # let engine = Engine::builder().start(|core| Tcp(core.clone()))?;
/// let started = engine.handle().each(|pool| async move {
///     let (core, anywhere) = (pool.core().clone(), SocketAddr::from(([127, 0, 0, 1], 0)));
///     let mut listener = TcpListener::bind(&core, anywhere, &ListenOptions::default())?;
///     let address = listener.local_addr();
///     core.clone().spawn(async move {
///         while let Ok(stream) = listener.accept().await {
///             core.spawn(serve(stream, pool.clone()));
///         }
///     });
///     Ok::<_, io::Error>(address)
/// });
/// for job in started {
///     println!("listens on {}", job?.wait()??);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A drain ends a core as soon as its pool has nothing left, whatever its tasks are about. A
/// service that has work without a connection to finish is told and awaited before the drain.
pub struct Engine<C: Connector> {
    handle: EngineHandle<C>,
    name: String,
    threads: Threads,
}

impl<C: Connector> Engine<C> {
    /// Sets up a new engine; see [`EngineBuilder`].
    pub fn builder() -> EngineBuilder<C> {
        EngineBuilder::new()
    }

    /// A handle to all cores, for any thread.
    #[must_use]
    pub fn handle(&self) -> EngineHandle<C> {
        self.handle.clone()
    }

    /// Ends the engine, whose cores drain side by side: from now on jobs are refused; then idle
    /// connections close, new acquires are refused, waiters are served and holders may finish. When
    /// a core has nothing left of these, at the latest when `grace` has passed, it ends: waiters
    /// are rejected, connections force-closed, jobs and tasks dropped, and its thread is gone.
    ///
    /// The drain begins before this returns. The future is for any runtime but the engine's own
    /// cores, where it ends with its core, and it is ready 100 ms after `grace` at the latest: a
    /// core that a user's code keeps from ending, because it blocks, is [told](CoreEnd::Stuck) and
    /// left behind.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the drain.
    pub fn drain(self, grace: Duration) -> impl Future<Output = EngineReport> + Send + 'static {
        let name = format!("{}-drain", self.name);
        let (threads, deadline) = self.begin_drain(grace);
        let (sender, receiver) = oneshot::channel();
        let (hand_over, handed_over) = mpsc::channel::<Threads>();
        let joining = thread::Builder::new().name(name).spawn(move || {
            if let Ok(threads) = handed_over.recv() {
                // Whoever waited may have gone; the threads are joined all the same.
                let _ = sender.send(threads.join(deadline));
            }
        });
        let report = match joining {
            Ok(_) => {
                let _ = hand_over.send(threads);
                None
            }
            // Better late than with threads that nobody knows of.
            Err(_) => Some(threads.join(deadline)),
        };
        async move {
            match report {
                Some(report) => report,
                None => receiver.await.expect("the joining thread reports"),
            }
        }
    }

    /// [Drains](Self::drain) the engine and blocks the thread until its end, at most `grace` and
    /// 100 ms.
    ///
    /// # Panics
    ///
    /// Panics on the thread of a core, whose tasks would all stand still.
    pub fn drain_blocking(self, grace: Duration) -> EngineReport {
        assert!(
            Core::current().is_none(),
            "a core's thread must await, not block"
        );
        let (threads, deadline) = self.begin_drain(grace);
        threads.join(deadline)
    }

    /// Tells all cores, with one deadline for all; none if it is too far to be represented.
    fn begin_drain(self, grace: Duration) -> (Threads, Deadline) {
        let deadline = Instant::now().checked_add(grace);
        let mut threads = self.threads;
        for (pool, thread) in self.handle.pools.iter().zip(&mut threads.cores) {
            // First, so that no job comes behind the word to stop.
            pool.close();
            thread.stop(pool.mailbox(), deadline);
        }
        (threads, deadline)
    }
}

impl<C: Connector> fmt::Debug for Engine<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("name", &self.name)
            .field("cores", &self.handle.pools.len())
            .finish_non_exhaustive()
    }
}

/// The way to all cores of an engine, from any thread. Cheap to clone; it keeps nothing of the
/// engine alive.
pub struct EngineHandle<C: Connector> {
    pools: Arc<[PoolHandle<C>]>,
}

impl<C: Connector> EngineHandle<C> {
    /// The handle of each core's pool, in the order of the cores.
    #[must_use]
    pub fn pools(&self) -> &[PoolHandle<C>] {
        &self.pools
    }

    /// Submits a copy of `job` to every core, in their order; each answers for itself. Dropping an
    /// answer cancels its job.
    ///
    /// # Errors
    ///
    /// As [`PoolHandle::submit`].
    pub fn each<F, Fut, T>(&self, job: F) -> Vec<Result<Submitted<T>, SubmitError>>
    where
        F: FnOnce(Pool<C>) -> Fut + Clone + Send + 'static,
        Fut: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        let pools = self.pools.iter();
        pools.map(|pool| pool.submit(job.clone())).collect()
    }

    /// The gauges and counts of all cores' pools, merged, without holding any core up. A core that
    /// has ended, or takes no job just now, is left out.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the counting.
    pub async fn snapshot(&self) -> Option<PoolSnapshot<C::Key>>
    where
        C::Key: Send,
    {
        let asked: Vec<_> = self.pools.iter().map(PoolHandle::snapshot).collect();
        let mut merged: Option<PoolSnapshot<C::Key>> = None;
        for answer in asked.into_iter().flatten() {
            match (answer.await, &mut merged) {
                (Ok(snapshot), Some(merged)) => merged.merge(snapshot),
                (Ok(snapshot), none) => *none = Some(snapshot),
                (Err(_), _) => {}
            }
        }
        merged
    }

    /// The numbers of the cores that run. One that is missing before the engine has ended has died
    /// by a fault of the core itself; the others go on.
    pub fn running(&self) -> impl Iterator<Item = usize> + '_ {
        let pools = self.pools.iter().enumerate();
        pools.filter_map(|(core, pool)| (!pool.has_ended()).then_some(core))
    }
}

impl<C: Connector> Clone for EngineHandle<C> {
    fn clone(&self) -> Self {
        Self {
            pools: Arc::clone(&self.pools),
        }
    }
}

impl<C: Connector> fmt::Debug for EngineHandle<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineHandle")
            .field("pools", &self.pools)
            .finish()
    }
}
