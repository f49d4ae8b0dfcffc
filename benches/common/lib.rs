//! What the benches share: an allocator that counts, connectors that add nothing to what is
//! measured, and a way to run a future that need not wait.

mod allocator;
pub mod codec;
mod connectors;
mod descriptors;
pub mod exchanges;
mod many;
mod median;
mod peer;
mod state;
mod timers;
mod warm_get;

use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub use allocator::{Allocated, Counting, LARGE, LargeBlock, Live, allocated, allocations, live};
pub use connectors::{SharedSocket, Sharing, Tcp};
pub use descriptors::raise_descriptor_limit;
pub use many::{Destinations, queue, state_of_many, state_round};
pub use median::median;
pub use peer::keep_connections;
use pool_core::{Core, Timestamp};
pub use timers::{FullWheel, deadline};
pub use warm_get::{Prepared, WarmGet, Way, within};

/// Somewhat less than a core's budget of acquires in one turn.
const PER_TURN: u32 = 1000;

/// Polls a future that ends at its first poll.
///
/// # Panics
///
/// If it has to wait.
pub fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a future that was to end at once has to wait"),
    }
}

/// Goes on in a turn of the core, as a task does that readiness has woken. The clock is read then,
/// and not again by what follows; while the driver sleeps, each use of the clock would read it.
pub async fn enter_turn(core: &Core) {
    core.sleep(Duration::from_nanos(1)).await;
}

/// The numbers below `count`, in parts that a core may acquire as often in one turn: past its budget an
/// acquire has to wait for the next.
pub fn turns(count: u32) -> impl Iterator<Item = Range<u32>> {
    let first = (0..count).step_by(PER_TURN as usize);
    first.map(move |first| first..count.min(first + PER_TURN))
}

/// The numbers below `count`, each as often as the others, in an order that looks random and is the
/// same each time.
#[must_use]
pub fn shuffled(count: u32) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..count).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for last in (1..numbers.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let places = last as u64 + 1;
        let other = usize::try_from(state % places).unwrap_or(0);
        numbers.swap(last, other);
    }
    numbers
}

/// Whether to measure, as under `cargo bench`, or only to try everything once.
#[must_use]
pub fn measures() -> bool {
    let given = |flag: &str| std::env::args().any(|argument| argument == flag);
    given("--bench") && !given("--test")
}
