//! How many outcomes of late, and how many of them failures.

use std::time::Duration;

use pool_core::Timestamp;

const SLOTS: usize = 16;

/// The outcomes within the last window. It moves on in steps of a slot, and an outcome counts from
/// its slot's start: for at most the window, and at least the window less a slot.
///
/// Takes no clock: a `now` that is before an earlier one counts as that.
#[derive(Clone, Debug)]
pub(super) struct Window {
    slot_nanos: u64,
    ring: [Counts; SLOTS],
    /// The number of the newest slot, counted from the start of the core.
    newest: u64,
    /// The first nanosecond after the newest slot.
    newest_ends: u64,
    outcomes: u64,
    failures: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    outcomes: u32,
    failures: u32,
}

impl Window {
    pub(super) fn new(window: Duration) -> Self {
        let nanos = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
        Self {
            slot_nanos: (nanos / SLOTS as u64).max(1),
            ring: [Counts::default(); SLOTS],
            newest: 0,
            newest_ends: 0,
            outcomes: 0,
            failures: 0,
        }
    }

    pub(super) fn record(&mut self, now: Timestamp, failed: bool) {
        self.advance(now);
        let slot = &mut self.ring[index(self.newest)];
        // A slot that is full counts no further rather than give a false rate.
        if let Some(outcomes) = slot.outcomes.checked_add(1) {
            slot.outcomes = outcomes;
            slot.failures += u32::from(failed);
            self.outcomes += 1;
            self.failures += u64::from(failed);
        }
    }

    /// The outcomes and how many of them were failures, up to the last that was recorded.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.outcomes, self.failures)
    }

    pub(super) fn is_empty(&self, now: Timestamp) -> bool {
        let ahead = (now.as_nanos() / self.slot_nanos).saturating_sub(self.newest);
        self.outcomes == 0 || ahead >= SLOTS as u64
    }

    pub(super) fn clear(&mut self) {
        self.ring = [Counts::default(); SLOTS];
        self.outcomes = 0;
        self.failures = 0;
    }

    fn advance(&mut self, now: Timestamp) {
        let now = now.as_nanos();
        if now < self.newest_ends {
            return;
        }
        let number = now / self.slot_nanos;
        let ahead = number - self.newest;
        if ahead >= SLOTS as u64 {
            self.clear();
        } else {
            for passed in self.newest + 1..=number {
                let slot = std::mem::take(&mut self.ring[index(passed)]);
                self.outcomes -= u64::from(slot.outcomes);
                self.failures -= u64::from(slot.failures);
            }
        }
        self.newest = number;
        self.newest_ends = (number + 1).saturating_mul(self.slot_nanos);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "below the number of slots")]
fn index(slot: u64) -> usize {
    (slot % SLOTS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(16);

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn an_outcome_counts_for_the_window_less_at_most_one_slot() {
        for (recorded, last) in [(1_000, 16_999), (1_500, 16_999), (1_999, 16_999)] {
            let mut window = Window::new(WINDOW);
            window.record(at(recorded), true);
            let mut later = window.clone();
            later.record(at(last), false);
            assert_eq!(later.counts(), (2, 1), "{recorded}");
            assert!(!window.is_empty(at(last)));
            window.record(at(last + 1), false);
            assert_eq!(window.counts(), (1, 0), "{recorded}");
        }
    }

    #[test]
    fn a_gap_of_any_length_forgets_exactly_what_is_older() {
        for gap in [
            1,
            15,
            16,
            17,
            31,
            32,
            33,
            1_000_000,
            u64::MAX / 1_000_000_000 - 20,
        ] {
            let mut window = Window::new(WINDOW);
            for second in 0..16 {
                window.record(at(second * 1000), second % 2 == 0);
            }
            assert_eq!(window.counts(), (16, 8));
            let now = Timestamp::from_nanos((15 + gap) * 1_000_000_000);
            assert_eq!(window.is_empty(now), gap >= 16, "{gap}");
            window.record(now, true);
            let left = 16u64.saturating_sub(gap);
            // The odd seconds were successes, and 15 is the last to go.
            assert_eq!(window.counts(), (left + 1, left / 2 + 1), "{gap}");
        }
    }

    #[test]
    fn an_earlier_time_counts_as_the_latest() {
        let mut window = Window::new(WINDOW);
        window.record(at(20_000), true);
        window.record(at(1_000), true);
        window.record(at(35_999), false);
        assert_eq!(window.counts(), (3, 2));
        assert!(!window.is_empty(Timestamp::ZERO));
        window.record(at(36_000), false);
        assert_eq!(window.counts(), (2, 0));
    }

    #[test]
    fn the_last_moment_of_all_is_no_special_case() {
        let mut window = Window::new(Duration::from_secs(1));
        window.record(Timestamp::MAX, true);
        window.record(Timestamp::MAX, true);
        assert_eq!(window.counts(), (2, 2));
        assert!(!window.is_empty(Timestamp::MAX));
    }

    #[test]
    fn a_full_slot_counts_no_further() {
        let mut window = Window::new(WINDOW);
        window.record(at(0), true);
        window.ring[0].outcomes = u32::MAX;
        window.outcomes = u64::from(u32::MAX);
        window.record(at(0), true);
        assert_eq!(window.counts(), (u64::from(u32::MAX), 1));
        window.record(at(16_000), false);
        assert_eq!(window.counts(), (1, 0));
    }
}
