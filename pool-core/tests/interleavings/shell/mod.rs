//! The files under test, and what stands for the rest of the shell.

#[path = "../../../src/shell/cap.rs"]
#[allow(
    unreachable_pub,
    dead_code,
    reason = "the rest of the engine sees more of it"
)]
pub(crate) mod cap;
#[path = "../../../src/shell/mailbox.rs"]
pub(crate) mod mailbox;
pub(crate) mod sync;

/// As the files under test name it.
mod core {
    /// A job takes one and does not look at it.
    pub(crate) struct Core;
}

pub(crate) use self::core::Core;
