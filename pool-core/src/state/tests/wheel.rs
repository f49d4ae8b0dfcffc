//! The wheel against a naive model.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::super::wheel::{TimerId, Wheel};
use super::*;

fn expired<T>(wheel: &mut Wheel<T>, now: Timestamp) -> Vec<TimerId> {
    std::iter::from_fn(|| wheel.pop_expired(now)).collect()
}

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

const TICK_NANOS: u64 = 1 << 19;

#[test]
fn a_timer_expires_once_never_early_and_at_most_one_tick_late() {
    for deadline in [
        1,
        TICK_NANOS - 1,
        TICK_NANOS,
        TICK_NANOS + 1,
        64 * TICK_NANOS,
        5_000_000_000,
    ] {
        let mut wheel = Wheel::new();
        let id = wheel.insert(());
        wheel.schedule(id, at(deadline));
        assert!(expired(&mut wheel, at(deadline - 1)).is_empty());
        assert_eq!(expired(&mut wheel, at(deadline + TICK_NANOS - 1)), [id]);
        assert!(expired(&mut wheel, Timestamp::MAX).is_empty());
    }
}

#[test]
fn a_cancelled_timer_does_not_expire() {
    let mut wheel = Wheel::new();
    let id = wheel.insert(());
    wheel.schedule(id, at(10));
    wheel.cancel(id);
    assert_eq!(wheel.next_deadline(), None);
    assert!(expired(&mut wheel, Timestamp::MAX).is_empty());
}

#[test]
fn deadlines_in_the_past_expire_at_the_next_look() {
    let mut wheel = Wheel::new();
    let now = at(1_000_000_000);
    assert!(expired(&mut wheel, now).is_empty());
    let id = wheel.insert(());
    wheel.schedule(id, at(5));
    assert!(wheel.next_deadline().is_some_and(|next| next <= now));
    assert_eq!(wheel.deadline(id), Some(at(5)));
    assert_eq!(expired(&mut wheel, now), [id]);
    assert_eq!((wheel.next_deadline(), wheel.deadline(id)), (None, None));

    wheel.schedule(id, at(5));
    wheel.cancel(id);
    assert!(expired(&mut wheel, now).is_empty());
}

#[test]
fn deadlines_at_the_end_of_time_are_kept_and_expire_there() {
    let mut wheel = Wheel::new();
    let ids = [wheel.insert(()), wheel.insert(())];
    wheel.schedule(ids[0], Timestamp::MAX);
    wheel.schedule(ids[1], at(u64::MAX - 5));
    let year = 365 * 24 * 3600 * 1_000_000_000;
    for years in 1..500 {
        assert!(expired(&mut wheel, at(years * year)).is_empty());
        assert!(
            wheel
                .next_deadline()
                .is_some_and(|next| next > at(years * year))
        );
    }
    assert_eq!(expired(&mut wheel, Timestamp::MAX), ids);
    assert_eq!(wheel.next_deadline(), None);
}

#[test]
fn timers_of_one_tick_expire_in_the_order_of_scheduling() {
    let mut wheel = Wheel::new();
    let deadline = at(7_000_000_000);
    let mut ids = Vec::new();
    for step in 0..7_000 {
        assert!(expired(&mut wheel, at(step * 1_000_000)).is_empty());
        let id = wheel.insert(());
        wheel.schedule(id, deadline);
        ids.push(id);
    }
    assert_eq!(expired(&mut wheel, at(7_001_000_000)), ids);
}

/// Fault row D8: what is not needed does not wake the loop.
#[test]
fn a_far_timer_wakes_the_loop_at_most_once_a_level() {
    let mut wheel = Wheel::new();
    let id = wheel.insert(());
    wheel.schedule(id, at(30 * 60 * 1_000_000_000 + 12_345));
    let mut wakes = 0;
    while let Some(next) = wheel.next_deadline() {
        let _ = expired(&mut wheel, next);
        wakes += 1;
    }
    assert!(wakes <= 8, "{wakes} wakes");
}

#[test]
fn a_deadline_put_off_moves_and_can_be_brought_forward_again() {
    let mut wheel = Wheel::new();
    let id = wheel.insert(());
    for second in 1..1000 {
        wheel.schedule(id, at(second * 1_000_000_000));
    }
    assert_eq!(wheel.deadline(id), Some(at(999_000_000_000)));
    assert!(expired(&mut wheel, at(998_999_999_999)).is_empty());
    assert!(
        wheel
            .next_deadline()
            .is_some_and(|next| next > at(998_999_999_999))
    );
    wheel.schedule(id, at(2_000_000_000_000));
    wheel.schedule(id, at(999_500_000_000));
    assert_eq!(expired(&mut wheel, at(999_501_000_000)), [id]);
    assert_eq!(wheel.next_deadline(), None);
}

/// Fault row D11: a stalled loop pays for its timers, not for the time that passed.
#[test]
fn a_million_timers_survive_a_stall_of_a_day_in_bounded_work() {
    let mut wheel = Wheel::new();
    let mut random = Random::new(7);
    let day = 24 * 3600 * 1_000_000_000;
    let ids: HashSet<TimerId> = (0..1_000_000)
        .map(|_| {
            let id = wheel.insert(());
            wheel.schedule(id, at(random.next() % day));
            id
        })
        .collect();
    let fired = expired(&mut wheel, at(day + TICK_NANOS));
    assert_eq!(fired.len(), ids.len());
    assert!(fired.iter().all(|id| ids.contains(id)));
    assert!(fired.into_iter().all(|id| wheel.remove(id).is_some()));
    assert_eq!((wheel.len(), wheel.next_deadline()), (0, None));
}

#[test]
fn the_wheel_agrees_with_a_sorted_map() {
    for seed in 0..20 {
        agrees_with_a_sorted_map(seed);
    }
}

fn agrees_with_a_sorted_map(seed: u64) {
    let mut random = Random::new(seed);
    let mut wheel = Wheel::new();
    let mut ids: Vec<TimerId> = Vec::new();
    let mut model: BTreeMap<(u64, u64), TimerId> = BTreeMap::new();
    let mut keys: HashMap<TimerId, (u64, u64)> = HashMap::new();
    let mut now: u64 = 0;
    for step in 0..5_000 {
        match random.below(10) {
            0 | 1 => {
                let id = wheel.insert(step);
                assert_eq!(wheel.get_mut(id), Some(&mut step.clone()));
                ids.push(id);
            }
            2..=5 => {
                let Some(id) = random.pick(&ids) else {
                    continue;
                };
                let range = 1 << random.below(50);
                let deadline = (now + random.next() % range).saturating_sub(range / 8);
                wheel.schedule(id, at(deadline));
                if let Some(old) = keys.insert(id, (deadline, step)) {
                    model.remove(&old);
                }
                model.insert((deadline, step), id);
            }
            6 => {
                let Some(id) = random.pick(&ids) else {
                    continue;
                };
                wheel.cancel(id);
                if let Some(old) = keys.remove(&id) {
                    model.remove(&old);
                }
            }
            7 if !ids.is_empty() => {
                let id = ids.swap_remove(random.below(ids.len()));
                assert!(wheel.remove(id).is_some() && wheel.remove(id).is_none());
                if let Some(old) = keys.remove(&id) {
                    model.remove(&old);
                }
            }
            _ => {
                now += random.next() % (1 << random.below(46));
                if random.one_in(2)
                    && let Some(next) = wheel.next_deadline()
                {
                    now = now.max(next.as_nanos());
                }
                for id in expired(&mut wheel, at(now)) {
                    let key = keys.remove(&id).expect("expired without a deadline");
                    assert!(key.0 <= now, "seed {seed}: early");
                    model.remove(&key);
                }
                if let Some(((deadline, _), _)) = model.first_key_value() {
                    assert!(deadline + TICK_NANOS > now, "seed {seed}: late");
                }
                assert!(wheel.next_deadline().is_none_or(|next| next > at(now)));
            }
        }
        assert_eq!(wheel.len(), ids.len());
        match (wheel.next_deadline(), model.first_key_value()) {
            (None, None) => {}
            (Some(next), Some(((deadline, _), _))) => {
                let can_fire = deadline.div_ceil(TICK_NANOS) * TICK_NANOS;
                assert!(
                    next.as_nanos() <= can_fire.max(now),
                    "seed {seed}: wakes too late"
                );
            }
            other => panic!("seed {seed}: {other:?}"),
        }
    }
}
