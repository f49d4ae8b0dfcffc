//! Acquire and release, the queue and its limits.
#![cfg(feature = "glommio")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use common::{DEADLINE, assert_in_order, config, exchange, poll_at_most, total, until, with_pool};
use pool_core::AcquireError;
use test_support::{HangingListener, Server, keep_alive_ok, refused_address};

#[test]
fn released_connection_is_reused() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    with_pool(config(), |core, pool| async move {
        for n in 0..100 {
            let mut conn = pool.acquire(&address).await.unwrap();
            assert_eq!(conn.is_reused(), n > 0);
            exchange(&mut conn).await.unwrap();
            conn.release();
        }
        let stats = total(&pool);
        assert_eq!((stats.acquires.fresh, stats.acquires.reused), (1, 99));
        assert_eq!(
            (
                stats.acquired.current,
                stats.idle.current,
                stats.acquires.queued
            ),
            (0, 1, 0)
        );
        assert_in_order(&core, &pool, 5).await;
    });
    assert_eq!(server.counts().accepted, 1);
}

/// Fault row B9.
#[test]
fn waiter_gets_the_released_connection_in_the_order_of_arrival() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    with_pool(config().max_connections(1), |core, pool| async move {
        let first = pool.acquire(&address).await.unwrap();
        let order = Rc::new(RefCell::new(Vec::new()));
        for n in 0..10 {
            let (pool, order) = (pool.clone(), Rc::clone(&order));
            core.spawn(async move {
                let mut conn = pool.acquire(&address).await.unwrap();
                order.borrow_mut().push(n);
                exchange(&mut conn).await.unwrap();
                conn.release();
            });
        }
        assert_eq!(total(&pool).pending.current, 10);
        first.release();
        until(&core, "all were served", || order.borrow().len() == 10).await;
        assert_eq!(*order.borrow(), (0..10).collect::<Vec<_>>());
        assert_eq!(total(&pool).acquires.queued, 10);
        assert_in_order(&core, &pool, 1).await;
    });
    assert_eq!(server.counts().accepted, 1);
}

/// Fault row A12.
#[test]
fn full_queue_refuses_at_once_and_names_its_length() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    with_pool(
        config().max_connections(1).max_pending(Some(5)),
        |core, pool| async move {
            let held = pool.acquire(&address).await.unwrap();
            let refused = Rc::new(Cell::new(0));
            for _ in 0..50 {
                let (pool, refused) = (pool.clone(), Rc::clone(&refused));
                core.spawn(async move {
                    match pool.acquire(&address).await {
                        Ok(conn) => conn.release(),
                        Err(AcquireError::QueueFull { pending }) => {
                            assert_eq!(pending, 5);
                            refused.set(refused.get() + 1);
                        }
                        Err(other) => panic!("{other}"),
                    }
                });
            }
            assert_eq!(refused.get(), 45);
            let stats = total(&pool);
            assert_eq!((stats.pending.current, stats.pending.highest), (5, 5));
            assert_eq!(stats.rejected.queue_full, 45);
            held.release();
            assert_in_order(&core, &pool, 1).await;
        },
    );
}

#[test]
fn no_queue_at_all_means_fail_fast_but_still_connects() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    with_pool(
        config().max_connections(1).max_pending(Some(0)),
        |core, pool| async move {
            let held = pool.acquire(&address).await.unwrap();
            let refused = pool.acquire(&address).await.unwrap_err();
            assert!(matches!(refused, AcquireError::QueueFull { pending: 0 }));
            held.release();
            assert_in_order(&core, &pool, 1).await;
        },
    );
}

#[test]
fn refused_connect_fails_its_waiter_with_the_cause() {
    let refused = refused_address();
    let address = refused.addr();
    with_pool(config().max_connections(2), |core, pool| async move {
        for _ in 0..20 {
            match pool.acquire(&address).await.unwrap_err() {
                AcquireError::Connect(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
                }
                other => panic!("{other}"),
            }
        }
        assert_eq!(total(&pool).connect_failed, 20);
        assert_in_order(&core, &pool, 2).await;
    });
}

/// Fault row B6.
#[test]
fn acquire_timeout_runs_for_those_behind_a_slow_connect_too() {
    let hanging = HangingListener::new();
    let address = hanging.addr();
    let timeouts = config().acquire_timeout(Some(Duration::from_millis(50)));
    with_pool(timeouts.max_connections(1), |core, pool| async move {
        let timed_out = Rc::new(Cell::new(0));
        for _ in 0..6 {
            let (pool, timed_out) = (pool.clone(), Rc::clone(&timed_out));
            core.spawn(async move {
                let error = pool.acquire(&address).await.unwrap_err();
                assert!(matches!(error, AcquireError::AcquireTimeout), "{error}");
                timed_out.set(timed_out.get() + 1);
            });
        }
        until(&core, "all have timed out", || timed_out.get() == 6).await;
        assert_eq!(total(&pool).timeouts.acquire, 6);
        assert_eq!(
            total(&pool).connecting.current,
            1,
            "the connect goes on for others"
        );
    });
}

#[test]
fn connect_timeout_fails_the_waiter_and_frees_the_slot() {
    let hanging = HangingListener::new();
    let address = hanging.addr();
    let timeouts = config().connect_timeout(Some(Duration::from_millis(30)));
    with_pool(timeouts.max_connections(1), |core, pool| async move {
        for _ in 0..3 {
            let error = pool.acquire(&address).await.unwrap_err();
            assert!(matches!(error, AcquireError::ConnectTimeout), "{error}");
        }
        assert_eq!(total(&pool).timeouts.connect, 3);
        until(&core, "the sockets are gone", || {
            core.registered_sockets() == 0
        })
        .await;
        assert_in_order(&core, &pool, 1).await;
    });
}

/// Fault row A4. A waiter that has been dropped neither holds a permit nor loses a connection.
#[test]
fn acquire_dropped_at_any_poll_leaves_nothing_behind() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    with_pool(config().max_connections(2), |core, pool| async move {
        for polls in 0..6 {
            for round in 0..20 {
                if let Some(conn) = poll_at_most(polls, pool.acquire(&address)).await {
                    conn.unwrap().release();
                }
                if round % 2 == 0 {
                    core.sleep(Duration::ZERO).await;
                }
            }
            assert_in_order(&core, &pool, 2).await;
        }
        assert_eq!(total(&pool).live(), total(&pool).idle.current);
    });
    assert!(server.counts().highest_open <= 2);
}

/// Fault row A6, in both orders of release and drop.
#[test]
fn connection_delivered_to_a_dropped_waiter_goes_to_the_next() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    with_pool(config().max_connections(1), |core, pool| async move {
        for drop_first in [true, false] {
            let held = pool.acquire(&address).await.unwrap();
            let mut dropped = Box::pin(pool.acquire(&address));
            assert!(
                futures_lite::future::poll_once(&mut dropped)
                    .await
                    .is_none()
            );
            let served = Rc::new(Cell::new(false));
            let (pool2, served2) = (pool.clone(), Rc::clone(&served));
            core.spawn(async move {
                let mut conn = pool2.acquire(&address).await.unwrap();
                exchange(&mut conn).await.unwrap();
                conn.release();
                served2.set(true);
            });
            if drop_first {
                drop(dropped);
                held.release();
            } else {
                held.release();
                drop(dropped);
            }
            until(&core, "the next waiter was served", || served.get()).await;
        }
        assert_in_order(&core, &pool, 1).await;
    });
    assert_eq!(server.counts().accepted, 1);
}

/// Fault row D12.
#[test]
fn start_of_many_acquires_stays_within_the_dials_in_flight() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    with_pool(config().dials_in_flight(10), |core, pool| async move {
        let served = Rc::new(Cell::new(0));
        for _ in 0..500 {
            let (pool, served) = (pool.clone(), Rc::clone(&served));
            core.spawn(async move {
                let mut conn = pool.acquire(&address).await.unwrap();
                exchange(&mut conn).await.unwrap();
                conn.release();
                served.set(served.get() + 1);
            });
        }
        until(&core, "all were served", || served.get() == 500).await;
        let stats = total(&pool);
        // How many connects it takes depends on how soon the first connections come back.
        assert!(stats.connecting.highest <= 10, "{stats:?}");
        assert!(stats.connects <= 500, "{stats:?}");
    });
}

#[test]
fn destination_without_anything_is_forgotten() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let short = config().idle_timeout(Some(Duration::from_millis(20)));
    with_pool(short, |core, pool| async move {
        let conn = pool.acquire(&address).await.unwrap();
        assert_eq!(pool.snapshot().destinations.len(), 1);
        conn.release();
        until(&core, "it is forgotten", || {
            pool.snapshot().destinations.is_empty()
        })
        .await;
        let stats = total(&pool);
        assert_eq!(
            (stats.opened, stats.acquires.fresh),
            (1, 1),
            "its counts are not"
        );
        assert_eq!(core.registered_sockets(), 0);
    });
}

#[test]
fn acquire_of_a_fresh_connection_is_served_at_a_cap_that_binds() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    with_pool(config().max_connections(2), |core, pool| async move {
        let stop = Rc::new(Cell::new(false));
        for _ in 0..4 {
            let (pool, stop) = (pool.clone(), Rc::clone(&stop));
            core.spawn(async move {
                while !stop.get() {
                    let mut conn = pool.acquire(&address).await.unwrap();
                    exchange(&mut conn).await.unwrap();
                    conn.release();
                }
            });
        }
        until(&core, "the cap binds", || {
            total(&pool).acquires.reused > 100 && total(&pool).pending.current > 0
        })
        .await;
        for _ in 0..10 {
            let fresh = pool
                .acquire_fresh(&address)
                .await
                .expect("it is not starved");
            assert!(!fresh.is_reused());
            fresh.release();
        }
        stop.set(true);
        assert_in_order(&core, &pool, 2).await;
    });
}

#[test]
fn loop_of_acquires_that_never_waits_lets_others_run() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    with_pool(config(), |core, pool| async move {
        let done = Rc::new(Cell::new(false));
        let timer = (core.clone(), Rc::clone(&done));
        core.spawn(async move {
            timer.0.sleep(Duration::from_millis(5)).await;
            timer.1.set(true);
        });
        let started = Instant::now();
        while !done.get() {
            pool.acquire(&address).await.unwrap().release();
            assert!(started.elapsed() < DEADLINE, "the timer has starved");
        }
    });
}
