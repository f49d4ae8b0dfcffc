//! The body of a request, and whether it can be sent again.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_codec::BodyLength;

use crate::error::BoxError;

type BoxBody = Pin<Box<dyn HttpBody<Data = Bytes, Error = BoxError>>>;

/// The body of a request.
///
/// Whether a request can be sent more than once depends on it: [`empty`](Self::empty),
/// [`full`](Self::full) and [`factory`](Self::factory) can, each time from the beginning; what
/// [`stream`](Self::stream) and [`from_stream`](Self::from_stream) take can be read once.
///
/// An error that a body gives ends the request, is the caller's, and is never retried.
pub struct Body(Kind);

enum Kind {
    Empty,
    Full(Bytes),
    Once(Once),
    Factory(Factory),
}

/// A body that can be read once.
struct Once {
    body: BoxBody,
    /// It has given a frame or an error. One that was empty can be sent again.
    consumed: bool,
}

/// Makes a body for each sending.
struct Factory {
    make: Box<dyn Fn() -> BoxBody>,
    current: BoxBody,
    /// `current` has been polled: it is not known to stand at its beginning.
    begun: bool,
}

impl Body {
    /// No body.
    #[must_use]
    pub const fn empty() -> Self {
        Self(Kind::Empty)
    }

    /// These bytes. They can be sent again.
    #[must_use]
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Self(Kind::Full(bytes.into()))
    }

    /// What `make` makes, anew for each sending: for what is too large to be kept, and can be read
    /// again from its source.
    ///
    /// `make` is called here for the first sending, and then once for each further one, whether
    /// the body before was read to its end, in part, or failed. Each has to have the length of the
    /// first, if that told an exact one.
    ///
    /// # Panics
    ///
    /// If `make` does, here or, for a further sending, in the task that sends.
    ///
    /// ```
    /// # use std::{convert::Infallible, pin::Pin, task::{Context, Poll}};
    /// # use bytes::Bytes;
    /// # use http_body::Frame;
    /// use http_client::Body;
    ///
    /// /// Counts down, a line for each number.
    /// struct CountDown(u32);
    ///
    /// impl http_body::Body for CountDown {
    ///     type Data = Bytes;
    ///     type Error = Infallible;
    ///
    ///     fn poll_frame(
    ///         mut self: Pin<&mut Self>,
    ///         _: &mut Context<'_>,
    ///     ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
    ///         let Some(next) = self.0.checked_sub(1) else {
    ///             return Poll::Ready(None);
    ///         };
    ///         self.0 = next;
    ///         Poll::Ready(Some(Ok(Frame::data(format!("{next}\n").into()))))
    ///     }
    /// }
    ///
    /// let body = Body::factory(|| CountDown(1_000_000));
    /// # let _ = body;
    /// ```
    pub fn factory<B>(make: impl Fn() -> B + 'static) -> Self
    where
        B: HttpBody<Data = Bytes> + 'static,
        B::Error: Into<BoxError>,
    {
        let make: Box<dyn Fn() -> BoxBody> = Box::new(move || boxed(make()));
        Self(Kind::Factory(Factory {
            current: make(),
            make,
            begun: false,
        }))
    }

    /// A body that can be read once. It is framed by its length if it tells an exact one or the
    /// request has a `Content-Length`, else in chunks.
    pub fn stream<B>(body: B) -> Self
    where
        B: HttpBody<Data = Bytes> + 'static,
        B::Error: Into<BoxError>,
    {
        Self(Kind::Once(Once {
            body: boxed(body),
            consumed: false,
        }))
    }

    /// A stream of data, which can be read once. It is framed by the `Content-Length` that the
    /// request has, else in chunks.
    pub fn from_stream<S, E>(stream: S) -> Self
    where
        S: Stream<Item = Result<Bytes, E>> + 'static,
        E: Into<BoxError> + 'static,
    {
        Self::stream(DataOnly(Box::pin(stream)))
    }

    /// How it is framed unless the head says otherwise.
    #[must_use]
    pub fn length(&self) -> BodyLength {
        match &self.0 {
            Kind::Empty => BodyLength::None,
            Kind::Full(bytes) => BodyLength::Exact(bytes.len() as u64),
            Kind::Once(Once { body, .. }) | Kind::Factory(Factory { current: body, .. }) => body
                .size_hint()
                .exact()
                .map_or(BodyLength::Chunked, BodyLength::Exact),
        }
    }

    /// Whether it can be sent again from its beginning.
    pub(crate) fn is_replayable(&self) -> bool {
        match &self.0 {
            Kind::Empty | Kind::Full(_) | Kind::Factory(_) => true,
            Kind::Once(once) => !once.consumed,
        }
    }

    /// Goes back to the beginning, where there is a way.
    pub(crate) fn rewind(&mut self) {
        if let Kind::Factory(factory) = &mut self.0
            && factory.begun
        {
            // A source that allows one reader at a time has to be let go first.
            factory.current = boxed(NoBody);
            factory.current = (factory.make)();
            factory.begun = false;
        }
    }

    /// The whole of it, if it is there.
    pub(crate) fn whole(&self) -> Option<Bytes> {
        match &self.0 {
            Kind::Full(bytes) => Some(bytes.clone()),
            _ => None,
        }
    }

    /// Takes the next frame of a body that is not there as a whole; `None` is the end.
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Kind::Empty | Kind::Full(_) => Poll::Ready(None),
            Kind::Factory(factory) => {
                factory.begun = true;
                factory.current.as_mut().poll_frame(cx)
            }
            Kind::Once(once) => {
                let frame = ready!(once.body.as_mut().poll_frame(cx));
                match &frame {
                    Some(_) => once.consumed = true,
                    // Its end takes nothing from it, but it must not be polled beyond.
                    None if once.consumed => {}
                    None => self.0 = Kind::Empty,
                }
                Poll::Ready(frame)
            }
        }
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::empty()
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::full(bytes)
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Body").field(&self.length()).finish()
    }
}

fn boxed<B>(body: B) -> BoxBody
where
    B: HttpBody<Data = Bytes> + 'static,
    B::Error: Into<BoxError>,
{
    Box::pin(IntoBoxError(Box::pin(body)))
}

/// A caller's body with its error boxed.
struct IntoBoxError<B>(Pin<Box<B>>);

impl<B> HttpBody for IntoBoxError<B>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.as_mut().poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// A stream of data as a body without trailers.
struct DataOnly<S>(Pin<Box<S>>);

impl<S, E> HttpBody for DataOnly<S>
where
    S: Stream<Item = Result<Bytes, E>>,
{
    type Data = Bytes;
    type Error = E;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, E>>> {
        let data = ready!(self.0.as_mut().poll_next(cx));
        Poll::Ready(data.map(|data| data.map(Frame::data)))
    }
}

/// Stands where a body has been let go.
struct NoBody;

impl HttpBody for NoBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(None)
    }
}
