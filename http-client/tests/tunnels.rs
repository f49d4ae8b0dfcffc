//! Connections that leave HTTP: 101 (Switching Protocols), and CONNECT.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Poll;

use common::*;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use http::Request;
use http_body::Body as _;
use http_client::{Body, ErrorKind};
use pool_core::CloseReason;
use test_support::{Gate, OK, Peer, Server, keep_alive_ok};

const SWITCHING: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";

fn upgrade(method: &str, address: SocketAddr, body: Body) -> Request<Body> {
    let request = Request::builder().method(method).uri(uri(address, "/"));
    let request = request
        .header("Connection", "upgrade")
        .header("Upgrade", "echo");
    request.body(body).unwrap()
}

fn connect(address: SocketAddr) -> Request<Body> {
    let request = Request::connect(address.to_string());
    request.body(Body::empty()).unwrap()
}

/// Sends back what it reads until the client's FIN, then `bye`.
fn echo(peer: &mut Peer) -> std::io::Result<()> {
    let heard = peer.read_exact(6)?;
    peer.send(heard)?;
    let rest = peer.read_until_eof()?;
    peer.send(rest)?;
    peer.send("bye")?;
    peer.fin()
}

#[test]
fn tunnel_carries_bytes_both_ways_after_101_and_after_connect() {
    for switch in [
        SWITCHING,
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 299 \r\n\r\n",
    ] {
        for first in ["", "first"] {
            let server = Server::script(move |peer| {
                peer.read_request()?;
                peer.answer(format!("{switch}{first}"))?;
                echo(peer)
            });
            let address = server.addr();
            with_client(pool_config(), client_config(), |_, client| async move {
                let request = match switch {
                    SWITCHING => upgrade("GET", address, Body::empty()),
                    _ => connect(address),
                };
                let body = client.send(request).await.unwrap().into_body();
                assert!(body.is_tunnel() && body.is_end_stream());
                assert_eq!(total(&client).acquired.current, 1);
                let mut tunnel = body.into_tunnel().unwrap();
                let stats = total(&client);
                assert_eq!(
                    (stats.acquired.current, stats.closed(CloseReason::Detached)),
                    (0, 1)
                );
                tunnel.write_all(b"hello ").await.unwrap();
                let mut heard = vec![0; first.len() + 3];
                tunnel.read_exact(&mut heard).await.unwrap();
                assert_eq!(heard, format!("{first}hel").as_bytes());
                tunnel.write_all(b"world").await.unwrap();
                tunnel.close().await.unwrap();
                let mut rest = String::new();
                tunnel.read_to_string(&mut rest).await.unwrap();
                assert_eq!(rest, "lo worldbye");
            });
            server.finish();
        }
    }
}

#[test]
fn first_bytes_are_read_however_few_at_a_time_and_come_with_the_parts() {
    let server = Server::script(|peer| {
        peer.read_request()?;
        peer.answer(format!("{SWITCHING}first"))?;
        peer.stall()
    });
    let address = server.addr();
    with_client(pool_config(), client_config(), |_, client| async move {
        let request = upgrade("GET", address, Body::empty());
        let body = client.send(request).await.unwrap().into_body();
        let mut tunnel = body.into_tunnel().unwrap();
        let mut two = [0; 2];
        tunnel.read_exact(&mut two).await.unwrap();
        assert_eq!(&two, b"fi");
        assert_eq!(tunnel.get_ref().peer_addr(), address);
        let (_, first) = tunnel.into_parts();
        assert_eq!(first, "rst");
    });
}

#[test]
fn tunnel_lives_on_when_the_pool_is_drained_and_closes_when_it_is_dropped() {
    let server = Server::script(|peer| {
        peer.read_request()?;
        peer.answer("HTTP/1.1 200 OK\r\n\r\n")?;
        let heard = peer.read_exact(5)?;
        peer.send(heard)?;
        peer.stall()
    });
    let address = server.addr();
    with_client(pool_config(), client_config(), |core, client| async move {
        let response = client.send(connect(address)).await.unwrap();
        let mut tunnel = response.into_body().into_tunnel().unwrap();
        client.pool().drain(DEADLINE).await;
        tunnel.write_all(b"still").await.unwrap();
        let mut heard = [0; 5];
        tunnel.read_exact(&mut heard).await.unwrap();
        assert_eq!((&heard, core.registered_sockets()), (b"still", 1));
        drop(tunnel);
        assert_eq!(core.registered_sockets(), 0);
        until(&core, "the server sees it", || server.counts().eofs == 1).await;
    });
}

#[test]
fn tunnel_that_nobody_takes_is_closed_and_not_pooled() {
    for reads in [true, false] {
        let server = Server::script(|peer| {
            peer.read_request()?;
            peer.answer(SWITCHING)?;
            peer.stall()
        });
        let address = server.addr();
        with_client(pool_config(), client_config(), |core, client| async move {
            let request = upgrade("GET", address, Body::empty());
            let mut body = client.send(request).await.unwrap().into_body();
            if reads {
                assert!(body.frame().await.is_none());
                assert!(body.is_tunnel(), "reading to the end takes nothing");
            }
            drop(body);
            assert_eq!(total(&client).closed_total(), 1);
            assert_in_order(&core, &client, 2).await;
        });
    }
}

#[test]
fn response_that_switches_nothing_gives_its_body_back() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    with_client(pool_config(), client_config(), |core, client| async move {
        for request in [upgrade("GET", address, Body::empty()), get(address)] {
            let body = client.send(request).await.unwrap().into_body();
            let body = body.into_tunnel().unwrap_err();
            assert_eq!(body.bytes(9).await.unwrap(), "ok");
        }
        assert_eq!(total(&client).opened, 1);
        let response = client.send(connect(address)).await.unwrap();
        assert!(response.into_body().into_tunnel().is_ok());
        assert_in_order(&core, &client, 2).await;
    });
}

#[test]
fn refused_connect_is_a_response_like_others() {
    let server = Server::script(|peer| {
        while peer.read_request()?.is_some() {
            peer.answer("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")?;
        }
        Ok(())
    });
    let address = server.addr();
    with_client(pool_config(), client_config(), |_, client| async move {
        for _ in 0..2 {
            let response = client.send(connect(address)).await.unwrap();
            assert_eq!(response.status(), 403);
            let body = response.into_body().into_tunnel().unwrap_err();
            assert_eq!(body.bytes(9).await.unwrap(), "no");
        }
        assert_eq!(total(&client).opened, 1);
    });
}

/// A body that gives `late` once it is told to.
fn late(told: &Rc<Cell<bool>>) -> Body {
    let told = Rc::clone(told);
    let mut left = Some("late");
    body(move |cx| match left {
        Some(_) if !told.get() => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
        _ => left.take().map_or(Poll::Ready(None), data),
    })
}

#[test]
fn tunnel_begins_when_the_request_has_ended() {
    let gate = Gate::new();
    let early = gate.clone();
    let server = Server::script(move |peer| {
        let head = peer.read_request_head()?.unwrap();
        peer.answer(format!("{SWITCHING}first"))?;
        assert_eq!(peer.read_body(&head)?, b"late");
        early.open();
        peer.stall()
    });
    let address = server.addr();
    with_client(pool_config(), client_config(), |core, client| async move {
        let told = Rc::new(Cell::new(false));
        let request = upgrade("POST", address, late(&told));
        let body = client.send(request).await.unwrap().into_body();
        assert!(!body.is_tunnel() && !body.is_end_stream());
        let mut body = body.into_tunnel().unwrap_err();
        told.set(true);
        assert!(body.frame().await.is_none());
        let mut tunnel = body.into_tunnel().unwrap();
        let mut first = [0; 5];
        tunnel.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"first");
        until(&core, "the request is whole", || gate.is_open()).await;
    });
}

/// Fault row F4: an endless head of the answer to CONNECT.
#[test]
fn endless_answer_to_connect_is_an_error() {
    let server = Server::script(|peer| {
        peer.read_request()?;
        peer.send("HTTP/1.1 200 OK\r\nX: ")?;
        for _ in 0..1600 {
            peer.send([b'x'; 64 << 10])?;
        }
        Ok(())
    });
    let address = server.addr();
    with_client(pool_config(), client_config(), |core, client| async move {
        let error = client.send(connect(address)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MalformedResponse);
        assert_in_order(&core, &client, 2).await;
    });
}

#[test]
fn connect_is_written_in_authority_form() {
    let server = Server::script(|peer| {
        let request = peer.read_request()?.unwrap();
        let (line, host) = (request.line(), request.header("host").unwrap());
        assert_eq!(line, format!("CONNECT {host} HTTP/1.1"));
        peer.answer(OK)?;
        peer.stall()
    });
    let address = server.addr();
    with_client(pool_config(), client_config(), |_, client| async move {
        let response = client.send(connect(address)).await.unwrap();
        let mut tunnel = response.into_body().into_tunnel().unwrap();
        let mut two = [0; 2];
        tunnel.read_exact(&mut two).await.unwrap();
        assert_eq!(&two, b"ok", "a length has no meaning there");
    });
    server.finish();
}
