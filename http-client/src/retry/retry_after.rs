//! `Retry-After` (RFC 9110 §10.2.3).

use std::time::{Duration, SystemTime};

/// The longest pause that the values of all `Retry-After` fields of a response ask for; `None` if
/// none of them can be read.
///
/// There should be one such field. Where there are more, the longest pause is the one that comes
/// too early for none of them.
pub(crate) fn longest<'v>(
    values: impl IntoIterator<Item = &'v [u8]>,
    now: SystemTime,
) -> Option<Duration> {
    let pauses = values.into_iter().filter_map(|value| pause(value, now));
    pauses.max()
}

fn pause(value: &[u8], now: SystemTime) -> Option<Duration> {
    let text = str::from_utf8(value).ok()?.trim_matches([' ', '\t']);
    if text.is_empty() {
        return None;
    }
    if text.bytes().all(|b| b.is_ascii_digit()) {
        // Too many digits for a number are still a number, and a long pause.
        return Some(text.parse().map_or(Duration::MAX, Duration::from_secs));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    // A date that has passed asks for no pause.
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT, the example of RFC 9110 §5.6.7.
    const THEN: Duration = Duration::from_secs(784_111_777);

    fn read(values: &[&str], before: Duration) -> Option<Duration> {
        let now = SystemTime::UNIX_EPOCH + THEN - before;
        longest(values.iter().map(|value| value.as_bytes()), now)
    }

    #[test]
    fn seconds_are_read_and_none_overflows() {
        for (value, pause) in [
            ("0", Duration::ZERO),
            ("120", Duration::from_secs(120)),
            (" 007\t", Duration::from_secs(7)),
            ("18446744073709551615", Duration::from_secs(u64::MAX)),
            ("18446744073709551616", Duration::MAX),
            ("99999999999999999999999999999999", Duration::MAX),
        ] {
            assert_eq!(read(&[value], Duration::ZERO), Some(pause), "{value}");
        }
    }

    #[test]
    fn every_form_of_a_date_is_a_pause_until_then_and_never_less() {
        for date in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            for before in [
                Duration::ZERO,
                Duration::from_nanos(1),
                Duration::from_millis(1500),
                Duration::from_secs(86_400),
            ] {
                assert_eq!(read(&[date], before), Some(before), "{date}");
            }
            let now = SystemTime::UNIX_EPOCH + THEN + Duration::from_secs(1);
            assert_eq!(pause(date.as_bytes(), now), Some(Duration::ZERO), "{date}");
        }
    }

    #[test]
    fn what_is_neither_is_not_read() {
        for value in [
            "",
            " ",
            "-1",
            "+1",
            "1.5",
            "1s",
            "soon",
            "0x10",
            "1 2",
            "Sun, 06 Nov 1994",
            "Sun, 06 Nov 1994 08:49:37 +0000",
        ] {
            assert_eq!(read(&[value], Duration::ZERO), None, "{value:?}");
        }
        assert_eq!(pause(b"\xff", SystemTime::UNIX_EPOCH), None);
    }

    #[test]
    fn of_several_the_longest_counts_and_what_cannot_be_read_does_not() {
        let second = Some(Duration::from_secs(2));
        assert_eq!(read(&["1", "2", "soon"], Duration::ZERO), second);
        assert_eq!(read(&["soon", "2", "1"], Duration::ZERO), second);
        assert_eq!(read(&[], Duration::ZERO), None);
    }
}
