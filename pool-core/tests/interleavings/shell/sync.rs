//! The engine's `shell::sync` as the model checker sees it.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};

use loom::sync::Condvar;
use loom::sync::atomic::AtomicUsize;
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
pub(crate) use loom::sync::{Mutex, MutexGuard};

thread_local! {
    /// loom runs all threads of a model on the thread of its test.
    static FENCES: Cell<bool> = const { Cell::new(true) };
}

/// Takes the fences out of the code under test, until the end of this thread.
pub(crate) fn remove_fences() {
    FENCES.set(false);
}

pub(crate) fn fence(order: Ordering) {
    if FENCES.get() {
        loom::sync::atomic::fence(order);
    }
}

/// crossbeam's bounded queue, step by step, with orderings that are nowhere stronger than its own:
/// a lock in its place would hide a fence that is missing around it.
pub(crate) struct ArrayQueue<T> {
    head: AtomicUsize,
    tail: AtomicUsize,
    /// `2 * position` while the slot waits for that position's item, one more while it holds it.
    stamps: Vec<AtomicUsize>,
    /// The items, which the stamps guard; the model does not look at them.
    items: Vec<std::sync::Mutex<Option<T>>>,
}

impl<T> ArrayQueue<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            head: AtomicUsize::new(0),
            tail: AtomicUsize::new(0),
            stamps: (0..capacity)
                .map(|slot| AtomicUsize::new(2 * slot))
                .collect(),
            items: (0..capacity).map(|_| std::sync::Mutex::new(None)).collect(),
        }
    }

    pub(crate) fn push(&self, item: T) -> Result<(), T> {
        let mut tail = self.tail.load(Relaxed);
        loop {
            let slot = tail % self.stamps.len();
            let stamp = self.stamps[slot].load(Acquire);
            if stamp == 2 * tail {
                match self.tail.compare_exchange(tail, tail + 1, AcqRel, Relaxed) {
                    Ok(_) => {
                        *self.items[slot].lock().unwrap() = Some(item);
                        self.stamps[slot].store(2 * tail + 1, Release);
                        return Ok(());
                    }
                    Err(moved) => {
                        tail = moved;
                        continue;
                    }
                }
            }
            if stamp < 2 * tail {
                loom::sync::atomic::fence(SeqCst);
                if self.head.load(Relaxed) + self.stamps.len() == tail {
                    return Err(item);
                }
            }
            loom::thread::yield_now();
            tail = self.tail.load(Relaxed);
        }
    }

    pub(crate) fn pop(&self) -> Option<T> {
        let mut head = self.head.load(Relaxed);
        loop {
            let slot = head % self.stamps.len();
            let stamp = self.stamps[slot].load(Acquire);
            if stamp == 2 * head + 1 {
                match self.head.compare_exchange(head, head + 1, AcqRel, Relaxed) {
                    Ok(_) => {
                        let item = self.items[slot].lock().unwrap().take();
                        let next = head + self.stamps.len();
                        self.stamps[slot].store(2 * next, Release);
                        return item;
                    }
                    Err(moved) => {
                        head = moved;
                        continue;
                    }
                }
            }
            // crossbeam has a fence here. Nothing documents it, so nothing may rely on it.
            if stamp == 2 * head && self.tail.load(Relaxed) == head {
                return None;
            }
            // Somebody has claimed the slot and is about to fill or empty it.
            loom::thread::yield_now();
            head = self.head.load(Relaxed);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(Acquire) == self.tail.load(Acquire)
    }
}

/// The eventfd, and the sleep that it ends.
#[derive(Clone)]
pub(crate) struct Alarm(Arc<(Mutex<bool>, Condvar)>);

impl Alarm {
    pub(crate) fn new() -> Self {
        Self(Arc::new((Mutex::new(false), Condvar::new())))
    }

    pub(crate) fn ring(&self) {
        let (rung, heard) = &*self.0;
        *rung.lock().unwrap() = true;
        heard.notify_one();
    }

    /// Sleeps until it has rung since it was last heard.
    pub(crate) fn wait(&self) {
        let (rung, heard) = &*self.0;
        let mut rung = rung.lock().unwrap();
        while !*rung {
            rung = heard.wait(rung).unwrap();
        }
        *rung = false;
    }
}
