//! Character classes and list grammar that both directions share (RFC 9110 §5.6).

/// `tchar` of RFC 9110 §5.6.2.
const TOKEN: [bool; 256] = table(b"!#$%&'*+-.^_`|~");

/// Letters, digits and `more`.
pub(crate) const fn table(more: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        #[allow(clippy::cast_possible_truncation)] // the loop ends at 255
        let b = byte as u8;
        table[byte] = b.is_ascii_alphanumeric();
        byte += 1;
    }
    let mut at = 0;
    while at < more.len() {
        table[more[at] as usize] = true;
        at += 1;
    }
    table
}

pub(crate) fn is_token(bytes: &[u8]) -> bool {
    const WIDTH: usize = 8;
    let Some(last) = bytes.last_chunk::<WIDTH>() else {
        return !bytes.is_empty() && bytes.iter().all(|&b| TOKEN[usize::from(b)]);
    };
    let (chunks, _) = bytes.as_chunks();
    chunks.iter().all(all_token) && all_token(last)
}

/// Folding instead of stopping early spares a branch a byte; bad names are rare.
fn all_token(chunk: &[u8; 8]) -> bool {
    chunk
        .iter()
        .fold(true, |fine, &b| fine & TOKEN[usize::from(b)])
}

/// A byte that a field value or a reason phrase may hold: HTAB, SP, VCHAR, obs-text.
pub(crate) fn is_text_byte(b: u8) -> bool {
    (b >= b' ' && b != 0x7f) || b == b'\t'
}

pub(crate) fn is_text(bytes: &[u8]) -> bool {
    !has_control(bytes) || bytes.iter().all(|&b| is_text_byte(b))
}

/// Whether there is a control character, HTAB among them: many bytes at a time, the last of them
/// once more where the length is no multiple.
fn has_control(bytes: &[u8]) -> bool {
    if let Some(last) = bytes.last_chunk() {
        let (chunks, _) = bytes.as_chunks();
        return chunks.iter().any(lane_has_control) || lane_has_control(last);
    }
    match (bytes.first_chunk(), bytes.last_chunk()) {
        (Some(first), Some(last)) => word_has_control(first) || word_has_control(last),
        _ => bytes.iter().any(|b| b.is_ascii_control()),
    }
}

/// As wide as every x86-64 and aarch64 processor compares at once.
fn lane_has_control(lane: &[u8; 16]) -> bool {
    lane.iter().fold(false, |any, b| any | b.is_ascii_control())
}

fn word_has_control(word: &[u8; 8]) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = ONES << 7;
    let word = u64::from_ne_bytes(*word);
    // The borrow of a byte that is too small reaches the next only where the answer is known.
    let below_space = word.wrapping_sub(ONES * 0x20) & !word;
    let delete = word ^ (ONES * 0x7f);
    let is_delete = delete.wrapping_sub(ONES) & !delete;
    (below_space | is_delete) & HIGH != 0
}

/// A byte that may stand in a request target before its closing space.
pub(crate) fn is_target_byte(b: u8) -> bool {
    b > b' ' && b < 0x7f
}

/// Whether a token is `lower`, which has letters and hyphens only, in any case.
///
/// Setting one bit folds the letters, and changes no byte of a token into a hyphen. The length is
/// known when this is compiled, so it comes down to a few wide compares.
#[inline]
pub(crate) fn is_named<const N: usize>(token: &[u8], lower: &[u8; N]) -> bool {
    <&[u8; N]>::try_from(token).is_ok_and(|token| {
        let differing = token.iter().zip(lower);
        differing.fold(0, |all, (b, lower)| all | ((b | 0x20) ^ lower)) == 0
    })
}

pub(crate) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// The elements of a comma-separated list, trimmed, empty ones included.
pub(crate) fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(trim)
}

/// `1*DIGIT` within 64 bits; no sign, no blank.
pub(crate) fn parse_decimal(digits: &[u8]) -> Option<u64> {
    /// So many digits cannot overflow.
    const SHORT: usize = 19;
    if digits.is_empty() {
        return None;
    }
    if digits.len() <= SHORT {
        return digits.iter().try_fold(0_u64, |value, &b| {
            let digit = b.wrapping_sub(b'0');
            (digit < 10).then(|| value * 10 + u64::from(digit))
        });
    }
    digits.iter().try_fold(0_u64, |value, &b| {
        if !b.is_ascii_digit() {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(b - b'0'))
    })
}

/// Position of the first LF that no CR precedes.
pub(crate) fn bare_lf(block: &[u8]) -> Option<usize> {
    let mut before = 0;
    for (at, &b) in block.iter().enumerate() {
        if b == b'\n' && before != b'\r' {
            return Some(at);
        }
        before = b;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_take_digits_only_and_never_wrap() {
        assert_eq!(parse_decimal(b"010"), Some(10));
        assert_eq!(parse_decimal(b"18446744073709551615"), Some(u64::MAX));
        for bad in [
            &b""[..],
            b"+1",
            b"-0",
            b"0x3",
            b"3 ",
            b"18446744073709551616",
        ] {
            assert_eq!(parse_decimal(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_token_is_a_name_in_any_case_and_no_other_token_is() {
        for same in ["keep-alive", "Keep-Alive", "KEEP-ALIVE"] {
            assert!(is_named(same.as_bytes(), b"keep-alive"));
        }
        let name = *b"keep-alive";
        for at in 0..name.len() {
            for b in (0..=255).filter(|b| TOKEN[usize::from(*b)]) {
                let mut token = name;
                token[at] = b;
                let same = token.eq_ignore_ascii_case(&name);
                assert_eq!(is_named(&token, &name), same, "{}", token.escape_ascii());
            }
        }
        assert!(!is_named(b"keep-aliv", &name) && !is_named(b"keep-alive2", &name));
    }

    #[test]
    fn a_byte_that_is_not_of_a_token_is_found_at_every_place() {
        assert!(!is_token(b""));
        for len in 1..30 {
            for at in 0..len {
                for b in 0..=255 {
                    let mut token = vec![b'a'; len];
                    token[at] = b;
                    let fine = b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
                    assert_eq!(is_token(&token), fine, "{b:#x} at {at} of {len}");
                }
            }
        }
    }

    #[test]
    fn control_characters_are_found_at_every_place() {
        for len in 0..40 {
            for at in 0..len {
                for b in 0..=255 {
                    for filling in [b'a', b' ', 0xff, 0x80] {
                        let mut text = vec![filling; len];
                        text[at] = b;
                        assert_eq!(is_text(&text), is_text_byte(b), "{b:#x} at {at} of {len}");
                    }
                }
            }
        }
        assert!(is_text(b""));
    }

    #[test]
    fn a_lone_line_feed_is_found_where_it_stands() {
        assert_eq!(bare_lf(b"a\r\nb\nc"), Some(4));
        assert_eq!(bare_lf(b"\n"), Some(0));
        assert_eq!(bare_lf(b"a\r\n\r\n"), None);
    }
}
