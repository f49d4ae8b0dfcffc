//! What a thread has measured, and how that of several is put together.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use http_client::ErrorKind;

/// The longest latency that is told from longer ones.
const LONGEST: u64 = 3_600_000_000_000;

/// Statuses have three digits.
const STATUSES: usize = 1000;

/// Latencies in nanoseconds, exact to one part in 1000, at the finest to 64 ns.
pub(super) fn latencies() -> Histogram<u64> {
    bounded(64, 3)
}

/// Latencies of a second, exact to one part in 100.
fn coarse() -> Histogram<u64> {
    bounded(1000, 2)
}

fn bounded(least: u64, digits: u8) -> Histogram<u64> {
    // Only bounds that contradict each other, or too many digits, are refused.
    Histogram::new_with_bounds(least, LONGEST, digits).expect("the bounds are in order")
}

pub(super) fn nanos(latency: Duration) -> u64 {
    u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX)
}

/// What was measured of a run, by one thread or by all.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    pub(super) latency: Histogram<u64>,
    /// The histogram rounds; this one is told as it was.
    pub(super) longest: Duration,
    statuses: Vec<u64>,
    errors: [u64; ErrorKind::ALL.len()],
    pub(super) dropped: u64,
    pub(super) bytes_read: u64,
    pub(super) opened: u64,
    pub(super) unfinished: u64,
    /// How long the oldest of the unfinished ones had waited by then.
    pub(super) longest_unfinished: Duration,
    pub(super) elapsed: Duration,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self {
            latency: latencies(),
            longest: Duration::ZERO,
            statuses: vec![0; STATUSES],
            errors: [0; ErrorKind::ALL.len()],
            dropped: 0,
            bytes_read: 0,
            opened: 0,
            unfinished: 0,
            longest_unfinished: Duration::ZERO,
            elapsed: Duration::ZERO,
        }
    }

    /// Adds what another thread has measured in the same time.
    pub(super) fn merge(&mut self, other: &Self) {
        // Both have the bounds that `latencies` gives.
        let _ = self.latency.add(&other.latency);
        self.longest = self.longest.max(other.longest);
        for (sum, count) in self.statuses.iter_mut().zip(&other.statuses) {
            *sum += count;
        }
        for (sum, count) in self.errors.iter_mut().zip(&other.errors) {
            *sum += count;
        }
        self.dropped += other.dropped;
        self.bytes_read += other.bytes_read;
        self.opened += other.opened;
        self.unfinished += other.unfinished;
        self.longest_unfinished = self.longest_unfinished.max(other.longest_unfinished);
        self.elapsed = self.elapsed.max(other.elapsed);
    }

    /// How many whole responses there were of each status.
    pub(super) fn statuses(&self) -> BTreeMap<u16, u64> {
        let counted = (0u16..).zip(&self.statuses);
        counted
            .filter(|(_, count)| **count > 0)
            .map(|(status, count)| (status, *count))
            .collect()
    }

    /// How many requests failed, by the names of the kinds.
    pub(super) fn errors(&self) -> BTreeMap<String, u64> {
        let counted = ErrorKind::ALL.iter().zip(&self.errors);
        counted
            .filter(|(_, count)| **count > 0)
            .map(|(kind, count)| (format!("{kind:?}"), *count))
            .collect()
    }
}

/// What was measured in one second, by one thread or by all.
#[derive(Clone, Debug)]
pub(super) struct Interval {
    pub(super) length: Duration,
    pub(super) requests: u64,
    pub(super) errors: u64,
    pub(super) dropped: u64,
    pub(super) bytes_read: u64,
    pub(super) latency: Histogram<u64>,
}

impl Interval {
    pub(super) fn new() -> Self {
        Self {
            length: Duration::ZERO,
            requests: 0,
            errors: 0,
            dropped: 0,
            bytes_read: 0,
            latency: coarse(),
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.length = self.length.max(other.length);
        self.requests += other.requests;
        self.errors += other.errors;
        self.dropped += other.dropped;
        self.bytes_read += other.bytes_read;
        let _ = self.latency.add(&other.latency);
    }
}

/// What a thread measures: the whole, and the second that it is in.
#[derive(Debug)]
pub(super) struct Recorder {
    pub(super) total: Tally,
    interval: Interval,
    /// How much the connections had read when the second began.
    read_before: u64,
    begun_at: Duration,
}

impl Recorder {
    /// `read` is what the connections have read so far.
    pub(super) fn new() -> Self {
        Self {
            total: Tally::new(),
            interval: Interval::new(),
            read_before: 0,
            begun_at: Duration::ZERO,
        }
    }

    /// What was read until now does not count.
    pub(super) fn begin(&mut self, read: u64) {
        self.read_before = read;
    }

    /// Counts the end of a request.
    pub(super) fn record(&mut self, latency: Duration, outcome: Result<u16, ErrorKind>) {
        match outcome {
            Ok(status) => {
                let nanos = nanos(latency);
                self.total.latency.saturating_record(nanos);
                self.total.longest = self.total.longest.max(latency);
                if let Some(count) = self.total.statuses.get_mut(usize::from(status)) {
                    *count += 1;
                }
                self.interval.latency.saturating_record(nanos);
                self.interval.requests += 1;
            }
            Err(kind) => {
                let number = ErrorKind::ALL.iter().position(|known| *known == kind);
                if let Some(count) = number.and_then(|number| self.total.errors.get_mut(number)) {
                    *count += 1;
                }
                self.interval.errors += 1;
            }
        }
    }

    /// Counts a request that was not even begun.
    pub(super) fn record_drop(&mut self) {
        self.total.dropped += 1;
        self.interval.dropped += 1;
    }

    /// Ends the second that it is in, `at` so long after the begin, and begins the next one.
    pub(super) fn end_interval(&mut self, at: Duration, read: u64) -> Interval {
        let mut ended = std::mem::replace(&mut self.interval, Interval::new());
        ended.bytes_read = read.saturating_sub(self.read_before);
        ended.length = at.saturating_sub(self.begun_at);
        self.total.bytes_read += ended.bytes_read;
        self.read_before = read;
        self.begun_at = at;
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_threads_measured_adds_up() {
        let mut one = Recorder::new();
        one.begin(100);
        one.record(Duration::from_millis(1), Ok(200));
        one.record(Duration::from_millis(9), Err(ErrorKind::Reset));
        one.record_drop();
        let interval = one.end_interval(Duration::from_secs(1), 150);
        assert_eq!((interval.requests, interval.errors), (1, 1));
        assert_eq!((interval.dropped, interval.bytes_read), (1, 50));
        let mut other = Recorder::new();
        other.record(Duration::from_millis(3), Ok(404));
        other.total.elapsed = Duration::from_secs(2);
        let mut both = one.total.clone();
        both.merge(&other.total);
        assert_eq!(both.statuses(), BTreeMap::from([(200, 1), (404, 1)]));
        assert_eq!(both.errors(), BTreeMap::from([("Reset".to_owned(), 1)]));
        assert_eq!((both.latency.len(), both.dropped), (2, 1));
        assert_eq!(both.longest, Duration::from_millis(3));
        assert_eq!((both.bytes_read, both.elapsed.as_secs()), (50, 2));
    }

    #[test]
    fn second_begins_where_the_one_before_ended() {
        let mut recorder = Recorder::new();
        recorder.end_interval(Duration::from_millis(1000), 7);
        recorder.record(Duration::from_secs(7200), Ok(200));
        let second = recorder.end_interval(Duration::from_millis(1250), 9);
        assert_eq!(second.length, Duration::from_millis(250));
        assert_eq!((second.bytes_read, second.requests), (2, 1));
        // Longer than what is told apart, and told as it was all the same.
        assert_eq!(recorder.total.longest, Duration::from_secs(7200));
        assert_eq!(recorder.total.bytes_read, 9);
    }

    #[test]
    fn every_status_that_can_come_has_a_place() {
        let mut recorder = Recorder::new();
        for status in [100, 999] {
            recorder.record(Duration::from_millis(1), Ok(status));
        }
        assert_eq!(recorder.total.statuses().len(), 2);
    }
}
