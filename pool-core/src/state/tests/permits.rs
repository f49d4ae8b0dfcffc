//! The cap that the pools of several cores share, from one pool's side.

use super::*;

/// Acquires a new connection with a permit that is granted.
fn open(pool: &mut Pool) -> ConnId {
    let waiter = pool.wait();
    assert_eq!(pool.effects(), [Effect::AskPermit]);
    pool.grant();
    let conn = pool.connect_for(waiter);
    assert!(pool.effects().is_empty());
    conn
}

fn evicted(conn: ConnId) -> Effect {
    Effect::Close(conn, CloseReason::Evicted)
}

#[test]
fn a_connect_starts_with_its_permit_and_the_permit_goes_back_with_the_close() {
    let mut pool = Pool::under_a_shared_cap(config());
    let waiter = pool.wait();
    assert_eq!(pool.effects(), [Effect::AskPermit]);
    assert_eq!(pool.gauges(), [0, 0, 0, 1]);
    pool.grant();
    assert_eq!(pool.gauges(), [1, 0, 0, 0]);
    let conn = pool.connect_for(waiter);
    pool.release(conn);
    assert_eq!(pool.reuse(), conn);
    assert!(pool.effects().is_empty(), "an idle one keeps its permit");
    pool.close(conn);
    assert_eq!(
        pool.effects(),
        [
            Effect::Close(conn, CloseReason::ConnectionClose),
            Effect::ReturnPermit,
            Effect::ForgetKey(pool.key),
        ]
    );
}

#[test]
fn permits_are_asked_for_one_at_a_time() {
    let mut pool = Pool::under_a_shared_cap(config());
    for _ in 0..3 {
        pool.wait();
    }
    for connects in 1..=3 {
        assert_eq!(pool.effects(), [Effect::AskPermit]);
        pool.grant();
        assert_eq!(pool.connects.len(), connects);
    }
    assert!(pool.effects().is_empty(), "there are enough");
}

#[test]
fn the_room_of_a_close_is_used_again_without_asking() {
    let mut pool = Pool::under_a_shared_cap(config().max_connections(1));
    let held = open(&mut pool);
    let waiter = pool.wait();
    assert!(pool.effects().is_empty(), "its own limit binds");
    pool.close(held);
    pool.effects();
    pool.connect_for(waiter);
    assert!(pool.effects().is_empty());
}

#[test]
fn a_waiter_whose_permit_was_denied_gets_it_when_it_comes() {
    let mut pool = Pool::under_a_shared_cap(config());
    let waiter = pool.wait();
    pool.effects();
    pool.deny();
    pool.wait();
    assert!(
        pool.effects().is_empty(),
        "it stands in the queue, and stays there once"
    );
    pool.grant();
    assert_eq!(pool.effects(), [Effect::AskPermit], "for the second");
    pool.connect_for(waiter);
}

#[test]
fn a_denied_permit_is_made_up_for_by_an_idle_connection_of_another_destination() {
    let mut pool = Pool::under_a_shared_cap(config());
    let [one, other] = pool.destinations();
    let idle = open(pool.at(one));
    pool.release(idle);
    let waiter = pool.at(other).wait();
    assert_eq!(pool.effects(), [Effect::AskPermit], "it may cost nobody");
    pool.deny();
    assert_eq!(pool.effects(), [evicted(idle), Effect::WithdrawPermit]);
    pool.connect_for(waiter);
}

#[test]
fn a_release_makes_up_for_a_denied_permit() {
    let mut pool = Pool::under_a_shared_cap(config());
    let [one, other] = pool.destinations();
    let held = open(pool.at(one));
    let waiter = pool.at(other).wait();
    pool.deny();
    pool.effects();
    pool.release(held);
    assert_eq!(pool.effects(), [evicted(held), Effect::WithdrawPermit]);
    pool.connect_for(waiter);
}

#[test]
fn a_queue_at_the_cap_is_left_when_nobody_needs_a_permit() {
    let mut pool = Pool::under_a_shared_cap(config());
    let waiter = pool.wait();
    pool.deny();
    pool.effects();
    pool.cancel(waiter);
    assert_eq!(
        pool.effects(),
        [Effect::WithdrawPermit, Effect::ForgetKey(pool.key)]
    );
    // It was on its way.
    pool.grant();
    assert_eq!(pool.effects(), [Effect::ReturnPermit]);
}

#[test]
fn a_permit_that_is_needed_no_more_goes_back() {
    let mut pool = Pool::under_a_shared_cap(config());
    let waiter = pool.wait();
    pool.cancel(waiter);
    assert_eq!(
        pool.effects(),
        [Effect::AskPermit, Effect::ForgetKey(pool.key)]
    );
    pool.grant();
    assert_eq!(pool.effects(), [Effect::ReturnPermit]);
    assert!(pool.connects.is_empty());
}

#[test]
fn a_permit_asked_for_by_one_who_left_serves_the_next() {
    let mut pool = Pool::under_a_shared_cap(config());
    let leaver = pool.wait();
    pool.cancel(leaver);
    let waiter = pool.wait();
    let asked = pool.effects();
    let asked = asked.iter().filter(|effect| **effect == Effect::AskPermit);
    assert_eq!(asked.count(), 1);
    pool.grant();
    pool.connect_for(waiter);
    assert!(pool.effects().is_empty());
}

#[test]
fn with_max_pending_zero_a_waiter_whose_permit_is_denied_is_refused_at_once() {
    let mut pool = Pool::under_a_shared_cap(config().max_pending(0));
    let held = open(&mut pool);
    let waiter = pool.wait();
    pool.deny();
    assert_eq!(
        pool.effects(),
        [
            Effect::AskPermit,
            Effect::Reject(waiter, Rejection::QueueFull { pending: 0 }),
            Effect::WithdrawPermit,
        ]
    );
    assert_eq!(pool.stats().rejected.queue_full, 1);
    pool.release(held);
    assert_eq!(pool.reuse(), held);
}

#[test]
fn a_denied_permit_refuses_no_more_waiters_than_max_pending_does() {
    let mut pool = Pool::under_a_shared_cap(config().max_pending(1));
    let stays = pool.wait();
    assert_eq!(
        pool.acquire(),
        Admission::Reject(Rejection::QueueFull { pending: 1 }),
        "one permit may be had, no more"
    );
    pool.deny();
    assert_eq!(pool.effects(), [Effect::AskPermit]);
    pool.grant();
    pool.connect_for(stays);
}

#[test]
fn an_idle_connection_is_given_up_for_another_core_with_its_permit() {
    let mut pool = Pool::under_a_shared_cap(config());
    let [one, other] = pool.destinations();
    let cold = open(pool.at(one));
    let warm = open(pool.at(other));
    pool.release(cold);
    pool.release(warm);
    assert!(pool.state.reclaim(pool.now));
    pool.run();
    assert_eq!(
        pool.effects(),
        [evicted(cold)],
        "the permit is the caller's: it does not go back"
    );
    assert_eq!(pool.state.totals().live(), 1);
    assert_eq!(pool.at(other).reuse(), warm);
    assert!(!pool.state.reclaim(pool.now), "none is idle");
    pool.run();
    assert!(pool.effects().is_empty());
}

#[test]
fn a_permit_that_is_owed_goes_back_with_the_next_release_even_before_a_waiter() {
    let mut pool = Pool::under_a_shared_cap(config());
    let held = [open(&mut pool), open(&mut pool)];
    let waiter = pool.wait();
    pool.deny();
    pool.effects();
    pool.state.owe_permit();
    pool.run();
    assert!(pool.effects().is_empty());
    pool.release(held[0]);
    assert_eq!(pool.effects(), [evicted(held[0]), Effect::ReturnPermit]);
    pool.release(held[1]);
    assert_eq!(
        pool.effects(),
        [Effect::Deliver(waiter, held[1]), Effect::WithdrawPermit],
        "it was one permit"
    );
}

#[test]
fn a_permit_that_is_owed_goes_back_with_any_close_and_once() {
    let mut pool = Pool::under_a_shared_cap(config());
    let held = [open(&mut pool), open(&mut pool)];
    pool.state.owe_permit();
    pool.force_close(held[0], CloseReason::Reset);
    assert_eq!(
        pool.effects(),
        [
            Effect::ForceClose(held[0], CloseReason::Reset),
            Effect::ReturnPermit,
        ],
        "not before the socket is gone"
    );
    pool.release(held[1]);
    assert_eq!(pool.gauges(), [0, 1, 0, 0]);
    assert!(pool.effects().is_empty());
}

#[test]
fn a_pool_without_connections_owes_nothing() {
    let mut pool = Pool::under_a_shared_cap(config());
    pool.state.owe_permit();
    let conn = open(&mut pool);
    pool.release(conn);
    assert_eq!(pool.gauges(), [0, 1, 0, 0]);
}

#[test]
fn what_is_owed_is_paid_by_a_reclaim() {
    let mut pool = Pool::under_a_shared_cap(config());
    let held = [open(&mut pool), open(&mut pool)];
    pool.release(held[0]);
    // Although one is idle: a driver that owes first and looks afterwards.
    pool.state.owe_permit();
    assert!(pool.state.reclaim(pool.now));
    pool.run();
    assert_eq!(pool.effects(), [evicted(held[0])]);
    pool.release(held[1]);
    assert_eq!(pool.gauges(), [0, 1, 0, 0], "nothing is owed any more");
}

#[test]
fn room_for_min_idle_is_asked_for_and_given_up_when_it_is_denied() {
    let mut pool = Pool::under_a_shared_cap(config().min_idle(1));
    let waiter = pool.wait();
    pool.grant();
    pool.connect_for(waiter);
    assert_eq!(
        pool.effects(),
        [Effect::AskPermit, Effect::AskPermit],
        "the waiter's, and one for the idle connection"
    );
    pool.deny();
    assert_eq!(pool.effects(), [Effect::WithdrawPermit]);
    assert_eq!(pool.gauges(), [0, 0, 1, 0]);
    pool.pass(millis(1000));
    assert!(pool.effects().is_empty(), "it does not ask in a loop");
}

#[test]
fn room_for_min_idle_that_is_granted_is_used_or_given_back() {
    let mut pool = Pool::under_a_shared_cap(config().min_idle(1));
    let waiter = pool.wait();
    pool.grant();
    let conn = pool.connect_for(waiter);
    pool.effects();
    pool.grant();
    assert_eq!(pool.gauges(), [1, 0, 1, 0]);
    let warm = pool.connect().unwrap();
    pool.connected(warm);
    assert_eq!(pool.gauges(), [0, 1, 1, 0]);
    assert!(pool.effects().is_empty());
    pool.close(conn);
    assert_eq!(
        pool.effects(),
        [
            Effect::Close(conn, CloseReason::ConnectionClose),
            Effect::ReturnPermit
        ]
    );

    // The destination is forgotten while its permit is on the way.
    let mut pool = Pool::under_a_shared_cap(config().min_idle(1).idle_timeout(millis(100)));
    let waiter = pool.wait();
    pool.grant();
    let conn = pool.connect_for(waiter);
    pool.pass(millis(200));
    pool.close(conn);
    assert_eq!(pool.stats(), DestinationStats::default());
    pool.effects();
    pool.grant();
    assert_eq!(pool.effects(), [Effect::ReturnPermit]);
}

#[test]
fn no_permit_is_asked_for_while_max_total_leaves_no_use_for_it() {
    let mut pool = Pool::under_a_shared_cap(config().max_total(1));
    let [one, other] = pool.destinations();
    let held = open(pool.at(one));
    let waiter = pool.at(other).wait();
    assert!(pool.effects().is_empty());
    pool.close(held);
    pool.effects();
    pool.connect_for(waiter);
    assert!(pool.effects().is_empty());

    let mut pool = Pool::under_a_shared_cap(config().max_total(1).min_idle(1));
    open(&mut pool);
    assert!(pool.effects().is_empty(), "nor for an idle one");
}

#[test]
fn a_drain_gives_every_permit_back() {
    let mut pool = Pool::under_a_shared_cap(config());
    let [one, other] = pool.destinations();
    pool.state.pin_key(pool.key);
    open(pool.at(one));
    let idle = [open(pool.at(other)), open(&mut pool)];
    pool.release(idle[0]);
    pool.drain(millis(100));
    assert_eq!(
        pool.effects(),
        [
            Effect::Close(idle[0], CloseReason::Drained),
            Effect::ReturnPermit
        ]
    );
    pool.pass(millis(101));
    assert!(pool.state.is_drained());
    let effects = pool.effects();
    let returned = effects
        .iter()
        .filter(|effect| **effect == Effect::ReturnPermit);
    assert_eq!(returned.count(), 2, "{effects:?}");
}

#[test]
fn a_drain_leaves_the_queue_at_the_cap_at_its_deadline() {
    let mut pool = Pool::under_a_shared_cap(config());
    let waiter = pool.wait();
    pool.deny();
    pool.drain(millis(100));
    assert_eq!(pool.effects(), [Effect::AskPermit], "it is still served");
    pool.pass(millis(101));
    assert_eq!(
        pool.effects(),
        [
            Effect::Reject(waiter, Rejection::Draining),
            Effect::WithdrawPermit,
            Effect::ForgetKey(pool.key),
            Effect::Drained,
        ]
    );
}

#[test]
fn a_permit_that_is_given_back_unused_is_the_one_that_was_owed() {
    let mut pool = Pool::under_a_shared_cap(config());
    let conn = open(&mut pool);
    let waiter = pool.wait();
    pool.state.deny_permit(pool.now);
    pool.state.owe_permit();
    pool.cancel(waiter);
    pool.effects();
    // On its way when the waiter gave up.
    pool.grant();
    assert_eq!(pool.effects(), [Effect::ReturnPermit]);
    pool.release(conn);
    assert_eq!(pool.effects(), [], "nothing is owed any more");
    assert_eq!(pool.gauges(), [0, 1, 0, 0]);
}

#[test]
fn the_permit_of_an_expired_connection_that_an_acquire_passes_over_goes_back() {
    let fifo = config().reuse_order(ReuseOrder::Fifo);
    let mut pool = Pool::under_a_shared_cap(fifo.idle_timeout(millis(10)));
    let conns = [open(&mut pool), open(&mut pool)];
    pool.release(conns[0]);
    pool.pass(millis(5));
    pool.release(conns[1]);
    // Later than the first one's time, and its timer has not been looked at.
    pool.now = pool.now + millis(6);
    let admission = pool.state.acquire(pool.now, pool.key);
    assert_eq!(admission, Admission::Reuse(conns[1]));
    pool.run();
    let expired = Effect::Close(conns[0], CloseReason::IdleTimeout);
    assert_eq!(pool.effects(), [expired, Effect::ReturnPermit]);
}

/// Found by the simulator: it is refused, though the denied permit is withdrawn at the same time.
#[test]
fn a_waiter_let_in_for_a_permit_is_refused_when_a_lowered_total_makes_the_permit_useless() {
    let mut pool = Pool::under_a_shared_cap(config().max_pending(0));
    open(&mut pool);
    let waiter = pool.wait();
    assert_eq!(pool.effects(), [Effect::AskPermit]);
    pool.set_config(config().max_pending(0).max_total(1));
    assert_eq!(pool.effects(), []);
    pool.deny();
    let refused = Effect::Reject(waiter, Rejection::QueueFull { pending: 0 });
    assert_eq!(pool.effects(), [Effect::WithdrawPermit, refused]);
}

/// Found by the simulator: it became idle with the permit still owed, beside which another
/// destination starved.
#[test]
fn a_connection_that_nobody_waits_for_any_more_pays_what_is_owed() {
    let mut pool = Pool::under_a_shared_cap(config());
    let waiter = pool.wait();
    pool.effects();
    pool.grant();
    pool.cancel(waiter);
    pool.state.owe_permit();
    let conn = pool.connects[0];
    assert!(pool.connected(conn));
    assert_eq!(
        pool.effects(),
        [
            evicted(conn),
            Effect::ReturnPermit,
            Effect::ForgetKey(pool.key),
        ]
    );
}

/// Found by the simulator: it had been put among those that have a connection, and was left there when
/// it had none any more.
#[test]
fn a_destination_whose_last_connection_is_evicted_is_served_as_one_that_has_nothing() {
    let mut pool = Pool::under_a_shared_cap(config());
    let [poor, rich] = pool.destinations();
    let conn = open(pool.at(poor));
    pool.release(conn);
    pool.wait_fresh();
    assert_eq!(pool.effects(), [Effect::AskPermit]);
    let first = pool.at(rich).wait();
    pool.wait();
    pool.deny();
    let taken = pool.connect_for(first);
    pool.effects();
    pool.at(rich).release(taken);
    assert_eq!(pool.effects(), [evicted(taken)]);
    assert!(pool.at(poor).connect().is_some(), "it gets the room");
}

#[test]
fn a_waiter_let_in_below_the_limit_stays_when_the_limit_is_lowered_and_a_permit_denied() {
    let limits = || config().max_connections(1);
    let mut pool = Pool::under_a_shared_cap(limits().max_pending(5));
    let (_, beyond) = (pool.wait(), pool.wait());
    pool.set_config(limits().max_pending(0));
    pool.deny();
    let refused = pool
        .effects()
        .into_iter()
        .any(|effect| matches!(effect, Effect::Reject(waiter, _) if waiter == beyond));
    assert!(!refused);
}

#[test]
fn an_acquire_that_no_permit_will_serve_soon_is_refused_where_nobody_may_wait() {
    let mut pool = Pool::under_a_shared_cap(config());
    let [first, other] = pool.destinations();
    pool.at(first).wait();
    pool.deny();
    pool.set_config(config().max_pending(0));
    let refused = Admission::Reject(Rejection::QueueFull { pending: 0 });
    assert_eq!(pool.at(other).acquire(), refused);
}
