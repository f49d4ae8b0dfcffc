//! How long things took, as plain values that merge.

use std::time::Duration;

use hdrhistogram::Histogram as Hdr;

/// The longest duration that is told apart from longer ones: an hour.
const LONGEST: u64 = 3_600_000_000_000;

/// Durations are told apart from a microsecond on.
const SHORTEST: u64 = 1_000;

/// What the histograms of one pool show.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Histograms {
    /// From an acquire to its connection, for those that got one. Those served at once waited for
    /// no time at all.
    pub acquire_wait: Histogram,
    /// From the start of a connect to its connection.
    pub connect: Histogram,
    /// From an acquire's connection to its release or its close.
    pub hold: Histogram,
}

impl Histograms {
    /// Adds what `other` has recorded.
    pub fn merge(&mut self, other: &Self) {
        self.acquire_wait.merge(&other.acquire_wait);
        self.connect.merge(&other.connect);
        self.hold.merge(&other.hold);
    }
}

/// A distribution of durations, each to within 1 %, from a microsecond to an hour: longer ones
/// count as an hour. What is timed within a turn of the core counts as no time.
#[derive(Clone, Debug)]
pub struct Histogram(Hdr<u64>);

impl Default for Histogram {
    fn default() -> Self {
        #[allow(
            clippy::unwrap_used,
            reason = "the bounds are constants, and tests make one"
        )]
        let empty = Hdr::new_with_bounds(SHORTEST, LONGEST, 2).unwrap();
        Self(empty)
    }
}

impl Histogram {
    #[inline]
    pub(crate) fn record(&mut self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(nanos);
    }

    /// Records `times` durations of zero.
    pub(crate) fn record_zeros(&mut self, times: u64) {
        self.0.saturating_record_n(0, times);
    }

    /// How many durations were recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The duration that `percent` (0 to 100) of the recorded ones do not exceed; zero if none was
    /// recorded.
    ///
    /// ```
    /// let histogram = pool_core::Histogram::default();
    /// assert!(histogram.percentile(99.9).is_zero());
    /// ```
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_percentile(percent))
    }

    /// The longest recorded duration, to within 1 %.
    #[must_use]
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.0.max())
    }

    /// The mean of the recorded durations, to within 1 %.
    #[must_use]
    pub fn mean(&self) -> Duration {
        Duration::from_secs_f64(self.0.mean() / 1e9)
    }

    /// Adds what `other` has recorded.
    pub fn merge(&mut self, other: &Self) {
        // Both have the same bounds, so that nothing can fail to fit.
        let added = self.0.add(&other.0);
        debug_assert!(added.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_have_recorded_merges_and_long_durations_count_as_an_hour() {
        let (mut one, mut other) = (Histogram::default(), Histogram::default());
        one.record(Duration::from_millis(1));
        one.record_zeros(2);
        other.record(Duration::MAX);
        one.merge(&other);
        assert_eq!(one.count(), 4);
        assert_eq!(one.percentile(50.0), Duration::from_nanos(511));
        let close = |seen: Duration, value: f64| (seen.as_secs_f64() / value - 1.0).abs() < 0.01;
        assert!(close(one.percentile(75.0), 0.001));
        assert!(close(one.max(), 3600.0));
    }

    #[test]
    fn all_three_distributions_merge() {
        let millis = Duration::from_millis;
        let recorded = |times: u64| {
            let mut histograms = Histograms::default();
            for n in 0..times {
                histograms.acquire_wait.record(millis(n));
                histograms.connect.record(millis(n));
                histograms.connect.record(millis(n));
            }
            histograms.hold.record_zeros(times);
            histograms
        };
        let mut all = recorded(1);
        all.merge(&recorded(3));
        let counts = [&all.acquire_wait, &all.connect, &all.hold].map(Histogram::count);
        assert_eq!(counts, [4, 8, 4]);
    }

    #[test]
    fn mean_is_in_the_middle_to_within_one_percent() {
        let mut histogram = Histogram::default();
        for millis in [1, 2, 6] {
            histogram.record(Duration::from_millis(millis));
        }
        let off = histogram.mean().abs_diff(Duration::from_millis(3));
        assert!(off < Duration::from_micros(30), "off by {off:?}");
    }
}
