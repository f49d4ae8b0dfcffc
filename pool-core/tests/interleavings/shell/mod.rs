//! The files under test, and what stands for the rest of the shell.

#[path = "../../../src/shell/cap.rs"]
#[allow(unreachable_pub, reason = "the engine's users see some of it")]
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
