//! A connection in the course of time: what is waited for, and for how long.

use std::future::poll_fn;
use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_codec::{RequestHead, Reuse};
use pool_core::{Core, Sleep};

use super::closing::Member;
use super::connection::{BodyPart, Connection, Fault};

/// A client may keep its connection idle for so long between two requests.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

/// A request head has to be whole so long after its first byte, however it drips in.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// A client that takes no byte of its response for so long is gone.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

/// An unread request body up to this size is read and thrown away to keep the connection: more
/// would cost more than a new connection does.
pub(crate) const DRAINED_BYTES: u64 = 64 << 10;

/// The rest of a small body has usually come already.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// How long a client that is still sending has to take in its last response.
const LINGER_TIME: Duration = Duration::from_secs(2);

/// A client's connection and its clock.
#[derive(Debug)]
pub struct Session {
    core: Core,
    connection: Rc<Connection>,
    member: Member,
    timer: Option<(Waits, Sleep)>,
    /// How much the client had taken at the last look.
    taken: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// Nothing; the timer may still run.
    No,
    ForRequest,
    ForHead,
    ForRoom,
}

/// Why there is no next request, though the client is owed an answer or a close.
#[derive(Debug)]
pub enum Refusal {
    /// The client's side failed.
    Fault(Fault),
    /// The head did not come in time.
    TooSlow,
}

impl Session {
    /// Serves `connection`, which counts as `member` of what closes.
    #[must_use]
    pub fn new(core: &Core, connection: Connection, member: Member) -> Self {
        Self {
            core: core.clone(),
            connection: Rc::new(connection),
            member,
            timer: None,
            taken: 0,
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

    /// Waits for the next request. `None`: the client has closed or was idle for too long, or the
    /// server is closing.
    ///
    /// # Errors
    ///
    /// [`Refusal`]: answer it, then [`finish`](Self::finish).
    pub async fn next_request(&mut self) -> Result<Option<RequestHead>, Refusal> {
        self.stop_timer();
        poll_fn(|cx| {
            if let Poll::Ready(request) = self.connection.poll_request(cx) {
                return Poll::Ready(request.map_err(Refusal::Fault));
            }
            if self.connection.has_unread() {
                ready!(self.poll_timer(cx, Waits::ForHead, HEAD_TIMEOUT));
                return Poll::Ready(Err(Refusal::TooSlow));
            }
            if self.member.poll_begun(cx).is_ready() {
                return Poll::Ready(Ok(None));
            }
            ready!(self.poll_timer(cx, Waits::ForRequest, IDLE_TIMEOUT));
            Poll::Ready(Ok(None))
        })
        .await
    }

    /// Writes until nothing is queued.
    ///
    /// # Errors
    ///
    /// The client is gone, or has taken nothing for so long that it might as well be.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.connection.poll_flush(cx);
        // It may have been written by somebody else since the last look.
        let (_, taken) = self.connection.traffic();
        if flushed.is_ready() || taken != self.taken {
            self.taken = taken;
            self.stop_timer();
        }
        if flushed.is_ready() {
            return flushed;
        }
        ready!(self.poll_timer(cx, Waits::ForRoom, SEND_TIMEOUT));
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

    /// Ends an exchange whose response is queued to its end. Tells whether the next request may
    /// come; if not, the connection is ready to be dropped.
    pub async fn finish(&mut self) -> bool {
        if self.flush().await.is_err() {
            return false;
        }
        if self.connection.reuse() == Reuse::NotYet {
            self.drain().await;
        }
        if self.connection.start_next().is_ok() {
            return true;
        }
        self.linger().await;
        false
    }

    /// Throws away the rest of a request's body, if it is small and there.
    async fn drain(&self) {
        let mut drained = 0;
        let rest = poll_fn(|cx| {
            while let Ok(BodyPart::Data(data)) = ready!(self.connection.poll_body(cx)) {
                drained += data.len() as u64;
                if drained > DRAINED_BYTES {
                    break;
                }
            }
            Poll::Ready(())
        });
        // What was drained in time is seen by whether the request has ended.
        let _ = self.core.timeout(DRAIN_TIME, rest).await;
    }

    /// Closing a socket with unread bytes sends RST, which makes many clients throw away the
    /// response that they have not read yet. So a client that may still be sending gets a FIN
    /// first, and its bytes are taken until it closes too.
    async fn linger(&self) {
        let connection = &self.connection;
        if connection.request_done() && !connection.has_unread() {
            return;
        }
        if connection.stream().shutdown(Shutdown::Write).is_ok() {
            let closed = poll_fn(|cx| connection.poll_discard(cx));
            let _ = self.core.timeout(LINGER_TIME, closed).await;
        }
    }

    /// One timer serves all waits of a connection: they never overlap.
    fn poll_timer(&mut self, cx: &mut Context<'_>, waits: Waits, limit: Duration) -> Poll<()> {
        let (current, sleep) = self
            .timer
            .get_or_insert_with(|| (waits, self.core.sleep(limit)));
        if *current != waits {
            *current = waits;
            sleep.restart(limit);
        }
        Pin::new(sleep).poll(cx)
    }

    fn stop_timer(&mut self) {
        if let Some((waits, _)) = &mut self.timer {
            *waits = Waits::No;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::SocketAddr;

    use bytes::Bytes;
    use http_codec::{BodyLength, Limits};
    use pool_core::{ListenOptions, TcpListener, Timestamp};
    use test_support::DEADLINE;

    use super::*;
    use crate::server::{Buffers, Closing};

    fn deadline(session: &Session) -> Timestamp {
        let (_, sleep) = session.timer.as_ref().unwrap();
        sleep.deadline()
    }

    #[test]
    fn client_that_takes_some_of_its_response_gets_more_time_whoever_wrote_it() {
        let main = |core: Core| async move {
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            let mut listener = TcpListener::bind(&core, any, &ListenOptions::default()).unwrap();
            let mut client = std::net::TcpStream::connect(listener.local_addr()).unwrap();
            client.set_read_timeout(Some(DEADLINE)).unwrap();
            client
                .write_all(b"GET / HTTP/1.1\r\nHost: site\r\n\r\n")
                .unwrap();
            let stream = listener.accept().await.unwrap();
            let connection = Connection::new(stream, &Limits::default(), &Buffers::default());
            let mut session = Session::new(&core, connection, Closing::default().enter());
            session.next_request().await.unwrap().unwrap();

            let connection = Rc::clone(session.connection());
            let length = BodyLength::UntilClose;
            connection.respond(200, length, |_| Ok(())).unwrap();
            // More than the kernel takes while nobody reads.
            connection.push(Bytes::from(vec![0; 64 << 20])).unwrap();
            let flushed = poll_fn(|cx| Poll::Ready(session.poll_flush(cx))).await;
            assert!(flushed.is_pending());
            let (first, taken) = (deadline(&session), connection.traffic().1);

            let mut piece = vec![0; 64 << 10];
            while connection.traffic().1 == taken {
                client.read_exact(&mut piece).unwrap();
                core.sleep(Duration::from_millis(1)).await;
                poll_fn(|cx| {
                    // Whoever moves a body on writes as much as goes, and looks at the clock then.
                    assert!(connection.poll_flush(cx).is_pending());
                    assert!(session.poll_flush(cx).is_pending());
                    Poll::Ready(())
                })
                .await;
            }
            assert!(deadline(&session) > first);
        };
        Core::builder().run(main).unwrap();
    }
}
