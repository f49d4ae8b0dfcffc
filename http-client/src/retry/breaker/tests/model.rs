//! Random histories beside a naive reading of the rules, which keeps everything that ever happened
//! and looks it all through each time.

use std::collections::HashSet;

use super::*;

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).unwrap()]
    }
}

/// What was admitted, with all that happened to it.
#[derive(Clone, Copy)]
struct Attempt {
    permit: Permit,
    period: usize,
    begun: u64,
    ended: Option<Ended>,
}

#[derive(Clone, Copy)]
struct Ended {
    at: u64,
    order: usize,
    outcome: Outcome,
}

/// Times are in nanoseconds, and `now` is the latest that was told. A period is the time between two changes of state.
struct Model {
    config: BreakerConfig,
    now: u64,
    state: BreakerState,
    period: usize,
    since: u64,
    open_for: u64,
    attempts: Vec<Attempt>,
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}

impl Model {
    fn enter(&mut self, to: BreakerState, why: Cause) -> Option<Transition> {
        let from = self.state;
        self.state = to;
        self.period += 1;
        self.since = self.now;
        Some(Transition { from, to, why })
    }

    /// Those of this period.
    fn current(&self) -> impl DoubleEndedIterator<Item = &Attempt> {
        self.attempts.iter().filter(|a| a.period == self.period)
    }

    /// The outcomes of this period in the order in which they came, neutral ones left out.
    fn outcomes(&self) -> Vec<(u64, bool)> {
        let mut ended: Vec<_> = self.current().filter_map(|a| a.ended).collect();
        ended.retain(|ended| ended.outcome != Outcome::Neutral);
        ended.sort_by_key(|ended| ended.order);
        let failed = |ended: Ended| (ended.at, ended.outcome == Outcome::Failure);
        ended.into_iter().map(failed).collect()
    }

    fn expiries(&self) -> Vec<u64> {
        let timeout = nanos(self.config.probe_timeout());
        self.current()
            .filter(|a| a.ended.is_none())
            .map(|a| a.begun + timeout)
            .filter(|expires| *expires > self.now)
            .collect()
    }

    /// When everything that could still be waited for is over.
    fn vacant(&self) -> u64 {
        match self.state {
            BreakerState::Closed => u64::MAX,
            BreakerState::Open => self.since + self.open_for,
            BreakerState::HalfOpen => {
                let last = self.current().map(|a| a.begun).max().unwrap();
                last + nanos(self.config.probe_timeout())
            }
        }
    }

    fn lapse(&mut self) -> Option<Transition> {
        if self.now < self.vacant().saturating_add(600_000_000_000) {
            return None;
        }
        self.enter(BreakerState::Closed, Cause::Unused)
    }

    fn admit(&mut self) -> Result<Option<Transition>, Duration> {
        let mut transition = self.lapse();
        if self.state == BreakerState::Open {
            let until = self.since + self.open_for;
            if self.now < until {
                return Err(Duration::from_nanos(until - self.now));
            }
            transition = self.enter(BreakerState::HalfOpen, Cause::OpenTimePassed);
        }
        if self.state == BreakerState::HalfOpen {
            let expiries = self.expiries();
            if expiries.len() == self.config.probes() as usize {
                let first = expiries.iter().min().unwrap();
                return Err(Duration::from_nanos(first - self.now));
            }
        }
        Ok(transition)
    }

    fn report(&mut self, which: usize, outcome: Outcome) -> Option<Transition> {
        let lapsed = self.lapse();
        self.attempts[which].ended = Some(Ended {
            at: self.now,
            order: self.attempts.iter().filter(|a| a.ended.is_some()).count(),
            outcome,
        });
        if self.attempts[which].period != self.period || outcome == Outcome::Neutral {
            return lapsed;
        }
        let failed = outcome == Outcome::Failure;
        if self.state == BreakerState::HalfOpen {
            let successes = self.outcomes().len() as u64;
            if failed {
                self.open_for = (self.open_for * 2).min(nanos(self.config.max_open_for()));
                return self.enter(BreakerState::Open, Cause::ProbeFailed);
            }
            return (successes >= u64::from(self.config.probes_to_close()))
                .then(|| self.enter(BreakerState::Closed, Cause::ProbesSucceeded))
                .flatten();
        }
        let why = failed.then(|| self.opens())??;
        self.open_for = nanos(self.config.open_for());
        self.enter(BreakerState::Open, why)
    }

    fn opens(&self) -> Option<Cause> {
        if let Some(most) = self.config.consecutive_failures()
            && self.row() >= u64::from(most)
        {
            return Some(Cause::ConsecutiveFailures);
        }
        let slot = nanos(self.config.window()) / 16;
        let oldest = (self.now / slot).saturating_sub(15) * slot;
        let recent: Vec<_> = self
            .outcomes()
            .into_iter()
            .filter(|(at, _)| *at >= oldest)
            .collect();
        let failures = recent.iter().filter(|(_, failed)| *failed).count();
        #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
        let rate = failures as f64 / recent.len() as f64;
        let enough = recent.len() >= self.config.min_requests() as usize;
        let too_often = self.config.failure_rate().is_some_and(|most| rate >= most);
        (enough && too_often).then_some(Cause::FailureRate)
    }

    fn row(&self) -> u64 {
        let mut row = 0;
        let mut later = self.now;
        for (at, failed) in self.outcomes().into_iter().rev() {
            if !failed || later - at >= nanos(self.config.window()) {
                break;
            }
            row += 1;
            later = at;
        }
        row
    }
}

struct History {
    seed: u64,
    now: u64,
    dice: Dice,
    breaker: Breaker,
    model: Model,
    counts: BreakerCounts,
    seen: HashSet<String>,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let max_open_for = dice.pick(&[1000, 3000, 30_000]);
        let config = BreakerConfig::builder()
            .consecutive_failures(dice.pick(&[None, Some(1), Some(3), Some(6)]))
            .failure_rate(dice.pick(&[None, Some(0.25), Some(0.5), Some(0.75), Some(1.0)]))
            .window(millis(dice.pick(&[1000, 10_000, 16_001])))
            .min_requests(dice.pick(&[1, 4, 12]))
            .open_for(millis(dice.pick(&[1, 200, 1000])))
            .max_open_for(millis(max_open_for))
            .probes(dice.pick(&[1, 2, 5]))
            .probes_to_close(dice.pick(&[1, 2, 7]))
            .probe_timeout(millis(dice.pick(&[1, 500, 10_000])))
            .build()
            .unwrap();
        let now = dice.below(1 << 40);
        Self {
            seed,
            now,
            breaker: Breaker::new(&config, Timestamp::from_nanos(now)),
            model: Model {
                config,
                now,
                state: BreakerState::Closed,
                period: 0,
                since: now,
                open_for: 0,
                attempts: Vec::new(),
            },
            counts: BreakerCounts::default(),
            dice,
            seen: HashSet::new(),
        }
    }

    /// What is told of the time: at times it is of the past, and then the latest has to count.
    fn clock(&mut self) -> Timestamp {
        let back = match self.dice.below(8) {
            0 => self.dice.next() >> self.dice.pick(&[24, 34, 50]),
            _ => 0,
        };
        let told = self.now.saturating_sub(back);
        self.model.now = self.model.now.max(told);
        Timestamp::from_nanos(told)
    }

    fn admit(&mut self) {
        let clock = self.clock();
        let expected = self.model.admit();
        let got = self.breaker.admit(clock);
        let transition = got.map(|a| a.transition).map_err(|open| open.retry_after);
        assert_eq!(transition, expected, "seed {}", self.seed);
        match got {
            Ok(admitted) => {
                self.note(admitted.transition);
                self.counts.probes += u64::from(self.model.state == BreakerState::HalfOpen);
                self.model.attempts.push(Attempt {
                    permit: admitted.permit,
                    period: self.model.period,
                    begun: self.model.now,
                    ended: None,
                });
            }
            Err(open) => {
                self.counts.rejected += 1;
                self.rejection_holds_to_the_nanosecond(open.retry_after);
            }
        }
    }

    fn rejection_holds_to_the_nanosecond(&self, retry_after: Duration) {
        let then = Timestamp::from_nanos(self.model.now) + retry_after;
        let before = Timestamp::from_nanos(then.as_nanos() - 1);
        assert!(retry_after > Duration::ZERO, "seed {}", self.seed);
        assert!(
            self.breaker.clone().admit(before).is_err(),
            "seed {}",
            self.seed
        );
        assert!(
            self.breaker.clone().admit(then).is_ok(),
            "seed {}",
            self.seed
        );
    }

    /// An attempt from among the last 20, if it has not ended.
    fn report(&mut self, outcome: Outcome) {
        let len = self.model.attempts.len();
        if len == 0 {
            return;
        }
        let back = usize::try_from(self.dice.below(len.min(20) as u64)).unwrap();
        let which = len - 1 - back;
        let Attempt { permit, ended, .. } = self.model.attempts[which];
        if ended.is_some() {
            return;
        }
        let stale = self.model.attempts[which].period != self.model.period;
        self.seen.insert(format!(
            "{outcome:?} in {}, stale: {stale}",
            self.model.state
        ));
        let clock = self.clock();
        let expected = self.model.report(which, outcome);
        let got = self.breaker.report(clock, permit, outcome);
        assert_eq!(got, expected, "seed {}", self.seed);
        self.note(got);
    }

    fn note(&mut self, transition: Option<Transition>) {
        if let Some(Transition { to, why, .. }) = transition {
            self.counts.opened += u64::from(to == BreakerState::Open);
            self.seen.insert(why.to_string());
        }
    }

    fn advance(&mut self) {
        let magnitude = self.dice.pick(&[0, 10, 20, 26, 28, 30, 32, 34, 34, 40]);
        self.now += self.dice.below(1 << magnitude);
    }

    fn holds(&mut self) {
        let (seed, now) = (self.seed, Timestamp::from_nanos(self.model.now));
        let lapses = self.model.now >= self.model.vacant().saturating_add(600_000_000_000);
        let state = if lapses {
            BreakerState::Closed
        } else {
            self.model.state
        };
        assert_eq!(self.breaker.state(now), state, "seed {seed}");
        assert_eq!(self.breaker.counts(), self.counts, "seed {seed}");
        let in_flight = self.breaker.probes.iter().filter(|p| p.expires > now);
        assert!(in_flight.count() <= self.model.config.probes() as usize);
        let admits = self.breaker.clone().admit(now).is_ok();
        assert!(admits || state != BreakerState::Closed, "seed {seed}");
        if self.breaker.is_idle(now) {
            self.is_like_new(now);
        }
    }

    /// Two copies, of which one is really new, are told the same things.
    fn is_like_new(&mut self, mut now: Timestamp) {
        let mut old = self.breaker.clone();
        let mut new = Breaker::new(&self.model.config, now);
        for _ in 0..self.dice.below(20) {
            let [a, b] = [&mut old, &mut new].map(|breaker| breaker.admit(now));
            now = now + Duration::from_nanos(self.dice.below(1 << 30));
            let outcome = self.dice.pick(&[Outcome::Success, Outcome::Failure]);
            match (a, b) {
                (Ok(a), Ok(b)) => assert_eq!(
                    old.report(now, a.permit, outcome),
                    new.report(now, b.permit, outcome),
                    "seed {}",
                    self.seed
                ),
                (a, b) => assert_eq!(a.err(), b.err(), "seed {}", self.seed),
            }
        }
    }

    /// From here on nothing fails, and what is under way is never heard of again.
    fn recovers(&self) {
        let mut breaker = self.breaker.clone();
        let mut now = Timestamp::from_nanos(self.model.now);
        let steps = self.model.config.probes_to_close() + 1;
        for _ in 0..steps {
            match breaker.admit(now) {
                Ok(admitted) => {
                    let _ = breaker.report(now, admitted.permit, Outcome::Success);
                }
                Err(open) => now = now + open.retry_after,
            }
            if breaker.state(now) == BreakerState::Closed {
                return;
            }
        }
        panic!("seed {}: not closed after {steps} steps", self.seed);
    }

    fn run(mut self, steps: u32) -> HashSet<String> {
        // Out of 8, so that some destinations are mostly well and some never.
        let failing = self.dice.below(9);
        for _ in 0..steps {
            match self.dice.below(16) {
                0..6 => self.admit(),
                6..13 => {
                    let outcome = match self.dice.below(8) {
                        _ if self.dice.below(6) == 0 => Outcome::Neutral,
                        roll if roll < failing => Outcome::Failure,
                        _ => Outcome::Success,
                    };
                    self.report(outcome);
                }
                _ => self.advance(),
            }
            self.holds();
            self.recovers();
        }
        self.seen
    }
}

#[test]
fn any_history_goes_by_the_rules_and_ends_closed_once_faults_end() {
    let mut seen = HashSet::new();
    for seed in 0..400 {
        seen.extend(History::new(seed).run(400));
    }
    let causes = [
        Cause::ConsecutiveFailures,
        Cause::FailureRate,
        Cause::OpenTimePassed,
        Cause::ProbeFailed,
        Cause::ProbesSucceeded,
        Cause::Unused,
    ];
    let mut expected: HashSet<_> = causes.iter().map(ToString::to_string).collect();
    for outcome in [Outcome::Success, Outcome::Failure, Outcome::Neutral] {
        for (state, stale) in [
            (BreakerState::Closed, false),
            (BreakerState::Closed, true),
            (BreakerState::Open, true),
            (BreakerState::HalfOpen, false),
            (BreakerState::HalfOpen, true),
        ] {
            expected.insert(format!("{outcome:?} in {state}, stale: {stale}"));
        }
    }
    assert_eq!(seen, expected, "histories that reach all there is");
}
