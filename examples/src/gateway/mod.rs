//! A reverse proxy, one executor per core, each with its own listener and its own pool.
//!
//! A request's way through it, in the order of the files: [`Settings`] → `worker` (a core:
//! listener, pool, client) → `serve` (a client's connection from its first request to its close)
//! → `forward` (what a head turns into on its way) and `hop` (what of it stays behind) → `reply`
//! (what a client gets when the gateway answers itself). `admin` answers for all cores.

mod admin;
mod forward;
mod hop;
mod reply;
mod serve;
mod settings;
mod totals;
mod worker;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

pub use settings::{Bound, NotABound, Settings};
pub use totals::Totals;

use crate::origin;
use crate::server::{Service, ServiceError};
use worker::Worker;

/// A running gateway.
#[derive(Debug)]
#[must_use = "a gateway that is dropped leaves its threads behind; stop it"]
pub struct Gateway {
    address: SocketAddr,
    upstreams: Vec<String>,
    workers: Vec<Worker>,
    admin: Service,
    origin: Option<Service>,
}

/// Why the gateway could not be started. Each text says what to change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// A server could not be started.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// A limit is out of its range.
    #[error(transparent)]
    Config(#[from] pool_core::ConfigError),
    /// More cores are asked for than there are.
    #[error("--cores {asked}: this process may run on {available}")]
    Cores {
        /// How many are asked for.
        asked: usize,
        /// How many CPUs the process may run on.
        available: usize,
    },
}

impl Gateway {
    /// Starts everything and returns once it listens.
    ///
    /// # Errors
    ///
    /// [`GatewayError`]; nothing is left running then.
    pub fn start(settings: &Settings) -> Result<Self, GatewayError> {
        let config = settings.pool_config()?;
        let client = settings.client_config()?;
        let cpus = settings.cpus()?;
        refuse_used_port(settings.listen)?;
        let mut gateway = Starting::default();
        let mut upstreams = settings.upstream.clone();
        if upstreams.is_empty() {
            let origin = origin::start(SocketAddr::from(([127, 0, 0, 1], 0)))?;
            upstreams.push(format!("http://{}", origin.address()));
            gateway.origin = Some(origin);
        }
        let mut address = settings.listen;
        for (core, cpu) in cpus.into_iter().enumerate() {
            let plan = worker::Plan {
                core,
                cpu,
                listen: address,
                upstreams: upstreams.clone(),
                pool: config.clone(),
                client: client.clone(),
                drain_timeout: settings.drain_timeout.get(),
                client_timeouts: settings.client_timeouts,
            };
            let worker = Worker::start(plan)?;
            // With port 0 the first core gets one from the kernel, and the others share it.
            address = worker.address();
            gateway.workers.push(worker);
        }
        let handles = gateway
            .workers
            .iter()
            .map(Worker::handle)
            .collect::<Vec<_>>();
        let admin = admin::start(settings.admin, Arc::from(handles))?;
        let (workers, origin) = (std::mem::take(&mut gateway.workers), gateway.origin.take());
        Ok(Self {
            address,
            upstreams,
            workers,
            admin,
            origin,
        })
    }

    /// Where clients are served.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the statistics are.
    #[must_use]
    pub fn admin_address(&self) -> SocketAddr {
        self.admin.address()
    }

    /// Where requests go.
    #[must_use]
    pub fn upstreams(&self) -> &[String] {
        &self.upstreams
    }

    /// How many cores serve.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.workers.len()
    }

    /// The first core that has ended by itself, which only a fault of the gateway's brings about.
    #[must_use]
    pub fn dead_core(&self) -> Option<usize> {
        self.workers.iter().position(Worker::has_died)
    }

    /// Stops accepting, lets exchanges in flight end within the drain timeout, and ends.
    pub fn stop(mut self) -> Totals {
        let totals = stop_workers(&mut self.workers);
        self.admin.stop();
        if let Some(origin) = self.origin {
            origin.stop();
        }
        totals
    }
}

fn stop_workers(workers: &mut Vec<Worker>) -> Totals {
    // All first, so that they drain side by side.
    workers.iter_mut().for_each(Worker::begin_stop);
    workers
        .drain(..)
        .map(Worker::join)
        .fold(Totals::default(), Totals::plus)
}

/// What has been started so far, stopped again if the rest fails.
#[derive(Default)]
struct Starting {
    workers: Vec<Worker>,
    origin: Option<Service>,
}

impl Drop for Starting {
    fn drop(&mut self) {
        stop_workers(&mut self.workers);
        if let Some(origin) = self.origin.take() {
            origin.stop();
        }
    }
}

/// `SO_REUSEPORT` would let the cores share a port with another program that sets it too, and the
/// kernel would give each a part of the connections. A listener without it is refused then.
fn refuse_used_port(address: SocketAddr) -> Result<(), ServiceError> {
    if address.port() == 0 {
        return Ok(());
    }
    match TcpListener::bind(address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            Err(ServiceError::listen(address, error))
        }
        // Any other error comes again from the core that listens.
        _ => Ok(()),
    }
}
