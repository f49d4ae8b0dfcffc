//! Retries over real sockets: what is sent again, when, and what is told of it. Which failures
//! each preset retries is in `presets.rs`.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use common::*;
use futures_lite::future::poll_once;
use http_client::{
    Attempt, Backoff, Body, ClientConfig, Decision, ErrorKind, FailedAttempt, Outcome, Outgoing,
    Phase, Reason, RefusedResponse, RequestOptions, RetryPolicy, RetryTable, Sent, Verdict,
};
use http_codec::{BodyLength, RequestWriter};
use test_support::{Server, keep_alive_ok, never_answer, refused_address};

fn policy() -> RetryTable {
    RetryTable::default().backoff(Backoff::NONE)
}

/// The default policy without pauses, and without a budget.
fn at_once() -> ClientConfig {
    client_config().retry(policy()).retry_budget(None)
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
    let framed = |bytes: usize, chunked: bool| {
        let (framing, end) = match chunked {
            true => (
                format!("Transfer-Encoding: chunked\r\n\r\n{bytes:x}\r\n"),
                "\r\n0\r\n\r\n",
            ),
            false => (format!("Content-Length: {bytes}\r\n\r\n"), ""),
        };
        format!("HTTP/1.1 503 No\r\n{framing}{}{end}", "x".repeat(bytes))
    };
    for (refusal, keeps) in [
        (framed(100, false), true),
        (framed(100, true), true),
        (framed(1 << 20, false), false),
        (framed(1 << 20, true), false),
    ] {
        for connections in [1, 2] {
            let refusal = refusal.clone();
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
            match (keeps, connections) {
                (true, 1) => assert_eq!(counts.accepted, 1),
                // Each refused response takes its connection along; the last good one keeps its.
                (false, _) => assert_eq!(counts.accepted, 41),
                (true, _) => {}
            }
        }
    }
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
fn retry_after_is_read_in_every_form() {
    let no = Decision::Stop(Reason::RetryAfterTooLong);
    for (value, decision) in [
        ("0", again(Reason::Idempotent)),
        ("Sun, 06 Nov 1994 08:49:37 GMT", again(Reason::Idempotent)),
        ("Sunday, 06-Nov-94 08:49:37 GMT", again(Reason::Idempotent)),
        ("Sun Nov  6 08:49:37 1994", again(Reason::Idempotent)),
        ("Fri, 01 Jan 2100 00:00:00 GMT", no),
        ("Tuesday, 01-Jan-69 00:00:00 GMT", no),
        ("Fri Jan  1 00:00:00 2100", no),
        ("99999999999999999999999", no),
        // Not a pause at all, so that the policy's own holds.
        ("soon", again(Reason::Idempotent)),
        ("-1", again(Reason::Idempotent)),
        ("1.5", again(Reason::Idempotent)),
        ("", again(Reason::Idempotent)),
    ] {
        for status in [429, 503] {
            let fields = format!("Retry-After: {value}\r\n");
            let server = refuse(refusal(status, &fields), |number| number == 0);
            let address = server.addr();
            with_client(pool_config(), at_once(), |_, client| async move {
                let response = client.send(get(address)).await.unwrap();
                let attempts = response.body().attempts();
                assert_eq!(decisions(attempts), [decision], "{value}");
                text(response).await.unwrap();
            });
        }
    }
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
