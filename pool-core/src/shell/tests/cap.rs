//! The shared cap: one step at a time, and many cores at once.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::shell::cap::{Member, SharedCap};
use crate::shell::mailbox::Mailbox;
use crate::shell::sync::Alarm;

/// Longer than anything here takes, however slow the machine.
const DEADLINE: Duration = Duration::from_secs(30);

fn mailbox() -> Arc<Mailbox> {
    Mailbox::new(8, Alarm::new(Weak::new()))
}

fn cap(max: u32) -> SharedCap {
    SharedCap::new(max).unwrap()
}

/// Whether it was nudged since the last call.
fn nudged(mailbox: &Mailbox) -> bool {
    let jobs = std::iter::from_fn(|| mailbox.pop());
    jobs.count() > 0
}

#[test]
fn cap_of_zero_is_refused_by_name() {
    let refused = SharedCap::new(0).unwrap_err().to_string();
    assert_eq!(refused, "max_connections is 0, expected at least 1");
}

#[test]
fn permits_are_taken_and_given_back_up_to_the_cap() {
    let cap = cap(2);
    let members = [cap.join(&mailbox()), cap.join(&mailbox())];
    assert!(members.iter().all(Member::take));
    assert_eq!((cap.max(), cap.in_use()), (2, 2));
    assert!(!members[0].take());
    assert_eq!((cap.in_use(), members[0].held()), (2, 1));
    members[0].withdraw();
    members[0].give();
    members[1].give();
    assert_eq!(cap.in_use(), 0);
    assert!(members[1].take() && members[1].take());
}

#[test]
fn permit_that_is_given_up_goes_to_the_oldest_who_waits() {
    let cap = cap(1);
    let mailboxes: [_; 4] = std::array::from_fn(|_| mailbox());
    let [holder, first, second, third] = mailboxes.each_ref().map(|mailbox| cap.join(mailbox));
    assert!(holder.take());
    assert!(!first.wanted() && !holder.wanted());
    assert!(!first.take());
    assert!(holder.wanted() && !first.wanted(), "another waits, or none");
    assert!(!second.take() && !third.take());
    assert!(!first.take(), "and keeps its one place");
    assert!(first.wanted());
    mailboxes.iter().for_each(|mailbox| _ = nudged(mailbox));
    assert!(
        [&first, &second, &third]
            .iter()
            .all(|member| member.asked())
    );

    holder.give();
    assert_eq!(cap.in_use(), 1);
    assert_eq!(
        mailboxes.each_ref().map(|mailbox| nudged(mailbox)),
        [false, true, false, false]
    );
    assert_eq!(
        (second.collect(), first.collect(), first.collect()),
        (0, 1, 0)
    );
    assert!(first.asked(), "others still wait");
    second.withdraw();
    first.give();
    assert_eq!((second.collect(), third.collect()), (0, 1));
    assert!(!third.wanted() && !third.asked(), "nobody waits any more");
    third.give();
    assert_eq!(cap.in_use(), 0);
}

#[test]
fn everybody_else_is_asked_once_until_they_look() {
    let cap = cap(1);
    let mailboxes: [_; 3] = std::array::from_fn(|_| mailbox());
    let [holder, idle, wants] = mailboxes.each_ref().map(|mailbox| cap.join(mailbox));
    assert!(holder.take());
    assert!(!wants.take());
    assert!(nudged(&mailboxes[0]) && nudged(&mailboxes[1]) && !nudged(&mailboxes[2]));
    assert!(!idle.take());
    assert!(!nudged(&mailboxes[0]), "it has not looked yet");
    assert!(nudged(&mailboxes[2]));
    assert!(holder.asked() && !holder.asked());
    wants.withdraw();
    assert!(!wants.take());
    assert!(nudged(&mailboxes[0]));
    assert!(holder.asked() && holder.wanted());
}

#[test]
fn who_waits_may_get_its_own_permit() {
    let cap = cap(2);
    let mailbox = mailbox();
    let member = cap.join(&mailbox);
    assert!(member.take() && member.take() && !member.take());
    member.give();
    assert!(nudged(&mailbox));
    assert_eq!((member.collect(), member.held(), cap.in_use()), (1, 2, 2));
}

#[test]
fn leaving_gives_back_what_is_held_and_what_was_granted() {
    let cap = cap(2);
    let [holder, leaver, waiter] = [(); 3].map(|()| cap.join(&mailbox()));
    assert!(leaver.take() && holder.take());
    assert!(!leaver.take() && !waiter.take());
    holder.give();
    assert_eq!((cap.in_use(), leaver.held()), (2, 1));
    drop(leaver);
    assert_eq!((waiter.collect(), cap.in_use()), (1, 1));
    assert!(holder.take() && !waiter.take());
    drop(waiter);
    assert_eq!(
        cap.in_use(),
        1,
        "its place in the queue is gone, and so is what it had"
    );
    holder.give();
    assert_eq!(cap.in_use(), 0);
}

#[test]
fn closed_mailbox_does_not_keep_a_permit_for_ever() {
    let cap = cap(1);
    let ending = mailbox();
    let (ended, holder) = (cap.join(&ending), cap.join(&mailbox()));
    assert!(holder.take() && !ended.take());
    ending.close();
    holder.give();
    assert_eq!(cap.in_use(), 1);
    drop(ended);
    assert_eq!(cap.in_use(), 0);
}

/// A thread that stands for a core with one pool.
struct Core {
    mailbox: Arc<Mailbox>,
    eventfd: Arc<OwnedFd>,
    member: Member,
    /// The state of an xorshift64 generator.
    random: u64,
    /// Permits in the hands of all cores.
    held: Arc<AtomicU32>,
    mine: u32,
    max: u32,
}

impl Core {
    fn start(cap: &SharedCap, held: &Arc<AtomicU32>, seed: u64) -> Self {
        let eventfd = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let alarm = Alarm::new(Arc::downgrade(&eventfd));
        // So small that it is full at times.
        let mailbox = Mailbox::new(1, alarm);
        Self {
            member: cap.join(&mailbox),
            mailbox,
            eventfd,
            random: 0x9E37_79B9_7F4A_7C15 ^ seed,
            held: Arc::clone(held),
            mine: 0,
            max: cap.max(),
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 16) % bound
    }

    fn got(&mut self, permits: u32) {
        self.mine += permits;
        let before = self.held.fetch_add(permits, Ordering::Relaxed);
        assert!(before + permits <= self.max, "more permits than there are");
        assert_eq!(self.member.held(), self.mine);
    }

    fn give(&mut self) {
        self.mine -= 1;
        self.held.fetch_sub(1, Ordering::Relaxed);
        self.member.give();
    }

    /// Does what others ask for, and returns how many permits it was granted.
    fn look(&mut self) -> u32 {
        let granted = self.member.collect();
        self.got(granted);
        if self.member.asked() {
            while self.mine > 0 && self.member.wanted() {
                self.give();
            }
        }
        granted
    }

    fn wait_for_mail(&mut self) -> u32 {
        while !nudged(&self.mailbox) {
            if self.mailbox.prepare_to_park() {
                self.sleep();
                self.mailbox.unpark();
            }
        }
        self.look()
    }

    fn sleep(&self) {
        let mut readable = [PollFd::new(&self.eventfd, PollFlags::IN)];
        let limit = Timespec::try_from(DEADLINE).unwrap();
        let ready = poll(&mut readable, Some(&limit)).unwrap();
        assert_eq!(ready, 1, "a grant or its wake was lost");
        rustix::io::read(self.eventfd.as_fd(), &mut [0; 8]).unwrap();
    }

    /// Takes a permit: waits for it, loses patience, or leaves it to its last moment.
    fn take(&mut self) {
        if self.member.take() {
            self.got(1);
            return;
        }
        match self.below(4) {
            0 => self.member.withdraw(),
            1 => {}
            _ => {
                // Or all might wait for what they hold themselves.
                while self.mine > 0 {
                    self.give();
                }
                while self.wait_for_mail() == 0 {}
            }
        }
    }

    fn live(mut self, steps: u32) {
        for _ in 0..steps {
            match self.below(3) {
                0 if self.mine > 0 => self.give(),
                1 => thread::yield_now(),
                _ => self.take(),
            }
            if nudged(&self.mailbox) {
                self.look();
            }
        }
        // What it has, its member gives back.
        self.held.fetch_sub(self.mine, Ordering::Relaxed);
    }
}

#[test]
fn many_cores_that_come_and_go_never_exceed_the_cap_and_lose_no_permit() {
    const LIVES: u64 = 40;
    let (cap, held) = (cap(3), Arc::new(AtomicU32::new(0)));
    thread::scope(|scope| {
        for n in 0..4 {
            let (cap, held) = (&cap, &held);
            scope.spawn(move || {
                for life in 0..LIVES {
                    Core::start(cap, held, n * LIVES + life).live(500);
                }
            });
        }
    });
    assert_eq!((cap.in_use(), held.load(Ordering::Relaxed)), (0, 0));
    let member = cap.join(&mailbox());
    assert!((0..3).all(|_| member.take()), "every permit is there again");
}
