//! Connections that have left HTTP.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use futures_io::{AsyncRead, AsyncWrite};
use pool_core::Connector;

/// A connection that speaks another protocol from now on, after 101 (Switching Protocols) or a
/// 2xx to CONNECT: what [`into_tunnel`](crate::IncomingBody::into_tunnel) makes of such a
/// response's body.
///
/// It is an [`AsyncRead`] and an [`AsyncWrite`] if the connection is. What the peer sent behind
/// its response comes first. Closing the writer ends this side of the connection, as the
/// connection does that; TCP sends FIN and goes on reading. Dropping the tunnel closes it.
///
/// The pool knows it no more: it counts against no limit, no timeout of the pool or the client
/// holds for it, and draining the pool does not wait for it.
pub struct Tunnel<C: Connector> {
    connection: C::Connection,
    /// What came in together with the head of the response.
    first: BytesMut,
}

impl<C: Connector> Tunnel<C> {
    pub(crate) fn new(connection: C::Connection, first: BytesMut) -> Self {
        let mut tunnel = Self { connection, first };
        tunnel.forget_if_read();
        tunnel
    }

    /// A tunnel may live for days, and its first bytes are cut from a whole block.
    fn forget_if_read(&mut self) {
        if self.first.is_empty() {
            self.first = BytesMut::new();
        }
    }

    /// The connection, for what only it can do. Not for reading: what the peer sent behind its
    /// response may not have been read from the tunnel yet.
    #[must_use]
    pub fn get_ref(&self) -> &C::Connection {
        &self.connection
    }

    /// The connection, and the bytes that come before what is read from it.
    #[must_use]
    pub fn into_parts(self) -> (C::Connection, Bytes) {
        (self.connection, self.first.freeze())
    }
}

impl<C> AsyncRead for Tunnel<C>
where
    C: Connector,
    C::Connection: AsyncRead + Unpin,
{
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.connection).poll_read(cx, buf);
        }
        let n = self.first.len().min(buf.len());
        self.first.copy_to_slice(&mut buf[..n]);
        self.forget_if_read();
        Poll::Ready(Ok(n))
    }
}

impl<C> AsyncWrite for Tunnel<C>
where
    C: Connector,
    C::Connection: AsyncWrite + Unpin,
{
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write_vectored(cx, bufs)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_close(cx)
    }
}

impl<C: Connector> fmt::Debug for Tunnel<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel")
            .field("first", &self.first.len())
            .finish_non_exhaustive()
    }
}
