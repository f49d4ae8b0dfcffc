//! Probes of idle connections.

use super::*;

const INTERVAL: Duration = millis(100);
const TIMEOUT: Duration = millis(20);

fn probing() -> PoolConfigBuilder {
    config()
        .heartbeat_interval(INTERVAL)
        .heartbeat_timeout(TIMEOUT)
}

/// So many idle connections, made and released in order.
fn idle(pool: &mut Pool, count: usize) -> Vec<ConnId> {
    let conns: Vec<_> = (0..count).map(|_| pool.open()).collect();
    conns.iter().for_each(|conn| pool.release(*conn));
    conns
}

/// One connection that is being probed.
fn probed(config: PoolConfigBuilder) -> (Pool, ConnId) {
    let mut pool = Pool::new(config);
    let conn = idle(&mut pool, 1)[0];
    pool.pass(INTERVAL + TICK);
    assert_eq!(pool.effects(), [Effect::Probe(conn)]);
    (pool, conn)
}

fn failed(conn: ConnId) -> Effect {
    Effect::Close(conn, CloseReason::HeartbeatFailed)
}

#[test]
fn an_idle_connection_is_probed_every_interval() {
    let mut pool = Pool::new(probing());
    let conn = idle(&mut pool, 1)[0];
    for round in 1..=3 {
        pool.pass(INTERVAL - Duration::from_nanos(1));
        assert!(pool.effects().is_empty(), "not before its time");
        pool.pass(TICK);
        assert_eq!(pool.effects(), [Effect::Probe(conn)]);
        pool.probe_ended(conn, true);
        assert_eq!(pool.stats().probes, round);
    }
    assert_eq!(pool.reuse(), conn);
    pool.pass(millis(1000));
    assert!(pool.effects().is_empty(), "a held one is not probed");
}

#[test]
fn without_an_interval_nothing_is_probed() {
    let mut pool = Pool::new(config());
    idle(&mut pool, 1);
    pool.pass(Duration::from_secs(1799));
    assert!(pool.effects().is_empty());
    assert_eq!(pool.stats().probes, 0);
}

#[test]
fn a_probed_connection_counts_as_idle_and_is_not_handed_out() {
    let (mut pool, conn) = probed(probing().max_connections(1));
    assert_eq!(pool.gauges(), [0, 1, 0, 0]);
    assert_eq!(pool.candidate(), None);
    assert!(!pool.state.acquire_idle(pool.now, conn));
    let waiter = pool.wait();
    assert!(pool.connects.is_empty(), "it takes up its room");
    pool.probe_ended(conn, true);
    assert_eq!(pool.effects(), [Effect::Deliver(waiter, conn)]);
    assert_eq!(pool.claim(waiter), Some(conn));
    assert!(pool.state.is_reused(conn));
}

#[test]
fn a_healthy_probe_does_not_begin_the_idle_time_anew() {
    let mut pool = Pool::new(probing().idle_timeout(millis(250)));
    let conn = idle(&mut pool, 1)[0];
    for _ in 0..2 {
        pool.pass(INTERVAL);
        pool.pass(millis(2));
        assert_eq!(pool.effects(), [Effect::Probe(conn)]);
        pool.probe_ended(conn, true);
    }
    pool.pass(millis(45));
    assert!(pool.effects().is_empty());
    pool.pass(millis(1) + TICK);
    assert_eq!(
        pool.effects()[0],
        Effect::Close(conn, CloseReason::IdleTimeout)
    );
}

#[test]
fn a_connection_whose_idle_time_ends_while_it_is_probed_is_closed_after_the_probe() {
    let (mut pool, conn) = probed(probing().idle_timeout(millis(105)));
    pool.pass(millis(10));
    assert!(pool.effects().is_empty(), "the probe has it");
    pool.probe_ended(conn, true);
    assert_eq!(
        pool.effects()[0],
        Effect::Close(conn, CloseReason::IdleTimeout)
    );
}

/// Invariant 9.
#[test]
fn a_connection_whose_idle_time_ends_while_it_is_probed_serves_no_waiter() {
    let limits = probing().idle_timeout(millis(105)).max_connections(1);
    let (mut pool, conn) = probed(limits);
    let waiter = pool.wait();
    pool.pass(millis(10));
    pool.probe_ended(conn, true);
    assert_eq!(
        pool.effects(),
        [Effect::Close(conn, CloseReason::IdleTimeout)]
    );
    pool.connect_for(waiter);
}

#[test]
fn a_connection_that_is_not_healthy_is_closed_and_makes_room() {
    let (mut pool, conn) = probed(probing().max_connections(1));
    let waiter = pool.wait();
    pool.probe_ended(conn, false);
    assert_eq!(pool.effects(), [failed(conn)]);
    assert_eq!(pool.stats().closed(CloseReason::HeartbeatFailed), 1);
    pool.connect_for(waiter);
    pool.probe_ended(conn, true);
    assert_eq!(pool.gauges(), [0, 0, 1, 0], "the id is stale");
}

#[test]
fn a_probe_that_hangs_closes_its_connection() {
    let (mut pool, conn) = probed(probing());
    pool.pass(TIMEOUT - Duration::from_nanos(1));
    assert!(pool.effects().is_empty());
    pool.pass(TICK);
    assert_eq!(pool.effects()[0], failed(conn));
    pool.probe_ended(conn, true);
    assert_eq!(pool.stats().live(), 0);
}

#[test]
fn no_more_probes_run_at_once_than_connects_may() {
    let mut pool = Pool::new(probing().dials_in_flight(2));
    let conns = idle(&mut pool, 5);
    let mut probed = Vec::new();
    for _ in 0..100 {
        pool.pass(TIMEOUT / 2);
        let running = pool.effects();
        assert!(running.len() <= 2, "{running:?}");
        for effect in running {
            match effect {
                Effect::Probe(conn) => {
                    probed.push(conn);
                    pool.probe_ended(conn, true);
                }
                other => panic!("{other:?}"),
            }
        }
    }
    for conn in conns {
        let times = probed.iter().filter(|other| **other == conn).count();
        assert!(times > 0, "none is left out for ever: {probed:?}");
    }
}

#[test]
fn a_drain_closes_a_connection_while_it_is_probed() {
    let (mut pool, conn) = probed(probing());
    pool.drain(millis(1000));
    assert_eq!(pool.effects()[0], Effect::Close(conn, CloseReason::Drained));
    assert!(pool.state.is_drained());
    pool.probe_ended(conn, true);
    assert_eq!(pool.state.totals().live(), 0);
}

#[test]
fn a_probed_connection_can_be_closed_by_what_its_peer_does() {
    let (mut pool, conn) = probed(probing());
    pool.force_close(conn, CloseReason::Reset);
    assert_eq!(pool.effects()[0], Effect::Close(conn, CloseReason::Reset));
    pool.probe_ended(conn, false);
    assert_eq!(pool.state.totals().closed_total(), 1);
}

#[test]
fn the_end_of_a_probe_changes_nothing_for_a_connection_that_is_not_probed() {
    let mut pool = Pool::new(probing());
    let conn = pool.open();
    pool.probe_ended(conn, false);
    assert_eq!(pool.gauges(), [0, 0, 1, 0]);
    pool.release(conn);
    pool.probe_ended(conn, false);
    assert_eq!(pool.gauges(), [0, 1, 0, 0]);
    assert!(pool.effects().is_empty());
}

/// It is in nobody's hands but the probe's, and may turn out to be dead.
#[test]
fn a_probed_connection_is_not_evicted() {
    let (mut pool, conn) = probed(probing().max_total(1));
    let first = pool.key;
    let [other] = pool.destinations();
    let waiter = pool.at(other).wait();
    assert!(pool.effects().is_empty());
    assert_eq!(pool.gauges(), [0, 0, 0, 1]);
    pool.probe_ended(conn, true);
    assert_eq!(
        pool.effects(),
        [
            Effect::Close(conn, CloseReason::Evicted),
            Effect::ForgetKey(first)
        ]
    );
    pool.connect_for(waiter);
}

#[test]
fn a_healthy_probe_leaves_its_connection_at_its_place_in_the_order_of_reuse() {
    let mut pool = Pool::new(probing());
    let conns = idle(&mut pool, 3);
    pool.pass(INTERVAL + TICK);
    pool.effects();
    for conn in [conns[2], conns[0], conns[1]] {
        pool.probe_ended(conn, true);
    }
    for conn in conns.into_iter().rev() {
        assert_eq!(pool.reuse(), conn, "the last used comes first");
    }
}

#[test]
fn a_healthy_probe_leaves_its_connection_the_first_to_be_evicted() {
    let mut pool = Pool::new(probing().max_total(2));
    let conns = idle(&mut pool, 2);
    pool.pass(INTERVAL + TICK);
    pool.effects();
    for conn in [conns[1], conns[0]] {
        pool.probe_ended(conn, true);
    }
    let [other] = pool.destinations();
    pool.at(other).wait();
    let evicted = Effect::Close(conns[0], CloseReason::Evicted);
    assert_eq!(pool.effects(), [evicted]);
}

#[test]
fn a_connection_that_is_probed_makes_no_room_for_another_destination() {
    let (mut pool, _) = probed(probing().max_total(1).max_pending(0));
    let [other] = pool.destinations();
    let refused = Admission::Reject(Rejection::QueueFull { pending: 0 });
    assert_eq!(pool.at(other).acquire(), refused);
}
