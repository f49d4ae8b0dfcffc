//! The pause before a retry: exponential, capped, spread by chance.

use std::time::Duration;

use pool_core::ConfigError;

/// How long to pause before each retry: `base`, doubled with every further retry, at most `cap`,
/// and spread by [`Jitter`].
///
/// | value | unit, range | default | none |
/// |---|---|---|---|
/// | `base` | duration, 0..=`cap` | 100 ms | 0, or [`Backoff::NONE`]: no pause |
/// | `cap` | duration | 2 s | [`Duration::MAX`]: no cap |
/// | `jitter` | [`Jitter`] | `Full` | `Jitter::None` |
///
/// ```
/// # use std::time::Duration;
/// use http_client::{Backoff, Jitter};
///
/// let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1))?
///     .jitter(Jitter::Equal);
/// assert_eq!(backoff.pause(1, 0.0), Duration::from_millis(50));
/// assert_eq!(backoff.pause(3, 0.5), Duration::from_millis(300));
/// assert_eq!(backoff.pause(9, 0.0), Duration::from_millis(500));
/// # Ok::<(), pool_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
    jitter: Jitter,
}

/// How chance spreads a pause, so that clients that failed together do not come back together.
///
/// The ranges are of a pause of length `p`, which is at most the cap. Their upper ends are never
/// exceeded, and chance, being below 1, comes within a nanosecond or a 2^32nd of the range of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Jitter {
    /// Always `p`.
    None,
    /// From 0 to `p`: spreads best, and half as long as `p` in the mean.
    #[default]
    Full,
    /// From `p / 2` to `p`: for who needs a least pause.
    Equal,
    /// From `p - 20 %` to `p + 20 %`, and at most the cap. Once `p` is the cap, half of the pauses
    /// are the cap itself, which spreads them badly.
    Fifth,
}

/// Chance as a whole number of 2^-32. Pauses are below 2^94 ns, so a product fits 128 bits.
const CHANCE_BITS: u32 = 32;

impl Default for Backoff {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Backoff {
    /// From 100 ms up to 2 s, with full jitter.
    pub const DEFAULT: Self = Self {
        base: Duration::from_millis(100),
        cap: Duration::from_secs(2),
        jitter: Jitter::Full,
    };

    /// No pause before any retry.
    pub const NONE: Self = Self::fixed(Duration::ZERO);

    /// The same pause before every retry, without jitter.
    #[must_use]
    pub const fn fixed(pause: Duration) -> Self {
        Self {
            base: pause,
            cap: pause,
            jitter: Jitter::None,
        }
    }

    /// Pauses of `base`, twice `base`, four times `base` and so on, none longer than `cap`, with
    /// full jitter.
    ///
    /// # Errors
    ///
    /// [`ConfigError::OutOfRange`] if `cap` is shorter than `base`.
    pub fn new(base: Duration, cap: Duration) -> Result<Self, ConfigError> {
        if cap < base {
            return Err(ConfigError::OutOfRange {
                field: "cap",
                given: format!("{cap:?}"),
                expected: format!("at least base, {base:?}"),
            });
        }
        Ok(Self {
            base,
            cap,
            jitter: Jitter::Full,
        })
    }

    /// The same pauses, spread by `jitter`.
    #[must_use]
    pub const fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// The pause before retry number `retry`, from 1; 0 counts as 1.
    ///
    /// `chance` picks from the range of the [`Jitter`] and is drawn evenly from 0 to 1, 1 excluded.
    /// Out of that range it counts as the end nearest to it. NaN counts as the largest, so that a
    /// broken source does not take the pauses away.
    ///
    /// No argument makes it panic or overflow, and none makes it longer than the cap.
    #[must_use]
    pub fn pause(&self, retry: u32, chance: f64) -> Duration {
        let cap = self.cap.as_nanos();
        let whole = doubled(self.base.as_nanos(), retry.saturating_sub(1)).min(cap);
        let (least, most) = match self.jitter {
            Jitter::None => (whole, whole),
            Jitter::Full => (0, whole),
            Jitter::Equal => (whole - whole / 2, whole),
            Jitter::Fifth => (whole - whole / 5, whole + whole / 5),
        };
        let offset = ((most - least) * chance_bits(chance)) >> CHANCE_BITS;
        duration((least + offset).min(cap))
    }
}

/// `nanos` × 2^`times`, saturating.
fn doubled(nanos: u128, times: u32) -> u128 {
    match nanos {
        0 => 0,
        _ if times > nanos.leading_zeros() => u128::MAX,
        _ => nanos << times,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a cast from float to integer saturates"
)]
fn chance_bits(chance: f64) -> u128 {
    if chance.is_nan() {
        return u128::from(u32::MAX);
    }
    u128::from((chance * 2f64.powi(32)) as u32)
}

fn duration(nanos: u128) -> Duration {
    const NANOS_PER_SEC: u128 = 1_000_000_000;
    match u64::try_from(nanos / NANOS_PER_SEC) {
        Ok(secs) => Duration::new(secs, (nanos % NANOS_PER_SEC) as u32),
        Err(_) => Duration::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JITTERS: [Jitter; 4] = [Jitter::None, Jitter::Full, Jitter::Equal, Jitter::Fifth];
    /// The largest chance that a source can give.
    const BELOW_ONE: f64 = 1.0 - f64::EPSILON / 2.0;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn of(base: u64, cap: u64, jitter: Jitter) -> Backoff {
        Backoff::new(millis(base), millis(cap))
            .unwrap()
            .jitter(jitter)
    }

    #[test]
    fn pauses_double_up_to_the_cap() {
        let backoff = of(100, 1000, Jitter::None);
        let pauses = [1, 2, 3, 4, 5, 6, u32::MAX].map(|retry| backoff.pause(retry, 0.7));
        assert_eq!(
            pauses,
            [100, 200, 400, 800, 1000, 1000, 1000].map(millis),
            "no jitter, so chance has no say"
        );
        assert_eq!(backoff.pause(0, 0.0), backoff.pause(1, 0.0));
    }

    #[test]
    fn a_pause_doubles_exactly_for_as_long_as_a_duration_can_hold_it() {
        let backoff = Backoff::new(Duration::from_nanos(1), Duration::MAX)
            .unwrap()
            .jitter(Jitter::None);
        for retry in 1..=94 {
            let expected = 1u128 << (retry - 1);
            assert_eq!(backoff.pause(retry, 0.0).as_nanos(), expected, "{retry}");
        }
        for retry in 95..300 {
            assert_eq!(backoff.pause(retry, 0.0), Duration::MAX, "{retry}");
        }
    }

    #[test]
    fn each_jitter_keeps_to_its_range_and_uses_all_of_it() {
        // The second retry: p is 1000 ms.
        for (jitter, least, most) in [
            (Jitter::None, 1000, 1000),
            (Jitter::Full, 0, 1000),
            (Jitter::Equal, 500, 1000),
            (Jitter::Fifth, 800, 1200),
        ] {
            let backoff = of(500, 60_000, jitter);
            let (least, most) = (millis(least), millis(most));
            assert_eq!(backoff.pause(2, 0.0), least, "{jitter:?}");
            assert_eq!(backoff.pause(2, 0.5), (least + most) / 2, "{jitter:?}");
            let longest = backoff.pause(2, BELOW_ONE);
            assert!(
                longest <= most && most - longest <= Duration::from_nanos(1),
                "{jitter:?}: {longest:?}"
            );
            let mut before = Duration::ZERO;
            for step in 0..1000 {
                let pause = backoff.pause(2, f64::from(step) / 1000.0);
                assert!(before <= pause, "{jitter:?}: a longer pause by more chance");
                assert!((least..=most).contains(&pause), "{jitter:?}: {pause:?}");
                before = pause;
            }
        }
    }

    #[test]
    fn a_pause_lengthened_by_jitter_stays_below_the_cap() {
        let backoff = of(100, 1000, Jitter::Fifth);
        assert_eq!(backoff.pause(9, 0.0), millis(800));
        assert_eq!(backoff.pause(9, 0.25), millis(900));
        assert_eq!(backoff.pause(9, 0.5), millis(1000));
        assert_eq!(backoff.pause(9, BELOW_ONE), millis(1000));
        let backoff = of(900, 1000, Jitter::Fifth);
        assert_eq!(backoff.pause(1, BELOW_ONE), millis(1000));
    }

    #[test]
    fn no_argument_overflows_or_exceeds_the_cap() {
        let ends = [
            Duration::ZERO,
            Duration::from_nanos(1),
            Duration::from_nanos(3),
            Duration::from_secs(1),
            Duration::from_secs(u64::MAX / 2),
            Duration::MAX - Duration::from_nanos(1),
            Duration::MAX,
        ];
        let retries = (0..300).chain([u32::MAX / 2, u32::MAX - 1, u32::MAX]);
        let chances = [
            0.0,
            -0.0,
            f64::MIN_POSITIVE,
            0.5,
            BELOW_ONE,
            1.0,
            -1.0,
            2.0,
            f64::MAX,
            f64::MIN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
        ];
        for (first, &base) in ends.iter().enumerate() {
            for &cap in &ends[first..] {
                for jitter in JITTERS {
                    let backoff = Backoff::new(base, cap).unwrap().jitter(jitter);
                    for retry in retries.clone() {
                        for chance in chances {
                            let pause = backoff.pause(retry, chance);
                            assert!(pause <= cap, "{backoff:?} {retry} {chance}: {pause:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_chance_out_of_range_counts_as_the_end_nearest_to_it() {
        for jitter in JITTERS {
            let backoff = of(500, 60_000, jitter);
            let (least, most) = (backoff.pause(3, 0.0), backoff.pause(3, BELOW_ONE));
            for chance in [-0.0, -1e-9, -1.0, f64::NEG_INFINITY] {
                assert_eq!(backoff.pause(3, chance), least, "{jitter:?} {chance}");
            }
            for chance in [1.0, 1.5, f64::INFINITY, f64::NAN] {
                assert_eq!(backoff.pause(3, chance), most, "{jitter:?} {chance}");
            }
        }
    }

    #[test]
    fn a_cap_below_the_base_is_refused_by_name() {
        assert_eq!(
            Backoff::new(millis(100), millis(99))
                .unwrap_err()
                .to_string(),
            "cap is 99ms, expected at least base, 100ms"
        );
        assert!(Backoff::new(millis(100), millis(100)).is_ok());
        assert!(Backoff::new(Duration::ZERO, Duration::ZERO).is_ok());
    }

    #[test]
    fn a_fixed_pause_neither_grows_nor_varies() {
        const PAUSE: Backoff = Backoff::fixed(Duration::from_secs(1));
        for retry in [1, 2, 50, u32::MAX] {
            assert_eq!(PAUSE.pause(retry, 0.3), Duration::from_secs(1));
            assert_eq!(Backoff::NONE.pause(retry, 0.3), Duration::ZERO);
        }
    }

    #[test]
    fn the_default_is_what_its_documentation_says() {
        let backoff = Backoff::default();
        assert_eq!(backoff, of(100, 2000, Jitter::Full));
        assert_eq!(backoff.pause(1, 0.5), millis(50));
        assert_eq!(backoff.pause(9, 0.5), millis(1000));
    }
}
