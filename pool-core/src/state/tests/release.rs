//! Release, force-close, timeouts of idle and held connections, the end of keys.

use super::*;

/// Fault row A13: giving back what is not held changes nothing.
#[test]
fn a_second_release_changes_nothing() {
    let mut pool = Pool::new(config());
    let conn = pool.open();
    pool.release(conn);
    pool.release(conn);
    pool.close(conn);
    assert_eq!(pool.gauges(), [0, 1, 0, 0]);
    assert!(pool.effects().is_empty());
    pool.force_close(conn, CloseReason::PeerClosed);
    pool.release(conn);
    assert_eq!(pool.stats().live(), 0);
}

#[test]
fn connections_over_max_idle_are_closed_as_surplus() {
    let mut pool = Pool::new(config().max_idle(1));
    let conns = [pool.open(), pool.open()];
    pool.release(conns[0]);
    pool.release(conns[1]);
    assert_eq!(
        pool.effects(),
        [Effect::Close(conns[1], CloseReason::Surplus)]
    );

    let mut pool = Pool::new(config().max_idle(0));
    let waiter = pool.wait();
    pool.cancel(waiter);
    let conn = pool.connects[0];
    assert!(pool.connected(conn));
    assert_eq!(
        pool.effects(),
        [
            Effect::Close(conn, CloseReason::Surplus),
            Effect::ForgetKey(pool.key)
        ]
    );
}

/// Fault row G8: the gauges start at zero, end at zero, and never count a close twice.
#[test]
fn a_force_close_lowers_acquired_exactly_once() {
    let mut pool = Pool::new(config());
    assert_eq!(pool.gauges(), [0; 4]);
    let conns = [pool.open(), pool.open()];
    pool.release(conns[1]);
    pool.force_close(conns[1], CloseReason::PeerClosed);
    assert_eq!(pool.gauges(), [0, 0, 1, 0], "an idle one never touches it");
    pool.force_close(conns[0], CloseReason::Reset);
    pool.force_close(conns[0], CloseReason::Reset);
    pool.release(conns[0]);
    assert_eq!(
        pool.effects(),
        [
            Effect::Close(conns[1], CloseReason::PeerClosed),
            Effect::ForceClose(conns[0], CloseReason::Reset),
            Effect::ForgetKey(pool.key),
        ]
    );
    assert_eq!(
        pool.state.totals().acquired,
        Gauge {
            current: 0,
            highest: 2
        }
    );
}

#[test]
fn a_hold_timeout_frees_the_slot_for_a_waiter() {
    let mut pool = Pool::new(config().max_connections(1).hold_timeout(millis(100)));
    let conn = pool.open();
    pool.wait();
    pool.pass(millis(99));
    assert!(pool.effects().is_empty());
    pool.pass(millis(1) + TICK);
    assert_eq!(
        pool.effects(),
        [Effect::ForceClose(conn, CloseReason::HoldTimeout)]
    );
    assert_eq!(pool.gauges(), [1, 0, 0, 0]);
    assert_eq!(pool.stats().timeouts.hold, 1);
}

#[test]
fn a_connection_lost_before_its_claim_puts_the_waiter_back_at_its_place() {
    let mut pool = Pool::new(config().max_connections(2));
    let held = [pool.open(), pool.open()];
    let waiters = [pool.wait(), pool.wait(), pool.wait()];
    pool.release(held[0]);
    pool.release(held[1]);
    pool.effects();
    // The older one first: a plain return to the front would let the younger one pass it.
    pool.force_close(held[0], CloseReason::PeerClosed);
    pool.force_close(held[1], CloseReason::PeerClosed);
    assert_eq!(
        pool.effects(),
        held.map(|conn| Effect::Close(conn, CloseReason::PeerClosed)),
        "nobody held them"
    );
    let connects = pool.connects.clone();
    pool.connected(connects[1]);
    pool.connected(connects[0]);
    assert_eq!(
        pool.effects(),
        [
            Effect::Deliver(waiters[0], connects[1]),
            Effect::Deliver(waiters[1], connects[0])
        ]
    );
}

#[test]
fn a_waiter_put_back_takes_what_has_become_idle_meanwhile() {
    let mut pool = Pool::new(config().max_connections(2));
    let held = [pool.open(), pool.open()];
    let waiter = pool.wait();
    pool.release(held[0]);
    pool.release(held[1]);
    pool.effects();
    pool.force_close(held[0], CloseReason::StrayBytes);
    assert_eq!(
        pool.effects(),
        [
            Effect::Close(held[0], CloseReason::StrayBytes),
            Effect::Deliver(waiter, held[1]),
        ]
    );
}

#[test]
fn a_waiter_put_back_keeps_its_original_deadline() {
    let mut pool = Pool::new(config().max_connections(1).acquire_timeout(millis(100)));
    let held = pool.open();
    let waiter = pool.wait();
    pool.pass(millis(60));
    pool.release(held);
    pool.force_close(held, CloseReason::Reset);
    pool.effects();
    pool.pass(millis(39));
    assert!(pool.effects().is_empty());
    pool.pass(millis(1) + TICK);
    assert_eq!(
        pool.effects(),
        [Effect::Reject(waiter, Rejection::AcquireTimeout)]
    );
}

#[test]
fn a_waiter_whose_time_is_over_or_who_never_claimed_is_rejected() {
    for reason in [CloseReason::PeerClosed, CloseReason::HoldTimeout] {
        let patience = if reason == CloseReason::HoldTimeout {
            1000
        } else {
            100
        };
        let timeouts = config()
            .max_connections(1)
            .acquire_timeout(millis(patience))
            .hold_timeout(millis(200));
        let mut pool = Pool::new(timeouts);
        let conn = pool.open();
        let waiter = pool.wait();
        pool.release(conn);
        pool.effects();
        match reason {
            CloseReason::HoldTimeout => drop(pool.pass(millis(201))),
            _ => {
                pool.pass(millis(101));
                pool.force_close(conn, reason);
            }
        }
        assert_eq!(
            pool.effects(),
            [
                Effect::Close(conn, reason),
                Effect::Reject(waiter, Rejection::AcquireTimeout),
                Effect::ForgetKey(pool.key),
            ]
        );
    }
}

/// A peer that accepts and closes at once must not be dialled without pause for one waiter.
#[test]
fn a_new_connection_that_its_peer_ends_before_the_claim_fails_its_waiter() {
    for reason in [
        CloseReason::PeerClosed,
        CloseReason::Reset,
        CloseReason::StrayBytes,
    ] {
        let mut pool = Pool::new(config());
        let [first, second] = [pool.wait(), pool.wait()];
        let conn = pool.connects[0];
        pool.connected(conn);
        pool.effects();
        pool.force_close(conn, reason);
        let failed = Effect::Reject(first, Rejection::ClosedUnused(reason));
        assert_eq!(pool.effects(), [Effect::Close(conn, reason), failed]);
        assert_eq!(pool.stats().acquires.failed, 1);
        let third = pool.wait();
        assert_eq!(
            pool.connects.len(),
            1,
            "the next connect waits for the backoff"
        );
        pool.pass(millis(2));
        assert_eq!(pool.connects.len(), 2);
        for (waiter, conn) in [second, third].into_iter().zip(pool.connects.clone()) {
            pool.connected(conn);
            assert_eq!(pool.claim(waiter), Some(conn));
        }
    }
}

/// Fault row D8: once everything has expired, nothing wakes the loop.
#[test]
fn a_pool_with_nothing_in_it_sleeps_and_remembers_no_key() {
    let mut pool = Pool::new(config());
    for _ in 0..100 {
        let key = pool.state.insert_key();
        let Admission::Wait(waiter) = pool.state.acquire(pool.now, key) else {
            panic!()
        };
        pool.run();
        let conn = pool.connects[0];
        pool.connected(conn);
        pool.claim(waiter);
        pool.release(conn);
    }
    let wakes = pool.pass(Duration::from_secs(1801));
    assert!(wakes < 10, "{wakes} wakes for timers of one moment");
    assert_eq!(pool.state.next_timeout(), None);
    assert_eq!((pool.state.timers.len(), pool.state.conns.len()), (0, 0));
    let totals = pool.state.totals();
    assert_eq!(
        (totals.opened, totals.closed(CloseReason::IdleTimeout)),
        (100, 100)
    );
    let forgotten = pool
        .effects()
        .iter()
        .filter(|effect| matches!(effect, Effect::ForgetKey(_)))
        .count();
    assert_eq!(forgotten, 100);
    // The key made by `Pool::new` has not seen its acquire.
    assert_eq!(pool.state.keys().collect::<Vec<_>>(), [pool.key]);
}

/// Fault row D11: after a stall everything that is over ends once, and nothing else does.
#[test]
fn after_a_stall_expired_connections_close_once() {
    let mut pool = Pool::new(config().idle_timeout(millis(30_000)).hold_timeout(None));
    let conns = [pool.open(), pool.open(), pool.open()];
    pool.release(conns[0]);
    pool.release(conns[1]);
    pool.now = pool.now + Duration::from_secs(60);
    pool.state.handle_timeout(pool.now);
    pool.run();
    let mut closed = pool.effects();
    closed.sort_by_key(|effect| match effect {
        Effect::Close(conn, _) => conn.index(),
        _ => u32::MAX,
    });
    assert_eq!(
        closed,
        [conns[0], conns[1]].map(|conn| Effect::Close(conn, CloseReason::IdleTimeout))
    );
    pool.pass(Duration::from_secs(60));
    assert!(pool.effects().is_empty());
}

#[test]
fn counts_of_forgotten_destinations_stay_in_the_totals() {
    let mut pool = Pool::new(config());
    for _ in 0..10 {
        let conn = pool.open();
        pool.close(conn);
        assert_eq!(pool.state.destination_stats(pool.key), None);
        pool.effects();
    }
    let totals = pool.state.totals();
    assert_eq!(
        (totals.opened, totals.closed(CloseReason::ConnectionClose)),
        (10, 10)
    );
    assert_eq!(totals.acquired.highest, 1);
}

#[test]
fn a_connection_is_closed_at_the_release_after_its_last_use() {
    let mut pool = Pool::new(config().max_uses(3));
    let conn = pool.open();
    for _ in 0..2 {
        pool.release(conn);
        assert_eq!(pool.reuse(), conn);
    }
    let waiter = pool.wait();
    pool.effects();
    pool.release(conn);
    assert_eq!(pool.effects(), [Effect::Close(conn, CloseReason::MaxUses)]);
    let new = pool.connects[0];
    assert!(pool.connected(new));
    assert_eq!(pool.claim(waiter), Some(new), "others are served anew");
}

#[test]
fn an_idle_connection_is_closed_at_the_end_of_its_lifetime() {
    let mut pool = Pool::new(config().max_lifetime(millis(100)).idle_timeout(None));
    let conn = pool.open();
    pool.release(conn);
    pool.pass(millis(89));
    assert_eq!(
        pool.reuse(),
        conn,
        "no lifetime is more than a tenth shorter"
    );
    pool.release(conn);
    pool.pass(millis(11) + TICK);
    assert_eq!(
        pool.effects(),
        [
            Effect::Close(conn, CloseReason::MaxLifetime),
            Effect::ForgetKey(pool.key)
        ]
    );
}

#[test]
fn a_connection_beyond_its_lifetime_may_be_held_and_is_not_reused() {
    let mut pool = Pool::new(config().max_lifetime(millis(100)).hold_timeout(None));
    let conn = pool.open();
    pool.pass(millis(1000));
    assert_eq!(pool.gauges(), [0, 0, 1, 0]);
    let waiter = pool.wait();
    pool.release(conn);
    assert!(
        pool.effects()
            .contains(&Effect::Close(conn, CloseReason::MaxLifetime))
    );
    assert_eq!(pool.claim(waiter), None);
}

#[test]
fn lifetimes_of_connections_made_together_differ_and_repeat_with_the_seed() {
    let ends = |seed| {
        let config = config().max_lifetime(millis(1000)).build().unwrap();
        let mut pool = Pool::new(self::config());
        pool.state = PoolState::new(config, seed);
        pool.key = pool.state.insert_key();
        let conns: Vec<_> = (0..20).map(|_| pool.open()).collect();
        let ends: Vec<_> = conns
            .iter()
            .map(|id| pool.state.conns[*id].expires)
            .collect();
        for end in &ends {
            let life = end.saturating_duration_since(Timestamp::ZERO);
            assert!(life > millis(900) && life <= millis(1000), "{life:?}");
        }
        ends
    };
    let first = ends(1);
    let mut distinct = first.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), first.len());
    assert_eq!(first, ends(1));
    assert_ne!(first, ends(2));
}

#[test]
fn idle_connections_are_reused_in_the_order_chosen() {
    for (order, expected) in [(ReuseOrder::Lifo, [2, 1, 0]), (ReuseOrder::Fifo, [0, 1, 2])] {
        let mut pool = Pool::new(config().reuse_order(order));
        let conns = [pool.open(), pool.open(), pool.open()];
        conns.into_iter().for_each(|conn| pool.release(conn));
        for at in expected {
            assert_eq!(pool.reuse(), conns[at], "{order:?}");
        }
    }
}
