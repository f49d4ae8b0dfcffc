//! Sockets whose readiness is registered once for their life, and the runtime under them.
//!
//! A socket enters the core's readiness set when it is made and leaves it when it is dropped;
//! nothing is armed or cancelled per operation. What the kernel reports stands in plain cells
//! ([`source`]), which the read and write paths, the idle watch and the validity check at acquire
//! all share. This is the only place with `unsafe`, and [`runtime`] is the only one that names
//! glommio. Neither the set's mechanism nor the runtime leaks out of it.

#![allow(
    unsafe_code,
    reason = "raw descriptors and uninitialised buffers end here"
)]

mod flags;
mod listener;
mod poller;
mod readiness;
pub(crate) mod runtime;
mod source;
mod stream;

pub use listener::{ListenOptions, TcpListener};
pub(crate) use poller::Poller;
pub(crate) use readiness::SocketId;
pub use readiness::{ForceClosed, Readiness};
pub(crate) use source::{PoolId, WatchMode, WatchToken};
pub use stream::{ConnectOptions, TcpStream};
