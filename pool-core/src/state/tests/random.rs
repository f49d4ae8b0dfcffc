//! Random operations under a seed, checked after each step, and then a calm in which everything
//! has to end.

use std::collections::{HashMap, HashSet, VecDeque};

use super::*;

/// What the driver remembers, apart from the state, to judge it by.
struct World {
    random: Random,
    state: PoolState,
    now: Timestamp,
    /// The driver's table from destinations to ids.
    keys: [Option<KeyId>; 3],
    /// Waiters without an answer, in order of arrival within their key.
    waiting: HashMap<KeyId, VecDeque<WaiterId>>,
    /// Each waiter's key, when it came, and its place in the order of arrival.
    acquires: HashMap<WaiterId, (KeyId, Timestamp, u64)>,
    /// Those of them that take only new connections.
    fresh: HashSet<WaiterId>,
    delivered: Vec<(WaiterId, ConnId)>,
    connecting: Vec<ConnId>,
    held: Vec<ConnId>,
    /// Idle ones that are being probed.
    probing: Vec<ConnId>,
    /// Since when; past its idle timeout a connection in here must not be handed out.
    idle: HashMap<ConnId, Timestamp>,
    /// When each connection was made, and how many times it was given back.
    made: HashMap<ConnId, (Timestamp, u32)>,
    stale_conns: Vec<ConnId>,
    stale_waiters: Vec<WaiterId>,
    /// Acquires so far, and those of them that have ended.
    requested: u64,
    ended: u64,
    drained: bool,
}

fn random_config(random: &mut Random) -> PoolConfig {
    let max_connections = 1 + u32::try_from(random.below(5)).unwrap();
    let max_idle = u32::try_from(random.below(max_connections as usize + 1)).unwrap();
    let timeout = |random: &mut Random, bound: u64| {
        (!random.one_in(5)).then(|| Duration::from_micros(1 + random.next() % (bound * 1000)))
    };
    config()
        .max_connections(max_connections)
        .max_idle(max_idle)
        .min_idle(match random.one_in(3) {
            true => u32::try_from(random.below(max_idle as usize + 1)).unwrap(),
            false => 0,
        })
        .max_total(
            random
                .one_in(2)
                .then(|| 1 + u32::try_from(random.below(8)).unwrap()),
        )
        .dial_delay(timeout(random, 50).filter(|_| random.one_in(3)))
        .heartbeat_interval(timeout(random, 300).filter(|_| random.one_in(3)))
        .heartbeat_timeout(Duration::from_millis(20))
        .report_leaks(random.one_in(2))
        .max_pending((!random.one_in(3)).then(|| u32::try_from(random.below(8)).unwrap()))
        .dials_in_flight(1 + u32::try_from(random.below(4)).unwrap())
        .acquire_timeout(timeout(random, 200))
        .connect_timeout(timeout(random, 100))
        .hold_timeout(timeout(random, 300))
        .idle_timeout(timeout(random, 1000))
        .max_lifetime(timeout(random, 2000).filter(|_| random.one_in(2)))
        .max_uses(
            random
                .one_in(3)
                .then(|| 1 + u32::try_from(random.below(4)).unwrap()),
        )
        .reuse_order(match random.one_in(3) {
            true => ReuseOrder::Fifo,
            false => ReuseOrder::Lifo,
        })
        .build()
        .unwrap()
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let config = random_config(&mut random);
        Self {
            random,
            state: PoolState::new(config, seed),
            now: Timestamp::ZERO,
            keys: [None; 3],
            waiting: HashMap::new(),
            acquires: HashMap::new(),
            fresh: HashSet::new(),
            delivered: Vec::new(),
            connecting: Vec::new(),
            held: Vec::new(),
            probing: Vec::new(),
            idle: HashMap::new(),
            made: HashMap::new(),
            stale_conns: Vec::new(),
            stale_waiters: Vec::new(),
            ended: 0,
            requested: 0,
            drained: false,
        }
    }

    fn end_waiter(&mut self, waiter: WaiterId) {
        self.acquires
            .remove(&waiter)
            .expect("invariant 7: a waiter ended twice");
        for queue in self.waiting.values_mut() {
            queue.retain(|other| *other != waiter);
        }
        self.delivered.retain(|(other, _)| *other != waiter);
        self.stale_waiters.push(waiter);
        self.ended += 1;
    }

    fn end_conn(&mut self, conn: ConnId) {
        self.held.retain(|other| *other != conn);
        self.connecting.retain(|other| *other != conn);
        self.idle.remove(&conn);
        self.probing.retain(|other| *other != conn);
        if let Some(at) = self.delivered.iter().position(|(_, other)| *other == conn) {
            // Back to its place, unless an effect rejects it.
            let (waiter, _) = self.delivered.swap_remove(at);
            let (key, _, _) = self.acquires[&waiter];
            let queue = self.waiting.entry(key).or_default();
            queue.push_back(waiter);
            queue
                .make_contiguous()
                .sort_by_key(|id| self.acquires[id].2);
        }
        self.stale_conns.push(conn);
    }

    fn run(&mut self) {
        while let Some(effect) = self.state.poll_effect() {
            match effect {
                Effect::Connect(conn, _) => self.connecting.push(conn),
                Effect::AbortConnect(conn, _) | Effect::Close(conn, _) => self.end_conn(conn),
                Effect::ForceClose(conn, _) => {
                    assert!(self.held.contains(&conn), "nobody holds it");
                    self.end_conn(conn);
                }
                Effect::Deliver(waiter, conn) => {
                    let (key, _, _) = self.acquires[&waiter];
                    let used = self.state.is_reused(conn);
                    let queue = self.waiting.entry(key).or_default();
                    let oldest = queue
                        .iter()
                        .position(|id| !(used && self.fresh.contains(id)));
                    let oldest = oldest.and_then(|at| queue.remove(at));
                    assert_eq!(oldest, Some(waiter), "invariant 6");
                    self.assert_not_expired(conn);
                    self.delivered.push((waiter, conn));
                }
                Effect::Reject(waiter, rejection) => {
                    let (_, since, _) = self.acquires[&waiter];
                    let waited = self.now.saturating_duration_since(since);
                    let hold = self.state.config.hold_timeout();
                    if rejection == Rejection::AcquireTimeout {
                        let least = self.state.config.acquire_timeout().into_iter().chain(hold);
                        assert!(least.min().is_some_and(|least| waited >= least), "early");
                    }
                    self.end_waiter(waiter);
                }
                Effect::ForgetKey(key) => {
                    let known = self.keys.iter_mut().find(|known| **known == Some(key));
                    *known.expect("forgotten twice") = None;
                }
                Effect::Probe(conn) => self.probing.push(conn),
                Effect::ReportLeak(conn) => assert!(self.held.contains(&conn)),
                Effect::AskPermit | Effect::ReturnPermit | Effect::WithdrawPermit => {
                    panic!("no cap is shared");
                }
                Effect::Drained => {
                    assert!(!std::mem::replace(&mut self.drained, true), "drained twice");
                }
            }
        }
        if let Err(violation) = self.state.check() {
            panic!("{violation}");
        }
        assert_eq!(self.state.waiters.len(), self.acquires.len(), "invariant 7");
        let conns = self.held.len() + self.idle.len() + self.connecting.len();
        assert_eq!(
            self.state.conns.len(),
            conns + self.delivered.len(),
            "invariant 8"
        );
    }

    /// Invariant 9.
    fn assert_not_expired(&mut self, conn: ConnId) {
        if let (Some(since), Some(timeout)) =
            (self.idle.remove(&conn), self.state.config.idle_timeout())
        {
            let kept_warm = self.state.config.min_idle() > 0;
            assert!(
                kept_warm || self.now < since + timeout,
                "handed out expired"
            );
        }
        let config = &self.state.config;
        let (made, uses) = self.made[&conn];
        if let Some(lifetime) = config.max_lifetime() {
            assert!(self.now < made + lifetime, "handed out beyond its lifetime");
        }
        if let Some(most) = config.max_uses() {
            assert!(uses < most, "handed out beyond its uses");
        }
    }

    fn acquire(&mut self) {
        let at = self.random.below(3);
        let key = *self.keys[at].get_or_insert_with(|| self.state.insert_key());
        while self.random.one_in(20)
            && let Some(dead) = self.state.idle_candidate(self.now, key)
        {
            self.state
                .force_close(self.now, dead, CloseReason::PeerClosed);
        }
        let fresh = self.random.one_in(8);
        let connects = self.state.keys[key].stats.connects;
        let before = self.state.keys[key].pending();
        let candidate = self.state.idle_candidate(self.now, key);
        self.requested += 1;
        let admission = if fresh {
            self.state.acquire_fresh(self.now, key)
        } else {
            self.state.acquire(self.now, key)
        };
        match admission {
            Admission::Reuse(conn) => {
                assert_eq!(Some(conn), candidate);
                assert!(!fresh, "used before");
                let mut queue = self.waiting.get(&key).into_iter().flatten();
                assert!(queue.all(|id| self.fresh.contains(id)), "barging");
                self.assert_not_expired(conn);
                self.held.push(conn);
                self.ended += 1;
            }
            Admission::Wait(waiter) => {
                assert!(fresh || candidate.is_none());
                if fresh {
                    self.fresh.insert(waiter);
                }
                self.waiting.entry(key).or_default().push_back(waiter);
                self.acquires
                    .insert(waiter, (key, self.now, self.requested));
                let stats = self.state.keys[key].stats;
                if let Some(cap) = self.state.config.max_pending()
                    && self.state.config.dial_delay().is_none()
                    && stats.connects == connects
                {
                    assert!(stats.pending.current <= cap.max(before), "invariant 2");
                }
            }
            Admission::Reject(_) => self.ended += 1,
        }
    }

    fn step(&mut self) {
        match self.random.below(16) {
            0..=3 => self.acquire(),
            4 => {
                let waiters: Vec<_> = self.acquires.keys().copied().collect();
                if let Some(waiter) = self.random.pick(&waiters) {
                    self.end_cancelled(waiter);
                }
            }
            5 | 6 => self.claim_one(),
            7 | 8 => self.finish_connect(4),
            9 | 10 => self.release_one(5),
            11 if self.random.one_in(3) => {
                let conns: Vec<_> = self.state.conns.iter().map(|(id, _)| id).collect();
                if let Some(conn) = self.random.pick(&conns) {
                    self.state.force_close(self.now, conn, CloseReason::Reset);
                }
            }
            12 => self.use_stale_ids(),
            13 => {
                // Time passes without the timers being looked at, but for those just set.
                self.state.handle_timeout(self.now);
                self.run();
                self.now = self.now + Duration::from_micros(self.random.next() % 2_000);
            }
            14 => self.pass_some_time(),
            15 if self.random.one_in(2) => {
                if let Some(conn) = self.random.pick(&self.probing) {
                    self.probing.retain(|other| *other != conn);
                    let healthy = !self.random.one_in(3);
                    self.state.probe_ended(self.now, conn, healthy);
                }
            }
            15 if self.random.one_in(2_000) => {
                let grace = Duration::from_micros(self.random.next() % 100_000);
                self.state.drain(self.now, self.now + grace);
            }
            _ => {}
        }
        self.run();
    }

    fn end_cancelled(&mut self, waiter: WaiterId) {
        if let Some((_, conn)) = self.delivered.iter().find(|(other, _)| *other == waiter) {
            self.idle.insert(*conn, self.now);
        }
        self.end_waiter(waiter);
        self.state.cancel(self.now, waiter);
    }

    fn claim_one(&mut self) {
        let Some((waiter, conn)) = self.random.pick(&self.delivered) else {
            return;
        };
        assert_eq!(self.state.claim(self.now, waiter), Some(conn));
        self.end_waiter(waiter);
        self.held.push(conn);
    }

    fn finish_connect(&mut self, failures: usize) {
        let Some(conn) = self.random.pick(&self.connecting) else {
            return;
        };
        self.connecting.retain(|other| *other != conn);
        if failures > 0 && self.random.one_in(failures) {
            let key = self.state.conns[conn].key;
            let oldest = self
                .waiting
                .get(&key)
                .and_then(|queue| queue.front().copied());
            let failed = self.state.connect_failed(self.now, conn);
            assert_eq!(failed, oldest, "the oldest waiter fails");
            if let Some(waiter) = failed {
                self.end_waiter(waiter);
            }
            self.stale_conns.push(conn);
        } else {
            self.idle.insert(conn, self.now);
            self.made.insert(conn, (self.now, 0));
            assert!(self.state.connected(self.now, conn));
        }
    }

    fn release_one(&mut self, closes: usize) {
        let Some(conn) = self.random.pick(&self.held) else {
            return;
        };
        self.held.retain(|other| *other != conn);
        self.idle.insert(conn, self.now);
        let disposition = if closes > 0 && self.random.one_in(closes) {
            Disposition::Close(CloseReason::Abandoned)
        } else {
            Disposition::Reuse
        };
        if let Some((_, uses)) = self.made.get_mut(&conn) {
            *uses += 1;
        }
        self.state.release(self.now, conn, disposition);
    }

    /// Invariant 8.
    fn use_stale_ids(&mut self) {
        let before = (
            *self.state.totals(),
            self.state.conns.len(),
            self.state.waiters.len(),
        );
        if let Some(conn) = self.random.pick(&self.stale_conns) {
            assert!(!self.state.connected(self.now, conn));
            assert_eq!(self.state.connect_failed(self.now, conn), None);
            self.state.release(self.now, conn, Disposition::Reuse);
            self.state.force_close(self.now, conn, CloseReason::Reset);
            assert!(!self.state.is_reused(conn));
        }
        if let Some(waiter) = self.random.pick(&self.stale_waiters) {
            assert_eq!(self.state.claim(self.now, waiter), None);
            self.state.cancel(self.now, waiter);
        }
        let after = (
            *self.state.totals(),
            self.state.conns.len(),
            self.state.waiters.len(),
        );
        assert_eq!(before, after);
        assert!(!self.state.has_effects());
    }

    fn pass_some_time(&mut self) {
        self.state.handle_timeout(self.now);
        self.run();
        let range = [1_000, 50_000, 2_000_000][self.random.below(3)];
        self.now = self.now + Duration::from_micros(self.random.next() % range);
        if let Some(next) = self.state.next_timeout()
            && self.random.one_in(2)
        {
            self.now = self.now.max(next);
        }
        self.state.handle_timeout(self.now);
        assert!(
            self.state.next_timeout().is_none_or(|next| next > self.now),
            "invariant 10"
        );
    }

    /// No more faults and no more acquires: everybody who waits is served, and everything ends.
    fn calm(&mut self) {
        for _ in 0..10_000 {
            self.claim_one();
            self.run();
            self.finish_connect(0);
            self.run();
            self.release_one(0);
            self.run();
            if self.connecting.is_empty() && self.held.is_empty() && self.delivered.is_empty() {
                let Some(next) = self.state.next_timeout() else {
                    break;
                };
                self.now = self.now.max(next);
                self.state.handle_timeout(self.now);
                self.run();
            }
        }
        assert_eq!(
            (self.state.waiters.len(), self.ended),
            (0, self.requested),
            "invariant 7"
        );
        self.state.drain(self.now, self.now + millis(1));
        self.run();
        assert!(self.drained, "idle connections are all that was left");
        let left = (
            self.state.conns.len(),
            self.state.keys.len(),
            self.state.timers.len(),
        );
        assert_eq!(left, (0, 0, 0), "invariant 11");
        assert_eq!(self.state.next_timeout(), None);
        assert_eq!(self.state.totals().acquires.requested, self.requested);
    }
}

fn replay(seed: u64, steps: usize) -> DestinationStats {
    let mut world = World::new(seed);
    for _ in 0..steps {
        world.step();
        if world.drained {
            break;
        }
    }
    world.calm();
    *world.state.totals()
}

/// Fault rows B5 and G8.
#[test]
fn random_operations_keep_every_invariant_and_everything_ends() {
    let mut sum = DestinationStats::default();
    for seed in 0..200 {
        match std::panic::catch_unwind(|| replay(seed, 1_000)) {
            Ok(totals) => sum.merge(&totals),
            Err(panic) => {
                eprintln!("replay with: replay({seed}, 1_000)");
                std::panic::resume_unwind(panic);
            }
        }
    }
    let Acquires {
        fresh,
        reused,
        queued,
        cancelled,
        failed,
        ..
    } = sum.acquires;
    let Timeouts {
        acquire,
        connect,
        hold,
    } = sum.timeouts;
    let Rejected {
        queue_full,
        draining,
    } = sum.rejected;
    let closes = [
        CloseReason::IdleTimeout,
        CloseReason::MaxLifetime,
        CloseReason::MaxUses,
        CloseReason::Surplus,
    ];
    let reached = [
        fresh, reused, queued, cancelled, failed, acquire, connect, hold, queue_full,
    ];
    let rarest = reached
        .into_iter()
        .chain(closes.map(|reason| sum.closed(reason)))
        .min();
    assert!(
        rarest >= Some(100) && draining >= 10 && sum.closed(CloseReason::Drained) >= 10,
        "the worlds are too tame: {sum:#?}"
    );
}
