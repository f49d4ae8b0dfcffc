//! The inside of a pool: the only borrower of the state.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::panic::Location;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::core::Core;
use super::guard::Pooled;
use super::handle::PoolHandle;
use super::pool::{DestinationSnapshot, PoolSnapshot};
use super::slot::{Mail, Slot};
use super::table::Table;
use crate::connector::{Connection, Connector};
use crate::error::AcquireError;
use crate::net::{PoolId, Readiness, WatchMode, WatchToken};
use crate::state::{ConnId, Disposition, Effect, KeyId, PoolState, Rejection, WaiterId};
use crate::wake::wake;
use crate::{CloseReason, PoolConfig, Timestamp};

/// What the core's turn does with a pool, whatever its type.
pub(crate) trait PoolHooks {
    fn readiness_changed(&self, conn: ConnId);
    fn next_timeout(&self) -> Option<Timestamp>;
    fn handle_timeout(&self);
    /// The core ends: nothing may be left.
    fn close_now(&self);
    fn into_any(self: Rc<Self>) -> Rc<dyn Any>;
}

pub(super) struct Shared<C: Connector> {
    pub(super) core: Core,
    id: PoolId,
    pub(super) me: Weak<Self>,
    connector: C,
    /// Borrowed only in [`mutate`](Self::mutate), and for reading in between; never across an
    /// await, a waker, or the drop of a user's value (invariant 13).
    state: RefCell<PoolState>,
    /// Room for effects, kept from one drain to the next.
    effects: Cell<Vec<Effect>>,
    keys: RefCell<HashMap<C::Key, KeyId>>,
    pub(super) names: RefCell<Table<KeyId, C::Key>>,
    pub(super) conns: RefCell<Table<ConnId, Slot<C::Connection>>>,
    waiters: RefCell<Table<WaiterId, Mail<C::Error>>>,
    /// Set once, and read by the handles on other threads.
    draining: Arc<AtomicBool>,
    drained: Cell<Option<Vec<Waker>>>,
}

impl<C: Connector> Shared<C> {
    pub(super) fn new(core: &Core, config: PoolConfig, connector: C) -> Rc<Self> {
        Rc::new_cyclic(|weak: &Weak<Self>| Self {
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
        })
    }

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
                        wake(waker);
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
            // It cannot be waited for: whoever asks is called by the check.
            Some(Slot::Checked(readiness)) => Err(readiness
                .check_flags()
                .err()
                .unwrap_or(CloseReason::StrayBytes)),
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
        if reason.is_none()
            && let Some(Slot::Held { readiness, .. }) = self.take_slot(conn)
        {
            self.put_here(conn, connection, readiness);
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

    pub(super) fn post(&self, waiter: WaiterId, mail: Mail<C::Error>) {
        let old = self.waiters.borrow_mut().insert(waiter, mail);
        if let Some(Mail::Nothing(Some(waker))) = old {
            wake(waker);
        }
    }

    fn token(&self, conn: ConnId) -> WatchToken {
        WatchToken {
            pool: self.id,
            conn,
        }
    }

    pub(super) fn put_here(&self, conn: ConnId, connection: C::Connection, readiness: Readiness) {
        readiness.forget_waiters();
        readiness.watch(WatchMode::Any, self.token(conn));
        let slot = Slot::Here {
            connection,
            readiness,
        };
        let old = self.conns.borrow_mut().insert(conn, slot);
        drop(old);
    }

    pub(super) fn take_slot(&self, conn: ConnId) -> Option<Slot<C::Connection>> {
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

    /// Checks a connection that was taken out of its slot for it, and puts it back unless the
    /// check has made the pool close it.
    fn check_here(
        &self,
        conn: ConnId,
        taken: Option<(C::Connection, Readiness)>,
    ) -> Result<(), CloseReason> {
        let Some((mut connection, readiness)) = taken else {
            return Ok(());
        };
        let verdict = self.check(&mut connection);
        let mut conns = self.conns.borrow_mut();
        if let Some(slot @ Slot::Checked(_)) = conns.get_mut(conn) {
            *slot = Slot::Here {
                connection,
                readiness,
            };
            return verdict;
        }
        drop(conns);
        self.fence_drop(connection);
        Ok(())
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
    pub(super) fn fence_drop(&self, value: C::Connection) {
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
    pub(super) fn connector(&self) -> &C {
        &self.connector
    }

    pub(super) fn handle(&self) -> PoolHandle<C> {
        PoolHandle::new(self.core.mailbox(), self.id, &self.draining)
    }

    pub(super) fn snapshot(&self) -> PoolSnapshot<C::Key> {
        let state = self.state.borrow();
        let names = self.names.borrow();
        let destinations = state.keys().filter_map(|id| {
            let (key, stats) = (names.get(id)?.clone(), state.destination_stats(id)?);
            Some(DestinationSnapshot { key, stats })
        });
        PoolSnapshot {
            destinations: destinations.collect(),
            total: state.totals(),
        }
    }

    pub(super) fn poll_drained(&self, cx: &Context<'_>) -> Poll<()> {
        if self.state.borrow().is_drained() {
            return Poll::Ready(());
        }
        let mut wakers = self.drained.take().unwrap_or_default();
        if !wakers
            .iter()
            .any(|waker: &Waker| waker.will_wake(cx.waker()))
        {
            wakers.push(cx.waker().clone());
        }
        self.drained.set(Some(wakers));
        Poll::Pending
    }
}

impl<C: Connector> PoolHooks for Shared<C> {
    fn readiness_changed(&self, conn: ConnId) {
        let verdict = {
            let mut conns = self.conns.borrow_mut();
            match conns.get_mut(conn) {
                Some(Slot::Held { readiness, .. }) if readiness.is_dead() => {
                    Err(CloseReason::Reset)
                }
                Some(slot @ Slot::Here { .. }) => {
                    let taken = slot.begin_check();
                    drop(conns);
                    self.check_here(conn, taken)
                }
                _ => Ok(()),
            }
        };
        if let Err(reason) = verdict {
            self.drive(|state, now| state.force_close(now, conn, reason));
        }
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
