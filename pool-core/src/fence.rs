//! User code that the core calls and that may panic: wakers, which may belong to somebody else's
//! executor, and the rest.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Wakes, and survives a waker that panics: what the caller has still to do for others must be
/// done. No borrow may be held, as a waker may do anything.
pub(crate) fn wake(waker: Waker) {
    if catch(|| waker.wake()).is_none() {
        tracing::error!("a waker panicked; the core goes on");
    }
}

/// Runs a user's code; none if it has panicked.
#[inline]
pub(crate) fn catch<R>(call: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => Some(result),
        Err(panic) => {
            drop_panic(panic);
            None
        }
    }
}

/// Drops what a user's code has panicked with, which may panic in turn. Only once: what comes then
/// is leaked.
#[cold]
pub(crate) fn drop_panic(panic: Box<dyn Any + Send>) {
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(another);
    }
}
