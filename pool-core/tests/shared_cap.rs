//! A cap that the pools of several cores share.
#![cfg(feature = "glommio")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::time::Duration;

use common::{Tcp, config, exchange, until, wait_for};
use pool_core::{CloseReason, Engine, SharedCap};
use test_support::{Server, keep_alive_ok};

fn engine(cores: usize, cap: &SharedCap) -> Engine<Tcp> {
    let builder = Engine::builder().unpinned(cores).shared_cap(cap.clone());
    let builder = builder.config(config().build().unwrap());
    builder.start(|core| Tcp(core.clone())).unwrap()
}

#[test]
fn idle_connections_of_one_core_make_room_for_another() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let cap = SharedCap::new(2).unwrap();
    let engine = engine(2, &cap);
    let handle = engine.handle();
    let use_two = move |pool: pool_core::Pool<Tcp>| async move {
        let mut one = pool.acquire(&address).await.unwrap();
        let mut other = pool.acquire(&address).await.unwrap();
        exchange(&mut one).await.unwrap();
        exchange(&mut other).await.unwrap();
        one.release();
        other.release();
        pool.snapshot().total.closed(CloseReason::Evicted)
    };
    for round in 0..10 {
        for pool in handle.pools() {
            let evicted = wait_for(pool.submit(use_two).unwrap()).unwrap();
            assert!(evicted >= round, "what is idle here goes to the other core");
            assert_eq!(cap.in_use(), 2);
        }
    }
    assert!(engine.drain_blocking(Duration::from_secs(10)).is_drained());
    assert_eq!(cap.in_use(), 0);
    assert!(server.counts().highest_open <= 2, "{:?}", server.counts());
}

#[test]
fn core_without_a_connection_gets_the_next_that_another_releases() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let cap = SharedCap::new(1).unwrap();
    let engine = engine(2, &cap);
    let handle = engine.handle();
    let busy = handle.pools()[0].submit(move |pool| async move {
        // Somebody always waits here, so that nothing is ever idle.
        for _ in 0..4 {
            let (pool, core) = (pool.clone(), pool.core().clone());
            core.spawn(async move {
                loop {
                    let mut conn = pool.acquire(&address).await.unwrap();
                    exchange(&mut conn).await.unwrap();
                    conn.release();
                }
            });
        }
        let served = || pool.snapshot().total.acquires.reused > 10;
        until(pool.core(), "it is busy", served).await;
    });
    wait_for(busy.unwrap()).unwrap();
    for _ in 0..10 {
        let other = handle.pools()[1].submit(move |pool| async move {
            let mut conn = pool.acquire(&address).await.unwrap();
            exchange(&mut conn).await.unwrap();
            conn.close(CloseReason::ConnectionClose);
        });
        wait_for(other.unwrap()).unwrap();
    }
    engine.drain_blocking(Duration::ZERO);
    assert_eq!(cap.in_use(), 0);
    assert!(server.counts().highest_open <= 1, "{:?}", server.counts());
}

/// Fault row G9.
#[test]
fn load_that_moves_between_cores_reuses_most_connections_and_starves_nobody() {
    const CORES: usize = 8;
    const ROUNDS: usize = 20;
    const EXCHANGES: usize = 200;
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let cap = SharedCap::new(4).unwrap();
    let engine = engine(CORES, &cap);
    let handle = engine.handle();
    for round in 0..ROUNDS {
        let jobs = (0..CORES / 2).map(|n| {
            let pool = &handle.pools()[(round + 2 * n) % CORES];
            pool.submit(move |pool| async move {
                for _ in 0..EXCHANGES {
                    let mut conn = pool.acquire(&address).await.unwrap();
                    exchange(&mut conn).await.unwrap();
                    conn.release();
                }
            })
        });
        let jobs: Vec<_> = jobs.collect();
        for job in jobs {
            wait_for(job.unwrap()).unwrap();
        }
        assert!(cap.in_use() <= 4);
    }
    let total = engine.drain_blocking(Duration::from_secs(10)).total();
    let served = total.acquires.fresh + total.acquires.reused;
    assert_eq!(served, (ROUNDS * CORES / 2 * EXCHANGES) as u64);
    assert!(total.acquires.reused * 10 >= served * 9, "{total:?}");
    assert_eq!(cap.in_use(), 0);
    assert!(server.counts().highest_open <= 4, "{:?}", server.counts());
}
