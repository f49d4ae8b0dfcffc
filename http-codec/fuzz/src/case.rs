use bytes::BytesMut;
use http_codec::{BodyLength, ClientExchange, Limits, RequestWriter, SentRequest};

use crate::input::Input;
use crate::reader::Reader;

/// What the decoding targets make of their input: two bytes of limits, one that says what is read,
/// six of places to cut, and the stream.
pub(crate) struct Case<'i> {
    pub(crate) limits: Limits,
    /// Is the stream a server's?
    pub(crate) is_response: bool,
    pub(crate) sent: SentRequest,
    /// In order, and within the stream.
    pub(crate) cuts: [usize; 3],
    pub(crate) stream: &'i [u8],
}

impl<'i> Case<'i> {
    pub(crate) fn of(bytes: &'i [u8]) -> Self {
        let mut input = Input::new(bytes);
        let limits = limits(input.number());
        let what = input.byte();
        let places = [(); 3].map(|()| usize::from(input.number()));
        let stream = input.rest();
        let mut cuts = places.map(|place| place % (stream.len() + 1));
        cuts.sort_unstable();
        Self {
            limits,
            is_response: what & 1 != 0,
            sent: request(what >> 1),
            cuts,
            stream,
        }
    }

    /// A reader of requests or responses, as the case has it.
    pub(crate) fn reader(&self) -> Reader {
        if self.is_response {
            let exchange = ClientExchange::new(self.sent, &self.limits);
            Reader::client(exchange, &self.limits)
        } else {
            Reader::server(&self.limits)
        }
    }
}

/// Two bits for each limit: the default, one that most messages meet, next to nothing, none.
fn limits(bits: u16) -> Limits {
    let choose = |index: u16, usual: usize, tight: usize| match bits >> (2 * index) & 3 {
        0 => usual,
        1 => tight,
        2 => tight % 3,
        _ => usize::MAX,
    };
    let usual = Limits::default();
    let body = match choose(7, usize::MAX, 6) {
        usize::MAX => None,
        bytes => Some(bytes as u64),
    };
    usual
        .with_max_head_bytes(choose(0, usual.max_head_bytes(), 64))
        .with_max_fields(choose(1, usual.max_fields(), 2))
        .with_max_target_bytes(choose(2, usual.max_target_bytes(), 8))
        .with_max_chunk_line_bytes(choose(3, usual.max_chunk_line_bytes(), 7))
        .with_max_chunk_extension_bytes(choose(4, usual.max_chunk_extension_bytes(), 4))
        .with_max_trailer_bytes(choose(5, usual.max_trailer_bytes(), 13))
        .with_max_interim(choose(6, usual.max_interim(), 1))
        .with_max_body_bytes(body)
}

/// A request for the response to answer.
fn request(bits: u8) -> SentRequest {
    let (method, target) = [
        ("GET", "/"),
        ("HEAD", "/"),
        ("CONNECT", "a.example:443"),
        ("POST", "/"),
    ][usize::from(bits & 3)];
    let mut head = BytesMut::new();
    let mut writer = RequestWriter::new(&mut head, method, target).expect("a request line");
    let mut field = |name, value| writer.field(name, value).expect("a field");
    field("Host", "a.example");
    if bits & 4 != 0 {
        field("Connection", "upgrade");
        field("Upgrade", "websocket");
    }
    if bits & 8 != 0 {
        field("Connection", "close");
    }
    let body = match method {
        // Nobody writes it: the request is still under way when the response has ended.
        "POST" if bits & 16 != 0 => BodyLength::Exact(3),
        _ => BodyLength::None,
    };
    writer.finish(body).expect("a whole head")
}
