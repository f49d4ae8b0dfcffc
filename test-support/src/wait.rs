//! Waiting for a condition, with a deadline.

use std::panic::Location;
use std::thread;
use std::time::{Duration, Instant};

/// How long the waits of this crate go on before they panic: far beyond what a loaded machine
/// needs, short enough that a hung test names its cause before the test runner gives up.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// How long a poll pauses between two looks.
pub(crate) const POLL: Duration = Duration::from_millis(1);

/// Blocks the thread until `condition` holds.
///
/// # Panics
///
/// When it does not hold within `deadline`.
#[track_caller]
pub fn eventually(deadline: Duration, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + deadline;
    while !condition() {
        assert!(
            Instant::now() < end,
            "the condition did not hold within {deadline:?}"
        );
        thread::sleep(POLL);
    }
}

/// Waits until `condition` holds and lets the executor run meanwhile.
///
/// `pause` makes the future that is awaited between two looks, which is how this function stays
/// free of any runtime: pass a sleep of a millisecond of the runtime at hand.
///
/// # Panics
///
/// When the condition does not hold within `deadline`; the message names the caller's line.
#[track_caller]
pub fn eventually_async<P, F>(
    deadline: Duration,
    mut condition: impl FnMut() -> bool,
    mut pause: P,
) -> impl Future<Output = ()>
where
    P: FnMut() -> F,
    F: Future,
{
    // Inside the future the caller is whoever polls it, so the line is taken here.
    let caller = Location::caller();
    async move {
        let end = Instant::now() + deadline;
        while !condition() {
            assert!(
                Instant::now() < end,
                "the condition awaited at {caller} did not hold within {deadline:?}"
            );
            pause().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn eventually_returns_once_the_condition_holds() {
        let mut looks = 0;
        eventually(DEADLINE, || {
            looks += 1;
            looks == 3
        });
        assert_eq!(looks, 3);
    }

    #[test]
    #[should_panic(expected = "did not hold within 5ms")]
    fn eventually_panics_at_the_deadline() {
        eventually(Duration::from_millis(5), || false);
    }

    #[test]
    fn eventually_async_pauses_between_two_looks() {
        let mut looks = 0;
        let mut pauses = 0;
        let wait = eventually_async(
            DEADLINE,
            || {
                looks += 1;
                looks == 3
            },
            || {
                pauses += 1;
                std::future::ready(())
            },
        );
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(pin!(wait).poll(&mut context), Poll::Ready(()));
        assert_eq!((looks, pauses), (3, 2));
    }

    #[test]
    #[should_panic(expected = "wait.rs")]
    fn eventually_async_names_the_waiting_line() {
        let wait = eventually_async(Duration::ZERO, || false, || std::future::ready(()));
        let mut context = Context::from_waker(Waker::noop());
        let _ = pin!(wait).poll(&mut context);
    }
}
