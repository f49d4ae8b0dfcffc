//! Faults that other pools have shown where an exchange ends by halves.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use common::*;
use http_body::Frame;
use http_client::{Body, ErrorKind, Outgoing};
use http_codec::{BodyLength, Limits, RequestWriter};
use test_support::{Gate, OK, Peer, Server, eventually, first_connections, keep_alive_tagged};

/// Gives its one piece when it is told to.
#[derive(Clone, Default)]
struct Late(Rc<State>);

#[derive(Default)]
struct State {
    told: Cell<bool>,
    given: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Late {
    fn go(&self) {
        self.0.told.set(true);
        if let Some(waker) = self.0.waker.take() {
            waker.wake();
        }
    }
}

impl http_body::Body for Late {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let state = &self.0;
        if !state.told.get() {
            state.waker.replace(Some(cx.waker().clone()));
            return Poll::Pending;
        }
        let first = !state.given.replace(true);
        Poll::Ready(first.then(|| Ok(Frame::data(Bytes::from_static(b"late")))))
    }
}

/// Fault row A13: both halves of an exchange release the connection, which is then handed out
/// twice.
#[test]
fn connection_whose_request_ends_after_its_response_is_released_once() {
    let answers_first = |peer: &mut Peer| {
        peer.read_request_head()?;
        peer.answer(OK)?;
        peer.read_exact(b"4\r\nlate\r\n0\r\n\r\n".len())?;
        keep_alive_tagged()(peer)
    };
    let server = Server::script(first_connections(1, answers_first, keep_alive_tagged()));
    let address = server.addr();
    with_client(pool_config(), client_config(), |core, client| async move {
        let body = Late::default();
        let post = request("POST", address, Body::stream(body.clone()));
        let response = client.send(post).await.unwrap();
        body.go();
        assert_eq!(text(response).await.unwrap(), "ok");
        until(&core, "it is released", || {
            total(&client).acquired.current == 0
        })
        .await;
        let stats = total(&client);
        let [idle, closed] = [u64::from(stats.idle.current), stats.closed_total()];
        assert_eq!(idle + closed, 1, "once, and in one way: {stats:?}");
        let first = client.send(get(address)).await.unwrap();
        let second = client.send(get(address)).await.unwrap();
        assert_eq!(total(&client).acquired.current, 2, "each has its own");
        for response in [first, second] {
            text(response).await.unwrap();
        }
        assert_in_order(&core, &client, 2).await;
    });
    assert_eq!(server.counts().highest_open, 2, "two sockets for two");
}

/// How many sockets of this machine stand in CLOSE_WAIT towards `port`: they have had the FIN of
/// their peer and have not closed.
fn close_waits(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let towards = format!(":{port:04X}");
    let waits = table.lines().skip(1).filter(|line| {
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        columns[2].ends_with(&towards) && columns[3] == "08"
    });
    waits.count()
}

/// Fault row G16: failed requests leave sockets half closed for days.
#[test]
fn responses_that_break_off_leave_no_socket_in_close_wait() {
    // Each says a part, sends its FIN, and goes on reading for as long as there is a peer.
    for part in [
        "",
        "HTTP/1.1 200 OK\r\nConte",
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart",
    ] {
        let server = Server::script(move |peer| {
            peer.read_request()?;
            peer.send(part)?;
            peer.fin()?;
            peer.stall()
        });
        let address = server.addr();
        with_client(pool_config(), client_config(), |core, client| async move {
            for _ in 0..100 {
                let error = fetch(&client, get(address)).await.unwrap_err();
                assert_ne!(
                    error.kind(),
                    ErrorKind::HeadTimeout,
                    "the FIN says it sooner"
                );
            }
            until(&core, "no socket is left", || {
                core.registered_sockets() == 0
            })
            .await;
            until(&core, "none waits to be closed", || {
                close_waits(address.port()) == 0
            })
            .await;
            assert_in_order(&core, &client, 2).await;
        });
        eventually(DEADLINE, || server.counts().open == 0);
    }
}

/// Fault row F4: interim responses without end.
#[test]
fn million_interim_responses_are_an_error_after_a_few() {
    for expects in [false, true] {
        let server = Server::script(|peer| {
            peer.read_request_head()?;
            let hundred = "HTTP/1.1 100 Continue\r\n\r\n".repeat(1000);
            for _ in 0..1000 {
                peer.send(&hundred)?;
            }
            peer.stall()
        });
        let address = server.addr();
        with_client(pool_config(), client_config(), |core, client| async move {
            let outgoing = {
                let mut head = BytesMut::new();
                let mut writer = RequestWriter::new(&mut head, "POST", "/").unwrap();
                writer.field("Host", "a").unwrap();
                if expects {
                    writer.field("Expect", "100-continue").unwrap();
                }
                let sent = writer.finish(BodyLength::Exact(4)).unwrap();
                Outgoing::new(head.freeze(), sent, Body::full("body"))
            };
            let seen = Rc::new(Cell::new(0));
            let (counts, target) = (Rc::clone(&seen), destination(address));
            let exchanged = client.exchange(&target, outgoing, move |_| {
                counts.set(counts.get() + 1);
            });
            let error = exchanged.await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::MalformedResponse);
            assert_eq!(seen.get(), Limits::default().max_interim());
            assert_in_order(&core, &client, 2).await;
        });
    }
}

/// Fault row C13: a connection is handed out while the exchange before is not through with it.
#[test]
fn request_sent_the_moment_a_body_ends_finds_its_connection_ready() {
    // Each response is a line of chunks that name the connection and the request.
    let server = Server::script(|peer: &mut Peer| {
        let mut n = 0;
        while peer.read_request()?.is_some() {
            n += 1;
            let tag = test_support::tag(peer.index() + 1, n);
            let chunk = format!("{:x}\r\n{tag}\r\n", tag.len());
            let chunks = chunk.repeat(if n % 1000 == 0 { 1 << 17 } else { 20 });
            peer.answer(format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"
            ))?;
        }
        Ok(())
    });
    let address = server.addr();
    let one = pool_config().max_connections(1);
    with_client(one, client_config(), |_, client| async move {
        for n in 1..=10_000 {
            let tag = test_support::tag(1, n);
            let body = client.send(get(address)).await.unwrap().into_body();
            let read = body.bytes(4 << 20).await.unwrap();
            let chunks = read.chunks(tag.len());
            let wrong = chunks.filter(|chunk| *chunk != tag.as_bytes()).count();
            assert_eq!((wrong, read.is_empty()), (0, false), "request {n}");
        }
        assert_eq!(total(&client).opened, 1);
    });
}

#[test]
fn trailers_of_a_request_follow_its_chunks() {
    let whole = "3\r\none\r\n0\r\nx-sum: 42\r\n\r\n";
    let server = Server::script(move |peer| {
        while peer.read_request_head()?.is_some() {
            let seen = peer.read_exact(whole.len())?;
            assert_eq!(String::from_utf8_lossy(&seen), whole);
            peer.answer(OK)?;
        }
        Ok(())
    });
    let address = server.addr();
    with_client(pool_config(), client_config(), |_, client| async move {
        for _ in 0..2 {
            let mut frames = 0;
            let with_trailers = body(move |_| {
                frames += 1;
                match frames {
                    1 => data("one"),
                    2 => {
                        let mut trailers = http::HeaderMap::new();
                        trailers.insert("x-sum", http::HeaderValue::from_static("42"));
                        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
                    }
                    _ => Poll::Ready(None),
                }
            });
            let post = request("POST", address, with_trailers);
            assert_eq!(fetch(&client, post).await.unwrap(), "ok");
        }
        assert_eq!(total(&client).opened, 1);
    });
    server.finish();
}

/// The answer has reached our kernel before a write to its peer fails.
#[test]
fn answer_is_delivered_though_the_write_after_it_fails() {
    let gate = Gate::new();
    let closed = gate.clone();
    let server = Server::script(move |peer| {
        peer.read_request_head()?;
        peer.answer("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig")?;
        peer.reset()?;
        closed.open();
        Ok(())
    });
    let address = server.addr();
    with_client(pool_config(), client_config(), |core, client| async move {
        let late = Late::default();
        let sending = client.send(request("POST", address, Body::stream(late.clone())));
        let reset = async {
            until(&core, "the peer has reset", || gate.is_open()).await;
            late.go();
        };
        let (response, ()) = futures_lite::future::zip(sending, reset).await;
        let response = response.unwrap();
        assert_eq!(response.status(), 413);
        assert_eq!(text(response).await.unwrap(), "big");
        assert_eq!(total(&client).idle.current, 0);
        assert_in_order(&core, &client, 2).await;
    });
}
