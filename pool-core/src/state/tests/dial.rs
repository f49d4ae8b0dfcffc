//! Connects: how many, how often, for whom.

use super::*;

fn fail_all(pool: &mut Pool) {
    for conn in pool.connects.clone() {
        pool.connect_failed(conn);
    }
}

/// Fault row D12.
#[test]
fn a_start_up_herd_dials_no_more_than_allowed_at_once() {
    let mut pool = Pool::new(config().max_connections(500).dials_in_flight(10));
    let mut waiters: Vec<_> = (0..500).map(|_| pool.wait()).collect();
    let mut rounds = 0;
    while !waiters.is_empty() {
        assert!(pool.connects.len() <= 10);
        for conn in pool.connects.clone() {
            pool.connected(conn);
        }
        while let Some(conn) = waiters.first().and_then(|waiter| pool.claim(*waiter)) {
            waiters.remove(0);
            pool.release(conn);
        }
        rounds += 1;
    }
    assert!(rounds < 5, "released connections serve the others");
    let stats = pool.stats();
    assert_eq!(
        (
            stats.connecting.highest,
            stats.acquires.fresh + stats.acquires.reused
        ),
        (10, 500)
    );
    assert!(stats.connects < 100, "{}", stats.connects);
}

#[test]
fn a_failed_connect_fails_the_oldest_waiter_only() {
    let mut pool = Pool::new(config());
    let [first, second] = [pool.wait(), pool.wait()];
    let [_, younger] = pool.connects[..] else {
        panic!()
    };
    assert_eq!(pool.connect_failed(younger), Some(first));
    assert_eq!(pool.connect_failed(younger), None, "stale");
    pool.connected(pool.connects[0]);
    assert!(pool.claim(second).is_some());
    let stats = pool.stats();
    assert_eq!(
        (stats.connect_failed, stats.acquires.failed, stats.opened),
        (1, 1, 1)
    );
}

#[test]
fn a_failed_connect_without_waiters_fails_nobody() {
    let mut pool = Pool::new(config());
    let waiter = pool.wait();
    pool.cancel(waiter);
    assert_eq!(pool.connect_failed(pool.connects[0]), None);
}

/// Fault row A7: whatever way a connect ends, its slot is free again.
#[test]
fn failing_connects_do_not_use_up_the_slots() {
    let mut pool = Pool::new(config().max_connections(2).connect_timeout(millis(500)));
    for round in 0..300 {
        let waiter = pool.wait();
        pool.pass(millis(110));
        let conn = pool.connects[0];
        match round % 4 {
            0 => assert_eq!(pool.connect_failed(conn), Some(waiter)),
            1 => drop(pool.pass(millis(400))),
            2 => pool.cancel(waiter),
            _ => pool.force_close(conn, CloseReason::Reset),
        }
        pool.cancel(waiter);
    }
    fail_all(&mut pool);
    pool.pass(millis(200));
    pool.effects();
    let totals = pool.state.totals();
    assert_eq!(
        totals.connects,
        totals.connect_failed + totals.connect_aborted
    );
    assert!(
        totals.timeouts.connect >= 75 && totals.connect_aborted >= 75,
        "{totals:?}"
    );
    assert_eq!(pool.gauges(), [0, 0, 0, 0]);
    pool.open();
    pool.open();
    assert_eq!(pool.gauges(), [0, 0, 2, 0]);
}

#[test]
fn waiters_get_new_connects_after_a_failure_when_the_backoff_is_over() {
    let mut pool = Pool::new(config().max_connections(4));
    for _ in 0..8 {
        pool.wait();
    }
    fail_all(&mut pool);
    assert_eq!(pool.gauges(), [0, 0, 0, 4]);
    pool.now = pool.now + Duration::from_micros(900);
    pool.wait();
    assert!(
        pool.connects.is_empty(),
        "the backoff holds for newcomers too"
    );
    pool.pass(millis(1));
    assert_eq!(pool.gauges(), [4, 0, 0, 1]);
    assert_eq!(pool.stats().connects, 8);
}

#[test]
fn the_pauses_between_failures_double_and_a_success_ends_them() {
    let mut pool = Pool::new(config().max_connections(1).acquire_timeout(None));
    for _ in 0..12 {
        pool.wait();
    }
    let mut pauses = Vec::new();
    for _ in 0..9 {
        fail_all(&mut pool);
        let start = pool.now;
        while pool.connects.is_empty() {
            pool.pass(TICK);
        }
        pauses.push(pool.now.saturating_duration_since(start).as_millis());
    }
    assert!(
        pauses
            .iter()
            .zip([1, 2, 4, 8, 16, 32, 64, 100, 100])
            .all(|(is, least)| { (least..=least + 2).contains(is) }),
        "{pauses:?}"
    );
    let waiter = pool.waiters[9];
    let conn = pool.connects[0];
    pool.connected(conn);
    pool.claim(waiter).unwrap();
    pool.close(conn);
    assert_eq!(pool.connects.len(), 1, "no backoff after a success");
    fail_all(&mut pool);
    pool.pass(millis(1) + TICK);
    assert_eq!(pool.connects.len(), 1, "and the next one starts small");
}

#[test]
fn a_caller_in_a_loop_does_not_dial_a_refusing_peer_without_pause() {
    let mut pool = Pool::new(config());
    for _ in 0..1000 {
        let waiter = pool.wait();
        fail_all(&mut pool);
        pool.pass(millis(1));
        pool.cancel(waiter);
    }
    let connects = pool.state.totals().connects;
    assert!(connects < 40, "{connects} connects in a second");
}

#[test]
fn a_connect_that_hangs_is_aborted_and_the_oldest_waiter_told() {
    let mut pool = Pool::new(
        config()
            .connect_timeout(millis(100))
            .acquire_timeout(millis(100)),
    );
    let waiter = pool.wait();
    let conn = pool.connects[0];
    pool.pass(millis(99));
    assert!(pool.effects().is_empty());
    pool.pass(millis(1) + TICK);
    assert_eq!(
        pool.effects(),
        [
            Effect::AbortConnect(conn, CloseReason::ConnectTimeout),
            Effect::Reject(waiter, Rejection::ConnectTimeout),
        ],
        "of two timeouts that run out together, the connect's says more"
    );
    assert!(!pool.connected(conn), "what a late connect made is dropped");
    let stats = pool.stats();
    assert_eq!(
        (
            stats.timeouts.connect,
            stats.connect_failed,
            stats.timeouts.acquire
        ),
        (1, 1, 0)
    );
    assert_eq!(stats.closed_total(), 0, "it was never open");
}

/// Fault row D6: a connection that was dialled and never used expires like any other.
#[test]
fn a_connection_nobody_used_expires() {
    for reason in [CloseReason::IdleTimeout, CloseReason::MaxLifetime] {
        let times = match reason {
            CloseReason::IdleTimeout => config().idle_timeout(millis(1000)),
            _ => config().idle_timeout(None).max_lifetime(millis(1000)),
        };
        let mut pool = Pool::new(times.connect_timeout(None));
        let waiter = pool.wait();
        pool.cancel(waiter);
        pool.pass(millis(5000));
        let conn = pool.connects[0];
        pool.connected(conn);
        // A lifetime is up to a tenth shorter.
        pool.pass(millis(899));
        assert_eq!(
            pool.gauges(),
            [0, 1, 0, 0],
            "its time starts when it is open"
        );
        pool.pass(millis(101) + TICK);
        assert_eq!(
            pool.effects(),
            [Effect::Close(conn, reason), Effect::ForgetKey(pool.key)]
        );
    }
}

/// Fault row A10: one close, one connect.
#[test]
fn a_close_is_followed_by_one_connect() {
    let mut pool = Pool::new(config().max_connections(1));
    pool.open();
    for _ in 0..1000 {
        let waiter = pool.wait();
        pool.wait();
        let held = pool.held.pop().unwrap();
        pool.close(held);
        assert_eq!((pool.connects.len(), pool.gauges()), (1, [1, 0, 0, 1]));
        let conn = pool.connects[0];
        pool.connected(conn);
        let claimed = pool.claim(waiter).unwrap();
        pool.held.push(claimed);
        let second = pool.waiters.pop().unwrap();
        pool.cancel(second);
        pool.effects();
    }
}

#[test]
fn an_aborted_connect_is_dialled_again_for_its_waiter() {
    let mut pool = Pool::new(config());
    let waiter = pool.wait();
    let conn = pool.connects[0];
    pool.force_close(conn, CloseReason::Reset);
    assert_eq!(
        pool.effects(),
        [Effect::AbortConnect(conn, CloseReason::Reset)]
    );
    assert!(!pool.connected(conn));
    pool.connected(pool.connects[0]);
    assert!(pool.claim(waiter).is_some());
}
