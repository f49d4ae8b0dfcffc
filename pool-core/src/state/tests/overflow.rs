//! Connections beyond `max_connections`, for acquires that have timed out.

use super::*;

/// One connection, which is held, and a limit of unpooled ones.
fn pool_at_its_limit(config: PoolConfigBuilder, unpooled: u32) -> Pool {
    let limits = config.max_connections(1).max_unpooled(unpooled);
    let mut pool = Pool::new(limits.acquire_timeout(millis(50)).hold_timeout(None));
    pool.open();
    pool
}

fn time_out(pool: &mut Pool) {
    pool.pass(millis(50) + TICK);
}

/// Fault row A1: with "dial anyway on timeout" the counter of connections only grows.
#[test]
fn unpooled_connects_that_fail_leave_the_counters_as_they_were() {
    let mut pool = pool_at_its_limit(config(), 100);
    let waiters: Vec<_> = (0..100).map(|_| pool.wait()).collect();
    time_out(&mut pool);
    assert!(pool.effects().is_empty(), "nobody is refused yet");
    assert_eq!(pool.connects.len(), 100);
    for waiter in waiters {
        let live = usize::try_from(pool.stats().live()).unwrap();
        assert_eq!(live, 1 + pool.connects.len());
        let refused = pool.connects[0];
        assert_eq!(pool.connect_failed(refused), Some(waiter));
    }
    assert_eq!(pool.stats().acquires.failed, 100);
    assert_eq!(pool.stats().unpooled.current, 0);
    assert_eq!(pool.stats().unpooled.highest, 100);
    let held = pool.held[0];
    pool.release(held);
    assert_eq!(pool.gauges(), [0, 1, 0, 0], "permits balance");
    assert_eq!(pool.reuse(), held);
    let waiter = pool.wait();
    pool.release(held);
    assert_eq!(pool.claim(waiter), Some(held));
    assert!(pool.connects.is_empty());
}

#[test]
fn no_more_than_max_unpooled_are_made_and_the_others_fail() {
    let mut pool = pool_at_its_limit(config(), 2);
    let waiters: Vec<_> = (0..4).map(|_| pool.wait()).collect();
    time_out(&mut pool);
    let refused = |at: usize| Effect::Reject(waiters[at], Rejection::AcquireTimeout);
    assert_eq!(pool.effects(), [refused(2), refused(3)]);
    assert_eq!(pool.gauges(), [2, 0, 1, 0]);
    assert_eq!(pool.stats().timeouts.acquire, 2);

    let mut pool = pool_at_its_limit(config(), 0);
    let waiter = pool.wait();
    time_out(&mut pool);
    assert_eq!(
        pool.effects(),
        [Effect::Reject(waiter, Rejection::AcquireTimeout)]
    );
}

#[test]
fn an_unpooled_connection_is_for_its_waiter_and_is_closed_at_its_release() {
    let mut pool = pool_at_its_limit(config(), 1);
    let waiter = pool.wait();
    time_out(&mut pool);
    let other = pool.wait();
    let unpooled = pool.connects[0];
    assert!(pool.connected(unpooled));
    assert_eq!(pool.effects(), [Effect::Deliver(waiter, unpooled)]);
    assert_eq!(pool.claim(waiter), Some(unpooled));
    pool.release(unpooled);
    assert_eq!(
        pool.effects(),
        [Effect::Close(unpooled, CloseReason::Overflow)],
        "the limit holds again, whoever waits"
    );
    assert_eq!(pool.gauges(), [0, 0, 1, 1]);
    assert_eq!(pool.stats().unpooled.current, 0);
    pool.release(pool.held[0]);
    assert_eq!(pool.claim(other), Some(pool.held[0]));
}

#[test]
fn a_release_is_not_for_the_waiter_whose_unpooled_connect_is_under_way() {
    let mut pool = pool_at_its_limit(config(), 1);
    let waiter = pool.wait();
    time_out(&mut pool);
    pool.release(pool.held[0]);
    assert_eq!(pool.claim(waiter), None);
    assert_eq!(pool.gauges(), [1, 1, 0, 0]);
    let conn = pool.connect_for(waiter);
    assert_ne!(conn, pool.held[0]);
}

#[test]
fn an_unpooled_connect_takes_no_room_from_the_pooled_ones() {
    let mut pool = pool_at_its_limit(config(), 1);
    pool.wait();
    time_out(&mut pool);
    let waiter = pool.wait();
    pool.close(pool.held[0]);
    assert_eq!(pool.gauges(), [2, 0, 0, 0]);
    let pooled = *pool.connects.last().unwrap();
    pool.connected(pooled);
    assert_eq!(pool.claim(waiter), Some(pooled));
}

#[test]
fn a_waiter_that_leaves_has_its_unpooled_connect_aborted() {
    let mut pool = pool_at_its_limit(config(), 1);
    let waiter = pool.wait();
    time_out(&mut pool);
    let conn = pool.connects[0];
    pool.cancel(waiter);
    assert_eq!(
        pool.effects(),
        [Effect::AbortConnect(conn, CloseReason::Abandoned)]
    );
    assert!(!pool.connected(conn));
    assert_eq!(pool.gauges(), [0, 0, 1, 0]);
}

#[test]
fn an_unpooled_connection_that_nobody_claims_serves_a_waiter_or_is_closed() {
    for someone_waits in [true, false] {
        let mut pool = pool_at_its_limit(config(), 1);
        let waiter = pool.wait();
        time_out(&mut pool);
        let conn = pool.connects[0];
        pool.connected(conn);
        let other = someone_waits.then(|| pool.wait());
        pool.effects();
        pool.cancel(waiter);
        match other {
            Some(other) => assert_eq!(pool.claim(other), Some(conn)),
            None => assert_eq!(pool.effects(), [Effect::Close(conn, CloseReason::Overflow)]),
        }
    }
}

#[test]
fn an_unpooled_connect_that_hangs_ends_with_its_waiter() {
    let mut pool = pool_at_its_limit(config().connect_timeout(millis(100)), 1);
    let waiter = pool.wait();
    time_out(&mut pool);
    let conn = pool.connects[0];
    pool.pass(millis(98));
    assert!(pool.effects().is_empty());
    pool.pass(millis(2) + TICK);
    assert_eq!(
        pool.effects(),
        [
            Effect::AbortConnect(conn, CloseReason::ConnectTimeout),
            Effect::Reject(waiter, Rejection::ConnectTimeout),
        ]
    );
    assert_eq!(pool.gauges(), [0, 0, 1, 0]);
}

#[test]
fn a_drain_ends_unpooled_connects_at_its_deadline() {
    let mut pool = pool_at_its_limit(config().connect_timeout(None), 1);
    let waiter = pool.wait();
    time_out(&mut pool);
    let (conn, held) = (pool.connects[0], pool.held[0]);
    pool.drain(millis(100));
    assert!(pool.effects().is_empty(), "its waiter still needs it");
    pool.pass(millis(101));
    assert!(pool.state.is_drained());
    let effects = pool.effects();
    for expected in [
        Effect::AbortConnect(conn, CloseReason::Drained),
        Effect::Reject(waiter, Rejection::Draining),
        Effect::ForceClose(held, CloseReason::Drained),
    ] {
        assert!(effects.contains(&expected), "{effects:?}");
    }
}

#[test]
fn the_total_cap_and_the_backoff_hold_for_unpooled_connects() {
    let mut pool = pool_at_its_limit(config().max_total(1), 5);
    let waiter = pool.wait();
    time_out(&mut pool);
    let refused = |waiter| [Effect::Reject(waiter, Rejection::AcquireTimeout)];
    assert_eq!(pool.effects(), refused(waiter));

    let mut pool = pool_at_its_limit(config(), 5);
    let first = pool.wait();
    pool.pass(Duration::from_micros(600));
    let second = pool.wait();
    pool.pass(millis(49) + Duration::from_micros(800));
    let conn = pool.connects[0];
    assert_eq!(pool.connect_failed(conn), Some(first));
    pool.pass(Duration::from_micros(700));
    assert_eq!(pool.effects(), refused(second), "a connect has just failed");
}
