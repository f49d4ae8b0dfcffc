//! A pool, seen from other threads.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_channel::oneshot;
use futures_lite::FutureExt;

use super::core::Core;
use super::mailbox::Mailbox;
use super::pool::Pool;
use crate::connector::Connector;
use crate::error::{JobError, SubmitError};
use crate::fence::drop_panic;
use crate::net::PoolId;

/// Sends work to a pool on its own core, from any thread. Cheap to clone.
pub struct PoolHandle<C: Connector> {
    mailbox: Arc<Mailbox>,
    pool: PoolId,
    draining: Arc<AtomicBool>,
    /// A handle owns no connector and is `Send` and `Sync` whatever the connector is.
    connector: PhantomData<fn() -> C>,
}

impl<C: Connector> Clone for PoolHandle<C> {
    fn clone(&self) -> Self {
        Self::new(&self.mailbox, self.pool, &self.draining)
    }
}

impl<C: Connector> PoolHandle<C> {
    pub(super) fn new(mailbox: &Arc<Mailbox>, pool: PoolId, draining: &Arc<AtomicBool>) -> Self {
        Self {
            mailbox: Arc::clone(mailbox),
            pool,
            draining: Arc::clone(draining),
            connector: PhantomData,
        }
    }

    /// Has `job` run on the pool's core: at once if this is its thread, else when the core comes to
    /// its mailbox. Dropping what comes back cancels the job.
    ///
    /// ```
    /// # use pool_core::{ConnectOptions, Connector, Core, Pool, PoolConfig, TcpStream};
    /// # struct Tcp(Core);
    /// # impl Connector for Tcp {
    /// #     type Key = std::net::SocketAddr;
    /// #     type Connection = TcpStream;
    /// #     type Error = std::io::Error;
    /// #     async fn connect(&self, key: &Self::Key) -> std::io::Result<TcpStream> {
    /// #         TcpStream::connect(&self.0, *key, &ConnectOptions::default()).await
    /// #     }
    /// # }
    /// # let idle = Core::builder().run(|core| async move {
    /// # let pool = Pool::new(&core, PoolConfig::default(), Tcp(core.clone()));
    /// let handle = pool.handle();
    /// let asking = std::thread::spawn(move || {
    ///     handle.submit(|pool| async move { pool.snapshot().total.idle.current })
    /// });
    /// # while !asking.is_finished() { core.sleep(std::time::Duration::from_millis(1)).await; }
    /// let idle = asking.join().unwrap()?.await?;
    /// # Ok::<_, Box<dyn std::error::Error>>(idle)
    /// # })?;
    /// # assert_eq!(idle.unwrap(), 0);
    /// # Ok::<(), pool_core::StartError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`SubmitError`]: the job was not taken and will never run.
    pub fn submit<F, Fut, T>(&self, job: F) -> Result<Submitted<T>, SubmitError>
    where
        F: FnOnce(Pool<C>) -> Fut + Send + 'static,
        Fut: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let number = self.pool;
        self.dispatch(move |core| start(core, number, job, sender))?;
        Ok(Submitted { receiver })
    }

    /// Has `job` run as [`submit`](Self::submit) does, and leaves it to itself: there is no result,
    /// nothing to wait for, and no way to cancel it.
    ///
    /// The jobs that one thread sends or submits begin in that order. One whose core or pool ends
    /// before its turn is dropped; a panic in one is counted in [`Core::panics`].
    ///
    /// ```
    /// # use pool_core::{Connector, PoolHandle, SubmitError};
    /// /// Opens a connection ahead of the first request.
    /// fn warm_up<C>(handle: &PoolHandle<C>, key: C::Key) -> Result<(), SubmitError>
    /// where
    ///     C: Connector,
    ///     C::Key: Send,
    /// {
    ///     handle.send(move |pool| async move {
    ///         if let Ok(conn) = pool.acquire(&key).await {
    ///             conn.release();
    ///         }
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`SubmitError`]: the job was not taken and will never run.
    pub fn send<F, Fut>(&self, job: F) -> Result<(), SubmitError>
    where
        F: FnOnce(Pool<C>) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        let number = self.pool;
        self.dispatch(move |core| {
            let future =
                find(core, number).and_then(|pool| core.tasks().fence("a job", || job(pool)));
            if let Some(future) = future {
                core.spawn(future);
            }
        })
    }

    fn dispatch(&self, job: impl FnOnce(&Core) + Send + 'static) -> Result<(), SubmitError> {
        if self.mailbox.is_closed() {
            return Err(SubmitError::Gone);
        }
        if self.draining.load(Ordering::Acquire) {
            return Err(SubmitError::Draining);
        }
        match Core::current() {
            Some(core) if Arc::ptr_eq(core.mailbox(), &self.mailbox) => job(&core),
            _ => self.mailbox.push(Box::new(job))?,
        }
        Ok(())
    }

    pub(super) fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    /// Refuses jobs from now on: the pool is about to drain.
    pub(super) fn close(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Whether the owning core has ended, or is cleaning up at its end.
    pub(super) fn has_ended(&self) -> bool {
        self.mailbox.is_closed()
    }
}

/// None once the pool has gone.
fn find<C: Connector>(core: &Core, number: PoolId) -> Option<Pool<C>> {
    let shared = core.pool(number)?.into_any().downcast().ok()?;
    Some(Pool { shared })
}

/// Runs a job on the owning core. Whatever happens to it, `sender` tells.
fn start<C, F, Fut, T>(
    core: &Core,
    number: PoolId,
    job: F,
    mut sender: oneshot::Sender<Result<T, JobError>>,
) where
    C: Connector,
    F: FnOnce(Pool<C>) -> Fut,
    Fut: Future<Output = T> + 'static,
    T: 'static,
{
    if sender.is_canceled() {
        return;
    }
    let Some(pool) = find(core, number) else {
        // The receiver may have gone as well, and then nobody asks.
        let _ = sender.send(Err(JobError::Gone));
        return;
    };
    let tasks = Rc::clone(core.tasks());
    let Some(future) = tasks.fence("a job", || job(pool)) else {
        let _ = sender.send(Err(JobError::Panicked));
        return;
    };
    core.spawn(async move {
        let run = async { Some(AssertUnwindSafe(future).catch_unwind().await) };
        let cancelled = async {
            sender.cancellation().await;
            None
        };
        let Some(outcome) = cancelled.or(run).await else {
            return;
        };
        let outcome = outcome.map_err(|panic| {
            drop_panic(panic);
            tasks.count_panic("a job");
            JobError::Panicked
        });
        let _ = sender.send(outcome);
    });
}

impl<C: Connector> fmt::Debug for PoolHandle<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolHandle")
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

/// A job's result to come: a future for any runtime, or a blocking wait. Dropping it cancels the
/// job.
#[must_use = "dropping it cancels the job"]
#[derive(Debug)]
pub struct Submitted<T> {
    receiver: oneshot::Receiver<Result<T, JobError>>,
}

impl<T> Submitted<T> {
    /// Blocks the thread until the result is there.
    ///
    /// # Errors
    ///
    /// As awaiting it.
    ///
    /// # Panics
    ///
    /// Panics on the thread of a core, whose tasks would all stand still; await it there.
    pub fn wait(self) -> Result<T, JobError> {
        assert!(
            Core::current().is_none(),
            "a core's thread must await, not block"
        );
        futures_lite::future::block_on(self)
    }
}

impl<T> Future for Submitted<T> {
    type Output = Result<T, JobError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let received = Pin::new(&mut self.receiver).poll(cx);
        received.map(|outcome| outcome.unwrap_or(Err(JobError::Gone)))
    }
}
