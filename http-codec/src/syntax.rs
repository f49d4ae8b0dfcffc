//! Character classes and list grammar that both directions share (RFC 9110 §5.6).

/// `tchar` of RFC 9110 §5.6.2.
const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        #[allow(clippy::cast_possible_truncation)] // the loop ends at 255
        let b = byte as u8;
        table[byte] = b.is_ascii_alphanumeric()
            || matches!(
                b,
                b'!' | b'#'
                    | b'$'
                    | b'%'
                    | b'&'
                    | b'\''
                    | b'*'
                    | b'+'
                    | b'-'
                    | b'.'
                    | b'^'
                    | b'_'
                    | b'`'
                    | b'|'
                    | b'~'
            );
        byte += 1;
    }
    table
};

pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&b| TOKEN[usize::from(b)])
}

/// A byte that a field value or a reason phrase may hold: HTAB, SP, VCHAR, obs-text.
pub(crate) fn is_text_byte(b: u8) -> bool {
    (b >= b' ' && b != 0x7f) || b == b'\t'
}

pub(crate) fn is_text(bytes: &[u8]) -> bool {
    // Folding instead of stopping early lets the compiler use wide compares; bad values are rare.
    bytes.iter().fold(true, |fine, &b| fine & is_text_byte(b))
}

/// A byte that may stand in a request target before its closing space.
pub(crate) fn is_target_byte(b: u8) -> bool {
    b > b' ' && b < 0x7f
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
    if digits.is_empty() {
        return None;
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
    fn a_lone_line_feed_is_found_where_it_stands() {
        assert_eq!(bare_lf(b"a\r\nb\nc"), Some(4));
        assert_eq!(bare_lf(b"\n"), Some(0));
        assert_eq!(bare_lf(b"a\r\n\r\n"), None);
    }
}
