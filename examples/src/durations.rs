//! Durations as people write them: `500ms`, `5s`, `30m`, `1h`, `none`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A time limit, or none.
///
/// ```
/// use pinpool_examples::durations::TimeLimit;
/// use std::time::Duration;
///
/// let limit: TimeLimit = "500ms".parse()?;
/// assert_eq!(limit.get(), Some(Duration::from_millis(500)));
/// assert_eq!("none".parse::<TimeLimit>()?.get(), None);
/// # Ok::<(), pinpool_examples::durations::NotATimeLimit>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimit(Option<Duration>);

/// The text is no time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a whole number with a unit, such as 500ms, 5s, 30m or 1h, or none")]
pub struct NotATimeLimit;

/// From the largest, so that the first one that fits is the one to print in.
const UNITS: [(&str, u64); 6] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

impl TimeLimit {
    /// The limit; `None` is no limit.
    #[must_use]
    pub const fn get(self) -> Option<Duration> {
        self.0
    }
}

impl From<Option<Duration>> for TimeLimit {
    fn from(limit: Option<Duration>) -> Self {
        Self(limit)
    }
}

impl FromStr for TimeLimit {
    type Err = NotATimeLimit;

    fn from_str(text: &str) -> Result<Self, NotATimeLimit> {
        if text == "none" {
            return Ok(Self(None));
        }
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| NotATimeLimit)?;
        let (_, nanos) = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or(NotATimeLimit)?;
        let nanos = number.checked_mul(*nanos).ok_or(NotATimeLimit)?;
        Ok(Self(Some(Duration::from_nanos(nanos))))
    }
}

impl fmt::Display for TimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(limit) = self.0 else {
            return f.write_str("none");
        };
        let nanos = limit.as_nanos();
        if nanos == 0 {
            return f.write_str("0s");
        }
        let fits = |unit: &&(&str, u64)| nanos.is_multiple_of(u128::from(unit.1));
        let (name, unit) = UNITS.iter().find(fits).unwrap_or(&("ns", 1));
        write!(f, "{}{name}", nanos / u128::from(*unit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_back() {
        for text in [
            "500ms", "5s", "30m", "1h", "90s", "none", "0s", "1ns", "250us",
        ] {
            assert_eq!(text.parse::<TimeLimit>().unwrap().to_string(), text);
        }
        assert_eq!("60m".parse::<TimeLimit>().unwrap().to_string(), "1h");
    }

    #[test]
    fn what_nobody_can_read_is_refused_with_what_was_expected() {
        for text in [
            "", "5", "s", "-5s", "1.5s", "5 s", "5S", "5sec", "None", "+1s", "5d",
        ] {
            assert_eq!(text.parse::<TimeLimit>(), Err(NotATimeLimit), "{text}");
        }
        assert_eq!("99999999999999h".parse::<TimeLimit>(), Err(NotATimeLimit));
        assert!(
            NotATimeLimit
                .to_string()
                .contains("500ms, 5s, 30m or 1h, or none")
        );
    }
}
