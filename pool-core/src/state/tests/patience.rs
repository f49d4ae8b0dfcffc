//! `dial_delay`: waiting for a release before a connect is started.

use super::*;

const DELAY: Duration = millis(2);

#[test]
fn a_waiter_waits_for_a_release_before_a_connect_is_started_for_it() {
    let mut pool = Pool::new(config().dial_delay(DELAY));
    let held = pool.open();
    let waiter = pool.wait();
    assert_eq!(pool.gauges(), [0, 0, 1, 1]);
    pool.pass(millis(1));
    pool.release(held);
    assert_eq!(pool.claim(waiter), Some(held));
    assert_eq!(pool.stats().acquires.queued, 0, "a connect was allowed");

    let patient = pool.wait();
    pool.pass(DELAY - Duration::from_nanos(1));
    assert!(pool.connects.is_empty());
    pool.pass(TICK);
    assert_eq!(pool.gauges(), [1, 0, 1, 0]);
    pool.connect_for(patient);
}

#[test]
fn a_connect_starts_at_once_where_nobody_could_release() {
    let mut pool = Pool::new(config().dial_delay(DELAY));
    pool.wait();
    pool.wait();
    assert_eq!(pool.gauges(), [2, 0, 0, 0]);

    let mut pool = Pool::new(config().dial_delay(DELAY));
    let held = pool.open();
    pool.wait();
    pool.wait();
    assert!(pool.connects.is_empty());
    pool.close(held);
    assert_eq!(
        pool.gauges(),
        [2, 0, 0, 0],
        "the last holder gives nothing back"
    );
}

#[test]
fn an_acquire_may_time_out_before_its_connect_is_due() {
    let patient = config().dial_delay(millis(100)).acquire_timeout(millis(10));
    let mut pool = Pool::new(patient);
    pool.open();
    let waiter = pool.wait();
    pool.pass(millis(10) + TICK);
    assert_eq!(
        pool.effects(),
        [Effect::Reject(waiter, Rejection::AcquireTimeout)]
    );
    assert!(pool.connects.is_empty());
}

#[test]
fn the_acquire_timeout_counts_from_the_call_and_not_from_the_connect() {
    let patient = config().dial_delay(millis(40)).acquire_timeout(millis(100));
    let mut pool = Pool::new(patient.connect_timeout(None));
    pool.open();
    let waiter = pool.wait();
    pool.pass(millis(99));
    assert!(pool.effects().is_empty());
    pool.pass(millis(1) + TICK);
    assert_eq!(
        pool.effects(),
        [Effect::Reject(waiter, Rejection::AcquireTimeout)]
    );
}

#[test]
fn waiting_for_a_release_does_not_pass_the_cap_of_waiters() {
    let patient = config().dial_delay(DELAY).max_connections(2).max_pending(0);
    let mut pool = Pool::new(patient);
    pool.open();
    pool.wait();
    assert_eq!(
        pool.acquire(),
        Admission::Reject(Rejection::QueueFull { pending: 1 }),
        "one connect may be started, which one waits for"
    );
}

/// A task of a load: waits for a connection, or holds one until its service is over.
#[derive(Clone, Copy)]
enum Task {
    Waits(WaiterId),
    Holds(ConnId, Timestamp),
}

/// Ten tasks acquire, hold for a millisecond and release, again and again, for five seconds; they
/// start five milliseconds apart, and a connect takes three.
fn load(config: PoolConfigBuilder) -> DestinationStats {
    let step = Duration::from_micros(500);
    let (service, connect) = (millis(1), millis(3));
    let mut pool = Pool::new(config.max_connections(100));
    let mut tasks: Vec<Task> = Vec::new();
    let mut due: Vec<(ConnId, Timestamp)> = Vec::new();
    let ask = |pool: &mut Pool| match pool.acquire() {
        Admission::Reuse(conn) => Task::Holds(conn, pool.now + service),
        Admission::Wait(waiter) => Task::Waits(waiter),
        Admission::Reject(why) => panic!("{why:?}"),
    };
    for round in 0..10_000 {
        if tasks.len() < 10 && round % 10 == 0 {
            tasks.push(ask(&mut pool));
        }
        let ready: Vec<ConnId> = due
            .extract_if(.., |(_, at)| *at <= pool.now)
            .map(|(conn, _)| conn)
            .collect();
        for conn in ready {
            pool.connected(conn);
        }
        for task in &mut tasks {
            if let Task::Waits(waiter) = *task
                && let Some(conn) = pool.claim(waiter)
            {
                *task = Task::Holds(conn, pool.now + service);
            }
            if let Task::Holds(conn, until) = *task
                && until <= pool.now
            {
                pool.release(conn);
                *task = ask(&mut pool);
            }
        }
        for conn in std::mem::take(&mut pool.connects) {
            due.push((conn, pool.now + connect));
        }
        pool.pass(step);
        pool.effects();
    }
    pool.stats()
}

/// Fault row B10: whoever finds no idle connection dials, though one frees a millisecond later.
#[test]
fn a_delay_before_dialling_makes_most_connects_needless() {
    let patient = load(config().dial_delay(DELAY));
    let eager = load(config());
    for stats in [&patient, &eager] {
        assert_eq!(stats.closed_total(), 0, "what is extra is kept as idle");
        assert_eq!(u64::from(stats.live()), stats.connects);
        let served = stats.acquires.fresh + stats.acquires.reused;
        assert!(served > 10_000, "{served}");
    }
    assert!(patient.connects <= 12, "{}", patient.connects);
    assert!(
        2 * patient.connects <= eager.connects,
        "{} connects with the delay, {} without",
        patient.connects,
        eager.connects
    );
}
