//! Steps of a script that the test controls, and the other way round.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::wait::DEADLINE;

/// A gate that one side waits at and the other side opens. Clones are the same gate.
///
/// A script that has to hold a step back waits at it, with
/// [`Peer::wait_at`](crate::Peer::wait_at); the test opens it. A script that has to report a step
/// opens it; the test waits.
#[derive(Clone, Default)]
pub struct Gate {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    open: bool,
    admitted: usize,
    arrived: usize,
}

impl Gate {
    /// A closed gate.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the gate for good: all who wait and all who come later pass.
    pub fn open(&self) {
        self.lock().open = true;
        self.inner.changed.notify_all();
    }

    /// Lets `n` more waits pass and leaves the gate closed for the others.
    pub fn admit(&self, n: usize) {
        self.lock().admitted += n;
        self.inner.changed.notify_all();
    }

    /// Whether [`open`](Self::open) was called.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.lock().open
    }

    /// How many waits have begun at this gate, passed or not.
    #[must_use]
    pub fn arrived(&self) -> usize {
        self.lock().arrived
    }

    /// Blocks the thread until it may pass.
    ///
    /// In a script [`Peer::wait_at`](crate::Peer::wait_at) is better: it also ends when the server
    /// stops.
    ///
    /// # Panics
    ///
    /// When nobody opens the gate within [`DEADLINE`].
    #[track_caller]
    pub fn wait(&self) {
        self.arrive();
        assert!(
            self.pass_within(DEADLINE),
            "nobody opened the gate within {DEADLINE:?}"
        );
    }

    /// Blocks the thread until `n` waits have begun at this gate.
    ///
    /// # Panics
    ///
    /// When that takes longer than [`DEADLINE`].
    #[track_caller]
    pub fn wait_for_arrivals(&self, n: usize) {
        let reached = self.until(DEADLINE, |state| state.arrived >= n);
        assert!(
            reached,
            "{} instead of {n} waits began at the gate within {DEADLINE:?}",
            self.arrived()
        );
    }

    pub(crate) fn arrive(&self) {
        self.lock().arrived += 1;
        self.inner.changed.notify_all();
    }

    /// Whether the gate let the caller through within `limit`.
    pub(crate) fn pass_within(&self, limit: Duration) -> bool {
        self.until(limit, |state| {
            if !state.open && state.admitted > 0 {
                state.admitted -= 1;
                return true;
            }
            state.open
        })
    }

    fn until(&self, limit: Duration, mut ready: impl FnMut(&mut State) -> bool) -> bool {
        let end = Instant::now() + limit;
        let mut state = self.lock();
        loop {
            if ready(&mut state) {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.inner.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let locked = self.inner.state.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gate").field(&*self.lock()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn an_open_gate_lets_everybody_pass() {
        let gate = Gate::new();
        let waiter = thread::spawn({
            let gate = gate.clone();
            move || gate.wait()
        });
        gate.wait_for_arrivals(1);
        assert!(!gate.is_open());
        gate.open();
        waiter.join().unwrap();
        gate.wait();
        assert_eq!(gate.arrived(), 2);
    }

    #[test]
    fn admit_lets_that_many_pass() {
        let gate = Gate::new();
        gate.admit(2);
        assert!(gate.pass_within(Duration::ZERO));
        assert!(gate.pass_within(Duration::ZERO));
        assert!(!gate.pass_within(Duration::ZERO));
    }
}
