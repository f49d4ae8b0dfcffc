//! The chunked transfer coding, read (RFC 9112 §7.1).

use alloc::vec;
use alloc::vec::Vec;

use bytes::{Buf, BytesMut};

use crate::body::BodyEvent;
use crate::error::DecodeError;
use crate::fields::{Fields, Line, is_forbidden_trailer};
use crate::head::{self, HeadScan, Parse, Stop};
use crate::limits::{Limit, Limits};
use crate::syntax;

/// So many hex digits hold every size; what stands before them is zeros.
const SIZE_DIGITS: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct ChunkedDecoder {
    state: State,
    line_bytes: usize,
    /// Of all chunk-size lines so far: what is neither size nor line end.
    extension_bytes: usize,
    size: u64,
    body_bytes: u64,
    trailers: HeadScan,
}

/// One state a byte of framing, so that input may break anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    SizeStart,
    Size,
    /// Blanks between the size and an extension or the end of the line.
    SizePadding,
    Extension,
    LineLf,
    /// So many bytes of the chunk are still to come.
    Data(u64),
    DataCr,
    DataLf,
    Trailers,
    Ended,
}

impl ChunkedDecoder {
    pub(crate) fn decode(
        &mut self,
        src: &mut BytesMut,
        limits: &Limits,
        eof: bool,
    ) -> Result<BodyEvent, DecodeError> {
        loop {
            match self.state {
                State::Data(remaining) => {
                    if src.is_empty() {
                        return cut_or_wait(eof);
                    }
                    let available = src.len() as u64;
                    let taken = if available <= remaining {
                        src.split()
                    } else {
                        // Less than a length that fits usize.
                        src.split_to(usize::try_from(remaining).unwrap_or(usize::MAX))
                    };
                    self.state = match remaining - taken.len() as u64 {
                        0 => State::DataCr,
                        rest => State::Data(rest),
                    };
                    return Ok(BodyEvent::Data(taken.freeze()));
                }
                State::Trailers => return self.read_trailers(src, limits, eof),
                State::Ended => return Ok(BodyEvent::End(None)),
                _ => {
                    if !self.read_framing(src, limits)? {
                        return cut_or_wait(eof);
                    }
                }
            }
        }
    }

    /// Takes framing bytes up to the next data or the trailers; false when more are needed.
    fn read_framing(&mut self, src: &mut BytesMut, limits: &Limits) -> Result<bool, DecodeError> {
        let mut taken = 0;
        for &b in src.iter() {
            self.step(b, limits).map_err(|error| error.at(taken))?;
            taken += 1;
            if matches!(self.state, State::Data(_) | State::Trailers) {
                src.advance(taken);
                return Ok(true);
            }
        }
        src.clear();
        Ok(false)
    }

    fn step(&mut self, b: u8, limits: &Limits) -> Result<(), DecodeError> {
        match self.state {
            State::DataCr => return self.expect(b, b'\r', State::DataLf),
            State::DataLf => return self.expect(b, b'\n', State::SizeStart),
            _ => {}
        }
        self.line_bytes += 1;
        if self.line_bytes > limits.max_chunk_line_bytes() {
            return Err(DecodeError::too_large(Limit::ChunkLineBytes));
        }
        self.state = match (self.state, b) {
            (State::SizeStart | State::Size, b) if b.is_ascii_hexdigit() => {
                self.add_digit(b)?;
                State::Size
            }
            (State::SizeStart, _) => {
                return Err(DecodeError::bad_chunk(
                    "a chunk must begin with its size in hex",
                ));
            }
            (State::LineLf, b'\n') => return self.begin_chunk(limits),
            (State::LineLf, _) => {
                return Err(DecodeError::bad_chunk(
                    "CR in a chunk-size line must precede LF",
                ));
            }
            (_, b'\r') => State::LineLf,
            (State::Size | State::SizePadding, b';') => State::Extension,
            (State::Size | State::SizePadding, b' ' | b'\t') => State::SizePadding,
            (State::Extension, b) if syntax::is_text_byte(b) => State::Extension,
            _ => {
                return Err(DecodeError::bad_chunk(
                    "a chunk size must end with \";\" or CR LF",
                ));
            }
        };
        self.count_extension(limits)
    }

    /// Counts the byte just taken if the chunk would be the same without it.
    fn count_extension(&mut self, limits: &Limits) -> Result<(), DecodeError> {
        let needless = match self.state {
            State::SizePadding | State::Extension => true,
            State::Size => self.line_bytes > SIZE_DIGITS,
            _ => false,
        };
        self.extension_bytes += usize::from(needless);
        if self.extension_bytes > limits.max_chunk_extension_bytes() {
            return Err(DecodeError::too_large(Limit::ChunkExtensionBytes));
        }
        Ok(())
    }

    fn expect(&mut self, b: u8, expected: u8, next: State) -> Result<(), DecodeError> {
        if b != expected {
            return Err(DecodeError::bad_chunk(
                "chunk data must be followed by CR LF",
            ));
        }
        self.state = next;
        Ok(())
    }

    fn add_digit(&mut self, b: u8) -> Result<(), DecodeError> {
        let digit = match b {
            b'0'..=b'9' => b - b'0',
            _ => (b | 0x20) - b'a' + 10,
        };
        if self.size >> 60 != 0 {
            return Err(DecodeError::bad_chunk("a chunk size must fit 64 bits"));
        }
        self.size = self.size << 4 | u64::from(digit);
        Ok(())
    }

    fn begin_chunk(&mut self, limits: &Limits) -> Result<(), DecodeError> {
        let size = core::mem::take(&mut self.size);
        self.line_bytes = 0;
        self.body_bytes = self.body_bytes.saturating_add(size);
        if limits
            .max_body_bytes()
            .is_some_and(|max| self.body_bytes > max)
        {
            return Err(DecodeError::too_large(Limit::BodyBytes));
        }
        self.state = if size == 0 {
            State::Trailers
        } else {
            State::Data(size)
        };
        Ok(())
    }

    fn read_trailers(
        &mut self,
        src: &mut BytesMut,
        limits: &Limits,
        eof: bool,
    ) -> Result<BodyEvent, DecodeError> {
        match src.as_ref() {
            [] | [b'\r'] => return cut_or_wait(eof),
            [b'\r', b'\n', ..] => {
                src.advance(2);
                self.state = State::Ended;
                return Ok(BodyEvent::End(None));
            }
            _ => {}
        }
        let max_fields = limits.max_fields();
        let polled = self
            .trailers
            .poll(src, limits.max_trailer_bytes(), eof, |window| {
                parse_trailers(window, max_fields)
            });
        match polled {
            Ok(None) => Ok(BodyEvent::NeedData),
            Ok(Some((lines, len))) => {
                self.state = State::Ended;
                let fields = Fields::new(src.split_to(len).freeze(), lines);
                Ok(BodyEvent::End(
                    Some(fields).filter(|fields| !fields.is_empty()),
                ))
            }
            Err(Stop::Malformed(error)) => Err(error),
            Err(Stop::Overrun) => Err(DecodeError::too_large(Limit::TrailerBytes)),
            Err(Stop::Cut) => cut_or_wait(true),
        }
    }
}

fn cut_or_wait(eof: bool) -> Result<BodyEvent, DecodeError> {
    if eof {
        Err(DecodeError::incomplete(
            "the connection ended inside a chunked body",
        ))
    } else {
        Ok(BodyEvent::NeedData)
    }
}

fn parse_trailers(window: &[u8], max_fields: usize) -> Parse<Vec<Line>> {
    const BARE_LF: &str = "a trailer line must end with CR LF, not with LF alone";
    let room = head::fields_within(window, max_fields);
    let mut headers = vec![httparse::EMPTY_HEADER; room];
    let parsed = httparse::parse_headers(window, &mut headers);
    let end = match parsed {
        Ok(httparse::Status::Complete((len, _))) => len,
        _ => window.len(),
    };
    let bare_lf = syntax::bare_lf(&window[..end]);
    match (parsed, bare_lf) {
        // The bare LF may be the older fault; see `Parse` on why that matters.
        (Err(_), Some(at)) if at + 1 < end => parse_trailers(&window[..=at], max_fields),
        (Err(httparse::Error::TooManyHeaders), _) => {
            Parse::Failed(DecodeError::too_large(Limit::Fields))
        }
        (Err(error), _) => Parse::Failed(DecodeError::bad_chunk(head::describe(error))),
        (Ok(_), Some(at)) => Parse::Failed(DecodeError::bad_chunk(BARE_LF).at(at)),
        (Ok(httparse::Status::Partial), None) => Parse::Partial {
            recheck: usize::MAX,
        },
        (Ok(httparse::Status::Complete((len, headers))), None) => {
            let kept = headers
                .iter()
                .filter(|header| !is_forbidden_trailer(header.name.as_bytes()));
            let lines = kept.map(|header| Line::of(window, header));
            Parse::Complete(lines.collect(), len)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DecodeErrorKind;

    fn body_of(stream: &[u8]) -> Result<Vec<u8>, DecodeErrorKind> {
        let mut decoder = ChunkedDecoder::default();
        let mut src = BytesMut::from(stream);
        let mut body = Vec::new();
        loop {
            match decoder.decode(&mut src, &Limits::default(), true) {
                Ok(BodyEvent::Data(data)) => body.extend_from_slice(&data),
                Ok(BodyEvent::End(_)) => return Ok(body),
                Ok(BodyEvent::NeedData) => panic!("waiting after the end of file"),
                Err(error) => return Err(error.category()),
            }
        }
    }

    /// Fault row F7: a size near the integer limit wraps when the line end is added to it.
    #[test]
    fn sizes_near_the_integer_limit_neither_wrap_nor_abort() {
        for size in ["ffffffffffffffff", "fffffffffffffffe", "7fffffffffffffff"] {
            for before in ["", "2\r\nab\r\n"] {
                let stream = format!("{before}{size}\r\nab");
                let cut = Err(DecodeErrorKind::Incomplete);
                assert_eq!(body_of(stream.as_bytes()), cut, "{stream}");
            }
        }
        assert_eq!(
            body_of(b"10000000000000000\r\nab"),
            Err(DecodeErrorKind::BadChunk)
        );
        let zeros = format!("{}1\r\na\r\n0\r\n\r\n", "0".repeat(1000));
        assert_eq!(body_of(zeros.as_bytes()), Ok(b"a".to_vec()));
    }
}
