//! Breakers over real sockets. Their rules in virtual time stand beside the code.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use bytes::BytesMut;
use common::*;
use futures_lite::future::poll_once;
use http_client::{
    Body, BreakerConfig, BreakerConfigBuilder, BreakerState, ClientConfig, Decision, ErrorKind,
    Outgoing, Phase, Reason, RequestOptions, RetryTable, Timeouts,
};
use http_codec::{BodyLength, RequestWriter};
use pool_core::Core;
use test_support::{
    Gate, OK, Server, eventually, first_connections, keep_alive_ok, never_answer, refused_address,
};

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

/// Refuses what it is asked until it is well; then it answers at the gate.
fn comes_back(healthy: &Arc<AtomicBool>, gate: &Gate) -> Server {
    let (healthy, gate) = (Arc::clone(healthy), gate.clone());
    Server::script(move |peer| {
        while peer.read_request()?.is_some() {
            if healthy.load(Ordering::Relaxed) {
                peer.wait_at(&gate)?;
                peer.answer(OK)?;
            } else {
                peer.answer(REFUSAL)?;
            }
        }
        Ok(())
    })
}

/// What became of requests.
#[derive(Default)]
struct Seen {
    good: Cell<usize>,
    rejected: Cell<usize>,
}

/// Sends so many, none of which waits for another.
fn ask_in_one_turn(
    core: &Core,
    client: &TestClient,
    address: SocketAddr,
    requests: usize,
) -> Rc<Seen> {
    let seen = Rc::new(Seen::default());
    for _ in 0..requests {
        let (client, seen) = (client.clone(), Rc::clone(&seen));
        core.spawn(async move {
            let count = match fetch(&client, get(address)).await {
                Ok(_) => &seen.good,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::BreakerOpen);
                    &seen.rejected
                }
            };
            count.set(count.get() + 1);
        });
    }
    seen
}

/// Fault row E11: half-open lets as many through as it may, and a good one closes it.
#[test]
fn a_destination_that_comes_back_is_tried_by_few_requests_and_then_by_all() {
    for probes in [1, 2, 5] {
        let (healthy, gate) = (Arc::new(AtomicBool::new(false)), Gate::new());
        let server = comes_back(&healthy, &gate);
        let (address, server) = (server.addr(), &server);
        let config = breaker().probes(probes);
        let config = with_breaker(config.open_for(Duration::from_millis(20)));
        with_client(pool_config(), config, |core, client| async move {
            for _ in 0..2 {
                fetch(&client, get(address)).await.unwrap();
            }
            healthy.store(true, Ordering::Relaxed);
            core.sleep(Duration::from_millis(30)).await;
            let seen = ask_in_one_turn(&core, &client, address, 1000);
            let probes = probes as usize;
            until(&core, "the probes have arrived", || {
                gate.arrived() == probes && seen.rejected.get() == 1000 - probes
            })
            .await;
            assert_eq!(server.counts().requests, 2 + probes);
            gate.open();
            until(&core, "they are answered", || seen.good.get() == probes).await;
            assert_eq!(
                client.breaker_state(&destination(address)),
                BreakerState::Closed
            );
            assert_in_order(&core, &client, 2).await;
            for _ in 0..10 {
                assert_eq!(fetch(&client, get(address)).await.unwrap(), "ok");
            }
            assert_eq!(client.breaker_counts().probes, probes as u64);
        });
        assert_eq!(server.counts().requests, 2 + probes as usize + 10);
    }
}

/// Fault row E11: cores share nothing, so each lets its own probes through, and no more.
#[test]
fn a_destination_that_comes_back_is_tried_by_the_probes_of_each_core() {
    const CORES: usize = 3;
    let (healthy, gate) = (Arc::new(AtomicBool::new(false)), Gate::new());
    let server = comes_back(&healthy, &gate);
    let address = server.addr();
    let (open, is_well) = (&AtomicUsize::new(0), &healthy);
    thread::scope(|scope| {
        for _ in 0..CORES {
            scope.spawn(|| {
                let config = breaker().probes(2).open_for(Duration::from_millis(20));
                with_client(
                    pool_config(),
                    with_breaker(config),
                    |core, client| async move {
                        for _ in 0..2 {
                            assert_eq!(fetch(&client, get(address)).await.unwrap(), "no");
                        }
                        open.fetch_add(1, Ordering::Relaxed);
                        until(&core, "it is well", || is_well.load(Ordering::Relaxed)).await;
                        core.sleep(Duration::from_millis(30)).await;
                        let seen = ask_in_one_turn(&core, &client, address, 100);
                        until(&core, "the probes are answered", || seen.good.get() == 2).await;
                        assert_eq!(seen.rejected.get(), 98);
                    },
                );
            });
        }
        eventually(DEADLINE, || open.load(Ordering::Relaxed) == CORES);
        healthy.store(true, Ordering::Relaxed);
        gate.wait_for_arrivals(2 * CORES);
        gate.open();
    });
    assert_eq!(server.counts().requests, 4 * CORES);
}

#[test]
fn a_probe_that_hangs_makes_room_for_another() {
    let server = Server::script(first_connections(3, never_answer(), keep_alive_ok()));
    let address = server.addr();
    let config = breaker().open_for(Duration::from_millis(5));
    let config = config.probe_timeout(Duration::from_millis(20));
    let config = with_breaker(config).response_head_timeout(None);
    let config = config.attempt_timeout(None);
    with_client(pool_config(), config, |core, client| async move {
        // The two failures that open it.
        for _ in 0..2 {
            let mut failing = get(address);
            let short = Timeouts::builder().response_head(Duration::from_millis(20));
            let short = RequestOptions::new().timeouts(short.build().unwrap());
            failing.extensions_mut().insert(short);
            let error = client.send(failing).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::HeadTimeout);
        }
        core.sleep(Duration::from_millis(10)).await;
        let mut hangs = Box::pin(client.send(get(address)));
        assert!(poll_once(&mut hangs).await.is_none());
        let error = client.send(get(address)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BreakerOpen);
        let answered = async {
            loop {
                match fetch(&client, get(address)).await {
                    Ok(answer) => break answer,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::BreakerOpen),
                }
                core.sleep(Duration::from_millis(1)).await;
            }
        };
        let hanging = async {
            let _ = (&mut hangs).await;
            "the one that hangs".to_owned()
        };
        let answer = futures_lite::future::or(hanging, answered).await;
        assert_eq!(answer, "ok");
        let state = client.breaker_state(&destination(address));
        assert_eq!(state, BreakerState::Closed);
        drop(hangs);
        assert_in_order(&core, &client, 2).await;
    });
}

#[test]
fn a_probe_that_is_never_sent_leaves_its_place_to_the_next() {
    let (healthy, gate) = (Arc::new(AtomicBool::new(false)), Gate::new());
    gate.open();
    let server = comes_back(&healthy, &gate);
    let address = server.addr();
    let pool = pool_config()
        .max_connections(1)
        .acquire_timeout(Duration::from_millis(20));
    let config = with_breaker(breaker().open_for(Duration::from_millis(5)));
    with_client(pool, config, |core, client| async move {
        for _ in 0..2 {
            fetch(&client, get(address)).await.unwrap();
        }
        healthy.store(true, Ordering::Relaxed);
        core.sleep(Duration::from_millis(10)).await;
        let place = destination(address);
        let taken = client.pool().acquire(&place).await.unwrap();
        for _ in 0..3 {
            let error = client.send(get(address)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AcquireTimeout);
            assert_eq!(client.breaker_state(&place), BreakerState::HalfOpen);
        }
        let failing = body(|_| Poll::Ready(Some(Err(io::ErrorKind::Other.into()))));
        taken.release();
        let error = client.send(request("POST", address, failing)).await;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::RequestBody);
        assert_eq!(client.breaker_state(&place), BreakerState::HalfOpen);
        assert_eq!(fetch(&client, get(address)).await.unwrap(), "ok");
        assert_eq!(client.breaker_state(&place), BreakerState::Closed);
        assert_eq!(client.breaker_counts().probes, 5);
        assert_in_order(&core, &client, 1).await;
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
