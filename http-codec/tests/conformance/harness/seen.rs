//! What the codec makes of a case.

use std::fmt;

use bytes::BytesMut;
use http_codec::{
    BodyLength, ClientExchange, DecodeError, Fields, KeepAliveHint, Limits, RequestEvent,
    RequestHead, RequestWriter, ResponseEvent, ResponseHead, Reuse, ServerExchange, Version,
};

use super::case::{Case, Category, Framing, Kind};

/// A whole message; or why there is none, and the status to answer with.
pub(crate) type Outcome = Result<Seen, (Category, u16)>;

/// A whole message, bytes as U+0000 to U+00FF, names of fields in lower case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) status: Option<u16>,
    pub(crate) method: Option<String>,
    pub(crate) target: Option<String>,
    pub(crate) version: String,
    pub(crate) reason: Option<String>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) trailers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) body_framing: Framing,
    pub(crate) keep_alive: bool,
    pub(crate) consumed: usize,
    pub(crate) interim: Vec<u16>,
    pub(crate) upgrade: bool,
    pub(crate) expect_continue: bool,
    pub(crate) hint: KeepAliveHint,
}

/// In one line, what tells messages apart most often.
impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.status, &self.method, &self.target) {
            (Some(status), ..) => write!(f, "a response {status}")?,
            (None, Some(method), Some(target)) => write!(f, "a request {method} {target}")?,
            _ => f.write_str("no message")?,
        }
        let (framing, body) = (self.body_framing, self.body.escape_ascii());
        write!(f, ", framing {framing:?}, body \"{body}\"")
    }
}

/// The input in pieces, then the end of file.
struct Feed<'i> {
    pieces: std::vec::IntoIter<&'i [u8]>,
    src: BytesMut,
    fed: usize,
    eof: bool,
}

impl<'i> Feed<'i> {
    fn new(input: &'i [u8], cuts: &[usize]) -> Self {
        let mut pieces = Vec::new();
        let mut start = 0;
        for &cut in cuts {
            pieces.push(&input[start..cut]);
            start = cut;
        }
        pieces.push(&input[start..]);
        Self {
            pieces: pieces.into_iter(),
            src: BytesMut::new(),
            fed: 0,
            eof: false,
        }
    }

    fn more(&mut self) {
        match self.pieces.next() {
            Some(piece) => {
                self.src.extend_from_slice(piece);
                self.fed += piece.len();
            }
            None => {
                assert!(!self.eof, "the codec waits after the end of file");
                self.eof = true;
            }
        }
    }

    fn consumed(&self) -> usize {
        self.fed - self.src.len()
    }
}

impl Case {
    /// Gives `input`, which may be another than the case's, to the codec in pieces that end at
    /// `cuts`, then the end of file.
    pub(crate) fn run(&self, input: &[u8], cuts: &[usize], limits: &Limits) -> Outcome {
        let feed = Feed::new(input, cuts);
        let outcome = match self.kind {
            Kind::Response => self.read_response(feed, input.len(), limits),
            Kind::Request => read_request(feed, limits),
        };
        outcome.map_err(|error| (Category::of(error.category()), error.reply_status()))
    }

    fn client(&self, limits: &Limits) -> ClientExchange {
        let target = match self.method() {
            "CONNECT" => "a.example:443",
            _ => "/",
        };
        let mut dst = BytesMut::new();
        let mut writer = RequestWriter::new(&mut dst, self.method(), target).expect("a line");
        writer.field("Host", "a.example").expect("a field");
        if self.request_upgrade {
            writer.field("Connection", "upgrade").expect("a field");
            writer.field("Upgrade", "websocket, h2c").expect("a field");
        }
        let sent = writer.finish(BodyLength::None).expect("a whole head");
        let mut exchange = ClientExchange::new(sent, limits);
        exchange.head_sent();
        exchange
    }

    fn read_response(
        &self,
        mut feed: Feed<'_>,
        input_len: usize,
        limits: &Limits,
    ) -> Result<Seen, DecodeError> {
        let mut exchange = self.client(limits);
        let mut seen = Seen::default();
        loop {
            let event = match feed.eof {
                true => exchange.decode_eof(&mut feed.src),
                false => exchange.decode(&mut feed.src),
            };
            match event? {
                ResponseEvent::NeedData => feed.more(),
                ResponseEvent::Interim(head) => seen.interim.push(head.status()),
                ResponseEvent::Head(head) => seen.take_response(&head),
                ResponseEvent::Data(data) => seen.body.extend_from_slice(&data),
                ResponseEvent::End(trailers) => {
                    seen.trailers = trailers.as_ref().map(pairs).unwrap_or_default();
                    break;
                }
            }
        }
        seen.consumed = feed.consumed();
        let unread = match self.outstanding {
            0 | 1 => input_len - seen.consumed,
            // They begin the next response.
            _ => 0,
        };
        seen.keep_alive = exchange.reuse(unread) == Reuse::KeepAlive;
        Ok(seen)
    }
}

fn read_request(mut feed: Feed<'_>, limits: &Limits) -> Result<Seen, DecodeError> {
    let mut exchange = ServerExchange::new(limits);
    let mut seen = Seen::default();
    loop {
        let event = match feed.eof {
            true => exchange.decode_eof(&mut feed.src),
            false => exchange.decode(&mut feed.src),
        };
        match event? {
            RequestEvent::NeedData => feed.more(),
            RequestEvent::Head(head) => seen.take_request(&head),
            RequestEvent::Data(data) => seen.body.extend_from_slice(&data),
            RequestEvent::End(trailers) => {
                seen.trailers = trailers.as_ref().map(pairs).unwrap_or_default();
                break;
            }
            // Nothing but empty lines.
            RequestEvent::Closed => return Ok(seen),
        }
    }
    seen.consumed = feed.consumed();
    // The verdict on the connection takes an answer, which must not decide it.
    let mut dst = BytesMut::new();
    let writer = exchange.respond(&mut dst, 404).expect("a response head");
    writer.finish(BodyLength::Exact(0)).expect("a whole head");
    seen.keep_alive = exchange.reuse() == Reuse::KeepAlive;
    Ok(seen)
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

    fn take_request(&mut self, head: &RequestHead) {
        self.method = Some(head.method().to_owned());
        self.target = Some(head.target().to_owned());
        self.version = version(head.version());
        self.headers = pairs(head.fields());
        self.body_framing = framing(head.body_length());
        self.upgrade = head.upgrade();
        self.expect_continue = head.expects_continue();
    }
}

fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|&b| char::from(b)).collect()
}

fn pairs(fields: &Fields) -> Vec<(String, String)> {
    fields
        .iter()
        .map(|field| (field.name.to_lowercase(), latin1(field.value)))
        .collect()
}

fn framing(length: BodyLength) -> Framing {
    match length {
        BodyLength::None => Framing::None,
        BodyLength::Exact(_) => Framing::Length,
        BodyLength::Chunked => Framing::Chunked,
        BodyLength::UntilClose => Framing::UntilClose,
    }
}

fn version(version: Version) -> String {
    version.to_string().trim_start_matches("HTTP/").to_owned()
}
