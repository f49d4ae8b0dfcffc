//! The tasks of a core: each behind a panic fence, all cancelled before the core ends.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use futures_lite::FutureExt;

use crate::net::runtime;
use crate::state::slab::{Slab, slab_id};

slab_id! {
    /// Names a running task.
    TaskId
}

/// Tasks that outlived the executor would keep their sockets open until the process ends, so each
/// is known here until it has ended.
pub(crate) struct Tasks {
    running: RefCell<Slab<TaskId, Option<runtime::Task>>>,
    panics: Cell<u64>,
}

impl Tasks {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self {
            running: RefCell::new(Slab::new()),
            panics: Cell::new(0),
        })
    }

    /// Starts a task. A panic in it is caught and counted; the core and the other tasks live on.
    pub(crate) fn spawn(self: &Rc<Self>, future: impl Future<Output = ()> + 'static) {
        let id = self.running.borrow_mut().insert(None);
        let tasks = Rc::clone(self);
        let task = runtime::spawn(async move {
            let ended = AssertUnwindSafe(future).catch_unwind().await;
            if ended.is_err() {
                tasks.count_panic("a task");
            }
            tasks.ended(id);
        });
        // The task has been polled once already and may have ended.
        match self.running.borrow_mut().get_mut(id) {
            Some(entry) => *entry = Some(task),
            None => drop(task.detach()),
        }
    }

    fn ended(&self, id: TaskId) {
        let task = self.running.borrow_mut().remove(id).flatten();
        if let Some(task) = task {
            // This is that task, in its last poll: it must not cancel itself.
            drop(task.detach());
        }
    }

    /// Runs user code that the driver calls, so that its panic does not end the core.
    pub(crate) fn fence<R>(&self, what: &str, call: impl FnOnce() -> R) -> Option<R> {
        let result = catch_unwind(AssertUnwindSafe(call));
        if result.is_err() {
            self.count_panic(what);
        }
        result.ok()
    }

    pub(super) fn count_panic(&self, what: &str) {
        self.panics.set(self.panics.get() + 1);
        tracing::error!(what, "panicked; the core goes on");
    }

    /// How many panics were caught.
    pub(crate) fn panics(&self) -> u64 {
        self.panics.get()
    }

    /// Cancels every task and waits until each future is dropped.
    pub(crate) async fn cancel_all(&self) {
        loop {
            // A future that is dropped may spawn: until none is left.
            let ids: Vec<TaskId> = self.running.borrow().iter().map(|(id, _)| id).collect();
            if ids.is_empty() {
                return;
            }
            for id in ids {
                let task = self.running.borrow_mut().remove(id).flatten();
                if let Some(task) = task {
                    task.cancel().await;
                }
            }
        }
    }
}
