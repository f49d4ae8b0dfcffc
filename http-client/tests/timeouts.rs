//! Deadlines on what follows the head of a response.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::*;
use futures_lite::future::{poll_once, zip};
use http_client::{ClientConfig, ErrorKind, Phase, Sent, Timeouts, TimeoutsBuilder};
use pool_core::CloseReason;
use test_support::{Gate, Server, first_connections, keep_alive_ok};

fn config(timeouts: TimeoutsBuilder) -> ClientConfig {
    ClientConfig::default().timeouts(timeouts.build().unwrap())
}

/// Sends four of ten bytes, and the rest at the gate; then answers like others.
fn pauses_in_its_body(gate: &Gate) -> Server {
    let gate = gate.clone();
    let pauses = move |peer: &mut test_support::Peer| {
        peer.read_request()?;
        peer.answer("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123")?;
        peer.wait_at(&gate)?;
        peer.send("456789")?;
        keep_alive_ok()(peer)
    };
    Server::script(first_connections(1, pauses, keep_alive_ok()))
}

/// Fault row C5.
#[test]
fn connection_whose_body_paused_for_too_long_is_not_used_again() {
    let gate = Gate::new();
    let server = pauses_in_its_body(&gate);
    let address = server.addr();
    let short = config(Timeouts::builder().body_idle(Duration::from_millis(50)));
    with_client(pool_config(), short, |core, client| async move {
        let mut body = client.send(get(address)).await.unwrap().into_body();
        assert_eq!(
            body.frame().await.unwrap().unwrap().into_data().unwrap(),
            "0123"
        );
        let error = body.frame().await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BodyTimeout);
        assert_eq!((error.phase(), error.sent()), (Phase::Receive, Sent::All));
        assert!(body.frame().await.is_none());
        assert_eq!(total(&client).closed(CloseReason::ExchangeFailed), 1);
        gate.open();
        assert_eq!(fetch(&client, get(address)).await.unwrap(), "ok");
        assert_eq!(total(&client).opened, 2);
        until(&core, "the first is closed", || server.counts().open == 1).await;
        assert_in_order(&core, &client, 2).await;
    });
}

#[test]
fn body_that_nobody_waits_for_is_not_late() {
    let (gate, sent) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
    let (passed, tells) = (gate.clone(), Arc::clone(&sent));
    let server = Server::script(move |peer| {
        peer.read_request()?;
        peer.answer("HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n")?;
        for piece in ["0123", "4567", "89ab"] {
            peer.wait_at(&passed)?;
            peer.send(piece)?;
            tells.fetch_add(1, Ordering::SeqCst);
        }
        peer.stall()
    });
    let address = server.addr();
    let limit = Duration::from_millis(50);
    let short = config(Timeouts::builder().body_idle(limit));
    with_client(pool_config(), short, |core, client| async move {
        let mut body = client.send(get(address)).await.unwrap().into_body();
        for (n, piece) in ["0123", "4567", "89ab"].into_iter().enumerate() {
            let waited_for = poll_once(body.frame()).await;
            assert!(waited_for.is_none(), "{waited_for:?}");
            gate.admit(1);
            // Not by waiting for the body, which has its limit again.
            until(&core, "it is there", || sent.load(Ordering::SeqCst) > n).await;
            let data = body.frame().await.unwrap().unwrap().into_data();
            assert_eq!(data.unwrap(), piece);
            core.sleep(2 * limit).await;
        }
        assert!(body.frame().await.is_none());
    });
}

#[test]
fn body_may_pause_for_ever_without_a_limit() {
    let gate = Gate::new();
    let server = pauses_in_its_body(&gate);
    let address = server.addr();
    let none = config(Timeouts::builder().body_idle(None));
    with_client(pool_config(), none, |core, client| async move {
        let body = client.send(get(address)).await.unwrap().into_body();
        let pause = async {
            core.sleep(Duration::from_millis(50)).await;
            gate.open();
        };
        let (body, ()) = zip(body.bytes(16), pause).await;
        assert_eq!(body.unwrap(), "0123456789");
        assert_eq!(fetch(&client, get(address)).await.unwrap(), "ok");
        assert_eq!(total(&client).opened, 1);
    });
}

#[test]
fn total_holds_for_the_body_also_where_its_data_is_there() {
    let limit = Duration::from_millis(100);
    for (announced, there) in [(10, "0123"), (4, "0123")] {
        let server = Server::script(move |peer| {
            peer.read_request()?;
            peer.answer(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {announced}\r\n\r\n"
            ))?;
            peer.send(there)?;
            peer.stall()
        });
        let address = server.addr();
        let short = config(Timeouts::builder().total(limit));
        with_client(pool_config(), short, |core, client| async move {
            let response = client.send(get(address)).await;
            core.sleep(limit).await;
            let error = match response {
                Ok(response) => response.into_body().frame().await.unwrap().unwrap_err(),
                // The machine stood still, and it is over before it has begun.
                Err(error) => error,
            };
            assert_eq!(error.kind(), ErrorKind::TotalTimeout);
            assert_in_order(&core, &client, 2).await;
        });
    }
}

#[test]
fn total_does_not_undo_a_body_that_has_come_as_a_whole() {
    // Long enough for the first two steps on any machine.
    let limit = Duration::from_secs(2);
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let short = config(Timeouts::builder().total(limit));
    with_client(pool_config(), short, |core, client| async move {
        let mut body = client.send(get(address)).await.unwrap().into_body();
        assert_eq!(
            body.frame().await.unwrap().unwrap().into_data().unwrap(),
            "ok"
        );
        core.sleep(limit).await;
        assert!(body.frame().await.is_none());
        assert_eq!(total(&client).idle.current, 1);
    });
}

#[test]
fn wait_for_a_body_that_is_dropped_loses_nothing_and_is_no_timeout() {
    let gate = Gate::new();
    let server = pauses_in_its_body(&gate);
    let address = server.addr();
    let limits = Timeouts::builder().body_idle(DEADLINE).total(DEADLINE);
    with_client(pool_config(), config(limits), |_, client| async move {
        let mut body = client.send(get(address)).await.unwrap().into_body();
        assert_eq!(
            body.frame().await.unwrap().unwrap().into_data().unwrap(),
            "0123"
        );
        for _ in 0..3 {
            assert!(poll_once(body.frame()).await.is_none());
        }
        gate.open();
        assert_eq!(body.bytes(16).await.unwrap(), "456789");
        assert_eq!(fetch(&client, get(address)).await.unwrap(), "ok");
        assert_eq!(total(&client).opened, 1);
    });
}
