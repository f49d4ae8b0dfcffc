//! What many destinations, and a working set beyond the caps, leave behind or cost.

use super::*;

/// What a driver does after each call, without the check of all invariants, which takes too long
/// for this many. Returns the connects to start, and how many keys were forgotten.
fn carry_out(state: &mut PoolState) -> (Vec<ConnId>, usize) {
    let (mut connects, mut forgotten) = (Vec::new(), 0);
    while let Some(effect) = state.poll_effect() {
        match effect {
            Effect::Connect(conn, _) => connects.push(conn),
            Effect::ForgetKey(_) => forgotten += 1,
            _ => {}
        }
    }
    (connects, forgotten)
}

/// Fault row G1: an entry per host stays for ever, also where no connection ever opened.
#[test]
fn a_hundred_thousand_destinations_leave_nothing() {
    const MANY: usize = 100_000;
    let mut state = PoolState::new(config().build().unwrap(), 0);
    let mut now = Timestamp::ZERO;
    let mut forgotten = 0;
    for at in 0..MANY {
        let key = state.insert_key();
        let Admission::Wait(waiter) = state.acquire(now, key) else {
            panic!("nothing is idle")
        };
        let (connects, _) = carry_out(&mut state);
        if at % 2 == 0 {
            assert!(state.connected(now, connects[0]));
            let conn = state.claim(now, waiter).unwrap();
            carry_out(&mut state);
            state.release(now, conn, Disposition::Reuse);
        } else {
            assert_eq!(state.connect_failed(now, connects[0]), Some(waiter));
        }
        forgotten += carry_out(&mut state).1;
    }
    assert_eq!((forgotten, state.keys().count()), (0, MANY), "all at once");
    assert_eq!(state.totals().idle.current as usize, MANY / 2);
    while let Some(next) = state.next_timeout() {
        now = now.max(next);
        state.handle_timeout(now);
        forgotten += carry_out(&mut state).1;
    }
    assert!(now < Timestamp::ZERO + Duration::from_secs(1801), "{now:?}");
    assert_eq!(forgotten, MANY);
    state.check().unwrap();
    assert_eq!(state.totals().closed(CloseReason::IdleTimeout), 50_000);
    assert_eq!((state.keys().count(), state.timers.len()), (0, 0));
    assert!(state.conns.is_empty() && state.waiters.is_empty());
    for (what, kept) in [
        ("keys", state.keys.capacity()),
        ("connections", state.conns.capacity()),
        ("waiters", state.waiters.capacity()),
        ("timers", state.timers.capacity()),
        ("effects", state.effects.capacity()),
        ("unused keys", state.maybe_unused.capacity()),
    ] {
        assert!(kept <= 512, "room for {kept} {what} is kept");
    }
}

/// Fault row G14: with fewer idle connections allowed than a load uses in turn, most are closed
/// and dialled again. The pool keeps to the limit that was set, and the count of such closes,
/// beside that of the acquires, tells that it is too low.
#[test]
fn an_idle_cap_below_the_working_set_shows_in_the_count_of_surplus_closes() {
    const ROUNDS: u64 = 50;
    for (max_idle, closed_per_round) in [(2, 8), (9, 1), (10, 0)] {
        let mut pool = Pool::new(config().max_idle(max_idle));
        for _ in 0..ROUNDS {
            let waiters: Vec<_> = (0..10)
                .filter_map(|_| match pool.acquire() {
                    Admission::Wait(waiter) => Some(waiter),
                    Admission::Reuse(conn) => {
                        pool.held.push(conn);
                        None
                    }
                    Admission::Reject(why) => panic!("{why:?}"),
                })
                .collect();
            for waiter in waiters {
                let conn = pool.connect_for(waiter);
                pool.held.push(conn);
            }
            for conn in std::mem::take(&mut pool.held) {
                pool.release(conn);
            }
            pool.effects();
        }
        let stats = pool.stats();
        assert_eq!(stats.acquires.requested, 10 * ROUNDS);
        assert_eq!(
            stats.closed(CloseReason::Surplus),
            closed_per_round * ROUNDS,
            "with {max_idle} idle ones"
        );
        assert_eq!(stats.connects, 10 + closed_per_round * (ROUNDS - 1));
    }
}
