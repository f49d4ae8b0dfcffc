//! A listening socket of the readiness set.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

use rustix::net::{SocketFlags, acceptfrom_with};

use super::poller::Poller;
use super::source::Source;
use super::stream::TcpStream;

/// What is set on a socket before it listens.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    backlog: i32,
    reuse_port: bool,
    nodelay: bool,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            backlog: 1024,
            reuse_port: true,
            nodelay: true,
        }
    }
}

impl ListenOptions {
    /// How many connections may wait to be accepted. Default: 1024; the kernel's `somaxconn` caps
    /// it.
    #[must_use]
    pub fn backlog(mut self, connections: u16) -> Self {
        self.backlog = i32::from(connections);
        self
    }

    /// `SO_REUSEPORT`: several cores listen on one address and the kernel spreads the connections.
    /// Default: on. Off, a second listener on the address is refused.
    #[must_use]
    pub fn reuse_port(mut self, on: bool) -> Self {
        self.reuse_port = on;
        self
    }

    /// `TCP_NODELAY` on what is accepted. Default: on.
    #[must_use]
    pub fn nodelay(mut self, on: bool) -> Self {
        self.nodelay = on;
        self
    }
}

/// A TCP listener whose readiness is registered once. Dropping it stops listening.
pub struct TcpListener {
    source: Rc<Source>,
    local: SocketAddr,
    poller: Rc<Poller>,
}

impl TcpListener {
    pub(crate) fn bind_in(
        poller: &Rc<Poller>,
        address: SocketAddr,
        options: &ListenOptions,
    ) -> io::Result<Self> {
        let kind = socket2::Type::STREAM.nonblocking().cloexec();
        let socket = socket2::Socket::new(socket2::Domain::for_address(address), kind, None)?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(options.reuse_port)?;
        // Accepted sockets inherit it.
        socket.set_tcp_nodelay(options.nodelay)?;
        socket.bind(&address.into())?;
        socket.listen(options.backlog)?;
        let local = socket.local_addr()?.as_socket().unwrap_or(address);
        let source = Source::register(poller, socket.into())?;
        Ok(Self {
            source,
            local,
            poller: Rc::clone(poller),
        })
    }

    /// The address that is listened on, with the port that the kernel chose for port 0.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    ///
    /// What the kernel answers. Connections aborted before they were accepted are skipped. Out of
    /// descriptors (`EMFILE`, `ENFILE`) or memory, wait before the next call: it fails again at
    /// once.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no connection.
    pub async fn accept(&mut self) -> io::Result<TcpStream> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    fn poll_accept(&self, cx: &Context<'_>) -> Poll<io::Result<TcpStream>> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let accepted = self
            .source
            .poll_incoming(cx, |fd| match acceptfrom_with(fd, flags) {
                // Gone before it was accepted: the next one, as after an interrupt.
                Err(rustix::io::Errno::CONNABORTED) => Err(rustix::io::Errno::INTR),
                outcome => outcome,
            });
        accepted.map(|outcome| {
            let (fd, peer) = outcome?;
            let peer = peer
                .and_then(|p| SocketAddr::try_from(p).ok())
                .unwrap_or(self.local);
            let source = Source::register(&self.poller, fd)?;
            Ok(TcpStream::accepted(source, peer))
        })
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpListener")
            .field("local", &self.local)
            .finish_non_exhaustive()
    }
}
