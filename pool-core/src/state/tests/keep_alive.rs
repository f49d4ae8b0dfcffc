//! What peers announce about how long they keep an idle connection.

use super::*;

fn hint(pool: &mut Pool, conn: ConnId, hint: impl Into<Option<Duration>>) {
    pool.state.hint_keep_alive(conn, hint.into());
}

fn expired(conn: ConnId) -> Effect {
    Effect::Close(conn, CloseReason::KeepAliveExpired)
}

/// Fault row D9: the hint holds though the pool has no idle timeout of its own.
#[test]
fn an_idle_connection_is_closed_a_margin_before_its_peer_does() {
    for idle_timeout in [None, Some(millis(60_000))] {
        let mut pool = Pool::new(config().idle_timeout(idle_timeout));
        let conn = pool.open();
        hint(&mut pool, conn, millis(5000));
        pool.release(conn);
        pool.pass(millis(3999));
        assert!(pool.effects().is_empty());
        pool.pass(millis(1) + TICK);
        assert_eq!(pool.effects()[0], expired(conn));
    }
}

#[test]
fn the_pools_own_idle_timeout_holds_if_it_is_sooner() {
    let mut pool = Pool::new(config().idle_timeout(millis(100)));
    let conn = pool.open();
    hint(&mut pool, conn, millis(5000));
    pool.release(conn);
    pool.pass(millis(100) + TICK);
    assert_eq!(
        pool.effects()[0],
        Effect::Close(conn, CloseReason::IdleTimeout)
    );
}

#[test]
fn a_hint_within_the_margin_closes_at_the_release() {
    for (margin, announced, kept) in [
        (1000, 0, false),
        (1000, 999, false),
        (1000, 1000, false),
        (1000, 1001, true),
        (0, 0, false),
        (0, 1, true),
    ] {
        let mut pool = Pool::new(config().keep_alive_margin(millis(margin)));
        let conn = pool.open();
        hint(&mut pool, conn, millis(announced));
        pool.state.release(pool.now, conn, Disposition::Reuse);
        // Before the clock is read: nobody is given it in between.
        pool.carry_out();
        assert_eq!(
            pool.gauges(),
            [0, u32::from(kept), 0, 0],
            "{announced} ms with a margin of {margin} ms"
        );
        if !kept {
            assert_eq!(pool.effects()[0], expired(conn));
        }
    }
}

#[test]
fn a_waiter_still_gets_a_connection_whose_peer_is_patient_for_a_moment() {
    let mut pool = Pool::new(config().max_connections(1));
    let conn = pool.open();
    let waiter = pool.wait();
    hint(&mut pool, conn, millis(1));
    pool.release(conn);
    assert_eq!(pool.effects(), [Effect::Deliver(waiter, conn)]);
    pool.claim(waiter);

    let waiter = pool.wait();
    hint(&mut pool, conn, Duration::ZERO);
    pool.release(conn);
    assert_eq!(pool.effects(), [expired(conn)], "it is closed already");
    pool.connect_for(waiter);
}

#[test]
fn a_hint_is_rounded_down_and_holds_until_the_next() {
    let mut pool = Pool::new(config().keep_alive_margin(Duration::ZERO));
    let conn = pool.open();
    hint(&mut pool, conn, Duration::from_micros(999));
    hint(&mut pool, conn, millis(300));
    pool.release(conn);
    assert_eq!(pool.reuse(), conn);
    pool.release(conn);
    pool.pass(millis(299));
    assert_eq!(pool.reuse(), conn, "its time begins anew with each release");
    hint(&mut pool, conn, None);
    pool.release(conn);
    pool.pass(millis(10_000));
    assert_eq!(pool.reuse(), conn, "nothing is announced any more");
    hint(&mut pool, conn, Duration::from_micros(999));
    pool.release(conn);
    assert_eq!(pool.effects()[0], expired(conn));
}

#[test]
fn a_hint_for_ever_is_no_overflow() {
    let mut pool = Pool::new(config().idle_timeout(None));
    let conn = pool.open();
    hint(&mut pool, conn, Duration::MAX);
    pool.release(conn);
    pool.pass(Duration::from_secs(24 * 3600));
    assert_eq!(pool.reuse(), conn);
}

#[test]
fn a_connection_whose_time_is_over_does_not_hide_the_others() {
    for (order, first) in [(ReuseOrder::Lifo, 2), (ReuseOrder::Fifo, 0)] {
        let mut pool = Pool::new(config().reuse_order(order));
        let conns = [pool.open(), pool.open(), pool.open()];
        hint(&mut pool, conns[first], millis(1500));
        for conn in conns {
            pool.release(conn);
        }
        assert_eq!(pool.candidate(), Some(conns[first]));
        pool.now = pool.now + millis(500);
        assert_eq!(pool.candidate(), Some(conns[1]), "{order:?}");
    }
}

#[test]
fn a_connection_is_not_handed_out_within_the_margin_though_its_timer_has_not_fired() {
    let mut pool = Pool::new(config());
    let conn = pool.open();
    hint(&mut pool, conn, millis(1500));
    pool.release(conn);
    pool.now = pool.now + millis(500);
    assert_eq!(pool.candidate(), None);
    assert!(!pool.state.acquire_idle(pool.now, conn));
    pool.wait();
    assert_eq!(pool.effects(), [expired(conn)]);
}

#[test]
fn what_a_peer_closes_soon_is_not_kept_for_min_idle() {
    let mut pool = Pool::new(config().min_idle(1));
    let waiter = pool.wait();
    let conn = pool.connect_for(waiter);
    let idle = pool.connects[0];
    pool.connected(idle);
    pool.pass(millis(1));
    hint(&mut pool, conn, millis(1100));
    hint(&mut pool, idle, millis(1100));
    pool.release(conn);
    pool.pass(millis(100) + TICK);
    assert_eq!(pool.effects(), [expired(conn)]);
    assert_eq!(pool.gauges(), [0, 1, 0, 0], "the hint of the other is news");
}

/// Its idle time would begin anew, and the announced one with it.
#[test]
fn what_a_peer_has_announced_to_close_is_not_kept_beyond_the_idle_timeout() {
    let mut pool = Pool::new(config().min_idle(1).idle_timeout(millis(100)));
    let waiter = pool.wait();
    let conn = pool.connect_for(waiter);
    let idle = pool.connects[0];
    pool.connected(idle);
    hint(&mut pool, idle, millis(5000));
    pool.pass(millis(60));
    pool.release(conn);
    assert_eq!(pool.reuse(), conn, "the destination is in use");
    pool.pass(millis(40) + TICK);
    assert_eq!(
        pool.effects(),
        [Effect::Close(idle, CloseReason::IdleTimeout)]
    );
    assert_eq!(pool.gauges(), [1, 0, 1, 0], "another takes its place");
}

#[test]
fn a_hint_for_a_connection_that_is_gone_changes_nothing() {
    let mut pool = Pool::new(config());
    let conn = pool.open();
    pool.close(conn);
    pool.effects();
    hint(&mut pool, conn, Duration::ZERO);
    let next = pool.open();
    pool.release(next);
    assert_eq!(pool.gauges(), [0, 1, 0, 0]);
}
