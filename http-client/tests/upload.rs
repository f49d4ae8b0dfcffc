//! Request bodies that fail, pause, or do not keep to what was promised.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use common::*;
use http::Request;
use http_client::{Body, ErrorKind, Outgoing, Phase, Sent, Timeouts};
use http_codec::{BodyLength, RequestWriter};
use pool_core::{Core, Sleep};
use test_support::{Gate, Server, keep_alive_ok, never_answer, never_read};

fn chunked(method: &str, body: Body) -> Outgoing {
    let mut head = BytesMut::new();
    let mut writer = RequestWriter::new(&mut head, method, "/").unwrap();
    writer.field("Host", "a").unwrap();
    let sent = writer.finish(BodyLength::Chunked).unwrap();
    Outgoing::new(head.freeze(), sent, body)
}

/// What a body that fails has seen.
#[derive(Default)]
struct Seen {
    /// Polls until the failure, counted from the interim response that makes it `Some`.
    polls_left: Cell<Option<u32>>,
    failed: Cell<bool>,
    asked_again: Cell<bool>,
}

/// Gives "half", pauses until it fails, and has ended when it is asked again, as fused streams do.
fn failing_body(seen: &Rc<Seen>) -> Body {
    let (seen, mut given) = (Rc::clone(seen), false);
    body(move |cx| {
        if !std::mem::replace(&mut given, true) {
            return data("half");
        }
        if seen.failed.get() {
            seen.asked_again.set(true);
            return Poll::Ready(None);
        }
        match seen.polls_left.get() {
            None => Poll::Pending,
            Some(0) => {
                seen.failed.set(true);
                Poll::Ready(Some(Err(io::Error::other("the source failed"))))
            }
            Some(n) => {
                seen.polls_left.set(Some(n - 1));
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    })
}

/// A server that answers with `answer` in the middle of a body, and what it reads after that.
fn answers_early(answer: &'static str) -> (Server, Arc<Mutex<Vec<u8>>>) {
    let rest = Arc::new(Mutex::new(Vec::new()));
    let read = Arc::clone(&rest);
    let server = Server::script(move |peer| {
        peer.read_request_head()?;
        assert_eq!(peer.read_exact(9)?, b"4\r\nhalf\r\n");
        peer.send(format!("HTTP/1.1 103 Early Hints\r\n\r\n{answer}"))?;
        while let Ok(byte) = peer.read_exact(1) {
            read.lock().unwrap().extend(byte);
        }
        Ok(())
    });
    (server, rest)
}

#[test]
fn body_that_fails_is_told_and_never_ended_as_if_it_were_whole() {
    for (method, answer) in [
        ("POST", "HTTP/1.1 204 No Content\r\n\r\n"),
        ("POST", "HTTP/1.1 304 Not Modified\r\n\r\n"),
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
        ("POST", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        ("POST", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        (
            "POST",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nT: v\r\n\r\n",
        ),
        ("POST", ""),
    ] {
        let mut told = 0;
        for polls in 0..6 {
            let case = format!("{method} {answer:?} after {polls} polls");
            let (server, rest) = answers_early(answer);
            let address = server.addr();
            let failed = with_client(pool_config(), client_config(), |_, client| async move {
                let seen = Rc::new(Seen::default());
                let outgoing = chunked(method, failing_body(&seen));
                let begins = Rc::clone(&seen);
                let target = destination(address);
                let exchanged =
                    client.exchange(&target, outgoing, |_| begins.polls_left.set(Some(polls)));
                let error = match exchanged.await {
                    Err(error) => Some(error),
                    Ok((_, mut body)) => loop {
                        match body.frame().await {
                            None => break None,
                            Some(Err(error)) => break Some(error),
                            Some(Ok(_)) => {}
                        }
                    },
                };
                assert_eq!(error.is_some(), seen.failed.get(), "{case}: {error:?}");
                if let Some(error) = error {
                    assert_eq!(error.kind(), ErrorKind::RequestBody, "{case}");
                    assert_eq!(error.sent(), Sent::Part, "{case}");
                    assert_eq!(error.io().unwrap().to_string(), "the source failed");
                }
                assert!(!seen.asked_again.get(), "{case}");
                assert_eq!(total(&client).idle.current, 0, "{case}");
                seen.failed.get()
            });
            server.finish();
            let rest = rest.lock().unwrap();
            assert_eq!(*rest, b"", "{}", rest.escape_ascii());
            told += u32::from(failed);
        }
        assert!(
            told >= 2,
            "{method} {answer:?}: the body failed in {told} cases"
        );
    }
}

/// Gives its pieces with a pause before each and before its end.
fn pausing_body(core: &Core, pause: Duration, pieces: &'static [&'static str]) -> Body {
    let core = core.clone();
    let mut pieces = pieces.iter();
    let mut paused: Option<Sleep> = None;
    body(move |cx| {
        let sleep = paused.get_or_insert_with(|| core.sleep(pause));
        std::task::ready!(Pin::new(sleep).poll(cx));
        paused = None;
        pieces
            .next()
            .map_or(Poll::Ready(None), |piece| data(*piece))
    })
}

#[test]
fn pause_of_the_request_body_is_not_held_against_the_peer() {
    let server = Server::script(never_answer());
    let address = server.addr();
    let limit = Duration::from_millis(20);
    let short = client_config().response_head_timeout(Some(limit));
    with_client(pool_config(), short, |core, client| async move {
        // The pauses and the limit run on one clock, so that a limit that counts a pause ends
        // before it, however slow the machine.
        let pausing = pausing_body(&core, 3 * limit, &["one", "two", "three"]);
        let sending = client.send(request("POST", address, pausing));
        let error = sending.await.unwrap_err();
        // And then it counts: the peer has the whole request.
        assert_eq!(error.kind(), ErrorKind::HeadTimeout);
        assert_eq!((error.phase(), error.sent()), (Phase::Wait, Sent::All));
        assert_in_order(&core, &client, 1).await;
    });
}

/// Bodies of more than any kernel takes for a peer that does not read.
fn large_bodies() -> [Body; 3] {
    let large = Bytes::from(vec![0; 64 << 20]);
    let pauses = {
        let mut first = Some(large.clone());
        body(move |_| first.take().map_or(Poll::Pending, data))
    };
    let endless = body(|_| data(Bytes::from_static(&[0; 16 << 10])));
    [Body::full(large), pauses, endless]
}

#[test]
fn request_that_the_peer_does_not_take_has_a_deadline_whatever_its_body_does() {
    let short = Duration::from_millis(50);
    let stall = Timeouts::builder().write_stall(short).build().unwrap();
    let head = Timeouts::builder().write_stall(None).response_head(short);
    let head = head.build().unwrap();
    for (timeouts, kind) in [
        (stall, ErrorKind::WriteTimeout),
        (head, ErrorKind::HeadTimeout),
    ] {
        for unread in large_bodies() {
            let server = Server::script(never_read());
            let address = server.addr();
            let config = client_config().timeouts(timeouts);
            with_client(pool_config(), config, |core, client| async move {
                let sending = client.send(request("POST", address, unread));
                let error = sending.await.unwrap_err();
                assert_eq!(error.kind(), kind);
                assert_eq!((error.phase(), error.sent()), (Phase::Send, Sent::Part));
                until(&core, "the connection is closed", || {
                    total(&client).acquired.current == 0
                })
                .await;
            });
        }
    }
}

#[test]
fn stalled_request_does_not_take_the_response_with_it() {
    let limit = Duration::from_millis(20);
    let gate = Gate::new();
    let passed = gate.clone();
    let server = Server::script(move |peer| {
        peer.read_request_head()?;
        peer.answer("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nb")?;
        peer.wait_at(&passed)?;
        peer.send("ig")?;
        peer.stall_without_reading()
    });
    let address = server.addr();
    let timeouts = Timeouts::builder().write_stall(limit).build().unwrap();
    let config = client_config().timeouts(timeouts);
    with_client(pool_config(), config, |core, client| async move {
        // It begins when the response has, so that the limit does not meet a slow answer.
        let begun = Rc::new(Cell::new(false));
        let begins = Rc::clone(&begun);
        let endless = body(move |_| match begins.get() {
            true => data(Bytes::from_static(&[0; 16 << 10])),
            false => Poll::Pending,
        });
        let response = client.send(request("POST", address, endless)).await;
        begun.set(true);
        let body = response.unwrap().into_body().bytes(9);
        let stalled = async {
            core.sleep(5 * limit).await;
            gate.open();
        };
        let (body, ()) = futures_lite::future::zip(body, stalled).await;
        assert_eq!(body.unwrap(), "big");
        assert_eq!(total(&client).idle.current, 0);
        assert_in_order(&core, &client, 1).await;
    });
}

/// A request that promises four bytes.
fn promises_four(server: &Server, body: Body) -> Request<Body> {
    let request = Request::post(uri(server.addr(), "/")).header("Content-Length", "4");
    request.body(body).unwrap()
}

/// Gives each of `pieces` and then neither another one nor its end.
fn endless_after(pieces: &'static [&'static str]) -> Body {
    let mut pieces = pieces.iter();
    body(move |_| pieces.next().map_or(Poll::Pending, |piece| data(*piece)))
}

#[test]
fn request_is_whole_once_the_promised_bytes_are_there() {
    let server = Server::script(keep_alive_ok());
    let silent = Server::script(never_answer());
    let short = client_config().response_head_timeout(Some(Duration::from_millis(20)));
    with_client(pool_config(), client_config(), |_, client| async move {
        for pieces in [&["half"][..], &["ha", "", "lf"]] {
            let sending = promises_four(&server, endless_after(pieces));
            assert_eq!(fetch(&client, sending).await.unwrap(), "ok");
        }
        assert_eq!(total(&client).opened, 1);
        let too_much = promises_four(&server, endless_after(&["half", "more"]));
        let error = client.send(too_much).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RequestBody);
    });
    with_client(pool_config(), short, |_, client| async move {
        let sending = promises_four(&silent, endless_after(&["half"]));
        let error = client.send(sending).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::HeadTimeout);
        assert_eq!((error.phase(), error.sent()), (Phase::Wait, Sent::All));
    });
}

#[test]
fn body_that_gives_nothing_but_empty_frames_leaves_the_core_to_others() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    with_client(pool_config(), client_config(), |core, client| async move {
        let (seen, has_had_its_turn) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let (counted, enough) = (Rc::clone(&seen), Rc::clone(&has_had_its_turn));
        let empty = body(move |_| {
            counted.set(counted.get() + 1);
            assert!(counted.get() < 10_000_000, "nothing else had a turn");
            match enough.get() {
                true => Poll::Ready(None),
                false => data(""),
            }
        });
        let sending = client.send(request("POST", address, empty));
        let other = async {
            until(&core, "a frame was asked for", || seen.get() > 0).await;
            has_had_its_turn.set(true);
        };
        let (response, ()) = futures_lite::future::zip(sending, other).await;
        assert_eq!(text(response.unwrap()).await.unwrap(), "ok");
        assert_in_order(&core, &client, 2).await;
    });
}
