//! Every order in which threads can run through what a core shares with others, and every stale
//! value that they may see on the way.
//!
//! The files under test are compiled once more, over the module `shell::sync` of this test in place
//! of the engine's: atomics, fences and locks are those of loom, which runs each test again and
//! again until it has tried every interleaving, or every one up to a bound. It finds a deadlock, so
//! a wake that is missed fails the test.
//!
//! `cargo test -p pool-core --test interleavings` is all it needs.
#![cfg(feature = "glommio")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod cap;
mod mailbox;
mod shell;

#[path = "../../src/fence.rs"]
#[allow(dead_code, reason = "the files under test use their part")]
mod fence;

use pool_core::ConfigError;

/// As the files under test name it.
mod error {
    pub(crate) use pool_core::SubmitError;
}

/// Tries every interleaving; with a bound, those in which threads that could have gone on are
/// interrupted at most so many times in sum.
fn explore(interruptions: Option<usize>, case: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = interruptions;
    model.check(case);
}
