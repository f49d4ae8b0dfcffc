//! The shared cap: no permit is lost or given twice, and nobody waits for one in vain.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use loom::thread;

use crate::explore;
use crate::shell::Core;
use crate::shell::cap::{Member, SharedCap};
use crate::shell::mailbox::Mailbox;
use crate::shell::sync::Alarm;

/// A core with one pool, which looks at its part in the cap after each batch of mail and at no
/// other time.
struct Pool {
    mailbox: Arc<Mailbox>,
    alarm: Alarm,
    member: Member,
    /// Permits in the hands of all pools. The model checker does not see it, so it adds no order.
    held: Arc<AtomicU32>,
    max: u32,
}

/// So many pools that share a cap.
fn pools<const N: usize>(cap: &SharedCap) -> [Pool; N] {
    let held = Arc::new(AtomicU32::new(0));
    std::array::from_fn(|_| {
        let alarm = Alarm::new();
        let mailbox = Mailbox::new(1, alarm.clone());
        let member = cap.join(&mailbox);
        Pool {
            mailbox,
            alarm,
            member,
            held: Arc::clone(&held),
            max: cap.max(),
        }
    })
}

impl Pool {
    /// Waits for mail.
    fn open_mail(&self) {
        let mut opened = false;
        while !opened {
            while let Some(job) = self.mailbox.pop() {
                job(&Core);
                opened = true;
            }
            if !opened && self.mailbox.prepare_to_park() {
                self.alarm.wait();
                self.mailbox.unpark();
            }
        }
    }

    /// Takes a permit, or waits until one is granted.
    fn take(&self) {
        if !self.member.take() {
            self.open_mail();
            while self.member.collect() == 0 {
                self.open_mail();
            }
        }
        assert!(self.held.fetch_add(1, Relaxed) < self.max);
    }

    fn give(&self) {
        self.held.fetch_sub(1, Relaxed);
        self.member.give();
    }

    /// Keeps a permit until somebody asks for it.
    fn give_when_asked(&self) {
        self.open_mail();
        while !self.member.asked() {
            self.open_mail();
        }
        assert!(self.member.wanted());
        self.give();
    }
}

/// Each pool on a thread of its own, the first on this one.
fn run<const N: usize>(pools: [Pool; N], life: impl Fn(usize, Pool) + Clone + Send + 'static) {
    let mut pools = pools.into_iter().enumerate();
    let first = pools.next();
    let others: Vec<_> = pools
        .map(|(n, pool)| {
            let life = life.clone();
            thread::spawn(move || life(n, pool))
        })
        .collect();
    if let Some((n, pool)) = first {
        life(n, pool);
    }
    for other in others {
        other.join().unwrap();
    }
}

fn everybody_gets_the_only_permit<const N: usize>() {
    let cap = SharedCap::new(1).unwrap();
    run(pools::<N>(&cap), |_, pool| {
        pool.take();
        pool.give();
    });
    assert_eq!(cap.in_use(), 0);
}

#[test]
fn two_get_the_only_permit_in_turn() {
    explore(Some(5), everybody_gets_the_only_permit::<2>);
}

#[test]
fn three_get_the_only_permit_in_turn() {
    explore(Some(2), everybody_gets_the_only_permit::<3>);
}

#[test]
fn who_waits_gets_what_another_keeps_until_it_is_asked() {
    explore(Some(4), || {
        let cap = SharedCap::new(1).unwrap();
        let pools = pools::<2>(&cap);
        pools[0].take();
        run(pools, |n, pool| match n {
            0 => pool.give_when_asked(),
            _ => pool.take(),
        });
        assert_eq!(cap.in_use(), 0, "who leaves gives back what it has");
    });
}

#[test]
fn full_mailbox_loses_neither_the_request_nor_the_grant() {
    explore(Some(4), || {
        let cap = SharedCap::new(1).unwrap();
        let pools = pools::<2>(&cap);
        pools[0].take();
        for pool in &pools {
            pool.mailbox.push(Box::new(|_| {})).unwrap();
        }
        run(pools, |n, pool| match n {
            0 => pool.give_when_asked(),
            _ => pool.take(),
        });
        assert_eq!(cap.in_use(), 0);
    });
}

#[test]
fn who_withdraws_or_leaves_takes_no_permit_along() {
    for leaves in [false, true] {
        explore(Some(2), move || {
            let cap = SharedCap::new(1).unwrap();
            let pools = pools::<3>(&cap);
            pools[0].take();
            run(pools, move |n, pool| match n {
                0 => pool.give(),
                1 => pool.take(),
                _ if pool.member.take() || leaves => {}
                _ => {
                    pool.member.withdraw();
                    for _ in 0..pool.member.collect() {
                        pool.member.give();
                    }
                    assert_eq!(pool.member.held(), 0);
                }
            });
            assert_eq!(cap.in_use(), 0);
        });
    }
}
