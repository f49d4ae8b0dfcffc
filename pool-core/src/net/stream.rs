//! A TCP stream of the readiness set.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use futures_io::{AsyncRead, AsyncWrite};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};

use super::poller::Poller;
use super::readiness::Readiness;
use super::source::Source;
use crate::CloseReason;

/// What is set on a socket before it connects.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    local_address: Option<SocketAddr>,
    nodelay: bool,
    keepalive: Option<Duration>,
    user_timeout: Option<Duration>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            local_address: None,
            nodelay: true,
            keepalive: None,
            user_timeout: None,
        }
    }
}

impl ConnectOptions {
    /// Connects from this address. Default: the kernel chooses.
    #[must_use]
    pub fn local_address(mut self, address: Option<SocketAddr>) -> Self {
        self.local_address = address;
        self
    }

    /// `TCP_NODELAY`: small writes leave at once. Default: on.
    #[must_use]
    pub fn nodelay(mut self, on: bool) -> Self {
        self.nodelay = on;
        self
    }

    /// `SO_KEEPALIVE` with this idle time before the first probe, in whole seconds, at least one.
    /// Default: off.
    #[must_use]
    pub fn keepalive(mut self, idle: Option<Duration>) -> Self {
        self.keepalive = idle;
        self
    }

    /// `TCP_USER_TIMEOUT`: how long sent data may stay unacknowledged before the kernel gives the
    /// connection up, in whole milliseconds. Default: the kernel's.
    #[must_use]
    pub fn user_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.user_timeout = timeout;
        self
    }
}

/// A TCP connection whose readiness is registered once, for its life.
///
/// Reading and writing work through a shared reference too, so that one task can do both at a
/// time; there is one waiter per direction, the last to poll.
pub struct TcpStream {
    source: Rc<Source>,
    peer: SocketAddr,
}

impl TcpStream {
    pub(crate) async fn connect_in(
        poller: &Rc<Poller>,
        address: SocketAddr,
        options: &ConnectOptions,
    ) -> io::Result<Self> {
        let kind = socket2::Type::STREAM.nonblocking().cloexec();
        let socket = socket2::Socket::new(socket2::Domain::for_address(address), kind, None)?;
        socket.set_tcp_nodelay(options.nodelay)?;
        if let Some(idle) = options.keepalive {
            socket.set_tcp_keepalive(&socket2::TcpKeepalive::new().with_time(idle))?;
        }
        if options.user_timeout.is_some() {
            socket.set_tcp_user_timeout(options.user_timeout)?;
        }
        if let Some(local) = options.local_address {
            socket.bind(&local.into())?;
        }
        match socket.connect(&address.into()) {
            Ok(()) => {}
            Err(e) if e.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
            Err(e) => return Err(e),
        }
        let source = Source::register(poller, socket.into())?;
        poll_fn(|cx| source.poll_connected(cx)).await?;
        Ok(Self {
            source,
            peer: address,
        })
    }

    /// Takes an accepted, nonblocking socket into the set.
    pub(super) fn accepted(source: Rc<Source>, peer: SocketAddr) -> Self {
        source.set_writable();
        Self { source, peer }
    }

    /// The address at the other end.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// The address at this end.
    ///
    /// # Errors
    ///
    /// What the kernel answers, if the connection is gone.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let address = rustix::net::getsockname(self.source.fd())?;
        SocketAddr::try_from(address).map_err(io::Error::from)
    }

    /// What the kernel last said of this socket.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        Readiness::new(Rc::clone(&self.source))
    }

    /// The peer will send no more: it has sent FIN or RST.
    #[must_use]
    pub fn is_peer_closed(&self) -> bool {
        self.source.is_peer_closed()
    }

    /// As [`Readiness::check_quiet`].
    #[inline]
    pub(crate) fn check_quiet(&self) -> Result<(), CloseReason> {
        self.source.check_quiet()
    }

    /// Ready once the peer has reset the connection or the network has given it up, whatever has
    /// come in before and is unread. There is one waiter per direction, the last to poll; this one
    /// counts as a reader.
    pub fn poll_reset(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.source.poll_reset(cx)
    }

    /// Shuts one or both directions down at once; the peer sees FIN.
    ///
    /// # Errors
    ///
    /// What the kernel answers, such as `NotConnected` when the peer is gone.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.source.shutdown(match how {
            Shutdown::Read => rustix::net::Shutdown::Read,
            Shutdown::Write => rustix::net::Shutdown::Write,
            Shutdown::Both => rustix::net::Shutdown::Both,
        })
    }

    /// Has the kernel send RST instead of FIN when the stream is dropped, and forget what is
    /// unsent.
    ///
    /// # Errors
    ///
    /// What the kernel answers.
    pub fn reset_on_drop(&self) -> io::Result<()> {
        let linger = Some(Duration::ZERO);
        Ok(rustix::net::sockopt::set_socket_linger(
            self.source.fd(),
            linger,
        )?)
    }

    /// Reads into the spare room of `buf`, at most `limit` bytes, and appends what came; makes
    /// room first if there is none. `Ok(0)` is the peer's end of file.
    ///
    /// # Errors
    ///
    /// What the kernel answers; [`ForceClosed`](super::ForceClosed) inside it when the pool closed
    /// the connection.
    ///
    /// # Panics
    ///
    /// Panics if `limit` is 0: what such a read returns would look like the end of file.
    pub fn poll_read_buf(
        &self,
        cx: &mut Context<'_>,
        buf: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        assert!(limit > 0, "a read of no bytes");
        if buf.capacity() == buf.len() {
            buf.reserve(limit);
        }
        let spare = buf.spare_capacity_mut();
        let wanted = spare.len().min(limit);
        let spare: &mut [MaybeUninit<u8>] = &mut spare[..wanted];
        let read = self.source.poll_read(cx, wanted, |fd| {
            rustix::net::recv(fd, &mut *spare, RecvFlags::DONTWAIT).map(|(_, n)| n)
        });
        if let Poll::Ready(Ok(n)) = read {
            // SAFETY: the kernel has written the first `n` bytes of the spare room, and `n` is at
            // most its length.
            unsafe { buf.advance_mut(n) };
        }
        read
    }

    /// Reads into `buf`. As [`AsyncRead::poll_read`], through a shared reference.
    ///
    /// # Errors
    ///
    /// As [`poll_read_buf`](Self::poll_read_buf).
    pub fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.source.poll_read(cx, buf.len(), |fd| {
            rustix::net::recv(fd, &mut *buf, RecvFlags::DONTWAIT).map(|(_, n)| n)
        })
    }

    /// Writes from `buf`. As [`AsyncWrite::poll_write`], through a shared reference.
    ///
    /// # Errors
    ///
    /// What the kernel answers: a closed peer gives `BrokenPipe`, never a signal.
    pub fn poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        self.source
            .poll_write(cx, buf.len(), |fd| rustix::net::send(fd, buf, flags))
    }

    /// Writes from several buffers in one call, at most 1024 of them.
    ///
    /// # Errors
    ///
    /// As [`poll_write`](Self::poll_write).
    pub fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let bufs = &bufs[..bufs.len().min(1024)];
        let wanted = bufs.iter().map(|b| b.len()).sum();
        self.source.poll_write(cx, wanted, |fd| {
            rustix::net::sendmsg(fd, bufs, &mut SendAncillaryBuffer::default(), flags)
        })
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpStream")
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

impl AsyncRead for &TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        TcpStream::poll_read(*self, cx, buf)
    }
}

impl AsyncWrite for &TcpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        TcpStream::poll_write(*self, cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        TcpStream::poll_write_vectored(*self, cx, bufs)
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shutdown(Shutdown::Write))
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Self::poll_read(&self, cx, buf)
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Self::poll_write(&self, cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Self::poll_write_vectored(&self, cx, bufs)
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shutdown(Shutdown::Write))
    }
}
