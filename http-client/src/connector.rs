//! TCP connections to destinations.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

use futures_channel::oneshot;
use pool_core::{ConnectOptions, Connector, Core, TcpStream};

use crate::Destination;

/// Connects over TCP, to the addresses of a name in the order that the resolver gives them.
///
/// Names are resolved by the operating system on a thread of its own, never on the core; as many
/// threads run at a time as connects may be in flight.
#[derive(Debug)]
pub struct TcpConnector {
    core: Core,
    options: ConnectOptions,
}

/// Why no connection was made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The resolver does not know the name, or failed.
    #[error("{host} could not be resolved")]
    Resolve {
        /// The name.
        host: String,
        /// What the resolver says.
        source: io::Error,
    },
    /// The last of the destination's addresses could not be connected to.
    #[error("{address} could not be connected to")]
    Connect {
        /// The address tried last.
        address: SocketAddr,
        /// What the kernel says.
        source: io::Error,
    },
}

impl TcpConnector {
    /// Connects on `core`, with `options` set on each socket.
    #[must_use]
    pub fn new(core: &Core, options: ConnectOptions) -> Self {
        Self {
            core: core.clone(),
            options,
        }
    }

    async fn try_each(
        &self,
        addresses: Vec<SocketAddr>,
        host: &str,
    ) -> Result<TcpStream, ConnectError> {
        let mut failure = ConnectError::Resolve {
            host: host.to_owned(),
            source: io::Error::new(io::ErrorKind::NotFound, "the name has no address"),
        };
        for address in addresses {
            match TcpStream::connect(&self.core, address, &self.options).await {
                Ok(stream) => return Ok(stream),
                Err(source) => failure = ConnectError::Connect { address, source },
            }
        }
        Err(failure)
    }
}

impl Connector for TcpConnector {
    type Key = Destination;
    type Connection = TcpStream;
    type Error = ConnectError;

    async fn connect(&self, key: &Destination) -> Result<TcpStream, ConnectError> {
        let addresses =
            match key.ip() {
                Some(ip) => vec![SocketAddr::new(ip, key.port())],
                None => resolve(key.host(), key.port()).await.map_err(|source| {
                    ConnectError::Resolve {
                        host: key.host().to_owned(),
                        source,
                    }
                })?,
            };
        self.try_each(addresses, key.host()).await
    }
}

async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let (sender, receiver) = oneshot::channel();
    let host = host.to_owned();
    std::thread::Builder::new()
        .name("resolve".to_owned())
        .spawn(move || {
            let addresses = (host.as_str(), port)
                .to_socket_addrs()
                .map(Iterator::collect);
            // Nobody asks any more when the connect has timed out.
            let _ = sender.send(addresses);
        })?;
    receiver
        .await
        .unwrap_or_else(|_| Err(io::Error::other("the resolver panicked")))
}
