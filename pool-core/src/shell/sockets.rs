//! How sockets come to a core.

use std::io;
use std::net::SocketAddr;

use super::core::Core;
use crate::net::{ConnectOptions, ListenOptions, TcpListener, TcpStream};

impl TcpStream {
    /// Connects to `address`. There is no time limit here: the pool's connect timeout drops it.
    ///
    /// # Errors
    ///
    /// What the kernel answers (refused, unreachable, no descriptors, …), or a refused option.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the socket at once and leaves nothing behind.
    pub async fn connect(
        core: &Core,
        address: SocketAddr,
        options: &ConnectOptions,
    ) -> io::Result<Self> {
        Self::connect_in(core.poller(), address, options).await
    }
}

impl TcpListener {
    /// Listens on `address`.
    ///
    /// # Errors
    ///
    /// What the kernel answers, such as `AddrInUse`.
    pub fn bind(core: &Core, address: SocketAddr, options: &ListenOptions) -> io::Result<Self> {
        Self::bind_in(core.poller(), address, options)
    }
}
