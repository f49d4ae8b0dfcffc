//! Waiting for a time on the core's wheel.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::core::Core;
use crate::Timestamp;
use crate::state::wheel::TimerId;

/// Ends when its time has come: [`Core::sleep`].
///
/// Never early, never in the turn in which it was set, and at most one tick (0.53 ms) after the core's turn that sees the time passed.
/// Dropping it cancels the timer.
#[must_use = "futures do nothing unless they are awaited"]
pub struct Sleep {
    core: Core,
    timer: TimerId,
    deadline: Timestamp,
    /// The turn in which it was set. It does not end in the same one, so that a loop of sleeps
    /// that are over at once gives way to others.
    turn: u64,
}

impl Sleep {
    pub(super) fn new(core: Core, deadline: Timestamp) -> Self {
        let timer = core.sleeps().insert(None);
        core.sleeps().schedule(timer, deadline);
        core.kick_for(deadline);
        let turn = core.turns();
        Self {
            core,
            timer,
            deadline,
            turn,
        }
    }

    /// When it ends.
    #[must_use]
    pub fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// Begins anew: it ends after `duration` from now.
    pub fn restart(&mut self, duration: Duration) {
        self.deadline = self.core.read_clock().saturating_add(duration);
        self.turn = self.core.turns();
        self.core.sleeps().schedule(self.timer, self.deadline);
        self.core.kick_for(self.deadline);
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.core.now() >= self.deadline && self.core.turns() != self.turn {
            return Poll::Ready(());
        }
        let waker = Some(cx.waker().clone());
        let old = self
            .core
            .sleeps()
            .get_mut(self.timer)
            .map(|slot| std::mem::replace(slot, waker));
        drop(old);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let waker = self.core.sleeps().remove(self.timer);
        drop(waker);
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep")
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// A time limit passed first: [`Core::timeout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the time limit of {0:?} has passed")]
pub struct Elapsed(pub Duration);
