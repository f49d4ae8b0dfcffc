//! Waking tasks that may belong to somebody else's executor.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Wakes, and survives a waker that panics: what the caller has still to do for others must be
/// done. No borrow may be held, as a waker may do anything.
pub(crate) fn wake(waker: Waker) {
    if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
        tracing::error!("a waker panicked; the core goes on");
    }
}
