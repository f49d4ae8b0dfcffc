//! A request's body as a stream for somebody else.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::connection::{BodyPart, Connection, Fault};

/// The body of the request that a connection is at, read when it is polled and not before.
#[derive(Debug)]
pub struct RequestBody {
    connection: Rc<Connection>,
    ended: bool,
}

impl RequestBody {
    /// The body of the request whose head was read last.
    #[must_use]
    pub fn new(connection: Rc<Connection>) -> Self {
        Self {
            connection,
            ended: false,
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Fault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let part = std::task::ready!(self.connection.poll_body(cx));
        Poll::Ready(match part {
            Ok(BodyPart::Data(data)) => Some(Ok(Frame::data(data))),
            Ok(BodyPart::End(trailers)) => {
                self.ended = true;
                let trailers = trailers.filter(|fields| !fields.is_empty());
                trailers.map(|fields| Ok(Frame::trailers(fields.to_header_map())))
            }
            Err(fault) => {
                self.ended = true;
                Some(Err(fault))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }

    fn size_hint(&self) -> SizeHint {
        self.connection
            .body_left()
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
