//! One HTTP/1.1 connection from the server's side: bytes in and out, nothing of time.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_client::WriteQueue;
use http_codec::{
    BodyLength, DecodeError, EncodeError, Fields, InterimWriter, Limits, RequestEvent, RequestHead,
    ResponseWriter, Reuse, ServerExchange, Version,
};
use pool_core::TcpStream;

use super::buffers::{Buffers, SMALL};

/// What a read asks for once one has filled a small buffer.
const LARGE: usize = 64 << 10;

/// With less room than this a read is not worth its syscall.
const LEAST_ROOM: usize = 1 << 10;

/// Unasked bytes are read only below this: pipelined requests stay with the client's kernel.
const READ_AHEAD: usize = 8 << 10;

/// A client's connection.
///
/// All methods take a shared reference, so that reading a request's body and writing a response
/// can go on side by side in one task. There is one waiter per direction, the last to poll. No
/// method lets go of the task while it borrows the inside.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    state: RefCell<State>,
}

#[derive(Debug)]
struct State {
    exchange: ServerExchange,
    inbox: BytesMut,
    outbox: WriteQueue,
    /// Heads and chunk prefixes are written here and move to the outbox.
    scratch: BytesMut,
    buffers: Buffers,
    read_size: usize,
    /// The client has closed its sending side.
    eof: bool,
    http10: bool,
    body_left: Option<u64>,
    /// The client waits for 100 before it sends the body.
    awaits_continue: bool,
    /// The body was asked for last, and has to be waited for.
    waits_for_body: bool,
    /// Only the close of the connection tells the client that the response is whole.
    ends_by_close: bool,
    received: u64,
    sent: u64,
}

/// A piece of a request's body.
#[derive(Debug)]
pub enum BodyPart {
    /// Bytes.
    Data(Bytes),
    /// The end, with trailers if there are any.
    End(Option<Fields>),
}

/// The client's side of the connection failed.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// What it sent is not a request, or not a whole one.
    #[error("the request cannot be read: {0}")]
    Malformed(#[source] DecodeError),
    /// It reset the connection, or the network did.
    #[error("the client went away: {0}")]
    Gone(#[source] io::Error),
}

impl Connection {
    /// Serves an accepted connection.
    #[must_use]
    pub fn new(stream: TcpStream, limits: &Limits, buffers: &Buffers) -> Self {
        let state = State {
            exchange: ServerExchange::new(limits),
            inbox: BytesMut::new(),
            outbox: WriteQueue::default(),
            scratch: BytesMut::new(),
            buffers: buffers.clone(),
            read_size: SMALL,
            eof: false,
            http10: false,
            body_left: Some(0),
            awaits_continue: false,
            waits_for_body: false,
            ends_by_close: false,
            received: 0,
            sent: 0,
        };
        Self {
            stream,
            state: RefCell::new(state),
        }
    }

    /// The socket.
    #[must_use]
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// The client's address.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.stream.peer_addr()
    }

    /// Takes the head of the next request; `None` when the client closed between requests. While
    /// it waits for the first byte, the connection holds no buffer.
    ///
    /// # Errors
    ///
    /// [`Fault`]; a malformed request may still be answered.
    ///
    /// # Panics
    ///
    /// Panics in the middle of an exchange: [`start_next`](Self::start_next) comes first.
    pub fn poll_request(&self, cx: &mut Context<'_>) -> Poll<Result<Option<RequestHead>, Fault>> {
        let state = &mut *self.state.borrow_mut();
        loop {
            match state.decode()? {
                RequestEvent::NeedData => {}
                RequestEvent::Head(head) => {
                    state.note(&head);
                    return Poll::Ready(Ok(Some(head)));
                }
                RequestEvent::Closed => return Poll::Ready(Ok(None)),
                RequestEvent::Data(_) | RequestEvent::End(_) => {
                    unreachable!("the last exchange has not ended")
                }
            }
            let read = state.poll_read(&self.stream, cx);
            if read.is_pending() && state.inbox.is_empty() {
                state.buffers.give_back(&mut state.scratch);
            }
            ready!(read)?;
        }
    }

    /// Takes the next piece of the request's body. The first call says `100 Continue` to a client
    /// that waits for it.
    ///
    /// # Errors
    ///
    /// [`Fault`]; a malformed request may still be answered.
    ///
    /// # Panics
    ///
    /// Panics if no request is there.
    pub fn poll_body(&self, cx: &mut Context<'_>) -> Poll<Result<BodyPart, Fault>> {
        let state = &mut *self.state.borrow_mut();
        state.say_continue();
        state.waits_for_body = false;
        loop {
            match state.decode()? {
                RequestEvent::NeedData => {}
                RequestEvent::Data(data) => {
                    state.body_left = state.body_left.map(|left| left - data.len() as u64);
                    return Poll::Ready(Ok(BodyPart::Data(data)));
                }
                RequestEvent::End(trailers) => return Poll::Ready(Ok(BodyPart::End(trailers))),
                RequestEvent::Head(_) | RequestEvent::Closed => unreachable!("no request is there"),
            }
            let read = state.poll_read(&self.stream, cx);
            state.waits_for_body = read.is_pending();
            ready!(read)?;
        }
    }

    /// Ready once the client has reset the connection, or the network has failed.
    ///
    /// A client that has closed only its sending side still waits for its answer, so a FIN is
    /// noted and nothing else. What comes in unasked is kept, up to a bound; beyond it, and behind
    /// a FIN, only the socket's state is watched.
    pub fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<Fault> {
        let state = &mut *self.state.borrow_mut();
        while !state.eof && state.inbox.len() < READ_AHEAD {
            if let Err(fault) = ready!(state.poll_read(&self.stream, cx)) {
                return Poll::Ready(fault);
            }
        }
        let reset = self.stream.poll_reset(cx);
        reset.map(|()| Fault::Gone(io::ErrorKind::ConnectionReset.into()))
    }

    /// Reads and forgets, until the client has closed.
    pub fn poll_discard(&self, cx: &mut Context<'_>) -> Poll<()> {
        let state = &mut *self.state.borrow_mut();
        while !state.eof {
            state.inbox.clear();
            if ready!(state.poll_read(&self.stream, cx)).is_err() {
                break;
            }
        }
        Poll::Ready(())
    }

    /// Queues an interim response; an HTTP/1.0 client gets none.
    ///
    /// # Errors
    ///
    /// As [`ServerExchange::interim`], and those of `fields`. Nothing is queued then.
    pub fn interim(
        &self,
        status: u16,
        fields: impl FnOnce(&mut InterimWriter<'_>) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        self.state.borrow_mut().interim(status, fields)
    }

    /// Queues the head of the final response: [`Session::respond`](super::Session::respond).
    pub(super) fn respond(
        &self,
        status: u16,
        length: BodyLength,
        fields: impl FnOnce(&mut ResponseWriter<'_>) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        let state = &mut *self.state.borrow_mut();
        state.make_room();
        let mut writer = state.exchange.respond(&mut state.scratch, status)?;
        fields(&mut writer)?;
        writer.finish(length)?;
        state.outbox.push(state.scratch.split().freeze());
        let until_close = match length {
            BodyLength::UntilClose => true,
            BodyLength::Chunked => state.http10,
            BodyLength::None | BodyLength::Exact(_) => false,
        };
        state.ends_by_close = until_close && state.exchange.body_allowed();
        Ok(())
    }

    /// Queues a piece of the response's body.
    ///
    /// # Errors
    ///
    /// As [`ServerExchange::frame_data`].
    pub fn push(&self, data: Bytes) -> Result<(), EncodeError> {
        let state = &mut *self.state.borrow_mut();
        let frame = state.exchange.frame_data(data.len())?;
        if !frame.prefix.as_ref().is_empty() {
            state.make_room();
            state.scratch.extend_from_slice(frame.prefix.as_ref());
            state.outbox.push(state.scratch.split().freeze());
        }
        state.outbox.push(data);
        state.outbox.push(Bytes::from_static(frame.suffix));
        Ok(())
    }

    /// Queues the end of the response's body.
    ///
    /// # Errors
    ///
    /// As [`ServerExchange::frame_end`].
    pub fn end(&self, trailers: Option<&[(&str, &[u8])]>) -> Result<(), EncodeError> {
        let state = &mut *self.state.borrow_mut();
        state.make_room();
        state.exchange.frame_end(trailers, &mut state.scratch)?;
        state.outbox.push(state.scratch.split().freeze());
        Ok(())
    }

    /// Writes until nothing is queued: [`Session::poll_flush`](super::Session::poll_flush), which
    /// keeps the clock. So nobody else writes.
    pub(super) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let State { outbox, sent, .. } = &mut *self.state.borrow_mut();
        while !outbox.is_empty() {
            let written =
                outbox.poll_write(cx, |cx, slices| self.stream.poll_write_vectored(cx, slices));
            *sent += ready!(written)? as u64;
        }
        Poll::Ready(Ok(()))
    }

    /// How many bytes are queued.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.state.borrow().outbox.len()
    }

    /// Whether bytes have come in that nothing has taken yet.
    #[must_use]
    pub fn has_unread(&self) -> bool {
        !self.state.borrow().inbox.is_empty()
    }

    /// Whether the client waits for 100 before it sends the body.
    #[must_use]
    pub fn awaits_continue(&self) -> bool {
        self.state.borrow().awaits_continue
    }

    /// Whether the body was asked for since [`forget_body_wait`](Self::forget_body_wait), and the
    /// next of it has not come.
    pub(super) fn waits_for_body(&self) -> bool {
        self.state.borrow().waits_for_body
    }

    pub(super) fn forget_body_wait(&self) {
        self.state.borrow_mut().waits_for_body = false;
    }

    /// How much of the request's body is unread, where that is known.
    #[must_use]
    pub fn body_left(&self) -> Option<u64> {
        self.state.borrow().body_left
    }

    /// As [`ServerExchange::request_done`].
    #[must_use]
    pub fn request_done(&self) -> bool {
        self.state.borrow().exchange.request_done()
    }

    /// As [`ServerExchange::response_started`].
    #[must_use]
    pub fn response_started(&self) -> bool {
        self.state.borrow().exchange.response_started()
    }

    /// As [`ServerExchange::body_allowed`].
    #[must_use]
    pub fn body_allowed(&self) -> bool {
        self.state.borrow().exchange.body_allowed()
    }

    /// As [`ServerExchange::reuse`].
    #[must_use]
    pub fn reuse(&self) -> Reuse {
        self.state.borrow().exchange.reuse()
    }

    /// As [`ServerExchange::start_next`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn start_next(&self) -> Result<(), EncodeError> {
        let state = &mut *self.state.borrow_mut();
        state.exchange.start_next()?;
        state.read_size = SMALL;
        state.ends_by_close = false;
        Ok(())
    }

    /// Bytes received and sent so far.
    #[must_use]
    pub fn traffic(&self) -> (u64, u64) {
        let state = self.state.borrow();
        (state.received, state.sent)
    }
}

impl State {
    fn decode(&mut self) -> Result<RequestEvent, Fault> {
        let event = match self.eof {
            true => self.exchange.decode_eof(&mut self.inbox),
            false => self.exchange.decode(&mut self.inbox),
        };
        event.map_err(Fault::Malformed)
    }

    fn note(&mut self, head: &RequestHead) {
        self.http10 = head.version() == Version::Http10;
        self.awaits_continue = head.expects_continue();
        self.body_left = head.body_length().bytes();
    }

    /// A client that has sent some of the body already needs no 100 (RFC 9110 §10.1.1), and one
    /// that has its answer must not get one.
    fn say_continue(&mut self) {
        if std::mem::take(&mut self.awaits_continue)
            && self.inbox.is_empty()
            && !self.exchange.request_done()
        {
            // It fails only when the final response has begun.
            let _ = self.interim(100, |_| Ok(()));
        }
    }

    fn interim(
        &mut self,
        status: u16,
        fields: impl FnOnce(&mut InterimWriter<'_>) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        self.make_room();
        let mut writer = self.exchange.interim(&mut self.scratch, status)?;
        fields(&mut writer)?;
        writer.finish();
        self.outbox.push(self.scratch.split().freeze());
        Ok(())
    }

    fn make_room(&mut self) {
        if self.scratch.capacity() == 0 {
            self.scratch = self.buffers.take();
        } else {
            self.scratch.reserve(LEAST_ROOM);
        }
    }

    /// Reads once into the inbox; an empty one is given back while there is nothing to read.
    fn poll_read(&mut self, stream: &TcpStream, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        if self.inbox.capacity() - self.inbox.len() < LEAST_ROOM {
            if self.inbox.is_empty() && self.read_size == SMALL {
                self.inbox = self.buffers.take();
            } else {
                self.inbox.reserve(self.read_size);
            }
        }
        match stream.poll_read_buf(cx, &mut self.inbox, self.read_size) {
            Poll::Pending => {
                if self.inbox.is_empty() {
                    self.buffers.give_back(&mut self.inbox);
                }
                return Poll::Pending;
            }
            Poll::Ready(Ok(0)) => self.eof = true,
            Poll::Ready(Ok(n)) => {
                self.received += n as u64;
                // What is kept of a buffer keeps all of it, so a slow client gets small ones.
                self.read_size = if n >= SMALL { LARGE } else { SMALL };
            }
            Poll::Ready(Err(error)) => return Poll::Ready(Err(Fault::Gone(error))),
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let whole = state.exchange.response_done() && state.outbox.is_empty();
        if state.ends_by_close && !whole {
            // A FIN would tell the client that it has the whole of a body that broke off.
            let _ = self.stream.reset_on_drop();
        }
    }
}
