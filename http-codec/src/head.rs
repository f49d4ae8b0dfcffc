//! What both kinds of head share: finding the end of a block of lines, and its slices.

use alloc::vec::Vec;

use core::fmt;
use core::mem::MaybeUninit;

use bytes::{Buf, BytesMut};

use crate::error::DecodeError;
use crate::limits::Limit;

/// The HTTP versions spoken here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// HTTP/1.0 (RFC 1945, as RFC 9112 reads it).
    Http10,
    /// HTTP/1.1 (RFC 9112).
    Http11,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
        })
    }
}

impl Version {
    pub(crate) fn from_minor(minor: u8) -> Self {
        if minor == 0 {
            Self::Http10
        } else {
            Self::Http11
        }
    }
}

/// A part of a head block. `HeadScan` never parses a block beyond the reach of `u32`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Span {
    pub(crate) fn new(start: usize, end: usize) -> Self {
        Self {
            start: narrow(start),
            end: narrow(end),
        }
    }

    /// The place of `part`, which must be a slice of `block`.
    pub(crate) fn of(block: &[u8], part: &[u8]) -> Self {
        let start = part.as_ptr().addr() - block.as_ptr().addr();
        Self::new(start, start + part.len())
    }

    pub(crate) fn range(self) -> core::ops::Range<usize> {
        self.start as usize..self.end as usize
    }
}

fn narrow(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// What a parser says of the bytes before it. It must be a function of the stream: once it fails
/// or completes on a prefix it says the same of every longer one.
pub(crate) enum Parse<T> {
    /// No fault so far. A limit inside the block bites at `recheck` bytes, beyond those given.
    Partial {
        recheck: usize,
    },
    Complete(T, usize),
    Failed(DecodeError),
}

impl<T> Parse<T> {
    pub(crate) fn map<U>(self, map: impl FnOnce(T) -> U) -> Parse<U> {
        match self {
            Self::Partial { recheck } => Parse::Partial { recheck },
            Self::Complete(parsed, len) => Parse::Complete(map(parsed), len),
            Self::Failed(error) => Parse::Failed(error),
        }
    }
}

pub(crate) enum Stop {
    Malformed(DecodeError),
    /// The block does not end within its limit.
    Overrun,
    /// End of file inside the block.
    Cut,
}

/// Decides when a growing buffer is worth a parse, so that a head that drips in byte by byte
/// costs linear time: at first sight, when its end is in sight, and each time it has doubled
/// (an early fault shall not wait for an end that may never come).
#[derive(Debug, Default)]
pub(crate) struct HeadScan {
    skipped: usize,
    searched: usize,
    attempt_at: usize,
}

impl HeadScan {
    const FIRST_RETRY: usize = 128;

    /// Takes empty lines before a start line off `src` (RFC 9112 §2.2), bounded by the head limit.
    /// False means that the bytes so far do not tell.
    pub(crate) fn skip_empty_lines(
        &mut self,
        src: &mut BytesMut,
        limit: usize,
    ) -> Result<bool, DecodeError> {
        let budget = limit.saturating_sub(self.skipped);
        let window = &src[..src.len().min(budget)];
        let full = window.len() == budget;
        let (lines, begun) = empty_lines(window)?;
        if full && !begun {
            return Err(DecodeError::too_large(Limit::HeadBytes));
        }
        src.advance(lines);
        self.skipped += lines;
        Ok(begun)
    }

    /// Parses what has come of the block, when that is worth it; with the length of a whole one.
    pub(crate) fn poll<T>(
        &mut self,
        src: &[u8],
        limit: usize,
        eof: bool,
        parse: impl FnOnce(&[u8]) -> Parse<T>,
    ) -> Result<Option<(T, usize)>, Stop> {
        let budget = limit.min(u32::MAX as usize).saturating_sub(self.skipped);
        let window = &src[..src.len().min(budget)];
        let full = window.len() == budget;
        if !(eof || full || self.worth_parsing(window)) {
            return Ok(None);
        }
        match parse(window) {
            Parse::Complete(parts, len) => {
                *self = Self::default();
                Ok(Some((parts, len)))
            }
            Parse::Failed(error) => Err(Stop::Malformed(error)),
            Parse::Partial { .. } if full => Err(Stop::Overrun),
            Parse::Partial { .. } if eof => Err(Stop::Cut),
            Parse::Partial { recheck } => {
                self.searched = window.len();
                self.attempt_at = recheck.min((window.len() * 2).max(Self::FIRST_RETRY));
                Ok(None)
            }
        }
    }

    fn worth_parsing(&mut self, window: &[u8]) -> bool {
        if self.searched == 0 {
            return true;
        }
        let from = self.searched.saturating_sub(3);
        self.searched = window.len();
        window.len() >= self.attempt_at || has_empty_line(&window[from..])
    }
}

/// How many bytes of empty lines stand at the front, and whether something else follows.
#[inline]
fn empty_lines(bytes: &[u8]) -> Result<(usize, bool), DecodeError> {
    match bytes {
        [] | [b'\r' | b'\n', ..] => count_empty_lines(bytes),
        _ => Ok((0, true)),
    }
}

#[cold]
fn count_empty_lines(bytes: &[u8]) -> Result<(usize, bool), DecodeError> {
    let mut at = 0;
    loop {
        match &bytes[at..] {
            [] | [b'\r'] => return Ok((at, false)),
            [b'\r', b'\n', ..] => at += 2,
            [b'\r' | b'\n', ..] => {
                let detail = "an empty line before the start line must be CR LF";
                return Err(DecodeError::bad_head(detail).at(at));
            }
            _ => return Ok((at, true)),
        }
    }
}

/// Parses the head at the front of `bytes` at once; `None` while it is not whole.
#[inline]
pub(crate) fn view<'b, T>(
    bytes: &'b [u8],
    limit: usize,
    parse: impl FnOnce(&'b [u8]) -> Parse<T>,
) -> Result<Option<(T, usize)>, DecodeError> {
    let budget = limit.min(u32::MAX as usize);
    let window = &bytes[..bytes.len().min(budget)];
    let (skipped, begun) = empty_lines(window)?;
    let parsed = match begun {
        true => parse(&window[skipped..]),
        false => Parse::Partial {
            recheck: usize::MAX,
        },
    };
    match parsed {
        Parse::Complete(head, len) => Ok(Some((head, skipped + len))),
        Parse::Failed(error) => Err(error.shifted_by(skipped as u64)),
        Parse::Partial { .. } if window.len() == budget => {
            Err(DecodeError::too_large(Limit::HeadBytes))
        }
        Parse::Partial { .. } => Ok(None),
    }
}

/// An empty line, its LF bare or not.
fn has_empty_line(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|&b| b == b'\n') {
        rest = &rest[at + 1..];
        if matches!(rest, [b'\n', ..] | [b'\r', b'\n', ..]) {
            return true;
        }
    }
    false
}

/// How many of `max` field lines `window` can hold, the last one just begun. A limit that is set
/// high shall cost no memory before fields come.
pub(crate) fn fields_within(window: &[u8], max: usize) -> usize {
    const SHORTEST: usize = "a:\n".len();
    max.min(window.len() / SHORTEST + 1)
}

/// Lends `httparse` room for `max` fields: on the stack for the usual limits, as zeroing or
/// allocating it would cost as much as parsing a small head.
pub(crate) fn with_slots<'b, R>(
    max: usize,
    parse: impl FnOnce(&mut [MaybeUninit<httparse::Header<'b>>]) -> R,
) -> R {
    const INLINE: usize = 128;
    if max <= INLINE {
        let mut slots = [const { MaybeUninit::uninit() }; INLINE];
        parse(&mut slots[..max])
    } else {
        let mut slots: Vec<_> = (0..max).map(|_| MaybeUninit::uninit()).collect();
        parse(&mut slots)
    }
}

pub(crate) fn describe(error: httparse::Error) -> &'static str {
    use httparse::Error;
    match error {
        Error::HeaderName => "a field name must be a token followed by a colon",
        Error::HeaderValue => "a field value must hold no control character and end with CR LF",
        Error::NewLine => "a line must end with CR LF",
        Error::Status => "the status line must be version, three digits and a reason",
        Error::Token => "the request line must be a method, a target and a version",
        Error::TooManyHeaders => "more field lines than allowed",
        Error::Version => "the version must be HTTP/1.0 or HTTP/1.1",
    }
}

/// Tells why `httparse` refused the version that starts at `bytes`: `None` while it may still
/// become a well-formed one. `delimiter` is what must follow it.
pub(crate) fn judge_version(bytes: &[u8], delimiter: u8) -> Option<DecodeError> {
    const MALFORMED: &str = "the version must be HTTP/1.0 or HTTP/1.1";
    let well_formed = |at: usize, b: u8| match at {
        0..=4 => b == b"HTTP/"[at],
        5 | 7 => b.is_ascii_digit(),
        6 => b == b'.',
        _ => b == delimiter,
    };
    if !bytes
        .iter()
        .take(9)
        .enumerate()
        .all(|(at, &b)| well_formed(at, b))
    {
        return Some(DecodeError::bad_head(MALFORMED));
    }
    if bytes.len() < 9 {
        return None;
    }
    Some(DecodeError::new(
        crate::DecodeErrorKind::UnsupportedVersion,
        MALFORMED,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn never_complete(_: &[u8]) -> Parse<()> {
        Parse::Partial {
            recheck: usize::MAX,
        }
    }

    #[test]
    fn a_dripping_head_is_parsed_a_logarithmic_number_of_times() {
        let mut scan = HeadScan::default();
        let stream = vec![b'a'; 32 * 1024];
        let mut parses = 0;
        for len in 1..=stream.len() {
            let polled = scan.poll(&stream[..len], 64 * 1024, false, |window| {
                parses += 1;
                never_complete(window)
            });
            assert!(matches!(polled, Ok(None)));
        }
        assert!(parses <= 12, "{parses} parses");
    }

    #[test]
    fn a_full_window_overruns_before_another_byte_is_needed() {
        let mut scan = HeadScan::default();
        assert!(matches!(
            scan.poll(b"abc", 4, false, never_complete),
            Ok(None)
        ));
        assert!(matches!(
            scan.poll(b"abcd", 4, false, never_complete),
            Err(Stop::Overrun)
        ));
    }

    #[test]
    fn empty_lines_before_a_head_count_against_its_limit() {
        let mut scan = HeadScan::default();
        let mut src = BytesMut::from(&b"\r\n\r\n\r\n"[..]);
        assert!(scan.skip_empty_lines(&mut src, 6).is_err());
    }

    #[test]
    fn a_version_is_unsupported_only_when_well_formed() {
        assert!(judge_version(b"HTTP/2", b' ').is_none());
        let kind = |bytes| judge_version(bytes, b' ').map(|error| error.category());
        assert_eq!(
            kind(b"HTTP/2.0 "),
            Some(crate::DecodeErrorKind::UnsupportedVersion)
        );
        assert_eq!(kind(b"HTTP/2.0\t"), Some(crate::DecodeErrorKind::BadHead));
        assert_eq!(kind(b"http"), Some(crate::DecodeErrorKind::BadHead));
    }
}
