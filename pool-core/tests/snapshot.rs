//! Statistics as plain values: of a pool, of several, and without holding a core up.
#![cfg(feature = "glommio")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::{Tcp, config, exchange, until, with_pool};
use futures_lite::future::block_on;
use pool_core::Engine;
use test_support::{RefusedAddress, Server, keep_alive_ok, refused_address};

#[test]
fn histograms_hold_every_acquire_connect_and_hold() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    with_pool(config().max_connections(1), |core, pool| async move {
        for _ in 0..10 {
            let mut conn = pool.acquire(&address).await.unwrap();
            exchange(&mut conn).await.unwrap();
            conn.release();
        }
        let held = pool.acquire(&address).await.unwrap();
        let waiting = pool.clone();
        core.spawn(async move { waiting.acquire(&address).await.unwrap().release() });
        core.sleep(Duration::from_millis(20)).await;
        held.release();
        until(&core, "the waiter is served", || {
            pool.snapshot().total.acquires.reused == 11
        })
        .await;
        let histograms = pool.snapshot().histograms;
        assert_eq!(
            histograms.acquire_wait.count(),
            12,
            "served at once or later"
        );
        assert_eq!(
            (histograms.connect.count(), histograms.hold.count()),
            (1, 12)
        );
        let shortest = Duration::from_millis(19);
        assert!(histograms.acquire_wait.max() >= shortest, "{histograms:?}");
        assert!(histograms.hold.max() >= shortest, "{histograms:?}");
        assert!(histograms.acquire_wait.percentile(50.0) < shortest);
    });
}

#[test]
fn destinations_of_several_cores_merge_by_key() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let config = config().build().unwrap();
    let engine = Engine::builder().unpinned(2).config(config);
    let engine = engine.start(|core| Tcp(core.clone())).unwrap();
    let handle = engine.handle();
    let jobs = handle.each(move |pool| async move {
        let mut conn = pool.acquire(&address).await.unwrap();
        exchange(&mut conn).await.unwrap();
        conn.release();
    });
    for job in jobs {
        job.unwrap().wait().unwrap();
    }
    let merged = block_on(handle.snapshot()).unwrap();
    assert_eq!(merged.destinations.len(), 1);
    let (destination, total) = (&merged.destinations[0], &merged.total);
    assert_eq!((destination.key, destination.stats), (address, *total));
    assert_eq!((total.idle.current, total.acquires.fresh), (2, 2));
    assert_eq!(merged.histograms.connect.count(), 2);
    engine.drain_blocking(Duration::ZERO);
    assert!(
        block_on(handle.snapshot()).is_none(),
        "nobody is there to ask"
    );
}

/// Many addresses that refuse.
fn refused(many: usize) -> (RefusedAddress, Vec<SocketAddr>) {
    let refused = refused_address();
    let port = refused.addr().port();
    let host = |n: usize| {
        [
            127,
            1,
            u8::try_from(n >> 8).unwrap(),
            u8::try_from(n & 255).unwrap(),
        ]
    };
    let addresses = (0..many).map(|n| SocketAddr::from((host(n), port)));
    (refused, addresses.collect())
}

#[test]
fn snapshot_of_many_destinations_leaves_the_core_its_turns() {
    let (_refused, addresses) = refused(5_000);
    let config = config().build().unwrap();
    let engine = Engine::builder().unpinned(1).config(config);
    let engine = engine.start(|core| Tcp(core.clone())).unwrap();
    let handle = engine.handle().pools()[0].clone();
    let kept = handle.submit(move |pool| async move {
        let kept: Vec<_> = addresses.iter().map(|to| pool.destination(to)).collect();
        let core = pool.core().clone();
        let before = core.turns();
        let snapshot = pool.handle().snapshot().unwrap().await.unwrap();
        assert_eq!(snapshot.destinations.len(), kept.len());
        let turns = core.turns() - before;
        drop(kept);
        assert!(pool.snapshot().destinations.is_empty(), "none is kept");
        turns
    });
    let turns = kept.unwrap().wait().unwrap();
    assert!(turns >= 15, "all of them in {turns} turns");
    engine.drain_blocking(Duration::ZERO);
}
