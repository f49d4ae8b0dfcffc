//! How long a destination has an id.

use super::*;

fn forgotten(pool: &mut Pool) -> usize {
    let key = pool.key;
    let forget = Effect::ForgetKey(key);
    let effects = pool.effects();
    effects.iter().filter(|effect| **effect == forget).count()
}

#[test]
fn a_destination_is_kept_until_its_first_acquire() {
    let mut pool = Pool::new(config());
    pool.pass(Duration::from_secs(10_000));
    pool.run();
    assert_eq!(forgotten(&mut pool), 0);
    let conn = pool.open();
    pool.close(conn);
    assert_eq!(forgotten(&mut pool), 1);
}

#[test]
fn a_pinned_destination_keeps_its_id_and_counts_though_nothing_is_left_of_it() {
    let mut pool = Pool::new(config());
    let key = pool.key;
    pool.state.pin_key(key);
    pool.state.pin_key(key);
    for _ in 0..2 {
        let conn = pool.open();
        pool.close(conn);
        assert_eq!(forgotten(&mut pool), 0);
    }
    assert_eq!(pool.stats().opened, 2);
    pool.state.unpin_key(key);
    pool.run();
    assert_eq!(forgotten(&mut pool), 0, "there is another pin");
    pool.state.unpin_key(key);
    pool.run();
    assert_eq!(forgotten(&mut pool), 1);
    pool.state.unpin_key(key);
    pool.run();
    assert_eq!(forgotten(&mut pool), 0, "the id is stale");
}

#[test]
fn a_destination_that_was_pinned_and_never_used_is_forgotten_with_its_pin() {
    let mut pool = Pool::new(config());
    pool.state.pin_key(pool.key);
    pool.run();
    assert_eq!(forgotten(&mut pool), 0);
    pool.state.unpin_key(pool.key);
    pool.run();
    assert_eq!(forgotten(&mut pool), 1);
}

#[test]
fn a_destination_in_use_outlives_its_pin() {
    let mut pool = Pool::new(config().idle_timeout(millis(100)));
    pool.state.pin_key(pool.key);
    let conn = pool.open();
    pool.release(conn);
    pool.state.unpin_key(pool.key);
    pool.run();
    assert_eq!(forgotten(&mut pool), 0);
    pool.pass(millis(100) + TICK);
    assert_eq!(forgotten(&mut pool), 1);
}

/// A backoff belongs to a destination: forgotten, it would be dialled again without a pause.
#[test]
fn a_destination_is_kept_for_its_backoff() {
    let mut pool = Pool::new(config());
    pool.wait();
    let refused = pool.connects[0];
    pool.connect_failed(refused);
    assert_eq!(forgotten(&mut pool), 0);
    pool.pass(millis(2));
    assert_eq!(forgotten(&mut pool), 1);
}

#[test]
fn a_pin_does_not_hold_up_a_drain() {
    let mut pool = Pool::new(config());
    pool.state.pin_key(pool.key);
    let conn = pool.open();
    pool.drain(millis(100));
    pool.release(conn);
    assert!(pool.state.is_drained());
    assert_eq!(
        pool.effects(),
        [Effect::Close(conn, CloseReason::Drained), Effect::Drained]
    );
    pool.state.unpin_key(pool.key);
    pool.run();
    assert_eq!(forgotten(&mut pool), 1);
}
