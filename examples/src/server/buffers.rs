//! Read and write buffers that go round among the connections of a core.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::BytesMut;

/// Room for a typical head, or a small body.
pub(super) const SMALL: usize = 8 << 10;

/// Kept for later; beyond it a burst's buffers go back to the allocator.
const KEPT: usize = 256;

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

    /// Takes back an empty buffer; one whose bytes are still being read elsewhere is let go.
    pub(super) fn give_back(&self, buffer: &mut BytesMut) {
        let mut buffer = std::mem::take(buffer);
        if buffer.capacity() == 0 {
            return;
        }
        let mut kept = self.0.borrow_mut();
        let whole = (SMALL..=2 * SMALL).contains(&buffer.capacity()) || buffer.try_reclaim(SMALL);
        if whole && kept.len() < KEPT {
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
}
