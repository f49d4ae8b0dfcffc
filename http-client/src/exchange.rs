//! One request and its response over one connection, written and read side by side.

use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_codec::{
    BodyLength, ClientExchange, EncodeError, KeepAliveHint, MustClose, ResponseEvent, Reuse,
};
use pool_core::{CloseReason, Connector, Core, Pooled};

use crate::client::ClientConfig;
use crate::destination::Destination;
use crate::drain::DrainLimits;
use crate::error::{At, ErrorKind, Failure, Phase, Sent};
use crate::outgoing::Outgoing;
use crate::timeouts::Timeouts;
use crate::timer::ProgressTimer;
use crate::transport::{Transport, WriteQueue};
use crate::tunnel::Tunnel;

/// The request body is asked for more only below this, so that a slow peer holds the body back.
const QUEUED_BYTES: usize = 64 << 10;

/// Room for a typical head.
const FIRST_READ: usize = 8 << 10;

/// Room for more, once a read has filled what there was.
const NEXT_READ: usize = 64 << 10;

/// How many frames without data a request body may give before others get their turn.
const EMPTY_FRAMES: usize = 64;

/// An exchange under way. Dropping it closes the connection.
pub(crate) struct Exchange<C: Connector> {
    conn: Pooled<C>,
    codec: ClientExchange,
    outgoing: Outgoing,
    queue: WriteQueue,
    inbox: BytesMut,
    writing: Writing,
    answer: Answer,
    core: Core,
    timeouts: Timeouts,
    drain_limits: DrainLimits,
    /// How long the peer takes nothing of what waits to leave, or how long the body is held back.
    timer: ProgressTimer,
    bytes_sent: u64,
    bytes_received: u64,
    read_size: usize,
}

/// How far the response has come.
#[derive(Clone, Copy, PartialEq)]
enum Answer {
    /// The head of the final response has not come.
    Awaited,
    /// It has.
    Begun,
    /// It has, and has ended HTTP on this connection.
    Upgraded,
}

/// How far the request has come on its way out. The last four states are final.
enum Writing {
    /// Its head is in the queue or has left; its body waits until the peer asks for it.
    Held,
    /// Its body is not framed to its end.
    Body,
    /// It is framed to its end, and the last of it is in the queue.
    Flushing,
    /// The kernel has taken all of it.
    Left,
    /// The peer has answered without asking for the body that it was promised.
    Withheld,
    /// The peer takes no more of it. It may have answered before that.
    PeerRefused(io::Error),
    /// The caller's body failed. It must not be asked again: many streams give `None` after an
    /// error, which would end the request as if it were whole.
    BodyFailed,
}

impl<C: Connector> Exchange<C>
where
    C::Connection: Transport,
{
    /// It stays where it is made: it is large, and goes from the call through the response's body to
    /// its end.
    pub(crate) fn new(
        conn: Pooled<C>,
        mut outgoing: Outgoing,
        core: &Core,
        config: &ClientConfig,
        timeouts: Timeouts,
    ) -> Box<Self> {
        outgoing.rewind();
        let sent = outgoing.sent;
        let has_body = !matches!(sent.body_length(), BodyLength::None | BodyLength::Exact(0));
        let mut exchange = Box::new(Self {
            conn,
            codec: ClientExchange::new(sent, &config.limits),
            queue: WriteQueue::default(),
            inbox: BytesMut::new(),
            writing: match sent.expects_continue() && has_body {
                true => Writing::Held,
                false => Writing::Body,
            },
            answer: Answer::Awaited,
            core: core.clone(),
            timeouts,
            drain_limits: config.drain_limits,
            timer: ProgressTimer::default(),
            bytes_sent: 0,
            bytes_received: 0,
            read_size: FIRST_READ,
            outgoing,
        });
        exchange.queue.push(exchange.outgoing.head.clone());
        exchange
    }

    /// Writes what can be written, and reads until there is an event.
    ///
    /// A write that fails ends the writing only: the peer may have answered before it closed. A
    /// request body that fails is told once, here; then the connection can only be closed.
    pub(crate) fn poll_event(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ResponseEvent, Failure>> {
        loop {
            if let Err(failure) = self.pump(cx) {
                return Poll::Ready(Err(failure));
            }
            if let Poll::Ready(answer) = self.poll_answer(cx) {
                if let Ok(event) = &answer {
                    self.note(event);
                }
                return Poll::Ready(answer);
            }
            ready!(self.poll_timer(cx));
            if let Err(failure) = self.waited_enough() {
                return Poll::Ready(Err(failure));
            }
        }
    }

    /// Reads until there is an event.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<ResponseEvent, Failure>> {
        if self.answer == Answer::Upgraded && self.is_sending() {
            // There is no end before the request has one (RFC 9110 §7.8).
            return Poll::Pending;
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

    /// Notes what a head means for the connection and for a body that is held back.
    fn note(&mut self, event: &ResponseEvent) {
        match event {
            // Other interim responses say nothing of the body (RFC 9110 §10.1.1).
            ResponseEvent::Interim(head) if head.status() == 100 => self.let_body_go(),
            ResponseEvent::Head(head) => {
                self.conn.set_keep_alive(announced(head.keep_alive_hint()));
                self.answer = match head.upgrade() {
                    true => Answer::Upgraded,
                    false => Answer::Begun,
                };
                if let Writing::Held = self.writing {
                    // What is left of the head in the queue is no good without its body either.
                    self.queue.clear();
                    self.writing = Writing::Withheld;
                }
            }
            _ => {}
        }
    }

    fn let_body_go(&mut self) {
        if let Writing::Held = self.writing {
            self.writing = Writing::Body;
            self.timer.stop();
        }
    }

    /// Ready once the peer has taken nothing for too long, or a body was held back for long enough.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let limit = match (&self.writing, self.queue.is_empty()) {
            (Writing::Held, true) => self.timeouts.expect_continue,
            (_, false) => self.timeouts.write_stall,
            (_, true) => None,
        };
        match limit {
            Some(limit) => self.timer.poll(cx, &self.core, limit, self.bytes_sent),
            None => {
                self.timer.stop();
                Poll::Pending
            }
        }
    }

    /// What follows when the timer has run out. A stalled request is none of the response's
    /// business once that has begun.
    fn waited_enough(&mut self) -> Result<(), Failure> {
        if self.queue.is_empty() {
            self.let_body_go();
        } else if self.answer == Answer::Awaited {
            return Err(Failure::new(ErrorKind::WriteTimeout));
        } else {
            self.queue.clear();
            self.writing = Writing::PeerRefused(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    /// Moves the request on: takes from its body, frames, writes. Fails only by the caller's
    /// fault, and only once.
    fn pump(&mut self, cx: &mut Context<'_>) -> Result<(), Failure> {
        while self.is_sending() {
            if let Err(failure) = self.fill(cx) {
                self.queue.clear();
                self.writing = Writing::BodyFailed;
                return Err(failure);
            }
            if self.queue.is_empty() {
                if let Writing::Flushing = self.writing {
                    self.writing = Writing::Left;
                }
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
                }
                Poll::Ready(Err(error)) => {
                    self.queue.clear();
                    self.writing = Writing::PeerRefused(error);
                }
            }
        }
        Ok(())
    }

    /// Frames as much of the body as there is and the queue takes.
    fn fill(&mut self, cx: &mut Context<'_>) -> Result<(), Failure> {
        let mut empty = 0;
        while matches!(self.writing, Writing::Body) && self.queue.len() < QUEUED_BYTES {
            if let Some(body) = self.outgoing.whole_body() {
                self.frame(body)?;
                self.end(None)?;
                continue;
            }
            match self.outgoing.poll_frame(cx) {
                // All the bytes that the head promised are there: the peer waits for no more.
                Poll::Pending if self.codec.request_done() => self.end(None)?,
                Poll::Pending => return Ok(()),
                Poll::Ready(None) => self.end(None)?,
                Poll::Ready(Some(Err(error))) => {
                    return Err(Failure::because(ErrorKind::RequestBody, error));
                }
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) if data.is_empty() => {
                        empty += 1;
                        if empty == EMPTY_FRAMES {
                            cx.waker().wake_by_ref();
                            return Ok(());
                        }
                    }
                    Ok(data) => self.frame(data)?,
                    Err(frame) => {
                        let trailers = frame.into_trailers().unwrap_or_default();
                        self.end(Some(&trailers))?;
                    }
                },
            }
        }
        Ok(())
    }

    fn frame(&mut self, data: Bytes) -> Result<(), Failure> {
        if data.is_empty() {
            return Ok(());
        }
        let frame = self.codec.frame_data(data.len()).map_err(wrong_body)?;
        self.queue.push_copy(frame.prefix.as_ref());
        self.queue.push(data);
        self.queue.push_copy(frame.suffix);
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
        self.writing = Writing::Flushing;
        Ok(())
    }

    fn decode_failure(&mut self, error: http_codec::DecodeError) -> Failure {
        let failure = Failure::of_decode(error, self.bytes_received > 0);
        match (failure.kind, &mut self.writing) {
            (ErrorKind::ClosedBeforeResponse, Writing::PeerRefused(error)) => {
                let left_behind = error.kind().into();
                let error = std::mem::replace(error, left_behind);
                Failure::of_io(error, ErrorKind::WriteFailed)
            }
            _ => failure,
        }
    }

    fn read_failure(&mut self, error: io::Error) -> Failure {
        Failure::of_io(error, ErrorKind::Reset)
    }

    /// Whether nothing is left of it, on either side, and the connection can be used again.
    pub(crate) fn is_over(&self) -> bool {
        self.reuse() == Reuse::KeepAlive
    }

    fn reuse(&self) -> Reuse {
        match self.writing {
            Writing::Left => self.codec.reuse(self.inbox.len()),
            _ => Reuse::NotYet,
        }
    }

    /// Gives the connection back if the exchange ended clean on both sides, else closes it.
    pub(crate) fn finish(self) {
        match self.reuse() {
            Reuse::KeepAlive => self.conn.release(),
            Reuse::MustClose(why) => self.conn.close(close_reason(why)),
            Reuse::NotYet => self.conn.close(CloseReason::ExchangeFailed),
        }
    }

    /// Takes the connection out of the pool. For one that [has left HTTP](Self::is_tunnel).
    pub(crate) fn into_tunnel(self) -> Tunnel<C> {
        Tunnel::new(self.conn.detach(), self.inbox)
    }

    /// Takes the request out, to be sent again. What is left has to be [let go](crate::drain).
    pub(crate) fn take_outgoing(&mut self) -> Outgoing {
        let taken = Outgoing::taken(self.outgoing.sent);
        std::mem::replace(&mut self.outgoing, taken)
    }

    /// Closes the connection because the exchange failed and takes the request out of it.
    pub(crate) fn fail(self) -> Outgoing {
        self.conn.close(CloseReason::ExchangeFailed);
        self.outgoing
    }

    /// Whether it is the peer's turn to answer, or to take what is queued, and no other limit holds
    /// for that. Otherwise the caller's body is what keeps the request.
    pub(crate) fn awaits_peer(&self) -> bool {
        if !self.queue.is_empty() {
            return self.timeouts.write_stall.is_none();
        }
        match self.writing {
            Writing::Held => self.timeouts.expect_continue.is_none(),
            Writing::Body | Writing::BodyFailed => false,
            Writing::Flushing | Writing::Left => true,
            Writing::Withheld | Writing::PeerRefused(_) => true,
        }
    }

    /// Whether there is more of the request to write, and a peer that takes it.
    fn is_sending(&self) -> bool {
        matches!(
            self.writing,
            Writing::Held | Writing::Body | Writing::Flushing
        )
    }

    /// Whether both sides have left HTTP: the peer by its response, and the request has left.
    pub(crate) fn is_tunnel(&self) -> bool {
        self.answer == Answer::Upgraded && matches!(self.writing, Writing::Left)
    }

    /// How long its response body may pause.
    pub(crate) fn body_idle(&self) -> Option<Duration> {
        match self.answer {
            Answer::Upgraded => None,
            Answer::Awaited | Answer::Begun => self.timeouts.body_idle,
        }
    }

    /// Whether nothing is known yet that keeps the connection from being used again once the
    /// response has come to its end.
    pub(crate) fn may_be_kept(&self) -> bool {
        let closes = matches!(self.codec.reuse(0), Reuse::MustClose(_));
        matches!(self.writing, Writing::Left) && !closes
    }

    /// How many bytes of the response have been decoded.
    pub(crate) fn bytes_decoded(&self) -> u64 {
        self.bytes_received - self.inbox.len() as u64
    }

    pub(crate) fn drain_limits(&self) -> DrainLimits {
        self.drain_limits
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// Bytes that the kernel has taken so far.
    pub(crate) fn bytes_sent(&self) -> u64 {
        self.bytes_sent
    }

    /// Whether a byte of an answer has come.
    fn has_answer(&self) -> bool {
        self.bytes_received > 0
    }

    pub(crate) fn outgoing(&self) -> &Outgoing {
        &self.outgoing
    }

    /// Whether its connection had been used before.
    pub(crate) fn is_reused(&self) -> bool {
        self.conn.is_reused()
    }

    /// Where the exchange stands.
    pub(crate) fn at(&self, attempt: u32, destination: &Destination) -> At {
        At {
            phase: self.phase(),
            sent: self.sent(),
            reused: self.is_reused(),
            attempt,
            destination: destination.clone(),
        }
    }

    fn sent(&self) -> Sent {
        match (&self.writing, self.bytes_sent) {
            (_, 0) => Sent::None,
            (Writing::Left, _) => Sent::All,
            _ => Sent::Part,
        }
    }

    fn phase(&self) -> Phase {
        match self.writing {
            _ if self.has_answer() => Phase::Receive,
            Writing::Left => Phase::Wait,
            _ => Phase::Send,
        }
    }
}

/// For how long the server says that it keeps the connection idle.
fn announced(hint: KeepAliveHint) -> Option<Duration> {
    match hint {
        KeepAliveHint { max: Some(0), .. } => Some(Duration::ZERO),
        KeepAliveHint { timeout, .. } => timeout.map(Duration::from_secs),
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
