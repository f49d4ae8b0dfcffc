//! What can go wrong, a type per question: starting a core or an engine, acquiring, submitting.

use std::io;

use crate::CloseReason;

/// Why a core could not be started. Each text says what to change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// io_uring is refused by a seccomp filter, a sysctl or the kernel's build.
    #[error("io_uring is not available ({source}): {cause}")]
    IoUringForbidden {
        /// What forbids it, and how to allow it.
        cause: &'static str,
        /// What the kernel answered.
        source: io::Error,
    },
    /// The kernel is older than Linux 5.11.
    #[error("the kernel is {release}, Linux 5.11 or newer is needed")]
    KernelTooOld {
        /// The release that `uname` tells.
        release: String,
    },
    /// The soft limit on locked memory is too low for one core's rings.
    #[error(
        "the memlock limit is {have} bytes, {need} are needed for each core: raise it \
         (`ulimit -l`, LimitMEMLOCK= in systemd)"
    )]
    MemlockTooLow {
        /// The soft limit in bytes.
        have: u64,
        /// What one core needs, in bytes.
        need: u64,
    },
    /// The user's locked memory is used up, by earlier cores or another program of the user.
    #[error(
        "the memlock limit is used up: raise it (`ulimit -l`, LimitMEMLOCK= in systemd) or start \
         fewer cores"
    )]
    MemlockExhausted,
    /// There is no such CPU, or this process may not run on it.
    #[error("there is no CPU {cpu} that this process may run on")]
    NoSuchCpu {
        /// The CPU asked for.
        cpu: usize,
    },
    /// The operating system refused a descriptor, a thread or a ring.
    #[error("the core could not be started: {0}")]
    Io(#[source] io::Error),
}

/// Why an engine could not be started. Nothing of it is left running.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineStartError {
    /// No core was asked for.
    #[error("an engine needs at least one core")]
    NoCores,
    /// The operating system does not tell which CPUs this process may run on.
    #[error("the CPUs that this process may run on are unknown ({0}): name them")]
    Affinity(#[source] io::Error),
    /// A core could not be started.
    #[error("core {core}: {source}")]
    Core {
        /// Its number, from 0.
        core: usize,
        /// Why.
        source: StartError,
    },
    /// The connector of a core could not be made.
    #[error("core {core}: making its connector panicked")]
    ConnectorPanicked {
        /// Its number, from 0.
        core: usize,
    },
}

/// Why an acquire ended without a connection. Whoever gets one holds nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError<E> {
    /// No connection came within the acquire timeout.
    #[error("no connection within the acquire timeout")]
    AcquireTimeout,
    /// The connect that this acquire waited for failed; the source is the connector's.
    #[error("connect failed")]
    Connect(#[source] E),
    /// The connect that this acquire waited for took longer than the connect timeout.
    #[error("no connection was established within the connect timeout")]
    ConnectTimeout,
    /// The connect that this acquire waited for panicked, in the connector.
    #[error("the connector panicked")]
    ConnectPanicked,
    /// The peer ended the new connection before it could be used.
    #[error("the peer ended the new connection before it was used ({0})")]
    ClosedUnused(CloseReason),
    /// The cap on connections binds and the pending queue is full.
    #[error("the pending queue is full: {pending} are waiting")]
    QueueFull {
        /// How many were waiting when this one was refused.
        pending: u32,
    },
    /// The pool drains or has ended.
    #[error("the pool is draining")]
    Draining,
}

/// Why a job was not taken. The job has not run and never will.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// The owner's mailbox is full: it is busy, or stalled. Try again later.
    #[error("the core's mailbox is full")]
    Full,
    /// The pool drains: no new work is taken.
    #[error("the pool is draining")]
    Draining,
    /// The owning core has ended.
    #[error("the core has ended")]
    Gone,
}

/// Why a job that was taken ended without a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// The owning core ended before the job did.
    #[error("the core ended before the job did")]
    Gone,
    /// The job panicked; the core lives on.
    #[error("the job panicked")]
    Panicked,
}
