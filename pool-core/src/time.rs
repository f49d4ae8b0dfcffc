//! The engine's only notion of time: nanoseconds since the core started.
//!
//! The state machine never reads a clock. Whoever drives it reads a monotonic clock once per turn
//! and passes the value in; a step of the wall clock therefore cannot reach the pool.

use std::ops::Add;
use std::time::Duration;

/// A moment on a core's monotonic clock, in nanoseconds since that core started.
///
/// Arithmetic saturates: a deadline too far to be represented becomes [`Timestamp::MAX`], about
/// 584 years after the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The core's start.
    pub const ZERO: Self = Self(0);
    /// The last moment that can be represented.
    pub const MAX: Self = Self(u64::MAX);

    /// The moment `nanos` nanoseconds after the core's start.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the core's start.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// `self + duration`, or [`Timestamp::MAX`] where that does not fit.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        let nanos = duration
            .as_secs()
            .saturating_mul(1_000_000_000)
            .saturating_add(u64::from(duration.subsec_nanos()));
        Self(self.0.saturating_add(nanos))
    }

    /// How long after `earlier` this moment is; zero if it is not after it.
    #[must_use]
    pub const fn saturating_duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    /// The same as [`Timestamp::saturating_add`].
    fn add(self, duration: Duration) -> Self {
        self.saturating_add(duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adding_saturates_instead_of_wrapping() {
        assert_eq!(Timestamp::MAX + Duration::from_nanos(1), Timestamp::MAX);
        assert_eq!(Timestamp::ZERO + Duration::MAX, Timestamp::MAX);
        assert_eq!(
            Timestamp::ZERO + Duration::new(1, 5),
            Timestamp::from_nanos(1_000_000_005)
        );
    }

    #[test]
    fn the_time_since_a_later_moment_is_zero() {
        let (early, late) = (Timestamp::from_nanos(10), Timestamp::from_nanos(25));
        assert_eq!(
            late.saturating_duration_since(early),
            Duration::from_nanos(15)
        );
        assert_eq!(early.saturating_duration_since(late), Duration::ZERO);
    }
}
