//! `Expect: 100-continue`: the body goes out when the peer asks for it, or when it has not said
//! anything for too long (RFC 9110 §10.1.1).
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use common::*;
use http::Request;
use http_client::{Body, ClientConfig, ErrorKind, Phase, Sent, Timeouts};
use test_support::{Gate, OK, Peer, Server, first_connections, keep_alive_ok, never_answer};

fn waits(expect: impl Into<Option<Duration>>, head: Duration) -> ClientConfig {
    let timeouts = Timeouts::builder().expect_continue(expect);
    let timeouts = timeouts.response_head(head).build().unwrap();
    ClientConfig::default().timeouts(timeouts)
}

fn patient() -> ClientConfig {
    waits(DEADLINE, DEADLINE)
}

fn expecting(method: &str, address: SocketAddr, body: Body) -> Request<Body> {
    let request = Request::builder().method(method).uri(uri(address, "/"));
    let request = request.header("Expect", "100-continue");
    request.body(body).unwrap()
}

/// Gives `body`, and notes that it was asked.
fn watched(asked: &Rc<Cell<bool>>) -> Body {
    let (asked, mut left) = (Rc::clone(asked), Some("body"));
    body(move |_| {
        asked.set(true);
        left.take().map_or(Poll::Ready(None), data)
    })
}

#[test]
fn body_is_held_back_until_the_peer_asks_for_it() {
    let gate = Gate::new();
    let asks = gate.clone();
    let server = Server::script(move |peer| {
        let head = peer.read_request_head()?.unwrap();
        peer.send("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n")?;
        peer.wait_at(&asks)?;
        peer.send("HTTP/1.1 100 Continue\r\n\r\n")?;
        assert_eq!(peer.read_body(&head)?, b"body");
        peer.answer(OK)?;
        keep_alive_ok()(peer)
    });
    let address = server.addr();
    with_client(pool_config(), patient(), |core, client| async move {
        let asked = Rc::new(Cell::new(false));
        let sent = Rc::new(RefCell::new(None));
        let sending = fetch_in_task(&client, expecting("POST", address, watched(&asked)), &sent);
        core.spawn(sending);
        until(&core, "the server has seen the head", || {
            gate.arrived() == 1
        })
        .await;
        for _ in 0..5 {
            core.sleep(Duration::from_millis(1)).await;
            assert!(!asked.get(), "other interim responses do not ask");
        }
        gate.open();
        until(&core, "it is answered", || sent.borrow().is_some()).await;
        assert!(asked.get());
        assert_eq!(sent.take().unwrap().unwrap(), "ok");
        assert_eq!(fetch(&client, get(address)).await.unwrap(), "ok");
        assert_eq!(total(&client).opened, 1, "it is kept");
    });
    server.finish();
}

type Sending = Rc<RefCell<Option<Result<String, ErrorKind>>>>;

fn fetch_in_task(
    client: &TestClient,
    request: Request<Body>,
    sent: &Sending,
) -> impl Future<Output = ()> + use<> {
    let (client, sent) = (client.clone(), Rc::clone(sent));
    async move {
        let fetched = fetch(&client, request).await;
        sent.replace(Some(fetched.map_err(|error| error.kind())));
    }
}

#[test]
fn final_answer_instead_leaves_the_body_unsent_and_the_connection_closed() {
    for status in ["417 Expectation Failed", "401 Unauthorized", "200 OK"] {
        for full in [true, false] {
            let rest = Arc::new(Mutex::new(None));
            let read = Arc::clone(&rest);
            let answers = move |peer: &mut Peer| {
                peer.read_request_head()?;
                peer.answer(format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nno"))?;
                read.lock().unwrap().replace(peer.read_until_eof()?);
                Ok(())
            };
            let server = Server::script(first_connections(1, answers, keep_alive_ok()));
            let address = server.addr();
            with_client(pool_config(), patient(), |core, client| async move {
                let asked = Rc::new(Cell::new(false));
                let body = match full {
                    true => Body::full("body"),
                    false => watched(&asked),
                };
                let response = client.send(expecting("POST", address, body)).await;
                let response = response.unwrap();
                assert_eq!(response.status().as_str(), &status[..3]);
                assert_eq!(text(response).await.unwrap(), "no");
                assert!(!asked.get());
                let stats = total(&client);
                assert_eq!((stats.idle.current, stats.acquired.current), (0, 0));
                assert_eq!(fetch(&client, get(address)).await.unwrap(), "ok");
                assert_in_order(&core, &client, 2).await;
            });
            server.wait_until(|counts| counts.open == 0);
            assert_eq!(rest.lock().unwrap().as_deref(), Some(&b""[..]), "{status}");
        }
    }
}

#[test]
fn request_without_a_body_waits_for_nothing() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    with_client(pool_config(), patient(), |_, client| async move {
        for body in [Body::empty(), Body::full("")] {
            let sent = fetch(&client, expecting("POST", address, body)).await;
            assert_eq!(sent.unwrap(), "ok");
        }
        assert_eq!(total(&client).opened, 1);
    });
}

#[test]
fn body_goes_out_to_a_peer_that_does_not_know_the_expectation() {
    // And one that answers it when nobody waits any more.
    for late in ["", "HTTP/1.1 100 Continue\r\n\r\n"] {
        let server = Server::script(move |peer| {
            while let Some(request) = peer.read_request()? {
                assert_eq!(request.body, b"body");
                peer.send(late)?;
                peer.answer(OK)?;
            }
            Ok(())
        });
        let address = server.addr();
        let short = waits(Duration::from_millis(20), DEADLINE);
        with_client(pool_config(), short, |core, client| async move {
            for _ in 0..2 {
                let asked = Rc::new(Cell::new(false));
                let post = expecting("POST", address, watched(&asked));
                assert_eq!(fetch(&client, post).await.unwrap(), "ok");
            }
            assert_eq!(total(&client).opened, 1);
            core.sleep(Duration::from_millis(1)).await;
        });
        server.finish();
    }
}

#[test]
fn limit_on_the_head_runs_when_the_body_has_left_or_nothing_else_ends_the_wait() {
    let (short, shorter) = (Duration::from_millis(60), Duration::from_millis(20));
    for (expect, sent, asks) in [(Some(short), Sent::All, true), (None, Sent::Part, false)] {
        let server = Server::script(never_answer());
        let address = server.addr();
        let config = waits(expect, shorter);
        with_client(pool_config(), config, |core, client| async move {
            let asked = Rc::new(Cell::new(false));
            let post = expecting("POST", address, watched(&asked));
            let error = client.send(post).await.unwrap_err();
            assert_eq!((error.kind(), error.sent()), (ErrorKind::HeadTimeout, sent));
            assert_eq!(asked.get(), asks);
            assert_in_order(&core, &client, 2).await;
        });
    }
}

#[test]
fn body_that_was_held_back_is_there_for_another_connection() {
    let hangs_up = |peer: &mut Peer| {
        peer.read_request()?;
        peer.answer(OK)?;
        peer.read_request_head()?;
        peer.close()
    };
    let asks = |peer: &mut Peer| {
        let head = peer.read_request_head()?.unwrap();
        peer.send("HTTP/1.1 100 Continue\r\n\r\n")?;
        assert_eq!(peer.read_body(&head)?, b"body");
        peer.answer(OK)
    };
    let server = Server::script(first_connections(1, hangs_up, asks));
    let address = server.addr();
    with_client(pool_config(), patient(), |_, client| async move {
        fetch(&client, get(address)).await.unwrap();
        let asked = Rc::new(Cell::new(false));
        let put = expecting("PUT", address, watched(&asked));
        assert_eq!(fetch(&client, put).await.unwrap(), "ok");
    });
    server.finish();
}

#[test]
fn peer_that_closes_meanwhile_has_seen_a_part() {
    let server = Server::script(|peer| {
        peer.read_request_head()?;
        peer.close()
    });
    let address = server.addr();
    with_client(pool_config(), patient(), |core, client| async move {
        let post = expecting("POST", address, Body::full("body"));
        let error = client.send(post).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ClosedBeforeResponse);
        assert_eq!((error.phase(), error.sent()), (Phase::Send, Sent::Part));
        assert_in_order(&core, &client, 2).await;
    });
}
