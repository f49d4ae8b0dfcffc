//! What the server, its threads and the test share.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::counts::Counts;
use crate::kernel::{self, Ends, Peeked};

/// How often, and how far apart, a script gets the chance to take bytes that hide a close.
const SETTLE_LOOKS: usize = 20;
const SETTLE_PAUSE: Duration = Duration::from_micros(100);

#[derive(Default)]
pub(crate) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) counts: Counts,
    pub(crate) stopping: bool,
    /// Script threads that still run, by connection.
    pub(crate) threads: HashMap<usize, JoinHandle<()>>,
    /// The index of each script that has ended and whose thread is not joined yet.
    pub(crate) ended: Vec<usize>,
    pub(crate) failures: Vec<String>,
    connections: HashMap<usize, Connection>,
}

struct Connection {
    stream: Arc<TcpStream>,
    ends: Ends,
    /// A peek took the RST from the script's next read.
    reset: bool,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic of a test's condition must not hide the counters from the rest of the test.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state under its lock and wakes all who wait for a change.
    pub(crate) fn update<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let result = change(&mut self.lock());
        self.changed.notify_all();
        result
    }

    /// Waits until `ready` gives a value, or for `limit`.
    pub(crate) fn wait<R>(
        &self,
        limit: Duration,
        mut ready: impl FnMut(&mut State) -> Option<R>,
    ) -> Result<R, MutexGuard<'_, State>> {
        let end = Instant::now() + limit;
        let mut state = self.lock();
        loop {
            if let Some(value) = ready(&mut state) {
                return Ok(value);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(state);
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Counts a new connection and keeps it reachable for the stop. `None`: already stopping.
    pub(crate) fn enter(
        &self,
        stream: TcpStream,
        ours: SocketAddr,
        client: SocketAddr,
    ) -> Option<(usize, Arc<TcpStream>)> {
        self.update(|state| {
            if state.stopping {
                return None;
            }
            let index = state.counts.accepted;
            let stream = Arc::new(stream);
            let connection = Connection {
                stream: stream.clone(),
                ends: (ours, client),
                reset: false,
            };
            state.connections.insert(index, connection);
            state.counts.accepted += 1;
            state.counts.open += 1;
            state.raise_highest_open(index);
            Some((index, stream))
        })
    }

    /// Closes the connection and counts it closed, in one step: the client cannot see the close
    /// and come back before the counter is down, nor can a test see the counter first.
    pub(crate) fn leave(&self, index: usize, stream: Arc<TcpStream>) {
        self.update(|state| {
            drop(stream);
            if state.connections.remove(&index).is_some() {
                state.counts.open -= 1;
            }
        });
    }

    /// Makes every blocked read, write, sleep and gate of the scripts return.
    pub(crate) fn stop(&self) {
        self.update(|state| {
            state.stopping = true;
            for connection in state.connections.values() {
                // An error means that the connection is already down.
                let _ = connection.stream.shutdown(Shutdown::Both);
            }
        });
    }

    /// Whether the end that a read of the connection saw is a RST.
    ///
    /// The lock makes this right: the peek that took the RST noted it before it let go.
    pub(crate) fn was_reset(&self, index: usize) -> bool {
        let state = self.lock();
        state.connections.get(&index).is_some_and(|c| c.reset)
    }

    pub(crate) fn fail(&self, failure: String) {
        self.update(|state| state.failures.push(failure));
    }

    pub(crate) fn stopping(&self) -> bool {
        self.lock().stopping
    }
}

impl State {
    /// The newest connection counts even if it is left already: it was open together with those
    /// that are open still.
    fn raise_highest_open(&mut self, newest: usize) {
        if self.counts.open <= self.counts.highest_open {
            return;
        }
        // A script's thread may not have run yet since its client closed, which the kernel knows.
        // Where bytes hide the close, the script mostly takes them at once; only if it does not is
        // the kernel's table read, which would be slow for each connection of a burst.
        let others = self.connections.iter_mut().filter(|(i, _)| **i != newest);
        let mut unclear: Vec<_> = others.map(|(_, connection)| connection).collect();
        let mut left = 0;
        for look in 0..=SETTLE_LOOKS {
            unclear.retain_mut(|connection| {
                let peeked = kernel::peek(&connection.stream);
                connection.reset |= peeked == Peeked::Reset;
                let closed = connection.reset || peeked == Peeked::Fin;
                left += usize::from(closed);
                !closed && peeked == Peeked::Bytes
            });
            if unclear.is_empty() || look == SETTLE_LOOKS {
                break;
            }
            thread::sleep(SETTLE_PAUSE);
        }
        if !unclear.is_empty() {
            let ends: Vec<_> = unclear.iter().map(|connection| connection.ends).collect();
            left += kernel::count_left(&ends);
        }
        let open = self.counts.open - left;
        self.counts.highest_open = self.counts.highest_open.max(open);
    }
}

/// The error that ends a script when its server stops.
pub(crate) fn stopped() -> io::Error {
    io::Error::other("the server was stopped")
}
