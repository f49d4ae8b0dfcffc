use bytes::{Bytes, BytesMut};

use crate::body::{BodyDecoder, BodyEvent};
use crate::error::{DecodeError, EncodeError};
use crate::fields::Fields;
use crate::frame::{BodyFramer, DataFrame};
use crate::head::{HeadScan, Stop};
use crate::limits::{Limit, Limits};
use crate::request_writer::SentRequest;
use crate::response::{self, ResponseHead};
use crate::reuse::{MustClose, Progress, Reuse};

/// One request and its response, from the client's side.
///
/// Sending and reading are independent halves: an early response can be read while the request
/// body is still leaving. See the [crate documentation](crate) for the states and an example.
#[derive(Debug)]
pub struct ClientExchange {
    sent: SentRequest,
    limits: Limits,
    request: BodyFramer,
    head_sent: bool,
    state: State,
    scan: HeadScan,
    interim: usize,
    answered: bool,
    must_close: Option<MustClose>,
    taken: u64,
}

#[derive(Debug)]
enum State {
    Head,
    Body(BodyDecoder),
    Ended,
    Failed(DecodeError),
}

/// What the response bytes so far amount to.
#[derive(Debug, Clone)]
pub enum ResponseEvent {
    /// More bytes are needed.
    NeedData,
    /// A 1xx response other than 101; the final one is still to come (RFC 9110 §15.2).
    Interim(ResponseHead),
    /// The head of the final response. After 101 and 2xx to CONNECT
    /// ([`ResponseHead::upgrade`]) the bytes that follow stay in the input.
    Head(ResponseHead),
    /// A run of body bytes, a slice of the input.
    Data(Bytes),
    /// The response has come to its end, with trailers if it had any that may be used. Every
    /// later call returns `End(None)` again and takes nothing.
    End(Option<Fields>),
}

impl ClientExchange {
    /// Begins the exchange of a request whose head was written.
    #[must_use]
    pub fn new(sent: SentRequest, limits: &Limits) -> Self {
        Self {
            sent,
            limits: *limits,
            request: BodyFramer::new(sent.body_length()),
            head_sent: false,
            state: State::Head,
            scan: HeadScan::default(),
            interim: 0,
            answered: false,
            must_close: sent.asks_close().then_some(MustClose::CloseSent),
            taken: 0,
        }
    }

    /// Says what to put around the next `len` bytes of the request body. Nothing for `len` 0.
    ///
    /// # Errors
    ///
    /// [`EncodeError::BodyNotAllowed`], [`EncodeError::BodyTooLong`] or
    /// [`EncodeError::BodyEnded`]; the data must then not be sent.
    pub fn frame_data(&mut self, len: usize) -> Result<DataFrame, EncodeError> {
        self.request.frame_data(len)
    }

    /// Ends the request body; writes the last chunk and the trailers into `dst` when it is
    /// chunked, and nothing otherwise: framings without a trailer section drop `trailers`
    /// (RFC 9110 §6.5.1). Not needed, but harmless, without a body or after all promised bytes.
    ///
    /// # Errors
    ///
    /// [`EncodeError::BodyTooShort`]; [`EncodeError::BodyEnded`]; for a bad trailer
    /// [`EncodeError::BadFieldName`], [`EncodeError::BadFieldValue`] or
    /// [`EncodeError::ForbiddenTrailer`]. Nothing is then written.
    pub fn frame_end(
        &mut self,
        trailers: Option<&[(&str, &[u8])]>,
        dst: &mut BytesMut,
    ) -> Result<(), EncodeError> {
        self.request.frame_end(trailers, dst)
    }

    /// Tells that the request head has begun to leave, for [`progress`](Self::progress).
    pub fn head_sent(&mut self) {
        self.head_sent = true;
    }

    /// Has the request been framed to its end?
    #[must_use]
    pub fn request_done(&self) -> bool {
        self.request.is_done()
    }

    /// Has the final response come to its end?
    #[must_use]
    pub fn response_done(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// Takes the next event off the front of `src`; call again until it says
    /// [`NeedData`](ResponseEvent::NeedData). Unread bytes must stay in `src` and new ones go
    /// behind them.
    ///
    /// # Errors
    ///
    /// The response cannot be read; every later call returns the same error.
    pub fn decode(&mut self, src: &mut BytesMut) -> Result<ResponseEvent, DecodeError> {
        self.advance(src, false)
    }

    /// As [`decode`](Self::decode), once the peer has sent its end of file: call until
    /// [`End`](ResponseEvent::End) or an error, which the end of file then forces.
    ///
    /// # Errors
    ///
    /// As [`decode`](Self::decode), and [`Incomplete`](crate::DecodeErrorKind::Incomplete) where
    /// the response is cut short.
    pub fn decode_eof(&mut self, src: &mut BytesMut) -> Result<ResponseEvent, DecodeError> {
        self.must_close.get_or_insert(MustClose::PeerClosed);
        self.advance(src, true)
    }

    /// May the connection carry another exchange? `unread` counts the bytes left in the input
    /// after the response; pass 0 when further requests are in flight (pipelining) and the bytes
    /// are their answers.
    #[must_use]
    pub fn reuse(&self, unread: usize) -> Reuse {
        if let State::Failed(_) = self.state {
            return Reuse::MustClose(MustClose::DecodeFailed);
        }
        if let Some(why) = self.must_close {
            return Reuse::MustClose(why);
        }
        if !self.response_done() {
            return Reuse::NotYet;
        }
        if unread > 0 {
            return Reuse::MustClose(MustClose::UnreadBytes);
        }
        if self.request_done() {
            Reuse::KeepAlive
        } else {
            Reuse::NotYet
        }
    }

    /// How far the exchange came.
    #[must_use]
    pub fn progress(&self) -> Progress {
        if self.response_done() {
            Progress::Done
        } else if self.answered {
            Progress::Responding
        } else if !self.head_sent {
            Progress::Unsent
        } else if self.request_done() {
            Progress::Sent
        } else {
            Progress::Sending
        }
    }

    fn advance(&mut self, src: &mut BytesMut, eof: bool) -> Result<ResponseEvent, DecodeError> {
        let before = src.len();
        let event = match &mut self.state {
            State::Ended => return Ok(ResponseEvent::End(None)),
            State::Failed(error) => return Err(*error),
            State::Head => self.read_head(src, eof),
            State::Body(body) => body
                .decode(src, &self.limits, eof)
                .map(|event| match event {
                    BodyEvent::NeedData => ResponseEvent::NeedData,
                    BodyEvent::Data(data) => ResponseEvent::Data(data),
                    BodyEvent::End(trailers) => ResponseEvent::End(trailers),
                }),
        };
        self.taken += (before - src.len()) as u64;
        match &event {
            Ok(ResponseEvent::End(_)) => self.state = State::Ended,
            Ok(ResponseEvent::Data(_)) => {
                if matches!(&self.state, State::Body(body) if body.is_drained()) {
                    self.state = State::Ended;
                }
            }
            Ok(_) => {}
            Err(error) => {
                // What a gateway tells its own client of an answer it cannot read.
                let error = error.shifted_by(self.taken).with_reply(502);
                self.state = State::Failed(error);
                return Err(error);
            }
        }
        event
    }

    fn read_head(&mut self, src: &mut BytesMut, eof: bool) -> Result<ResponseEvent, DecodeError> {
        const CUT: &str = "the connection ended before the end of a response head";
        self.answered |= !src.is_empty();
        let limit = self.limits.max_head_bytes();
        if !self.scan.skip_empty_lines(src, limit)? {
            return if eof {
                Err(DecodeError::incomplete(CUT))
            } else {
                Ok(ResponseEvent::NeedData)
            };
        }
        let (sent, limits) = (self.sent, &self.limits);
        let polled = self.scan.poll(src, limit, eof, |window| {
            response::parse(window, sent, limits)
        });
        let (parts, len) = match polled {
            Ok(None) => return Ok(ResponseEvent::NeedData),
            Ok(Some(parsed)) => parsed,
            Err(Stop::Malformed(error)) => return Err(error),
            Err(Stop::Overrun) => return Err(DecodeError::too_large(Limit::HeadBytes)),
            Err(Stop::Cut) => return Err(DecodeError::incomplete(CUT)),
        };
        let head = parts.with_block(src.split_to(len).freeze());
        if head.is_interim() {
            self.interim += 1;
            if self.interim > self.limits.max_interim() {
                return Err(DecodeError::too_large(Limit::Interim));
            }
            return Ok(ResponseEvent::Interim(head));
        }
        if let Some(why) = head.must_close() {
            // An upgrade outranks what was known before: the connection has left HTTP.
            if why == MustClose::Upgraded || self.must_close.is_none() {
                self.must_close = Some(why);
            }
        }
        self.state = match BodyDecoder::new(head.body_length(), &self.limits)? {
            Some(body) => State::Body(body),
            None => State::Ended,
        };
        Ok(ResponseEvent::Head(head))
    }
}
