//! Reuse, waiting, delivery, cancelling.

use super::*;

#[test]
fn the_most_recently_used_connection_is_reused_first() {
    let mut pool = Pool::new(config());
    let conns = [pool.open(), pool.open(), pool.open()];
    for conn in conns {
        pool.release(conn);
    }
    assert_eq!(pool.candidate(), Some(conns[2]));
    assert_eq!(
        [pool.reuse(), pool.reuse(), pool.reuse()],
        [conns[2], conns[1], conns[0]]
    );
    assert!(pool.effects().is_empty(), "the hot path leaves no effect");
    assert!(conns.iter().all(|conn| pool.state.is_reused(*conn)));
    let acquires = pool.stats().acquires;
    assert_eq!(
        (acquires.fresh, acquires.reused, acquires.queued),
        (3, 3, 0)
    );
}

/// Fault row D7: with LIFO, load that falls lets the surplus expire.
#[test]
fn a_light_load_keeps_one_connection_of_a_burst() {
    let mut pool = Pool::new(config().idle_timeout(millis(1000)));
    for _ in 0..20 {
        pool.open();
    }
    for conn in pool.held.clone() {
        pool.release(conn);
    }
    for _ in 0..30 {
        let conn = pool.reuse();
        pool.release(conn);
        pool.pass(millis(100));
    }
    assert_eq!(pool.gauges(), [0, 1, 0, 0]);
    assert_eq!(pool.stats().closed(CloseReason::IdleTimeout), 19);
}

/// Invariant 9: the timer of the idle connection is late, the caller is not.
#[test]
fn an_expired_connection_is_not_handed_out_though_its_timer_has_not_fired() {
    let mut pool = Pool::new(config().idle_timeout(millis(1000)));
    let conn = pool.open();
    pool.release(conn);
    pool.now = pool.now + millis(1000);
    assert_eq!(pool.candidate(), None);
    pool.wait();
    assert_eq!(
        pool.effects(),
        [Effect::Close(conn, CloseReason::IdleTimeout)]
    );
    assert_eq!(pool.connects.len(), 1);
}

/// Fault row A3: a dead idle connection makes room before the next acquire is counted.
#[test]
fn dead_idle_connections_are_passed_over_with_the_counters_right() {
    let mut pool = Pool::new(config().max_connections(6));
    for _ in 0..6 {
        pool.open();
    }
    for conn in pool.held.clone() {
        pool.release(conn);
    }
    for _ in 0..5 {
        let dead = pool.candidate().unwrap();
        pool.state.force_close(pool.now, dead, CloseReason::Reset);
    }
    assert_eq!(pool.reuse(), pool.held[0]);
    assert_eq!(pool.gauges(), [0, 0, 1, 0]);

    let mut pool = Pool::new(config().max_connections(1));
    for _ in 0..1000 {
        let conn = pool.open();
        pool.release(conn);
        pool.state.force_close(pool.now, conn, CloseReason::Reset);
        pool.run();
        pool.effects();
    }
    assert_eq!(pool.state.totals().closed(CloseReason::Reset), 1000);
    assert_eq!(pool.state.totals().acquired.highest, 1);
}

/// Between the close of the last idle connection and the acquire that found it dead, the key has
/// nothing, and must not be forgotten.
#[test]
fn a_key_survives_until_the_acquire_that_closes_its_last_connection() {
    let mut pool = Pool::new(config());
    let conn = pool.open();
    pool.release(conn);
    pool.state
        .force_close(pool.now, conn, CloseReason::PeerClosed);
    assert!(matches!(
        pool.state.acquire(pool.now, pool.key),
        Admission::Wait(_)
    ));
    pool.run();
    assert_eq!(
        pool.effects(),
        [Effect::Close(conn, CloseReason::PeerClosed)]
    );
}

/// Fault row B9.
#[test]
fn waiters_are_served_in_order_of_arrival() {
    let mut pool = Pool::new(config().max_connections(1));
    let mut conn = pool.open();
    let waiters: Vec<_> = (0..10).map(|_| pool.wait()).collect();
    for waiter in waiters {
        pool.release(conn);
        assert_eq!(pool.effects(), [Effect::Deliver(waiter, conn)]);
        conn = pool.claim(waiter).unwrap();
    }
    let acquires = pool.stats().acquires;
    assert_eq!(
        (acquires.fresh, acquires.reused, acquires.queued),
        (1, 10, 10)
    );
}

#[test]
fn a_newcomer_does_not_pass_those_who_wait() {
    let mut pool = Pool::new(config().max_connections(1));
    let conn = pool.open();
    let first = pool.wait();
    let second = pool.wait();
    pool.release(conn);
    let third = pool.wait();
    assert_eq!(pool.claim(first), Some(conn));
    pool.release(conn);
    assert_eq!((pool.claim(third), pool.claim(second)), (None, Some(conn)));
}

#[test]
fn a_released_connection_serves_a_waiter_before_its_connect_is_done() {
    let mut pool = Pool::new(config());
    let held = pool.open();
    let waiter = pool.wait();
    let late = pool.connects[0];
    pool.release(held);
    assert_eq!(pool.claim(waiter), Some(held));
    assert!(pool.connected(late));
    assert_eq!(
        pool.gauges(),
        [0, 1, 1, 0],
        "the late connection is kept as idle"
    );
    assert!(!pool.state.is_reused(late));
}

/// Fault rows A4 and A6: the caller goes away in every state of its wait.
#[test]
fn cancelling_at_any_point_leaves_no_permit_behind() {
    for point in 0..4 {
        let mut pool = Pool::new(config().max_connections(1));
        for _ in 0..50 {
            let waiter = match pool.acquire() {
                Admission::Wait(waiter) => waiter,
                Admission::Reuse(conn) => {
                    let waiter = pool.wait();
                    pool.release(conn);
                    waiter
                }
                Admission::Reject(why) => panic!("{why:?}"),
            };
            match point {
                0 => pool.cancel(waiter),
                1 => {
                    if let Some(conn) = pool.connects.first().copied() {
                        pool.connected(conn);
                    }
                    pool.cancel(waiter);
                }
                2 => {
                    pool.cancel(waiter);
                    if let Some(conn) = pool.connects.first().copied() {
                        pool.connected(conn);
                    }
                }
                _ => {
                    if let Some(conn) = pool.connects.first().copied() {
                        pool.connect_failed(conn);
                    }
                    pool.cancel(waiter);
                    pool.pass(millis(200));
                }
            }
            pool.cancel(waiter);
        }
        let [connecting, idle, acquired, pending] = pool.gauges();
        assert_eq!((acquired, pending), (0, 0), "point {point}");
        assert!(connecting + idle <= 1, "point {point}");
    }
}

#[test]
fn a_delivery_cancelled_before_its_claim_goes_to_the_next_waiter_unused() {
    let mut pool = Pool::new(config().max_connections(1));
    let [first, second] = [pool.wait(), pool.wait()];
    let conn = pool.connects[0];
    pool.connected(conn);
    assert_eq!(pool.effects(), [Effect::Deliver(first, conn)]);
    pool.cancel(first);
    assert_eq!(pool.effects(), [Effect::Deliver(second, conn)]);
    pool.cancel(second);
    assert_eq!(pool.gauges(), [0, 1, 0, 0]);
    assert!(!pool.state.is_reused(conn), "nobody has used it");
    assert_eq!(pool.claim(second), None);
}

/// Fault row B3: a cancelled waiter leaves its connect to the next.
#[test]
fn the_next_waiter_takes_over_the_connect_of_a_cancelled_one() {
    let minutes = Duration::from_secs(600);
    let mut pool = Pool::new(
        config()
            .max_connections(1)
            .acquire_timeout(None)
            .connect_timeout(None),
    );
    let [first, second] = [pool.wait(), pool.wait()];
    assert_eq!(pool.gauges(), [1, 0, 0, 1]);
    pool.cancel(first);
    assert_eq!(pool.gauges(), [1, 0, 0, 0]);
    pool.pass(minutes);
    let conn = pool.connects[0];
    pool.connected(conn);
    assert_eq!(pool.claim(second), Some(conn));
}

/// Fault row B2: a queue that becomes empty serves those who join it next.
#[test]
fn a_queue_emptied_a_thousand_times_serves_the_next_to_join() {
    let mut pool = Pool::new(config().max_connections(1));
    let mut conn = pool.open();
    for _ in 0..1000 {
        let leaver = pool.wait();
        pool.cancel(leaver);
        let joiner = pool.wait();
        pool.release(conn);
        conn = pool.claim(joiner).unwrap();
    }
    assert_eq!(pool.gauges(), [0, 0, 1, 0]);
}

/// Fault row B6: the timeout runs from the call, also for the waiter that a connect covers.
#[test]
fn acquire_timeouts_run_while_a_slow_connect_is_in_flight() {
    let mut pool = Pool::new(config().max_connections(1).acquire_timeout(millis(200)));
    let waiters: Vec<_> = (0..6).map(|_| pool.wait()).collect();
    pool.pass(millis(199));
    assert!(pool.effects().is_empty());
    pool.pass(millis(1) + TICK);
    let rejects = waiters
        .iter()
        .map(|id| Effect::Reject(*id, Rejection::AcquireTimeout));
    assert_eq!(pool.effects(), rejects.collect::<Vec<_>>());
    assert_eq!(pool.stats().timeouts.acquire, 6);
    let conn = pool.connects[0];
    assert!(pool.connected(conn), "the connect was not in vain");
    assert_eq!(pool.gauges(), [0, 1, 0, 0]);
}

#[test]
fn a_delivered_waiter_does_not_time_out() {
    let mut pool = Pool::new(
        config()
            .acquire_timeout(millis(100))
            .hold_timeout(millis(500)),
    );
    let waiter = pool.wait();
    pool.connected(pool.connects[0]);
    pool.effects();
    pool.pass(millis(400));
    let conn = pool.claim(waiter).unwrap();
    pool.pass(millis(499));
    assert!(
        pool.effects().is_empty(),
        "the hold timeout starts over with the claim"
    );
    pool.pass(millis(1) + TICK);
    assert_eq!(
        pool.effects()[0],
        Effect::ForceClose(conn, CloseReason::HoldTimeout)
    );
}

/// Fault row A12: the cap holds however the acquires come, and its refusals come at once.
#[test]
fn no_more_than_max_pending_wait_without_a_connect() {
    let mut pool = Pool::new(config().max_connections(1).max_pending(5));
    let conn = pool.open();
    let refused = (0..50)
        .filter(|_| match pool.acquire() {
            Admission::Wait(_) => false,
            Admission::Reject(why) => {
                assert_eq!(why, Rejection::QueueFull { pending: 5 });
                true
            }
            Admission::Reuse(conn) => panic!("{conn:?}"),
        })
        .count();
    assert_eq!((refused, pool.stats().rejected.queue_full), (45, 45));
    assert_eq!(
        (pool.stats().pending.current, pool.stats().pending.highest),
        (5, 5)
    );
    pool.release(conn);
    pool.wait();
}

#[test]
fn with_max_pending_zero_a_waiter_needs_a_connect_of_its_own() {
    let mut pool = Pool::new(config().max_connections(2).max_pending(0));
    pool.wait();
    let second = pool.wait();
    assert_eq!(
        pool.acquire(),
        Admission::Reject(Rejection::QueueFull { pending: 0 })
    );
    pool.cancel(second);
    pool.wait();
    assert_eq!(
        pool.gauges(),
        [2, 0, 0, 0],
        "the cancelled one left its connect"
    );
}

/// Fault row A9: an overflow does not cost capacity.
#[test]
fn a_burst_over_all_caps_leaves_every_slot_usable() {
    let timeout = millis(300);
    let mut pool = Pool::new(
        config()
            .max_connections(10)
            .max_pending(20)
            .acquire_timeout(timeout),
    );
    for _ in 0..10 {
        pool.open();
    }
    for _ in 0..1000 {
        pool.acquire();
    }
    pool.pass(millis(400));
    assert_eq!(
        (
            pool.stats().timeouts.acquire,
            pool.stats().rejected.queue_full
        ),
        (20, 980)
    );
    for conn in pool.held.clone() {
        pool.release(conn);
    }
    assert_eq!(pool.gauges(), [0, 10, 0, 0]);
    assert_eq!((0..10).map(|_| pool.reuse()).count(), 10);
}

/// Fault row B11.
#[test]
fn waiters_who_left_leave_nothing() {
    let mut pool = Pool::new(config().max_connections(1));
    pool.open();
    let timers = pool.state.timers.len();
    let waiters: Vec<_> = (0..100_000)
        .map(|_| match pool.state.acquire(pool.now, pool.key) {
            Admission::Wait(waiter) => waiter,
            other => panic!("{other:?}"),
        })
        .collect();
    for waiter in waiters {
        pool.state.cancel(pool.now, waiter);
    }
    pool.run();
    assert_eq!(
        pool.stats().pending,
        Gauge {
            current: 0,
            highest: 100_000
        }
    );
    assert_eq!(
        (pool.state.timers.len(), pool.state.waiters.len()),
        (timers, 0)
    );
}

#[test]
fn destinations_do_not_share_connections_or_caps() {
    let mut pool = Pool::new(config().max_connections(1));
    let conn = pool.open();
    pool.release(conn);
    let other = pool.state.insert_key();
    assert_eq!(pool.candidate_of(other), None);
    assert!(matches!(
        pool.state.acquire(pool.now, other),
        Admission::Wait(_)
    ));
    pool.run();
    assert_eq!(pool.state.keys().count(), 2);
    assert_eq!(pool.state.totals().live(), 2);
}

#[test]
#[should_panic(expected = "time went back")]
fn time_that_goes_back_is_noticed() {
    let mut pool = Pool::new(config());
    pool.pass(millis(1));
    pool.wait();
    pool.now = Timestamp::ZERO;
    pool.wait();
}

/// Fault row E3: the retry after a stale connection goes over a new one, whatever is idle.
#[test]
fn a_fresh_acquire_connects_beside_idle_connections() {
    let mut pool = Pool::new(config().max_connections(3));
    let conns = [pool.open(), pool.open()];
    conns.into_iter().for_each(|conn| pool.release(conn));
    let waiter = pool.wait_fresh();
    assert_eq!(pool.gauges(), [1, 2, 0, 0]);
    let new = pool.connects[0];
    pool.connected(new);
    assert_eq!(pool.claim(waiter), Some(new));
    assert!(!pool.state.is_reused(new));
}

#[test]
fn a_fresh_acquire_at_the_cap_evicts_the_coldest_idle_connection() {
    let mut pool = Pool::new(config().max_connections(2));
    let [cold, warm] = [pool.open(), pool.open()];
    pool.release(cold);
    pool.release(warm);
    let waiter = pool.wait_fresh();
    assert_eq!(pool.effects(), [Effect::Close(cold, CloseReason::Evicted)]);
    let new = pool.connects[0];
    pool.connected(new);
    assert_eq!(pool.claim(waiter), Some(new));
    assert_eq!(pool.reuse(), warm);
}

#[test]
fn a_fresh_waiter_lets_used_connections_pass_while_its_connect_is_under_way() {
    let mut pool = Pool::new(config().max_connections(2));
    let [first, second] = [pool.open(), pool.open()];
    let fresh = pool.wait_fresh();
    let ordinary = pool.wait();
    pool.release(first);
    assert_eq!(pool.effects(), [Effect::Close(first, CloseReason::Evicted)]);
    let new = pool.connects[0];
    pool.release(second);
    assert_eq!(pool.effects(), [Effect::Deliver(ordinary, second)]);
    pool.connected(new);
    assert_eq!(pool.claim(fresh), Some(new));
}

#[test]
fn a_fresh_waiter_is_not_starved_by_those_behind_it() {
    let mut pool = Pool::new(config().max_connections(1));
    let mut held = pool.open();
    let first = pool.wait();
    let fresh = pool.wait_fresh();
    let rest: Vec<_> = (0..100).map(|_| pool.wait()).collect();
    pool.release(held);
    assert_eq!(pool.claim(first), Some(held), "it came before");
    pool.effects();
    pool.release(held);
    assert_eq!(pool.effects(), [Effect::Close(held, CloseReason::Evicted)]);
    held = pool.connects[0];
    pool.connected(held);
    assert_eq!(pool.claim(fresh), Some(held));
    for waiter in rest {
        pool.release(held);
        assert_eq!(pool.claim(waiter), Some(held));
    }
}
