//! What a user of the pool implements: how a connection is made, and what one is.

use std::error::Error;
use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;

use crate::CloseReason;
use crate::net::{Readiness, TcpStream};

/// Makes connections.
///
/// ```
/// use pool_core::{ConnectOptions, Connector, Core, TcpStream};
/// use std::{io, net::SocketAddr};
///
/// struct Tcp(Core);
///
/// impl Connector for Tcp {
///     type Key = SocketAddr;
///     type Connection = TcpStream;
///     type Error = io::Error;
///
///     async fn connect(&self, key: &SocketAddr) -> io::Result<TcpStream> {
///         TcpStream::connect(&self.0, *key, &ConnectOptions::default()).await
///     }
/// }
/// ```
pub trait Connector: 'static {
    /// What makes two connections interchangeable: everything that changes what is on the wire
    /// belongs into it. Its `Hash`, `Eq` and `Clone` run inside the pool and may not call it.
    type Key: Eq + Hash + Clone + Debug + 'static;
    /// What is made.
    type Connection: Connection;
    /// Why none was made.
    type Error: Error + Send + Sync + 'static;

    /// Makes a connection that is ready for its first use: greetings and handshakes are done.
    ///
    /// It runs in a task of the pool, belongs to no waiter, and is dropped when the connect
    /// timeout has passed or the pool ends; dropping it must close what was opened.
    ///
    /// # Errors
    ///
    /// The oldest waiter gets the error.
    fn connect(
        &self,
        key: &Self::Key,
    ) -> impl Future<Output = Result<Self::Connection, Self::Error>>;

    /// Finds out whether an idle connection is still usable, by an exchange that leaves it at a
    /// message boundary. With a `heartbeat_interval` each idle connection is probed so often;
    /// meanwhile nobody can acquire it.
    ///
    /// It runs in a task of the pool, and is dropped, and the connection with it, when
    /// `heartbeat_timeout` has passed or the pool ends. The default finds every connection usable.
    ///
    /// # Errors
    ///
    /// Why the connection is not usable: it is closed.
    fn probe(
        &self,
        connection: &mut Self::Connection,
    ) -> impl Future<Output = Result<(), Self::Error>> {
        let _ = connection;
        std::future::ready(Ok(()))
    }
}

/// A connection that can be pooled. Dropping it closes it.
pub trait Connection: 'static {
    /// The readiness of the socket that the connection runs over: always the same one. Asked when the
    /// connection has been made, and at each release, to tell it from another. The pool watches it
    /// while the connection is idle, and shuts it down when the hold timeout has passed.
    fn readiness(&self) -> Readiness;

    /// Whether the connection, at a message boundary, may be used again.
    ///
    /// Asked when it is given back, and when its socket changed while it was idle. A layer that
    /// has traffic of its own, such as TLS, digests it here. The default is right for a plain
    /// socket: nothing may have come in.
    ///
    /// # Errors
    ///
    /// Why not.
    fn check(&mut self) -> Result<(), CloseReason> {
        self.readiness().check_quiet()
    }
}

impl Connection for TcpStream {
    fn readiness(&self) -> Readiness {
        Self::readiness(self)
    }

    fn check(&mut self) -> Result<(), CloseReason> {
        self.check_quiet()
    }
}
