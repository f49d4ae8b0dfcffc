//! What the parts of a core that other threads touch are built from, and nothing else.
//!
//! The test `interleavings` compiles those parts a second time over its own version of this
//! module, in which a model checker decides who goes next and how stale a load may be.

use std::os::fd::OwnedFd;
use std::sync::Weak;

pub(super) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};
pub(super) use std::sync::{Mutex, MutexGuard};

pub(super) use crossbeam_queue::ArrayQueue;

/// Ends a core's sleep. It stays rung until the core has heard it.
///
/// The eventfd is the core's own: an alarm that outlives it keeps no descriptor open.
pub(crate) struct Alarm(Weak<OwnedFd>);

impl Alarm {
    /// An alarm that is heard by whoever waits until the eventfd is readable.
    pub(crate) fn new(eventfd: Weak<OwnedFd>) -> Self {
        Self(eventfd)
    }

    pub(super) fn ring(&self) {
        if let Some(eventfd) = self.0.upgrade() {
            // Fails only when the counter is full, and then it is readable already.
            let _ = rustix::io::write(&*eventfd, &1u64.to_ne_bytes());
        }
    }
}
