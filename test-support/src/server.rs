//! The listener and the threads.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, Type};

use crate::counts::Counts;
use crate::peer::Peer;
use crate::shared::Shared;
use crate::wait::DEADLINE;

/// Room for any burst of connects; the kernel lowers it to what it allows.
const BACKLOG: i32 = 4096;

/// Longer than [`DEADLINE`], so that a script stuck at a gate reports that itself.
const JOIN_DEADLINE: Duration = Duration::from_secs(15);

/// A TCP server on loopback that runs a script per connection.
///
/// Dropping it closes the listener and all connections, ends the scripts and joins their threads;
/// failures of scripts are then only printed. [`finish`](Self::finish) does the same and checks.
pub struct Server {
    addr: SocketAddr,
    shared: Arc<Shared>,
    listening: Option<(Arc<TcpListener>, JoinHandle<()>)>,
}

impl Server {
    /// Starts a server on a free port of 127.0.0.1. `script` runs on a thread of its own for each
    /// accepted connection, which is closed when it returns.
    ///
    /// # Panics
    ///
    /// When the listener cannot be made.
    pub fn script(script: impl Fn(&mut Peer) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self::script_at((Ipv4Addr::LOCALHOST, 0).into(), script)
    }

    /// [`script`](Self::script) on a chosen address: a server that comes back where another one
    /// was stopped.
    ///
    /// # Panics
    ///
    /// When the listener cannot be made.
    #[track_caller]
    pub fn script_at(
        addr: SocketAddr,
        script: impl Fn(&mut Peer) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener =
            listener(addr).unwrap_or_else(|error| panic!("cannot listen on {addr}: {error}"));
        Self::script_on(listener, script)
    }

    /// [`script`](Self::script) on a listener that exists already.
    ///
    /// # Panics
    ///
    /// When the listener has no address or the thread cannot be started.
    pub fn script_on(
        listener: TcpListener,
        script: impl Fn(&mut Peer) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let addr = listener.local_addr().expect("the address of the listener");
        let listener = Arc::new(listener);
        let shared = Arc::new(Shared::default());
        let accept = thread::Builder::new()
            .name("accept".into())
            .spawn({
                let (listener, shared) = (listener.clone(), shared.clone());
                move || accept(&listener, &shared, &Arc::new(script))
            })
            .expect("a thread to accept on");
        Self {
            addr,
            shared,
            listening: Some((listener, accept)),
        }
    }

    /// Where the server listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The counters now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.lock().counts
    }

    /// Blocks the thread until `condition` holds for the counters, and returns those for which it
    /// did.
    ///
    /// # Panics
    ///
    /// When it does not hold within [`DEADLINE`]; the message shows the counters.
    #[track_caller]
    pub fn wait_until(&self, condition: impl Fn(&Counts) -> bool) -> Counts {
        self.wait_within(DEADLINE, condition)
    }

    #[track_caller]
    fn wait_within(&self, limit: Duration, condition: impl Fn(&Counts) -> bool) -> Counts {
        let waited = self.shared.wait(limit, |state| {
            condition(&state.counts).then_some(state.counts)
        });
        match waited.map_err(|state| state.counts) {
            Ok(counts) => counts,
            Err(counts) => panic!("the server did not get there within {limit:?}: {counts:?}"),
        }
    }

    /// Closes the listener: further connects are refused. Open connections go on.
    pub fn stop_listening(&mut self) {
        if let Some((listener, accept)) = self.listening.take() {
            // On Linux this makes a blocked accept return.
            let _ = SockRef::from(&*listener).shutdown(Shutdown::Both);
            // The loop catches what scripts do, so that it does not panic itself.
            let _ = accept.join();
        }
    }

    /// Stops the server and checks its scripts.
    ///
    /// # Panics
    ///
    /// When a script panicked, returned an error other than "the client went away", or does not
    /// end; the message names the connections.
    #[track_caller]
    pub fn finish(mut self) {
        let failures = self.stop();
        assert!(
            failures.is_empty(),
            "scripts failed:\n{}",
            failures.join("\n")
        );
    }

    fn stop(&mut self) -> Vec<String> {
        self.stop_listening();
        self.shared.stop();
        let all_ended = self.shared.wait(JOIN_DEADLINE, |state| {
            (state.ended.len() == state.threads.len()).then_some(())
        });
        let stuck = all_ended.is_err();
        drop(all_ended);
        join_ended(&self.shared);
        let mut state = self.shared.lock();
        let mut failures = std::mem::take(&mut state.failures);
        if stuck {
            let indices: Vec<_> = state.threads.keys().collect();
            failures.push(format!("connections {indices:?}: the script does not end"));
        }
        failures
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("addr", &self.addr)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for failure in self.stop() {
            eprintln!("script failed: {failure}");
        }
    }
}

fn listener(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
    // A port whose last connections are in TIME_WAIT can be listened on again.
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn accept<S>(listener: &TcpListener, shared: &Arc<Shared>, script: &Arc<S>)
where
    S: Fn(&mut Peer) -> io::Result<()> + Send + Sync + 'static,
{
    loop {
        match listener.accept() {
            Ok((stream, client)) => start(stream, client, shared, script.clone()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            // How a listener that was shut down answers.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
            Err(error) => return shared.fail(format!("accept: {error}")),
        }
        join_ended(shared);
    }
}

fn start<S>(stream: TcpStream, client: SocketAddr, shared: &Arc<Shared>, script: Arc<S>)
where
    S: Fn(&mut Peer) -> io::Result<()> + Send + Sync + 'static,
{
    // Each send is a segment of its own, as scripts expect. A client that is already gone again
    // may make the options fail, which the script will notice by itself.
    let _ = stream.set_nodelay(true);
    let Ok(ours) = stream.local_addr() else {
        return;
    };
    let Some((index, stream)) = shared.enter(stream, ours, client) else {
        return;
    };
    let peer = Peer::new(index, stream, (ours, client), shared.clone());
    let spawned = thread::Builder::new()
        .name(format!("connection-{index}"))
        .spawn({
            let shared = shared.clone();
            move || run(peer, &shared, &*script)
        });
    match spawned {
        Ok(thread) => {
            // The script may have ended already: `join_ended` runs after this.
            shared.lock().threads.insert(index, thread);
        }
        Err(error) => {
            shared.fail(format!("connection {index}: no thread: {error}"));
        }
    }
}

fn run<S>(mut peer: Peer, shared: &Shared, script: &S)
where
    S: Fn(&mut Peer) -> io::Result<()>,
{
    let index = peer.index();
    let outcome = catch_unwind(AssertUnwindSafe(|| script(&mut peer)));
    let failure = match outcome {
        Ok(Ok(())) => None,
        Ok(Err(error)) if shared.stopping() || client_went_away(&error) => None,
        Ok(Err(error)) => Some(format!("connection {index}: {error}")),
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("no message");
            Some(format!("connection {index}: panicked: {text}"))
        }
    };
    if let Some(failure) = failure {
        shared.fail(failure);
    }
    // Closes the connection, after the failure is on record: a client that sees the close and
    // then asks finds it.
    drop(peer);
    shared.update(|state| state.ended.push(index));
}

fn client_went_away(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionReset | BrokenPipe | ConnectionAborted
    )
}

/// Joins the threads whose scripts have ended, so that a server of many short connections keeps
/// no handle of them.
fn join_ended(shared: &Shared) {
    let ended: Vec<_> = {
        let mut state = shared.lock();
        let ended = std::mem::take(&mut state.ended);
        let threads = &mut state.threads;
        ended.iter().filter_map(|i| threads.remove(i)).collect()
    };
    for thread in ended {
        let _ = thread.join();
    }
}

#[cfg(test)]
mod tests;
