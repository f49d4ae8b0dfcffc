//! Whole exchanges over memory, of the codec and of hyper, whose public face has nothing smaller: its
//! connections read, write and keep state. Both sides of the comparison do the same: the client
//! writes a request of 12 fields and reads a response of 8 fields and 1 KiB, the server reads that
//! request and answers two bytes.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::Future;
use std::hint::black_box;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::Body as _;
use http_body_util::{Empty, Full};
use http_codec::{
    BodyLength, ClientExchange, Limits, RequestEvent, RequestWriter, ResponseEvent, Reuse,
    ServerExchange,
};
use hyper::client::conn::http1 as client;
use hyper::rt::ReadBufCursor;
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;

use crate::codec::{FIELDS, REQUEST, RESPONSE, encode};

const WHOLE: &str = "a whole exchange";
const TARGET: &str = "/catalogue/item/4711?colour=blue";
const ANSWER: &[u8] = b"ok";

/// The response and its body.
#[must_use]
pub fn response() -> Vec<u8> {
    let mut response = RESPONSE.to_vec();
    response.resize(RESPONSE.len() + 1024, b'x');
    response
}

/// The fields of the request as a map, which shares their bytes when it is cloned.
#[must_use]
pub fn header_map() -> HeaderMap {
    let fields = FIELDS.iter().map(|(name, value)| {
        let name: HeaderName = name.parse().expect("a name");
        (name, HeaderValue::from_static(value))
    });
    fields.collect()
}

/// A client's exchange by the codec. `dst` and `src` are the connection's buffers.
///
/// # Panics
///
/// If it fails.
#[inline(never)]
pub fn codec_client(dst: &mut BytesMut, src: &mut BytesMut, response: &[u8]) -> usize {
    dst.clear();
    let sent = encode(dst);
    read_response(ClientExchange::new(sent, &Limits::default()), src, response).1
}

/// The same from and to the types of the http crate.
///
/// # Panics
///
/// If it fails.
#[inline(never)]
pub fn codec_client_http(
    dst: &mut BytesMut,
    src: &mut BytesMut,
    response: &[u8],
    fields: &HeaderMap,
) -> usize {
    dst.clear();
    let request = black_box(request(fields));
    let method = request.method().as_str();
    let mut writer = RequestWriter::new(dst, method, TARGET).expect(WHOLE);
    for (name, value) in request.headers() {
        writer.field(name, value).expect(WHOLE);
    }
    let sent = writer.finish(BodyLength::None).expect(WHOLE);
    let exchange = ClientExchange::new(sent, &Limits::default());
    let (head, len) = read_response(exchange, src, response);
    black_box(head.to_http());
    len
}

fn read_response(
    mut exchange: ClientExchange,
    src: &mut BytesMut,
    response: &[u8],
) -> (http_codec::ResponseHead, usize) {
    exchange.head_sent();
    src.extend_from_slice(response);
    let head = match exchange.decode(src) {
        Ok(ResponseEvent::Head(head)) => head,
        other => panic!("{WHOLE}: {other:?}"),
    };
    let mut len = 0;
    loop {
        match exchange.decode(src) {
            Ok(ResponseEvent::Data(data)) => len += black_box(data).len(),
            Ok(ResponseEvent::End(_)) => break,
            other => panic!("{WHOLE}: {other:?}"),
        }
    }
    assert_eq!(exchange.reuse(src.len()), Reuse::KeepAlive, "{WHOLE}");
    (head, len)
}

/// A server's exchange by the codec.
///
/// # Panics
///
/// If it fails.
#[inline(never)]
pub fn codec_server(exchange: &mut ServerExchange, dst: &mut BytesMut, src: &mut BytesMut) {
    dst.clear();
    src.extend_from_slice(REQUEST);
    match exchange.decode(src) {
        Ok(RequestEvent::Head(head)) => drop(black_box(head)),
        other => panic!("{WHOLE}: {other:?}"),
    }
    assert!(matches!(exchange.decode(src), Ok(RequestEvent::End(_))));
    let writer = exchange.respond(dst, 200).expect(WHOLE);
    let length = ANSWER.len();
    writer
        .finish(BodyLength::Exact(length as u64))
        .expect(WHOLE);
    exchange.frame_data(length).expect(WHOLE);
    dst.extend_from_slice(ANSWER);
    exchange.frame_end(None, dst).expect(WHOLE);
    exchange.start_next().expect(WHOLE);
}

fn request(fields: &HeaderMap) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = TARGET.parse().expect("a target");
    *request.headers_mut() = fields.clone();
    request
}

/// The other side of a connection in memory.
#[derive(Clone, Default)]
struct Memory(Rc<Ends>);

#[derive(Default)]
struct Ends {
    /// What can be read.
    incoming: RefCell<Bytes>,
    /// Bytes written in all.
    written: Cell<usize>,
}

impl hyper::rt::Read for Memory {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut incoming = self.0.incoming.borrow_mut();
        if incoming.is_empty() {
            // Everything is polled until it is done, woken or not.
            return Poll::Pending;
        }
        let room = buf.remaining().min(incoming.len());
        buf.put_slice(&incoming.split_to(room));
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Memory {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        black_box(buf);
        self.0.written.set(self.0.written.get() + buf.len());
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A connection of hyper's client that stays open.
pub struct HyperClient {
    memory: Memory,
    sender: client::SendRequest<Empty<Bytes>>,
    connection: Pin<Box<client::Connection<Memory, Empty<Bytes>>>>,
    response: Bytes,
    fields: HeaderMap,
}

impl HyperClient {
    /// A connection whose other side gives this response to every request.
    ///
    /// # Panics
    ///
    /// If hyper refuses it.
    #[must_use]
    pub fn new(response: Vec<u8>) -> Self {
        let memory = Memory::default();
        let handshake = client::handshake(memory.clone());
        let (sender, connection) = poll_until_done(handshake, || {}).expect(WHOLE);
        Self {
            memory,
            sender,
            connection: Box::pin(connection),
            response: response.into(),
            fields: header_map(),
        }
    }

    /// One exchange; returns the length of the response's body.
    ///
    /// # Panics
    ///
    /// If it fails.
    #[inline(never)]
    pub fn exchange(&mut self) -> usize {
        *self.memory.0.incoming.borrow_mut() = Bytes::new();
        let (written, memory) = (self.memory.0.written.get(), &self.memory);
        let (sender, connection) = (&mut self.sender, &mut self.connection);
        let exchange = async {
            let response = sender.send_request(request(&self.fields)).await;
            let (head, mut body) = response.expect(WHOLE).into_parts();
            black_box(head);
            let mut len = 0;
            while let Some(frame) =
                std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await
            {
                let data = frame.expect(WHOLE).into_data();
                len += black_box(data).map_or(0, |data| data.len());
            }
            len
        };
        let mut answered = false;
        poll_until_done(exchange, || {
            if !answered && memory.0.written.get() > written {
                answered = true;
                *memory.0.incoming.borrow_mut() = self.response.clone();
            }
            let polled = connection
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending(), "the connection has ended");
        })
    }
}

/// Polls `future`, and does `between` before each time.
fn poll_until_done<F: Future>(future: F, mut between: impl FnMut()) -> F::Output {
    let mut future = pin!(future);
    loop {
        between();
        let polled = future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(output) = polled {
            return output;
        }
    }
}

/// A connection of hyper's server that stays open.
pub struct HyperServer {
    memory: Memory,
    connection: Pin<Box<dyn Future<Output = hyper::Result<()>>>>,
}

impl HyperServer {
    /// A connection that answers every request with two bytes.
    #[must_use]
    pub fn new() -> Self {
        let memory = Memory::default();
        let service = service_fn(|request: Request<hyper::body::Incoming>| async {
            black_box(request);
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(ANSWER))))
        });
        let connection = server::Builder::new()
            .auto_date_header(false)
            .serve_connection(memory.clone(), service);
        Self {
            memory,
            connection: Box::pin(connection),
        }
    }

    /// One exchange.
    ///
    /// # Panics
    ///
    /// If it fails.
    #[inline(never)]
    pub fn exchange(&mut self) {
        let written = self.memory.0.written.get();
        *self.memory.0.incoming.borrow_mut() = Bytes::from_static(REQUEST);
        let mut cx = Context::from_waker(Waker::noop());
        while self.memory.0.written.get() == written {
            let polled = self.connection.as_mut().poll(&mut cx);
            assert!(polled.is_pending(), "the connection has ended");
        }
    }
}

impl Default for HyperServer {
    fn default() -> Self {
        Self::new()
    }
}
