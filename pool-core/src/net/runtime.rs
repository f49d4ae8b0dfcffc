//! The one module that names the runtime: glommio.
//!
//! Everything the rest needs of it is here: an executor pinned to a CPU, tasks, one timer and one
//! descriptor to sleep on. A change of runtime is a change of this file and of one dependency.

use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{AsFd, FromRawFd, IntoRawFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_io::AsyncRead;
use glommio::{GlommioError, LocalExecutor, LocalExecutorBuilder, Placement};

use crate::error::StartError;

/// A spawned task; dropping it cancels the task at the executor's next turn.
pub(crate) type Task = glommio::Task<()>;

/// The kernel feature set that glommio and the readiness set need.
const OLDEST_KERNEL: (u32, u32) = (5, 11);

/// What glommio's three rings want to lock per executor.
const MEMLOCK_NEEDED: u64 = 512 << 10;

/// glommio pins this much per ring for file I/O; a network program needs the least it accepts.
const IO_MEMORY: usize = 64 << 10;

/// Makes an executor on the calling thread, pinned to `cpu` if one is given.
///
/// glommio panics with a misleading text where io_uring is forbidden, so what it needs is probed
/// before it is asked.
pub(crate) fn executor(name: &str, cpu: Option<usize>) -> Result<LocalExecutor, StartError> {
    probe()?;
    let placement = cpu.map_or(Placement::Unbound, Placement::Fixed);
    LocalExecutorBuilder::new(placement)
        .name(name)
        .io_memory(IO_MEMORY)
        .make()
        .map_err(|e| start_error(e, cpu))
}

fn start_error(error: GlommioError<()>, cpu: Option<usize>) -> StartError {
    use glommio::{BuilderErrorKind, ReactorErrorKind};
    match (error, cpu) {
        (GlommioError::BuilderError(BuilderErrorKind::NonExistentCpus { .. }), Some(cpu)) => {
            StartError::NoSuchCpu { cpu }
        }
        (GlommioError::ReactorError(ReactorErrorKind::MemLockLimit(have, need)), _) => {
            StartError::MemlockTooLow { have, need }
        }
        (error, _) => {
            let error = io::Error::from(error);
            match error.raw_os_error() {
                Some(code) if code == rustix::io::Errno::NOMEM.raw_os_error() => {
                    StartError::MemlockExhausted
                }
                _ => StartError::Io(error),
            }
        }
    }
}

/// Asks the kernel for what the executor will need, so that its lack is told in one clear line.
fn probe() -> Result<(), StartError> {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    let mut numbers = release
        .split(['.', '-', '+'])
        .map(|part| part.parse::<u32>().ok());
    if let (Some(Some(major)), Some(Some(minor))) = (numbers.next(), numbers.next())
        && (major, minor) < OLDEST_KERNEL
    {
        return Err(StartError::KernelTooOld { release });
    }
    if let Some(have) = rustix::process::getrlimit(rustix::process::Resource::Memlock).current
        && have < MEMLOCK_NEEDED
    {
        return Err(StartError::MemlockTooLow {
            have,
            need: MEMLOCK_NEEDED,
        });
    }
    let mut params = rustix::io_uring::io_uring_params::default();
    // SAFETY: `params` is a valid, zeroed parameter block that outlives the call; the ring that
    // comes back is closed at once without having been mapped or used.
    match unsafe { rustix::io_uring::io_uring_setup(1, &mut params) } {
        Ok(_ring) => Ok(()),
        Err(rustix::io::Errno::NOMEM) => Err(StartError::MemlockExhausted),
        Err(errno) => Err(StartError::IoUringForbidden {
            cause: why_forbidden(errno),
            source: errno.into(),
        }),
    }
}

fn why_forbidden(errno: rustix::io::Errno) -> &'static str {
    match std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled")
        .as_deref()
        .map(str::trim)
    {
        Ok("1") => {
            "kernel.io_uring_disabled is 1: run with CAP_SYS_ADMIN, join the group of \
             kernel.io_uring_group, or set it to 0"
        }
        Ok("2") => "kernel.io_uring_disabled is 2: set it to 0",
        _ if errno == rustix::io::Errno::NOSYS => {
            "the kernel was built without it, or a seccomp filter hides it: allow io_uring_setup, \
             io_uring_enter and io_uring_register in the container's seccomp profile"
        }
        _ => {
            "a seccomp filter or security module refuses it: allow io_uring_setup, io_uring_enter \
             and io_uring_register in the container's seccomp profile"
        }
    }
}

/// How long a core sleeps that has no descriptor left to watch its sockets with.
const BLIND_SLEEP: Duration = Duration::from_millis(1);

/// Runs `future` and everything that it spawns on `executor`.
pub(crate) fn run<T>(executor: &LocalExecutor, future: impl Future<Output = T>) -> T {
    executor.run(future)
}

/// Starts a task. It is polled once before this returns, so no borrow may be held here.
pub(crate) fn spawn(future: impl Future<Output = ()> + 'static) -> Task {
    glommio::spawn_local(future)
}

/// Lets every task that is runnable now run once, then goes on.
pub(crate) async fn yield_now() {
    futures_lite::future::yield_now().await;
}

/// Lets the executor's own reactor turn once, so that what was cancelled reaches the kernel.
pub(crate) async fn turn_once() {
    glommio::timer::sleep(Duration::from_micros(1)).await;
}

/// Where an idle core sleeps: until its descriptor is readable, a time has passed, or the task
/// is woken.
pub(crate) struct Park {
    descriptor: OwnedFd,
    /// Kept armed from one sleep to the next until it has fired: a watch dropped while armed
    /// holds a clone of the task's waker until the reactor turns, and glommio counts those in an
    /// `i16`.
    watch: Option<glommio::net::TcpStream>,
    timer: glommio::timer::Timer,
}

impl Park {
    /// `descriptor` is the readiness set's. Call it on the executor.
    pub(crate) fn new(descriptor: OwnedFd) -> Self {
        Self {
            descriptor,
            watch: None,
            timer: glommio::timer::Timer::new(Duration::ZERO),
        }
    }

    /// Sleeps until the descriptor is readable, `limit` has passed, or `woken` says so; `woken`
    /// is asked at every poll of the task.
    pub(crate) async fn sleep(
        &mut self,
        mut limit: Option<Duration>,
        mut woken: impl FnMut(&Context<'_>) -> bool,
    ) {
        if self.watch.is_none() {
            self.watch = self.arm().ok();
        }
        if self.watch.is_none() {
            // Out of descriptors: look again soon, until one is free.
            limit = Some(limit.map_or(BLIND_SLEEP, |limit| limit.min(BLIND_SLEEP)));
        }
        if let Some(limit) = limit {
            self.timer.reset(limit);
        }
        let (watch, timer) = (&mut self.watch, &mut self.timer);
        poll_fn(|cx| {
            if woken(cx) {
                return Poll::Ready(());
            }
            if limit.is_some() && Pin::new(&mut *timer).poll(cx).is_ready() {
                return Poll::Ready(());
            }
            let fired = match &mut *watch {
                Some(watch) => Pin::new(watch).poll_read(cx, &mut [0]).is_ready(),
                None => false,
            };
            if !fired {
                return Poll::Pending;
            }
            *watch = None;
            Poll::Ready(())
        })
        .await;
    }

    /// glommio offers no "poll this descriptor". A stream over a duplicate of it arms a poll when
    /// it is created; its read is pending until that fires and then fails, as this is no socket,
    /// which means: look.
    fn arm(&self) -> io::Result<glommio::net::TcpStream> {
        let duplicate = self.descriptor.as_fd().try_clone_to_owned()?;
        // SAFETY: the duplicate is owned here and handed over whole.
        Ok(unsafe { glommio::net::TcpStream::from_raw_fd(duplicate.into_raw_fd()) })
    }
}
