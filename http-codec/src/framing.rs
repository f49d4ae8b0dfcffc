//! Message framing by RFC 9112 §6, from the fields that decide it.

use httparse::Header;

use crate::error::{DecodeError, DecodeErrorKind};
use crate::head::Version;
use crate::syntax::{self, is_named};

/// How the end of a message body is found (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    /// There is no body and none is announced.
    None,
    /// So many bytes follow, as `Content-Length` says.
    Exact(u64),
    /// The chunked transfer coding (RFC 9112 §7.1).
    Chunked,
    /// Everything up to the end of the connection; responses only.
    UntilClose,
}

impl BodyLength {
    /// How many bytes the body has, where that is known before its end.
    ///
    /// ```
    /// use http_codec::BodyLength;
    ///
    /// assert_eq!(BodyLength::Exact(5).bytes(), Some(5));
    /// assert_eq!(BodyLength::None.bytes(), Some(0));
    /// assert_eq!(BodyLength::Chunked.bytes(), None);
    /// ```
    #[must_use]
    pub fn bytes(self) -> Option<u64> {
        match self {
            Self::None => Some(0),
            Self::Exact(length) => Some(length),
            Self::Chunked | Self::UntilClose => None,
        }
    }
}

/// Which rule repeated lengths fall under: bytes from outside are refused, responses that name
/// one meaning are read (RFC 9110 §8.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Request,
    Response,
}

/// What the fields that steer the connection and the framing say, gathered in one pass.
#[derive(Debug, Default)]
pub(crate) struct Notes<'a> {
    pub(crate) close: bool,
    pub(crate) keep_alive: bool,
    pub(crate) upgrade_option: bool,
    pub(crate) upgrade_field: bool,
    pub(crate) expect_continue: bool,
    pub(crate) hosts: usize,
    pub(crate) host: &'a [u8],
    lengths: usize,
    length: u64,
    length_fault: Option<LengthFault>,
    coding_lines: usize,
    chunked_only: bool,
    names_chunked: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LengthFault {
    Differs,
    NotANumber,
}

impl<'a> Notes<'a> {
    /// Notes what matters here of a head's fields.
    pub(crate) fn of(headers: &[Header<'a>]) -> Self {
        let mut notes = Self::default();
        for header in headers {
            notes.note(header.name, header.value);
        }
        notes
    }

    fn note(&mut self, name: &str, value: &'a [u8]) {
        // The length of the name rules nearly every other field out without a compare.
        let name = name.as_bytes();
        match name.len() {
            4 if is_named(name, b"host") => {
                self.hosts += 1;
                self.host = value;
            }
            6 if is_named(name, b"expect") => {
                self.expect_continue |= value.eq_ignore_ascii_case(b"100-continue");
            }
            7 if is_named(name, b"upgrade") => self.upgrade_field |= !value.is_empty(),
            10 if is_named(name, b"connection") => self.note_connection(value),
            14 if is_named(name, b"content-length") => self.note_length(value),
            17 if is_named(name, b"transfer-encoding") => self.note_coding(value),
            _ => {}
        }
    }

    pub(crate) fn note_connection(&mut self, value: &[u8]) {
        // Most messages say this or nothing; it needs no splitting.
        if value == b"keep-alive" {
            self.keep_alive = true;
            return;
        }
        for option in syntax::elements(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            self.upgrade_option |= option.eq_ignore_ascii_case(b"upgrade");
        }
    }

    fn note_length(&mut self, value: &[u8]) {
        // Most messages say it once.
        if self.lengths == 0
            && let Some(length) = syntax::parse_decimal(value)
        {
            self.length = length;
            self.lengths = 1;
            return;
        }
        for element in syntax::elements(value) {
            match syntax::parse_decimal(element) {
                None => self.length_fault = Some(LengthFault::NotANumber),
                Some(length) => {
                    if self.lengths > 0 && length != self.length && self.length_fault.is_none() {
                        self.length_fault = Some(LengthFault::Differs);
                    }
                    self.length = length;
                }
            }
            self.lengths += 1;
        }
    }

    fn note_coding(&mut self, value: &[u8]) {
        self.coding_lines += 1;
        self.chunked_only = self.coding_lines == 1 && value.eq_ignore_ascii_case(b"chunked");
        self.names_chunked |=
            syntax::elements(value).any(|coding| coding.eq_ignore_ascii_case(b"chunked"));
    }

    /// The message's own word on persistence (RFC 9112 §9.3).
    pub(crate) fn persistent(&self, version: Version) -> bool {
        !self.close && (version == Version::Http11 || self.keep_alive)
    }

    pub(crate) fn has_coding(&self) -> bool {
        self.coding_lines > 0
    }

    pub(crate) fn has_length(&self) -> bool {
        self.lengths > 0
    }

    /// `Content-Length`, if there is one.
    pub(crate) fn content_length(&self, role: Role) -> Result<Option<u64>, DecodeError> {
        match self.length_fault {
            Some(LengthFault::NotANumber) => Err(DecodeError::new(
                DecodeErrorKind::BadLength,
                "Content-Length must be decimal digits that fit 64 bits",
            )),
            Some(LengthFault::Differs) => Err(DecodeError::new(
                DecodeErrorKind::AmbiguousFraming,
                "Content-Length is given more than once, with different values",
            )),
            None if self.lengths > 1 && role == Role::Request => Err(DecodeError::new(
                DecodeErrorKind::BadLength,
                "Content-Length is given more than once",
            )),
            None => Ok((self.lengths > 0).then_some(self.length)),
        }
    }

    /// Is the body chunked? Any other use of Transfer-Encoding is an error.
    pub(crate) fn chunked(&self, role: Role, version: Version) -> Result<bool, DecodeError> {
        if self.coding_lines == 0 {
            return Ok(false);
        }
        let ambiguous = |detail| DecodeError::new(DecodeErrorKind::AmbiguousFraming, detail);
        if version == Version::Http10 {
            return Err(ambiguous("Transfer-Encoding in HTTP/1.0"));
        }
        if !self.chunked_only {
            let error = ambiguous("Transfer-Encoding other than \"chunked\" alone");
            let merely_unknown = !self.names_chunked && !self.has_length();
            return Err(if merely_unknown {
                error.with_reply(501)
            } else {
                error
            });
        }
        if role == Role::Request && self.has_length() {
            return Err(ambiguous("Content-Length beside Transfer-Encoding"));
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes<'a>(lines: &[(&str, &'a str)]) -> Notes<'a> {
        let mut notes = Notes::default();
        for (name, value) in lines {
            notes.note(name, value.as_bytes());
        }
        notes
    }

    #[test]
    fn one_length_repeated_is_read_from_a_response_and_refused_from_a_request() {
        let notes = notes(&[("Content-Length", "3, 3"), ("content-length", "03")]);
        assert_eq!(notes.content_length(Role::Response), Ok(Some(3)));
        let refused = notes
            .content_length(Role::Request)
            .map_err(|error| error.category());
        assert_eq!(refused, Err(DecodeErrorKind::BadLength));
    }

    #[test]
    fn a_length_that_is_no_number_outweighs_lengths_that_differ() {
        let notes = notes(&[("Content-Length", "5, 6"), ("Content-Length", "x")]);
        let kind = notes
            .content_length(Role::Response)
            .map_err(|error| error.category());
        assert_eq!(kind, Err(DecodeErrorKind::BadLength));
    }

    #[test]
    fn an_unknown_coding_is_not_implemented_and_a_doubtful_one_is_bad() {
        let reply = |lines: &[(&str, &'static str)]| {
            let judged = notes(lines).chunked(Role::Request, Version::Http11);
            judged.map_err(|error| error.reply_status())
        };
        assert_eq!(reply(&[("Transfer-Encoding", "gzip")]), Err(501));
        assert_eq!(reply(&[("Transfer-Encoding", "gzip, chunked")]), Err(400));
        assert_eq!(
            reply(&[("Transfer-Encoding", "x"), ("Content-Length", "1")]),
            Err(400)
        );
        assert_eq!(reply(&[("Transfer-Encoding", "CHUNKED")]), Ok(true));
    }
}
