//! How a script waits: for time, for the test, for the client's close.

use std::io;
use std::time::{Duration, Instant};

use crate::gate::Gate;
use crate::kernel::{self, Left};
use crate::peer::{Closed, Peer};
use crate::shared::{State, stopped};
use crate::wait::DEADLINE;

/// How often a wait that nothing can wake looks again.
const SLICE: Duration = Duration::from_millis(5);

/// Waiting.
impl Peer {
    /// Pauses the script.
    ///
    /// # Errors
    ///
    /// The server was stopped.
    pub fn sleep(&self, pause: Duration) -> io::Result<()> {
        let stop = |state: &mut State| state.stopping.then_some(());
        match self.shared.wait(pause, stop) {
            Ok(()) => Err(stopped()),
            Err(_) => Ok(()),
        }
    }

    /// Waits at `gate`.
    ///
    /// # Errors
    ///
    /// The server was stopped.
    ///
    /// # Panics
    ///
    /// When nobody opens the gate within [`DEADLINE`].
    pub fn wait_at(&self, gate: &Gate) -> io::Result<()> {
        let end = Instant::now() + DEADLINE;
        gate.arrive();
        while !gate.pass_within(SLICE) {
            if self.shared.stopping() {
                return Err(stopped());
            }
            assert!(
                Instant::now() < end,
                "nobody opened the gate within {DEADLINE:?}"
            );
        }
        Ok(())
    }

    /// Sends nothing and throws away what arrives, until the client closes.
    ///
    /// # Errors
    ///
    /// The server was stopped.
    pub fn stall(&mut self) -> io::Result<()> {
        self.discard().map(|_| ())
    }

    /// Neither sends nor reads, so that the client cannot send for ever, until it closes.
    ///
    /// # Errors
    ///
    /// The server was stopped.
    pub fn stall_without_reading(&mut self) -> io::Result<()> {
        loop {
            if let Some(left) = kernel::left(self.ends) {
                self.saw(match left {
                    Left::Fin => Closed::Eof,
                    Left::Gone => Closed::Reset,
                });
                return Ok(());
            }
            self.sleep(SLICE)?;
        }
    }

    /// Throws away what arrives until the client closes, and says how it did.
    ///
    /// # Errors
    ///
    /// The client did not close within [`DEADLINE`].
    pub fn wait_closed(&mut self) -> io::Result<Closed> {
        // A client that keeps sending is bounded by the test, not here.
        self.stream()?.set_read_timeout(Some(DEADLINE))?;
        let closed = self.discard();
        if let Some(stream) = &self.stream {
            stream.set_read_timeout(None)?;
        }
        closed.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => io::Error::new(
                io::ErrorKind::TimedOut,
                format!("the client did not close within {DEADLINE:?}"),
            ),
            _ => error,
        })
    }

    fn discard(&mut self) -> io::Result<Closed> {
        loop {
            self.received.clear();
            match self.receive() {
                Ok(0) => return Ok(self.seen.unwrap_or(Closed::Eof)),
                Ok(_) => {}
                Err(error) => match self.seen {
                    Some(closed) => return Ok(closed),
                    None => return Err(error),
                },
            }
        }
    }
}
