//! One request and its response over one connection, written and read side by side.

use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_codec::{ClientExchange, EncodeError, Limits, MustClose, ResponseEvent, Reuse};
use pool_core::{CloseReason, Connector, Pooled};

use crate::error::{ErrorKind, Failure, Phase, Sent};
use crate::outgoing::Outgoing;
use crate::transport::{Transport, WriteQueue};

/// The request body is asked for more only below this, so that a slow peer holds the body back.
const QUEUED_BYTES: usize = 64 << 10;

/// Room for a typical head.
const FIRST_READ: usize = 8 << 10;

/// Room for more, once a read has filled what there was.
const NEXT_READ: usize = 64 << 10;

/// An exchange under way. Dropping it closes the connection.
pub(crate) struct Exchange<C: Connector> {
    conn: Pooled<C>,
    codec: ClientExchange,
    outgoing: Outgoing,
    queue: WriteQueue,
    inbox: BytesMut,
    /// The request has been framed to its end and is in the queue, or has left.
    framed: bool,
    bytes_sent: u64,
    bytes_received: u64,
    read_size: usize,
    /// Writing is over for good; an answer may still come.
    write_failure: Option<std::io::Error>,
}

impl<C: Connector> Exchange<C>
where
    C::Connection: Transport,
{
    pub(crate) fn new(conn: Pooled<C>, outgoing: Outgoing, limits: &Limits) -> Self {
        let mut exchange = Self {
            conn,
            codec: ClientExchange::new(outgoing.sent, limits),
            queue: WriteQueue::default(),
            inbox: BytesMut::new(),
            framed: false,
            bytes_sent: 0,
            bytes_received: 0,
            read_size: FIRST_READ,
            write_failure: None,
            outgoing,
        };
        exchange.queue.push(exchange.outgoing.head.clone());
        exchange
    }

    /// Writes what can be written, and reads until there is an event.
    ///
    /// A write that fails ends the writing only: the peer may have answered before it closed.
    pub(crate) fn poll_event(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ResponseEvent, Failure>> {
        if let Err(failure) = self.pump(cx) {
            return Poll::Ready(Err(failure));
        }
        loop {
            match self.codec.decode(&mut self.inbox) {
                Ok(ResponseEvent::NeedData) => {}
                Ok(event) => return Poll::Ready(Ok(event)),
                Err(error) => return Poll::Ready(Err(self.decode_failure(error))),
            }
            match self.conn.poll_read_buf(cx, &mut self.inbox, self.read_size) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => {
                    let event = self.codec.decode_eof(&mut self.inbox);
                    return Poll::Ready(event.map_err(|error| self.decode_failure(error)));
                }
                Poll::Ready(Ok(n)) => {
                    self.bytes_received += n as u64;
                    if n == self.read_size {
                        self.read_size = NEXT_READ;
                    }
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(self.read_failure(error))),
            }
        }
    }

    /// Moves the request on: takes from its body, frames, writes. Fails only by the caller's
    /// fault.
    fn pump(&mut self, cx: &mut Context<'_>) -> Result<(), Failure> {
        while self.write_failure.is_none() {
            let body_waits = self.fill(cx)?;
            if self.queue.is_empty() {
                return Ok(());
            }
            let conn = &mut self.conn;
            match self
                .queue
                .poll_write(cx, |cx, slices| conn.poll_write_vectored(cx, slices))
            {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(n)) => {
                    self.codec.head_sent();
                    self.bytes_sent += n as u64;
                    if body_waits && self.queue.is_empty() {
                        return Ok(());
                    }
                }
                Poll::Ready(Err(error)) => {
                    self.queue.clear();
                    self.write_failure = Some(error);
                }
            }
        }
        Ok(())
    }

    /// Frames as much of the body as the queue takes. Returns whether the body has to be waited
    /// for.
    fn fill(&mut self, cx: &mut Context<'_>) -> Result<bool, Failure> {
        while !self.framed && self.queue.len() < QUEUED_BYTES {
            if let Some(body) = self.outgoing.whole_body() {
                self.frame(body)?;
                self.end(None)?;
                continue;
            }
            match self.outgoing.poll_frame(cx) {
                Poll::Pending => return Ok(true),
                Poll::Ready(None) => self.end(None)?,
                Poll::Ready(Some(Err(error))) => {
                    return Err(Failure::because(ErrorKind::RequestBody, error));
                }
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.frame(data)?,
                    Err(frame) => {
                        let trailers = frame.into_trailers().unwrap_or_default();
                        self.end(Some(&trailers))?;
                    }
                },
            }
        }
        Ok(false)
    }

    fn frame(&mut self, data: Bytes) -> Result<(), Failure> {
        if data.is_empty() {
            return Ok(());
        }
        let frame = self.codec.frame_data(data.len()).map_err(wrong_body)?;
        self.queue
            .push(Bytes::copy_from_slice(frame.prefix.as_ref()));
        self.queue.push(data);
        self.queue.push(Bytes::from_static(frame.suffix));
        Ok(())
    }

    fn end(&mut self, trailers: Option<&http::HeaderMap>) -> Result<(), Failure> {
        let trailers = trailers.map(|map| {
            let lines = map
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_bytes()));
            lines.collect::<Vec<_>>()
        });
        let mut end = BytesMut::new();
        self.codec
            .frame_end(trailers.as_deref(), &mut end)
            .map_err(wrong_body)?;
        self.queue.push(end.freeze());
        self.framed = true;
        Ok(())
    }

    fn decode_failure(&mut self, error: http_codec::DecodeError) -> Failure {
        let failure = Failure::of_decode(error, self.bytes_received > 0);
        match (failure.kind, self.write_failure.take()) {
            (ErrorKind::ClosedBeforeResponse, Some(error)) => {
                Failure::of_io(error, ErrorKind::WriteFailed)
            }
            _ => failure,
        }
    }

    fn read_failure(&mut self, error: std::io::Error) -> Failure {
        Failure::of_io(error, ErrorKind::Reset)
    }

    /// Gives the connection back if the exchange ended clean on both sides, else closes it.
    pub(crate) fn finish(self) {
        if !self.request_left() {
            return self.conn.close(CloseReason::ExchangeFailed);
        }
        match self.codec.reuse(self.inbox.len()) {
            Reuse::KeepAlive => self.conn.release(),
            Reuse::MustClose(why) => self.conn.close(close_reason(why)),
            Reuse::NotYet => self.conn.close(CloseReason::ExchangeFailed),
        }
    }

    /// Closes the connection because the exchange failed and takes the request out of it.
    pub(crate) fn fail(self) -> Outgoing {
        self.conn.close(CloseReason::ExchangeFailed);
        self.outgoing
    }

    /// Whether the kernel has taken the whole request.
    pub(crate) fn request_left(&self) -> bool {
        self.framed && self.queue.is_empty() && self.write_failure.is_none()
    }

    /// Bytes that the kernel has taken so far.
    pub(crate) fn bytes_sent(&self) -> u64 {
        self.bytes_sent
    }

    /// Whether a byte of an answer has come.
    pub(crate) fn has_answer(&self) -> bool {
        self.bytes_received > 0
    }

    pub(crate) fn is_reused(&self) -> bool {
        self.conn.is_reused()
    }

    pub(crate) fn sent(&self) -> Sent {
        match self.bytes_sent {
            0 => Sent::None,
            _ if self.request_left() => Sent::All,
            _ => Sent::Part,
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        if self.has_answer() {
            Phase::Receive
        } else if self.request_left() {
            Phase::Wait
        } else {
            Phase::Send
        }
    }
}

fn wrong_body(error: EncodeError) -> Failure {
    Failure::because(ErrorKind::RequestBody, error)
}

fn close_reason(why: MustClose) -> CloseReason {
    match why {
        MustClose::PeerClosed | MustClose::UntilClose => CloseReason::PeerClosed,
        MustClose::UnreadBytes => CloseReason::StrayBytes,
        MustClose::CloseSent | MustClose::CloseReceived | MustClose::Http10 => {
            CloseReason::ConnectionClose
        }
        _ => CloseReason::ExchangeFailed,
    }
}
