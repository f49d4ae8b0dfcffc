//! A script's end of one connection.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;

use crate::kernel::Ends;
use crate::shared::{Shared, stopped};

/// How the client ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// By FIN.
    Eof,
    /// By RST.
    Reset,
}

/// The server's end of an accepted connection, in the hands of a script.
///
/// Every operation that can block ends with an error when the server is stopped, so that a script
/// that passes errors on with `?` never outlives its server.
pub struct Peer {
    index: usize,
    pub(crate) stream: Option<Arc<TcpStream>>,
    pub(crate) ends: Ends,
    /// Bytes received and not yet asked for.
    pub(crate) received: Vec<u8>,
    pub(crate) in_progress: bool,
    pub(crate) seen: Option<Closed>,
    pub(crate) shared: Arc<Shared>,
}

impl Peer {
    pub(crate) fn new(
        index: usize,
        stream: Arc<TcpStream>,
        ends: Ends,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            index,
            stream: Some(stream),
            ends,
            received: Vec::new(),
            in_progress: false,
            seen: None,
            shared,
        }
    }

    /// The place of this connection in the order of accepting, from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// The client's address.
    #[must_use]
    pub fn client_addr(&self) -> SocketAddr {
        self.ends.1
    }

    /// Sends all of `bytes`.
    ///
    /// # Errors
    ///
    /// The client went away.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        let sent = self.stream()?.write_all(bytes.as_ref());
        self.checked(sent)
    }

    /// Sends `bytes` in pieces of `piece` bytes, with a pause after each but the last.
    ///
    /// # Errors
    ///
    /// The client went away.
    ///
    /// # Panics
    ///
    /// When `piece` is 0.
    pub fn send_slowly(
        &mut self,
        bytes: impl AsRef<[u8]>,
        piece: usize,
        pause: Duration,
    ) -> io::Result<()> {
        for (i, piece) in bytes.as_ref().chunks(piece).enumerate() {
            if i > 0 {
                self.sleep(pause)?;
            }
            self.send(piece)?;
        }
        Ok(())
    }

    /// Counts the request in progress as answered, then sends `bytes`. In this order a client
    /// that acts on the answer is never counted twice.
    ///
    /// # Errors
    ///
    /// The client went away.
    pub fn answer(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.answered();
        self.send(bytes)
    }

    /// Sends a FIN; reading goes on.
    ///
    /// # Errors
    ///
    /// The client has reset.
    pub fn fin(&mut self) -> io::Result<()> {
        self.answered();
        let shut = self.stream()?.shutdown(Shutdown::Write);
        // How a connection that the client has reset answers.
        let shut = shut.map_err(|error| match error.kind() {
            io::ErrorKind::NotConnected => io::ErrorKind::ConnectionReset.into(),
            _ => error,
        });
        self.checked(shut)
    }

    /// Closes both directions, as `close(2)` does: by FIN, but by RST if bytes from the client
    /// have arrived that the script has not read.
    ///
    /// # Errors
    ///
    /// None today; `Ok` lets it end a script.
    pub fn close(&mut self) -> io::Result<()> {
        self.answered();
        if let Some(stream) = self.stream.take() {
            self.shared.leave(self.index, stream);
        }
        Ok(())
    }

    /// Closes by RST. What was sent before still reaches the client, as long as it had room.
    ///
    /// # Errors
    ///
    /// The script closed the connection before.
    pub fn reset(&mut self) -> io::Result<()> {
        SockRef::from(self.stream()?).set_linger(Some(Duration::ZERO))?;
        self.close()
    }

    /// Receives some bytes behind those that are there. 0: the client's FIN.
    pub(crate) fn receive(&mut self) -> io::Result<usize> {
        let mut piece = [0; 16 * 1024];
        let result = loop {
            match self.stream()?.read(&mut piece) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result,
            }
        };
        let n = self.checked(result)?;
        if n == 0 {
            // A stop shuts the socket down, which looks like a FIN of the client.
            if self.shared.stopping() {
                return Err(stopped());
            }
            if self.shared.was_reset(self.index) {
                return self.checked(Err(io::ErrorKind::ConnectionReset.into()));
            }
            self.saw(Closed::Eof);
        }
        self.received.extend_from_slice(&piece[..n]);
        Ok(n)
    }

    pub(crate) fn stream(&self) -> io::Result<&TcpStream> {
        let closed = || io::Error::other("the script has closed this connection");
        self.stream.as_deref().ok_or_else(closed)
    }

    /// Notes what an error says about the client.
    fn checked<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        use io::ErrorKind::{BrokenPipe, ConnectionReset};
        if let Err(error) = &result {
            if self.shared.stopping() {
                return Err(stopped());
            }
            if matches!(error.kind(), ConnectionReset | BrokenPipe) {
                self.saw(Closed::Reset);
            }
        }
        result
    }

    pub(crate) fn saw(&mut self, closed: Closed) {
        if self.seen.is_some() {
            return;
        }
        self.seen = Some(closed);
        self.shared.update(|state| match closed {
            Closed::Eof => state.counts.eofs += 1,
            Closed::Reset => state.counts.resets += 1,
        });
    }

    pub(crate) fn answered(&mut self) {
        if std::mem::take(&mut self.in_progress) {
            self.shared.update(|state| state.counts.in_progress -= 1);
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Cannot fail.
        let _ = self.close();
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("index", &self.index)
            .field("client", &self.ends.1)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
