//! Bounded runs of the simulation, and the faults that it has to catch.

use super::*;

/// Fault rows B5 and G8.
#[test]
fn seeded_worlds_keep_every_promise_and_are_not_tame() {
    let mut sum = Report::new();
    for seed in 0..500 {
        match run(seed, 1_000, None) {
            Ok(report) => sum.add(&report),
            Err(violation) => panic!("{violation}\n{}", violation.trace.join("\n")),
        }
    }
    let rare: Vec<_> = sum.events().filter(|(_, count)| *count < 20).collect();
    assert!(rare.is_empty(), "the worlds are too tame: {rare:?}");
}

#[test]
fn every_planted_fault_is_caught_as_what_it_breaks() {
    for &fault in Fault::ALL {
        let caught = (0..500).find_map(|seed| {
            let caught = run(seed, 1_000, Some(fault)).err()?;
            assert!(caught.strikes > 0, "{fault} has not struck: {caught}");
            (caught.promise == fault.breaks()).then_some(caught)
        });
        assert!(caught.is_some(), "{fault} is not caught as what it breaks");
    }
}

#[test]
fn a_seed_gives_the_same_run_every_time_and_another_seed_another() {
    let run = |seed| run(seed, 1_000, None).unwrap();
    let events = |seed| run(seed).events().collect::<Vec<_>>();
    assert_eq!(run(7).steps, run(7).steps);
    assert_eq!(events(7), events(7));
    assert_ne!(events(7), events(8));
}

#[test]
fn a_violation_shows_what_led_to_it_and_comes_again_under_its_seed() {
    let found = |seed| run(seed, 1_000, Some(Fault::Barging)).err();
    let (seed, first) = (0..100)
        .find_map(|seed| Some((seed, found(seed)?)))
        .unwrap();
    let again = found(seed).unwrap();
    assert_eq!((first.seed, &first.what), (seed, &again.what));
    assert_eq!(first.trace, again.trace);
    let struck = |line: &String| line.contains("the fault barging strikes");
    assert!(first.trace.iter().any(struck), "{:#?}", first.trace);
}
