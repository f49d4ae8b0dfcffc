//! Retries over real sockets: what is sent again, when, and what is told of it. Which failures
//! each preset retries is in `presets.rs`.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use common::*;
use futures_lite::future::poll_once;
use http_client::{
    Attempt, Backoff, Body, BudgetConfig, ClientConfig, Decision, ErrorKind, FailedAttempt,
    Outcome, Outgoing, Phase, Reason, RefusedResponse, RequestOptions, RetryPolicy, RetryTable,
    Sent, Verdict,
};
use http_codec::{BodyLength, RequestWriter};
use pool_core::Core;
use test_support::{OK, Peer, Server, keep_alive_ok, never_answer, refused_address};

/// A budget without a floor.
fn budget(ratio: f64) -> BudgetConfig {
    let builder = BudgetConfig::builder().ratio(ratio).floor_per_second(0);
    builder.build().unwrap()
}

fn policy() -> RetryTable {
    RetryTable::default().backoff(Backoff::NONE)
}

/// The default policy without pauses, and without a budget.
fn at_once() -> ClientConfig {
    client_config().retry(policy()).retry_budget(None)
}

/// Refuses the requests for which `refuses` says so, by their number from 0, and answers the others.
fn refuse(
    refusal: impl Into<Vec<u8>>,
    refuses: impl Fn(usize) -> bool + Send + Sync + 'static,
) -> Server {
    let (number, refusal) = (AtomicUsize::new(0), refusal.into());
    Server::script(move |peer: &mut Peer| {
        while peer.read_request()?.is_some() {
            let refused = refuses(number.fetch_add(1, Ordering::Relaxed));
            peer.answer(if refused { &refusal[..] } else { OK })?;
        }
        Ok(())
    })
}

fn refusal(status: u16, fields: &str) -> String {
    format!("HTTP/1.1 {status} No\r\nContent-Length: 2\r\n{fields}\r\nno")
}

fn decisions(attempts: &[Attempt]) -> Vec<Decision> {
    attempts.iter().map(Attempt::decision).collect()
}

fn again(reason: Reason) -> Decision {
    let pause = Duration::ZERO;
    Decision::Retry { reason, pause }
}

#[test]
fn an_error_of_the_server_is_retried_only_where_the_request_may_be_repeated() {
    for status in [429, 500, 502, 503, 504] {
        let server = refuse(refusal(status, ""), |number| number < 2);
        let address = server.addr();
        with_client(pool_config(), at_once(), |core, client| async move {
            let payment = request("POST", address, Body::full("pay"));
            let response = client.send(payment).await.unwrap();
            assert_eq!(response.status(), status);
            let attempts = response.body().attempts();
            assert_eq!(decisions(attempts), [Decision::Stop(Reason::NotIdempotent)]);
            assert_eq!(attempts[0].outcome(), Outcome::Refused(status));
            text(response).await.unwrap();

            let response = client.send(get(address)).await.unwrap();
            let body = response.body();
            assert_eq!((response.status().as_u16(), body.attempt()), (200, 2));
            let attempts = body.attempts();
            assert_eq!(decisions(attempts), [again(Reason::Idempotent)]);
            assert_eq!(attempts[0].number(), 1);
            assert_eq!(attempts[0].destination(), format!("http://{address}"));
            text(response).await.unwrap();
            assert_in_order(&core, &client, 2).await;
        });
        assert_eq!(server.counts().requests, 3, "{status}");
    }
}

#[test]
fn a_request_that_its_caller_calls_idempotent_is_repeated() {
    let server = refuse(refusal(503, ""), |number| number == 0);
    let address = server.addr();
    with_client(pool_config(), at_once(), |_, client| async move {
        let mut payment = request("POST", address, Body::full("pay"));
        let options = RequestOptions::new().idempotent(true);
        payment.extensions_mut().insert(options);
        assert_eq!(fetch(&client, payment).await.unwrap(), "ok");
    });
    assert_eq!(server.counts().requests, 2);
}

#[test]
fn a_fault_of_the_caller_is_never_retried() {
    for status in [400, 401, 403, 404, 405, 408, 409, 410, 422, 451, 501, 505] {
        let server = refuse(refusal(status, "Retry-After: 0\r\n"), |_| true);
        let address = server.addr();
        with_client(pool_config(), at_once(), |_, client| async move {
            let response = client.send(get(address)).await.unwrap();
            assert_eq!(response.status(), status);
            let attempts = response.body().attempts();
            assert_eq!(decisions(attempts), [Decision::Stop(Reason::Final)]);
        });
        assert_eq!(server.counts().requests, 1, "{status}");
    }
}

#[test]
fn a_server_that_keeps_failing_is_asked_as_often_as_the_policy_says() {
    let server = refuse(refusal(500, ""), |_| true);
    let address = server.addr();
    with_client(pool_config(), at_once(), |_, client| async move {
        let response = client.send(get(address)).await.unwrap();
        assert_eq!(response.status(), 500);
        let told = [
            again(Reason::Idempotent),
            again(Reason::Idempotent),
            Decision::Stop(Reason::NoAttemptLeft),
        ];
        assert_eq!(decisions(response.body().attempts()), told);
        assert_eq!(text(response).await.unwrap(), "no");
    });
    assert_eq!(server.counts().requests, 3);
}

/// Fault row E6, and the same where little is left: then the connection is used again.
#[test]
fn a_refused_response_is_read_to_its_end_or_its_connection_closed() {
    for (bytes, keeps) in [(100, true), (1 << 20, false)] {
        for connections in [1, 2] {
            let head = format!("HTTP/1.1 503 No\r\nContent-Length: {bytes}\r\n\r\n");
            let mut refusal = head.into_bytes();
            refusal.resize(refusal.len() + bytes, b'x');
            let server = refuse(refusal, |number| number % 3 < 2);
            let address = server.addr();
            let pool = pool_config().max_connections(connections);
            with_client(pool, at_once(), |core, client| async move {
                for _ in 0..20 {
                    let response = client.send(get(address)).await.unwrap();
                    assert_eq!(response.status(), 200);
                    assert_eq!(response.body().attempts().len(), 2);
                    text(response).await.unwrap();
                }
                assert_in_order(&core, &client, connections as usize).await;
            });
            let counts = server.counts();
            assert_eq!(counts.requests, 60);
            if keeps && connections == 1 {
                assert_eq!(counts.accepted, 1);
            }
        }
    }
}

/// Fault row E9, and the storm that it comes from.
#[test]
fn a_storm_of_failures_is_not_fed_beyond_the_budget_and_leaves_nothing_behind() {
    const REQUESTS: usize = 1000;
    let healthy = Arc::new(AtomicBool::new(false));
    let is_healthy = Arc::clone(&healthy);
    let server = refuse(refusal(503, ""), move |_| {
        !is_healthy.load(Ordering::Relaxed)
    });
    let address = server.addr();
    let pause = Duration::from_millis(20);
    let policy = RetryTable::default().backoff(Backoff::fixed(pause));
    let config = client_config()
        .retry(policy)
        .retry_budget(Some(budget(0.2)));
    let pool = pool_config().max_connections(32);
    let (server, healthy) = (&server, &healthy);
    with_client(pool, config, |core, client| async move {
        let statuses = burst(&core, &client, address, REQUESTS).await;
        assert_eq!(statuses, (0, REQUESTS));
        let arrived = server.counts().requests;
        assert!(
            (REQUESTS + 1..=REQUESTS * 6 / 5).contains(&arrived),
            "{arrived}"
        );
        let counts = client.retry_counts();
        assert_eq!(counts.granted, (arrived - REQUESTS) as u64);
        assert!(counts.refused >= 800, "{counts:?}");

        healthy.store(true, Ordering::Relaxed);
        assert_eq!(
            burst(&core, &client, address, REQUESTS).await,
            (REQUESTS, 0)
        );
        assert_eq!(server.counts().requests, arrived + REQUESTS);

        // With good requests behind it, the destination is worth a retry again.
        healthy.store(false, Ordering::Relaxed);
        let response = client.send(get(address)).await.unwrap();
        assert!(response.body().attempts().len() > 1);
        text(response).await.unwrap();
        healthy.store(true, Ordering::Relaxed);
        assert_in_order(&core, &client, 32).await;
    });
}

/// Sends so many at once; how many were answered well, and how many refused.
async fn burst(
    core: &Core,
    client: &TestClient,
    address: std::net::SocketAddr,
    requests: usize,
) -> (usize, usize) {
    let (good, refused) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    for _ in 0..requests {
        let (client, good, refused) = (client.clone(), Rc::clone(&good), Rc::clone(&refused));
        core.spawn(async move {
            let response = client.send(get(address)).await.unwrap();
            let count = match response.status().as_u16() {
                200 => good,
                503 => refused,
                other => panic!("{other}"),
            };
            text(response).await.unwrap();
            count.set(count.get() + 1);
        });
    }
    until(core, "all are answered", || {
        good.get() + refused.get() == requests
    })
    .await;
    (good.get(), refused.get())
}

#[test]
fn retry_after_is_waited_for_and_never_less() {
    let server = refuse(refusal(503, "Retry-After: 1\r\n"), |number| number == 0);
    let address = server.addr();
    with_client(pool_config(), at_once(), |core, client| async move {
        let begun = core.now();
        assert_eq!(fetch(&client, get(address)).await.unwrap(), "ok");
        let passed = core.now().saturating_duration_since(begun);
        assert!(passed >= Duration::from_secs(1), "{passed:?}");
    });
}

#[test]
fn a_response_that_asks_for_too_long_a_pause_is_handed_over() {
    let patient = policy().longest_retry_after(Duration::from_secs(7200));
    let limited = at_once().retry(patient);
    let limited = limited.request_timeout(Some(Duration::from_secs(600)));
    for (config, reason) in [
        (at_once(), Reason::RetryAfterTooLong),
        (limited, Reason::NoTime),
    ] {
        let server = refuse(refusal(503, "Retry-After: 3600\r\n"), |_| true);
        let address = server.addr();
        with_client(pool_config(), config, |_, client| async move {
            let response = client.send(get(address)).await.unwrap();
            assert_eq!(response.status(), 503);
            assert_eq!(response.headers()["retry-after"], "3600");
            let attempts = response.body().attempts();
            assert_eq!(decisions(attempts), [Decision::Stop(reason)]);
        });
        assert_eq!(server.counts().requests, 1);
    }
}

#[test]
fn each_attempt_has_its_own_time_and_the_request_one_for_all() {
    let limit = Some(Duration::from_millis(30));
    let server = Server::script(never_answer());
    let address = server.addr();
    let config = at_once().attempt_timeout(limit);
    with_client(pool_config(), config, |core, client| async move {
        let error = client.send(get(address)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AttemptTimeout);
        assert_eq!((error.phase(), error.sent()), (Phase::Wait, Sent::All));
        assert_eq!((error.attempt(), error.attempts().len()), (3, 3));
        let payment = request("POST", address, Body::full("pay"));
        let error = client.send(payment).await.unwrap_err();
        assert_eq!(
            decisions(error.attempts()),
            [Decision::Stop(Reason::NotIdempotent)]
        );
        assert_in_order(&core, &client, 2).await;
    });
    let config = at_once().request_timeout(limit);
    with_client(pool_config(), config, |core, client| async move {
        let error = client.send(get(address)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TotalTimeout);
        assert_eq!(error.attempts().len(), 1);
        assert_in_order(&core, &client, 2).await;
    });
}

#[test]
fn the_time_of_a_request_covers_the_acquire_and_the_body_of_its_response() {
    let server = Server::script(|peer| {
        while peer.read_request()?.is_some() {
            peer.answer("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no")?;
        }
        Ok(())
    });
    let address = server.addr();
    let config = at_once().request_timeout(Some(Duration::from_millis(400)));
    let pool = pool_config().max_connections(1);
    with_client(pool, config, |core, client| async move {
        let response = client.send(get(address)).await.unwrap();
        let waiting = client.send(get(address)).await.unwrap_err();
        assert_eq!(waiting.kind(), ErrorKind::TotalTimeout);
        assert_eq!(
            (waiting.phase(), waiting.sent()),
            (Phase::Acquire, Sent::None)
        );
        let error = text(response).await.unwrap_err().to_string();
        assert!(error.starts_with("the request took too long"), "{error}");
        assert_in_order(&core, &client, 1).await;
    });
}

#[test]
fn retries_go_to_the_next_destination_in_turn() {
    let (refused, server) = (refused_address(), Server::script(keep_alive_ok()));
    let places = [refused.addr(), server.addr()].map(destination);
    with_client(pool_config(), at_once(), |core, client| async move {
        for (method, reused) in [("GET", false), ("POST", true)] {
            let sent = client
                .exchange_with(&places, outgoing(method), |_| {})
                .await;
            let (head, body) = sent.unwrap();
            assert_eq!(head.status(), 200, "{method}");
            let attempts = body.attempts();
            assert_eq!(decisions(attempts), [again(Reason::NothingSent)]);
            assert_eq!(attempts[0].destination(), places[0].to_string());
            let kind = match attempts[0].outcome() {
                Outcome::Failed { kind, .. } => kind,
                other => panic!("{other:?}"),
            };
            assert_eq!(kind, ErrorKind::ConnectRefused);
            assert_eq!((body.destination(), body.is_reused()), (&places[1], reused));
            body.bytes(10).await.unwrap();
        }
        let nowhere = client.exchange_with(&[], outgoing("GET"), |_| {}).await;
        assert_eq!(nowhere.unwrap_err().kind(), ErrorKind::InvalidRequest);
        assert_in_order(&core, &client, 2).await;
    });
}

fn outgoing(method: &str) -> Outgoing {
    let mut head = BytesMut::new();
    let mut writer = RequestWriter::new(&mut head, method, "/").unwrap();
    writer.field("Host", "test").unwrap();
    let sent = writer.finish(BodyLength::None).unwrap();
    Outgoing::new(head.freeze(), sent, Body::empty())
}

/// A policy of the test's own: an hour of pause before a retry, until it is told otherwise.
struct Patient(Arc<AtomicBool>);

impl RetryPolicy for Patient {
    fn max_attempts(&self) -> u32 {
        3
    }

    fn after_failure(&self, failed: &FailedAttempt<'_>) -> Verdict {
        policy().after_failure(failed)
    }

    fn after_response(&self, refused: &RefusedResponse<'_>) -> Verdict {
        policy().after_response(refused)
    }

    fn pause(&self, _: u32, _: f64) -> Duration {
        match self.0.load(Ordering::Relaxed) {
            true => Duration::ZERO,
            false => Duration::from_secs(3600),
        }
    }

    fn max_retry_after(&self) -> Duration {
        Duration::ZERO
    }
}

#[test]
fn a_request_dropped_in_its_pause_gives_back_what_it_drew_on_the_budget() {
    let server = refuse(refusal(503, ""), |_| true);
    let (address, hurry) = (server.addr(), Arc::new(AtomicBool::new(false)));
    let config = client_config().retry(Patient(Arc::clone(&hurry)));
    let config = config.retry_budget(Some(budget(1.0)));
    with_client(pool_config(), config, |core, client| async move {
        let mut sending = Box::pin(client.send(get(address)));
        let granted = || client.retry_counts().granted;
        while granted() == 0 {
            assert!(poll_once(&mut sending).await.is_none());
            core.sleep(Duration::from_millis(1)).await;
        }
        drop(sending);
        // Two requests are worth two retries, and this one takes both.
        hurry.store(true, Ordering::Relaxed);
        let response = client.send(get(address)).await.unwrap();
        let last = decisions(response.body().attempts()).pop();
        assert_eq!(last, Some(Decision::Stop(Reason::NoAttemptLeft)));
        assert_eq!(granted(), 3);
        text(response).await.unwrap();
        assert_in_order(&core, &client, 2).await;
    });
}

#[test]
fn connection_of_a_refused_response_is_free_while_its_retry_waits() {
    let server = refuse(refusal(503, ""), |number| number == 0);
    let (address, hurry) = (server.addr(), Arc::new(AtomicBool::new(false)));
    let config = client_config().retry(Patient(hurry));
    with_client(
        pool_config().max_connections(1),
        config,
        |core, client| async move {
            let mut sending = Box::pin(client.send(get(address)));
            while client.retry_counts().granted == 0 {
                assert!(poll_once(&mut sending).await.is_none());
                core.sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(fetch(&client, get(address)).await.unwrap(), "ok");
            assert!(
                poll_once(&mut sending).await.is_none(),
                "its pause is an hour"
            );
            assert_eq!(
                (total(&client).opened, total(&client).acquired.current),
                (1, 0)
            );
        },
    );
}
