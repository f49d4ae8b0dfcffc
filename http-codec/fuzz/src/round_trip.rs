//! The input is a list of choices here: see [`Message::of`] for their order.

use bytes::{BufMut, BytesMut};
use http_codec::{
    BodyLength, ClientExchange, DataFrame, DecodeError, DecodeErrorKind, EncodeError,
    InterimWriter, Limits, MustClose, RequestWriter, Reuse, ServerExchange,
};

use crate::decode::Message as Received;
use crate::head::{FieldList, Head, StartLine};
use crate::input::Input;
use crate::reader::{Event, Reader};

/// What the writers let through comes out of the other role's exchange as it went in. Names and
/// values are raw bytes of the input, so what could inject must be refused when it is written.
pub fn round_trip(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let request = Message::of(&mut input);
    let answer = Message::of(&mut input);
    let mut wire = BytesMut::new();
    let Ok((client, sent)) = send_request(&request, &mut wire) else {
        assert!(wire.is_empty(), "half a head");
        return;
    };
    let mut server = Reader::server(&limits());
    match receive(&mut server, &mut wire) {
        Ok(received) => sent.compare(received),
        // Writers leave the forms of targets to their callers; readers do not.
        Err(error) => {
            let refused = request.wild && error.category() == DecodeErrorKind::BadHead;
            assert!(refused, "{error}");
            return;
        }
    }
    assert!(wire.is_empty(), "bytes after the request");
    let Ok(sent) = send_response(server.server_exchange(), &answer, &mut wire) else {
        return;
    };
    let mut client = Reader::client(client, &limits());
    let received = receive(&mut client, &mut wire);
    sent.compare(received.expect("a response that was written"));
    assert!(wire.is_empty(), "bytes after the response");
    let (ours, theirs) = (server.reuse(0), client.reuse(0));
    assert_eq!(
        ours == Reuse::KeepAlive,
        theirs == Reuse::KeepAlive,
        "{ours}; {theirs}"
    );
}

/// Limits that no message here meets.
fn limits() -> Limits {
    Limits::default()
        .with_max_head_bytes(usize::MAX)
        .with_max_fields(usize::MAX)
        .with_max_target_bytes(usize::MAX)
        .with_max_trailer_bytes(usize::MAX)
        .with_max_interim(usize::MAX)
}

const METHODS: [&str; 8] = [
    "GET", "HEAD", "POST", "CONNECT", "OPTIONS", "PUT", "TRACE", "get",
];
const STATUSES: [u16; 9] = [0, 101, 200, 204, 205, 206, 304, 404, 500];

/// Those that a writer or the framing treats in a way of their own.
const NAMES: [&str; 12] = [
    "",
    "X-A",
    "Connection",
    "Upgrade",
    "Expect",
    "Content-Length",
    "Transfer-Encoding",
    "host",
    "Keep-Alive",
    "TE",
    "Trailer",
    "Set-Cookie",
];
const VALUES: [&str; 5] = ["", "close", "keep-alive", "Upgrade, close", "100-continue"];

/// What one side is going to say.
struct Message<'i> {
    method: &'i str,
    target: String,
    host: &'static str,
    /// Method and target are the input's: the reader may refuse them.
    wild: bool,
    /// Is the request one of HTTP/1.0?
    old: bool,
    status: u16,
    interim: u16,
    reason: Option<&'i [u8]>,
    close: bool,
    length: BodyLength,
    fields: Vec<(&'i [u8], &'i [u8])>,
    runs: Vec<&'i [u8]>,
    trailers: Vec<(&'i str, &'i [u8])>,
}

impl<'i> Message<'i> {
    fn of(input: &mut Input<'i>) -> Self {
        let flags = input.byte();
        let [wild, old, reason, close] = [1, 2, 4, 8].map(|flag| flags & flag != 0);
        let mut method = input.pick(&METHODS);
        let mut target = match (method, input.pick(&[0, 1, 2])) {
            ("CONNECT", _) => "a.example:443".to_owned(),
            ("OPTIONS", 1) => "*".to_owned(),
            (_, 2) => "http://b.example:80/x?y".to_owned(),
            _ => "/".to_owned(),
        };
        if wild {
            method = text(input.run());
            target = text(input.run()).to_owned();
        }
        let host = input.pick(&["a.example", "a.example:80", "[::1]:443", ""]);
        let status = match input.pick(&STATUSES) {
            0 => input.number(),
            status => status,
        };
        let interim = input.pick(&[0, 100, 102, 103, 199]);
        let reason = reason.then(|| input.run());
        let kind = input.byte();
        let fields = (0..input.byte() % 8)
            .map(|_| (input.word(&NAMES), input.word(&VALUES)))
            .collect();
        let trailers = (0..input.byte() % 4)
            .map(|_| (text(input.run()), input.run()))
            .collect();
        let runs: Vec<_> = (0..input.byte() % 5).map(|_| input.run()).collect();
        let sum = runs.iter().map(|run| run.len() as u64).sum();
        let length = match kind % 4 {
            0 => BodyLength::None,
            1 => BodyLength::Exact(sum),
            2 => BodyLength::Chunked,
            _ => BodyLength::UntilClose,
        };
        Self {
            method,
            target,
            host,
            wild,
            old,
            status,
            interim,
            reason,
            close,
            length,
            fields,
            runs,
            trailers,
        }
    }
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap_or("x")
}

/// What must come out at the other end.
#[derive(Debug, PartialEq, Eq)]
struct Sent {
    /// Method and target, or status and reason.
    start: [Vec<u8>; 2],
    interim: Vec<u16>,
    /// Without those that the codec writes by itself, which come last.
    fields: FieldList,
    body: Vec<u8>,
    trailers: FieldList,
    upgrade: bool,
    expects_continue: bool,
}

impl Sent {
    fn compare(&self, received: Received) {
        let head = received.head.expect("a head");
        let (start, expects_continue) = match head.start {
            StartLine::Request {
                method,
                target,
                expects_continue,
                ..
            } => ([method.into_bytes(), target.into_bytes()], expects_continue),
            StartLine::Response { status, reason, .. } => {
                ([status.to_string().into_bytes(), reason], false)
            }
        };
        let (fields, added) = head.fields.split_at(self.fields.len());
        for (name, _) in added {
            let ours = ["Content-Length", "Transfer-Encoding", "Connection"];
            assert!(ours.contains(&name.as_str()), "nobody wrote {name}");
        }
        let received = Self {
            start,
            interim: received.interim.iter().map(status_of).collect(),
            fields: fields.to_vec(),
            body: received.body,
            trailers: received.trailers.unwrap_or_default(),
            upgrade: head.upgrade,
            expects_continue,
        };
        assert_eq!(received, *self);
    }
}

fn status_of(head: &Head) -> u16 {
    match head.start {
        StartLine::Response { status, .. } => status,
        StartLine::Request { .. } => 0,
    }
}

fn send_request(
    message: &Message<'_>,
    wire: &mut BytesMut,
) -> Result<(ClientExchange, Sent), EncodeError> {
    let mut writer = RequestWriter::new(wire, message.method, &message.target)?;
    let mut fields = vec![("Host".to_owned(), message.host.into())];
    writer.field("Host", message.host)?;
    for &(name, value) in &message.fields {
        if writer.field(name, value).is_ok() {
            fields.push(line(name, value));
        }
    }
    let sent = writer.finish(message.length)?;
    // There is no other way to write HTTP/1.0, which knows no chunks.
    let old = message.old && message.length != BodyLength::Chunked;
    if old {
        let minor = message.method.len() + message.target.len() + " ".len() + " HTTP/1.".len();
        wire[minor] = b'0';
    }
    let mut exchange = ClientExchange::new(sent, &limits());
    let has_body = message.length != BodyLength::None;
    let body = put_body(message, has_body, wire, |len| exchange.frame_data(len));
    let chunked = message.length == BodyLength::Chunked;
    let trailers = put_end(message, chunked, wire, |trailers, wire| {
        exchange.frame_end(trailers, wire)
    });
    assert!(exchange.request_done());
    let sent = Sent {
        start: [message.method.into(), message.target.as_bytes().into()],
        interim: Vec::new(),
        fields,
        body,
        trailers,
        upgrade: sent.is_connect() || sent.upgrade_offered() && !old,
        expects_continue: sent.expects_continue() && !old,
    };
    Ok((exchange, sent))
}

/// Answers the request that `server` has read. Where that is refused, nothing but interim
/// responses was written.
fn send_response(
    server: &mut ServerExchange,
    message: &Message<'_>,
    wire: &mut BytesMut,
) -> Result<Sent, EncodeError> {
    let mut interim = Vec::new();
    let begun = server
        .interim(wire, message.interim)
        .map(InterimWriter::finish);
    // To an HTTP/1.0 client none is written.
    if begun.is_ok() && !wire.is_empty() {
        interim.push(message.interim);
    }
    let before = wire.len();
    let head = put_response_head(server, message, wire);
    assert!(head.is_ok() || wire.len() == before, "half a head");
    let (reason, fields) = head?;
    let has_body = server.body_allowed() && message.length != BodyLength::None;
    let chunked = has_body && find(&wire[before..], b"\r\nTransfer-Encoding: chunked\r\n");
    let body = put_body(message, has_body, wire, |len| server.frame_data(len));
    let trailers = put_end(message, chunked, wire, |trailers, wire| {
        server.frame_end(trailers, wire)
    });
    assert!(server.response_done());
    Ok(Sent {
        start: [message.status.to_string().into(), reason],
        interim,
        fields,
        body,
        trailers,
        upgrade: server.reuse() == Reuse::MustClose(MustClose::Upgraded),
        expects_continue: false,
    })
}

/// Returns the reason and the fields that were written.
fn put_response_head(
    server: &mut ServerExchange,
    message: &Message<'_>,
    wire: &mut BytesMut,
) -> Result<(Vec<u8>, FieldList), EncodeError> {
    let mut writer = server.respond(wire, message.status)?;
    let reason = message.reason.unwrap_or(b"Reason");
    let reason = match writer.reason(reason) {
        Ok(()) => reason,
        Err(_) => {
            writer.reason(b"")?;
            b""
        }
    };
    let mut fields = Vec::new();
    for &(name, value) in &message.fields {
        if writer.field(name, value).is_ok() {
            fields.push(line(name, value));
        }
    }
    if message.close {
        writer.close();
    }
    writer.finish(message.length)?;
    Ok((trimmed(reason).to_vec(), fields))
}

fn put_body(
    message: &Message<'_>,
    has_body: bool,
    wire: &mut BytesMut,
    mut frame: impl FnMut(usize) -> Result<DataFrame, EncodeError>,
) -> Vec<u8> {
    let runs = if has_body { &message.runs[..] } else { &[] };
    for run in runs {
        let frame = frame(run.len()).expect("data that was promised");
        wire.put_slice(frame.prefix.as_ref());
        wire.put_slice(run);
        wire.put_slice(frame.suffix);
    }
    runs.concat()
}

/// Returns the trailers that were written.
fn put_end(
    message: &Message<'_>,
    chunked: bool,
    wire: &mut BytesMut,
    mut end: impl FnMut(Option<&[(&str, &[u8])]>, &mut BytesMut) -> Result<(), EncodeError>,
) -> FieldList {
    let before = wire.len();
    if end(Some(&message.trailers), wire).is_err() {
        assert_eq!(wire.len(), before, "half a trailer section");
        end(None, wire).expect("the end of the body");
        return FieldList::new();
    }
    let trailers = if chunked { &message.trailers[..] } else { &[] };
    trailers
        .iter()
        .map(|(name, value)| line(name.as_bytes(), value))
        .collect()
}

fn receive(reader: &mut Reader, wire: &mut BytesMut) -> Result<Received, DecodeError> {
    let mut received = Received::default();
    let mut eof = false;
    loop {
        match reader.next(wire, eof)? {
            Event::NeedData => eof = true,
            Event::Interim(head) => received.interim.push(head),
            Event::Head(head) => received.head = Some(head),
            Event::Data(data) => received.body.extend_from_slice(&data),
            Event::End(trailers) => {
                received.trailers = trailers;
                return Ok(received);
            }
            Event::Closed => panic!("a message was written"),
        }
    }
}

/// As the reader gives it.
fn line(name: &[u8], value: &[u8]) -> (String, Vec<u8>) {
    (
        String::from_utf8_lossy(name).into_owned(),
        trimmed(value).to_vec(),
    )
}

/// Blanks around a value mean nothing (RFC 9110 §5.5).
fn trimmed(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

fn find(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
