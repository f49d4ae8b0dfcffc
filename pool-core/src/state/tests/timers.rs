//! From when times count, what reports leaks, and what is recorded of durations.

use super::*;

/// What a turn takes until the clock is read again.
const TURN: Duration = millis(40);

/// Lets a turn go on: the clock is read only at its end.
fn end_turn(pool: &mut Pool) {
    let at_once = pool.state.next_timeout().expect("something is fresh");
    assert!(at_once <= pool.now, "the clock has to be read at once");
    pool.now = pool.now + TURN;
    pool.state.handle_timeout(pool.now);
    assert!(pool.state.next_timeout().is_none_or(|next| next > pool.now));
    pool.run();
}

/// Carries out what there is to do without reading the clock.
fn carry_on(pool: &mut Pool) {
    pool.carry_out();
}

#[test]
fn a_hold_timeout_is_not_early_by_the_turn_it_began_in() {
    let mut pool = Pool::new(config().hold_timeout(millis(50)));
    let conn = pool.open();
    pool.release(conn);
    assert!(pool.state.acquire_idle(pool.now, conn));
    carry_on(&mut pool);
    end_turn(&mut pool);
    pool.pass(millis(49));
    assert!(pool.effects().is_empty(), "held for 49 ms after the turn");
    pool.pass(millis(1) + TICK);
    assert_eq!(
        pool.effects()[0],
        Effect::ForceClose(conn, CloseReason::HoldTimeout)
    );
}

#[test]
fn an_idle_timeout_is_not_early_by_the_turn_it_began_in() {
    let mut pool = Pool::new(config().idle_timeout(millis(50)));
    let conn = pool.open();
    pool.state.release(pool.now, conn, Disposition::Reuse);
    carry_on(&mut pool);
    assert_eq!(
        pool.state
            .idle_candidate(pool.now + TURN, pool.key)
            .map(|candidate| candidate.conn()),
        Some(conn)
    );
    end_turn(&mut pool);
    pool.pass(millis(49));
    assert!(pool.effects().is_empty());
    pool.pass(millis(1) + TICK);
    assert_eq!(
        pool.effects()[0],
        Effect::Close(conn, CloseReason::IdleTimeout)
    );
}

#[test]
fn acquire_and_connect_timeouts_are_not_early_by_the_turn_they_began_in() {
    for acquire in [true, false] {
        let times = match acquire {
            true => config().acquire_timeout(millis(50)),
            false => config().connect_timeout(millis(50)),
        };
        let mut pool = Pool::new(times);
        let Admission::Wait(waiter) = pool.state.acquire(pool.now, pool.key) else {
            panic!()
        };
        carry_on(&mut pool);
        end_turn(&mut pool);
        pool.pass(millis(49));
        assert!(pool.effects().is_empty());
        pool.pass(millis(1) + TICK);
        let why = match acquire {
            true => Rejection::AcquireTimeout,
            false => Rejection::ConnectTimeout,
        };
        assert!(pool.effects().contains(&Effect::Reject(waiter, why)));
    }
}

#[test]
fn what_begins_anew_within_a_turn_is_timed_once() {
    let mut pool = Pool::new(config().hold_timeout(millis(50)).idle_timeout(millis(50)));
    let conn = pool.open();
    for _ in 0..1000 {
        pool.state.release(pool.now, conn, Disposition::Reuse);
        assert!(pool.state.acquire_idle(pool.now, conn));
    }
    carry_on(&mut pool);
    end_turn(&mut pool);
    let wakes = pool.pass(millis(51));
    assert!(wakes <= 3, "{wakes} wakes");
    assert_eq!(
        pool.effects()[0],
        Effect::ForceClose(conn, CloseReason::HoldTimeout)
    );
}

#[test]
fn what_has_ended_before_the_clock_was_read_leaves_no_timer() {
    let mut pool = Pool::new(config());
    for _ in 0..100 {
        let Admission::Wait(waiter) = pool.state.acquire(pool.now, pool.key) else {
            panic!()
        };
        pool.state.cancel(pool.now, waiter);
    }
    carry_on(&mut pool);
    let conn = pool.connects[0];
    pool.connect_failed(conn);
    pool.pass(millis(2));
    assert_eq!(
        (pool.state.timers.len(), pool.state.next_timeout()),
        (0, None)
    );
}

#[test]
fn without_timeouts_nothing_wakes_the_loop() {
    let never = config().acquire_timeout(None).connect_timeout(None);
    let mut pool = Pool::new(never.hold_timeout(None).idle_timeout(None));
    let held = pool.open();
    let idle = pool.open();
    pool.release(idle);
    pool.wait_fresh();
    assert_eq!(pool.state.next_timeout(), None);
    assert_eq!(pool.gauges(), [1, 1, 1, 0]);
    pool.close(held);
}

fn leak(conn: ConnId) -> Effect {
    Effect::ReportLeak(conn)
}

fn reporting() -> PoolConfigBuilder {
    config().hold_timeout(millis(100)).report_leaks(true)
}

#[test]
fn a_leak_is_reported_once_at_half_the_hold_timeout() {
    let mut pool = Pool::new(reporting());
    let conn = pool.open();
    pool.pass(millis(50) - Duration::from_nanos(1));
    assert!(pool.effects().is_empty());
    pool.pass(TICK);
    assert_eq!(pool.effects(), [leak(conn)]);
    pool.pass(millis(49));
    assert!(pool.effects().is_empty(), "it is not said twice");
    pool.pass(millis(1));
    assert_eq!(
        pool.effects()[0],
        Effect::ForceClose(conn, CloseReason::HoldTimeout)
    );
}

#[test]
fn each_hold_is_reported_on_its_own() {
    let mut pool = Pool::new(reporting());
    let conn = pool.open();
    pool.pass(millis(49));
    pool.release(conn);
    assert_eq!(pool.reuse(), conn);
    pool.pass(millis(49));
    assert!(pool.effects().is_empty(), "neither was long");
    pool.pass(millis(1) + TICK);
    assert_eq!(pool.effects(), [leak(conn)]);
    pool.release(conn);
    pool.reuse();
    pool.pass(millis(50) + TICK);
    assert_eq!(pool.effects(), [leak(conn)]);
}

#[test]
fn leaks_are_reported_only_if_that_is_asked_for_and_there_is_a_hold_timeout() {
    for config in [
        config().hold_timeout(millis(100)),
        reporting().hold_timeout(None),
    ] {
        let mut pool = Pool::new(config);
        pool.open();
        pool.pass(millis(99));
        assert!(pool.effects().is_empty());
    }
}

#[test]
fn a_delivery_that_nobody_claims_is_no_leak() {
    let mut pool = Pool::new(reporting());
    pool.wait();
    let conn = pool.connects[0];
    pool.connected(conn);
    pool.effects();
    pool.pass(millis(99));
    assert!(pool.effects().is_empty());
}

#[test]
fn durations_are_recorded_for_what_the_counts_count() {
    let mut pool = Pool::new(config().max_connections(1));
    let waiter = pool.wait();
    pool.pass(millis(30));
    let conn = pool.connect_for(waiter);
    pool.pass(millis(20));
    let second = pool.wait();
    pool.pass(millis(10));
    pool.release(conn);
    pool.claim(second).unwrap();
    for _ in 0..8 {
        pool.release(conn);
        assert_eq!(pool.reuse(), conn);
    }
    let leaver = pool.wait();
    pool.cancel(leaver);
    pool.pass(millis(40));
    pool.force_close(conn, CloseReason::Reset);
    let histograms = pool.state.histograms();
    let totals = pool.state.totals();
    let served = totals.acquires.fresh + totals.acquires.reused;
    assert_eq!((served, histograms.acquire_wait.count()), (10, 10));
    assert_eq!(histograms.connect.count(), totals.opened);
    assert_eq!(histograms.hold.count(), 10, "each hold, however it ended");

    let close = |seen: Duration, wanted: Duration| seen.abs_diff(wanted) < wanted / 50;
    let wait = &histograms.acquire_wait;
    assert!(wait.percentile(80.0) < Duration::from_micros(1), "at once");
    assert!(close(wait.percentile(90.0), millis(10)));
    assert!(close(wait.max(), millis(30)));
    assert!(close(histograms.connect.max(), millis(30)));
    assert!(close(histograms.hold.percentile(90.0), millis(30)));
    assert!(close(histograms.hold.max(), millis(40)));
}

#[test]
fn connects_that_fail_and_deliveries_that_die_are_in_no_histogram() {
    let mut pool = Pool::new(config());
    pool.wait();
    let refused = pool.connects[0];
    pool.connect_failed(refused);
    pool.pass(millis(2));
    pool.wait();
    let conn = pool.connects[0];
    pool.connected(conn);
    pool.force_close(conn, CloseReason::PeerClosed);
    let histograms = pool.state.histograms();
    assert_eq!(histograms.connect.count(), 1);
    assert_eq!(histograms.hold.count(), 0);
    assert_eq!(histograms.acquire_wait.count(), 0);
}

/// Only on a tick does a timer fire at its very time, so that the time looks neither past nor to
/// come.
#[test]
fn times_that_end_on_a_tick_are_over_at_it() {
    let timeout = TICK * 1000;
    let limits = config().max_connections(1).report_leaks(true);
    let mut pool = Pool::new(limits.hold_timeout(timeout).acquire_timeout(timeout));
    let conn = pool.open();
    let waiter = pool.wait();
    pool.pass(timeout / 2);
    assert_eq!(pool.effects(), [leak(conn)]);
    pool.pass(timeout / 2);
    let effects = pool.effects();
    let closed = Effect::ForceClose(conn, CloseReason::HoldTimeout);
    let refused = Effect::Reject(waiter, Rejection::AcquireTimeout);
    assert!(
        effects.contains(&closed) && effects.contains(&refused),
        "{effects:?}"
    );
}

#[test]
fn a_connection_that_expires_before_its_timer_is_set_is_not_handed_out() {
    let lifetime = millis(1000);
    let mut pool = Pool::new(config().max_lifetime(lifetime).idle_timeout(None));
    let conn = pool.open();
    pool.state.release(pool.now, conn, Disposition::Reuse);
    carry_on(&mut pool);
    assert_eq!(pool.candidate(), Some(conn));
    let expired = pool.state.idle_candidate(pool.now + lifetime, pool.key);
    assert!(expired.is_none());
}
