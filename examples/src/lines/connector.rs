//! What a user of the pool writes: how a connection is made and probed, and what one is.

use std::io;
use std::net::SocketAddr;

use futures_lite::{AsyncReadExt, AsyncWriteExt};
use pool_core::{CloseReason, ConnectOptions, Connection, Connector, Core, Readiness, TcpStream};

/// A longer line is refused: the server decides how much of our memory it takes otherwise.
const LONGEST_LINE: usize = 64 << 10;

/// How much is read at a time.
const PIECE: usize = 4 << 10;

/// Why a connection, or an exchange over it, has failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The server ended the connection in the middle of an exchange.
    #[error("the server ended the connection")]
    Ended,
    /// The server sent a line without an end.
    #[error("the server sent a line of more than {LONGEST_LINE} bytes")]
    TooLong,
    /// The server does not speak lines as it should.
    #[error("the server sent {got:?}, expected {expected:?}")]
    Unexpected {
        /// What it sent.
        got: String,
        /// What was expected.
        expected: &'static str,
    },
}

/// A connection that is asked a line and answers a line.
#[derive(Debug)]
pub struct LineStream {
    stream: TcpStream,
    /// What was read beyond the last line.
    unread: Vec<u8>,
}

impl LineStream {
    /// Sends a line and reads the answer.
    ///
    /// # Errors
    ///
    /// [`LineError`]: the connection is of no further use.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the connection in the middle of an exchange.
    pub async fn ask(&mut self, line: &str) -> Result<String, LineError> {
        let line = format!("{line}\n");
        self.stream.write_all(line.as_bytes()).await?;
        self.next_line().await
    }

    async fn next_line(&mut self) -> Result<String, LineError> {
        let mut searched = 0;
        loop {
            let end = self.unread[searched..].iter().position(|b| *b == b'\n');
            if let Some(end) = end.map(|end| searched + end) {
                let line: Vec<u8> = self.unread.drain(..=end).take(end).collect();
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
            searched = self.unread.len();
            if searched > LONGEST_LINE {
                return Err(LineError::TooLong);
            }
            let mut piece = [0; PIECE];
            match self.stream.read(&mut piece).await? {
                0 => return Err(LineError::Ended),
                read => self.unread.extend_from_slice(&piece[..read]),
            }
        }
    }

    async fn expect(&mut self, expected: &'static str) -> Result<(), LineError> {
        let got = self.next_line().await?;
        match got == expected {
            true => Ok(()),
            false => Err(LineError::Unexpected { got, expected }),
        }
    }
}

impl Connection for LineStream {
    fn readiness(&self) -> Readiness {
        self.stream.readiness()
    }

    /// The pool sees the socket alone: what stands in our buffer is as stray as what stands there.
    fn check(&mut self) -> Result<(), CloseReason> {
        if !self.unread.is_empty() {
            return Err(CloseReason::StrayBytes);
        }
        self.readiness().check_quiet()
    }
}

/// Makes connections to servers of lines.
#[derive(Debug)]
pub struct LineConnector {
    core: Core,
    options: ConnectOptions,
}

impl LineConnector {
    /// One that makes connections on `core`.
    #[must_use]
    pub fn new(core: &Core) -> Self {
        Self {
            core: core.clone(),
            options: ConnectOptions::default(),
        }
    }
}

impl Connector for LineConnector {
    type Key = SocketAddr;
    type Connection = LineStream;
    type Error = LineError;

    async fn connect(&self, address: &SocketAddr) -> Result<LineStream, LineError> {
        let mut stream = LineStream {
            stream: TcpStream::connect(&self.core, *address, &self.options).await?,
            unread: Vec::new(),
        };
        stream.expect("READY").await?;
        Ok(stream)
    }

    async fn probe(&self, stream: &mut LineStream) -> Result<(), LineError> {
        stream.stream.write_all(b"PING\n").await?;
        stream.expect("PONG").await
    }
}
