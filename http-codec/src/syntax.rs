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

#[inline]
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all(bytes, |b| TOKEN[usize::from(b)])
}

/// A byte that a field value or a reason phrase may hold: HTAB, SP, VCHAR, obs-text.
#[inline]
pub(crate) fn is_text_byte(b: u8) -> bool {
    (b >= b' ') & (b != 0x7f) | (b == b'\t')
}

#[inline]
pub(crate) fn is_text(bytes: &[u8]) -> bool {
    all(bytes, is_text_byte)
}

/// Whether `fine` holds for every byte; `fine` should have no branches.
///
/// Bytes are looked at in blocks, each as a whole: it fills a vector register. The last one overlaps
/// the one before where the length is no multiple, since bytes one by one would take longer.
#[inline(always)]
fn all(bytes: &[u8], fine: impl Fn(u8) -> bool + Copy) -> bool {
    if let Some(last) = bytes.last_chunk::<16>() {
        let (blocks, _) = bytes.as_chunks::<16>();
        return blocks.iter().all(|block| whole(block, fine)) && whole(last, fine);
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        return whole(first, fine) & whole(last, fine);
    }
    bytes.iter().fold(true, |all, &b| all & fine(b))
}

#[inline(always)]
fn whole<const N: usize>(block: &[u8; N], fine: impl Fn(u8) -> bool) -> bool {
    block.iter().fold(true, |all, &b| all & fine(b))
}

/// A byte that may stand in a request target before its closing space.
#[inline]
pub(crate) fn is_target_byte(b: u8) -> bool {
    (b > b' ') & (b < 0x7f)
}

pub(crate) fn is_target(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all(bytes, is_target_byte)
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
    fn bytes_of_another_class_are_found_at_every_place() {
        for len in 1..=40 {
            for at in 0..len {
                for b in 0..=255 {
                    let of = |filling| {
                        let mut text = vec![filling; len];
                        text[at] = b;
                        text
                    };
                    for filling in [b'a', b' ', b'\t', 0xff, 0x80] {
                        let text = of(filling);
                        let fine = b == b'\t' || !b.is_ascii_control();
                        assert_eq!(is_text(&text), fine, "{b:#x} at {at} of {len}");
                    }
                    let text = of(b'-');
                    let token = b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
                    assert_eq!(is_token(&text), token, "{b:#x} at {at} of {len}");
                    assert_eq!(
                        is_target(&text),
                        b.is_ascii_graphic(),
                        "{b:#x} at {at} of {len}"
                    );
                }
            }
        }
        assert!(is_text(b"") && !is_token(b"") && !is_target(b""));
    }

    #[test]
    fn a_lone_line_feed_is_found_where_it_stands() {
        assert_eq!(bare_lf(b"a\r\nb\nc"), Some(4));
        assert_eq!(bare_lf(b"\n"), Some(0));
        assert_eq!(bare_lf(b"a\r\n\r\n"), None);
    }
}
