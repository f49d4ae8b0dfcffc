//! What an exchange needs of a connection, and what waits to be written to one.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use pool_core::{Connection, TcpStream};

/// A pooled connection that bytes can be exchanged over.
pub trait Transport: Connection {
    /// Appends what has come in to `buf`, at most `limit` bytes; `Ok(0)` is the end of file.
    ///
    /// # Errors
    ///
    /// The first error is final.
    fn poll_read_buf(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>>;

    /// Writes from several buffers in one go.
    ///
    /// # Errors
    ///
    /// What the peer or the network did. An answer may still be readable.
    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>>;
}

impl Transport for TcpStream {
    fn poll_read_buf(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        Self::poll_read_buf(self, cx, buf, limit)
    }

    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Self::poll_write_vectored(self, cx, bufs)
    }
}

/// Buffers per write. Head, chunk prefix, data and suffix fit several times over.
const SLICES: usize = 16;

/// Bytes on their way out: shared slices in order, written several at a time and never copied.
///
/// It has no bound of its own: whoever fills it looks at [`len`](Self::len) first.
#[derive(Debug, Default)]
pub struct WriteQueue {
    chunks: VecDeque<Bytes>,
    bytes: usize,
}

impl WriteQueue {
    /// Appends; an empty slice is left out.
    pub fn push(&mut self, chunk: Bytes) {
        if !chunk.is_empty() {
            self.bytes += chunk.len();
            self.chunks.push_back(chunk);
        }
    }

    /// Bytes that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Drops what waits.
    pub fn clear(&mut self) {
        self.chunks.clear();
        self.bytes = 0;
    }

    /// Writes once with `write`, from the front, and returns how many bytes left.
    ///
    /// # Errors
    ///
    /// Those of `write`; `WriteZero` if it takes nothing.
    pub fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(&mut Context<'_>, &[IoSlice<'_>]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let used = self.chunks.len().min(SLICES);
        for (slice, chunk) in slices.iter_mut().zip(&self.chunks) {
            *slice = IoSlice::new(chunk);
        }
        let written = match write(cx, &slices[..used]) {
            Poll::Ready(Ok(0)) => Err(io::ErrorKind::WriteZero.into()),
            Poll::Ready(outcome) => outcome,
            Poll::Pending => return Poll::Pending,
        };
        if let Ok(n) = written {
            self.advance(n);
        }
        Poll::Ready(written)
    }

    fn advance(&mut self, mut written: usize) {
        self.bytes -= written;
        while let Some(chunk) = self.chunks.front_mut() {
            if written < chunk.len() {
                chunk.advance(written);
                return;
            }
            written -= chunk.len();
            self.chunks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    #[test]
    fn bytes_leave_in_order_however_few_are_taken_at_a_time() {
        for step in 1..12 {
            let mut queue = WriteQueue::default();
            for part in ["GET / ", "", "HTTP/1.1\r\n", "\r\n", "body"] {
                queue.push(Bytes::from_static(part.as_bytes()));
            }
            let mut out = Vec::new();
            while !queue.is_empty() {
                let mut cx = Context::from_waker(Waker::noop());
                let written = queue.poll_write(&mut cx, |_, slices| {
                    let all: Vec<u8> = slices.iter().flat_map(|s| s.to_vec()).collect();
                    let n = all.len().min(step);
                    out.extend_from_slice(&all[..n]);
                    Poll::Ready(Ok(n))
                });
                assert!(matches!(written, Poll::Ready(Ok(n)) if n > 0));
            }
            assert_eq!(out, b"GET / HTTP/1.1\r\n\r\nbody", "step {step}");
        }
    }

    #[test]
    fn peer_that_takes_nothing_is_an_error_and_not_a_loop() {
        let mut queue = WriteQueue::default();
        queue.push(Bytes::from_static(b"x"));
        let mut cx = Context::from_waker(Waker::noop());
        let written = queue.poll_write(&mut cx, |_, _| Poll::Ready(Ok(0)));
        assert!(matches!(written, Poll::Ready(Err(e)) if e.kind() == io::ErrorKind::WriteZero));
    }
}
