//! The end of a pool.

use super::*;

fn drained(pool: &Pool) -> bool {
    let state = &pool.state;
    state.is_drained() && state.timers.len() == 0 && state.next_timeout().is_none()
}

/// Fault row G6: idle connections do not hold up the drain, released ones close.
#[test]
fn a_drain_ends_with_the_last_release() {
    let mut pool = Pool::new(config());
    for _ in 0..7 {
        pool.open();
    }
    let held = pool.held.clone();
    for conn in &held[..5] {
        pool.release(*conn);
    }
    pool.drain(millis(5000));
    assert_eq!(pool.effects().len(), 5, "idle ones are closed at once");
    pool.pass(millis(50));
    pool.release(held[5]);
    assert!(!pool.state.is_drained());
    pool.release(held[6]);
    assert!(drained(&pool));
    assert_eq!(
        pool.effects(),
        [
            Effect::Close(held[5], CloseReason::Drained),
            Effect::Close(held[6], CloseReason::Drained),
            Effect::ForgetKey(pool.key),
            Effect::Drained,
        ]
    );
}

/// Fault row G7: waiters are served until the deadline, and everything ends at it.
#[test]
fn a_drain_serves_waiters_until_its_deadline_and_then_ends_everything() {
    let mut pool = Pool::new(config().max_connections(2));
    let held = [pool.open(), pool.open()];
    let waiters = [pool.wait(), pool.wait(), pool.wait()];
    pool.drain(millis(100));
    assert_eq!(pool.acquire(), Admission::Reject(Rejection::Draining));
    pool.release(held[0]);
    assert_eq!(pool.effects(), [Effect::Deliver(waiters[0], held[0])]);
    assert_eq!(pool.claim(waiters[0]), Some(held[0]));
    pool.close(held[1]);
    pool.effects();
    let connecting = pool.connects[0];
    pool.pass(millis(99));
    assert!(pool.effects().is_empty());
    pool.pass(millis(1) + TICK);
    assert!(drained(&pool));
    assert_eq!(
        pool.effects(),
        [
            Effect::Reject(waiters[1], Rejection::Draining),
            Effect::Reject(waiters[2], Rejection::Draining),
            Effect::ForceClose(held[0], CloseReason::Drained),
            Effect::AbortConnect(connecting, CloseReason::Drained),
            Effect::ForgetKey(pool.key),
            Effect::Drained,
        ]
    );
    pool.release(held[0]);
    assert!(!pool.connected(connecting));
    assert_eq!(pool.state.totals().live(), 0);
}

#[test]
fn a_delivery_not_claimed_by_the_deadline_is_rejected() {
    let mut pool = Pool::new(config());
    let waiter = pool.wait();
    let conn = pool.connects[0];
    pool.connected(conn);
    pool.effects();
    pool.drain(Duration::ZERO);
    assert!(drained(&pool));
    assert_eq!(
        pool.effects(),
        [
            Effect::Close(conn, CloseReason::Drained),
            Effect::Reject(waiter, Rejection::Draining),
            Effect::ForgetKey(pool.key),
            Effect::Drained,
        ]
    );
    assert_eq!(pool.claim(waiter), None);
}

#[test]
fn a_second_drain_only_brings_the_deadline_forward() {
    let mut pool = Pool::new(config().hold_timeout(None));
    pool.open();
    pool.drain(millis(1000));
    pool.drain(millis(200));
    pool.drain(millis(5000));
    pool.pass(millis(199));
    assert!(!pool.state.is_drained());
    pool.pass(millis(1) + TICK);
    assert!(drained(&pool));
    pool.effects();
    pool.drain(millis(10));
    assert!(pool.effects().is_empty(), "the end is announced once");
}

#[test]
fn an_empty_pool_drains_at_once_and_refuses_ever_after() {
    let mut pool = Pool::new(config());
    pool.drain(millis(1000));
    assert!(drained(&pool));
    assert_eq!(
        pool.effects(),
        [Effect::ForgetKey(pool.key), Effect::Drained]
    );
    assert_eq!(pool.acquire(), Admission::Reject(Rejection::Draining));
    assert_eq!(pool.effects(), [Effect::ForgetKey(pool.key)]);
    assert_eq!(pool.state.totals().rejected.draining, 1);
}

#[test]
fn a_drain_does_not_wait_for_connects_or_backoffs_that_nobody_needs() {
    let mut pool = Pool::new(config().acquire_timeout(None).connect_timeout(None));
    let [first, second] = [pool.wait(), pool.wait()];
    let connects = pool.connects.clone();
    pool.cancel(first);
    pool.drain(millis(1000));
    assert_eq!(
        pool.effects(),
        [Effect::AbortConnect(connects[1], CloseReason::Drained)]
    );
    pool.cancel(second);
    assert!(drained(&pool));

    let mut pool = Pool::new(config());
    pool.wait();
    pool.connect_failed(pool.connects[0]);
    pool.drain(millis(1000));
    assert!(drained(&pool));
}

/// The backoff of a key without waiters ends with the drain, but a waiter may come back.
#[test]
fn a_waiter_put_back_during_a_drain_gets_a_connect() {
    let mut pool = Pool::new(config());
    let [waiter, _other] = [pool.wait(), pool.wait()];
    let connects = pool.connects.clone();
    pool.connected(connects[0]);
    pool.connect_failed(connects[1]);
    pool.drain(millis(1000));
    pool.force_close(connects[0], CloseReason::ExchangeFailed);
    let conn = pool.connects[0];
    pool.connected(conn);
    assert_eq!(pool.claim(waiter), Some(conn));
}

/// Fault row G3: a server is taken out, and its idle connections stay open.
#[test]
fn a_retired_destination_closes_idle_connections_at_once_and_acquired_ones_at_their_release() {
    let mut pool = Pool::new(config());
    let [retired, other] = pool.destinations();
    let elsewhere = pool.at(other).open();
    pool.release(elsewhere);
    let conns = [pool.at(retired).open(), pool.open(), pool.open()];
    pool.release(conns[0]);
    pool.state.retire(pool.now, retired);
    pool.run();
    let closed = |conn| Effect::Close(conn, CloseReason::Drained);
    assert_eq!(pool.effects(), [closed(conns[0])]);
    assert_eq!(pool.gauges(), [0, 0, 2, 0], "their holders go on");
    pool.release(conns[1]);
    pool.close(conns[2]);
    assert_eq!(
        pool.effects(),
        [
            closed(conns[1]),
            Effect::Close(conns[2], CloseReason::ConnectionClose)
        ]
    );
    assert_eq!(pool.at(other).reuse(), elsewhere);
    let new = pool.at(retired).open();
    pool.release(new);
    assert_eq!(
        pool.reuse(),
        new,
        "what is made afterwards is like any other"
    );
}

#[test]
fn waiters_of_a_retired_destination_get_new_connections() {
    let mut pool = Pool::new(config().max_connections(2));
    let held = [pool.open(), pool.open()];
    let waiters = [pool.wait(), pool.wait(), pool.wait()];
    pool.release(held[0]);
    pool.state.retire(pool.now, pool.key);
    pool.run();
    assert_eq!(pool.effects(), [Effect::Deliver(waiters[0], held[0])]);
    pool.release(held[1]);
    let closed = |conn| Effect::Close(conn, CloseReason::Drained);
    assert_eq!(pool.effects(), [closed(held[1])], "whoever waits");
    let new = pool.connect_for(waiters[1]);
    pool.cancel(waiters[0]);
    assert_eq!(pool.effects(), [closed(held[0])], "nobody has claimed it");
    pool.connect_for(waiters[2]);
    pool.release(new);
    assert_eq!(pool.gauges(), [0, 1, 1, 0]);
}

#[test]
fn a_retired_destination_loses_what_was_made_in_advance_for_it() {
    let mut pool = Pool::new(config().min_idle(1).idle_timeout(None));
    let waiter = pool.wait();
    let conn = pool.connect_for(waiter);
    let advance = pool.connects[0];
    pool.state.retire(pool.now, pool.key);
    pool.run();
    assert_eq!(
        pool.effects(),
        [Effect::AbortConnect(advance, CloseReason::Drained)]
    );
    pool.release(conn);
    assert_eq!(
        pool.effects(),
        [
            Effect::Close(conn, CloseReason::Drained),
            Effect::ForgetKey(pool.key)
        ]
    );
    assert!(pool.connects.is_empty());
}

#[test]
fn a_connection_that_is_probed_while_its_destination_is_retired_is_closed() {
    let mut pool = Pool::new(config().heartbeat_interval(millis(100)));
    let conn = pool.open();
    pool.release(conn);
    pool.pass(millis(101));
    assert_eq!(pool.effects(), [Effect::Probe(conn)]);
    pool.state.retire(pool.now, pool.key);
    pool.run();
    assert_eq!(pool.effects()[0], Effect::Close(conn, CloseReason::Drained));
    pool.probe_ended(conn, true);
    assert_eq!(pool.state.totals().live(), 0);
}
