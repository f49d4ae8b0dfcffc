//! One core of the gateway: a listener, a pool and a client of its own.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use futures_channel::oneshot;
use futures_lite::FutureExt;
use http_client::{Client, ClientConfig, Destination, TcpConnector};
use http_codec::Limits;
use pool_core::{
    ConnectOptions, Core, CoreThread, DestinationStats, ListenOptions, Pool, PoolConfig,
    PoolHandle, TcpListener,
};

use super::serve::serve;
use super::totals::{Counts, Totals};
use crate::server::{
    Buffers, Closing, Connection, ServiceError, Session, Timeouts, accept_each, await_listening,
};

/// What a core is to do.
pub(super) struct Plan {
    pub(super) core: usize,
    pub(super) cpu: usize,
    pub(super) listen: SocketAddr,
    pub(super) upstreams: Vec<String>,
    pub(super) pool: PoolConfig,
    pub(super) client: ClientConfig,
    pub(super) drain_timeout: Option<Duration>,
    pub(super) client_timeouts: Timeouts,
}

/// A core at work, seen from the thread that started it.
#[derive(Debug)]
pub(super) struct Worker {
    address: SocketAddr,
    handle: PoolHandle<TcpConnector>,
    thread: CoreThread<Totals>,
    stop: Option<oneshot::Sender<()>>,
}

impl Worker {
    /// Starts a core and returns once it listens.
    pub(super) fn start(plan: Plan) -> Result<Self, ServiceError> {
        let (report, listens) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let address = plan.listen;
        let builder = Core::builder()
            .name(format!("core-{}", plan.core))
            .cpu(Some(plan.cpu));
        let thread = builder.spawn(move |core| async move {
            let upstream = Upstream::new(&core, &plan);
            match TcpListener::bind(&core, plan.listen, &ListenOptions::default()) {
                Ok(listener) => {
                    let handle = upstream.client.pool().handle();
                    let _ = report.send(Ok((listener.local_addr(), handle)));
                    upstream.run(&core, listener, stopped, &plan).await
                }
                Err(error) => {
                    let _ = report.send(Err(error));
                    Totals::default()
                }
            }
        })?;
        let (address, handle) = await_listening(address, &listens)?;
        Ok(Self {
            address,
            handle,
            thread,
            stop: Some(stop),
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn handle(&self) -> PoolHandle<TcpConnector> {
        self.handle.clone()
    }

    pub(super) fn has_died(&self) -> bool {
        self.stop.is_some() && self.thread.is_finished()
    }

    pub(super) fn begin_stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // One that has died hears nothing; its panic is on stderr.
            let _ = stop.send(());
        }
    }

    /// Waits for the end of a core that was told to stop.
    pub(super) fn join(self) -> Totals {
        self.thread.join().unwrap_or_default()
    }
}

/// What the connections of a core share.
pub(super) struct Upstream {
    pub(super) client: Client<TcpConnector>,
    pub(super) counts: Counts,
    /// All of them twice, so that a slice begins with each and has all.
    destinations: Vec<Destination>,
    count: usize,
    next: Cell<usize>,
}

impl Upstream {
    fn new(core: &Core, plan: &Plan) -> Rc<Self> {
        let connector = TcpConnector::new(core, ConnectOptions::default());
        let pool = Pool::new(core, plan.pool.clone(), connector);
        // The settings have refused what cannot be read.
        let texts = plan.upstreams.iter();
        let mut destinations: Vec<Destination> =
            texts.filter_map(|text| text.parse().ok()).collect();
        let count = destinations.len();
        destinations.extend_from_within(..);
        Rc::new(Self {
            client: Client::new(pool, plan.client.clone()),
            counts: Counts::default(),
            destinations,
            count,
            // The cores begin at different upstreams.
            next: Cell::new(plan.core),
        })
    }

    /// All destinations, from the one whose turn it is: retries go to those after it.
    pub(super) fn destinations(&self) -> &[Destination] {
        let next = self.next.get();
        self.next.set(next.wrapping_add(1));
        &self.destinations[next % self.count..][..self.count]
    }

    /// Whether a connection to `destination` is open. This looks at all of the pool, and is meant
    /// for what has failed.
    pub(super) fn is_connected(&self, destination: &Destination) -> bool {
        let snapshot = self.client.pool().snapshot();
        let mut known = snapshot.destinations.iter();
        let open = |stats: &DestinationStats| stats.acquired.current + stats.idle.current;
        known.any(|known| known.key == *destination && open(&known.stats) > 0)
    }

    async fn run(
        self: Rc<Self>,
        core: &Core,
        mut listener: TcpListener,
        stopped: oneshot::Receiver<()>,
        plan: &Plan,
    ) -> Totals {
        let (closing, buffers, limits) =
            (Closing::default(), Buffers::default(), Limits::default());
        let accepting = accept_each(core, &mut listener, |stream| {
            let connection = Connection::new(stream, &limits, &buffers);
            let session = Session::new(core, connection, closing.enter(), &plan.client_timeouts);
            core.spawn(serve(session, Rc::clone(&self)));
        });
        let stopped = async {
            let _ = stopped.await;
        };
        accepting.or(stopped).await;
        drop(listener);
        closing.begin();
        match plan.drain_timeout {
            Some(limit) => drop(core.timeout(limit, closing.all_left()).await),
            None => closing.all_left().await,
        }
        let pool = self.client.pool();
        pool.drain(Duration::ZERO).await;
        self.counts.with_pool(pool.snapshot().total)
    }
}
