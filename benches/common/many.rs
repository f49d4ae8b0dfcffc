//! Pools with many destinations or waiters.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Waker};

use pool_core::state::{Admission, Disposition, Effect, KeyId, PoolState};
use pool_core::{Acquire, Connector, Core, Pool, PoolConfig, Timestamp};

use crate::{Sharing, enter_turn, turns};

/// A pool with an idle connection to each of many destinations.
#[derive(Debug)]
pub struct Destinations {
    /// The pool.
    pub pool: Pool<Sharing>,
    /// Its keys.
    pub addresses: Vec<SocketAddr>,
}

impl Destinations {
    /// Makes one. The connections share `sockets` sockets to `peer`.
    ///
    /// # Panics
    ///
    /// If the peer accepts too few connections.
    pub async fn open(core: &Core, peer: SocketAddr, destinations: u32, sockets: usize) -> Self {
        let connector = Sharing::open(core, peer, sockets).await;
        let connector = connector.expect("the peer accepts");
        let pool = Pool::new(core, PoolConfig::default(), connector);
        let mut addresses = Vec::new();
        for number in 0..destinations {
            let [_, high, middle, low] = number.to_be_bytes();
            let address = SocketAddr::from(([10, high, middle, low], 80));
            let conn = pool.acquire(&address).await.expect("a socket is shared");
            conn.release();
            addresses.push(address);
        }
        Self { pool, addresses }
    }
}

/// Waiters for a connection to `key`, in the order of their arrival.
///
/// # Panics
///
/// If one need not wait.
pub async fn queue<C: Connector>(pool: &Pool<C>, key: &C::Key, waiters: u32) -> Vec<Acquire<C>> {
    let mut cx = Context::from_waker(Waker::noop());
    let mut queue = Vec::new();
    for turn in turns(waiters) {
        enter_turn(pool.core()).await;
        for _ in turn {
            let mut waiter = pool.acquire(key);
            let polled = Future::poll(Pin::new(&mut waiter), &mut cx);
            assert!(polled.is_pending(), "a connection was there at once");
            queue.push(waiter);
        }
    }
    queue
}

/// The state of a pool with an idle connection to each of many destinations, without sockets.
///
/// # Panics
///
/// If the state does not ask for a connect for each.
#[must_use]
pub fn state_of_many(destinations: u32) -> (PoolState, Vec<KeyId>) {
    let mut state = PoolState::new(PoolConfig::default(), 1);
    let now = Timestamp::ZERO;
    let mut keys = Vec::new();
    for _ in 0..destinations {
        let key = state.insert_key();
        let Admission::Wait(waiter) = state.acquire(now, key) else {
            panic!("there is a connection already");
        };
        let Some(Effect::Connect(conn, _)) = state.poll_effect() else {
            panic!("no connect is asked for");
        };
        assert!(state.connected(now, conn), "the connect is expected");
        while state.poll_effect().is_some() {}
        assert_eq!(state.claim(now, waiter), Some(conn));
        state.release(now, conn, Disposition::Reuse);
        keys.push(key);
    }
    (state, keys)
}

/// Acquires an idle connection and releases it, as the pool drives its state.
///
/// # Panics
///
/// If none is idle.
#[inline]
pub fn state_round(state: &mut PoolState, now: Timestamp, key: KeyId) {
    let candidate = state.idle_candidate(now, key).expect("one is idle");
    let conn = candidate.conn();
    candidate.acquire();
    state.release(now, conn, Disposition::Reuse);
    assert!(!state.has_effects(), "the warm path leaves an effect");
}
