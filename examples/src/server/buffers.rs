//! Read and write buffers that go round among the connections of a core.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::BytesMut;

/// Room for a typical head, or a small body.
pub(super) const SMALL: usize = 8 << 10;

/// Kept for later; beyond it a burst's buffers go back to the allocator.
const KEPT: usize = 256;

/// A buffer that has grown beyond this is not kept.
const LARGEST_KEPT: usize = 2 * SMALL;

/// Buffers that no connection uses just now. A connection that waits for its next request holds
/// none. Cheap to clone; the clones share the buffers.
#[derive(Clone, Debug, Default)]
pub struct Buffers(Rc<RefCell<Vec<BytesMut>>>);

impl Buffers {
    pub(super) fn take(&self) -> BytesMut {
        self.0
            .borrow_mut()
            .pop()
            .unwrap_or_else(|| BytesMut::with_capacity(SMALL))
    }

    /// Takes back an empty buffer. Let go are one whose bytes are still being read elsewhere, and
    /// one that has grown: a large buffer kept for every wait would pin memory that a small one
    /// does not need.
    pub(super) fn give_back(&self, buffer: &mut BytesMut) {
        let mut buffer = std::mem::take(buffer);
        if buffer.capacity() == 0 || buffer.try_reclaim(LARGEST_KEPT + 1) {
            return;
        }
        let mut kept = self.0.borrow_mut();
        if kept.len() < KEPT && buffer.try_reclaim(SMALL) {
            buffer.clear();
            kept.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_whole_once_its_bytes_are_gone() {
        let buffers = Buffers::default();
        let mut buffer = buffers.take();
        buffer.extend_from_slice(&[1; 100]);
        let head = buffer.split().freeze();
        buffers.give_back(&mut buffer);
        assert_eq!(buffers.0.borrow().len(), 0, "its bytes were in use");

        let mut buffer = buffers.take();
        buffer.extend_from_slice(&head);
        drop(buffer.split().freeze());
        buffers.give_back(&mut buffer);
        assert_eq!(buffers.0.borrow().len(), 1);
        assert!(buffers.take().capacity() >= SMALL);
    }
    #[test]
    fn grown_buffers_are_not_kept_whatever_room_is_left_in_them() {
        for left in [0, 100, SMALL, LARGEST_KEPT, 40 << 10] {
            let buffers = Buffers::default();
            let mut buffer = BytesMut::with_capacity(64 << 10);
            buffer.resize((64 << 10) - left, 1);
            drop(buffer.split().freeze());
            buffers.give_back(&mut buffer);
            assert_eq!(buffers.0.borrow().len(), 0, "{left} bytes left");
        }
    }

    #[test]
    fn no_more_than_a_bounded_number_is_kept() {
        let buffers = Buffers::default();
        for _ in 0..2 * KEPT {
            buffers.give_back(&mut BytesMut::with_capacity(SMALL));
        }
        assert_eq!(buffers.0.borrow().len(), KEPT);
    }
}
