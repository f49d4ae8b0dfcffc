//! What an exchange needs of a connection, and what waits to be written to one.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::iter::once;
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

/// A slice below this is copied: cheap, while keeping it would keep the whole receive block that
/// it is cut from, up to 64 KiB, for as long as the peer likes.
const LEAST_KEPT: usize = 512;

/// Copies are gathered in blocks of this size, in bytes.
const BLOCK: usize = 4 << 10;

/// Entries whose room stays with an empty queue; the room of a burst goes back to the allocator.
const LEAST_ENTRIES: usize = 2 * SLICES;

/// Bytes on their way out, in order, written several slices at a time.
///
/// Large slices are kept as they are and never copied. Small ones are gathered, so that the memory
/// behind the queue stays in proportion to [`len`](Self::len), whatever the slices are cut from.
/// An empty queue holds next to none.
///
/// It has no bound of its own: whoever fills it looks at [`len`](Self::len) first.
#[derive(Debug, Default)]
pub struct WriteQueue {
    /// What came into an empty queue. A head is mostly alone, and costs no block then.
    first: Bytes,
    chunks: VecDeque<Bytes>,
    /// Copies of what comes after the chunks.
    tail: BytesMut,
    bytes: usize,
}

impl WriteQueue {
    /// Appends; an empty slice is left out.
    pub fn push(&mut self, chunk: Bytes) {
        // One kept block does no harm.
        if self.is_empty() {
            self.bytes = chunk.len();
            self.first = chunk;
        } else if chunk.len() < LEAST_KEPT {
            self.push_copy(&chunk);
        } else if !chunk.is_empty() {
            self.close_tail();
            self.bytes += chunk.len();
            self.chunks.push_back(chunk);
        }
    }

    /// Appends a copy: for a few bytes, such as a chunk-size line.
    pub fn push_copy(&mut self, mut bytes: &[u8]) {
        self.bytes += bytes.len();
        while !bytes.is_empty() {
            let room = self.tail.capacity() - self.tail.len();
            if room == 0 {
                self.close_tail();
                self.tail = BytesMut::with_capacity(BLOCK);
                continue;
            }
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.tail.extend_from_slice(now);
            bytes = later;
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
        self.first = Bytes::new();
        self.chunks.clear();
        self.bytes = 0;
        self.let_go();
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
        let mut used = 0;
        let chunks = self.chunks.iter().map(|chunk| &chunk[..]);
        let waiting = once(&self.first[..])
            .chain(chunks)
            .chain(once(&self.tail[..]));
        let waiting = waiting.filter(|bytes| !bytes.is_empty());
        for (slice, bytes) in slices.iter_mut().zip(waiting) {
            *slice = IoSlice::new(bytes);
            used += 1;
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
        if written < self.first.len() {
            return self.first.advance(written);
        }
        written -= std::mem::take(&mut self.first).len();
        while let Some(chunk) = self.chunks.front_mut() {
            if written < chunk.len() {
                chunk.advance(written);
                return;
            }
            written -= chunk.len();
            self.chunks.pop_front();
        }
        self.tail.advance(written);
        if self.is_empty() {
            self.let_go();
        }
    }

    /// Makes the tail a chunk; what room is left behind it serves the next one.
    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            let chunk = self.tail.split().freeze();
            self.chunks.push_back(chunk);
        }
    }

    /// Gives the memory of an empty queue back.
    fn let_go(&mut self) {
        self.tail = BytesMut::new();
        if self.chunks.capacity() > LEAST_ENTRIES {
            self.chunks = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::task::Waker;

    /// Writes at most `step` bytes at a time until the queue is empty.
    fn drain(queue: &mut WriteQueue, step: usize) -> Vec<u8> {
        let mut out = Vec::new();
        while !queue.is_empty() {
            let before = queue.len();
            let mut cx = Context::from_waker(Waker::noop());
            let written = queue.poll_write(&mut cx, |_, slices| {
                let before = out.len();
                out.extend(slices.iter().flat_map(|s| s.iter()).take(step));
                Poll::Ready(Ok(out.len() - before))
            });
            assert!(matches!(written, Poll::Ready(Ok(n)) if n > 0 && queue.len() == before - n));
        }
        out
    }

    /// A block as a read fills one; how many are alive is told by `blocks`.
    fn block(blocks: &Arc<()>) -> Bytes {
        struct Block(
            Vec<u8>,
            #[allow(dead_code, reason = "it is counted")] Arc<()>,
        );
        impl AsRef<[u8]> for Block {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        Bytes::from_owner(Block(vec![b'x'; 64 << 10], Arc::clone(blocks)))
    }

    #[test]
    fn bytes_leave_in_order_however_long_the_pieces_and_few_are_taken_at_a_time() {
        let lengths = [
            1,
            0,
            2,
            LEAST_KEPT,
            3,
            LEAST_KEPT - 1,
            LEAST_KEPT - 1,
            2000,
            BLOCK,
            5,
        ];
        for first in 0..lengths.len() {
            for step in [1, 7, 100, BLOCK - 1, usize::MAX] {
                let mut queue = WriteQueue::default();
                let mut expected = Vec::new();
                for n in 0..3 * lengths.len() {
                    let length = lengths[(first + n) % lengths.len()];
                    let piece: Vec<u8> = (n..n + length).map(|b| b.to_le_bytes()[0]).collect();
                    expected.extend_from_slice(&piece);
                    match n % 4 {
                        3 => queue.push_copy(&piece),
                        _ => queue.push(piece.into()),
                    }
                }
                assert_eq!(queue.len(), expected.len());
                assert_eq!(
                    drain(&mut queue, step),
                    expected,
                    "from {first}, step {step}"
                );
            }
        }
    }

    #[test]
    fn small_slices_do_not_keep_the_blocks_that_they_are_cut_from() {
        for length in [1, 100, LEAST_KEPT - 1] {
            let blocks = Arc::new(());
            let mut queue = WriteQueue::default();
            while queue.len() < 64 << 10 {
                queue.push(block(&blocks).slice(7..7 + length));
            }
            let alive = Arc::strong_count(&blocks) - 1;
            assert!(alive <= 1, "{alive} blocks for slices of {length} bytes");
        }
    }

    #[test]
    fn large_slices_are_not_copied() {
        let blocks = Arc::new(());
        let mut queue = WriteQueue::default();
        let large = [block(&blocks), block(&blocks).slice(..LEAST_KEPT)];
        for slice in &large {
            queue.push_copy(b"200\r\n");
            queue.push(slice.clone());
            queue.push_copy(b"\r\n");
        }
        let mut cx = Context::from_waker(Waker::noop());
        let looked = queue.poll_write(&mut cx, |_, slices| {
            for slice in &large {
                assert!(slices.iter().any(|s| s.as_ptr() == slice.as_ptr()));
            }
            Poll::Pending
        });
        assert!(looked.is_pending());
    }

    #[test]
    fn queue_has_few_entries_for_its_bytes_and_keeps_no_room_after_a_burst() {
        for (small, large) in [(1, 0), (LEAST_KEPT - 1, 0), (1, LEAST_KEPT)] {
            let mut queue = WriteQueue::default();
            while queue.len() < 1 << 20 {
                queue.push(Bytes::from(vec![b's'; small]));
                queue.push(Bytes::from(vec![b'l'; large]));
            }
            assert!(queue.chunks.len() <= 2 * queue.len() / LEAST_KEPT);
            drain(&mut queue, 10_000);
            assert!(queue.chunks.capacity() <= LEAST_ENTRIES);
            assert_eq!(queue.tail.capacity(), 0);
        }
    }

    #[test]
    fn cleared_queue_keeps_no_room_either() {
        let mut queue = WriteQueue::default();
        while queue.len() < 1 << 20 {
            queue.push(Bytes::from(vec![b'l'; LEAST_KEPT]));
            queue.push_copy(b"\r\n");
        }
        queue.clear();
        assert!(queue.is_empty() && queue.chunks.capacity() <= LEAST_ENTRIES);
        assert_eq!(queue.tail.capacity(), 0);
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
