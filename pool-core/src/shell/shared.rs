//! The inside of a pool: the only borrower of the state.

use std::any::Any;
use std::cell::{Cell, RefCell, RefMut};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::cap::{Member, SharedCap};
use super::core::Core;
use super::effects::Action;
use super::handle::PoolHandle;
use super::slot::{Answer, Open, Slot, Whereabouts};
use super::table::Table;
use crate::connector::Connector;
use crate::error::AcquireError;
use crate::net::{PoolId, Readiness, WatchMode, WatchToken};
use crate::state::{ConnId, KeyId, PoolState, WaiterId};
use crate::{CloseReason, PoolConfig, Timestamp};

/// Differs from pool to pool, so that the connections of two cores do not age in step.
fn seed() -> u64 {
    RandomState::new().hash_one(())
}

/// An empty list of actions keeps room for so many.
const KEPT_ACTIONS: usize = 256;

/// A pool without destinations keeps room for so many.
const KEPT_KEYS: usize = 64;

/// What the core's turn does with a pool, whatever its type.
pub(crate) trait PoolHooks {
    fn readiness_changed(&self, conn: ConnId);
    fn next_timeout(&self) -> Option<Timestamp>;
    /// Returns whether anything came of it.
    fn handle_timeout(&self) -> bool;
    fn shares_a_cap(&self) -> bool;
    /// There was mail: other cores may have given permits, or asked for some.
    fn deal_with_others(&self);
    /// The core ends: nothing may be left.
    fn close_now(&self);
    fn into_any(self: Rc<Self>) -> Rc<dyn Any>;
}

pub(super) struct Shared<C: Connector> {
    pub(super) core: Core,
    id: PoolId,
    pub(super) me: Weak<Self>,
    connector: C,
    /// A borrow that asks the state for something ends in [`finish`](Self::finish) or in
    /// [`mutate`](Self::mutate). None lasts across an await, a waker, or the drop of a user's value
    /// (invariant 13).
    pub(super) state: RefCell<PoolState>,
    /// Room for actions, kept from one time to the next.
    actions: Cell<Vec<Action<C>>>,
    keys: RefCell<HashMap<C::Key, KeyId, foldhash::quality::RandomState>>,
    pub(super) names: RefCell<Table<KeyId, C::Key>>,
    pub(super) conns: RefCell<Table<ConnId, Slot<C::Connection>>>,
    waiters: RefCell<Table<WaiterId, Rc<Answer<C::Error>>>>,
    /// Its part in a cap that it shares with pools of other cores.
    pub(super) member: Option<Member>,
    /// Set once, and read by the handles on other threads.
    draining: Arc<AtomicBool>,
    drained: Cell<Option<Vec<Waker>>>,
}

impl<C: Connector> Shared<C> {
    pub(super) fn new(
        core: &Core,
        config: PoolConfig,
        connector: C,
        cap: Option<&SharedCap>,
    ) -> Rc<Self> {
        let mut state = PoolState::new(config, seed());
        if cap.is_some() {
            state.share_cap();
        }
        let shared = Rc::new_cyclic(|weak: &Weak<Self>| Self {
            core: core.clone(),
            id: core.add_pool(weak.clone()),
            me: weak.clone(),
            connector,
            state: RefCell::new(state),
            actions: Cell::default(),
            keys: RefCell::default(),
            names: RefCell::new(Table::new()),
            conns: RefCell::new(Table::new()),
            waiters: RefCell::new(Table::new()),
            member: cap.map(|cap| cap.join(core.mailbox())),
            draining: Arc::default(),
            drained: Cell::new(None),
        });
        if core.tasks().is_closed() {
            // Nothing would ever carry its work out.
            shared.start_drain(Duration::ZERO);
        }
        shared
    }

    /// Changes the state once and carries out what it asks for.
    #[inline]
    pub(super) fn drive<R>(&self, change: impl FnOnce(&mut PoolState, Timestamp) -> R) -> R {
        let now = self.core.now();
        let mut state = self.state.borrow_mut();
        let result = change(&mut state, now);
        self.finish(state);
        result
    }

    /// Ends a change of the state.
    #[inline]
    pub(super) fn finish(&self, mut state: RefMut<'_, PoolState>) {
        if state.has_effects() || self.core.is_asleep() {
            let actions = self.follow_up(&mut state);
            drop(state);
            self.act(actions);
        }
    }

    /// Borrows the state, changes it once, and makes ready what it asks for, to be given to
    /// [`act`](Self::act).
    pub(super) fn mutate<R>(
        &self,
        change: impl FnOnce(&mut PoolState, Timestamp) -> R,
    ) -> (R, Vec<Action<C>>) {
        let now = self.core.now();
        let mut state = self.state.borrow_mut();
        let result = change(&mut state, now);
        let actions = self.follow_up(&mut state);
        (result, actions)
    }

    #[inline(never)]
    fn follow_up(&self, state: &mut PoolState) -> Vec<Action<C>> {
        let mut actions = Vec::new();
        if state.has_effects() {
            actions = self.actions.take();
            while let Some(effect) = state.poll_effect() {
                self.make_ready(effect, &mut actions);
            }
        }
        if self.core.is_asleep()
            && let Some(deadline) = state.next_timeout()
        {
            self.core.kick_for(deadline);
        }
        actions
    }

    /// The id of a key that the pool knows.
    #[inline]
    pub(super) fn known(&self, key: &C::Key) -> Option<KeyId> {
        self.keys.borrow().get(key).copied()
    }

    /// Keeps a key's id from ending.
    pub(super) fn pin(&self, key: &C::Key) -> KeyId {
        let id = self.key_id(key);
        self.state.borrow_mut().pin_key(id);
        id
    }

    pub(super) fn unpin(&self, id: KeyId) {
        self.drive(|state, _| state.unpin_key(id));
    }

    pub(super) fn retire(&self, key: &C::Key) {
        if let Some(id) = self.known(key) {
            self.drive(|state, now| state.retire(now, id));
        }
    }

    pub(super) fn hint_keep_alive(&self, conn: ConnId, hint: Option<Duration>) {
        self.state.borrow_mut().hint_keep_alive(conn, hint);
    }

    pub(super) fn set_config(&self, config: PoolConfig) {
        self.core.read_clock();
        self.drive(|state, now| state.set_config(now, config));
    }

    pub(super) fn config(&self) -> PoolConfig {
        self.state.borrow().config().clone()
    }

    /// The id of a key, new if the pool does not know it.
    pub(super) fn key_id(&self, key: &C::Key) -> KeyId {
        if let Some(id) = self.known(key) {
            return id;
        }
        let (id, _) = self.mutate(|state, _| state.insert_key());
        self.keys.borrow_mut().insert(key.clone(), id);
        self.names.borrow_mut().insert(id, key.clone());
        id
    }

    pub(super) fn is_connecting(&self, conn: ConnId) -> bool {
        matches!(self.conns.borrow().get(conn), Some(Slot::Connecting(_)))
    }

    /// What a waiter will be told, for the one who tells and the one who waits.
    pub(super) fn answer(&self, waiter: WaiterId) -> Rc<Answer<C::Error>> {
        let mut waiters = self.waiters.borrow_mut();
        if let Some(answer) = waiters.get(waiter) {
            return Rc::clone(answer);
        }
        let answer = Rc::default();
        waiters.insert(waiter, Rc::clone(&answer));
        answer
    }

    /// Ends a waiter without a connection; returns whom to wake.
    pub(super) fn reject(&self, waiter: WaiterId, error: AcquireError<C::Error>) -> Option<Waker> {
        let answer = self.answer(waiter);
        self.forget_waiter(waiter);
        answer.give(Err(error))
    }

    /// A waiter's id has ended. What it was told stays with whoever has its answer.
    pub(super) fn forget_waiter(&self, waiter: WaiterId) {
        let answer = self.waiters.borrow_mut().remove(waiter);
        drop(answer);
    }

    pub(super) fn start_drain(&self, grace: Duration) {
        self.draining.store(true, Ordering::Release);
        self.core.read_clock();
        self.drive(|state, now| state.drain(now, now.saturating_add(grace)));
    }

    pub(super) fn token(&self, conn: ConnId) -> WatchToken {
        WatchToken {
            pool: self.id,
            conn,
        }
    }

    pub(super) fn put_here(&self, conn: ConnId, connection: C::Connection, readiness: Readiness) {
        drop(readiness.forget_waiters());
        readiness.watch(WatchMode::Any, self.token(conn));
        let at = Whereabouts::Here(connection);
        self.put_slot(conn, Slot::Open(Open { readiness, at }));
    }

    /// What stood there before, of this connection or of a stale id, is no user's value: those
    /// are taken out when their id ends.
    pub(super) fn put_slot(&self, conn: ConnId, slot: Slot<C::Connection>) {
        let old = self.conns.borrow_mut().insert(conn, slot);
        debug_assert!(!old.as_ref().and_then(Slot::open).is_some_and(Open::is_here));
        drop(old);
    }

    pub(super) fn take_slot(&self, conn: ConnId) -> Option<Slot<C::Connection>> {
        self.conns.borrow_mut().remove(conn)
    }

    /// Drops a user's value, whose destructor may do anything, even panic.
    pub(super) fn fence_drop<T>(&self, value: T) {
        self.core.tasks().fence("a destructor", || drop(value));
    }

    pub(super) fn forget_key(&self, name: &C::Key) -> Option<C::Key> {
        let mut keys = self.keys.borrow_mut();
        let entry = keys.remove_entry(name);
        if keys.is_empty() && keys.capacity() > KEPT_KEYS {
            *keys = HashMap::default();
        }
        entry.map(|(key, _)| key)
    }

    /// Who waits for the end of the drain.
    pub(super) fn take_drained(&self) -> Vec<Waker> {
        self.drained.take().unwrap_or_default()
    }

    /// Takes back an empty list of actions for its room, unless it was an unusual many.
    pub(super) fn keep_room(&self, actions: Vec<Action<C>>) {
        if actions.capacity() <= KEPT_ACTIONS {
            self.actions.set(actions);
        }
    }

    pub(super) fn connector(&self) -> &C {
        &self.connector
    }

    pub(super) fn handle(&self) -> PoolHandle<C> {
        PoolHandle::new(self.core.mailbox(), self.id, &self.draining)
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
        let in_use_and_dead = |open: &Open<_>| match open.at {
            Whereabouts::Held(_) | Whereabouts::Probed(_) => open.readiness.is_dead(),
            Whereabouts::Here(_) | Whereabouts::Checked => false,
        };
        let dead_in_use = {
            let conns = self.conns.borrow();
            conns
                .get(conn)
                .and_then(Slot::open)
                .is_some_and(in_use_and_dead)
        };
        let verdict = match dead_in_use {
            true => Err(CloseReason::Reset),
            false => self.fitness(conn),
        };
        if let Err(reason) = verdict {
            self.drive(|state, now| state.force_close(now, conn, reason));
        }
    }

    fn next_timeout(&self) -> Option<Timestamp> {
        self.state.borrow().next_timeout()
    }

    fn handle_timeout(&self) -> bool {
        let ((), actions) = self.mutate(PoolState::handle_timeout);
        let any = !actions.is_empty();
        self.act(actions);
        any
    }

    fn shares_a_cap(&self) -> bool {
        self.member.is_some()
    }

    fn deal_with_others(&self) {
        Self::deal_with_others(self);
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
        for slot in self.conns.get_mut().take_all() {
            self.fence_drop(slot);
        }
    }
}
