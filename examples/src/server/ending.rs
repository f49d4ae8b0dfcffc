//! The end of an exchange, and whether it is the end of the connection too.
//!
//! All that decides this is in this file, in the order of time:
//!
//! 1. When a response begins, [`Session::respond`] tells the client if it is the last: the server
//!    is closing, or much of the request stays unread. [`Session::answer`] does so after a request
//!    that took too long. The codec adds its own reasons, such as the client's `Connection: close`
//!    or an unreadable request.
//! 2. When it is queued to its end, [`Session::finish`] writes it, throws away what is left of the
//!    request, if that is little, and asks the codec whether another request may come.
//! 3. If not, a client that may still be sending gets time to read before the socket closes.
//! 4. A response that was not finished ends with the connection. [`Connection`]'s drop resets it
//!    where a plain close would look like the end of the body.

use std::future::{Future as _, poll_fn};
use std::net::Shutdown;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_codec::{BodyLength, EncodeError, ResponseWriter, Reuse};

use super::connection::{BodyPart, Connection};
use super::session::Session;

/// An unread request body up to this size is read and thrown away to keep the connection: more
/// would cost more than a new connection does.
const DRAINED_BYTES: u64 = 64 << 10;

const REQUEST_TIMEOUT: u16 = 408;

impl Session {
    /// Queues the head of the final response. `fields` may not use the connection.
    ///
    /// # Errors
    ///
    /// As [`http_codec::ServerExchange::respond`], and those of `fields`. Nothing is queued then.
    pub fn respond(
        &self,
        status: u16,
        length: BodyLength,
        fields: impl FnOnce(&mut ResponseWriter<'_>) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        self.begin(self.leaves_much_unread(), status, length, fields)
    }

    /// As [`respond`](Self::respond), where the request's body will be read to its end in any case.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn respond_and_read_on(
        &self,
        status: u16,
        length: BodyLength,
        fields: impl FnOnce(&mut ResponseWriter<'_>) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        self.begin(false, status, length, fields)
    }

    fn begin(
        &self,
        last: bool,
        status: u16,
        length: BodyLength,
        fields: impl FnOnce(&mut ResponseWriter<'_>) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        let last = last || self.is_closing();
        self.connection().respond(status, length, |writer| {
            if last {
                writer.close();
            }
            fields(writer)
        })
    }

    /// Queues a whole response with a plain text body, which is left out where the status allows
    /// none.
    ///
    /// # Errors
    ///
    /// As [`respond`](Self::respond).
    pub fn answer(
        &self,
        status: u16,
        body: impl Into<Bytes>,
        fields: impl FnOnce(&mut ResponseWriter<'_>) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        let (length, body) = match status {
            204 | 205 | 304 => (BodyLength::None, Bytes::new()),
            _ => {
                let body = body.into();
                (BodyLength::Exact(body.len() as u64), body)
            }
        };
        // A client that is not waited for any more may still send the rest.
        let last = status == REQUEST_TIMEOUT || self.leaves_much_unread();
        self.begin(last, status, length, fields)?;
        if self.connection().body_allowed() {
            self.connection().push(body)?;
        }
        self.connection().end(None)
    }

    /// Throws away what has come of the request's body, as far as it is thrown away at all, and
    /// waits for nothing. A body whose length is not known may have ended by then, so that the
    /// answer does not have to be the last.
    pub async fn discard_body(&mut self) {
        // A client that waits with its body for 100 would be told to send it.
        if !self.connection().awaits_continue() {
            let mut drain = Drain::new(self.connection());
            poll_fn(|cx| Poll::Ready(drain.poll(cx).is_ready())).await;
        }
    }

    /// Whether more of the request may stay unread than is thrown away, or nobody knows how much. A
    /// client that waits for 100 may take its body for sent or not, which is as bad.
    fn leaves_much_unread(&self) -> bool {
        let connection = self.connection();
        if connection.request_done() {
            return false;
        }
        let left = connection.body_left();
        connection.awaits_continue() || left.is_none_or(|left| left > DRAINED_BYTES)
    }

    /// Ends an exchange whose response is queued to its end. Tells whether the next request may
    /// come; if not, the connection is ready to be dropped.
    pub async fn finish(&mut self) -> bool {
        if self.flush().await.is_err() {
            return false;
        }
        if self.connection().reuse() == Reuse::NotYet {
            let mut drain = Drain::new(self.connection());
            let drained = poll_fn(|cx| drain.poll(cx));
            // What was drained in time is seen by whether the request has ended.
            let _ = self.core().timeout(self.timeouts().drain, drained).await;
        }
        if self.connection().start_next().is_ok() {
            return true;
        }
        self.linger().await;
        false
    }

    /// Closing a socket with unread bytes sends RST, which makes many clients throw away the
    /// response that they have not read yet. So a client that may still be sending gets a FIN
    /// first, and its bytes are taken until it closes too.
    async fn linger(&self) {
        let connection = self.connection();
        if connection.request_done() && !connection.has_unread() {
            return;
        }
        if connection.stream().shutdown(Shutdown::Write).is_err() {
            return;
        }
        let mut limit = self.core().sleep(self.timeouts().linger);
        let mut hurried = false;
        poll_fn(|cx| {
            if connection.poll_discard(cx).is_ready() {
                return Poll::Ready(());
            }
            if !hurried && self.poll_closing(cx).is_ready() {
                hurried = true;
                limit = self.core().sleep(self.timeouts().linger_while_closing);
            }
            Pin::new(&mut limit).poll(cx)
        })
        .await;
    }
}

/// Throws away a request's body, up to what is worth it.
struct Drain<'a> {
    connection: &'a Connection,
    drained: u64,
}

impl<'a> Drain<'a> {
    fn new(connection: &'a Connection) -> Self {
        Self {
            connection,
            drained: 0,
        }
    }

    /// Ready at the end of the body, or where it is not worth going on.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.drained <= DRAINED_BYTES {
            match ready!(self.connection.poll_body(cx)) {
                Ok(BodyPart::Data(data)) => self.drained += data.len() as u64,
                Ok(BodyPart::End(_)) | Err(_) => break,
            }
        }
        Poll::Ready(())
    }
}
