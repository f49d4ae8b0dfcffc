//! The cap over all destinations: who makes room for whom, and in which order.

use super::*;

fn evicted(conn: ConnId) -> Effect {
    Effect::Close(conn, CloseReason::Evicted)
}

#[test]
fn the_coldest_idle_connection_of_any_destination_makes_room() {
    let mut pool = Pool::new(config().max_total(2));
    let [one, other, third] = pool.destinations();
    let first = pool.at(one).open();
    let second = pool.at(other).open();
    pool.release(second);
    pool.release(first);
    assert_eq!(pool.at(other).reuse(), second);
    pool.release(second);
    let waiter = pool.at(third).wait();
    assert_eq!(
        pool.effects(),
        [evicted(first)],
        "idle for longest, though it was made first"
    );
    pool.connect_for(waiter);
    assert_eq!(pool.state.totals().live(), 2);
    let next = pool.wait();
    assert_eq!(pool.effects(), [evicted(second)]);
    pool.connect_for(next);
    pool.wait();
    assert_eq!(pool.gauges(), [0, 0, 2, 1], "there is nobody left to go");
    assert_eq!(pool.state.totals().connects, 4);
}

#[test]
fn a_destination_evicted_of_its_last_connection_is_forgotten() {
    let mut pool = Pool::new(config().max_total(1));
    let conn = pool.open();
    pool.release(conn);
    let (gone, other) = (pool.key, pool.state.insert_key());
    pool.at(other).wait();
    assert_eq!(pool.effects(), [evicted(conn), Effect::ForgetKey(gone)]);
}

#[test]
fn a_connection_is_not_kept_as_idle_while_a_destination_starves() {
    let mut pool = Pool::new(config().max_total(1));
    let [one, other] = pool.destinations();
    let held = pool.at(one).open();
    let waiter = pool.at(other).wait();
    assert_eq!(pool.gauges(), [0, 0, 0, 1]);
    pool.release(held);
    assert_eq!(pool.effects(), [evicted(held)]);
    let conn = pool.connect_for(waiter);
    pool.release(conn);
    assert_eq!(pool.gauges(), [0, 1, 0, 0], "nobody starves any more");
}

#[test]
fn a_destination_that_has_a_connection_starves_for_another_all_the_same() {
    let mut pool = Pool::new(config().max_total(2));
    let [one, other] = pool.destinations();
    let held = pool.at(one).open();
    pool.at(other).open();
    let waiter = pool.wait();
    pool.release(held);
    assert_eq!(pool.effects(), [evicted(held)]);
    pool.connect_for(waiter);
}

/// Also one that nobody has used: its connect was for a waiter that is gone.
#[test]
fn a_connect_that_has_lost_its_waiter_does_not_end_in_idle_while_a_destination_starves() {
    let mut pool = Pool::new(config().max_total(1));
    let [one, other] = pool.destinations();
    let leaver = pool.at(one).wait();
    let waiter = pool.at(other).wait();
    pool.cancel(leaver);
    let conn = pool.at(one).connect().unwrap();
    pool.connected(conn);
    assert_eq!(pool.effects(), [evicted(conn)]);
    pool.at(other).connect_for(waiter);
}

#[test]
fn room_goes_to_the_destinations_in_the_order_in_which_they_began_to_starve() {
    let mut pool = Pool::new(config().max_total(1));
    let keys: [KeyId; 4] = pool.destinations();
    let mut held = pool.at(keys[0]).open();
    let waiters = [3, 1, 2].map(|at| (keys[at], pool.at(keys[at]).wait()));
    for (key, waiter) in waiters {
        pool.close(held);
        assert_eq!(pool.connects.len(), 1);
        held = pool.at(key).connect_for(waiter);
    }
}

#[test]
fn a_destination_that_has_had_its_turn_goes_behind_those_that_starve_too() {
    let mut pool = Pool::new(config().max_total(4));
    let [greedy, one, other] = pool.destinations();
    let held = [pool.at(greedy).open(), pool.open()];
    pool.at(one).open();
    pool.at(other).open();
    pool.at(one).wait();
    pool.wait();
    pool.at(other).wait();
    held.into_iter().for_each(|conn| pool.close(conn));
    assert_eq!(pool.at(one).gauges(), [1, 0, 1, 1]);
    assert_eq!(pool.at(other).gauges(), [1, 0, 1, 0]);
}

#[test]
fn a_destination_without_any_connection_goes_before_those_that_have_one() {
    let mut pool = Pool::new(config().max_total(3));
    let [one, other, destitute] = pool.destinations();
    let held = pool.at(one).open();
    pool.at(other).open();
    pool.open();
    pool.wait();
    pool.at(destitute).wait();
    pool.close(held);
    assert_eq!(pool.at(destitute).gauges(), [1, 0, 0, 0]);
    assert_eq!(pool.at(other).gauges(), [0, 0, 2, 1]);
}

#[test]
fn a_constant_load_does_not_keep_the_room_from_a_destination_that_has_none() {
    let mut pool = Pool::new(config().max_total(1));
    let [busy, destitute] = pool.destinations();
    let held = pool.at(busy).open();
    let before = pool.wait();
    let waiter = pool.at(destitute).wait();
    pool.at(busy).wait();
    pool.release(held);
    assert_eq!(
        pool.effects(),
        [Effect::Deliver(before, held)],
        "it came before"
    );
    assert_eq!(pool.claim(before), Some(held));
    pool.release(held);
    assert_eq!(pool.effects(), [evicted(held)]);
    pool.at(destitute).connect_for(waiter);
    assert_eq!(
        pool.at(busy).gauges(),
        [0, 0, 0, 1],
        "its turn comes with the next release"
    );
}

#[test]
fn destinations_that_have_connections_do_not_take_them_from_each_other_at_every_release() {
    let mut pool = Pool::new(config().max_total(2));
    let keys: [KeyId; 2] = pool.destinations();
    let mut held = keys.map(|key| pool.at(key).open());
    let mut waiters = keys.map(|key| pool.at(key).wait());
    for _ in 0..100 {
        // The other's waiter has come before the one that will come here.
        for at in [0, 1] {
            pool.at(keys[at]).release(held[at]);
            held[at] = pool.claim(waiters[at]).expect("its own connection");
            waiters[at] = pool.wait();
        }
    }
    assert_eq!(pool.state.totals().connects, 2);
    assert_eq!(pool.state.totals().closed_total(), 0);
}

#[test]
fn waiters_behind_a_limit_of_their_own_evict_nobody() {
    let limits = config().max_total(3).max_connections(1).max_pending(1);
    let mut pool = Pool::new(limits);
    let [one, other, third] = pool.destinations();
    let idle = pool.at(one).open();
    pool.release(idle);
    pool.at(other).open();
    pool.wait();
    let held = pool.at(third).open();
    pool.release(held);
    assert_eq!(pool.at(other).gauges(), [0, 0, 1, 1]);
    assert!(pool.effects().is_empty());
    assert_eq!(pool.state.totals().idle.current, 2);
}

#[test]
fn a_backoff_keeps_a_destination_from_claiming_room_until_it_ends() {
    let mut pool = Pool::new(config().max_total(1));
    let [one, other] = pool.destinations();
    let failing = [pool.at(one).wait(), pool.wait()];
    let refused = pool.connect().unwrap();
    assert_eq!(pool.connect_failed(refused), Some(failing[0]));
    let conn = pool.at(other).open();
    pool.release(conn);
    assert_eq!(pool.gauges(), [0, 1, 0, 0], "nobody can use its room yet");
    pool.pass(millis(2));
    assert_eq!(pool.effects(), [evicted(conn)]);
    pool.at(one).connect_for(failing[1]);
}

#[test]
fn the_room_of_a_failed_connect_goes_to_another_destination_at_once() {
    let mut pool = Pool::new(config().max_total(1));
    let [one, other] = pool.destinations();
    pool.at(one).wait();
    pool.wait();
    let waiter = pool.at(other).wait();
    let refused = pool.at(one).connect().unwrap();
    pool.connect_failed(refused);
    pool.at(other).connect_for(waiter);
    assert_eq!(pool.at(one).gauges(), [0, 0, 0, 1]);
}

#[test]
fn a_destination_whose_waiters_have_left_starves_no_more() {
    let mut pool = Pool::new(config().max_total(1));
    let [one, other] = pool.destinations();
    let held = pool.at(one).open();
    let waiter = pool.at(other).wait();
    pool.cancel(waiter);
    pool.release(held);
    assert_eq!(pool.at(one).gauges(), [0, 1, 0, 0]);
}

#[test]
fn a_fresh_acquire_at_the_total_cap_evicts_the_coldest_of_all() {
    let mut pool = Pool::new(config().max_total(2));
    let [one, other] = pool.destinations();
    let cold = pool.at(one).open();
    let warm = pool.at(other).open();
    pool.release(cold);
    pool.release(warm);
    let fresh = pool.at(other).wait_fresh();
    assert_eq!(pool.effects(), [evicted(cold)]);
    pool.connect_for(fresh);
    assert_eq!(pool.gauges(), [0, 1, 1, 0]);
}

/// At a cap that binds, all that is released would go to those behind it.
#[test]
fn a_fresh_waiter_at_the_total_cap_gets_the_room_of_the_next_release() {
    let mut pool = Pool::new(config().max_total(1));
    let held = pool.open();
    let fresh = pool.wait_fresh();
    let behind = pool.wait();
    pool.release(held);
    assert_eq!(pool.effects(), [evicted(held)]);
    let conn = pool.connect_for(fresh);
    pool.release(conn);
    assert_eq!(pool.claim(behind), Some(conn));
}

#[test]
fn a_burst_beyond_the_total_cap_is_bounded_by_max_pending() {
    let limits = config().max_total(3).max_connections(10).max_pending(2);
    let mut pool = Pool::new(limits);
    let [one, other, third] = pool.destinations();
    let idle = [pool.at(one).open(), pool.open()];
    idle.into_iter().for_each(|conn| pool.release(conn));
    let mut refused = 0;
    for _ in 0..20 {
        refused += usize::from(matches!(
            pool.at(other).acquire(),
            Admission::Reject(Rejection::QueueFull { pending: 2 })
        ));
    }
    assert_eq!(pool.gauges(), [3, 0, 0, 2], "what can be evicted is room");
    assert_eq!(refused, 15);
    assert_eq!(pool.effects().len(), 2);
    // Each destination has a queue of its own.
    pool.at(third).wait();
    pool.wait();
    assert_eq!(
        pool.acquire(),
        Admission::Reject(Rejection::QueueFull { pending: 2 })
    );
}

#[test]
fn what_can_be_evicted_is_room_for_a_waiter_that_may_not_be_pending() {
    let mut pool = Pool::new(config().max_total(1).max_pending(0));
    let [one, other] = pool.destinations();
    let idle = pool.at(one).open();
    pool.release(idle);
    pool.at(other).wait();
    assert_eq!(pool.effects(), [evicted(idle)]);
    assert_eq!(
        pool.acquire(),
        Admission::Reject(Rejection::QueueFull { pending: 0 })
    );
}

#[test]
fn the_coldest_connection_is_that_of_its_last_use_under_either_order_of_reuse() {
    for order in [ReuseOrder::Lifo, ReuseOrder::Fifo] {
        let mut pool = Pool::new(config().max_total(3).reuse_order(order));
        let [one, other] = pool.destinations();
        let conns = [pool.at(one).open(), pool.open(), pool.open()];
        [1, 2, 0].into_iter().for_each(|at| pool.release(conns[at]));
        pool.at(other).wait();
        assert_eq!(pool.effects(), [evicted(conns[1])], "{order:?}");
    }
}

#[test]
fn a_drain_lets_those_that_starve_have_the_room_of_what_it_closes() {
    let mut pool = Pool::new(config().max_total(1));
    let [one, other] = pool.destinations();
    let held = pool.at(one).open();
    let waiter = pool.at(other).wait();
    pool.drain(millis(100));
    pool.release(held);
    let conn = pool.connect_for(waiter);
    pool.release(conn);
    assert!(pool.state.is_drained());
}
