//! Drivers that the tests share: one exchange over bytes in memory.
#![allow(dead_code)] // each test binary uses its part

use bytes::BytesMut;
use http_codec::{
    BodyLength, ClientExchange, DecodeError, Fields, Limits, RequestEvent, RequestHead,
    RequestWriter, ResponseEvent, ResponseHead, ServerExchange,
};

/// Begins the exchange of a bodiless request.
pub(crate) fn client(method: &str, limits: &Limits) -> ClientExchange {
    let mut dst = BytesMut::new();
    let target = if method == "CONNECT" {
        "a.example:443"
    } else {
        "/"
    };
    let mut writer = RequestWriter::new(&mut dst, method, target).expect("a request line");
    writer.field("Host", "a.example").expect("a field");
    let sent = writer.finish(BodyLength::None).expect("a whole head");
    let mut exchange = ClientExchange::new(sent, limits);
    exchange.head_sent();
    exchange
}

/// A response read to its end.
#[derive(Debug, Default)]
pub(crate) struct Received {
    pub(crate) interim: Vec<u16>,
    pub(crate) head: Option<ResponseHead>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<Fields>,
}

impl Received {
    pub(crate) fn status(&self) -> u16 {
        self.head.as_ref().map_or(0, ResponseHead::status)
    }
}

/// Reads one response, as far as `src` goes; `None` when it goes on beyond it.
pub(crate) fn receive(
    exchange: &mut ClientExchange,
    src: &mut BytesMut,
) -> Result<Option<Received>, DecodeError> {
    let mut received = Received::default();
    loop {
        match exchange.decode(src)? {
            ResponseEvent::NeedData => return Ok(None),
            ResponseEvent::Interim(head) => received.interim.push(head.status()),
            ResponseEvent::Head(head) => received.head = Some(head),
            ResponseEvent::Data(data) => received.body.extend_from_slice(&data),
            ResponseEvent::End(trailers) => {
                received.trailers = trailers;
                return Ok(Some(received));
            }
        }
    }
}

/// Reads one request with its body.
pub(crate) fn accept(
    exchange: &mut ServerExchange,
    src: &mut BytesMut,
) -> Result<Option<(RequestHead, Vec<u8>)>, DecodeError> {
    let (mut head, mut body) = (None, Vec::new());
    loop {
        match exchange.decode(src)? {
            RequestEvent::NeedData | RequestEvent::Closed => return Ok(None),
            RequestEvent::Head(received) => head = Some(received),
            RequestEvent::Data(data) => body.extend_from_slice(&data),
            RequestEvent::End(_) => return Ok(head.map(|head| (head, body))),
        }
    }
}
