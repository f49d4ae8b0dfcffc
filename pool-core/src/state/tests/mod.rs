//! Behaviours of the state machine, by theme, in virtual time.

mod acquire;
mod cancel;
mod dial;
mod drain;
mod heartbeat;
mod keep_alive;
mod many;
mod min_idle;
mod overflow;
mod patience;
mod permits;
mod pins;
mod release;
mod retune;
mod room;
mod timers;
mod wheel;

use std::time::Duration;

use super::*;
use crate::config::PoolConfigBuilder;
use crate::{CloseReason, ReuseOrder};

pub(super) fn config() -> PoolConfigBuilder {
    PoolConfig::builder()
}

pub(super) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Longer than any timer may be late.
pub(super) const TICK: Duration = Duration::from_nanos(1 << 19);

/// A state with one destination, or several in turn, driven by hand. Every call is followed by all invariants.
pub(super) struct Pool {
    pub(super) state: PoolState,
    pub(super) now: Timestamp,
    pub(super) key: KeyId,
    /// Connects that were started and not yet answered, the oldest first.
    pub(super) connects: Vec<ConnId>,
    /// Effects other than `Connect`, not yet looked at.
    pub(super) effects: Vec<Effect>,
    /// What [`open`](Self::open) and [`wait`](Self::wait) returned.
    pub(super) held: Vec<ConnId>,
    pub(super) waiters: Vec<WaiterId>,
}

impl Pool {
    pub(super) fn new(config: PoolConfigBuilder) -> Self {
        let mut state = PoolState::new(config.build().unwrap(), 0);
        let key = state.insert_key();
        Self {
            state,
            now: Timestamp::ZERO,
            key,
            connects: Vec::new(),
            effects: Vec::new(),
            held: Vec::new(),
            waiters: Vec::new(),
        }
    }

    /// A pool whose connections need permits, which the test grants or denies.
    pub(super) fn under_a_shared_cap(config: PoolConfigBuilder) -> Self {
        let mut pool = Self::new(config);
        pool.state.share_cap();
        pool
    }

    /// Destinations that are not forgotten when they have nothing, so that their counts stay.
    pub(super) fn destinations<const N: usize>(&mut self) -> [KeyId; N] {
        std::array::from_fn(|_| {
            let key = self.state.insert_key();
            self.state.pin_key(key);
            key
        })
    }

    /// Turns to a destination: what follows is about it.
    pub(super) fn at(&mut self, key: KeyId) -> &mut Self {
        self.key = key;
        self
    }

    /// The oldest connect to the destination that has not been answered.
    pub(super) fn connect(&self) -> Option<ConnId> {
        let mut connects = self.connects.iter().copied();
        connects.find(|conn| self.state.conns[*conn].key == self.key)
    }

    /// Ends the oldest connect to the destination, and has the waiter claim what it gives.
    pub(super) fn connect_for(&mut self, waiter: WaiterId) -> ConnId {
        let conn = self.connect().expect("a connect to the destination");
        assert!(self.connected(conn));
        assert_eq!(self.claim(waiter), Some(conn));
        let delivery = Effect::Deliver(waiter, conn);
        self.effects.retain(|effect| *effect != delivery);
        conn
    }

    /// Ends a turn as a driver would: carries out the effects, reads the clock, and checks the state.
    pub(super) fn run(&mut self) {
        self.carry_out();
        while self.state.next_timeout().is_some_and(|at| at <= self.now) {
            self.state.handle_timeout(self.now);
            self.carry_out();
        }
    }

    fn carry_out(&mut self) {
        loop {
            let promised = self.state.has_effects();
            let Some(effect) = self.state.poll_effect() else {
                break;
            };
            assert!(promised, "{effect:?} is not announced");
            match effect {
                Effect::Connect(conn, _) => self.connects.push(conn),
                other => {
                    if let Effect::AbortConnect(conn, _) = other {
                        self.connects.retain(|other| *other != conn);
                    }
                    self.effects.push(other);
                }
            }
        }
        assert!(!self.state.has_effects());
        self.state.check().unwrap();
    }

    /// What happened since the last look.
    pub(super) fn effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    pub(super) fn acquire(&mut self) -> Admission {
        if self.state.destination_stats(self.key).is_none() {
            self.key = self.state.insert_key();
        }
        let admission = self.state.acquire(self.now, self.key);
        self.run();
        admission
    }

    pub(super) fn reuse(&mut self) -> ConnId {
        match self.acquire() {
            Admission::Reuse(conn) => conn,
            other => panic!("{other:?}"),
        }
    }

    /// Which idle connection is next to be handed out.
    pub(super) fn candidate(&mut self) -> Option<ConnId> {
        self.candidate_of(self.key)
    }

    pub(super) fn candidate_of(&mut self, key: KeyId) -> Option<ConnId> {
        let candidate = self.state.idle_candidate(self.now, key)?;
        let (conn, reused) = (candidate.conn(), candidate.is_reused());
        assert_eq!(reused, self.state.is_reused(conn), "{conn:?}");
        Some(conn)
    }

    pub(super) fn wait(&mut self) -> WaiterId {
        match self.acquire() {
            Admission::Wait(waiter) => {
                self.waiters.push(waiter);
                waiter
            }
            other => panic!("{other:?}"),
        }
    }

    /// Acquires a new connection.
    pub(super) fn open(&mut self) -> ConnId {
        let waiter = self.wait();
        let conn = self.connects[0];
        assert!(self.connected(conn));
        assert_eq!(self.effects(), [Effect::Deliver(waiter, conn)]);
        self.waiters.pop();
        self.claim(waiter).unwrap();
        self.held.push(conn);
        conn
    }

    pub(super) fn connected(&mut self, conn: ConnId) -> bool {
        self.connects.retain(|other| *other != conn);
        let expected = self.state.connected(self.now, conn);
        self.run();
        expected
    }

    pub(super) fn connect_failed(&mut self, conn: ConnId) -> Option<WaiterId> {
        self.connects.retain(|other| *other != conn);
        let waiter = self.state.connect_failed(self.now, conn);
        self.run();
        waiter
    }

    pub(super) fn claim(&mut self, waiter: WaiterId) -> Option<ConnId> {
        let conn = self.state.claim(self.now, waiter);
        self.run();
        conn
    }

    pub(super) fn cancel(&mut self, waiter: WaiterId) {
        self.state.cancel(self.now, waiter);
        self.run();
    }

    pub(super) fn release(&mut self, conn: ConnId) {
        self.state.release(self.now, conn, Disposition::Reuse);
        self.run();
    }

    pub(super) fn close(&mut self, conn: ConnId) {
        self.state.release(
            self.now,
            conn,
            Disposition::Close(CloseReason::ConnectionClose),
        );
        self.run();
    }

    pub(super) fn force_close(&mut self, conn: ConnId, reason: CloseReason) {
        self.state.force_close(self.now, conn, reason);
        self.run();
    }

    pub(super) fn wait_fresh(&mut self) -> WaiterId {
        let admission = self.state.acquire_fresh(self.now, self.key);
        self.run();
        match admission {
            Admission::Wait(waiter) => waiter,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn grant(&mut self) {
        self.state.grant_permit(self.now);
        self.run();
    }

    pub(super) fn deny(&mut self) {
        self.state.deny_permit(self.now);
        self.run();
    }

    pub(super) fn probe_ended(&mut self, conn: ConnId, healthy: bool) {
        self.state.probe_ended(self.now, conn, healthy);
        self.run();
    }

    pub(super) fn set_config(&mut self, config: PoolConfigBuilder) {
        self.state.set_config(self.now, config.build().unwrap());
        self.run();
    }

    pub(super) fn drain(&mut self, grace: Duration) {
        self.state.drain(self.now, self.now + grace);
        self.run();
    }

    /// Lets time pass, waking when the state asks for it. Returns how often it did.
    pub(super) fn pass(&mut self, duration: Duration) -> usize {
        let end = self.now + duration;
        let mut wakes = 0;
        while let Some(next) = self.state.next_timeout().filter(|next| *next <= end) {
            self.now = next.max(self.now);
            self.state.handle_timeout(self.now);
            assert!(self.state.next_timeout().is_none_or(|next| next > self.now));
            self.run();
            wakes += 1;
        }
        self.now = end;
        wakes
    }

    pub(super) fn stats(&self) -> DestinationStats {
        self.state.destination_stats(self.key).unwrap_or_default()
    }

    /// Connecting, idle, acquired and pending.
    pub(super) fn gauges(&self) -> [u32; 4] {
        let stats = self.stats();
        [stats.connecting, stats.idle, stats.acquired, stats.pending].map(|gauge| gauge.current)
    }
}

/// A generator that gives the same numbers for the same seed.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next()).unwrap() % bound
    }

    pub(super) fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    pub(super) fn pick<T: Copy>(&mut self, items: &[T]) -> Option<T> {
        (!items.is_empty()).then(|| items[self.below(items.len())])
    }
}
