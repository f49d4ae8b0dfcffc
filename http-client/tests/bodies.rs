//! Where request bodies come from, and what becomes of them when a request is sent again.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use common::*;
use http::Request;
use http_client::{
    Attempt, Body, Decision, ErrorKind, JdkSwitches, Reason, RequestOptions, RetryTable, Sent,
};
use test_support::{OK, Server, Then, first_connections, keep_alive_ok, respond_then};

/// A stream of these pieces.
struct Pieces(Vec<Result<Bytes, io::Error>>);

impl futures_core::Stream for Pieces {
    type Item = Result<Bytes, io::Error>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready((!self.0.is_empty()).then(|| self.0.remove(0)))
    }
}

fn pieces(pieces: &[&'static str]) -> Pieces {
    Pieces(pieces.iter().map(|&piece| Ok(piece.into())).collect())
}

/// The length and the body of each request that a server has read.
type Record = Arc<Mutex<Vec<(Option<String>, Vec<u8>)>>>;

/// A server that notes what it reads.
fn recorder() -> (Server, Record) {
    let seen = Record::default();
    let record = Arc::clone(&seen);
    let server = Server::script(move |peer| {
        while let Some(request) = peer.read_request()? {
            let length = request.header("content-length");
            record.lock().unwrap().push((length, request.body));
            peer.answer(OK)?;
        }
        Ok(())
    });
    (server, seen)
}

#[test]
fn stream_goes_out_in_chunks_or_by_the_length_that_the_head_gives() {
    let (server, seen) = recorder();
    let address = server.addr();
    with_client(pool_config(), client_config(), |core, client| async move {
        let unknown = Body::from_stream(pieces(&["wiki", "", "pedia"]));
        let sent = fetch(&client, request("POST", address, unknown)).await;
        assert_eq!(sent.unwrap(), "ok");
        let known = Request::post(uri(address, "/")).header("Content-Length", "9");
        let known = known.body(Body::from_stream(pieces(&["wikipedia"])));
        assert_eq!(fetch(&client, known.unwrap()).await.unwrap(), "ok");
        assert_in_order(&core, &client, 2).await;
    });
    let wikipedia = b"wikipedia".to_vec();
    let nine = Some("9".to_owned());
    assert_eq!(
        *seen.lock().unwrap(),
        [(None, wikipedia.clone()), (nine, wikipedia)]
    );
}

/// Fault row E1.
#[test]
fn stream_that_fails_is_the_callers_error() {
    let (server, seen) = recorder();
    let address = server.addr();
    with_client(pool_config(), client_config(), |core, client| async move {
        fetch(&client, get(address)).await.unwrap();
        let broken = Pieces(vec![Ok("wiki".into()), Err(io::Error::other("torn"))]);
        let sending = client.send(request("PUT", address, Body::from_stream(broken)));
        let error = sending.await.unwrap_err();
        assert_eq!((error.kind(), error.attempt()), (ErrorKind::RequestBody, 1));
        assert_eq!(error.io().unwrap().to_string(), "torn");
        assert_in_order(&core, &client, 2).await;
    });
    assert_eq!(seen.lock().unwrap().len(), 1);
}

/// Fault row E1: the error looks like one of the connection, and "nothing was written, again" as if
/// the peer had closed.
#[test]
fn failing_body_is_not_taken_for_a_lost_connection_by_any_policy() {
    let (server, seen) = recorder();
    let address = server.addr();
    let mut switches = JdkSwitches::default();
    (switches.all_methods, switches.retry_connect) = (true, true);
    for policy in [
        RetryTable::default(),
        RetryTable::apache_4_3(),
        RetryTable::apache_4_3_with_timeouts(),
        RetryTable::jdk_with(switches),
        RetryTable::apache_async_4_1(),
    ] {
        let config = client_config().retry(policy);
        with_client(pool_config(), config, |core, client| async move {
            for kind in [
                io::ErrorKind::ConnectionReset,
                io::ErrorKind::BrokenPipe,
                io::ErrorKind::UnexpectedEof,
                io::ErrorKind::ConnectionRefused,
                io::ErrorKind::TimedOut,
            ] {
                for warm in [false, true] {
                    if warm {
                        fetch(&client, get(address)).await.unwrap();
                    }
                    let broken = move || body(move |_| Poll::Ready(Some(Err(kind.into()))));
                    for method in ["GET", "PUT", "POST"] {
                        let mut put = request(method, address, broken());
                        let idempotent = RequestOptions::new().idempotent(true);
                        put.extensions_mut().insert(idempotent);
                        let error = client.send(put).await.unwrap_err();
                        assert_eq!((error.kind(), error.attempt()), (ErrorKind::RequestBody, 1));
                        assert_eq!(error.io().unwrap().kind(), kind);
                        let told: Vec<_> = error.attempts().iter().map(Attempt::decision).collect();
                        assert_eq!(told, [Decision::Stop(Reason::Final)]);
                    }
                }
            }
            assert_in_order(&core, &client, 2).await;
        });
    }
    let seen = seen.lock().unwrap().len();
    assert_eq!(seen, 25, "only those that made the connections warm");
    assert_eq!(server.counts().requests, 25, "nor the head of another one");
}

/// What has been made of a factory, and what the body that is being read now does.
#[derive(Default)]
struct Made {
    times: Cell<usize>,
    /// How many bodies of the factory exist.
    alive: Rc<()>,
    most_alive: Cell<usize>,
}

/// Makes bodies that give what `script` says for the time, from 1, and the piece, from 0.
fn factory(made: &Rc<Made>, script: impl Fn(usize, usize) -> Polled + 'static) -> Body {
    let (made, script) = (Rc::clone(made), Rc::new(script));
    Body::factory(move || {
        made.times.set(made.times.get() + 1);
        let (time, script, alive) = (made.times.get(), Rc::clone(&script), Rc::clone(&made.alive));
        let now_alive = Rc::strong_count(&made.alive) - 1;
        made.most_alive.set(made.most_alive.get().max(now_alive));
        let mut piece = 0;
        PollFn(move |_: &mut Context<'_>| {
            let _one_more = &alive;
            let polled = script(time, piece);
            piece += usize::from(polled.is_ready());
            polled
        })
    })
}

#[test]
fn factory_gives_the_whole_body_again_after_the_first_was_read_to_its_end_or_in_part() {
    // The first body ends, or pauses for ever when its first piece has gone.
    for ends in [true, false] {
        let again = |peer: &mut test_support::Peer| {
            while let Some(request) = peer.read_request()? {
                assert_eq!(request.body, b"onetwo");
                peer.answer(OK)?;
            }
            Ok(())
        };
        let hangs_up = |peer: &mut test_support::Peer| {
            peer.read_request()?;
            peer.answer(OK)?;
            peer.read_request_head()?;
            peer.read_exact(b"3\r\none\r\n".len())?;
            peer.reset()
        };
        let server = Server::script(first_connections(1, hangs_up, again));
        let address = server.addr();
        with_client(pool_config(), client_config(), |core, client| async move {
            fetch(&client, get(address)).await.unwrap();
            let made = Rc::new(Made::default());
            let body = factory(&made, move |time, piece| match (time, piece) {
                (_, 0) => data("one"),
                (1, 1) if !ends => Poll::Pending,
                (_, 1) => data("two"),
                _ => Poll::Ready(None),
            });
            let put = request("PUT", address, body);
            assert_eq!(fetch(&client, put).await.unwrap(), "ok");
            assert_eq!(made.times.get(), 2);
            assert_eq!(made.most_alive.get(), 1, "one source at a time");
            assert_in_order(&core, &client, 2).await;
        });
        server.finish();
    }
}

#[test]
fn factory_is_asked_once_for_one_sending() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    with_client(pool_config(), client_config(), |_, client| async move {
        let made = Rc::new(Made::default());
        let body = factory(&made, |_, piece| match piece {
            0 => data("one"),
            _ => Poll::Ready(None),
        });
        let post = request("POST", address, body);
        assert_eq!(fetch(&client, post).await.unwrap(), "ok");
        assert_eq!(made.times.get(), 1);
    });
}

/// Fault row E1.
#[test]
fn failing_body_of_a_factory_is_not_made_again() {
    let (server, seen) = recorder();
    let address = server.addr();
    with_client(pool_config(), client_config(), |core, client| async move {
        fetch(&client, get(address)).await.unwrap();
        let made = Rc::new(Made::default());
        let body = factory(&made, |_, _| {
            Poll::Ready(Some(Err(io::Error::other("disk on fire"))))
        });
        let sending = client.send(request("PUT", address, body));
        let error = sending.await.unwrap_err();
        assert_eq!((error.kind(), error.attempt()), (ErrorKind::RequestBody, 1));
        assert_eq!(made.times.get(), 1);
        assert_in_order(&core, &client, 2).await;
    });
    assert_eq!(seen.lock().unwrap().len(), 1);
}

/// A body that tells its length.
struct Sized(RefCell<Option<Bytes>>);

impl http_body::Body for Sized {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Polled {
        self.0.take().map_or(Poll::Ready(None), data)
    }

    fn size_hint(&self) -> http_body::SizeHint {
        let left = self.0.borrow().as_ref().map_or(0, Bytes::len);
        http_body::SizeHint::with_exact(left as u64)
    }
}

#[test]
fn body_that_is_made_again_has_to_keep_the_length_that_the_head_told() {
    for (second, outcome) in [
        ("four", Ok("ok".to_owned())),
        ("for", Err(ErrorKind::RequestBody)),
        ("fours", Err(ErrorKind::RequestBody)),
    ] {
        let stale = respond_then(1, Then::ResetBeforeHead);
        let server = Server::script(first_connections(1, stale, keep_alive_ok()));
        let address = server.addr();
        with_client(pool_config(), client_config(), |core, client| async move {
            fetch(&client, get(address)).await.unwrap();
            let next = Cell::new("four");
            let body = Body::factory(move || {
                let now = Bytes::from(next.replace(second));
                Sized(RefCell::new(Some(now)))
            });
            let sent = fetch(&client, request("PUT", address, body)).await;
            if let Err(error) = &sent {
                assert_eq!(error.attempt(), 2);
                assert_ne!(error.sent(), Sent::All);
            }
            assert_eq!(sent.map_err(|error| error.kind()), outcome, "{second}");
            assert_in_order(&core, &client, 2).await;
        });
    }
}
