use bytes::{Bytes, BytesMut};

use crate::body::{BodyDecoder, BodyEvent};
use crate::error::{DecodeError, EncodeError};
use crate::fields::Fields;
use crate::frame::{BodyFramer, DataFrame};
use crate::framing::BodyLength;
use crate::head::{HeadScan, Stop, Version};
use crate::limits::{Limit, Limits};
use crate::request::{self, RequestHead};
use crate::response_writer::{InterimWriter, ResponseWriter};
use crate::reuse::{MustClose, Reuse};

/// One request and its response, from the server's side; the same value then serves the next one
/// on the connection by [`start_next`](Self::start_next).
///
/// Requests that a client pipelines simply wait in the input. See the [crate documentation](crate)
/// for the states and an example.
#[derive(Debug)]
pub struct ServerExchange {
    limits: Limits,
    state: State,
    scan: HeadScan,
    request: Option<RequestNotes>,
    response: Option<BodyFramer>,
    must_close: Option<MustClose>,
    taken: u64,
}

#[derive(Debug)]
enum State {
    Head,
    Body(BodyDecoder),
    Ended,
    /// A clean end of file between requests.
    Closed,
    Failed(DecodeError),
}

/// What the response depends on.
#[derive(Debug, Clone, Copy)]
struct RequestNotes {
    version: Version,
    head: bool,
    connect: bool,
    upgrade: bool,
}

/// What the request bytes so far amount to.
#[derive(Debug, Clone)]
pub enum RequestEvent {
    /// More bytes are needed.
    NeedData,
    /// The head of a request.
    Head(RequestHead),
    /// A run of body bytes, a slice of the input.
    Data(Bytes),
    /// The request has come to its end, with trailers if it had any that may be used. Every later
    /// call returns `End(None)` again and takes nothing, until the next request is started.
    End(Option<Fields>),
    /// The client closed between requests: there is none to answer. Only
    /// [`decode_eof`](ServerExchange::decode_eof) says so first; it stays so.
    Closed,
}

/// A response head as decided, before it is written.
pub(crate) struct ResponsePlan {
    /// What the framing fields say.
    pub(crate) announced: BodyLength,
    /// The value of the `Connection` field.
    pub(crate) connection: Option<&'static [u8]>,
    /// What follows the head.
    body: BodyLength,
    must_close: Option<MustClose>,
}

impl ServerExchange {
    /// Waits for the first request of a connection.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Self {
            limits: *limits,
            state: State::Head,
            scan: HeadScan::default(),
            request: None,
            response: None,
            must_close: None,
            taken: 0,
        }
    }

    /// Takes the next event off the front of `src`; call again until it says
    /// [`NeedData`](RequestEvent::NeedData). Unread bytes must stay in `src` and new ones go
    /// behind them.
    ///
    /// # Errors
    ///
    /// The request cannot be read; every later call returns the same error. Answer with
    /// [`DecodeError::reply_status`] if no response has begun, then close.
    pub fn decode(&mut self, src: &mut BytesMut) -> Result<RequestEvent, DecodeError> {
        self.advance(src, false)
    }

    /// As [`decode`](Self::decode), once the client has sent its end of file. Whole requests that
    /// still wait in `src` come out first; then [`Closed`](RequestEvent::Closed).
    ///
    /// # Errors
    ///
    /// As [`decode`](Self::decode), and [`Incomplete`](crate::DecodeErrorKind::Incomplete) where a
    /// request is cut short.
    pub fn decode_eof(&mut self, src: &mut BytesMut) -> Result<RequestEvent, DecodeError> {
        self.advance(src, true)
    }

    /// Begins an interim response, 100 to 199 except 101, at the end of `dst`.
    ///
    /// # Errors
    ///
    /// [`EncodeError::BadStatus`]; [`EncodeError::ResponseStarted`] after the final head.
    pub fn interim<'b>(
        &mut self,
        dst: &'b mut BytesMut,
        status: u16,
    ) -> Result<InterimWriter<'b>, EncodeError> {
        if !(100..200).contains(&status) || status == 101 {
            return Err(EncodeError::BadStatus(status));
        }
        if self.response.is_some() {
            return Err(EncodeError::ResponseStarted);
        }
        let muted = self
            .request
            .is_none_or(|request| request.version == Version::Http10);
        Ok(InterimWriter::new(dst, status, muted))
    }

    /// Begins the final response, 200 to 999 or 101, at the end of `dst`.
    ///
    /// Without a request, as after a decode error or a timeout, it is written for an HTTP/1.1
    /// client and closes the connection.
    ///
    /// # Errors
    ///
    /// [`EncodeError::BadStatus`]; [`EncodeError::ResponseStarted`];
    /// [`EncodeError::UpgradeNotOffered`] for 101 unasked.
    pub fn respond<'b>(
        &'b mut self,
        dst: &'b mut BytesMut,
        status: u16,
    ) -> Result<ResponseWriter<'b>, EncodeError> {
        if status != 101 && !(200..1000).contains(&status) {
            return Err(EncodeError::BadStatus(status));
        }
        if self.response.is_some() {
            return Err(EncodeError::ResponseStarted);
        }
        let offered = self
            .request
            .is_some_and(|request| request.upgrade && !request.connect);
        if status == 101 && !offered {
            return Err(EncodeError::UpgradeNotOffered);
        }
        Ok(ResponseWriter::new(self, dst, status))
    }

    /// Says what to put around the next `len` bytes of the response body. Nothing for `len` 0.
    ///
    /// # Errors
    ///
    /// [`EncodeError::ResponseNotStarted`]; [`EncodeError::BodyNotAllowed`] where
    /// [`body_allowed`](Self::body_allowed) is false; [`EncodeError::BodyTooLong`];
    /// [`EncodeError::BodyEnded`]. The data must then not be sent.
    pub fn frame_data(&mut self, len: usize) -> Result<DataFrame, EncodeError> {
        self.response
            .as_mut()
            .ok_or(EncodeError::ResponseNotStarted)?
            .frame_data(len)
    }

    /// Ends the response body; writes the last chunk and the trailers into `dst` when it is
    /// chunked, and nothing otherwise: framings without a trailer section drop `trailers`
    /// (RFC 9110 §6.5.1). Not needed, but harmless, without a body or after all promised bytes.
    ///
    /// # Errors
    ///
    /// [`EncodeError::ResponseNotStarted`]; [`EncodeError::BodyTooShort`];
    /// [`EncodeError::BodyEnded`]; for a bad trailer [`EncodeError::BadFieldName`],
    /// [`EncodeError::BadFieldValue`] or [`EncodeError::ForbiddenTrailer`]. Nothing is then
    /// written.
    pub fn frame_end(
        &mut self,
        trailers: Option<&[(&str, &[u8])]>,
        dst: &mut BytesMut,
    ) -> Result<(), EncodeError> {
        let response = self
            .response
            .as_mut()
            .ok_or(EncodeError::ResponseNotStarted)?;
        response.frame_end(trailers, dst)
    }

    /// Has the request come to its end?
    #[must_use]
    pub fn request_done(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// Has the final response head been written?
    #[must_use]
    pub fn response_started(&self) -> bool {
        self.response.is_some()
    }

    /// Has the final response been framed to its end?
    #[must_use]
    pub fn response_done(&self) -> bool {
        self.response.is_some_and(|response| response.is_done())
    }

    /// May body data follow the response head that was written? False before it is written, after
    /// [`BodyLength::None`] and `Exact(0)`, and for answers to HEAD, 101, 204, 205, 304 and 2xx to
    /// CONNECT: the data of such a body is to be skipped.
    #[must_use]
    pub fn body_allowed(&self) -> bool {
        self.response.is_some_and(|response| response.allows_body())
    }

    /// May the connection carry another exchange?
    #[must_use]
    pub fn reuse(&self) -> Reuse {
        match (&self.state, self.must_close) {
            (State::Failed(_), _) => Reuse::MustClose(MustClose::DecodeFailed),
            (State::Closed, _) => Reuse::MustClose(MustClose::PeerClosed),
            (_, Some(why)) => Reuse::MustClose(why),
            _ if self.request_done() && self.response_done() => Reuse::KeepAlive,
            _ => Reuse::NotYet,
        }
    }

    /// Turns to the next request on the connection.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NotReusable`] unless [`reuse`](Self::reuse) says [`Reuse::KeepAlive`].
    pub fn start_next(&mut self) -> Result<(), EncodeError> {
        match self.reuse() {
            Reuse::KeepAlive => {
                *self = Self {
                    taken: self.taken,
                    ..Self::new(&self.limits)
                };
                Ok(())
            }
            verdict => Err(EncodeError::NotReusable(verdict)),
        }
    }

    /// Decides framing and persistence of a final response.
    pub(crate) fn plan_response(
        &self,
        status: u16,
        body: BodyLength,
        close: bool,
    ) -> Result<ResponsePlan, EncodeError> {
        let request = self.request;
        let connected = request.is_some_and(|r| r.connect) && (200..300).contains(&status);
        let upgraded = status == 101 || connected;
        let old = request.is_some_and(|request| request.version == Version::Http10);
        let empty = matches!(body, BodyLength::None | BodyLength::Exact(0));
        if !empty && (upgraded || matches!(status, 204 | 205)) {
            return Err(EncodeError::BodyNotAllowed);
        }
        let is_head = request.is_some_and(|request| request.head);
        let mut body = body;
        if old && body == BodyLength::Chunked {
            body = BodyLength::UntilClose;
        }
        let announced = match body {
            _ if upgraded || status == 204 => BodyLength::None,
            // Silence is true there; zero would be a claim about the answer to GET.
            BodyLength::None if is_head || status == 304 => BodyLength::None,
            BodyLength::None => BodyLength::Exact(0),
            body => body,
        };
        let body = if empty || upgraded || is_head || matches!(status, 204 | 304) {
            BodyLength::None
        } else {
            announced
        };
        let must_close = if upgraded {
            Some(MustClose::Upgraded)
        } else {
            self.closing_reason(body, close)
        };
        let connection: Option<&'static [u8]> = match must_close {
            Some(MustClose::Upgraded) if status == 101 => Some(b"upgrade"),
            Some(MustClose::Upgraded) => None,
            Some(_) => Some(b"close"),
            None if old => Some(b"keep-alive"),
            None => None,
        };
        Ok(ResponsePlan {
            announced,
            connection,
            body,
            must_close,
        })
    }

    fn closing_reason(&self, body: BodyLength, close: bool) -> Option<MustClose> {
        if let Reuse::MustClose(why) = self.reuse() {
            Some(why)
        } else if self.request.is_none() {
            Some(MustClose::NoRequest)
        } else if body == BodyLength::UntilClose {
            Some(MustClose::UntilClose)
        } else {
            close.then_some(MustClose::CloseSent)
        }
    }

    pub(crate) fn begin_response(&mut self, plan: &ResponsePlan) {
        self.response = Some(BodyFramer::new(plan.body));
        self.must_close = plan.must_close;
    }

    fn advance(&mut self, src: &mut BytesMut, eof: bool) -> Result<RequestEvent, DecodeError> {
        let before = src.len();
        let event = match &mut self.state {
            State::Ended => return Ok(RequestEvent::End(None)),
            State::Closed => return Ok(RequestEvent::Closed),
            State::Failed(error) => return Err(*error),
            State::Head => self.read_head(src, eof),
            State::Body(body) => body
                .decode(src, &self.limits, eof)
                .map(|event| match event {
                    BodyEvent::NeedData => RequestEvent::NeedData,
                    BodyEvent::Data(data) => RequestEvent::Data(data),
                    BodyEvent::End(trailers) => RequestEvent::End(trailers),
                }),
        };
        self.taken += (before - src.len()) as u64;
        match &event {
            Ok(RequestEvent::End(_)) => self.state = State::Ended,
            Ok(RequestEvent::Closed) => self.state = State::Closed,
            Ok(RequestEvent::Data(_)) => {
                if matches!(&self.state, State::Body(body) if body.is_drained()) {
                    self.state = State::Ended;
                }
            }
            Ok(_) => {}
            Err(error) => {
                let error = error.shifted_by(self.taken);
                self.state = State::Failed(error);
                return Err(error);
            }
        }
        event
    }

    fn read_head(&mut self, src: &mut BytesMut, eof: bool) -> Result<RequestEvent, DecodeError> {
        const CUT: &str = "the connection ended before the end of a request head";
        let limit = self.limits.max_head_bytes();
        if !self.scan.skip_empty_lines(src, limit)? {
            return match eof {
                true if src.is_empty() => Ok(RequestEvent::Closed),
                true => Err(DecodeError::incomplete(CUT)),
                false => Ok(RequestEvent::NeedData),
            };
        }
        let limits = &self.limits;
        let polled = self
            .scan
            .poll(src, limit, eof, |window| request::parse(window, limits));
        let (parts, len) = match polled {
            Ok(None) => return Ok(RequestEvent::NeedData),
            Ok(Some(parsed)) => parsed,
            Err(Stop::Malformed(error)) => return Err(error),
            Err(Stop::Overrun) => return Err(DecodeError::too_large(Limit::HeadBytes)),
            Err(Stop::Cut) => return Err(DecodeError::incomplete(CUT)),
        };
        let head = parts.with_block(src.split_to(len).freeze());
        self.request = Some(RequestNotes {
            version: head.version(),
            head: head.method() == "HEAD",
            connect: head.method() == "CONNECT",
            upgrade: head.upgrade(),
        });
        self.must_close = match head.keep_alive() {
            true => None,
            false if head.close() => Some(MustClose::CloseReceived),
            false => Some(MustClose::Http10),
        };
        self.state = match BodyDecoder::new(head.body_length(), &self.limits)? {
            Some(body) => State::Body(body),
            None => State::Ended,
        };
        Ok(RequestEvent::Head(head))
    }
}
