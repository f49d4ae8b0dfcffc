//! An HTTP/1.1 server over the engine's sockets, for the programs of this package.
//!
//! [`Connection`] is the wire: requests and bodies in, responses out, each direction polled by
//! itself. [`Session`] adds the course of time: idle and slow clients, the end of a response, the
//! close that loses no answer. [`Service`] runs sessions on a core of its own; the gateway runs
//! them on its own cores.

mod accept;
mod body;
mod buffers;
mod closing;
mod connection;
mod service;
mod session;

pub use accept::accept_each;
pub use body::RequestBody;
pub use buffers::Buffers;
pub use closing::{Closing, Member};
pub use connection::{BodyPart, Connection, Fault};
pub use service::{Service, ServiceError};
pub(crate) use session::DRAINED_BYTES;
pub use session::{Refusal, Session};
