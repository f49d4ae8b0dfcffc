//! Callers that go away at any time.

use super::*;

/// What a task of the test is about to do, and when.
struct Task {
    waiter: WaiterId,
    leaves: Timestamp,
}

/// Fault row A4: a caller cancelled after the pool gave it a connecting connection takes the slot
/// with it.
#[test]
fn cancels_at_random_moments_of_slow_connects_cost_no_slot() {
    const CONNECT: u64 = 20;
    let mut random = Random::new(4);
    let mut pool = Pool::new(config().max_connections(10));
    let mut tasks: Vec<Task> = Vec::new();
    let mut connects: Vec<(ConnId, Timestamp)> = Vec::new();
    let mut cancelled = 0;
    while cancelled < 5000 {
        while tasks.len() < 20 {
            match pool.acquire() {
                Admission::Reuse(conn) => pool.close(conn),
                Admission::Wait(waiter) => {
                    let patience = Duration::from_micros(random.next() % 30_000);
                    let leaves = pool.now + patience;
                    tasks.push(Task { waiter, leaves });
                }
                Admission::Reject(why) => panic!("{why:?}"),
            }
        }
        for conn in std::mem::take(&mut pool.connects) {
            connects.push((conn, pool.now + millis(CONNECT)));
        }
        pool.pass(millis(1));
        let now = pool.now;
        for (conn, _) in connects.extract_if(.., |(_, ends)| *ends <= now) {
            let _ = pool.connected(conn);
        }
        for task in tasks.extract_if(.., |task| task.leaves <= now) {
            pool.cancel(task.waiter);
            cancelled += 1;
        }
        // Those that stay use what they are given once.
        let mut used = Vec::new();
        tasks.retain(
            |task| match random.one_in(2).then(|| pool.claim(task.waiter)) {
                Some(Some(conn)) => {
                    used.push(conn);
                    false
                }
                _ => true,
            },
        );
        used.into_iter().for_each(|conn| pool.close(conn));
        pool.effects();
    }
    for task in tasks {
        pool.cancel(task.waiter);
    }
    pool.connects
        .extend(connects.into_iter().map(|(conn, _)| conn));
    while let Some(conn) = pool.connects.first().copied() {
        let _ = pool.connected(conn);
    }
    let [connecting, idle, acquired, pending] = pool.gauges();
    assert_eq!((connecting, acquired, pending), (0, 0, 0));
    pool.effects();
    for _ in 0..idle {
        pool.reuse();
    }
    for _ in idle..10 {
        pool.open();
    }
    assert_eq!(pool.gauges(), [0, 0, 10, 0], "every slot can be used");
}
