//! Breakers over real sockets. Their rules in virtual time stand beside the code.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use common::*;
use futures_lite::future::poll_once;
use http_client::{
    Body, BreakerConfig, BreakerConfigBuilder, BreakerState, ClientConfig, Decision, ErrorKind,
    Outgoing, Phase, Reason, RetryTable,
};
use http_codec::{BodyLength, RequestWriter};
use test_support::{Gate, OK, Server, keep_alive_ok, never_answer, refused_address};

const REFUSAL: &str = "HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\nno";

/// Opens at the second failure in a row, for longer than a test takes unless it says otherwise.
fn breaker() -> BreakerConfigBuilder {
    BreakerConfig::builder()
        .consecutive_failures(Some(2))
        .failure_rate(None)
        .max_open_for(Duration::from_secs(3600))
        .open_for(Duration::from_secs(3600))
}

fn with_breaker(builder: BreakerConfigBuilder) -> ClientConfig {
    client_config()
        .retry(RetryTable::none())
        .breaker(Some(builder.build().unwrap()))
}

#[test]
fn a_destination_that_fails_is_not_asked_and_the_error_says_for_how_long() {
    let server = Server::script(|peer| {
        while peer.read_request()?.is_some() {
            peer.answer(REFUSAL)?;
        }
        Ok(())
    });
    let address = server.addr();
    with_client(
        pool_config(),
        with_breaker(breaker()),
        |core, client| async move {
            let place = destination(address);
            for _ in 0..2 {
                assert_eq!(client.breaker_state(&place), BreakerState::Closed);
                assert_eq!(fetch(&client, get(address)).await.unwrap(), "no");
            }
            assert_eq!(client.breaker_state(&place), BreakerState::Open);
            for _ in 0..100 {
                let error = client.send(get(address)).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::BreakerOpen);
                assert_eq!(error.phase(), Phase::Prepare);
                let told: Vec<_> = error.attempts().iter().map(|a| a.decision()).collect();
                assert_eq!(told, [Decision::Stop(Reason::Final)]);
                let source = std::error::Error::source(&error).unwrap().to_string();
                assert!(source.starts_with("it is asked again in 3"), "{source}");
            }
            let counts = client.breaker_counts();
            assert_eq!((counts.opened, counts.rejected), (1, 100));
            assert_in_order(&core, &client, 2).await;
        },
    );
    assert_eq!(server.counts().requests, 2);
}

/// Fault row E11: half-open lets as many through as it may, and a good one closes it.
#[test]
fn a_destination_that_comes_back_is_tried_by_one_request_and_then_by_all() {
    let (healthy, gate) = (Arc::new(AtomicBool::new(false)), Gate::new());
    let (is_healthy, at_gate) = (Arc::clone(&healthy), gate.clone());
    let server = Server::script(move |peer| {
        while peer.read_request()?.is_some() {
            if is_healthy.load(Ordering::Relaxed) {
                peer.wait_at(&at_gate)?;
                peer.answer(OK)?;
            } else {
                peer.answer(REFUSAL)?;
            }
        }
        Ok(())
    });
    let address = server.addr();
    let config = with_breaker(breaker().open_for(Duration::from_millis(20)));
    with_client(pool_config(), config, |core, client| async move {
        for _ in 0..2 {
            fetch(&client, get(address)).await.unwrap();
        }
        healthy.store(true, Ordering::Relaxed);
        core.sleep(Duration::from_millis(30)).await;
        let mut probe = Box::pin(fetch(&client, get(address)));
        assert!(poll_once(&mut probe).await.is_none());
        for _ in 0..1000 {
            let error = client.send(get(address)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BreakerOpen);
        }
        gate.open();
        assert_eq!(probe.await.unwrap(), "ok");
        assert_eq!(
            client.breaker_state(&destination(address)),
            BreakerState::Closed
        );
        assert_in_order(&core, &client, 2).await;
        for _ in 0..10 {
            assert_eq!(fetch(&client, get(address)).await.unwrap(), "ok");
        }
        assert_eq!(client.breaker_counts().probes, 1);
    });
}

/// Fault row E12: dropped at every stage, a probe leaves its place to the next.
#[test]
fn a_probe_that_is_dropped_is_neither_success_nor_failure() {
    let server = Server::script(never_answer());
    let address = server.addr();
    let config = with_breaker(breaker().open_for(Duration::from_millis(5)))
        .response_head_timeout(Some(Duration::from_millis(20)));
    with_client(pool_config(), config, |core, client| async move {
        for _ in 0..2 {
            let error = client.send(get(address)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::HeadTimeout);
        }
        core.sleep(Duration::from_millis(10)).await;
        for polls in 1..10 {
            let mut probe = Box::pin(client.send(get(address)));
            for _ in 0..polls {
                assert!(poll_once(&mut probe).await.is_none());
            }
            drop(probe);
            assert_eq!(
                client.breaker_state(&destination(address)),
                BreakerState::HalfOpen
            );
        }
        assert_eq!(client.breaker_counts().probes, 9);
        assert_in_order(&core, &client, 2).await;
    });
}

#[test]
fn a_request_goes_on_to_the_next_destination_where_the_first_is_open() {
    let (refused, server) = (refused_address(), Server::script(keep_alive_ok()));
    let places = [refused.addr(), server.addr()].map(destination);
    with_client(
        pool_config(),
        with_breaker(breaker()),
        |core, client| async move {
            for _ in 0..2 {
                let error = client.exchange_with(&places, outgoing(), |_| {}).await;
                assert_eq!(error.unwrap_err().kind(), ErrorKind::ConnectRefused);
            }
            for _ in 0..3 {
                let sent = client.exchange_with(&places, outgoing(), |_| {}).await;
                let (head, body) = sent.unwrap();
                assert_eq!((head.status(), body.attempt()), (200, 1));
                assert!(body.attempts().is_empty());
                body.bytes(10).await.unwrap();
            }
            let alone = client.exchange(&places[0], outgoing(), |_| {}).await;
            assert_eq!(alone.unwrap_err().kind(), ErrorKind::BreakerOpen);
            assert_in_order(&core, &client, 2).await;
        },
    );
}

fn outgoing() -> Outgoing {
    let mut head = BytesMut::new();
    let mut writer = RequestWriter::new(&mut head, "GET", "/").unwrap();
    writer.field("Host", "test").unwrap();
    let sent = writer.finish(BodyLength::None).unwrap();
    Outgoing::new(head.freeze(), sent, Body::empty())
}
