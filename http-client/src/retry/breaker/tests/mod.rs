mod config;
mod model;
mod probes;

use super::*;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(since_start: u64) -> Timestamp {
    Timestamp::ZERO + millis(since_start)
}

/// Opens after 3 failures in a row, or half of 10 outcomes within 16 s; for 1 s, at most 5 s; two
/// probes at a time, one success closes it, after 10 s without word another may go.
fn config() -> BreakerConfigBuilder {
    BreakerConfig::builder()
        .consecutive_failures(3)
        .failure_rate(0.5)
        .window(millis(16_000))
        .min_requests(10)
        .open_for(millis(1000))
        .max_open_for(millis(5000))
        .probes(2)
        .probes_to_close(1)
        .probe_timeout(millis(10_000))
}

fn breaker(config: BreakerConfigBuilder) -> Breaker {
    Breaker::new(&config.build().unwrap(), Timestamp::ZERO)
}

fn admit(breaker: &mut Breaker, now: u64) -> Permit {
    breaker.admit(at(now)).unwrap().permit
}

/// An attempt that begins and ends at `now`.
fn attempt(breaker: &mut Breaker, now: u64, outcome: Outcome) -> Option<Transition> {
    let permit = admit(breaker, now);
    breaker.report(at(now), permit, outcome)
}

fn succeed(breaker: &mut Breaker, now: u64) -> Option<Transition> {
    attempt(breaker, now, Outcome::Success)
}

fn fail(breaker: &mut Breaker, now: u64) -> Option<Transition> {
    attempt(breaker, now, Outcome::Failure)
}

/// Fails until it opens.
fn open(breaker: &mut Breaker, now: u64) {
    while breaker.state(at(now)) != BreakerState::Open {
        let _ = fail(breaker, now);
    }
}

fn rejected_for(breaker: &mut Breaker, now: u64) -> Duration {
    breaker.admit(at(now)).unwrap_err().retry_after
}

fn transition(from: BreakerState, to: BreakerState, why: Cause) -> Transition {
    Transition { from, to, why }
}

#[test]
fn failures_in_a_row_open_it_and_only_a_success_breaks_the_row() {
    let mut breaker = breaker(config().failure_rate(None));
    for _ in 0..10 {
        assert_eq!(fail(&mut breaker, 0), None);
        assert_eq!(fail(&mut breaker, 0), None);
        assert_eq!(succeed(&mut breaker, 0), None);
    }
    assert_eq!(fail(&mut breaker, 0), None);
    assert_eq!(attempt(&mut breaker, 0, Outcome::Neutral), None);
    assert_eq!(fail(&mut breaker, 0), None);
    assert_eq!(attempt(&mut breaker, 0, Outcome::Neutral), None);
    assert_eq!(
        fail(&mut breaker, 0),
        Some(transition(
            BreakerState::Closed,
            BreakerState::Open,
            Cause::ConsecutiveFailures
        ))
    );
    assert_eq!(breaker.state(at(0)), BreakerState::Open);
}

#[test]
fn failures_a_whole_window_apart_are_not_in_a_row() {
    let mut breaker = breaker(config().failure_rate(None));
    let mut now = 0;
    for gap in [0, 15_999, 16_000, 15_999, 16_000, 15_999] {
        now += gap;
        assert_eq!(fail(&mut breaker, now), None, "after {gap} ms");
    }
    assert!(fail(&mut breaker, now + 15_999).is_some());
}

#[test]
fn the_rate_opens_it_exactly_where_it_is_reached() {
    // In a row of 20 outcomes, so that 0.6 is 12 failures.
    for (rate, needed) in [(0.6, 12), (0.55, 11), (1.0, 20), (0.05, 1), (0.000_001, 1)] {
        for failures in [needed - 1, needed] {
            let mut breaker = breaker(
                config()
                    .consecutive_failures(None)
                    .failure_rate(rate)
                    .min_requests(20),
            );
            for _ in failures..20 {
                assert_eq!(succeed(&mut breaker, 0), None);
            }
            for _ in 1..failures {
                assert_eq!(fail(&mut breaker, 0), None, "{rate}: below the volume");
            }
            let last = (failures > 0).then(|| fail(&mut breaker, 0)).flatten();
            let expected = (failures == needed).then_some(transition(
                BreakerState::Closed,
                BreakerState::Open,
                Cause::FailureRate,
            ));
            assert_eq!(last, expected, "{rate}: {failures} of 20");
        }
    }
}

#[test]
fn a_rate_says_nothing_below_the_least_number_of_outcomes() {
    let mut breaker = breaker(config().consecutive_failures(None));
    for _ in 0..9 {
        assert_eq!(fail(&mut breaker, 0), None);
        let _ = attempt(&mut breaker, 0, Outcome::Neutral);
    }
    assert!(fail(&mut breaker, 0).is_some());
}

#[test]
fn a_success_never_opens_it() {
    let mut breaker = breaker(config().consecutive_failures(None));
    for _ in 0..9 {
        let _ = fail(&mut breaker, 0);
    }
    assert_eq!(succeed(&mut breaker, 0), None, "9 of 10 have failed");
    assert!(fail(&mut breaker, 0).is_some());
}

#[test]
fn outcomes_older_than_the_window_count_for_nothing() {
    let mut breaker = breaker(config().consecutive_failures(None));
    for _ in 0..9 {
        let _ = fail(&mut breaker, 0);
    }
    assert_eq!(fail(&mut breaker, 16_000), None);
    for _ in 0..8 {
        assert_eq!(fail(&mut breaker, 20_000), None);
    }
    assert!(fail(&mut breaker, 31_999).is_some());
}

#[test]
fn without_limits_it_never_opens() {
    let mut breaker = breaker(config().consecutive_failures(None).failure_rate(None));
    for now in 0..10_000 {
        assert_eq!(fail(&mut breaker, now), None);
    }
    assert_eq!(breaker.counts(), BreakerCounts::default());
}

#[test]
fn open_it_rejects_until_its_time_and_says_how_long_that_is() {
    let mut breaker = breaker(config());
    open(&mut breaker, 500);
    for (now, left) in [(500, 1000), (501, 999), (1499, 1)] {
        assert_eq!(rejected_for(&mut breaker, now), millis(left));
    }
    let just_before = Timestamp::from_nanos(1_499_999_999);
    let left = breaker.admit(just_before).unwrap_err().retry_after;
    assert_eq!(left, Duration::from_nanos(1));
    assert_eq!(breaker.state(at(1500)), BreakerState::Open);
    let admitted = breaker.admit(at(1500)).unwrap();
    assert_eq!(
        admitted.transition,
        Some(transition(
            BreakerState::Open,
            BreakerState::HalfOpen,
            Cause::OpenTimePassed
        ))
    );
    assert_eq!(breaker.state(at(1500)), BreakerState::HalfOpen);
}

#[test]
fn closing_forgets_the_failures_before() {
    for (config, needed) in [
        (config().failure_rate(None), 3),
        (config().consecutive_failures(None), 10),
    ] {
        let mut breaker = breaker(config);
        open(&mut breaker, 0);
        assert!(succeed(&mut breaker, 1000).is_some());
        for failure in 1..needed {
            assert_eq!(fail(&mut breaker, 1000), None, "{failure} of {needed}");
        }
        assert!(fail(&mut breaker, 1000).is_some());
    }
}

#[test]
fn late_outcomes_of_what_was_admitted_while_closed_change_nothing() {
    for outcome in [Outcome::Failure, Outcome::Success, Outcome::Neutral] {
        let mut breaker = breaker(config().probes(1));
        let late: [Permit; 40] = std::array::from_fn(|_| admit(&mut breaker, 0));
        let report = |breaker: &mut Breaker, range: std::ops::Range<usize>, now| {
            let before = breaker.clone();
            for permit in &late[range] {
                assert_eq!(breaker.report(at(now), *permit, outcome), None);
            }
            assert_eq!(breaker.state(at(now)), before.state(at(now)));
            assert_eq!(breaker.counts(), before.counts());
        };
        open(&mut breaker, 0);
        report(&mut breaker, 0..10, 900);
        assert_eq!(rejected_for(&mut breaker, 900), millis(100));

        let probe = admit(&mut breaker, 1000);
        report(&mut breaker, 10..20, 1500);
        assert_eq!(rejected_for(&mut breaker, 1500), millis(9500));

        assert!(breaker.report(at(2000), probe, Outcome::Failure).is_some());
        report(&mut breaker, 20..30, 2000);
        assert_eq!(rejected_for(&mut breaker, 2000), millis(2000));

        assert!(succeed(&mut breaker, 4000).is_some());
        report(&mut breaker, 30..40, 4000);
        assert!(breaker.is_idle(at(4000)));
    }
}

#[test]
fn permits_that_are_never_reported_lock_nothing() {
    let mut breaker = breaker(config());
    for _ in 0..1000 {
        let _never = admit(&mut breaker, 0);
    }
    assert!(breaker.is_idle(at(0)));
    open(&mut breaker, 0);
    for round in 0..100 {
        let now = 1000 + round * 10_000;
        let admitted = (0..10).filter(|_| breaker.admit(at(now)).is_ok()).count();
        assert_eq!(admitted, 2, "at {now}");
    }
    assert!(succeed(&mut breaker, 1_001_000).is_some());
}

#[test]
fn unused_for_long_after_its_time_it_is_as_new() {
    let unused = |from| Some(transition(from, BreakerState::Closed, Cause::Unused));
    let mut breaker = breaker(config());
    open(&mut breaker, 0);
    let _ = fail(&mut breaker, 1000);
    assert!(!breaker.is_idle(at(602_999)));
    assert_eq!(breaker.state(at(602_999)), BreakerState::Open);
    assert!(breaker.is_idle(at(603_000)));
    assert_eq!(breaker.state(at(603_000)), BreakerState::Closed);
    let admitted = breaker.admit(at(603_000)).unwrap();
    assert_eq!(admitted.transition, unused(BreakerState::Open));
    open(&mut breaker, 603_000);
    assert_eq!(rejected_for(&mut breaker, 603_000), millis(1000));

    // Half-open, from when its last probe cannot keep others away any more.
    let probe = admit(&mut breaker, 604_000);
    assert!(!breaker.is_idle(at(1_213_999)));
    assert!(breaker.is_idle(at(1_214_000)));
    let late = breaker.report(at(1_214_000), probe, Outcome::Failure);
    assert_eq!(late, unused(BreakerState::HalfOpen));
    assert!(breaker.is_idle(at(1_214_000)));
}

#[test]
fn it_is_idle_when_it_remembers_no_outcome() {
    let mut breaker = breaker(config());
    assert!(breaker.is_idle(at(0)));
    let _ = succeed(&mut breaker, 100);
    assert!(!breaker.is_idle(at(15_999)), "it would count for the rate");
    assert!(breaker.is_idle(at(16_000)));
    let _ = fail(&mut breaker, 16_500);
    assert!(!breaker.is_idle(at(32_499)), "it would count for the row");
    assert!(breaker.is_idle(at(32_500)));
    let _ = attempt(&mut breaker, 32_500, Outcome::Neutral);
    assert!(breaker.is_idle(at(32_500)));
    open(&mut breaker, 32_500);
    assert!(!breaker.is_idle(at(33_500)));
    assert!(succeed(&mut breaker, 33_500).is_some());
    assert!(breaker.is_idle(at(33_500)), "a success has cleared all");
}

#[test]
fn a_permit_of_a_forgotten_breaker_means_nothing_to_the_next() {
    let config = config().consecutive_failures(1).build().unwrap();
    let mut first = Breaker::new(&config, at(0));
    let while_closed = admit(&mut first, 0);
    open(&mut first, 0);
    let probe = admit(&mut first, 1000);
    let mut second = Breaker::new(&config, at(700_000));
    for permit in [while_closed, probe] {
        assert_eq!(second.report(at(700_000), permit, Outcome::Failure), None);
    }
    assert!(second.is_idle(at(700_000)));
}

#[test]
fn an_earlier_time_counts_as_the_latest() {
    let mut breaker = breaker(config());
    open(&mut breaker, 5000);
    assert_eq!(rejected_for(&mut breaker, 0), millis(1000));
    let probe = admit(&mut breaker, 6000);
    assert!(breaker.admit(at(100)).is_ok());
    assert_eq!(rejected_for(&mut breaker, 100), millis(10_000));
    assert!(breaker.report(at(0), probe, Outcome::Failure).is_some());
    assert_eq!(rejected_for(&mut breaker, 7000), millis(1000));
    assert!(!breaker.is_idle(at(0)));
}

#[test]
fn the_last_moment_of_all_panics_nowhere() {
    let config = config().build().unwrap();
    let mut breaker = Breaker::new(&config, Timestamp::MAX);
    for outcome in [Outcome::Failure, Outcome::Success, Outcome::Neutral] {
        for _ in 0..20 {
            if let Ok(admitted) = breaker.admit(Timestamp::MAX) {
                let _ = breaker.report(Timestamp::MAX, admitted.permit, outcome);
            }
        }
    }
    assert_eq!(breaker.state(Timestamp::MAX), BreakerState::Closed);
}

#[test]
fn what_it_does_is_counted() {
    let mut breaker = breaker(config());
    open(&mut breaker, 0);
    for _ in 0..5 {
        let _ = rejected_for(&mut breaker, 999);
    }
    let _ = fail(&mut breaker, 1000);
    let _ = rejected_for(&mut breaker, 1000);
    let _ = attempt(&mut breaker, 3000, Outcome::Neutral);
    let _ = succeed(&mut breaker, 3000);
    let _ = succeed(&mut breaker, 3000);
    let counts = BreakerCounts {
        opened: 2,
        rejected: 6,
        probes: 3,
    };
    assert_eq!(breaker.counts(), counts);
}

#[test]
fn states_and_causes_read_as_words() {
    let opened = transition(
        BreakerState::HalfOpen,
        BreakerState::Open,
        Cause::ProbeFailed,
    );
    assert_eq!(
        format!("{} to {}: {}", opened.from, opened.to, opened.why),
        "half-open to open: a probe failed"
    );
    assert_eq!(BreakerState::Closed.to_string(), "closed");
    let causes = [
        Cause::ConsecutiveFailures,
        Cause::FailureRate,
        Cause::OpenTimePassed,
        Cause::ProbesSucceeded,
        Cause::Unused,
    ];
    let texts: std::collections::HashSet<_> = causes.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), causes.len());
}
