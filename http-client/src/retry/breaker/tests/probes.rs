//! How it is found out whether a destination is well again.

use super::*;

/// Fault E11.
#[test]
fn of_a_thousand_calls_in_one_tick_exactly_the_probes_go_ahead() {
    for probes in [1, 2, 7] {
        let mut breaker = breaker(config().probes(probes));
        open(&mut breaker, 0);
        let calls: Vec<_> = (0..1000).map(|_| breaker.admit(at(1000))).collect();
        let (ahead, behind) = calls.split_at(probes as usize);
        assert!(ahead.iter().all(Result::is_ok));
        let until_the_next_look = Open {
            retry_after: millis(10_000),
        };
        assert!(behind.iter().all(|call| *call == Err(until_the_next_look)));
        let counts = breaker.counts();
        assert_eq!(counts.probes, u64::from(probes));
        assert_eq!(counts.rejected, 1000 - u64::from(probes));
    }
}

/// Fault E11.
#[test]
fn a_long_wait_lets_no_more_than_the_probes_go_ahead() {
    let mut breaker = breaker(config());
    open(&mut breaker, 0);
    let now = 1000 + 599_999;
    let admitted = (0..1000).filter(|_| breaker.admit(at(now)).is_ok()).count();
    assert_eq!(admitted, 2);
}

/// Fault E12.
#[test]
fn a_cancelled_probe_is_neither_success_nor_failure_and_makes_room_for_another() {
    let mut breaker = breaker(config().probes(1));
    open(&mut breaker, 0);
    for now in 1000..2000 {
        let probe = admit(&mut breaker, now);
        assert!(breaker.admit(at(now)).is_err());
        assert_eq!(breaker.report(at(now), probe, Outcome::Neutral), None);
        assert_eq!(breaker.state(at(now)), BreakerState::HalfOpen);
    }
    assert_eq!(
        succeed(&mut breaker, 2000),
        Some(transition(
            BreakerState::HalfOpen,
            BreakerState::Closed,
            Cause::ProbesSucceeded
        ))
    );
}

/// Fault E12.
#[test]
fn a_cancelled_probe_frees_its_own_place_and_no_other() {
    let mut breaker = breaker(config().probes(3));
    open(&mut breaker, 0);
    let _first = admit(&mut breaker, 1000);
    let second = admit(&mut breaker, 2000);
    let _third = admit(&mut breaker, 3000);
    assert_eq!(breaker.report(at(4000), second, Outcome::Neutral), None);
    assert!(breaker.admit(at(4000)).is_ok());
    assert_eq!(rejected_for(&mut breaker, 4000), millis(7000));
    // A second word of the same permit takes no place from the one that has its own.
    assert_eq!(breaker.report(at(4000), second, Outcome::Neutral), None);
    assert_eq!(rejected_for(&mut breaker, 4000), millis(7000));
}

#[test]
fn the_open_time_doubles_with_every_failed_probe_up_to_the_longest() {
    let mut breaker = breaker(config());
    let mut now = 0;
    open(&mut breaker, now);
    for open_for in [1000, 2000, 4000, 5000, 5000, 5000] {
        assert_eq!(rejected_for(&mut breaker, now), millis(open_for));
        now += open_for;
        assert_eq!(
            fail(&mut breaker, now),
            Some(transition(
                BreakerState::HalfOpen,
                BreakerState::Open,
                Cause::ProbeFailed
            ))
        );
    }
}

#[test]
fn once_closed_the_next_open_time_is_the_first_again() {
    let mut breaker = breaker(config());
    open(&mut breaker, 0);
    let _ = fail(&mut breaker, 1000);
    assert!(succeed(&mut breaker, 3000).is_some());
    open(&mut breaker, 3000);
    assert_eq!(rejected_for(&mut breaker, 3000), millis(1000));
}

#[test]
fn it_closes_after_as_many_successes_as_it_takes() {
    let mut breaker = breaker(config().probes(2).probes_to_close(4));
    open(&mut breaker, 0);
    for now in 1000..1003 {
        assert_eq!(succeed(&mut breaker, now), None);
    }
    assert_eq!(attempt(&mut breaker, 1003, Outcome::Neutral), None);
    assert!(succeed(&mut breaker, 1003).is_some());
    assert_eq!(breaker.state(at(1003)), BreakerState::Closed);
}

#[test]
fn successes_of_an_earlier_half_open_do_not_help_to_close() {
    let mut breaker = breaker(config().probes_to_close(2));
    open(&mut breaker, 0);
    assert_eq!(succeed(&mut breaker, 1000), None);
    assert!(fail(&mut breaker, 1000).is_some());
    assert_eq!(succeed(&mut breaker, 3000), None);
    assert!(succeed(&mut breaker, 3000).is_some());
}

#[test]
fn late_outcomes_of_an_earlier_half_open_change_nothing() {
    let mut breaker = breaker(config().probes(3));
    open(&mut breaker, 0);
    let [failing, late, later] = std::array::from_fn(|_| admit(&mut breaker, 1000));
    assert!(
        breaker
            .report(at(1000), failing, Outcome::Failure)
            .is_some()
    );
    assert_eq!(breaker.report(at(2900), late, Outcome::Failure), None);
    assert_eq!(rejected_for(&mut breaker, 2900), millis(100), "not longer");
    let probes: [Permit; 3] = std::array::from_fn(|_| admit(&mut breaker, 3000));
    assert_eq!(breaker.report(at(3000), later, Outcome::Success), None);
    assert_eq!(breaker.state(at(3000)), BreakerState::HalfOpen);
    assert!(breaker.admit(at(3000)).is_err(), "no place has become free");
    assert!(
        breaker
            .report(at(3000), probes[0], Outcome::Success)
            .is_some()
    );
    assert_eq!(breaker.report(at(3000), probes[1], Outcome::Failure), None);
    assert!(breaker.is_idle(at(3000)));
}

#[test]
fn a_probe_that_hangs_keeps_others_away_for_the_probe_timeout_and_opens_nothing() {
    let mut breaker = breaker(config().probes(2));
    open(&mut breaker, 0);
    let _hangs = admit(&mut breaker, 1000);
    let _hangs_too = admit(&mut breaker, 4000);
    assert_eq!(rejected_for(&mut breaker, 10_999), millis(1));
    let _third = admit(&mut breaker, 11_000);
    assert_eq!(rejected_for(&mut breaker, 11_000), millis(3000));
    assert_eq!(breaker.state(at(11_000)), BreakerState::HalfOpen);
    assert!(succeed(&mut breaker, 14_000).is_some());
}

#[test]
fn a_destination_slower_than_the_probe_timeout_is_let_back_in_all_the_same() {
    let mut breaker = breaker(config().probes(1).probes_to_close(2));
    open(&mut breaker, 0);
    let slow = [1000, 11_000, 21_000].map(|now| admit(&mut breaker, now));
    assert_eq!(breaker.report(at(22_000), slow[0], Outcome::Success), None);
    assert!(breaker.admit(at(22_000)).is_err(), "its place was taken");
    assert!(
        breaker
            .report(at(23_000), slow[1], Outcome::Success)
            .is_some()
    );
    assert_eq!(breaker.state(at(23_000)), BreakerState::Closed);
}

#[test]
fn a_late_failure_of_a_probe_opens_it_again() {
    let mut breaker = breaker(config().probes(1));
    open(&mut breaker, 0);
    let slow = admit(&mut breaker, 1000);
    let _next = admit(&mut breaker, 11_000);
    assert!(breaker.report(at(12_000), slow, Outcome::Failure).is_some());
    assert_eq!(rejected_for(&mut breaker, 12_000), millis(2000));
}

#[test]
fn probing_needs_no_memory_beyond_what_opening_took_and_closing_gives_it_back() {
    let mut breaker = breaker(config().probes(100));
    assert_eq!(breaker.probes.capacity(), 0);
    open(&mut breaker, 0);
    let taken = breaker.probes.capacity();
    assert!(taken >= 100);
    let probes: Vec<_> = (0..100).map(|_| admit(&mut breaker, 1000)).collect();
    assert!(breaker.admit(at(1000)).is_err());
    assert_eq!(breaker.probes.capacity(), taken);
    assert!(
        breaker
            .report(at(1000), probes[50], Outcome::Success)
            .is_some()
    );
    assert_eq!(breaker.probes.capacity(), 0);
}
