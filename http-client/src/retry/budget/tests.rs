use std::time::Duration;

use pool_core::Timestamp;

use super::*;

const SECOND: u64 = 1_000_000_000;

fn at_millis(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * 1_000_000)
}

fn config(ratio: f64, floor_per_second: u32, window: Duration) -> BudgetConfig {
    BudgetConfig::builder()
        .ratio(ratio)
        .floor_per_second(floor_per_second)
        .window(window)
        .build()
        .unwrap()
}

fn budget(ratio: f64, floor_per_second: u32) -> RetryBudget {
    RetryBudget::new(&config(ratio, floor_per_second, Duration::from_secs(10)))
}

fn deposit(budget: &mut RetryBudget, requests: u32, now: Timestamp) {
    for _ in 0..requests {
        budget.deposit(now);
    }
}

/// How many of `retries` are allowed.
fn withdraw(budget: &mut RetryBudget, retries: u32, now: Timestamp) -> usize {
    (0..retries).filter(|_| budget.withdraw(now)).count()
}

#[test]
fn bad_values_are_refused_by_name() {
    let build = BudgetConfig::builder;
    let refusal = |builder: BudgetConfigBuilder| builder.build().unwrap_err().to_string();
    for ratio in [
        1.000_000_1,
        -0.1,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ] {
        assert_eq!(
            refusal(build().ratio(ratio)),
            format!("ratio is {ratio}, expected 0 to 1")
        );
    }
    let (shortest, longest) = (Duration::from_secs(1), Duration::from_secs(3600));
    let step = Duration::from_nanos(1);
    assert_eq!(
        refusal(build().window(shortest - step)),
        "window is 999.999999ms, expected 1 s to 1 h"
    );
    assert!(refusal(build().window(longest + step)).starts_with("window is 3600.000000001s"));
    assert!(refusal(build().window(Duration::MAX)).starts_with("window"));
    for window in [shortest, longest] {
        assert_eq!(build().window(window).build().unwrap().window(), window);
    }
}

#[test]
fn the_default_is_what_its_documentation_says() {
    let config = BudgetConfig::default();
    assert_eq!(config.ratio(), 0.2);
    assert_eq!(config.floor_per_second(), 3);
    assert_eq!(config.window(), Duration::from_secs(10));
    assert_eq!(BudgetConfig::builder().build().unwrap(), config);
}

#[test]
fn every_ratio_of_whole_millionths_is_exact() {
    for millionths in 0..=MILLION {
        let ratio = f64::from(millionths) / f64::from(MILLION);
        let config = BudgetConfig::builder().ratio(ratio).build().unwrap();
        assert_eq!(config.ratio_millionths, millionths);
        assert_eq!(config.ratio(), ratio);
    }
}

#[test]
fn a_ratio_of_six_tenths_allows_three_retries_for_every_five_requests() {
    let mut budget = budget(0.6, 0);
    for requests in 1..=1000 {
        budget.deposit(at_millis(0));
        let allowed = (requests * 6) / 10 - ((requests - 1) * 6) / 10;
        assert_eq!(
            withdraw(&mut budget, 5, at_millis(0)),
            allowed,
            "{requests}"
        );
    }
    assert_eq!(budget.granted(), 600);
}

#[test]
fn a_failure_of_all_requests_at_once_gets_a_fifth_of_them_retried() {
    let mut budget = budget(0.2, 3);
    deposit(&mut budget, 1000, at_millis(0));
    assert_eq!(withdraw(&mut budget, 1000, at_millis(40)), 200);
    assert_eq!((budget.granted(), budget.refused()), (200, 800));

    // The retries fail as well, and what waits counts as much as what was sent.
    assert_eq!(withdraw(&mut budget, 200, at_millis(140)), 0);
    assert_eq!((budget.granted(), budget.refused()), (200, 1000));

    deposit(&mut budget, 1000, at_millis(1000));
    assert_eq!(withdraw(&mut budget, 1000, at_millis(1000)), 200);
}

#[test]
fn the_floor_needs_no_requests_and_does_not_add_to_the_ratio() {
    let mut budget = budget(0.2, 3);
    assert_eq!(withdraw(&mut budget, 100, at_millis(0)), 30);
    deposit(&mut budget, 150, at_millis(1));
    assert_eq!(withdraw(&mut budget, 100, at_millis(1)), 0);
    deposit(&mut budget, 5, at_millis(2));
    assert_eq!(withdraw(&mut budget, 100, at_millis(2)), 1);
}

#[test]
fn a_floor_of_a_broken_number_of_retries_is_rounded_down() {
    let window = Duration::from_millis(1999);
    let mut budget = RetryBudget::new(&config(0.0, 1, window));
    assert_eq!(withdraw(&mut budget, 5, at_millis(0)), 1);
    let mut largest = RetryBudget::new(&config(0.0, u32::MAX, Duration::from_secs(3600)));
    assert_eq!(largest.floor, u64::from(u32::MAX) * 3600);
    assert_eq!(withdraw(&mut largest, 1000, at_millis(0)), 1000);
}

#[test]
fn neither_ratio_nor_floor_allows_no_retry() {
    let mut budget = budget(0.0, 0);
    deposit(&mut budget, 1000, at_millis(0));
    assert_eq!(withdraw(&mut budget, 10, at_millis(0)), 0);
    assert_eq!(budget.refused(), 10);
}

#[test]
fn retries_are_allowed_again_once_those_before_are_out_of_the_window() {
    let mut budget = budget(0.0, 1);
    assert_eq!(withdraw(&mut budget, 20, at_millis(100)), 10);
    // The slot of 312.5 ms that holds them has to leave the window as a whole.
    assert_eq!(withdraw(&mut budget, 20, at_millis(10_100)), 0);
    assert_eq!(withdraw(&mut budget, 20, at_millis(10_312)), 0);
    assert_eq!(withdraw(&mut budget, 20, at_millis(10_313)), 10);
}

#[test]
fn requests_out_of_the_window_allow_nothing() {
    let mut budget = budget(1.0, 0);
    deposit(&mut budget, 10, at_millis(300));
    assert!(budget.clone().withdraw(at_millis(9_999)));
    // From here on their slot is not wholly within the window.
    assert!(!budget.withdraw(at_millis(10_000)));
}

#[test]
fn a_retry_that_was_not_sent_leaves_room_for_another() {
    let mut budget = budget(0.2, 0);
    deposit(&mut budget, 10, at_millis(0));
    assert_eq!(withdraw(&mut budget, 3, at_millis(5)), 2);
    budget.refund(at_millis(5));
    assert_eq!(withdraw(&mut budget, 3, at_millis(900)), 1);
    assert_eq!((budget.granted(), budget.refused()), (3, 3));
}

#[test]
fn a_refund_that_comes_too_late_takes_nothing_from_retries_that_count() {
    let mut budget = budget(0.0, 1);
    assert!(budget.withdraw(at_millis(0)));
    assert_eq!(withdraw(&mut budget, 20, at_millis(15_000)), 10);
    budget.refund(at_millis(0));
    assert!(!budget.withdraw(at_millis(15_000)));
}

#[test]
fn a_refund_of_what_was_never_withdrawn_changes_nothing() {
    let mut budget = budget(0.0, 1);
    for moment in [0, 5000, u64::MAX / 1_000_000] {
        budget.refund(at_millis(moment));
    }
    budget.refund(Timestamp::MAX);
    assert_eq!(withdraw(&mut budget, 20, at_millis(5000)), 10);
    budget.refund(at_millis(0));
    budget.refund(Timestamp::MAX);
    assert!(!budget.withdraw(at_millis(5000)));
}

#[test]
fn it_is_idle_when_nothing_counts_any_more() {
    let mut budget = budget(0.5, 1);
    assert!(budget.is_idle(at_millis(0)));
    budget.deposit(at_millis(0));
    assert!(!budget.is_idle(at_millis(9_999)));
    assert!(budget.is_idle(at_millis(10_000)));

    assert!(budget.withdraw(at_millis(20_000)));
    assert!(!budget.is_idle(at_millis(30_000)));
    assert!(budget.is_idle(at_millis(30_313)));

    assert!(budget.withdraw(at_millis(40_000)));
    assert!(!budget.is_idle(at_millis(40_000)));
    budget.refund(at_millis(40_000));
    assert!(budget.is_idle(at_millis(40_000)));
}

#[test]
fn time_that_goes_back_counts_as_the_latest_seen() {
    let mut budget = budget(0.0, 1);
    assert_eq!(withdraw(&mut budget, 9, at_millis(20_000)), 9);
    assert!(budget.withdraw(at_millis(0)));
    assert!(!budget.withdraw(at_millis(0)));
    assert!(!budget.withdraw(at_millis(30_000)));
    assert!(budget.withdraw(at_millis(31_000)));
}

#[test]
fn the_first_and_the_last_moments_of_time_are_counted() {
    for window in [1, 7, 3600] {
        let mut budget = RetryBudget::new(&config(1.0, 0, Duration::from_secs(window)));
        for moment in [0, 1, u64::MAX - 1, u64::MAX, u64::MAX] {
            let now = Timestamp::from_nanos(moment);
            budget.deposit(now);
            assert!(budget.withdraw(now), "{window} {moment}");
            assert!(!budget.withdraw(now), "{window} {moment}");
            assert!(!budget.is_idle(now));
        }
    }
}

#[test]
fn a_full_count_of_requests_stops_and_one_of_retries_refuses() {
    let mut budget = budget(1.0, u32::MAX);
    budget.deposit(at_millis(0));
    let (slot, full) = (index(budget.newest), u64::from(u32::MAX));
    budget.ring[slot] = Slot {
        requests: u32::MAX,
        withdrawn: u32::MAX,
    };
    (budget.requests, budget.withdrawn) = (full, full);
    budget.deposit(at_millis(0));
    assert_eq!(budget.requests, full);
    assert!(!budget.withdraw(at_millis(0)));
    assert_eq!(budget.withdrawn, full);
    assert!(budget.withdraw(at_millis(400)));
    assert!(budget.is_idle(at_millis(11_000)));
}

/// What was begun and allowed, as lists of moments.
#[derive(Default)]
struct Model {
    requests: Vec<u64>,
    withdrawn: Vec<u64>,
}

impl Model {
    /// Whether one more retry keeps to the limit, if requests and retries are counted over as many
    /// 32nds of the window as `slots` has for each.
    fn allows(&self, config: &BudgetConfig, now: u64, slots: (u64, u64)) -> bool {
        let window = config.window.as_nanos();
        let within = |moments: &[u64], slots: u64| {
            let span = window * u128::from(slots);
            let recent = |&&moment: &&u64| u128::from(now - moment) * 32 < span;
            moments.iter().rev().take_while(recent).count() as u128
        };
        let share = within(&self.requests, slots.0) * u128::from(config.ratio_millionths)
            / u128::from(MILLION);
        let floor = u128::from(config.floor_per_second) * window / u128::from(SECOND);
        within(&self.withdrawn, slots.1) < share.max(floor)
    }
}

/// Splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let last = from.len() as u64;
        from[usize::try_from(self.next(last)).unwrap()]
    }
}

/// Every grant keeps to the limit over the window to the nanosecond. Every refusal is one that the
/// limit demands of a window a step shorter for requests and a step longer for retries.
fn agrees_with_the_model(seed: u64) -> (u64, u64) {
    let mut random = Random(seed);
    let config = config(
        random.pick(&[0.0, 0.000_001, 0.1, 0.2, 1.0 / 3.0, 0.6, 0.999_999, 1.0]),
        random.pick(&[0, 0, 0, 1, 3]),
        random.pick(&[
            Duration::from_secs(1),
            Duration::from_secs(10),
            Duration::from_nanos(1_000_000_007),
            Duration::from_nanos(7_777_777_777),
            Duration::from_secs(3600),
        ]),
    );
    let window = u64::try_from(config.window.as_nanos()).unwrap();
    let mut budget = RetryBudget::new(&config);
    let mut model = Model::default();
    let mut now = random.next(3 * window);
    let eagerness = random.pick(&[1, 5, 9]);
    for step in 0..600 {
        now += match random.next(40) {
            0 => window / 32,
            1 => window - 1,
            2 => window,
            3 => window + 1,
            4 => window + window / 32,
            5 => random.next(3 * window),
            // To the last nanosecond of a slot, or the first of the next.
            6..9 => {
                let end = (u128::from(now) * 32 / u128::from(window) + 1) * u128::from(window);
                u64::try_from(end.div_ceil(32)).unwrap() - now - random.next(2)
            }
            9..20 => random.next(window / 16),
            20..25 => random.next(window / 1000),
            _ => 0,
        };
        let moment = Timestamp::from_nanos(now);
        match random.next(10) {
            0 if !model.withdrawn.is_empty() => {
                let one = random.next(model.withdrawn.len() as u64);
                let one = model.withdrawn.remove(usize::try_from(one).unwrap());
                budget.refund(Timestamp::from_nanos(one));
            }
            roll if roll < eagerness => {
                let strict = model.allows(&config, now, (31, 33));
                let exact = model.allows(&config, now, (32, 32));
                let granted = budget.withdraw(moment);
                assert!(exact || !granted, "seed {seed}, step {step}: one too many");
                assert!(granted || !strict, "seed {seed}, step {step}: one too few");
                if granted {
                    model.withdrawn.push(now);
                }
            }
            _ => {
                for _ in 0..=random.next(20) {
                    budget.deposit(moment);
                    model.requests.push(now);
                }
            }
        }
    }
    (budget.granted(), budget.refused())
}

#[test]
fn random_histories_keep_to_the_limit_over_every_window() {
    let (mut granted, mut refused) = (0, 0);
    for seed in 0..2000 {
        let counts = agrees_with_the_model(seed);
        granted += counts.0;
        refused += counts.1;
    }
    assert!(granted > 50_000 && refused > 50_000, "{granted} {refused}");
}

#[test]
fn over_any_time_retries_are_a_share_of_the_requests() {
    let mut random = Random(1);
    for _ in 0..50 {
        let mut budget = budget(0.3, 0);
        let (mut now, mut requests) = (0, 0);
        for _ in 0..5000 {
            now += random.next(400);
            if random.next(3) == 0 {
                budget.deposit(at_millis(now));
                requests += 1;
            } else {
                let _ = budget.withdraw(at_millis(now));
            }
            assert!(budget.granted() * 10 <= requests * 3);
        }
        assert!(budget.granted() * 10 > requests * 2, "the share is used");
    }
}
