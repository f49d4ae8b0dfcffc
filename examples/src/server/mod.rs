//! An HTTP/1.1 server over the engine's sockets, for the programs of this package.
//!
//! [`Connection`] is the wire: requests and bodies in, responses out, each direction polled by
//! itself. [`Session`] adds the course of time: idle and slow clients, within [`Timeouts`], and
//! the end of an exchange, with a close that loses no answer (`ending`). [`Service`] runs sessions
//! on a core of its own; the gateway runs them on its own cores.

mod accept;
mod body;
mod buffers;
mod closing;
mod connection;
mod ending;
mod service;
mod session;
mod timeouts;
mod timer;

pub use accept::accept_each;
pub use body::RequestBody;
pub use buffers::Buffers;
pub use closing::{Closing, Member};
pub use connection::{BodyPart, Connection, Fault};
pub(crate) use service::await_listening;
pub use service::{Service, ServiceError};
pub use session::{Lost, Refusal, Session};
pub use timeouts::Timeouts;
