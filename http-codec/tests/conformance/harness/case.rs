//! The format of a case: one JSON object a line.

use bytes::BytesMut;
use http_codec::{DecodeErrorKind, Limits, RequestWriter};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// What one side receives, and what the codec is to make of it.
#[derive(Debug, Deserialize)]
pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) group: String,
    pub(crate) kind: Kind,
    pub(crate) strictness: Strictness,
    pub(crate) request_method: Option<String>,
    #[serde(default)]
    pub(crate) request_upgrade: bool,
    /// How many requests are in flight.
    #[serde(default = "one")]
    pub(crate) outstanding: u32,
    #[serde(default)]
    limits: CaseLimits,
    #[serde(deserialize_with = "base64")]
    pub(crate) input: Vec<u8>,
    /// Where it is worth to break the input.
    #[serde(default)]
    pub(crate) splits: Vec<usize>,
    pub(crate) expect: Expect,
    /// Other results that pass.
    #[serde(default)]
    pub(crate) alternatives: Vec<Expect>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// The client's side reads it.
    Response,
    /// The server's side reads it.
    Request,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Strictness {
    Must,
    Should,
    Choice,
}

#[derive(Debug, Default, Deserialize)]
struct CaseLimits {
    max_headers: Option<usize>,
    max_head_bytes: Option<usize>,
    max_chunk_line_bytes: Option<usize>,
    max_trailer_bytes: Option<usize>,
    max_interim: Option<usize>,
    max_target_bytes: Option<usize>,
}

/// One of `ok` and `error`.
#[derive(Debug, Deserialize)]
pub(crate) struct Expect {
    pub(crate) ok: Option<Message>,
    pub(crate) error: Option<Category>,
    /// The status a gateway would answer with; a hint.
    pub(crate) reply: Option<u16>,
    /// Outer: is the parameter part of the case? Inner: its value, null where unusable.
    #[serde(default, deserialize_with = "present")]
    pub(crate) keep_alive_timeout_s: Option<Option<u64>>,
    #[serde(default, deserialize_with = "present")]
    pub(crate) keep_alive_max: Option<Option<u64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Category {
    Incomplete,
    BadHead,
    BadLength,
    BadChunk,
    AmbiguousFraming,
    TooLarge,
    UnsupportedVersion,
}

impl Category {
    /// # Panics
    ///
    /// Panics at a kind that the cases have no word for.
    pub(crate) fn of(kind: DecodeErrorKind) -> Self {
        match kind {
            DecodeErrorKind::Incomplete => Self::Incomplete,
            DecodeErrorKind::BadHead => Self::BadHead,
            DecodeErrorKind::BadLength => Self::BadLength,
            DecodeErrorKind::BadChunk => Self::BadChunk,
            DecodeErrorKind::AmbiguousFraming => Self::AmbiguousFraming,
            DecodeErrorKind::TooLarge(_) => Self::TooLarge,
            DecodeErrorKind::UnsupportedVersion => Self::UnsupportedVersion,
            other => panic!("the cases have no word for {other:?}"),
        }
    }
}

/// A whole message. Names and values are bytes as U+0000 to U+00FF.
#[derive(Debug, Deserialize)]
pub(crate) struct Message {
    pub(crate) status: Option<u16>,
    pub(crate) method: Option<String>,
    pub(crate) target: Option<String>,
    pub(crate) version: String,
    pub(crate) reason: Option<String>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) trailers: Vec<(String, String)>,
    #[serde(deserialize_with = "base64")]
    pub(crate) body: Vec<u8>,
    pub(crate) body_framing: Framing,
    pub(crate) keep_alive: bool,
    pub(crate) consumed: usize,
    pub(crate) interim: Vec<u16>,
    #[serde(default)]
    pub(crate) upgrade: bool,
    pub(crate) expect_continue: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Framing {
    #[default]
    None,
    Length,
    Chunked,
    UntilClose,
}

impl Case {
    /// Reads the case that stands on `line`; the error says what was expected.
    pub(crate) fn parse(line: &[u8]) -> Result<Self, String> {
        let case: Self = serde_json::from_slice(line).map_err(|error| {
            // A line on its own is always line 1 to the parser.
            let place = format!(" at line {} column {}", error.line(), error.column());
            let what = error.to_string().replace(&place, "");
            format!("{what} (column {})", error.column())
        })?;
        case.check()?;
        Ok(case)
    }

    /// Checks what the types leave open.
    fn check(&self) -> Result<(), String> {
        let ascend = self.splits.is_sorted_by(|a, b| a < b);
        if !ascend || self.splits.last() > Some(&self.input.len()) {
            return Err("splits: expected ascending places within the input".to_owned());
        }
        for expect in [&self.expect].into_iter().chain(&self.alternatives) {
            if expect.ok.is_some() == expect.error.is_some() {
                return Err("expect, alternatives: expected one of `ok` and `error`".to_owned());
            }
        }
        if RequestWriter::new(&mut BytesMut::new(), self.method(), "/").is_err() {
            return Err("request_method: expected a token".to_owned());
        }
        Ok(())
    }

    /// The method that a response answers.
    pub(crate) fn method(&self) -> &str {
        self.request_method.as_deref().unwrap_or("GET")
    }

    pub(crate) fn limits(&self) -> Limits {
        let default = Limits::default();
        let set = &self.limits;
        let or = Option::<usize>::unwrap_or;
        default
            .with_max_fields(or(set.max_headers, default.max_fields()))
            .with_max_head_bytes(or(set.max_head_bytes, default.max_head_bytes()))
            .with_max_chunk_line_bytes(or(set.max_chunk_line_bytes, default.max_chunk_line_bytes()))
            .with_max_trailer_bytes(or(set.max_trailer_bytes, default.max_trailer_bytes()))
            .with_max_interim(or(set.max_interim, default.max_interim()))
            .with_max_target_bytes(or(set.max_target_bytes, default.max_target_bytes()))
    }
}

fn one() -> u32 {
    1
}

fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(from).map(Some)
}

fn base64<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(from)?;
    decode_base64(&text).ok_or_else(|| D::Error::custom("expected base64"))
}

fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut bits, mut held) = (0_u32, 0);
    for c in text.trim_end_matches('=').bytes() {
        let digit = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(digit);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from(bits >> held & 0xff).ok()?);
        }
    }
    Some(bytes)
}
