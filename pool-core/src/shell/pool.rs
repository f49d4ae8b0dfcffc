//! The pool of a core, as its users see it.

use std::fmt;
use std::future::poll_fn;
use std::panic::Location;
use std::rc::Rc;
use std::time::Duration;

use super::acquire::Acquire;
use super::cap::SharedCap;
use super::core::Core;
use super::destination::Destination;
use super::guard::Pooled;
use super::handle::PoolHandle;
use super::shared::Shared;
use super::snapshot::PoolSnapshot;
use crate::PoolConfig;
use crate::connector::Connector;

/// A pool of connections that belongs to one core.
///
/// Cheap to clone; all clones are the same pool. When the last clone, guard and acquire are gone,
/// its connections close.
///
/// A pool never leaves its thread, and neither does anything of it:
///
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// # use pool_core::{ConnectOptions, Connector, Core, Pool, TcpStream};
/// # struct Tcp(Core);
/// # impl Connector for Tcp {
/// #     type Key = std::net::SocketAddr;
/// #     type Connection = TcpStream;
/// #     type Error = std::io::Error;
/// #     async fn connect(&self, key: &Self::Key) -> std::io::Result<TcpStream> {
/// #         TcpStream::connect(&self.0, *key, &ConnectOptions::default()).await
/// #     }
/// # }
/// send::<Pool<Tcp>>();
/// ```
///
/// From elsewhere, send it work: [`handle`](Self::handle).
pub struct Pool<C: Connector> {
    pub(super) shared: Rc<Shared<C>>,
}

impl<C: Connector> Clone for Pool<C> {
    fn clone(&self) -> Self {
        Self {
            shared: Rc::clone(&self.shared),
        }
    }
}

impl<C: Connector> Pool<C> {
    /// Makes an empty pool on `core`.
    pub fn new(core: &Core, config: PoolConfig, connector: C) -> Self {
        Self {
            shared: Shared::new(core, config, connector, None),
        }
    }

    /// Makes an empty pool on `core` whose connections count against `cap` together with those of
    /// other pools, on this core or on others.
    ///
    /// When all of the cap is in use, a pool that needs a connection gets the room of one that is
    /// idle in any of them; a pool without any connection gets that of the next one released.
    /// `max_unpooled` has no effect under a shared cap.
    pub fn with_shared_cap(core: &Core, config: PoolConfig, connector: C, cap: &SharedCap) -> Self {
        Self {
            shared: Shared::new(core, config, connector, Some(cap)),
        }
    }

    /// Asks for a connection to `key`: an idle one, else a new one, else the next that is
    /// released, in the order of asking.
    ///
    /// # Errors
    ///
    /// The future ends with an [`AcquireError`](crate::AcquireError); the caller holds nothing then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point leaves the queue, or hands a connection that was on its
    /// way to the next waiter.
    #[track_caller]
    pub fn acquire(&self, key: &C::Key) -> Acquire<C> {
        Acquire::new(Rc::clone(&self.shared), key.clone(), Location::caller())
    }

    /// Asks for a connection to `key` that nobody has used before: for a request that has just met
    /// a stale one. It waits in the same queue as [`acquire`](Self::acquire), and at the cap the
    /// coldest idle connection is closed for it.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    #[track_caller]
    pub fn acquire_fresh(&self, key: &C::Key) -> Acquire<C> {
        Acquire::new(Rc::clone(&self.shared), key.clone(), Location::caller()).fresh()
    }

    /// Takes an idle connection to `key` if there is one, and neither connects nor waits.
    #[track_caller]
    #[inline]
    #[must_use]
    pub fn try_acquire(&self, key: &C::Key) -> Option<Pooled<C>> {
        let key = self.shared.known(key)?;
        self.shared.acquire_idle(key, Location::caller())
    }

    /// A handle to a destination: acquires through it look no key up. While there is one, the
    /// pool does not forget the destination.
    #[must_use]
    pub fn destination(&self, key: &C::Key) -> Destination<C> {
        Destination::new(&self.shared, key)
    }

    /// The limits and timeouts.
    #[must_use]
    pub fn config(&self) -> PoolConfig {
        self.shared.config()
    }

    /// Changes the limits and timeouts while the pool is in use.
    ///
    /// Where there is more than a lowered limit allows, idle connections are closed at once, the
    /// coldest first, and acquired ones at their release. Waiters stay, whatever `max_pending` is
    /// now. Timeouts apply to idle connections at once, and to others from what they do next, a
    /// raised hold timeout also to what is held; `max_lifetime` applies to connections made from
    /// now on.
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
    /// # Core::builder().run(|core| async move {
    /// # let pool = Pool::new(&core, PoolConfig::default(), Tcp(core.clone()));
    /// let fewer = pool.config().to_builder().max_connections(10).build()?;
    /// pool.set_config(fewer);
    /// # Ok::<(), pool_core::ConfigError>(())
    /// # })?.unwrap();
    /// # Ok::<(), pool_core::StartError>(())
    /// ```
    pub fn set_config(&self, config: PoolConfig) {
        self.shared.set_config(config);
    }

    /// Lets go of the connections to `key`, whose server is to be taken out of service or has been
    /// replaced: idle ones are closed at once, acquired ones at their release.
    ///
    /// Whoever waits for `key`, or asks for it later, gets a new connection: to stop asking is the
    /// caller's part. Does nothing if the pool does not know the destination.
    pub fn retire(&self, key: &C::Key) {
        self.shared.retire(key);
    }

    /// A handle that other threads can submit work through.
    #[must_use]
    pub fn handle(&self) -> PoolHandle<C> {
        self.shared.handle()
    }

    /// The core that owns the pool.
    #[must_use]
    pub fn core(&self) -> &Core {
        &self.shared.core
    }

    /// What makes this pool's connections.
    #[must_use]
    pub fn connector(&self) -> &C {
        self.shared.connector()
    }

    /// The pool's gauges and counts at this moment. It takes time with the number of destinations,
    /// some milliseconds for 100,000; [`PoolHandle::snapshot`] lets the core go on in between.
    #[must_use]
    pub fn snapshot(&self) -> PoolSnapshot<C::Key> {
        self.shared.snapshot()
    }

    /// Ends the pool: idle connections close at once, new acquires are refused, waiters are served
    /// and holders may finish until `grace` has passed; what is left then is rejected and
    /// force-closed. Ends when nothing is left.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the drain.
    pub async fn drain(&self, grace: Duration) {
        self.shared.start_drain(grace);
        poll_fn(|cx| self.shared.poll_drained(cx)).await;
    }
}

impl<C: Connector> fmt::Debug for Pool<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("total", &self.snapshot().total)
            .finish_non_exhaustive()
    }
}
