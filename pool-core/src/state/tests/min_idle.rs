//! `min_idle`: connections kept in advance while a destination is in use.

use super::*;

/// Ends every connect, and lets what it gives become idle.
fn connect_all(pool: &mut Pool) {
    while let Some(conn) = pool.connects.first().copied() {
        pool.connected(conn);
    }
}

/// Acquires a new connection, with connects in the background left alone.
fn open(pool: &mut Pool) -> ConnId {
    let waiter = pool.wait();
    pool.connect_for(waiter)
}

#[test]
fn idle_connections_are_made_in_advance_once_the_destination_is_used() {
    let mut pool = Pool::new(config().min_idle(2));
    pool.run();
    assert!(pool.connects.is_empty(), "it has not been used");
    open(&mut pool);
    assert_eq!(pool.gauges(), [2, 0, 1, 0]);
    connect_all(&mut pool);
    assert_eq!(pool.gauges(), [0, 2, 1, 0]);
    pool.reuse();
    assert_eq!(pool.gauges(), [1, 1, 2, 0], "made up for at once");
    connect_all(&mut pool);
    assert_eq!(pool.gauges(), [0, 2, 2, 0]);
}

#[test]
fn those_that_min_idle_keeps_outlive_the_idle_timeout_while_the_destination_is_used() {
    let mut pool = Pool::new(config().min_idle(2).idle_timeout(millis(100)));
    let conns = [open(&mut pool), open(&mut pool), open(&mut pool)];
    connect_all(&mut pool);
    conns.into_iter().for_each(|conn| pool.release(conn));
    assert_eq!(pool.gauges(), [0, 5, 0, 0]);
    pool.pass(millis(90));
    let conn = pool.reuse();
    pool.release(conn);
    pool.pass(millis(90));
    assert_eq!(pool.gauges(), [0, 2, 0, 0], "no more than that");
    assert_eq!(pool.stats().closed(CloseReason::IdleTimeout), 3);
    pool.pass(millis(10) + TICK);
    assert_eq!(pool.stats(), DestinationStats::default(), "out of use");
    assert_eq!(pool.effects().last(), Some(&Effect::ForgetKey(pool.key)));
    assert!(pool.connects.is_empty());
    assert_eq!(pool.state.next_timeout(), None);
}

#[test]
fn without_an_idle_timeout_a_destination_stays_in_use() {
    let mut pool = Pool::new(config().min_idle(1).idle_timeout(None).hold_timeout(None));
    let conn = open(&mut pool);
    connect_all(&mut pool);
    pool.pass(Duration::from_secs(1_000_000));
    let idle = pool.candidate().unwrap();
    pool.force_close(idle, CloseReason::PeerClosed);
    assert_eq!(pool.gauges(), [1, 0, 1, 0]);
    pool.close(conn);
    assert_eq!(pool.gauges(), [1, 0, 0, 0]);
}

#[test]
fn a_connection_lost_while_idle_is_replaced_only_while_the_destination_is_in_use() {
    let mut pool = Pool::new(config().min_idle(1).idle_timeout(millis(100)));
    let held = open(&mut pool);
    connect_all(&mut pool);
    pool.pass(millis(99));
    let idle = pool.candidate().unwrap();
    pool.force_close(idle, CloseReason::Reset);
    assert_eq!(pool.gauges(), [1, 0, 1, 0]);
    connect_all(&mut pool);
    pool.pass(millis(2));
    let idle = pool.candidate().unwrap();
    pool.force_close(idle, CloseReason::Reset);
    assert_eq!(pool.gauges(), [0, 0, 1, 0]);
    pool.close(held);
    assert_eq!(pool.gauges(), [0, 0, 0, 0]);
}

#[test]
fn after_a_failed_connect_only_waiters_cause_connects_until_one_succeeds() {
    let mut pool = Pool::new(config().min_idle(2).hold_timeout(None));
    let held = open(&mut pool);
    let background = pool.connects.clone();
    assert_eq!(pool.connect_failed(background[0]), None);
    assert_eq!(pool.connects, [background[1]]);
    assert_eq!(pool.connect_failed(background[1]), None);
    pool.pass(Duration::from_secs(10));
    assert!(pool.connects.is_empty(), "nobody waits");
    let waiter = pool.wait();
    assert_eq!(pool.connects.len(), 1, "its own and no other");
    assert_eq!(pool.connect_failed(pool.connects[0]), Some(waiter));
    pool.pass(millis(10));
    let waiter = pool.wait();
    pool.connect_for(waiter);
    assert_eq!(pool.connects.len(), 2, "it has succeeded");
    pool.close(held);
}

#[test]
fn connects_in_advance_keep_to_every_cap() {
    let mut pool = Pool::new(config().max_connections(2).min_idle(2));
    open(&mut pool);
    assert_eq!(pool.gauges(), [1, 0, 1, 0]);

    let mut pool = Pool::new(config().dials_in_flight(1).min_idle(3));
    open(&mut pool);
    for idle in 0..3 {
        assert_eq!(pool.gauges(), [1, idle, 1, 0]);
        let conn = pool.connects[0];
        pool.connected(conn);
    }
    assert_eq!(pool.gauges(), [0, 3, 1, 0]);
}

#[test]
fn connects_in_advance_evict_nobody_and_go_behind_those_that_starve() {
    let mut pool = Pool::new(config().max_total(2).min_idle(1));
    let [one, other] = pool.destinations();
    let first = open(pool.at(one));
    connect_all(&mut pool);
    assert_eq!(pool.gauges(), [0, 1, 1, 0]);
    let waiter = pool.at(other).wait();
    assert_eq!(pool.effects().len(), 1, "a waiter evicts");
    let second = pool.connect_for(waiter);
    assert_eq!(pool.state.totals().live(), 2);
    assert!(pool.connects.is_empty(), "there is no room in advance");
    pool.at(one).wait();
    pool.at(other).close(second);
    assert_eq!(pool.at(other).gauges(), [0, 0, 0, 0]);
    assert_eq!(pool.at(one).gauges(), [1, 0, 1, 0], "the waiter's");
    pool.close(first);
}

#[test]
fn a_draining_pool_connects_nothing_in_advance() {
    let mut pool = Pool::new(config().min_idle(2));
    let held = open(&mut pool);
    pool.drain(millis(100));
    assert_eq!(pool.gauges(), [0, 0, 1, 0], "those under way are given up");
    pool.close(held);
    assert!(pool.state.is_drained());
    assert_eq!(pool.state.totals().connects, 3, "none is even begun");
}

/// On a tick, where a timer of the pool sees the very moment.
#[test]
fn a_destination_is_in_use_until_the_idle_timeout_has_passed_and_not_at_its_end() {
    let timeout = TICK * 1000;
    let mut pool = Pool::new(config().min_idle(1).idle_timeout(timeout));
    let conn = pool.open();
    let kept = pool.connect().expect("a connect to keep one idle");
    pool.connected(kept);
    pool.close(conn);
    pool.pass(timeout - Duration::from_nanos(1));
    assert_eq!(pool.gauges(), [0, 1, 0, 0]);
    pool.pass(Duration::from_nanos(1));
    assert_eq!(pool.gauges(), [0; 4]);
}
