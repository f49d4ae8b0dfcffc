//! A server on a core of its own.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::Duration;

use futures_channel::oneshot;
use futures_lite::FutureExt;
use http_codec::Limits;
use pool_core::{Core, CoreThread, ListenOptions, StartError, TcpListener};

use super::accept::accept_each;
use super::buffers::Buffers;
use super::closing::Closing;
use super::connection::Connection;
use super::session::Session;
use super::timeouts::Timeouts;

/// How long the sessions of a service may take to end; nothing that matters is at stake.
const GRACE: Duration = Duration::from_secs(1);

/// A server on a core of its own, until it is stopped.
#[derive(Debug)]
#[must_use = "a service whose handle is dropped stops"]
pub struct Service {
    address: SocketAddr,
    thread: CoreThread<()>,
    stop: oneshot::Sender<()>,
}

/// Why a server could not be started. Each text says what to change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// The core could not be started.
    #[error(transparent)]
    Core(#[from] StartError),
    /// Another program listens on the address.
    #[error("{address} is in use by another program")]
    InUse {
        /// The address.
        address: SocketAddr,
    },
    /// The address cannot be listened on.
    #[error("{address} cannot be listened on: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the kernel says.
        source: io::Error,
    },
}

impl ServiceError {
    /// `address` cannot be listened on because of `source`.
    #[must_use]
    pub fn listen(address: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::InUse { address },
            _ => Self::Listen { address, source },
        }
    }
}

/// Waits for what a core that was started to listen on `address` reports.
pub(crate) fn await_listening<T>(
    address: SocketAddr,
    listens: &mpsc::Receiver<io::Result<T>>,
) -> Result<T, ServiceError> {
    let report = listens
        .recv()
        .unwrap_or_else(|_| Err(io::Error::other("its core died")));
    report.map_err(|error| ServiceError::listen(address, error))
}

impl Service {
    /// Listens on `address` and runs `serve` for each connection, on a thread named `name`.
    ///
    /// # Errors
    ///
    /// [`ServiceError`]; no thread is left then.
    pub fn start<F, Fut>(name: &str, address: SocketAddr, serve: F) -> Result<Self, ServiceError>
    where
        F: Fn(Session) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        Self::start_on(name, None, address, serve)
    }

    /// [`start`](Self::start), pinned to `cpu` if there is one.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_on<F, Fut>(
        name: &str,
        cpu: Option<usize>,
        address: SocketAddr,
        serve: F,
    ) -> Result<Self, ServiceError>
    where
        F: Fn(Session) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        Self::listen(name, cpu, address, |core, listener, stopped| async move {
            run(&core, listener, serve, stopped).await;
        })
    }

    /// Listens on `address` and leaves the rest to `run`, until what it is given last is ready.
    pub(crate) fn listen<F, Fut>(
        name: &str,
        cpu: Option<usize>,
        address: SocketAddr,
        run: F,
    ) -> Result<Self, ServiceError>
    where
        F: FnOnce(Core, TcpListener, oneshot::Receiver<()>) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        let (report, listens) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let thread = Core::builder()
            .name(name)
            .cpu(cpu)
            .spawn(move |core| async move {
                let options = ListenOptions::default().reuse_port(false);
                match TcpListener::bind(&core, address, &options) {
                    Ok(listener) => {
                        let _ = report.send(Ok(listener.local_addr()));
                        run(core, listener, stopped).await;
                    }
                    Err(error) => drop(report.send(Err(error))),
                }
            })?;
        Ok(Self {
            address: await_listening(address, &listens)?,
            thread,
            stop,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it has ended by itself: its core has died.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Stops it and waits for its end.
    pub fn stop(self) {
        // One that has ended by itself hears nothing any more, and its panic is printed already.
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

async fn run<F, Fut>(
    core: &Core,
    mut listener: TcpListener,
    serve: F,
    stopped: oneshot::Receiver<()>,
) where
    F: Fn(Session) -> Fut,
    Fut: Future<Output = ()> + 'static,
{
    let (closing, buffers, limits) = (Closing::default(), Buffers::default(), Limits::default());
    let timeouts = Timeouts::default();
    let accepting = accept_each(core, &mut listener, |stream| {
        let connection = Connection::new(stream, &limits, &buffers);
        let session = Session::new(core, connection, closing.enter(), &timeouts);
        core.spawn(serve(session));
    });
    let stopped = async {
        // A handle that was dropped stops the service too.
        let _ = stopped.await;
    };
    accepting.or(stopped).await;
    drop(listener);
    closing.begin();
    let _ = core.timeout(GRACE, closing.all_left()).await;
}
