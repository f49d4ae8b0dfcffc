//! When a breaker opens, for how long, and what closes it.

use std::ops::RangeInclusive;
use std::time::Duration;

use pool_core::ConfigError;

/// When the breaker of a destination opens, for how long, and what closes it again.
///
/// - **Closed**: every attempt goes ahead. It opens with a failure that is the last of
///   `consecutive_failures` in a row, none of which came a whole `window` after the one before; or
///   with one that leaves at least `min_requests` outcomes within the last `window`, of which
///   `failure_rate` or more are failures. With neither limit it never opens.
/// - **Open**: attempts fail at once and are told for how long. That is `open_for` at first, and
///   twice as long as before each time that a probe fails, up to `max_open_for`.
/// - **Half-open**: from the first attempt after that time. `probes` attempts at a time go ahead,
///   the others fail at once. It closes after `probes_to_close` successes, and the next open time
///   is `open_for` again. A failure opens it.
///
/// An attempt that says nothing of the destination, such as one that is cancelled, is neither a
/// success nor a failure; if it was a probe, another may go ahead in its place. A probe of which
/// nothing is heard for `probe_timeout` makes room for another too, and opens nothing: how long an
/// answer may take is for the timeouts of the attempt to say. When its outcome comes after all, it
/// counts like that of any probe. An outcome of an attempt that went ahead before the last change
/// of state counts for nothing.
///
/// There is a breaker for each destination on each core, and they share nothing: a destination
/// that comes back sees at most `probes` × cores attempts at a time. One that has not been used
/// for 10 minutes after it could have been probed is closed, for what it knew is too old.
///
/// | value | unit, range | default | none |
/// |---|---|---|---|
/// | `consecutive_failures` | failures, 1.. | 5 | their number opens nothing |
/// | `failure_rate` | failures per outcome, 0.000001..=1.0, to the nearest millionth | 0.5 | their rate opens nothing |
/// | `window` | duration, 1 s..=1 h | 10 s | – |
/// | `min_requests` | outcomes, 1.. | 20 | – |
/// | `open_for` | duration, 1 ms..=`max_open_for` | 1 s | – |
/// | `max_open_for` | duration, `open_for`..=24 h | 30 s | – |
/// | `probes` | attempts in flight, 1..=1000 | 1 | – |
/// | `probes_to_close` | successes, 1.. | 1 | – |
/// | `probe_timeout` | duration, 1 ms..=24 h | 10 s | – |
///
/// The window moves on in steps of a 16th, and an outcome may be forgotten up to one step early.
///
/// ```
/// # use std::time::Duration;
/// use http_client::BreakerConfig;
///
/// let config = BreakerConfig::builder()
///     .consecutive_failures(None)
///     .failure_rate(0.25)
///     .open_for(Duration::from_millis(200))
///     .build()?;
/// assert_eq!(config.failure_rate(), Some(0.25));
///
/// let error = BreakerConfig::builder().probes(0).build().unwrap_err();
/// assert_eq!(error.to_string(), "probes is 0, expected 1 to 1000");
/// # Ok::<(), pool_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerConfig {
    consecutive_failures: Option<u32>,
    /// Whole numbers, so that a rate such as 0.6 is met exactly.
    failure_millionths: Option<u32>,
    window: Duration,
    min_requests: u32,
    open_for: Duration,
    max_open_for: Duration,
    probes: u32,
    probes_to_close: u32,
    probe_timeout: Duration,
}

pub(super) const MILLION: u32 = 1_000_000;

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            consecutive_failures: Some(5),
            failure_millionths: Some(MILLION / 2),
            window: Duration::from_secs(10),
            min_requests: 20,
            open_for: Duration::from_secs(1),
            max_open_for: Duration::from_secs(30),
            probes: 1,
            probes_to_close: 1,
            probe_timeout: Duration::from_secs(10),
        }
    }
}

impl BreakerConfig {
    /// Starts from the defaults.
    pub fn builder() -> BreakerConfigBuilder {
        BreakerConfigBuilder::default()
    }

    /// The failures in a row that open it.
    #[must_use]
    pub fn consecutive_failures(&self) -> Option<u32> {
        self.consecutive_failures
    }

    /// The failures per outcome that open it, as a multiple of a millionth.
    #[must_use]
    pub fn failure_rate(&self) -> Option<f64> {
        self.failure_millionths
            .map(|rate| f64::from(rate) / f64::from(MILLION))
    }

    pub(super) fn failure_millionths(&self) -> Option<u32> {
        self.failure_millionths
    }

    /// The time over which outcomes count.
    #[must_use]
    pub fn window(&self) -> Duration {
        self.window
    }

    /// The outcomes within the window without which the rate says nothing.
    #[must_use]
    pub fn min_requests(&self) -> u32 {
        self.min_requests
    }

    /// How long it is open at first.
    #[must_use]
    pub fn open_for(&self) -> Duration {
        self.open_for
    }

    /// How long it is open at most.
    #[must_use]
    pub fn max_open_for(&self) -> Duration {
        self.max_open_for
    }

    /// The attempts in flight while it is half-open.
    #[must_use]
    pub fn probes(&self) -> u32 {
        self.probes
    }

    /// The successes that close it.
    #[must_use]
    pub fn probes_to_close(&self) -> u32 {
        self.probes_to_close
    }

    /// How long a probe of which nothing is heard keeps others away.
    #[must_use]
    pub fn probe_timeout(&self) -> Duration {
        self.probe_timeout
    }
}

/// Collects the values of a [`BreakerConfig`]; [`build`](Self::build) checks them.
#[must_use = "a builder does nothing until it is built"]
#[derive(Clone, Copy, Debug)]
pub struct BreakerConfigBuilder {
    /// Its rate is not looked at.
    config: BreakerConfig,
    failure_rate: Option<f64>,
}

impl Default for BreakerConfigBuilder {
    fn default() -> Self {
        let config = BreakerConfig::default();
        Self {
            config,
            failure_rate: config.failure_rate(),
        }
    }
}

impl BreakerConfigBuilder {
    /// The failures in a row that open it, at least 1. With `None` their number opens nothing.
    pub fn consecutive_failures(mut self, failures: impl Into<Option<u32>>) -> Self {
        self.config.consecutive_failures = failures.into();
        self
    }

    /// The failures per outcome within the window that open it, 0.000001 to 1.0. It is held as the
    /// nearest millionth. With `None` their rate opens nothing.
    pub fn failure_rate(mut self, rate: impl Into<Option<f64>>) -> Self {
        self.failure_rate = rate.into();
        self
    }

    /// The time over which outcomes count for the rate, and the pause between two failures that
    /// are no longer in a row; 1 s to 1 h.
    pub fn window(mut self, window: Duration) -> Self {
        self.config.window = window;
        self
    }

    /// The outcomes within the window without which the rate says nothing, at least 1.
    pub fn min_requests(mut self, outcomes: u32) -> Self {
        self.config.min_requests = outcomes;
        self
    }

    /// How long it is open before it is probed, the first time; 1 ms to `max_open_for`.
    pub fn open_for(mut self, time: Duration) -> Self {
        self.config.open_for = time;
        self
    }

    /// How long it is open at most, however many probes have failed; `open_for` to 24 h.
    pub fn max_open_for(mut self, time: Duration) -> Self {
        self.config.max_open_for = time;
        self
    }

    /// The attempts that may be in flight at a time while it is half-open, 1 to 1000.
    pub fn probes(mut self, attempts: u32) -> Self {
        self.config.probes = attempts;
        self
    }

    /// The successes that close it while it is half-open, at least 1.
    pub fn probes_to_close(mut self, successes: u32) -> Self {
        self.config.probes_to_close = successes;
        self
    }

    /// How long a probe of which nothing is heard keeps others away, 1 ms to 24 h. It is best
    /// longer than an attempt may take.
    pub fn probe_timeout(mut self, time: Duration) -> Self {
        self.config.probe_timeout = time;
        self
    }

    /// Checks every value.
    ///
    /// # Errors
    ///
    /// The first value that is out of its range, by name.
    pub fn build(self) -> Result<BreakerConfig, ConfigError> {
        let Self {
            mut config,
            failure_rate,
        } = self;
        at_least_one(
            "consecutive_failures",
            config.consecutive_failures.unwrap_or(1),
        )?;
        config.failure_millionths = failure_rate.map(millionths).transpose()?;
        in_range(
            "window",
            config.window,
            Duration::from_secs(1)..=Duration::from_secs(3600),
            "1 s to 1 h",
        )?;
        at_least_one("min_requests", config.min_requests)?;
        in_range("max_open_for", config.max_open_for, SPAN, "1 ms to 24 h")?;
        let most = config.max_open_for;
        in_range(
            "open_for",
            config.open_for,
            *SPAN.start()..=most,
            &format!("1 ms to max_open_for, {most:?}"),
        )?;
        if !(1..=1000).contains(&config.probes) {
            return Err(out_of_range(
                "probes",
                config.probes.to_string(),
                "1 to 1000",
            ));
        }
        at_least_one("probes_to_close", config.probes_to_close)?;
        in_range("probe_timeout", config.probe_timeout, SPAN, "1 ms to 24 h")?;
        Ok(config)
    }
}

const SPAN: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(24 * 3600);

fn out_of_range(field: &'static str, given: String, expected: &str) -> ConfigError {
    ConfigError::OutOfRange {
        field,
        given,
        expected: expected.to_owned(),
    }
}

fn at_least_one(field: &'static str, given: u32) -> Result<(), ConfigError> {
    match given {
        0 => Err(out_of_range(field, given.to_string(), "at least 1")),
        _ => Ok(()),
    }
}

fn in_range(
    field: &'static str,
    given: Duration,
    range: RangeInclusive<Duration>,
    expected: &str,
) -> Result<(), ConfigError> {
    if range.contains(&given) {
        return Ok(());
    }
    Err(out_of_range(field, format!("{given:?}"), expected))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "between 1 and a million, and a whole number"
)]
fn millionths(rate: f64) -> Result<u32, ConfigError> {
    let million = f64::from(MILLION);
    if !(1.0 / million..=1.0).contains(&rate) {
        return Err(out_of_range(
            "failure_rate",
            rate.to_string(),
            "0.000001 to 1, or none",
        ));
    }
    Ok((rate * million).round() as u32)
}
