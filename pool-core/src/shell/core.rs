//! A core: one thread, one executor, one turn.
//!
//! The driver task takes turns: harvest readiness, read the clock once, advance the timers, drain
//! the mailbox, let the woken tasks run. A turn that finds nothing ends in a sleep until there is
//! readiness, a deadline or a letter in the mailbox.

use std::cell::{Cell, RefCell, RefMut};
use std::fmt;
use std::future::Future;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use futures_lite::FutureExt;

use super::mailbox::Mailbox;
use super::shared::PoolHooks;
use super::sleep::{Elapsed, Sleep};
use super::start::CoreBuilder;
use super::tasks::Tasks;
use crate::Timestamp;
use crate::fence::wake;
use crate::net::{Poller, PoolId, WatchToken, runtime};
use crate::state::slab::Slab;
use crate::state::wheel::Wheel;

/// Jobs taken from the mailbox in one turn, so that a flood of them cannot starve the sockets.
const JOBS_PER_TURN: usize = 256;

/// Acquires answered in one turn. A task that acquires and releases in a loop and never waits for
/// anything would otherwise keep the thread, and the sockets, timers and the mailbox waiting.
const ACQUIRES_PER_TURN: u32 = 1024;

/// After a pause of more than this, what has come in meanwhile goes before what has timed out
/// meanwhile: a task that kept the thread, or a machine that stood still, is not the peer's fault.
const HELD_UP: Duration = Duration::from_millis(1);

thread_local! {
    /// The core that runs on this thread, so that a handle knows its owner.
    pub(super) static CURRENT: RefCell<Weak<CoreInner>> = const { RefCell::new(Weak::new()) };
}

/// A core, seen from the tasks that run on it. Cheap to clone, and never leaves its thread.
///
/// ```
/// use pool_core::Core;
/// use std::time::Duration;
///
/// let slept = Core::builder().run(|core| async move {
///     let before = core.now();
///     core.sleep(Duration::from_millis(5)).await;
///     core.now().saturating_duration_since(before)
/// })?;
/// assert!(slept >= Duration::from_millis(5));
/// # Ok::<(), pool_core::StartError>(())
/// ```
#[derive(Clone)]
pub struct Core(pub(super) Rc<CoreInner>);

pub(crate) struct CoreInner {
    started: Instant,
    /// What the clock said in this turn. While the driver sleeps nobody reads the clock for the
    /// tasks that something else wakes, so they read it themselves.
    now: Cell<Timestamp>,
    asleep: Cell<bool>,
    /// The deadline that the driver sleeps towards.
    armed: Cell<Timestamp>,
    /// When the last turn began.
    turned_at: Cell<Timestamp>,
    /// The turn in which acquires were counted, and how many there were.
    acquires: Cell<(u64, u32)>,
    /// The last turn let the tasks run before the timers.
    tasks_first: Cell<bool>,
    poller: Rc<Poller>,
    sleeps: RefCell<Wheel<Option<Waker>>>,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) tasks: Rc<Tasks>,
    pub(super) pools: RefCell<Slab<PoolId, Weak<dyn PoolHooks>>>,
    /// Pools whose time has come; kept for its room.
    due: Cell<Vec<Rc<dyn PoolHooks>>>,
    /// What the harvest has to tell the pools; kept for its room.
    watched: RefCell<Vec<WatchToken>>,
}

impl CoreInner {
    /// A core that has not begun its first turn.
    pub(super) fn new(poller: Rc<Poller>, mailbox: Arc<Mailbox>) -> Self {
        Self {
            started: Instant::now(),
            now: Cell::new(Timestamp::ZERO),
            asleep: Cell::new(false),
            armed: Cell::new(Timestamp::MAX),
            turned_at: Cell::new(Timestamp::ZERO),
            acquires: Cell::new((0, 0)),
            tasks_first: Cell::new(false),
            poller,
            sleeps: RefCell::new(Wheel::new()),
            mailbox,
            tasks: Tasks::new(),
            pools: RefCell::new(Slab::new()),
            due: Cell::default(),
            watched: RefCell::default(),
        }
    }
}

impl Core {
    /// Sets up a new core; see [`CoreBuilder`].
    pub fn builder() -> CoreBuilder {
        CoreBuilder::default()
    }

    /// The core that runs on this thread, if there is one.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.with_borrow(Weak::upgrade).map(Self)
    }

    /// What the clock said when it was last read, at the latest at the beginning of this turn:
    /// monotonic, and at most as old as the turn is long.
    #[must_use]
    #[inline]
    pub fn now(&self) -> Timestamp {
        if self.0.asleep.get() {
            self.read_clock()
        } else {
            self.0.now.get()
        }
    }

    /// Ends after `duration`, measured from the call.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until(self.read_clock().saturating_add(duration))
    }

    /// Ends when [`now`](Self::now) has reached `deadline`.
    pub fn sleep_until(&self, deadline: Timestamp) -> Sleep {
        Sleep::new(self.clone(), deadline)
    }

    /// Runs `future` for at most `limit`; then it is dropped.
    ///
    /// # Errors
    ///
    /// [`Elapsed`] if the limit has passed first.
    pub async fn timeout<T>(
        &self,
        limit: Duration,
        future: impl Future<Output = T>,
    ) -> Result<T, Elapsed> {
        let expired = async {
            self.sleep(limit).await;
            Err(Elapsed(limit))
        };
        async { Ok(future.await) }.or(expired).await
    }

    /// Starts a task on this core. It is polled once before this returns.
    ///
    /// A panic in it is caught, counted and traced. What still runs when the core ends is
    /// dropped.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        self.0.tasks.spawn(future);
    }

    /// How many panics in tasks and jobs of this core were caught.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.0.tasks.panics()
    }

    /// How many sockets are registered on this core.
    #[must_use]
    pub fn registered_sockets(&self) -> usize {
        self.0.poller.registered()
    }

    /// How many turns the core has taken. It takes none while there is nothing to do.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.0.poller.turn()
    }

    /// Whether one more acquire may be answered in this turn; if not, the task is woken in the next.
    pub(super) fn may_acquire(&self, cx: &Context<'_>) -> bool {
        let turn = self.turns();
        let (counted, acquires) = self.0.acquires.get();
        let acquires = if counted == turn { acquires } else { 0 };
        if acquires == ACQUIRES_PER_TURN {
            self.0.poller.defer(cx.waker());
            return false;
        }
        self.0.acquires.set((turn, acquires + 1));
        true
    }

    pub(crate) fn poller(&self) -> &Rc<Poller> {
        &self.0.poller
    }

    pub(crate) fn tasks(&self) -> &Rc<Tasks> {
        &self.0.tasks
    }

    pub(crate) fn mailbox(&self) -> &Arc<Mailbox> {
        &self.0.mailbox
    }

    pub(super) fn sleeps(&self) -> RefMut<'_, Wheel<Option<Waker>>> {
        self.0.sleeps.borrow_mut()
    }

    /// Adds a pool to the turn. Its number is the caller's to give back.
    pub(super) fn add_pool(&self, pool: Weak<dyn PoolHooks>) -> PoolId {
        self.0.pools.borrow_mut().insert(pool)
    }

    pub(super) fn remove_pool(&self, number: PoolId) {
        let pool = self.0.pools.borrow_mut().remove(number);
        drop(pool);
    }

    pub(super) fn pool(&self, number: PoolId) -> Option<Rc<dyn PoolHooks>> {
        self.0.pools.borrow().get(number).and_then(Weak::upgrade)
    }

    /// Sees to it that a sleeping driver is up in time for `deadline`.
    pub(super) fn kick_for(&self, deadline: Timestamp) {
        if self.0.asleep.get() && deadline < self.0.armed.get() {
            self.0.poller.bell().ring();
        }
    }

    /// Whether nobody but the caller sees to the timers just now.
    pub(super) fn is_asleep(&self) -> bool {
        self.0.asleep.get()
    }

    /// Reads the clock in the middle of a turn. For deadlines off the warm path: one that began
    /// with the turn would be short by what the turn has taken so far.
    pub(super) fn read_clock(&self) -> Timestamp {
        let elapsed = self.0.started.elapsed().as_nanos();
        let now = Timestamp::from_nanos(u64::try_from(elapsed).unwrap_or(u64::MAX));
        self.0.now.set(now);
        now
    }

    /// One turn; returns whether there was anything to do.
    fn turn(&self) -> bool {
        let inner = &*self.0;
        inner.poller.bell().hush();
        let mut watched = inner.watched.take();
        let mut busy = inner.poller.harvest(&mut watched);
        let now = self.read_clock();
        let held_up = now.saturating_duration_since(inner.turned_at.replace(now)) > HELD_UP;
        let tasks_first = busy && held_up && !inner.tasks_first.get();
        inner.tasks_first.set(tasks_first);
        for token in watched.drain(..) {
            if let Some(pool) = self.pool(token.pool) {
                inner
                    .tasks
                    .fence("a connection", || pool.readiness_changed(token.conn));
            }
        }
        inner.watched.replace(watched);
        if !tasks_first {
            busy |= self.fire_sleeps(now);
            busy |= self.fire_pools(now);
        }
        busy |= self.open_mail();
        busy
    }

    fn fire_sleeps(&self, now: Timestamp) -> bool {
        let mut any = false;
        loop {
            let fired = {
                let mut sleeps = self.0.sleeps.borrow_mut();
                let Some(timer) = sleeps.pop_expired(now) else {
                    return any;
                };
                sleeps.get_mut(timer).and_then(Option::take)
            };
            any = true;
            if let Some(waker) = fired {
                wake(waker);
            }
        }
    }

    /// Lets the pools look at their timers; returns whether anything came of it. New timers get
    /// their deadlines by the way, from this turn's reading of the clock.
    fn fire_pools(&self, now: Timestamp) -> bool {
        let mut due = self.0.due.take();
        {
            let pools = self.0.pools.borrow();
            let live = pools.iter().filter_map(|(_, pool)| pool.upgrade());
            due.extend(live.filter(|pool| pool.next_timeout().is_some_and(|at| at <= now)));
        }
        let mut any = false;
        for pool in due.drain(..) {
            let tasks = &self.0.tasks;
            let done = tasks.fence("a connection", || pool.handle_timeout());
            any |= done.unwrap_or(true);
        }
        self.0.due.set(due);
        any
    }

    fn open_mail(&self) -> bool {
        let mut opened = 0;
        while opened < JOBS_PER_TURN
            && let Some(job) = self.0.mailbox.pop()
        {
            self.0.tasks.fence("a job", || job(self));
            opened += 1;
        }
        if opened > 0 {
            self.deal_with_others();
        }
        opened > 0
    }

    /// Lets the pools see what other cores have done to a cap that they share: they have told by
    /// mail.
    fn deal_with_others(&self) {
        let pools: Vec<_> = {
            let pools = self.0.pools.borrow();
            let sharing = pools.iter().filter_map(|(_, pool)| pool.upgrade());
            sharing.filter(|pool| pool.shares_a_cap()).collect()
        };
        for pool in pools {
            let tasks = &self.0.tasks;
            tasks.fence("a connection", || pool.deal_with_others());
        }
    }

    fn next_deadline(&self) -> Timestamp {
        let pools = self.0.pools.borrow();
        let timeouts = pools
            .iter()
            .filter_map(|(_, pool)| pool.upgrade()?.next_timeout());
        let sleeps = self.0.sleeps.borrow().next_deadline();
        timeouts.chain(sleeps).min().unwrap_or(Timestamp::MAX)
    }

    /// Sleeps until there is something to do.
    async fn park(&self, park: &mut runtime::Park) {
        let inner = &*self.0;
        let deadline = self.next_deadline();
        let limit = (deadline < Timestamp::MAX)
            .then(|| deadline.saturating_duration_since(self.read_clock()));
        if limit == Some(Duration::ZERO) || !inner.mailbox.prepare_to_park() {
            return;
        }
        inner.armed.set(deadline);
        inner.asleep.set(true);
        park.sleep(limit, |cx| inner.poller.bell().heard(cx.waker()))
            .await;
        inner.asleep.set(false);
        inner.mailbox.unpark();
    }

    /// The driver: until it is cancelled.
    pub(super) async fn drive(&self, mut park: runtime::Park) {
        loop {
            if self.turn() {
                runtime::yield_now().await;
            } else {
                self.park(&mut park).await;
            }
        }
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}
