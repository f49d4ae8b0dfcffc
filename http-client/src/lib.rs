//! http-client

mod client;
mod connector;
mod destination;
mod error;
mod exchange;
mod incoming;
mod outgoing;
mod transport;

pub use client::{Client, ClientConfig};
pub use connector::{ConnectError, TcpConnector};
pub use destination::{Destination, InvalidDestination};
pub use error::{BoxError, Error, ErrorKind, Phase, Sent};
pub use incoming::{IncomingBody, ReadError};
pub use outgoing::{Body, Outgoing, is_idempotent};
pub use transport::{Transport, WriteQueue};
