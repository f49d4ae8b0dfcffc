//! The mailbox: each job that was taken is run or dropped, and no owner sleeps over one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use loom::thread;
use pool_core::SubmitError;

use crate::explore;
use crate::shell::Core;
use crate::shell::mailbox::{Job, Mailbox};
use crate::shell::sync::{Alarm, remove_fences};

/// What has become of the jobs. The model checker does not see it, so it adds no order.
#[derive(Clone, Default)]
struct Fates(Arc<(AtomicU32, AtomicU32)>);

impl Fates {
    fn ran(&self) -> u32 {
        self.0.0.load(Relaxed)
    }

    fn dropped(&self) -> u32 {
        self.0.1.load(Relaxed)
    }

    fn job(&self) -> Job {
        struct Unrun(Option<Fates>);
        impl Drop for Unrun {
            fn drop(&mut self) {
                if let Some(fates) = self.0.take() {
                    fates.0.1.fetch_add(1, Relaxed);
                }
            }
        }
        let mut unrun = Unrun(Some(self.clone()));
        Box::new(move |_: &Core| {
            let fates = unrun.0.take().expect("a job runs once");
            fates.0.0.fetch_add(1, Relaxed);
        })
    }
}

struct Case {
    mailbox: Arc<Mailbox>,
    alarm: Alarm,
    fates: Fates,
}

impl Case {
    fn new(capacity: usize) -> Self {
        let alarm = Alarm::new();
        Self {
            mailbox: Mailbox::new(capacity, alarm.clone()),
            alarm,
            fates: Fates::default(),
        }
    }

    /// A thread that pushes so many jobs and returns how many were taken.
    fn sender(&self, jobs: u32) -> thread::JoinHandle<u32> {
        let (mailbox, fates) = (Arc::clone(&self.mailbox), self.fates.clone());
        thread::spawn(move || {
            let pushed = (0..jobs).map(|_| mailbox.push(fates.job()));
            u32::try_from(pushed.filter(Result::is_ok).count()).unwrap()
        })
    }

    /// Runs what is there.
    fn open(&self) {
        while let Some(job) = self.mailbox.pop() {
            job(&Core);
        }
    }

    /// Sleeps if the mailbox allows it, as the driver does.
    fn park(&self) {
        if self.mailbox.prepare_to_park() {
            self.alarm.wait();
            self.mailbox.unpark();
        }
    }

    fn run_until(&self, jobs: u32) {
        loop {
            self.open();
            if self.fates.ran() == jobs {
                return;
            }
            self.park();
        }
    }
}

fn owner_parks_while_one_sends() {
    let case = Case::new(2);
    let sender = case.sender(2);
    case.run_until(2);
    assert_eq!(sender.join().unwrap(), 2);
}

#[test]
fn owner_that_parks_is_woken_for_each_job() {
    explore(Some(4), owner_parks_while_one_sends);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_its_fences_the_owner_sleeps_over_a_job() {
    explore(None, || {
        remove_fences();
        owner_parks_while_one_sends();
    });
}

#[test]
fn owner_that_parks_is_woken_whoever_of_two_sends() {
    explore(Some(2), || {
        let case = Case::new(2);
        let senders = [case.sender(1), case.sender(1)];
        case.run_until(2);
        assert_eq!(senders.map(|sender| sender.join().unwrap()), [1, 1]);
    });
}

#[test]
fn owner_that_something_else_woke_is_woken_the_next_time() {
    explore(None, || {
        let case = Case::new(1);
        let sender = case.sender(1);
        if case.mailbox.prepare_to_park() {
            // A socket ends the sleep, and the alarm may ring behind it.
            case.mailbox.unpark();
        }
        case.run_until(1);
        assert_eq!(sender.join().unwrap(), 1);
    });
}

#[test]
fn full_mailbox_refuses_and_loses_nothing() {
    explore(None, || {
        let case = Case::new(1);
        let senders = [case.sender(1), case.sender(1)];
        case.open();
        let taken: u32 = senders.map(|sender| sender.join().unwrap()).iter().sum();
        case.open();
        assert!(taken >= 1, "there was room for one");
        assert_eq!((case.fates.ran(), case.fates.dropped()), (taken, 2 - taken));
    });
}

fn owner_closes_while(senders: u32, jobs: u32) {
    let case = Case::new(2);
    let senders: Vec<_> = (0..senders).map(|_| case.sender(jobs)).collect();
    let all = jobs * u32::try_from(senders.len()).unwrap();
    if let Some(job) = case.mailbox.pop() {
        job(&Core);
    }
    case.mailbox.close();
    for sender in senders {
        sender.join().unwrap();
    }
    // The mailbox is still there, so none is in it.
    assert_eq!(case.fates.ran() + case.fates.dropped(), all);
    let late = case.mailbox.push(case.fates.job());
    assert_eq!(late, Err(SubmitError::Gone));
}

#[test]
fn job_that_meets_the_close_is_run_dropped_or_refused() {
    explore(Some(4), || owner_closes_while(1, 2));
}

#[test]
fn jobs_of_two_that_meet_the_close_are_run_dropped_or_refused() {
    explore(Some(2), || owner_closes_while(2, 1));
}

#[test]
#[should_panic(expected = "left == right")]
fn without_its_fences_the_close_leaves_a_job_behind() {
    explore(None, || {
        remove_fences();
        owner_closes_while(1, 1);
    });
}
