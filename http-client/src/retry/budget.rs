//! How many retries a destination is worth: a share of its requests, and a few beside.

use std::time::Duration;

use pool_core::{ConfigError, Timestamp};

/// How many retries a destination gets, per core.
///
/// A retry is allowed if, with it, the retries allowed within the last `window` are no more than
/// the larger of
///
/// - `ratio` × the requests begun within the same window, first attempts only, rounded down, and
/// - `floor_per_second` × the window in seconds, rounded down, for those that send few requests.
///
/// A retry counts from the moment it is allowed, so one that waits for its pause to end counts as
/// much as one that was sent; one that is cancelled while it waits is given back. It follows that
/// over any time, however long, retries are at most `ratio` × the requests where `floor_per_second`
/// is 0, and with a floor at most as many more as the floor alone would allow.
///
/// | value | unit, range | default | none |
/// |---|---|---|---|
/// | `ratio` | retries per request, 0.0..=1.0, to the nearest millionth | 0.2 | 0.0: the floor alone |
/// | `floor_per_second` | retries per second, 0.. | 3 | 0: the ratio alone |
/// | `window` | duration, 1 s..=1 h | 10 s | – |
///
/// The window moves on in steps of a 32nd. Where it cannot tell it errs towards fewer retries:
/// what is allowed keeps to the above for every window, to the nanosecond, while a request may be
/// forgotten up to one step early, and a retry up to one step late.
///
/// ```
/// # use std::time::Duration;
/// use http_client::BudgetConfig;
///
/// let config = BudgetConfig::builder()
///     .ratio(0.1)
///     .floor_per_second(1)
///     .window(Duration::from_secs(30))
///     .build()?;
/// assert_eq!(config.ratio(), 0.1);
///
/// let error = BudgetConfig::builder().ratio(20.0).build().unwrap_err();
/// assert_eq!(error.to_string(), "ratio is 20, expected 0 to 1");
/// # Ok::<(), pool_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetConfig {
    /// Whole numbers, for what floats add up to depends on their order.
    ratio_millionths: u32,
    floor_per_second: u32,
    window: Duration,
}

const MILLION: u32 = 1_000_000;

impl Default for BudgetConfig {
    fn default() -> Self {
        Self {
            ratio_millionths: MILLION / 5,
            floor_per_second: 3,
            window: Duration::from_secs(10),
        }
    }
}

impl BudgetConfig {
    /// Starts from the defaults.
    pub fn builder() -> BudgetConfigBuilder {
        BudgetConfigBuilder::default()
    }

    /// Retries per request, as a multiple of a millionth.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        f64::from(self.ratio_millionths) / f64::from(MILLION)
    }

    /// Retries per second that need no requests.
    #[must_use]
    pub fn floor_per_second(&self) -> u32 {
        self.floor_per_second
    }

    /// The time over which requests and retries are counted.
    #[must_use]
    pub fn window(&self) -> Duration {
        self.window
    }

    /// The retries of a window that need no requests.
    fn floor(&self) -> u64 {
        let floor = u128::from(self.floor_per_second) * self.window.as_nanos() / 1_000_000_000;
        u64::try_from(floor).unwrap_or(u64::MAX)
    }
}

/// Collects the values of a [`BudgetConfig`]; [`build`](Self::build) checks them.
#[must_use = "a builder does nothing until it is built"]
#[derive(Clone, Copy, Debug)]
pub struct BudgetConfigBuilder {
    ratio: f64,
    floor_per_second: u32,
    window: Duration,
}

impl Default for BudgetConfigBuilder {
    fn default() -> Self {
        let config = BudgetConfig::default();
        Self {
            ratio: config.ratio(),
            floor_per_second: config.floor_per_second,
            window: config.window,
        }
    }
}

impl BudgetConfigBuilder {
    /// Retries per request, 0.0 to 1.0. It is held as the nearest millionth, and what is a
    /// millionth, as 0.6 is, is exact.
    pub fn ratio(mut self, ratio: f64) -> Self {
        self.ratio = ratio;
        self
    }

    /// Retries per second that need no requests.
    pub fn floor_per_second(mut self, retries: u32) -> Self {
        self.floor_per_second = retries;
        self
    }

    /// The time over which requests and retries are counted, 1 s to 1 h.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// Checks every value.
    ///
    /// # Errors
    ///
    /// The first value that is out of its range, by name.
    pub fn build(self) -> Result<BudgetConfig, ConfigError> {
        if !(0.0..=1.0).contains(&self.ratio) {
            return Err(ConfigError::OutOfRange {
                field: "ratio",
                given: self.ratio.to_string(),
                expected: "0 to 1".to_owned(),
            });
        }
        if !(Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&self.window) {
            return Err(ConfigError::OutOfRange {
                field: "window",
                given: format!("{:?}", self.window),
                expected: "1 s to 1 h".to_owned(),
            });
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "between 0 and a million, and a whole number"
        )]
        let ratio_millionths = (self.ratio * f64::from(MILLION)).round() as u32;
        Ok(BudgetConfig {
            ratio_millionths,
            floor_per_second: self.floor_per_second,
            window: self.window,
        })
    }
}

/// The steps in which a window moves on.
const SLOTS: u64 = RING as u64 - 1;
/// A window that ends within a slot reaches into one more. Retries are counted in all of these,
/// which is at least the window; requests without the oldest, which is at most the window.
const RING: usize = 33;

/// The retry budget of one destination on one core: what was begun and what was allowed within the
/// last window.
///
/// Takes no clock: a `now` that is before an earlier one counts as that.
#[derive(Clone, Debug)]
pub(crate) struct RetryBudget {
    ratio_millionths: u64,
    floor: u64,
    window_nanos: u64,
    ring: [Slot; RING],
    /// The number of the newest slot, counted from the start of the core.
    newest: u64,
    /// The first nanosecond after the newest slot.
    newest_ends: u64,
    /// The sum over the slots in which requests count.
    requests: u64,
    /// The sum over the slots in which retries count.
    withdrawn: u64,
    granted: u64,
    refused: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    requests: u32,
    withdrawn: u32,
}

impl RetryBudget {
    pub(crate) fn new(config: &BudgetConfig) -> Self {
        Self {
            ratio_millionths: u64::from(config.ratio_millionths),
            floor: config.floor(),
            window_nanos: u64::try_from(config.window.as_nanos()).unwrap_or(u64::MAX),
            ring: [Slot::default(); RING],
            newest: 0,
            newest_ends: 0,
            requests: 0,
            withdrawn: 0,
            granted: 0,
            refused: 0,
        }
    }

    /// Counts a request, at its first attempt.
    pub(crate) fn deposit(&mut self, now: Timestamp) {
        self.advance(now);
        let slot = &mut self.ring[index(self.newest)];
        if let Some(requests) = slot.requests.checked_add(1) {
            slot.requests = requests;
            self.requests += 1;
        }
    }

    /// Asks for a retry, when it is decided and before its pause. Says whether it is allowed.
    #[must_use]
    pub(crate) fn withdraw(&mut self, now: Timestamp) -> bool {
        self.advance(now);
        // Below 2^38 requests × 10^6: no overflow.
        let share = self.requests * self.ratio_millionths / u64::from(MILLION);
        let slot = &mut self.ring[index(self.newest)];
        // A count that is full refuses, where letting it stand would allow retries without end.
        match slot.withdrawn.checked_add(1) {
            Some(withdrawn) if self.withdrawn < share.max(self.floor) => {
                slot.withdrawn = withdrawn;
                self.withdrawn += 1;
                self.granted += 1;
                true
            }
            _ => {
                self.refused += 1;
                false
            }
        }
    }

    /// Takes back a retry that was allowed at `withdrawn_at` and will not be sent. Once per such
    /// retry. One that is older than the window counts no more, and taking it back does nothing.
    pub(crate) fn refund(&mut self, withdrawn_at: Timestamp) {
        let number = self.number_of(withdrawn_at.as_nanos());
        if number > self.newest || self.newest - number > SLOTS {
            return;
        }
        let slot = &mut self.ring[index(number)];
        if slot.withdrawn > 0 {
            slot.withdrawn -= 1;
            self.withdrawn -= 1;
        }
    }

    /// Whether nothing counts any more: but for the statistics it is like a new one from here on,
    /// and may be forgotten. Refunds still to come do nothing then.
    pub(crate) fn is_idle(&mut self, now: Timestamp) -> bool {
        self.advance(now);
        self.requests == 0 && self.withdrawn == 0
    }

    /// The retries allowed so far, those taken back included.
    pub(crate) fn granted(&self) -> u64 {
        self.granted
    }

    /// The retries refused so far.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    fn advance(&mut self, now: Timestamp) {
        if now.as_nanos() >= self.newest_ends {
            self.move_on(now.as_nanos());
        }
    }

    #[cold]
    fn move_on(&mut self, nanos: u64) {
        let newest = self.number_of(nanos);
        if newest - self.newest > SLOTS {
            self.ring = [Slot::default(); RING];
            self.requests = 0;
            self.withdrawn = 0;
        } else {
            for number in self.newest + 1..=newest {
                let oldest = &mut self.ring[index(number)];
                self.withdrawn -= u64::from(oldest.withdrawn);
                *oldest = Slot::default();
                self.requests -= u64::from(self.ring[index(number + 1)].requests);
            }
        }
        self.newest = newest;
        let ends =
            (u128::from(newest + 1) * u128::from(self.window_nanos)).div_ceil(u128::from(SLOTS));
        self.newest_ends = u64::try_from(ends).unwrap_or(u64::MAX);
    }

    /// The slot that a moment is in. Slots are a 32nd of the window long, exactly: lengths in whole
    /// nanoseconds would add up to a little less or more than the window.
    fn number_of(&self, nanos: u64) -> u64 {
        let number = u128::from(nanos) * u128::from(SLOTS) / u128::from(self.window_nanos);
        // The window is 1 s at least.
        u64::try_from(number).unwrap_or(u64::MAX)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "below the length of the ring"
)]
fn index(number: u64) -> usize {
    (number % RING as u64) as usize
}

#[cfg(test)]
mod tests;
