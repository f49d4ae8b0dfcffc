//! Typical messages, and what the codec and the parser under it do with them.

use std::hint::black_box;
use std::mem::MaybeUninit;

use bytes::{BufMut, Bytes, BytesMut};
use http_codec::{
    BodyLength, ClientExchange, FieldSlots, Limits, RequestEvent, RequestHead, RequestView,
    RequestWriter, ResponseEvent, ResponseHead, ResponseView, SentRequest, ServerExchange,
};

/// A response head as an API's server sends it.
pub const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Date: Mon, 30 Nov 2026 12:00:00 GMT\r\n\
    Content-Type: application/json; charset=utf-8\r\n\
    Content-Length: 1024\r\n\
    Connection: keep-alive\r\n\
    Cache-Control: private, max-age=60\r\n\
    ETag: \"5f3c-1a2b3c4d5e6f\"\r\n\
    Vary: Accept-Encoding\r\n\
    Server: nginx/1.22.1\r\n\r\n";

/// The fields of a request as a browser sends them.
pub const FIELDS: [(&str, &str); 12] = [
    ("Host", "www.example.org"),
    (
        "User-Agent",
        "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    ),
    (
        "Accept",
        "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    ),
    ("Accept-Language", "en-GB,en;q=0.5"),
    ("Accept-Encoding", "gzip, deflate, br, zstd"),
    ("Referer", "https://www.example.org/catalogue/index.html"),
    ("Connection", "keep-alive"),
    (
        "Cookie",
        "session=0123456789abcdef0123456789abcdef; theme=dark; consent=1",
    ),
    ("Upgrade-Insecure-Requests", "1"),
    ("Sec-Fetch-Dest", "document"),
    ("Sec-Fetch-Mode", "navigate"),
    ("Sec-Fetch-Site", "same-origin"),
];

/// The same as bytes.
pub const REQUEST: &[u8] = b"GET /catalogue/item/4711?colour=blue HTTP/1.1\r\n\
    Host: www.example.org\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: en-GB,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Referer: https://www.example.org/catalogue/index.html\r\n\
    Connection: keep-alive\r\n\
    Cookie: session=0123456789abcdef0123456789abcdef; theme=dark; consent=1\r\n\
    Upgrade-Insecure-Requests: 1\r\n\
    Sec-Fetch-Dest: document\r\n\
    Sec-Fetch-Mode: navigate\r\n\
    Sec-Fetch-Site: same-origin\r\n\r\n";

/// Bytes of the chunked body.
pub const BODY: usize = 1 << 20;

/// Bytes of each of its chunks.
pub const CHUNK: usize = 16 << 10;

const WHOLE: &str = "the head is whole and right";

/// Writes the request head.
///
/// # Panics
///
/// If the writer refuses it.
#[inline(never)]
pub fn encode(dst: &mut BytesMut) -> SentRequest {
    let writer = RequestWriter::new(dst, "GET", "/catalogue/item/4711?colour=blue");
    let mut writer = writer.expect(WHOLE);
    for (name, value) in FIELDS {
        writer.field(name, value).expect(WHOLE);
    }
    writer.finish(BodyLength::None).expect(WHOLE)
}

/// What a plain request leaves behind for its answer.
#[must_use]
pub fn sent() -> SentRequest {
    encode(&mut BytesMut::new())
}

/// The parser alone.
#[inline(never)]
pub fn httparse_response(bytes: &[u8]) -> usize {
    let mut slots = [const { MaybeUninit::uninit() }; FieldSlots::CAPACITY];
    let mut response = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let parsed = config.parse_response_with_uninit_headers(&mut response, bytes, &mut slots);
    black_box(&response);
    parsed.map_or(0, |status| status.unwrap())
}

/// The parser alone.
#[inline(never)]
pub fn httparse_request(bytes: &[u8]) -> usize {
    let mut slots = [const { MaybeUninit::uninit() }; FieldSlots::CAPACITY];
    let mut request = httparse::Request::new(&mut []);
    let parsed = request.parse_with_uninit_headers(bytes, &mut slots);
    black_box(&request);
    parsed.map_or(0, |status| status.unwrap())
}

/// The head in place.
///
/// # Panics
///
/// If the codec refuses it.
#[inline(never)]
pub fn view_response(bytes: &[u8], sent: SentRequest) -> usize {
    let mut slots = FieldSlots::new();
    let parsed = ResponseView::parse(bytes, sent, &Limits::default(), &mut slots);
    let (head, len) = parsed.expect(WHOLE).expect(WHOLE);
    black_box(&head);
    len
}

/// The head in place.
///
/// # Panics
///
/// If the codec refuses it.
#[inline(never)]
pub fn view_request(bytes: &[u8]) -> usize {
    let mut slots = FieldSlots::new();
    let parsed = RequestView::parse(bytes, &Limits::default(), &mut slots);
    let (head, len) = parsed.expect(WHOLE).expect(WHOLE);
    black_box(&head);
    len
}

/// The head as the exchange gives it out.
///
/// # Panics
///
/// If the codec refuses it.
#[inline(never)]
pub fn exchange_response(src: &mut BytesMut, sent: SentRequest) -> ResponseHead {
    let mut exchange = ClientExchange::new(sent, &Limits::default());
    match exchange.decode(src) {
        Ok(ResponseEvent::Head(head)) => head,
        other => panic!("{WHOLE}: {other:?}"),
    }
}

/// The head as the exchange gives it out.
///
/// # Panics
///
/// If the codec refuses it.
#[inline(never)]
pub fn exchange_request(src: &mut BytesMut) -> RequestHead {
    let mut exchange = ServerExchange::new(&Limits::default());
    match exchange.decode(src) {
        Ok(RequestEvent::Head(head)) => head,
        other => panic!("{WHOLE}: {other:?}"),
    }
}

/// A response with a chunked body, and the exchange that has read its head.
///
/// # Panics
///
/// If the codec refuses the head.
#[must_use]
pub fn chunked() -> (ClientExchange, BytesMut) {
    let mut src = BytesMut::from(&b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"[..]);
    let chunk = vec![b'x'; CHUNK];
    for _ in 0..BODY / CHUNK {
        src.extend_from_slice(format!("{CHUNK:x}\r\n").as_bytes());
        src.put_slice(&chunk);
        src.put_slice(b"\r\n");
    }
    src.put_slice(b"0\r\n\r\n");
    let mut exchange = ClientExchange::new(sent(), &Limits::default());
    let head = exchange.decode(&mut src);
    assert!(matches!(head, Ok(ResponseEvent::Head(_))), "{WHOLE}");
    (exchange, src)
}

/// Reads the body to its end; returns its length.
///
/// # Panics
///
/// If it is not whole.
#[inline(never)]
pub fn read_body((exchange, src): &mut (ClientExchange, BytesMut)) -> usize {
    let mut len = 0;
    loop {
        match exchange.decode(src) {
            Ok(ResponseEvent::Data(data)) => len += black_box::<Bytes>(data).len(),
            Ok(ResponseEvent::End(_)) => return len,
            other => panic!("a whole body: {other:?}"),
        }
    }
}
