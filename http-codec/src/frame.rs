//! Message bodies, framed for sending (RFC 9112 §6, §7.1). The data itself is never copied.

use bytes::{BufMut, BytesMut};

use crate::error::EncodeError;
use crate::fields::is_forbidden_trailer;
use crate::framing::BodyLength;
use crate::syntax;

/// What goes around one run of body data on the wire: `prefix`, the data, `suffix`.
///
/// Both are empty unless the body is chunked, and the three can leave in one vectored write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DataFrame {
    /// The chunk-size line.
    pub prefix: ChunkPrefix,
    /// The line end after the chunk data.
    pub suffix: &'static [u8],
}

/// A chunk-size line, held inline; empty when the body is not chunked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChunkPrefix {
    bytes: [u8; Self::MAX],
    len: u8,
}

impl ChunkPrefix {
    /// Sixteen digits hold every length; CR and LF follow.
    const MAX: usize = 18;

    fn for_len(len: usize) -> Self {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let digits = (usize::BITS - len.leading_zeros()).div_ceil(4).max(1);
        let mut prefix = Self::default();
        for shift in (0..digits).rev() {
            prefix.push(HEX[(len >> (shift * 4)) & 0xf]);
        }
        prefix.push(b'\r');
        prefix.push(b'\n');
        prefix
    }

    fn push(&mut self, b: u8) {
        self.bytes[usize::from(self.len)] = b;
        self.len += 1;
    }
}

impl AsRef<[u8]> for ChunkPrefix {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Keeps a sender to the framing its head promised.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyFramer {
    length: BodyLength,
    remaining: u64,
    ended: bool,
}

impl BodyFramer {
    pub(crate) fn new(length: BodyLength) -> Self {
        let remaining = if let BodyLength::Exact(length) = length {
            length
        } else {
            0
        };
        let ended = matches!(length, BodyLength::None | BodyLength::Exact(0));
        Self {
            length,
            remaining,
            ended,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.ended
    }

    pub(crate) fn allows_body(&self) -> bool {
        self.length != BodyLength::None
    }

    pub(crate) fn frame_data(&mut self, len: usize) -> Result<DataFrame, EncodeError> {
        if len == 0 {
            // An empty chunk would end the body.
            return Ok(DataFrame::default());
        }
        match self.length {
            BodyLength::None => Err(EncodeError::BodyNotAllowed),
            BodyLength::Exact(_) => {
                let len = len as u64;
                if len > self.remaining {
                    return Err(EncodeError::BodyTooLong {
                        excess: len - self.remaining,
                    });
                }
                self.remaining -= len;
                self.ended = self.remaining == 0;
                Ok(DataFrame::default())
            }
            _ if self.ended => Err(EncodeError::BodyEnded),
            BodyLength::Chunked => Ok(DataFrame {
                prefix: ChunkPrefix::for_len(len),
                suffix: b"\r\n",
            }),
            BodyLength::UntilClose => Ok(DataFrame::default()),
        }
    }

    pub(crate) fn frame_end(
        &mut self,
        trailers: Option<&[(&str, &[u8])]>,
        dst: &mut BytesMut,
    ) -> Result<(), EncodeError> {
        if self.remaining > 0 {
            return Err(EncodeError::BodyTooShort {
                missing: self.remaining,
            });
        }
        match self.length {
            BodyLength::None | BodyLength::Exact(_) => return Ok(()),
            _ if self.ended => return Err(EncodeError::BodyEnded),
            BodyLength::UntilClose => {}
            BodyLength::Chunked => {
                let trailers = trailers.unwrap_or_default();
                for (name, value) in trailers {
                    check_field(name.as_bytes(), value)?;
                    if is_forbidden_trailer(name.as_bytes()) {
                        return Err(EncodeError::ForbiddenTrailer);
                    }
                }
                dst.put_slice(b"0\r\n");
                for (name, value) in trailers {
                    put_field(dst, name.as_bytes(), value);
                }
                dst.put_slice(b"\r\n");
            }
        }
        self.ended = true;
        Ok(())
    }
}

#[inline]
pub(crate) fn check_field(name: &[u8], value: &[u8]) -> Result<(), EncodeError> {
    if !syntax::is_token(name) {
        return Err(EncodeError::BadFieldName);
    }
    if !syntax::is_text(value) {
        return Err(EncodeError::BadFieldValue);
    }
    Ok(())
}

#[inline]
pub(crate) fn put_field(dst: &mut BytesMut, name: &[u8], value: &[u8]) {
    dst.extend_from_slice(name);
    dst.extend_from_slice(b": ");
    dst.extend_from_slice(value);
    dst.extend_from_slice(b"\r\n");
}

#[inline]
pub(crate) fn is_framing_field(name: &[u8]) -> bool {
    syntax::is_named(name, b"content-length") || syntax::is_named(name, b"transfer-encoding")
}

/// Writes the field that announces `length`, where there is one.
pub(crate) fn put_framing(dst: &mut BytesMut, length: BodyLength) {
    match length {
        BodyLength::None | BodyLength::UntilClose => {}
        BodyLength::Chunked => dst.put_slice(b"Transfer-Encoding: chunked\r\n"),
        BodyLength::Exact(length) => {
            let mut digits = [0; 20];
            put_field(dst, b"Content-Length", decimal(length, &mut digits));
        }
    }
}

/// `value` in decimal, at the end of `digits`, which has room for every 64-bit number.
pub(crate) fn decimal(mut value: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut start = digits.len();
    loop {
        start -= 1;
        #[allow(clippy::cast_possible_truncation)] // below ten
        let digit = (value % 10) as u8;
        digits[start] = b'0' + digit;
        value /= 10;
        if value == 0 {
            return &digits[start..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_sizes_are_written_in_as_few_digits_as_they_need() {
        assert_eq!(ChunkPrefix::for_len(1).as_ref(), b"1\r\n");
        assert_eq!(ChunkPrefix::for_len(0x4000).as_ref(), b"4000\r\n");
        assert_eq!(
            ChunkPrefix::for_len(usize::MAX).as_ref(),
            b"ffffffffffffffff\r\n"
        );
    }

    #[test]
    fn a_chunked_body_is_not_ended_by_empty_data() {
        let mut framer = BodyFramer::new(BodyLength::Chunked);
        assert_eq!(framer.frame_data(0), Ok(DataFrame::default()));
        assert!(!framer.is_done());
    }

    #[test]
    fn the_promised_length_binds_in_both_directions() {
        let mut dst = BytesMut::new();
        let mut framer = BodyFramer::new(BodyLength::Exact(5));
        assert!(framer.frame_data(3).is_ok());
        assert_eq!(
            framer.frame_data(4),
            Err(EncodeError::BodyTooLong { excess: 2 })
        );
        let short = framer.frame_end(None, &mut dst);
        assert_eq!(short, Err(EncodeError::BodyTooShort { missing: 2 }));
        assert!(framer.frame_data(2).is_ok());
        assert_eq!(framer.frame_end(None, &mut dst), Ok(()));
        assert!(dst.is_empty() && framer.is_done());
    }

    #[test]
    fn a_trailer_that_would_frame_is_refused_and_leaves_nothing_behind() {
        let mut dst = BytesMut::new();
        let mut framer = BodyFramer::new(BodyLength::Chunked);
        let trailers: [(&str, &[u8]); 2] = [("X", b"1"), ("Content-Length", b"3")];
        let refused = framer.frame_end(Some(&trailers), &mut dst);
        assert_eq!(refused, Err(EncodeError::ForbiddenTrailer));
        assert!(dst.is_empty());
        assert_eq!(framer.frame_end(Some(&trailers[..1]), &mut dst), Ok(()));
        assert_eq!(dst, "0\r\nX: 1\r\n\r\n");
        assert_eq!(
            framer.frame_end(None, &mut dst),
            Err(EncodeError::BodyEnded)
        );
    }

    #[test]
    fn decimals_reach_from_zero_to_the_largest() {
        assert_eq!(decimal(0, &mut [0; 20]), b"0");
        assert_eq!(decimal(u64::MAX, &mut [0; 20]), b"18446744073709551615");
    }
}
