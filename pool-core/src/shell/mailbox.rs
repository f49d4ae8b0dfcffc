//! How work from other threads reaches a core: a bounded queue and an alarm.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::core::Core;
use super::sync::{Alarm, ArrayQueue, AtomicBool, fence};
use crate::error::SubmitError;
use crate::fence::catch;

pub(crate) type Job = Box<dyn FnOnce(&Core) + Send>;

/// The one structure of a core that other threads touch.
pub(crate) struct Mailbox {
    jobs: ArrayQueue<Job>,
    /// The owner sleeps, or is about to: whoever pushes has to sound the alarm.
    parked: AtomicBool,
    closed: AtomicBool,
    alarm: Alarm,
}

impl Mailbox {
    pub(crate) fn new(capacity: usize, alarm: Alarm) -> Arc<Self> {
        Arc::new(Self {
            jobs: ArrayQueue::new(capacity),
            parked: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            alarm,
        })
    }

    /// Queues a job and wakes the owner if it sleeps. From any thread.
    ///
    /// A job that is refused comes back dropped; one that is taken is either run or dropped by
    /// [`close`](Self::close), which ends whatever waits for its result.
    pub(crate) fn push(&self, job: Job) -> Result<(), SubmitError> {
        if self.is_closed() {
            return Err(SubmitError::Gone);
        }
        self.jobs.push(job).map_err(|_| SubmitError::Full)?;
        // Pairs with the fences in `prepare_to_park` and `close`: either the owner sees the job,
        // or this thread sees what the owner is about to do.
        fence(Ordering::SeqCst);
        if self.closed.load(Ordering::Relaxed) {
            self.discard();
        } else if self.parked.load(Ordering::Relaxed) && self.claim_alarm() {
            self.alarm.ring();
        }
        Ok(())
    }

    /// Of those who push while the owner sleeps, one sounds the alarm.
    fn claim_alarm(&self) -> bool {
        self.parked
            .compare_exchange(true, false, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Whether the owner has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The owner takes the oldest job.
    pub(crate) fn pop(&self) -> Option<Job> {
        self.jobs.pop()
    }

    /// The owner is about to sleep; `false` means that a job came in between and it must not.
    pub(crate) fn prepare_to_park(&self) -> bool {
        self.parked.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.jobs.is_empty() {
            return true;
        }
        self.unpark();
        false
    }

    /// The owner is awake and will look at the queue by itself.
    pub(crate) fn unpark(&self) {
        self.parked.store(false, Ordering::Relaxed);
    }

    /// Refuses jobs from now on and drops those that nobody has run.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.discard();
    }

    fn discard(&self) {
        while let Some(job) = self.jobs.pop() {
            // What a job has captured is a user's, and the next one must be dropped too.
            if catch(|| drop(job)).is_none() {
                tracing::error!("the destructor of a job panicked");
            }
        }
    }
}
