//! Faults that other pools have shown where an exchange ends by halves.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use common::*;
use http_body::Frame;
use http_client::{Body, ErrorKind};
use test_support::{OK, Peer, Server, eventually, first_connections, keep_alive_tagged};

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
