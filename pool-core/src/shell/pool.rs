//! The pool of a core: the only borrower of the state.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::panic::Location;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use super::acquire::Acquire;
use super::core::Core;
use super::guard::Pooled;
use super::handle::PoolHandle;
use super::table::Table;
use crate::connector::{Connection, Connector};
use crate::error::AcquireError;
use crate::net::{PoolId, Readiness, WatchMode, WatchToken};
use crate::state::DestinationStats;
use crate::state::{ConnId, Disposition, Effect, KeyId, PoolState, Rejection, WaiterId};
use crate::{CloseReason, PoolConfig, Timestamp};

/// A pool of connections that belongs to one core.
///
/// Cheap to clone; all clones are the same pool. When the last clone, guard and acquire are gone,
/// its connections close.
///
/// A pool never leaves its thread, and neither does anything of it:
///
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// # use pool_core::{ConnectOptions, Connector, Core, Pool, TcpStream};
/// # struct Tcp(Core);
/// # impl Connector for Tcp {
/// #     type Key = std::net::SocketAddr;
/// #     type Connection = TcpStream;
/// #     type Error = std::io::Error;
/// #     async fn connect(&self, key: &Self::Key) -> std::io::Result<TcpStream> {
/// #         TcpStream::connect(&self.0, *key, &ConnectOptions::default()).await
/// #     }
/// # }
/// send::<Pool<Tcp>>();
/// ```
///
/// From elsewhere, send it work: [`handle`](Self::handle).
pub struct Pool<C: Connector> {
    pub(super) shared: Rc<Shared<C>>,
}

impl<C: Connector> Clone for Pool<C> {
    fn clone(&self) -> Self {
        Self {
            shared: Rc::clone(&self.shared),
        }
    }
}

impl<C: Connector> Pool<C> {
    /// Makes an empty pool on `core`.
    pub fn new(core: &Core, config: PoolConfig, connector: C) -> Self {
        let shared = Rc::new_cyclic(|weak: &Weak<Shared<C>>| Shared {
            core: core.clone(),
            id: core.add_pool(weak.clone()),
            me: weak.clone(),
            connector,
            state: RefCell::new(PoolState::new(config)),
            effects: Cell::default(),
            keys: RefCell::default(),
            names: RefCell::new(Table::new()),
            conns: RefCell::new(Table::new()),
            waiters: RefCell::new(Table::new()),
            draining: Arc::default(),
            drained: Cell::new(None),
        });
        Self { shared }
    }

    /// Asks for a connection to `key`: an idle one, else a new one, else the next that is
    /// released, in the order of asking.
    ///
    /// # Errors
    ///
    /// The future ends with an [`AcquireError`]; the caller holds nothing then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point leaves the queue, or hands a connection that was on its
    /// way to the next waiter.
    #[track_caller]
    pub fn acquire(&self, key: &C::Key) -> Acquire<C> {
        Acquire::new(Rc::clone(&self.shared), key.clone(), Location::caller())
    }

    /// Asks for a connection to `key` that nobody has used before: for a request that has just met
    /// a stale one. It waits in the same queue as [`acquire`](Self::acquire), and at the cap the
    /// coldest idle connection is closed for it.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    #[track_caller]
    pub fn acquire_fresh(&self, key: &C::Key) -> Acquire<C> {
        Acquire::new(Rc::clone(&self.shared), key.clone(), Location::caller()).fresh()
    }

    /// Takes an idle connection to `key` if there is one, and neither connects nor waits.
    #[track_caller]
    #[must_use]
    pub fn try_acquire(&self, key: &C::Key) -> Option<Pooled<C>> {
        self.shared.acquire_idle(key, Location::caller())
    }

    /// A handle that other threads can submit work through.
    #[must_use]
    pub fn handle(&self) -> PoolHandle<C> {
        let shared = &self.shared;
        PoolHandle::new(shared.core.mailbox(), shared.id, &shared.draining)
    }

    /// The core that owns the pool.
    #[must_use]
    pub fn core(&self) -> &Core {
        &self.shared.core
    }

    /// What makes this pool's connections.
    #[must_use]
    pub fn connector(&self) -> &C {
        &self.shared.connector
    }

    /// The pool's gauges and counts at this moment.
    #[must_use]
    pub fn snapshot(&self) -> PoolSnapshot<C::Key> {
        let state = self.shared.state.borrow();
        let names = self.shared.names.borrow();
        let destinations = state.keys().filter_map(|id| {
            let (key, stats) = (names.get(id)?.clone(), state.destination_stats(id)?);
            Some(DestinationSnapshot { key, stats })
        });
        PoolSnapshot {
            destinations: destinations.collect(),
            total: state.totals(),
        }
    }

    /// Ends the pool: idle connections close at once, new acquires are refused, waiters are served
    /// and holders may finish until `grace` has passed; what is left then is rejected and
    /// force-closed. Ends when nothing is left.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the drain.
    pub async fn drain(&self, grace: Duration) {
        self.shared.start_drain(grace);
        poll_fn(|cx| {
            if self.shared.state.borrow().is_drained() {
                return Poll::Ready(());
            }
            let mut wakers = self.shared.drained.take().unwrap_or_default();
            if !wakers
                .iter()
                .any(|waker: &Waker| waker.will_wake(cx.waker()))
            {
                wakers.push(cx.waker().clone());
            }
            self.shared.drained.set(Some(wakers));
            Poll::Pending
        })
        .await;
    }
}

impl<C: Connector> fmt::Debug for Pool<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("total", &self.snapshot().total)
            .finish_non_exhaustive()
    }
}

/// The statistics of a pool at one moment: plain values.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PoolSnapshot<K> {
    /// A destination has an entry while it has a connection, a waiter or a timer.
    pub destinations: Vec<DestinationSnapshot<K>>,
    /// Of all destinations, those included that the pool has forgotten.
    pub total: DestinationStats,
}

/// The statistics of one destination at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DestinationSnapshot<K> {
    /// The destination.
    pub key: K,
    /// Its gauges and counts.
    pub stats: DestinationStats,
}

/// What the core's turn does with a pool, whatever its type.
pub(crate) trait PoolHooks {
    fn readiness_changed(&self, conn: ConnId);
    fn next_timeout(&self) -> Option<Timestamp>;
    fn handle_timeout(&self);
    /// The core ends: nothing may be left.
    fn close_now(&self);
    fn into_any(self: Rc<Self>) -> Rc<dyn Any>;
}

/// What stands beside a connection's id.
pub(super) enum Slot<T> {
    Connecting(Abort),
    /// Idle, or delivered to a waiter that has not looked yet.
    Here {
        connection: T,
        readiness: Readiness,
    },
    /// A guard has it.
    Held {
        readiness: Readiness,
        acquired_at: &'static Location<'static>,
    },
}

/// Stops a connect: its task drops the connector's future when it is woken.
#[derive(Clone, Default)]
pub(super) struct Abort(Rc<(Cell<bool>, Cell<Option<Waker>>)>);

impl Abort {
    fn fire(&self) {
        self.0.0.set(true);
        if let Some(waker) = self.0.1.take() {
            waker.wake();
        }
    }

    async fn fired(&self) {
        poll_fn(|cx| {
            if self.0.0.get() {
                return Poll::Ready(());
            }
            let old = self.0.1.replace(Some(cx.waker().clone()));
            drop(old);
            Poll::Pending
        })
        .await;
    }
}

/// What a waiter finds when it looks.
pub(super) enum Mail<E> {
    Nothing(Option<Waker>),
    Connection(ConnId),
    Failure(AcquireError<E>),
}

pub(super) struct Shared<C: Connector> {
    pub(super) core: Core,
    id: PoolId,
    me: Weak<Self>,
    connector: C,
    /// Borrowed only in [`mutate`](Self::mutate), and for reading in between; never across an
    /// await, a waker, or the drop of a user's value (invariant 13).
    state: RefCell<PoolState>,
    /// Room for effects, kept from one drain to the next.
    effects: Cell<Vec<Effect>>,
    keys: RefCell<HashMap<C::Key, KeyId>>,
    names: RefCell<Table<KeyId, C::Key>>,
    conns: RefCell<Table<ConnId, Slot<C::Connection>>>,
    waiters: RefCell<Table<WaiterId, Mail<C::Error>>>,
    /// Set once, and read by the handles on other threads.
    draining: Arc<AtomicBool>,
    drained: Cell<Option<Vec<Waker>>>,
}

impl<C: Connector> Shared<C> {
    /// Changes the state once and carries out what it asks for.
    pub(super) fn drive<R>(&self, change: impl FnOnce(&mut PoolState, Timestamp) -> R) -> R {
        let (result, effects) = self.mutate(change);
        self.act(effects);
        result
    }

    /// Borrows the state, changes it once, and takes out the effects. They are to be given to
    /// [`act`](Self::act) before anything else happens to the pool.
    pub(super) fn mutate<R>(
        &self,
        change: impl FnOnce(&mut PoolState, Timestamp) -> R,
    ) -> (R, Vec<Effect>) {
        let now = self.core.now();
        let mut state = self.state.borrow_mut();
        let result = change(&mut state, now);
        let mut effects = Vec::new();
        if state.has_effects() {
            effects = self.effects.take();
            effects.extend(std::iter::from_fn(|| state.poll_effect()));
        }
        if self.core.is_asleep()
            && let Some(deadline) = state.next_timeout()
        {
            self.core.kick_for(deadline);
        }
        (result, effects)
    }

    /// Carries out effects, in order. No borrow is held while a user's code runs.
    pub(super) fn act(&self, mut effects: Vec<Effect>) {
        if effects.capacity() == 0 {
            return;
        }
        for effect in effects.drain(..) {
            match effect {
                Effect::Connect(conn, key) => self.start_connect(conn, key),
                Effect::AbortConnect(conn, _) => {
                    if let Some(Slot::Connecting(abort)) = self.take_slot(conn) {
                        abort.fire();
                    }
                }
                Effect::Deliver(waiter, conn) => self.post(waiter, Mail::Connection(conn)),
                Effect::Reject(waiter, why) => self.post(waiter, Mail::Failure(why.into())),
                Effect::Close(conn, reason) => self.close(conn, reason),
                Effect::ForceClose(conn, reason) => self.force_close(conn, reason),
                Effect::ForgetKey(key) => self.forget(key),
                Effect::Drained => {
                    for waker in self.drained.take().unwrap_or_default() {
                        waker.wake();
                    }
                }
                #[allow(unreachable_patterns, reason = "effects may be added")]
                _ => unreachable!("every effect has an arm"),
            }
        }
        self.effects.set(effects);
    }

    /// The id of a key, new if the pool does not know it.
    pub(super) fn key_id(&self, key: &C::Key) -> KeyId {
        if let Some(id) = self.keys.borrow().get(key) {
            return *id;
        }
        let (id, _) = self.mutate(|state, _| state.insert_key());
        self.keys.borrow_mut().insert(key.clone(), id);
        self.names.borrow_mut().insert(id, key.clone());
        id
    }

    /// Closes what is no longer fit among the idle connections of a key, from the one that would
    /// be reused next, and takes the first that is.
    pub(super) fn acquire_idle(
        &self,
        key: &C::Key,
        acquired_at: &'static Location<'static>,
    ) -> Option<Pooled<C>> {
        let id = *self.keys.borrow().get(key)?;
        loop {
            let conn = self.drive(|state, now| state.idle_candidate(now, id))?;
            match self.flags(conn) {
                Ok(()) => {
                    let reused = self.state.borrow().is_reused(conn);
                    let admission = self.drive(|state, now| state.acquire(now, id));
                    debug_assert_eq!(admission, crate::state::Admission::Reuse(conn));
                    return self.hold(conn, reused, acquired_at);
                }
                Err(reason) => self.drive(|state, now| state.force_close(now, conn, reason)),
            }
        }
    }

    /// What the flags say of a connection that is here (invariant 9).
    pub(super) fn flags(&self, conn: ConnId) -> Result<(), CloseReason> {
        match self.conns.borrow().get(conn) {
            Some(Slot::Here { readiness, .. }) => readiness.check_flags(),
            _ => Ok(()),
        }
    }

    /// Makes the guard of a connection that the state has just given out.
    pub(super) fn hold(
        &self,
        conn: ConnId,
        reused: bool,
        acquired_at: &'static Location<'static>,
    ) -> Option<Pooled<C>> {
        let mut conns = self.conns.borrow_mut();
        let slot = conns.get_mut(conn)?;
        let Slot::Here { readiness, .. } = slot else {
            return None;
        };
        let readiness = readiness.clone();
        readiness.watch(WatchMode::Death, self.token(conn));
        let held = Slot::Held {
            readiness,
            acquired_at,
        };
        let Slot::Here { connection, .. } = std::mem::replace(slot, held) else {
            unreachable!("just seen to be here");
        };
        drop(conns);
        Some(Pooled::new(self.me.upgrade()?, connection, conn, reused))
    }

    /// A guard gives its connection back, for reuse if `reason` is none.
    pub(super) fn release(
        &self,
        conn: ConnId,
        mut connection: C::Connection,
        reason: Option<CloseReason>,
    ) {
        if !matches!(self.conns.borrow().get(conn), Some(Slot::Held { .. })) {
            // Force-closed in the meantime: the state has counted it out.
            self.fence_drop(connection);
            return;
        }
        let reason = reason.or_else(|| self.check(&mut connection).err());
        if reason.is_none() {
            self.put_here(conn, connection);
            self.drive(|state, now| state.release(now, conn, Disposition::Reuse));
        } else {
            let readiness = self.take_slot(conn);
            drop(readiness);
            self.fence_drop(connection);
            let disposition = Disposition::Close(reason.unwrap_or(CloseReason::Abandoned));
            self.drive(|state, now| state.release(now, conn, disposition));
        }
    }

    /// A guard's connection leaves the pool for good, open.
    pub(super) fn detach(&self, conn: ConnId) {
        if let Some(Slot::Held { readiness, .. }) = self.take_slot(conn) {
            readiness.unwatch();
        }
        let disposition = Disposition::Close(CloseReason::Detached);
        self.drive(|state, now| state.release(now, conn, disposition));
    }

    /// Takes a waiter's mail out, or leaves a waker for when there is some.
    pub(super) fn open_mail(&self, waiter: WaiterId, waker: &Waker) -> Mail<C::Error> {
        let waker = waker.clone();
        let mut waiters = self.waiters.borrow_mut();
        let mail = waiters.remove(waiter).unwrap_or(Mail::Nothing(None));
        if matches!(mail, Mail::Nothing(_)) {
            waiters.insert(waiter, Mail::Nothing(Some(waker)));
        }
        drop(waiters);
        mail
    }

    /// A waiter has ended; what it has not read is dropped.
    pub(super) fn drop_mail(&self, waiter: WaiterId) {
        let mail = self.waiters.borrow_mut().remove(waiter);
        drop(mail);
    }

    pub(super) fn start_drain(&self, grace: Duration) {
        self.draining.store(true, Ordering::Release);
        self.drive(|state, now| state.drain(now, now.saturating_add(grace)));
    }

    fn post(&self, waiter: WaiterId, mail: Mail<C::Error>) {
        let old = self.waiters.borrow_mut().insert(waiter, mail);
        if let Some(Mail::Nothing(Some(waker))) = old {
            waker.wake();
        }
    }

    fn token(&self, conn: ConnId) -> WatchToken {
        WatchToken {
            pool: self.id,
            conn,
        }
    }

    fn put_here(&self, conn: ConnId, connection: C::Connection) {
        let readiness = connection.readiness();
        readiness.forget_waiters();
        readiness.watch(WatchMode::Any, self.token(conn));
        let slot = Slot::Here {
            connection,
            readiness,
        };
        let old = self.conns.borrow_mut().insert(conn, slot);
        drop(old);
    }

    fn take_slot(&self, conn: ConnId) -> Option<Slot<C::Connection>> {
        self.conns.borrow_mut().remove(conn)
    }

    fn close(&self, conn: ConnId, reason: CloseReason) {
        tracing::debug!(?conn, %reason, "closed");
        if let Some(Slot::Here {
            connection,
            readiness,
        }) = self.take_slot(conn)
        {
            readiness.unwatch();
            drop(readiness);
            self.fence_drop(connection);
        }
    }

    fn force_close(&self, conn: ConnId, reason: CloseReason) {
        if let Some(Slot::Held {
            readiness,
            acquired_at,
        }) = self.take_slot(conn)
        {
            tracing::warn!(?conn, %reason, %acquired_at, "force-closed while acquired");
            readiness.unwatch();
            // What arrived before a reset can still be read; the socket needs no shutting down.
            if reason != CloseReason::Reset {
                readiness.force_close(reason, acquired_at);
            }
        }
    }

    /// Asks a user's connection whether it is fit; one that panics is not.
    fn check(&self, connection: &mut C::Connection) -> Result<(), CloseReason> {
        let verdict = self
            .core
            .tasks()
            .fence("a connection's check", || connection.check());
        verdict.unwrap_or(Err(CloseReason::ExchangeFailed))
    }

    /// Drops a user's value, whose destructor may do anything, even panic.
    fn fence_drop(&self, value: C::Connection) {
        self.core
            .tasks()
            .fence("a connection's drop", || drop(value));
    }

    fn forget(&self, id: KeyId) {
        let name = self.names.borrow_mut().remove(id);
        let entry = name
            .as_ref()
            .and_then(|key| self.keys.borrow_mut().remove_entry(key));
        drop((name, entry));
    }

    fn start_connect(&self, conn: ConnId, key: KeyId) {
        let name = self.names.borrow().get(key).cloned();
        let (Some(key), Some(shared)) = (name, self.me.upgrade()) else {
            debug_assert!(false, "a connect for a key without a name");
            return;
        };
        let abort = Abort::default();
        let old = self
            .conns
            .borrow_mut()
            .insert(conn, Slot::Connecting(abort.clone()));
        drop(old);
        self.core.spawn(async move {
            // Told on every way out, a panic of the connector and the end of the core included.
            let failed = FailConnect {
                shared: &shared,
                conn,
            };
            let outcome = {
                let connect = async { Some(shared.connector.connect(&key).await) };
                let aborted = async {
                    abort.fired().await;
                    None
                };
                futures_lite::future::or(aborted, connect).await
            };
            match outcome {
                Some(Ok(connection)) => {
                    std::mem::forget(failed);
                    shared.connected(conn, connection);
                }
                Some(Err(error)) => {
                    std::mem::forget(failed);
                    shared.connect_failed(conn, Some(error));
                }
                None => {}
            }
        });
    }

    fn connected(&self, conn: ConnId, connection: C::Connection) {
        if !matches!(self.conns.borrow().get(conn), Some(Slot::Connecting(_))) {
            self.fence_drop(connection);
            return;
        }
        self.put_here(conn, connection);
        self.drive(|state, now| state.connected(now, conn));
        // The watch tells changes only: what came before it began is asked for here.
        if let Err(reason) = self.flags(conn) {
            self.drive(|state, now| state.force_close(now, conn, reason));
        }
    }

    fn connect_failed(&self, conn: ConnId, error: Option<C::Error>) {
        let slot = self.take_slot(conn);
        drop(slot);
        let (waiter, effects) = self.mutate(|state, now| state.connect_failed(now, conn));
        if let Some(waiter) = waiter {
            let error = error.map_or(AcquireError::ConnectPanicked, AcquireError::Connect);
            self.post(waiter, Mail::Failure(error));
        }
        self.act(effects);
    }
}

/// Fails a connect whose task ends without having told how.
struct FailConnect<'a, C: Connector> {
    shared: &'a Shared<C>,
    conn: ConnId,
}

impl<C: Connector> Drop for FailConnect<'_, C> {
    fn drop(&mut self) {
        self.shared.connect_failed(self.conn, None);
    }
}

impl<C: Connector> PoolHooks for Shared<C> {
    fn readiness_changed(&self, conn: ConnId) {
        let taken = {
            let mut conns = self.conns.borrow_mut();
            match conns.get_mut(conn) {
                Some(Slot::Held { readiness, .. }) if readiness.is_dead() => None,
                Some(Slot::Here { .. }) => conns.remove(conn),
                _ => return,
            }
        };
        let reason = match taken {
            None => CloseReason::Reset,
            Some(Slot::Here {
                mut connection,
                readiness,
            }) => {
                // The user's check runs without a borrow; nobody else can get at the connection
                // in between, as the state gives it out only from here.
                let verdict = self.check(&mut connection);
                let slot = Slot::Here {
                    connection,
                    readiness,
                };
                let old = self.conns.borrow_mut().insert(conn, slot);
                drop(old);
                let Err(reason) = verdict else { return };
                reason
            }
            Some(_) => return,
        };
        self.drive(|state, now| state.force_close(now, conn, reason));
    }

    fn next_timeout(&self) -> Option<Timestamp> {
        self.state.borrow().next_timeout()
    }

    fn handle_timeout(&self) {
        self.drive(PoolState::handle_timeout);
    }

    fn close_now(&self) {
        self.start_drain(Duration::ZERO);
        self.drive(PoolState::handle_timeout);
    }

    fn into_any(self: Rc<Self>) -> Rc<dyn Any> {
        self
    }
}

impl<C: Connector> Drop for Shared<C> {
    fn drop(&mut self) {
        self.core.remove_pool(self.id);
    }
}

impl<E> From<Rejection> for AcquireError<E> {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::AcquireTimeout => Self::AcquireTimeout,
            Rejection::ConnectTimeout => Self::ConnectTimeout,
            Rejection::ClosedUnused(reason) => Self::ClosedUnused(reason),
            Rejection::QueueFull { pending } => Self::QueueFull { pending },
            Rejection::Draining => Self::Draining,
        }
    }
}
