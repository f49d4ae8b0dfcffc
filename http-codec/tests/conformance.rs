//! The HTTP/1.1 cases of `data/http1-conformance.jsonl`, one JSON object a line: each whole, at
//! the splits it suggests, byte by byte, and cut in two everywhere. `must` and `should` cases have
//! one right answer or list the others; `choice` cases list what else is safe.

use std::fmt::Write as _;

use bytes::BytesMut;
use http_codec::{
    BodyLength, ClientExchange, DecodeError, DecodeErrorKind, Fields, KeepAliveHint, Limits,
    RequestEvent, RequestWriter, ResponseEvent, ResponseHead, Reuse, ServerExchange, Version,
};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Case {
    id: String,
    kind: String,
    request_method: Option<String>,
    #[serde(default)]
    request_upgrade: bool,
    outstanding: Option<u32>,
    limits: Option<CaseLimits>,
    input: String,
    #[serde(default)]
    splits: Vec<usize>,
    expect: Expect,
    #[serde(default)]
    alternatives: Vec<Expect>,
    /// Run with limits that nearly every message meets.
    #[serde(skip)]
    tight: bool,
}

#[derive(Deserialize)]
struct CaseLimits {
    max_headers: Option<usize>,
    max_head_bytes: Option<usize>,
    max_chunk_line_bytes: Option<usize>,
    max_trailer_bytes: Option<usize>,
    max_interim: Option<usize>,
    max_target_bytes: Option<usize>,
}

#[derive(Deserialize)]
struct Expect {
    ok: Option<Message>,
    error: Option<String>,
    /// Outer: is the parameter part of the case? Inner: its value, null where unusable.
    #[serde(default, deserialize_with = "present")]
    keep_alive_timeout_s: Option<Option<u64>>,
    #[serde(default, deserialize_with = "present")]
    keep_alive_max: Option<Option<u64>>,
}

fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(from).map(Some)
}

#[derive(Deserialize)]
struct Message {
    status: Option<u16>,
    method: Option<String>,
    target: Option<String>,
    version: String,
    reason: Option<String>,
    headers: Vec<(String, String)>,
    trailers: Vec<(String, String)>,
    body: String,
    body_framing: String,
    keep_alive: bool,
    consumed: usize,
    interim: Vec<u16>,
    upgrade: Option<bool>,
    expect_continue: Option<bool>,
}

/// What the codec made of a case, bytes as U+0000..U+00FF.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Seen {
    status: Option<u16>,
    method: Option<String>,
    target: Option<String>,
    version: String,
    reason: Option<String>,
    headers: Vec<(String, String)>,
    trailers: Vec<(String, String)>,
    body: Vec<u8>,
    body_framing: &'static str,
    keep_alive: bool,
    consumed: usize,
    interim: Vec<u16>,
    upgrade: bool,
    expect_continue: bool,
    hint: KeepAliveHint,
}

/// Mutations of each case; a few hundred are a second or two.
const ROUNDS: usize = 20;

type Outcome = Result<Seen, (&'static str, u16)>;

fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|&b| char::from(b)).collect()
}

fn decode_base64(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (mut bits, mut held) = (0_u32, 0);
    for c in text.bytes().filter(|&c| c != b'=') {
        let digit = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => panic!("not base64: {text}"),
        };
        bits = bits << 6 | u32::from(digit);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from(bits >> held & 0xff).expect("eight bits"));
        }
    }
    bytes
}

fn category(error: &DecodeError) -> &'static str {
    match error.category() {
        DecodeErrorKind::Incomplete => "incomplete",
        DecodeErrorKind::BadHead => "bad-head",
        DecodeErrorKind::BadLength => "bad-length",
        DecodeErrorKind::BadChunk => "bad-chunk",
        DecodeErrorKind::AmbiguousFraming => "ambiguous-framing",
        DecodeErrorKind::TooLarge(_) => "too-large",
        DecodeErrorKind::UnsupportedVersion => "unsupported-version",
        other => panic!("unknown category {other:?}"),
    }
}

fn pairs(fields: &Fields) -> Vec<(String, String)> {
    fields
        .iter()
        .map(|field| (field.name.to_lowercase(), latin1(field.value)))
        .collect()
}

fn framing(length: BodyLength) -> &'static str {
    match length {
        BodyLength::None => "none",
        BodyLength::Exact(_) => "length",
        BodyLength::Chunked => "chunked",
        BodyLength::UntilClose => "until-close",
    }
}

fn version(version: Version) -> String {
    version.to_string().trim_start_matches("HTTP/").to_owned()
}

impl Case {
    fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        if self.tight {
            return limits
                .with_max_head_bytes(60)
                .with_max_fields(2)
                .with_max_target_bytes(8)
                .with_max_chunk_line_bytes(6)
                .with_max_trailer_bytes(12)
                .with_max_interim(1)
                .with_max_body_bytes(Some(6));
        }
        let Some(set) = &self.limits else {
            return limits;
        };
        if let Some(n) = set.max_headers {
            limits = limits.with_max_fields(n);
        }
        if let Some(n) = set.max_head_bytes {
            limits = limits.with_max_head_bytes(n);
        }
        if let Some(n) = set.max_chunk_line_bytes {
            limits = limits.with_max_chunk_line_bytes(n);
        }
        if let Some(n) = set.max_trailer_bytes {
            limits = limits.with_max_trailer_bytes(n);
        }
        if let Some(n) = set.max_interim {
            limits = limits.with_max_interim(n);
        }
        if let Some(n) = set.max_target_bytes {
            limits = limits.with_max_target_bytes(n);
        }
        limits
    }

    fn run(&self, input: &[u8], cuts: &[usize]) -> Outcome {
        let outcome = match self.kind.as_str() {
            "response" => self.run_response(input, cuts),
            "request" => self.run_request(input, cuts),
            kind => panic!("{}: unknown kind {kind}", self.id),
        };
        outcome.map_err(|error| (category(&error), error.reply_status()))
    }

    fn client(&self) -> ClientExchange {
        let method = self.request_method.as_deref().unwrap_or("GET");
        let target = if method == "CONNECT" {
            "a.example:443"
        } else {
            "/"
        };
        let mut dst = BytesMut::new();
        let mut writer = RequestWriter::new(&mut dst, method, target).expect("a request line");
        writer.field("Host", "a.example").expect("a field");
        if self.request_upgrade {
            writer.field("Connection", "upgrade").expect("a field");
            writer.field("Upgrade", "websocket, h2c").expect("a field");
        }
        let sent = writer.finish(BodyLength::None).expect("a whole head");
        let mut exchange = ClientExchange::new(sent, &self.limits());
        exchange.head_sent();
        exchange
    }

    fn run_response(&self, input: &[u8], cuts: &[usize]) -> Result<Seen, DecodeError> {
        let mut exchange = self.client();
        let mut seen = Seen::default();
        let mut src = BytesMut::new();
        let mut fed = 0;
        let mut pieces = pieces(input, cuts).into_iter();
        let mut eof = false;
        loop {
            let event = if eof {
                exchange.decode_eof(&mut src)
            } else {
                exchange.decode(&mut src)
            }?;
            match event {
                ResponseEvent::NeedData => match pieces.next() {
                    Some(piece) => {
                        src.extend_from_slice(piece);
                        fed += piece.len();
                    }
                    None => {
                        assert!(!eof, "{}: waits after the end of file", self.id);
                        eof = true;
                    }
                },
                ResponseEvent::Interim(head) => seen.interim.push(head.status()),
                ResponseEvent::Head(head) => seen.take_response(&head),
                ResponseEvent::Data(data) => seen.body.extend_from_slice(&data),
                ResponseEvent::End(trailers) => {
                    seen.trailers = trailers.as_ref().map(pairs).unwrap_or_default();
                    break;
                }
            }
        }
        seen.consumed = fed - src.len();
        let unread = if self.outstanding.unwrap_or(1) > 1 {
            0
        } else {
            input.len() - seen.consumed
        };
        seen.keep_alive = exchange.reuse(unread) == Reuse::KeepAlive;
        Ok(seen)
    }

    fn run_request(&self, input: &[u8], cuts: &[usize]) -> Result<Seen, DecodeError> {
        let mut exchange = ServerExchange::new(&self.limits());
        let mut seen = Seen::default();
        let mut src = BytesMut::new();
        let mut fed = 0;
        let mut pieces = pieces(input, cuts).into_iter();
        let mut eof = false;
        loop {
            let event = if eof {
                exchange.decode_eof(&mut src)
            } else {
                exchange.decode(&mut src)
            }?;
            match event {
                RequestEvent::NeedData => match pieces.next() {
                    Some(piece) => {
                        src.extend_from_slice(piece);
                        fed += piece.len();
                    }
                    None => {
                        assert!(!eof, "{}: waits after the end of file", self.id);
                        eof = true;
                    }
                },
                RequestEvent::Head(head) => {
                    seen.method = Some(head.method().to_owned());
                    seen.target = Some(head.target().to_owned());
                    seen.version = version(head.version());
                    seen.headers = pairs(head.fields());
                    seen.body_framing = framing(head.body_length());
                    seen.upgrade = head.upgrade();
                    seen.expect_continue = head.expects_continue();
                }
                RequestEvent::Data(data) => seen.body.extend_from_slice(&data),
                RequestEvent::End(trailers) => {
                    seen.trailers = trailers.as_ref().map(pairs).unwrap_or_default();
                    break;
                }
                // Empty lines alone, which some mutations leave.
                RequestEvent::Closed => return Ok(seen),
            }
        }
        seen.consumed = fed - src.len();
        let mut dst = BytesMut::new();
        let writer = exchange.respond(&mut dst, 404).expect("a response head");
        writer
            .finish(BodyLength::Exact(0))
            .expect("a response head");
        seen.keep_alive = exchange.reuse() == Reuse::KeepAlive;
        Ok(seen)
    }
}

impl Seen {
    fn take_response(&mut self, head: &ResponseHead) {
        self.status = Some(head.status());
        self.version = version(head.version());
        self.reason = Some(latin1(head.reason()));
        self.headers = pairs(head.fields());
        self.body_framing = framing(head.body_length());
        self.upgrade = head.upgrade();
        self.hint = head.keep_alive_hint();
    }

    /// Names what differs from `expected`.
    fn difference(&self, expected: &Message, expect: &Expect) -> Option<&'static str> {
        let trim = |text: &str| text.trim_matches([' ', '\t']).to_owned();
        let lower = |list: &[(String, String)]| -> Vec<_> {
            list.iter()
                .map(|(name, value)| (name.to_lowercase(), trim(value)))
                .collect()
        };
        let same = [
            ("status", self.status == expected.status),
            ("method", self.method == expected.method),
            ("target", self.target == expected.target),
            ("version", self.version == expected.version),
            (
                "reason",
                self.reason == expected.reason.as_deref().map(trim),
            ),
            ("headers", self.headers == lower(&expected.headers)),
            ("trailers", self.trailers == lower(&expected.trailers)),
            ("body", self.body == decode_base64(&expected.body)),
            ("body_framing", self.body_framing == expected.body_framing),
            ("keep_alive", self.keep_alive == expected.keep_alive),
            ("consumed", self.consumed == expected.consumed),
            ("interim", self.interim == expected.interim),
            ("upgrade", self.upgrade == expected.upgrade.unwrap_or(false)),
            (
                "expect_continue",
                expected
                    .expect_continue
                    .is_none_or(|e| e == self.expect_continue),
            ),
            (
                "timeout",
                expect
                    .keep_alive_timeout_s
                    .is_none_or(|t| t == self.hint.timeout),
            ),
            (
                "max",
                expect.keep_alive_max.is_none_or(|max| max == self.hint.max),
            ),
        ];
        same.iter().find(|(_, same)| !same).map(|(what, _)| *what)
    }
}

fn pieces<'i>(input: &'i [u8], cuts: &[usize]) -> Vec<&'i [u8]> {
    let mut pieces = Vec::new();
    let mut start = 0;
    for &cut in cuts.iter().filter(|&&cut| cut <= input.len()) {
        pieces.push(&input[start..cut]);
        start = cut;
    }
    pieces.push(&input[start..]);
    pieces
}

fn mismatch(outcome: &Outcome, expect: &Expect) -> Option<String> {
    match (outcome, expect) {
        (
            Err((seen, _)),
            Expect {
                error: Some(expected),
                ..
            },
        ) if seen == expected => None,
        (
            Ok(seen),
            Expect {
                ok: Some(expected), ..
            },
        ) => seen
            .difference(expected, expect)
            .map(|what| format!("{what} differs")),
        (
            _,
            Expect {
                error: Some(expected),
                ..
            },
        ) => Some(format!("expected error {expected}")),
        _ => Some("expected a message".to_owned()),
    }
}

fn cases() -> Vec<Case> {
    include_str!("data/http1-conformance.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).expect("a case"))
        .collect()
}

#[test]
fn every_case_gives_its_result_or_a_listed_alternative() {
    let cases = cases();
    assert!(cases.len() > 400, "the corpus is not whole");
    let mut failures = String::new();
    for case in &cases {
        let outcome = case.run(&decode_base64(&case.input), &[]);
        let Some(why) = mismatch(&outcome, &case.expect) else {
            continue;
        };
        if case
            .alternatives
            .iter()
            .any(|other| mismatch(&outcome, other).is_none())
        {
            continue;
        }
        let _ = writeln!(failures, "{}: {why}; saw {outcome:?}", case.id);
    }
    assert!(failures.is_empty(), "\n{failures}");
}

#[test]
fn no_case_depends_on_how_its_input_is_split() {
    const EVERYWHERE: usize = 400;
    for case in cases() {
        let input = decode_base64(&case.input);
        let whole = case.run(&input, &[]);
        let check = |cuts: &[usize]| {
            assert_eq!(case.run(&input, cuts), whole, "{} cut at {cuts:?}", case.id);
        };
        check(&case.splits);
        check(&(0..input.len()).collect::<Vec<_>>());
        // Long inputs are long runs of one byte: a coarser comb misses little and stays fast.
        let step = (input.len() / EVERYWHERE).max(1);
        for cut in (0..input.len()).step_by(step) {
            check(&[cut]);
        }
    }
}

/// The cases stand at the edges of the grammar; bytes changed at random lead across them.
#[test]
fn no_mutation_of_a_case_depends_on_how_it_is_split() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |bound: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random >> 33).expect("31 bits") % bound.max(1)
    };
    const LURES: &[u8] = b"\r\n\r\n\n\r :;,09afF\0\x7f\xff";
    for mut case in cases() {
        let original = decode_base64(&case.input);
        for round in 0..ROUNDS {
            case.tight = round % 2 == 1;
            let mut input = original.clone();
            for _ in 0..=below(3) {
                let at = below(input.len() + 1);
                let lure = LURES[below(LURES.len())];
                match below(4) {
                    0 => input.insert(at, lure),
                    1 if at < input.len() => input[at] = lure,
                    2 if at < input.len() => drop(input.remove(at)),
                    _ => input.truncate(at.max(input.len() / 2)),
                }
            }
            let whole = case.run(&input, &[]);
            let (a, b) = (below(input.len()), below(input.len()));
            for cuts in [vec![a.min(b), a.max(b)], (0..input.len()).collect()] {
                let text = input.escape_ascii();
                assert_eq!(
                    case.run(&input, &cuts),
                    whole,
                    "{} cut {cuts:?}: {text}",
                    case.id
                );
            }
        }
    }
}

#[test]
fn replies_are_those_the_cases_suggest() {
    let text = include_str!("data/http1-conformance.jsonl");
    let mut failures = String::new();
    for line in text.lines() {
        let case: Case = serde_json::from_str(line).expect("a case");
        let value: Value = serde_json::from_str(line).expect("a case");
        let Some(reply) = value["expect"]["reply"].as_u64() else {
            continue;
        };
        let outcome = case.run(&decode_base64(&case.input), &[]);
        if let Err((_, seen)) = outcome
            && mismatch(&outcome, &case.expect).is_none()
            && u64::from(seen) != reply
        {
            let _ = writeln!(failures, "{}: reply {seen}, suggested {reply}", case.id);
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
}
