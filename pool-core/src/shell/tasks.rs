//! The tasks of a core: each behind a panic fence, all cancelled before the core ends.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::fence::catch;
use crate::net::runtime;
use crate::state::slab::{Slab, slab_id};

slab_id! {
    /// Names a running task.
    TaskId
}

/// Destructors that start tasks are followed to this depth at the end of a core.
const REFUSED_DEPTH: u32 = 16;

/// Tasks that outlived the executor would keep their sockets open until the process ends, so each
/// is known here until it has ended.
pub(crate) struct Tasks {
    running: RefCell<Slab<TaskId, Option<runtime::Task>>>,
    panics: Cell<u64>,
    closing: Cell<bool>,
    /// How many futures are being refused, each by the destructor of the one before.
    refusing: Cell<u32>,
}

impl Tasks {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self {
            running: RefCell::new(Slab::new()),
            panics: Cell::new(0),
            closing: Cell::new(false),
            refusing: Cell::new(0),
        })
    }

    /// Starts a task. A panic in it is caught and counted; the core and the other tasks live on.
    /// Once the core is closing, the future is dropped instead.
    pub(crate) fn spawn(self: &Rc<Self>, future: impl Future<Output = ()> + 'static) {
        if self.closing.get() {
            return self.refuse(future);
        }
        let id = self.running.borrow_mut().insert(None);
        let tasks = Rc::clone(self);
        let fenced = Fenced {
            future: Some(Box::pin(future)),
            tasks: Rc::clone(self),
        };
        let task = runtime::spawn(async move {
            fenced.await;
            tasks.ended(id);
        });
        // The task has been polled once already and may have ended.
        match self.running.borrow_mut().get_mut(id) {
            Some(entry) => *entry = Some(task),
            None => drop(task.detach()),
        }
    }

    /// Drops a future that comes too late.
    fn refuse(&self, future: impl Future<Output = ()>) {
        let depth = self.refusing.get();
        if depth == REFUSED_DEPTH {
            // A destructor that starts a task whose destructor does the same has no end.
            tracing::error!("a task that starts itself again when it is dropped is leaked");
            return std::mem::forget(future);
        }
        self.refusing.set(depth + 1);
        self.fence("a destructor", || drop(future));
        self.refusing.set(depth);
    }

    fn ended(&self, id: TaskId) {
        let task = self.running.borrow_mut().remove(id).flatten();
        if let Some(task) = task {
            // This is that task, in its last poll: it must not cancel itself.
            drop(task.detach());
        }
    }

    /// Runs user code that the driver calls, so that its panic does not end the core.
    #[inline]
    pub(crate) fn fence<R>(&self, what: &str, call: impl FnOnce() -> R) -> Option<R> {
        let result = catch(call);
        if result.is_none() {
            self.count_panic(what);
        }
        result
    }

    #[cold]
    pub(super) fn count_panic(&self, what: &str) {
        self.panics.set(self.panics.get() + 1);
        tracing::error!(what, "panicked; the core goes on");
    }

    /// How many panics were caught.
    pub(crate) fn panics(&self) -> u64 {
        self.panics.get()
    }

    /// Whether the core is ending, or has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.closing.get()
    }

    /// Cancels every task, waits until each future is dropped, and takes no more.
    pub(crate) async fn close(&self) {
        self.closing.set(true);
        let ids: Vec<TaskId> = self.running.borrow().iter().map(|(id, _)| id).collect();
        for id in ids {
            let task = self.running.borrow_mut().remove(id).flatten();
            if let Some(task) = task {
                task.cancel().await;
            }
        }
    }
}

/// A task's future behind its fence: neither a panic of its code nor one of its destructor, when
/// it ends or is cancelled, gets out.
struct Fenced<F> {
    /// None once it has ended.
    future: Option<Pin<Box<F>>>,
    tasks: Rc<Tasks>,
}

impl<F: Future<Output = ()>> Future for Fenced<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let Some(future) = &mut this.future else {
            return Poll::Ready(());
        };
        let polled = this.tasks.fence("a task", || future.as_mut().poll(cx));
        if polled == Some(Poll::Pending) {
            return Poll::Pending;
        }
        this.end();
        Poll::Ready(())
    }
}

impl<F> Fenced<F> {
    fn end(&mut self) {
        let future = self.future.take();
        self.tasks.fence("a destructor", || drop(future));
    }
}

impl<F> Drop for Fenced<F> {
    fn drop(&mut self) {
        self.end();
    }
}
