//! A connection in the course of time: what is waited for, and for how long.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use http_codec::RequestHead;
use pool_core::Core;

use super::closing::Member;
use super::connection::{Connection, Fault};
use super::timeouts::Timeouts;
use super::timer::Timer;

/// A client's connection and its clock.
#[derive(Debug)]
pub struct Session {
    core: Core,
    connection: Rc<Connection>,
    member: Member,
    timeouts: Timeouts,
    timer: Timer<Waits>,
    /// How many bytes had come when the body was asked for. A client may owe a part of its body
    /// and leave its response untaken at the same time, so this has a timer of its own.
    body_timer: Timer<u64>,
}

/// What the client is waited for. Of these there is only one at a time.
#[derive(Debug, PartialEq, Eq)]
enum Waits {
    Request,
    LastRequest,
    Head,
    /// To take more than these bytes.
    Room(u64),
}

/// Why there is no next request, though the client is owed an answer or a close.
#[derive(Debug)]
pub enum Refusal {
    /// The client's side failed.
    Fault(Fault),
    /// The head did not come in time.
    TooSlow,
}

/// Why an exchange cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The client is gone, or has taken nothing for so long that it might as well be.
    Gone,
    /// The client sends no more of the body that is waited for.
    BodyTooSlow,
}

impl Session {
    /// Serves `connection`, which counts as `member` of what closes.
    #[must_use]
    pub fn new(core: &Core, connection: Connection, member: Member, timeouts: &Timeouts) -> Self {
        Self {
            core: core.clone(),
            connection: Rc::new(connection),
            member,
            timeouts: *timeouts,
            timer: Timer::new(),
            body_timer: Timer::new(),
        }
    }

    /// The core that serves it.
    #[must_use]
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// The connection.
    #[must_use]
    pub fn connection(&self) -> &Rc<Connection> {
        &self.connection
    }

    /// Whether the server is closing, so that no other request will be served here.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.member.has_begun()
    }

    pub(super) fn poll_closing(&self, cx: &Context<'_>) -> Poll<()> {
        self.member.poll_begun(cx)
    }

    pub(super) fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    /// Waits for the next request. `None`: the client has closed or was idle for too long, or the
    /// server is closing and no request was on its way.
    ///
    /// # Errors
    ///
    /// [`Refusal`]: answer it, then [`finish`](Self::finish).
    pub async fn next_request(&mut self) -> Result<Option<RequestHead>, Refusal> {
        self.timer.stop();
        poll_fn(|cx| {
            if let Poll::Ready(request) = self.connection.poll_request(cx) {
                return Poll::Ready(request.map_err(Refusal::Fault));
            }
            if self.connection.has_unread() {
                let limit = self.timeouts.head;
                ready!(self.timer.poll(cx, &self.core, Waits::Head, limit));
                return Poll::Ready(Err(Refusal::TooSlow));
            }
            if self.member.poll_begun(cx).is_ready() {
                let limit = self.timeouts.last_request;
                ready!(self.timer.poll(cx, &self.core, Waits::LastRequest, limit));
                return Poll::Ready(Ok(None));
            }
            let limit = self.timeouts.idle;
            ready!(self.timer.poll(cx, &self.core, Waits::Request, limit));
            Poll::Ready(Ok(None))
        })
        .await
    }

    /// Does a step of an exchange, and looks after the client meanwhile: what is queued leaves,
    /// and a client that is gone, or keeps the step waiting for the request's body, ends it.
    ///
    /// `step` has to poll all it waits for each time: a body that it does not ask for is not
    /// waited for.
    ///
    /// # Errors
    ///
    /// [`Lost`]: the step is left as it is.
    pub async fn beside_client<T>(
        &mut self,
        mut step: impl FnMut(&mut Self, &mut Context<'_>) -> Poll<T>,
    ) -> Result<T, Lost> {
        poll_fn(|cx| {
            self.connection.forget_body_wait();
            match step(self, cx) {
                Poll::Ready(done) => Poll::Ready(Ok(done)),
                Poll::Pending => self.poll_lost(cx).map(Err),
            }
        })
        .await
    }

    fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<Lost> {
        if let Poll::Ready(Err(_)) = self.poll_flush(cx) {
            return Poll::Ready(Lost::Gone);
        }
        if self.connection.poll_gone(cx).is_ready() {
            return Poll::Ready(Lost::Gone);
        }
        if !self.connection.waits_for_body() {
            return Poll::Pending;
        }
        let (received, _) = self.connection.traffic();
        let limit = self.timeouts.body;
        ready!(self.body_timer.poll(cx, &self.core, received, limit));
        Poll::Ready(Lost::BodyTooSlow)
    }

    /// Writes until nothing is queued.
    ///
    /// # Errors
    ///
    /// The client is gone, or has taken nothing for so long that it might as well be.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(flushed) = self.connection.poll_flush(cx) {
            return Poll::Ready(flushed);
        }
        let (_, taken) = self.connection.traffic();
        let (waits, limit) = (Waits::Room(taken), self.timeouts.send);
        ready!(self.timer.poll(cx, &self.core, waits, limit));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Writes until nothing is queued.
    ///
    /// # Errors
    ///
    /// As [`poll_flush`](Self::poll_flush).
    pub async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::time::Duration;

    use bytes::Bytes;
    use http_codec::{BodyLength, Limits};
    use pool_core::{ListenOptions, TcpListener};
    use test_support::DEADLINE;

    use super::*;
    use crate::server::{BodyPart, Buffers, Closing};

    /// A session that has read the head of `request`, and its client.
    async fn serve(core: &Core, request: &str, timeouts: Timeouts) -> (Session, TcpStream) {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut listener = TcpListener::bind(core, any, &ListenOptions::default()).unwrap();
        let mut client = TcpStream::connect(listener.local_addr()).unwrap();
        client.set_read_timeout(Some(DEADLINE)).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let stream = listener.accept().await.unwrap();
        let connection = Connection::new(stream, &Limits::default(), &Buffers::default());
        let member = Closing::default().enter();
        let mut session = Session::new(core, connection, member, &timeouts);
        session.next_request().await.unwrap().unwrap();
        (session, client)
    }

    const GET: &str = "GET / HTTP/1.1\r\nHost: site\r\n\r\n";

    #[test]
    fn client_that_asks_no_more_is_closed() {
        let main = |core: Core| async move {
            let timeouts = Timeouts {
                idle: Duration::from_millis(20),
                ..Timeouts::default()
            };
            let (mut session, mut client) = serve(&core, GET, timeouts).await;
            for _ in 0..2 {
                session.answer(200, "", |_| Ok(())).unwrap();
                assert!(session.finish().await);
                // The time begins anew with each wait.
                client.write_all(GET.as_bytes()).unwrap();
                assert!(session.next_request().await.unwrap().is_some());
            }
            session.answer(200, "", |_| Ok(())).unwrap();
            assert!(session.finish().await);
            assert!(session.next_request().await.unwrap().is_none());
        };
        Core::builder().run(main).unwrap();
    }

    #[test]
    fn client_that_takes_some_of_its_response_gets_more_time() {
        let main = |core: Core| async move {
            let (mut session, mut client) = serve(&core, GET, Timeouts::default()).await;
            let connection = Rc::clone(session.connection());
            let length = BodyLength::UntilClose;
            session.respond(200, length, |_| Ok(())).unwrap();
            // More than the kernel takes while nobody reads.
            connection.push(Bytes::from(vec![0; 64 << 20])).unwrap();
            let flushed = poll_fn(|cx| Poll::Ready(session.poll_flush(cx))).await;
            assert!(flushed.is_pending());
            let (first, taken) = (session.timer.deadline(), connection.traffic().1);

            let mut piece = vec![0; 64 << 10];
            while connection.traffic().1 == taken {
                assert_eq!(session.timer.deadline(), first);
                client.read_exact(&mut piece).unwrap();
                core.sleep(Duration::from_millis(1)).await;
                let flushed = poll_fn(|cx| Poll::Ready(session.poll_flush(cx))).await;
                assert!(flushed.is_pending());
            }
            assert!(session.timer.deadline() > first);
        };
        Core::builder().run(main).unwrap();
    }

    #[test]
    fn client_that_sends_some_of_its_body_gets_more_time_and_one_that_is_not_asked_needs_none() {
        let main = |core: Core| async move {
            let request = "POST / HTTP/1.1\r\nHost: site\r\nContent-Length: 2\r\n\r\n";
            let (mut session, mut client) = serve(&core, request, Timeouts::default()).await;
            let connection = Rc::clone(session.connection());
            let mut deadlines = Vec::new();
            for _ in 0..2 {
                let mut asked = false;
                let step = |session: &mut Session, cx: &mut Context<'_>| {
                    // The second turn sees the deadline that the first has set.
                    if std::mem::replace(&mut asked, true) {
                        return Poll::Ready(());
                    }
                    assert!(session.connection().poll_body(cx).is_pending());
                    cx.waker().wake_by_ref();
                    Poll::Pending
                };
                session.beside_client(step).await.unwrap();
                assert!(!connection.waits_for_body(), "the second turn did not ask");
                deadlines.push(session.body_timer.deadline());
                core.sleep(Duration::from_millis(1)).await;
                client.write_all(b"x").unwrap();
                let part = poll_fn(|cx| connection.poll_body(cx)).await.unwrap();
                assert!(matches!(part, BodyPart::Data(data) if data == "x"));
            }
            assert!(deadlines[0].is_some() && deadlines[1] > deadlines[0]);
        };
        Core::builder().run(main).unwrap();
    }
}
