//! The readiness set of a core: every socket is registered once, edge-triggered.

use std::cell::{Cell, RefCell};
use std::io;
use std::mem::MaybeUninit;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::{Rc, Weak};
use std::sync::{self, Arc};
use std::task::Waker;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

use super::source::{Source, WatchToken};
use crate::fence::wake;
use crate::state::slab::{Slab, SlabId, slab_id};

/// Events taken from the kernel in one call.
const EVENTS: usize = 256;

/// Calls per turn, so that a flood of events cannot keep the timers from their turn.
const CALLS_PER_TURN: usize = 16;

/// The key of the descriptor that other threads wake the core with: no slab generation is 0.
const ALARM: u64 = 0;

slab_id! {
    /// Names a registered socket.
    pub(crate) SourceId
}

impl SourceId {
    /// What the kernel keeps beside the descriptor and reports with each event.
    fn to_key(self) -> u64 {
        let (index, generation) = self.parts();
        u64::from(index) << 32 | u64::from(generation.get())
    }

    fn from_key(key: u64) -> Option<Self> {
        let index = u32::try_from(key >> 32).ok()?;
        let generation = u32::try_from(key & u64::from(u32::MAX)).ok()?;
        Some(Self::new(index, NonZeroU32::new(generation)?))
    }
}

/// Calls the core's driver back to work.
#[derive(Default)]
pub(crate) struct Bell {
    rung: Cell<bool>,
    driver: RefCell<Option<Waker>>,
}

impl Bell {
    /// The next turn must come without waiting for anything else.
    pub(crate) fn ring(&self) {
        self.rung.set(true);
        let driver = self.driver.take();
        if let Some(driver) = driver {
            wake(driver);
        }
    }

    /// Whether it has rung since the last call; if not, `waker` is called when it does.
    pub(crate) fn heard(&self, waker: &Waker) -> bool {
        if self.rung.take() {
            return true;
        }
        let waker = Some(waker.clone());
        let old = self.driver.replace(waker);
        drop(old);
        false
    }

    /// The driver is at work: what rang so far is answered.
    pub(crate) fn hush(&self) {
        self.rung.set(false);
        let driver = self.driver.take();
        drop(driver);
    }
}

/// A core's readiness set.
pub(crate) struct Poller {
    epoll: OwnedFd,
    alarm: Arc<OwnedFd>,
    bell: Bell,
    sources: RefCell<Slab<SourceId, Weak<Source>>>,
    /// Tasks that used up what they may do in one turn.
    deferred: RefCell<Vec<Waker>>,
    turn: Cell<u64>,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Rc<Self>> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let alarm = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        // Edge-triggered, so that it need not be read: each write is an edge.
        let events = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &alarm, EventData::new_u64(ALARM), events)?;
        Ok(Rc::new(Self {
            epoll,
            alarm,
            bell: Bell::default(),
            sources: RefCell::new(Slab::new()),
            deferred: RefCell::new(Vec::new()),
            turn: Cell::new(0),
        }))
    }

    /// A duplicate of the set's descriptor, which is readable whenever there are events.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.epoll.as_fd().try_clone_to_owned()
    }

    /// The descriptor whose writing ends the core's sleep. It ends with the set, whoever still
    /// knows it.
    pub(crate) fn alarm(&self) -> sync::Weak<OwnedFd> {
        Arc::downgrade(&self.alarm)
    }

    pub(super) fn register(&self, source: &Rc<Source>) -> io::Result<SourceId> {
        let id = self.sources.borrow_mut().insert(Rc::downgrade(source));
        let key = id.to_key();
        let events =
            EventFlags::IN | EventFlags::PRI | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        if let Err(errno) = epoll::add(&self.epoll, source.fd(), EventData::new_u64(key), events) {
            self.sources.borrow_mut().remove(id);
            return Err(errno.into());
        }
        Ok(id)
    }

    /// The descriptor leaves the kernel's set by itself when it is closed: nobody duplicates it.
    pub(super) fn deregister(&self, id: SourceId) {
        self.sources.borrow_mut().remove(id);
    }

    /// How many sockets are registered.
    pub(crate) fn registered(&self) -> usize {
        self.sources.borrow().len()
    }

    /// How many turns there have been.
    pub(crate) fn turn(&self) -> u64 {
        self.turn.get()
    }

    /// Has the task woken at the next turn instead of going on in this one.
    pub(crate) fn defer(&self, waker: &Waker) {
        let waker = waker.clone();
        self.deferred.borrow_mut().push(waker);
        self.bell.ring();
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Takes in all events that the kernel has, wakes the tasks they concern and appends to
    /// `watched` what the pools have to hear of. Returns whether there was anything.
    ///
    /// # Panics
    ///
    /// If the kernel refuses to be asked, which no peer and no limit brings about.
    pub(crate) fn harvest(&self, watched: &mut Vec<WatchToken>) -> bool {
        self.turn.set(self.turn.get().wrapping_add(1));
        let deferred = std::mem::take(&mut *self.deferred.borrow_mut());
        let mut any = !deferred.is_empty();
        for waker in deferred {
            wake(waker);
        }
        let mut space = [MaybeUninit::<Event>::uninit(); EVENTS];
        for _ in 0..CALLS_PER_TURN {
            let at_once = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            let (events, _) = match epoll::wait(&self.epoll, &mut space[..], Some(&at_once)) {
                Ok(events) => events,
                Err(rustix::io::Errno::INTR) => break,
                Err(errno) => panic!("the readiness set is broken: {errno}"),
            };
            any |= !events.is_empty();
            for event in &*events {
                watched.extend(self.dispatch(event));
            }
            if events.len() < EVENTS {
                break;
            }
        }
        any
    }

    fn dispatch(&self, event: &Event) -> Option<WatchToken> {
        let id = SourceId::from_key(event.data.u64())?;
        let source = self.sources.borrow().get(id).and_then(Weak::upgrade);
        source?.apply(event.flags)
    }
}
