//! How an engine is set up and started.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::sync::{Arc, mpsc};
use std::thread;

use futures_channel::oneshot;

use super::threads::{EngineThread, Threads, serve};
use super::{Engine, EngineHandle};
use crate::PoolConfig;
use crate::connector::Connector;
use crate::error::{EngineStartError, StartError};
use crate::fence::catch;
use crate::shell::cap::SharedCap;
use crate::shell::core::Core;
use crate::shell::handle::PoolHandle;
use crate::shell::pool::Pool;
use crate::shell::start::CoreBuilder;

/// The CPUs that the calling thread may run on; a container or `taskset` may leave it but a few.
///
/// # Errors
///
/// What the operating system says.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(None)?;
    let cpus = 0..rustix::thread::CpuSet::MAX_CPU;
    Ok(cpus.filter(|cpu| set.is_set(*cpu)).collect())
}

/// Sets up an [`Engine`] and starts it.
///
/// ```
/// # use pool_core::{ConnectOptions, Connector, Core, TcpStream};
/// # struct Tcp(Core);
/// # impl Connector for Tcp {
/// #     type Key = std::net::SocketAddr;
/// #     type Connection = TcpStream;
/// #     type Error = std::io::Error;
/// #     async fn connect(&self, key: &Self::Key) -> std::io::Result<TcpStream> {
/// #         TcpStream::connect(&self.0, *key, &ConnectOptions::default()).await
/// #     }
/// # }
/// use pool_core::{Engine, PoolConfig};
///
/// let engine = Engine::builder()
///     .unpinned(2)
///     .name("upstream")
///     .config(PoolConfig::builder().max_connections(100).build()?)
///     .start(|core| Tcp(core.clone()))?;
/// assert_eq!(engine.handle().running().count(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder starts nothing until `start`"]
pub struct EngineBuilder<C: Connector> {
    cores: Cores,
    config: PoolConfig,
    cap: Option<SharedCap>,
    core: CoreBuilder,
    name: String,
    connector: PhantomData<fn() -> C>,
}

/// How many cores, and where.
#[derive(Debug)]
enum Cores {
    EachAllowedCpu,
    Pinned(Vec<usize>),
    Unpinned(usize),
}

impl Cores {
    /// The CPU of each core; none if it is not pinned.
    fn cpus(self) -> io::Result<Vec<Option<usize>>> {
        let cpus = match self {
            Self::EachAllowedCpu => allowed_cpus()?,
            Self::Pinned(cpus) => cpus,
            Self::Unpinned(count) => return Ok(vec![None; count]),
        };
        Ok(cpus.into_iter().map(Some).collect())
    }
}

impl<C: Connector> EngineBuilder<C> {
    pub(super) fn new() -> Self {
        Self {
            cores: Cores::EachAllowedCpu,
            config: PoolConfig::default(),
            cap: None,
            core: Core::builder(),
            name: "pinpool".to_owned(),
            connector: PhantomData,
        }
    }

    /// One core for each of these CPUs, as the operating system numbers them, and pinned to it.
    /// Default: the [`allowed_cpus`].
    pub fn cpus(mut self, cpus: impl IntoIterator<Item = usize>) -> Self {
        self.cores = Cores::Pinned(cpus.into_iter().collect());
        self
    }

    /// So many cores, none of them pinned: for tests, and where the CPUs are shared with others.
    pub fn unpinned(mut self, cores: usize) -> Self {
        self.cores = Cores::Unpinned(cores);
        self
    }

    /// The limits of each core's pool. Default: those of [`PoolConfig`].
    pub fn config(mut self, config: PoolConfig) -> Self {
        self.config = config;
        self
    }

    /// A cap on the connections of all cores' pools together. Default: none.
    pub fn shared_cap(mut self, cap: SharedCap) -> Self {
        self.cap = Some(cap);
        self
    }

    /// How many jobs may wait for each core; see [`CoreBuilder::mailbox_capacity`].
    pub fn mailbox_capacity(mut self, jobs: usize) -> Self {
        self.core = self.core.mailbox_capacity(jobs);
        self
    }

    /// What the threads' names begin with; the core's number follows: `pinpool-0`. Linux shows 15
    /// bytes of a thread's name. Default: `pinpool`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Starts the cores one after the other, and on each makes its pool with what `connector`
    /// returns there.
    ///
    /// # Errors
    ///
    /// [`EngineStartError`] names the core that could not be started and why; the threads of all
    /// others are gone then.
    pub fn start<F>(self, connector: F) -> Result<Engine<C>, EngineStartError>
    where
        F: Fn(&Core) -> C + Send + Sync + 'static,
    {
        let cpus = self.cores.cpus().map_err(EngineStartError::Affinity)?;
        if cpus.is_empty() {
            return Err(EngineStartError::NoCores);
        }
        let connector = Arc::new(connector);
        // Dropped on the way out, it ends those that have started.
        let (mut threads, held) = Threads::new();
        let mut pools = Vec::with_capacity(cpus.len());
        for (number, cpu) in cpus.into_iter().enumerate() {
            let name = format!("{}-{number}", self.name);
            let plan = Plan {
                number,
                core: self.core.clone().cpu(cpu).name(name.clone()),
                config: self.config.clone(),
                cap: self.cap.clone(),
                connector: Arc::clone(&connector),
            };
            let (report, started) = mpsc::channel();
            let core = plan.spawn(name, report, held.clone());
            threads
                .cores
                .push(core.map_err(|error| failed(number, error))?);
            let died = || failed(number, io::Error::other("its thread died at the start"));
            pools.push(started.recv().unwrap_or_else(|_| Err(died()))?);
        }
        Ok(Engine {
            handle: EngineHandle {
                pools: Arc::from(pools),
            },
            name: self.name,
            threads,
        })
    }
}

impl<C: Connector> fmt::Debug for EngineBuilder<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineBuilder")
            .field("cores", &self.cores)
            .field("config", &self.config)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

fn failed(core: usize, error: io::Error) -> EngineStartError {
    let source = StartError::Io(error);
    EngineStartError::Core { core, source }
}

/// What a thread needs to become a core of the engine.
struct Plan<F> {
    number: usize,
    core: CoreBuilder,
    config: PoolConfig,
    cap: Option<SharedCap>,
    connector: Arc<F>,
}

type Report<C> = mpsc::Sender<Result<PoolHandle<C>, EngineStartError>>;

impl<F> Plan<F> {
    /// Starts the thread, which reports once, and drops `held` when its executor is gone.
    fn spawn<C>(
        self,
        name: String,
        report: Report<C>,
        held: mpsc::Sender<Infallible>,
    ) -> io::Result<EngineThread>
    where
        C: Connector,
        F: Fn(&Core) -> C + Send + Sync + 'static,
    {
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name(name).spawn(move || {
            let _held = held;
            let (number, started) = (self.number, report.clone());
            let outcome = self.core.run(|core| async move {
                // Whoever starts the engine waits for exactly one report.
                let Some(connector) = catch(|| (self.connector)(&core)) else {
                    let panicked = EngineStartError::ConnectorPanicked { core: number };
                    let _ = started.send(Err(panicked));
                    return None;
                };
                let pool = match &self.cap {
                    Some(cap) => Pool::with_shared_cap(&core, self.config, connector, cap),
                    None => Pool::new(&core, self.config, connector),
                };
                let _ = started.send(Ok(pool.handle()));
                Some(serve(core, pool, stopped).await)
            });
            outcome.unwrap_or_else(|source| {
                let core = number;
                let _ = report.send(Err(EngineStartError::Core { core, source }));
                None
            })
        })?;
        Ok(EngineThread {
            stop: Some(stop),
            thread,
        })
    }
}
