//! Whoever is slow holds the other side up, and nothing piles up in between. And whoever is fast
//! does not keep the client from its other work.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use common::*;
use http_client::{ErrorKind, Timeouts};
use pool_core::Core;
use test_support::{Gate, Server};

/// What a body gives at a time.
const PIECE: usize = 16 << 10;

/// More than the kernel takes for a peer that does not read.
const LARGE: usize = 64 << 20;

/// What may wait in an exchange: what it takes of a body in advance, and the last piece.
const QUEUED: usize = (64 << 10) + PIECE;

/// Waits until `count` has stood still for a while: then what moves it is held up.
async fn until_still(core: &Core, mut count: impl FnMut() -> usize) -> usize {
    let (mut last, mut still) = (count(), 0);
    until(core, "it stands still", || {
        let now = count();
        still = if now == last { still + 1 } else { 0 };
        last = now;
        now > 0 && still == 50
    })
    .await;
    last
}

#[test]
fn body_is_not_asked_for_more_than_the_peer_takes() {
    let (gate, received) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
    let (reads, counted) = (gate.clone(), Arc::clone(&received));
    let server = Server::script(move |peer| {
        peer.read_request_head()?;
        peer.wait_at(&reads)?;
        counted.store(peer.read_until_eof()?.len(), Ordering::SeqCst);
        Ok(())
    });
    let address = server.addr();
    let stall = Timeouts::builder().write_stall(Duration::from_millis(200));
    let config = client_config().timeouts(stall.build().unwrap());
    let given = Rc::new(Cell::new(0));
    let gives = Rc::clone(&given);
    with_client(pool_config(), config, |_, client| async move {
        let endless = body(move |_| {
            gives.set(gives.get() + PIECE);
            data(Bytes::from_static(&[0; PIECE]))
        });
        let mut post = request("POST", address, endless);
        // A length, so that what arrives is the body alone.
        let length = http::HeaderValue::from(u64::MAX);
        post.headers_mut().insert("content-length", length);
        let error = client.send(post).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WriteTimeout);
    });
    gate.open();
    server.wait_until(|counts| counts.open == 0);
    let (given, received) = (given.get(), received.load(Ordering::SeqCst));
    assert!(
        given < LARGE,
        "the kernel takes all: the test shows nothing"
    );
    assert!(
        received > 0 && given <= received + QUEUED,
        "{given} given, {received} received"
    );
    server.finish();
}

#[test]
fn body_that_nobody_reads_is_held_back_at_its_peer() {
    let sent = Arc::new(AtomicUsize::new(0));
    let sends = Arc::clone(&sent);
    let server = Server::script(move |peer| {
        peer.read_request()?;
        peer.answer(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n"
        ))?;
        for n in 0..LARGE / PIECE {
            peer.send([n.to_le_bytes()[0]; PIECE])?;
            sends.fetch_add(PIECE, Ordering::SeqCst);
        }
        peer.stall()
    });
    let address = server.addr();
    let slow = Timeouts::builder().body_idle(None).build().unwrap();
    let config = client_config().timeouts(slow);
    with_client(pool_config(), config, |core, client| async move {
        let mut body = client.send(get(address)).await.unwrap().into_body();
        let before = until_still(&core, || sent.load(Ordering::SeqCst)).await;
        assert!(before < LARGE, "it was all taken, and nobody has read it");
        let mut read = 0;
        while let Some(frame) = body.frame().await {
            let data = frame.unwrap().into_data().unwrap();
            assert!(data.len() <= 64 << 10, "more than one read takes");
            let right = |(at, byte): (usize, &u8)| *byte == ((read + at) / PIECE).to_le_bytes()[0];
            assert!(data.iter().enumerate().all(right), "other bytes at {read}");
            read += data.len();
        }
        assert_eq!(read, LARGE);
        assert_eq!(total(&client).idle.current, 1);
    });
    server.finish();
}

/// As a server does that refuses an upload but does not want its answer to be lost.
#[test]
fn early_answer_of_a_peer_that_reads_on_is_delivered_and_others_get_their_turn() {
    let gate = Gate::new();
    let answers = gate.clone();
    let server = Server::script(move |peer| {
        peer.read_request_head()?;
        while !answers.is_open() {
            peer.read_exact(PIECE)?;
        }
        peer.answer("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig")?;
        peer.stall()
    });
    let address = server.addr();
    with_client(pool_config(), client_config(), |core, client| async move {
        let endless = body(|_| data(Bytes::from_static(&[0; PIECE])));
        let sending = client.send(request("POST", address, endless));
        let others = async {
            core.sleep(Duration::from_millis(5)).await;
            gate.open();
        };
        let (response, ()) = futures_lite::future::zip(sending, others).await;
        let response = response.unwrap();
        assert_eq!(response.status(), 413);
        assert_eq!(text(response).await.unwrap(), "big");
        assert_eq!(total(&client).idle.current, 0);
        assert_in_order(&core, &client, 2).await;
    });
    server.finish();
}

#[test]
fn endless_body_of_a_peer_that_sends_on_leaves_others_their_turn() {
    let server = Server::script(|peer| {
        peer.read_request()?;
        peer.send("HTTP/1.1 200 OK\r\n\r\n")?;
        while peer.send([0; PIECE]).is_ok() {}
        Ok(())
    });
    let address = server.addr();
    with_client(pool_config(), client_config(), |core, client| async move {
        let mut body = client.send(get(address)).await.unwrap().into_body();
        let reads = async {
            while let Some(frame) = body.frame().await {
                frame.unwrap();
            }
        };
        let others = core.sleep(Duration::from_millis(5));
        futures_lite::future::or(reads, others).await;
        drop(body);
        assert_in_order(&core, &client, 2).await;
    });
    server.finish();
}
