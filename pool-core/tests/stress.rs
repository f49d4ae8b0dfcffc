//! Many tasks at once on one pool, with timeouts so short that most of what can happen does.
#![cfg(feature = "glommio")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use common::{
    DEADLINE, Random, Tcp, assert_all_accounted, config, exchange, moody, total, until, with_pool,
};
use pool_core::{AcquireError, CloseReason, Core, Pool, PoolConfigBuilder, Pooled};
use test_support::{HangingListener, Server, eventually, refused_address};

fn impatient() -> PoolConfigBuilder {
    config()
        .idle_timeout(Duration::from_millis(3))
        .hold_timeout(Duration::from_millis(20))
        .acquire_timeout(Duration::from_millis(4))
        .connect_timeout(Duration::from_millis(3))
        .dials_in_flight(2)
}

/// Uses an acquired connection in one of the ways that there are.
async fn hold(core: &Core, random: &Random, mut conn: Pooled<Tcp>) {
    match random.below(10) {
        0 => drop(conn),
        1 => drop(conn.detach()),
        2 => {
            core.sleep(random.millis(25)).await;
            conn.close(CloseReason::ExchangeFailed);
        }
        _ => {
            let limit = Duration::from_millis(30);
            let exchanged = core.timeout(limit, exchange(&mut conn)).await;
            if exchanged.is_ok_and(|exchanged| exchanged.is_ok()) {
                conn.release();
            }
        }
    }
}

/// Acquires and uses connections so many times, or until the pool drains.
async fn customer(core: Core, pool: Pool<Tcp>, random: Random, addresses: Vec<SocketAddr>, n: u32) {
    for _ in 0..n {
        let (address, limit) = (random.pick(&addresses), random.millis(8));
        let acquired = match random.below(8) {
            0 => core.timeout(limit, pool.acquire_fresh(&address)).await,
            1 => Ok(pool.acquire(&address).await),
            _ => core.timeout(limit, pool.acquire(&address)).await,
        };
        match acquired {
            Ok(Ok(conn)) => hold(&core, &random, conn).await,
            Ok(Err(AcquireError::Draining)) => return,
            Ok(Err(AcquireError::QueueFull { .. })) => core.sleep(random.millis(1)).await,
            Ok(Err(_)) | Err(_) => {}
        }
    }
}

/// Starts so many customers; the count is of those that have not ended.
fn start(
    core: &Core,
    pool: &Pool<Tcp>,
    addresses: &[SocketAddr],
    seed: u64,
    customers: u64,
    acquires: u32,
) -> Rc<Cell<u64>> {
    let left = Rc::new(Cell::new(customers));
    for n in 0..customers {
        let random = Random::new(seed * 1000 + n);
        let (core2, pool, left) = (core.clone(), pool.clone(), Rc::clone(&left));
        let all = customer(core2, pool, random, addresses.to_vec(), acquires);
        core.spawn(async move {
            all.await;
            left.set(left.get() - 1);
        });
    }
    left
}

/// Every acquire ends, and then everything else.
async fn assert_all_ends(core: &Core, pool: &Pool<Tcp>, left: &Cell<u64>) {
    until(core, "every customer has been served", || left.get() == 0).await;
    until(core, "nothing is left", || {
        let stats = total(pool);
        stats.live() == 0 && stats.pending.current == 0
    })
    .await;
    until(core, "no socket is left", || core.registered_sockets() == 0).await;
    until(core, "every destination is forgotten", || {
        pool.snapshot().destinations.is_empty()
    })
    .await;
    assert_all_accounted(&total(pool));
    assert_eq!(core.panics(), 0);
}

#[test]
fn everything_ends_with_one_moody_peer() {
    let server = Server::script(moody);
    let address = server.addr();
    let config = impatient().max_connections(4).max_idle(3);
    with_pool(config, |core, pool| async move {
        let left = start(&core, &pool, &[address], 1, 48, 100);
        assert_all_ends(&core, &pool, &left).await;
    });
    eventually(DEADLINE, || server.counts().open == 0);
}

/// What a round does beside its customers.
#[derive(Clone, Copy, Debug)]
enum Round {
    Drains,
    EndsTheCore,
    GoesOn,
}

#[test]
fn everything_ends_with_many_peers_and_a_drain_or_the_end_of_the_core_among_it() {
    let moody: Vec<_> = (0..6).map(|_| Server::script(moody)).collect();
    let (refused, hanging) = (refused_address(), HangingListener::new());
    let mut addresses: Vec<_> = moody.iter().map(Server::addr).collect();
    addresses.extend([refused.addr(), hanging.addr()]);
    let rounds = [Round::Drains, Round::EndsTheCore, Round::GoesOn];
    for (seed, round) in (1..).zip(rounds.into_iter().cycle()).take(9) {
        let config = impatient().max_connections(3).max_idle(2).max_pending(10);
        let addresses = &addresses;
        with_pool(config, |core, pool| async move {
            let left = start(&core, &pool, addresses, seed, 64, 60);
            if !matches!(round, Round::GoesOn) {
                until(&core, "it is in full swing", || {
                    total(&pool).acquires.requested > 64 * 20
                })
                .await;
            }
            match round {
                Round::EndsTheCore => return,
                Round::Drains => pool.drain(Duration::from_millis(seed)).await,
                Round::GoesOn => {}
            }
            assert_all_ends(&core, &pool, &left).await;
        });
    }
    for server in &moody {
        eventually(DEADLINE, || server.counts().open == 0);
    }
}
