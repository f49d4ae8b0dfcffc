//! A change of limits and timeouts while the pool is in use.

use super::*;

fn surplus(conn: ConnId) -> Effect {
    Effect::Close(conn, CloseReason::Surplus)
}

#[test]
fn the_config_is_the_one_that_was_set_last() {
    let first = config().max_connections(7).build().unwrap();
    let mut pool = Pool::new(first.to_builder());
    assert_eq!(pool.state.config(), &first);
    let second = first.to_builder().max_connections(8);
    pool.set_config(second.clone());
    assert_eq!(pool.state.config(), &second.build().unwrap());
}

#[test]
fn a_lowered_limit_closes_idle_connections_at_once_coldest_first() {
    let mut pool = Pool::new(config().max_connections(4));
    let conns = [pool.open(), pool.open(), pool.open(), pool.open()];
    [2, 0, 1].into_iter().for_each(|at| pool.release(conns[at]));
    pool.set_config(config().max_connections(2));
    assert_eq!(pool.effects(), [surplus(conns[2]), surplus(conns[0])]);
    assert_eq!(pool.reuse(), conns[1]);

    let mut pool = Pool::new(config());
    let conns = [pool.open(), pool.open(), pool.open()];
    conns.into_iter().for_each(|conn| pool.release(conn));
    pool.set_config(config().max_idle(1));
    assert_eq!(pool.effects(), [surplus(conns[0]), surplus(conns[1])]);
}

#[test]
fn a_lowered_limit_closes_acquired_connections_at_their_release_even_before_a_waiter() {
    let mut pool = Pool::new(config().max_connections(3));
    let conns = [pool.open(), pool.open(), pool.open()];
    let waiter = pool.wait();
    pool.set_config(config().max_connections(1));
    assert!(pool.effects().is_empty(), "their holders go on");
    pool.release(conns[0]);
    pool.release(conns[1]);
    assert_eq!(pool.effects(), [surplus(conns[0]), surplus(conns[1])]);
    pool.release(conns[2]);
    assert_eq!(pool.effects(), [Effect::Deliver(waiter, conns[2])]);
}

#[test]
fn a_lowered_limit_aborts_the_youngest_connects_and_leaves_the_waiters() {
    let mut pool = Pool::new(config().max_connections(4));
    let waiters = [pool.wait(), pool.wait(), pool.wait()];
    let connects = pool.connects.clone();
    pool.set_config(config().max_connections(1).max_pending(0));
    let aborted = |conn| Effect::AbortConnect(conn, CloseReason::Surplus);
    assert_eq!(pool.effects(), [aborted(connects[2]), aborted(connects[1])]);
    assert_eq!(pool.gauges(), [1, 0, 0, 2], "also beyond max_pending");
    let conn = pool.connect_for(waiters[0]);
    pool.release(conn);
    assert_eq!(pool.claim(waiters[1]), Some(conn));
    assert!(!pool.connected(connects[1]));
}

#[test]
fn fewer_connects_at_once_apply_to_those_under_way() {
    let mut pool = Pool::new(config());
    for _ in 0..5 {
        pool.wait();
    }
    pool.set_config(config().dials_in_flight(2));
    assert_eq!(pool.gauges(), [2, 0, 0, 3]);
    assert_eq!(pool.stats().connect_aborted, 3);
}

#[test]
fn a_raised_limit_is_made_use_of_at_once() {
    let mut pool = Pool::new(config().max_connections(1));
    pool.open();
    for _ in 0..5 {
        pool.wait();
    }
    pool.set_config(config().max_connections(4));
    assert_eq!(pool.gauges(), [3, 0, 1, 2]);
    pool.set_config(config().max_connections(10).dials_in_flight(4));
    assert_eq!(pool.gauges(), [4, 0, 1, 1]);
}

#[test]
fn a_lowered_total_closes_the_coldest_of_all_destinations_then_connects_then_what_is_released() {
    let mut pool = Pool::new(config());
    let [one, other] = pool.destinations();
    pool.state.pin_key(pool.key);
    let cold = pool.at(one).open();
    let held = pool.open();
    let warm = pool.at(other).open();
    let second = pool.open();
    pool.release(cold);
    pool.release(warm);
    let waiter = pool.wait_fresh();
    pool.set_config(config().max_total(4));
    assert_eq!(pool.effects(), [surplus(cold)]);
    let connect = pool.connects[0];
    pool.set_config(config().max_total(1));
    assert_eq!(
        pool.effects(),
        [
            surplus(warm),
            Effect::AbortConnect(connect, CloseReason::Surplus)
        ]
    );
    assert_eq!(pool.state.totals().live(), 2);
    pool.release(held);
    assert_eq!(pool.effects(), [surplus(held)]);
    pool.release(second);
    assert_eq!(
        pool.effects(),
        [Effect::Close(second, CloseReason::Evicted)],
        "for the waiter"
    );
    pool.connect_for(waiter);
}

#[test]
fn a_raised_total_serves_those_that_starve() {
    let mut pool = Pool::new(config().max_total(1));
    let [one, other, third] = pool.destinations();
    pool.at(one).open();
    pool.at(other).wait();
    pool.at(third).wait();
    pool.set_config(config().max_total(2));
    assert_eq!(pool.at(other).gauges(), [1, 0, 0, 0]);
    assert_eq!(pool.at(third).gauges(), [0, 0, 0, 1]);
    pool.set_config(config());
    assert_eq!(pool.at(third).gauges(), [1, 0, 0, 0]);
}

#[test]
fn idle_connections_are_timed_anew_from_when_they_became_idle() {
    let mut pool = Pool::new(config().idle_timeout(millis(1000)));
    let conn = pool.open();
    pool.release(conn);
    pool.pass(millis(50));
    pool.set_config(config().idle_timeout(millis(100)));
    pool.pass(millis(49));
    assert!(pool.effects().is_empty());
    pool.pass(millis(1) + TICK);
    let over = Effect::Close(conn, CloseReason::IdleTimeout);
    assert_eq!(pool.effects()[0], over);

    let mut pool = Pool::new(config().idle_timeout(millis(100)));
    let conn = pool.open();
    pool.release(conn);
    pool.pass(millis(99));
    pool.set_config(config().idle_timeout(millis(1000)));
    pool.pass(millis(900));
    assert!(pool.effects().is_empty(), "longer is possible too");
    pool.set_config(config().idle_timeout(millis(10)));
    assert_eq!(
        pool.effects()[0],
        Effect::Close(conn, CloseReason::IdleTimeout),
        "its time is over already"
    );
}

#[test]
fn a_held_connection_and_a_waiter_keep_the_time_they_have() {
    let short = config().max_connections(1).hold_timeout(millis(100));
    let mut pool = Pool::new(short.acquire_timeout(millis(80)));
    let conn = pool.open();
    let waiter = pool.wait();
    let long = config().max_connections(1).hold_timeout(millis(500));
    pool.set_config(long.acquire_timeout(millis(500)));
    pool.pass(millis(80) + TICK);
    assert_eq!(
        pool.effects(),
        [Effect::Reject(waiter, Rejection::AcquireTimeout)]
    );
    pool.release(conn);
    assert_eq!(pool.reuse(), conn);
    pool.pass(millis(499));
    assert!(pool.effects().is_empty(), "the next hold has the new one");
    pool.pass(millis(1) + TICK);
    assert_eq!(
        pool.effects()[0],
        Effect::ForceClose(conn, CloseReason::HoldTimeout)
    );
}

#[test]
fn a_raised_hold_timeout_gives_the_present_holders_more_time() {
    let mut pool = Pool::new(config().hold_timeout(millis(100)));
    let conn = pool.open();
    pool.pass(millis(50));
    pool.set_config(config().hold_timeout(millis(300)));
    pool.pass(millis(249));
    assert!(pool.effects().is_empty());
    pool.pass(millis(1) + TICK);
    assert_eq!(
        pool.effects()[0],
        Effect::ForceClose(conn, CloseReason::HoldTimeout)
    );
}

#[test]
fn probes_begin_for_connections_that_are_idle_already() {
    let mut pool = Pool::new(config());
    let conn = pool.open();
    pool.release(conn);
    pool.set_config(config().heartbeat_interval(millis(100)));
    pool.pass(millis(100) + TICK);
    assert_eq!(pool.effects(), [Effect::Probe(conn)]);
    pool.set_config(config().heartbeat_interval(millis(100)).max_idle(0));
    assert!(pool.effects().is_empty(), "the probe has it");
    pool.probe_ended(conn, true);
    assert_eq!(pool.effects()[0], surplus(conn));
}

#[test]
fn a_raised_min_idle_is_seen_to_at_once() {
    let mut pool = Pool::new(config());
    let [used, unused] = pool.destinations();
    pool.at(used).open();
    pool.set_config(config().min_idle(2));
    assert_eq!(pool.at(used).gauges(), [2, 0, 1, 0]);
    assert_eq!(pool.at(unused).gauges(), [0, 0, 0, 0]);
}

#[test]
fn a_lifetime_applies_to_connections_made_from_now_on() {
    let mut pool = Pool::new(config());
    let old = pool.open();
    pool.set_config(config().max_lifetime(millis(100)));
    let young = pool.open();
    pool.release(old);
    pool.release(young);
    pool.pass(millis(101));
    assert_eq!(
        pool.effects(),
        [Effect::Close(young, CloseReason::MaxLifetime)]
    );
}

#[test]
fn a_change_of_limits_during_a_drain_does_not_open_the_pool_again() {
    let mut pool = Pool::new(config().max_connections(1));
    let held = pool.open();
    let waiter = pool.wait();
    pool.drain(millis(1000));
    pool.set_config(config().max_connections(2).min_idle(2));
    assert_eq!(pool.gauges(), [1, 0, 1, 0], "the waiter's");
    let conn = pool.connect_for(waiter);
    pool.release(conn);
    pool.release(held);
    assert!(pool.state.is_drained());
    assert_eq!(pool.acquire(), Admission::Reject(Rejection::Draining));
}

#[test]
fn unpooled_connections_outlive_a_limit_that_allows_no_more_of_them() {
    let unpooled = config().max_connections(1).acquire_timeout(millis(10));
    let mut pool = Pool::new(unpooled.max_unpooled(1));
    pool.open();
    let waiter = pool.wait();
    pool.pass(millis(10) + TICK);
    pool.set_config(config().max_connections(1));
    let conn = pool.connect_for(waiter);
    pool.release(conn);
    assert_eq!(pool.effects(), [Effect::Close(conn, CloseReason::Overflow)]);
}

#[test]
fn whoever_waits_for_a_release_gets_a_connect_once_the_delay_is_switched_off() {
    let mut pool = Pool::new(config().max_connections(3).dial_delay(millis(50)));
    let _held = pool.open();
    pool.wait();
    // Before the clock is read, which is when the delay would begin.
    let admission = pool.state.acquire(pool.now, pool.key);
    assert!(matches!(admission, Admission::Wait(_)));
    assert!(pool.connects.is_empty());
    pool.set_config(config().max_connections(3));
    assert_eq!(pool.connects.len(), 2);
}

#[test]
fn room_that_a_raised_limit_makes_goes_to_those_who_wait_and_then_to_min_idle() {
    let warm = |total| config().max_connections(3).min_idle(1).max_total(total);
    let mut pool = Pool::new(warm(1));
    let _held = pool.open();
    let other = pool.state.insert_key();
    let admission = pool.state.acquire(pool.now, other);
    assert!(matches!(admission, Admission::Wait(_)));
    pool.run();
    assert!(pool.connects.is_empty());
    pool.set_config(warm(5));
    let stats = |key| pool.state.destination_stats(key).unwrap();
    let connecting = [pool.key, other].map(|key| stats(key).connecting.current);
    assert_eq!(connecting, [1, 2]);
}

#[test]
fn the_time_of_a_connection_that_has_just_become_idle_begins_with_the_clock_all_the_same() {
    let mut pool = Pool::new(config());
    let conn = pool.open();
    pool.state.release(pool.now, conn, Disposition::Reuse);
    let config = config().idle_timeout(millis(10)).build().unwrap();
    pool.state.set_config(pool.now, config);
    // The turn has taken a while, as the clock tells now.
    pool.now = pool.now + millis(5);
    pool.state.handle_timeout(pool.now);
    pool.pass(millis(9));
    assert_eq!(pool.gauges(), [0, 1, 0, 0]);
    pool.pass(millis(2));
    assert_eq!(pool.gauges(), [0, 0, 0, 0]);
}

/// Found by the simulator: the order of eviction was by place where the clock did not tell.
#[test]
fn what_became_idle_first_goes_first_when_a_total_begins_to_bind_in_the_same_instant() {
    let mut pool = Pool::new(config());
    let [later, earlier] = [pool.open(), pool.open()];
    pool.state.release(pool.now, earlier, Disposition::Reuse);
    pool.state.release(pool.now, later, Disposition::Reuse);
    pool.set_config(config().max_total(1));
    assert_eq!(pool.effects(), [surplus(earlier)], "one destination");

    let mut pool = Pool::new(config());
    let [one, other] = pool.destinations();
    pool.state.pin_key(pool.key);
    let later = pool.at(one).open();
    let earlier = pool.at(other).open();
    // With a reading of the clock at its end, as it shows the same time as that before.
    pool.release(earlier);
    pool.state.release(pool.now, later, Disposition::Reuse);
    pool.set_config(config().max_total(1));
    assert_eq!(pool.effects(), [surplus(earlier)], "two destinations");
}
