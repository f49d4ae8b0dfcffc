//! The keep-alive race: the peer closes an idle connection while a request is on its way to it.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::io;
use std::time::Duration;

use bytes::Bytes;
use common::*;
use http::Request;
use http_client::{Body, Decision, ErrorKind, Phase, Reason, Sent};
use test_support::{OK, Peer, Server, Then, first_connections, keep_alive_ok, respond_then};

/// Closes each connection in the moment of its second request, so that no watch can see it first.
fn stale_on_second_request(then: Then) -> Server {
    Server::script(first_connections(1, respond_then(1, then), keep_alive_ok()))
}

/// Fault rows D2 and E5.
#[test]
fn idempotent_request_goes_once_more_over_a_fresh_connection() {
    for then in [Then::FinBeforeHead, Then::ResetBeforeHead] {
        for method in ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY"] {
            let server = stale_on_second_request(then);
            let address = server.addr();
            with_client(pool_config(), client_config(), |core, client| async move {
                fetch(&client, get(address)).await.unwrap();
                let again = request(method, address, Body::empty());
                let response = client.send(again).await;
                assert!(response.is_ok(), "{method} {then:?}: {response:?}");
                drop(response);
                assert_in_order(&core, &client, 2).await;
            });
            let counts = server.counts();
            assert_eq!(
                (counts.accepted, counts.requests),
                (2, 3),
                "{method} {then:?}"
            );
        }
    }
}

/// Fault rows D2 and E5.
#[test]
fn request_that_may_have_had_its_effect_is_not_repeated() {
    for (then, kind) in [
        (Then::FinBeforeHead, ErrorKind::ClosedBeforeResponse),
        (Then::ResetBeforeHead, ErrorKind::Reset),
    ] {
        for method in ["POST", "PATCH", "FOO", "get", "CONNECT"] {
            let server = stale_on_second_request(then);
            let address = server.addr();
            with_client(pool_config(), client_config(), |core, client| async move {
                fetch(&client, get(address)).await.unwrap();
                let effect = match method {
                    "CONNECT" => Request::connect(address.to_string()).body(Body::empty()),
                    _ => Ok(request(method, address, Body::full("pay"))),
                };
                let error = client.send(effect.unwrap()).await.unwrap_err();
                assert_eq!(error.kind(), kind, "{method}");
                assert_eq!((error.phase(), error.sent()), (Phase::Wait, Sent::All));
                assert_eq!((error.attempt(), error.is_reused()), (1, true));
                assert_in_order(&core, &client, 2).await;
            });
            let counts = server.counts();
            assert_eq!((counts.accepted, counts.requests), (1, 2), "{method}");
        }
    }
}

/// Fault row D2: the reset comes as soon as the first byte of the request is there.
#[test]
fn reset_at_the_first_byte_of_a_request_is_a_stale_connection() {
    for (method, answered) in [("GET", true), ("POST", false)] {
        let server = Server::script(|peer: &mut Peer| {
            if peer.index() > 0 {
                return keep_alive_ok()(peer);
            }
            peer.read_request()?;
            peer.answer(OK)?;
            peer.read_exact(1)?;
            peer.reset()
        });
        let address = server.addr();
        with_client(pool_config(), client_config(), |core, client| async move {
            fetch(&client, get(address)).await.unwrap();
            // More than one write takes, so that the reset may come in the middle of it.
            let large = Body::full(vec![b'x'; 8 << 20]);
            let body = if answered { Body::empty() } else { large };
            match client.send(request(method, address, body)).await {
                Ok(response) => {
                    assert!(answered, "{method} was repeated");
                    assert_eq!(response.body().attempt(), 2);
                    assert_eq!(text(response).await.unwrap(), "ok");
                }
                Err(error) => {
                    assert!(!answered, "{error:?}");
                    assert_eq!((error.kind(), error.attempt()), (ErrorKind::Reset, 1));
                    assert_ne!(error.sent(), Sent::None);
                }
            }
            assert_in_order(&core, &client, 2).await;
        });
        assert_eq!(server.counts().accepted, if answered { 2 } else { 1 });
    }
}

#[test]
fn body_that_can_be_read_once_is_not_repeated() {
    struct Once(Option<Bytes>);
    impl http_body::Body for Once {
        type Data = Bytes;
        type Error = io::Error;
        fn poll_frame(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<io::Result<http_body::Frame<Bytes>>>> {
            std::task::Poll::Ready(self.0.take().map(|data| Ok(http_body::Frame::data(data))))
        }
    }
    let server = stale_on_second_request(Then::FinBeforeHead);
    let address = server.addr();
    with_client(pool_config(), client_config(), |_, client| async move {
        fetch(&client, get(address)).await.unwrap();
        let once = Body::stream(Once(Some(Bytes::from_static(b"once"))));
        let error = client
            .send(request("PUT", address, once))
            .await
            .unwrap_err();
        assert_eq!(
            (error.kind(), error.attempt()),
            (ErrorKind::ClosedBeforeResponse, 1)
        );
    });
    assert_eq!(server.counts().requests, 2);
}

#[test]
fn empty_stream_is_sent_again() {
    /// Panics when it is polled beyond its end, as generators do.
    struct Empty {
        ended: bool,
    }
    impl http_body::Body for Empty {
        type Data = Bytes;
        type Error = io::Error;
        fn poll_frame(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<io::Result<http_body::Frame<Bytes>>>> {
            assert!(!std::mem::replace(&mut self.ended, true));
            std::task::Poll::Ready(None)
        }
    }
    for then in [Then::FinBeforeHead, Then::ResetBeforeHead] {
        for length in [None, Some("0")] {
            let server = stale_on_second_request(then);
            let address = server.addr();
            with_client(pool_config(), client_config(), |_, client| async move {
                fetch(&client, get(address)).await.unwrap();
                let empty = Body::stream(Empty { ended: false });
                let mut delete = request("DELETE", address, empty);
                if let Some(length) = length {
                    let value = http::HeaderValue::from_static(length);
                    delete.headers_mut().insert("content-length", value);
                }
                let answer = fetch(&client, delete).await;
                assert_eq!(answer.unwrap(), "ok", "{then:?}, length {length:?}");
            });
            let counts = server.counts();
            assert_eq!((counts.accepted, counts.requests), (2, 3), "{then:?}");
        }
    }
}

#[test]
fn full_body_is_sent_again_whole() {
    let server = Server::script(first_connections(
        1,
        respond_then(1, Then::ResetBeforeHead),
        |peer: &mut Peer| {
            while let Some(request) = peer.read_request()? {
                assert_eq!(request.body, b"everything");
                peer.answer(OK)?;
            }
            Ok(())
        },
    ));
    let address = server.addr();
    with_client(pool_config(), client_config(), |_, client| async move {
        fetch(&client, get(address)).await.unwrap();
        let put = request("PUT", address, Body::full("everything"));
        assert_eq!(fetch(&client, put).await.unwrap(), "ok");
    });
    server.finish();
}

/// Fault row E3: a server that hangs up after every request head.
#[test]
fn fresh_connection_that_closes_is_not_retried() {
    let server = Server::script(respond_then(0, Then::FinBeforeHead));
    let address = server.addr();
    with_client(pool_config(), client_config(), |core, client| async move {
        let error = client.send(get(address)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ClosedBeforeResponse);
        assert_eq!((error.attempt(), error.is_reused()), (1, false));
        let decision = error.attempts()[0].decision();
        assert_eq!(decision, Decision::Stop(Reason::NotStale));
        assert_in_order(&core, &client, 2).await;
    });
    assert_eq!(server.counts().requests, 1);
}

/// Fault row E3: five connections go stale at once, unnoticed; one retry has to be enough.
#[test]
fn second_attempt_takes_a_new_connection_even_if_others_are_idle() {
    // The first five read their second request and close.
    let hang_up = Server::script(move |peer: &mut Peer| {
        if peer.index() >= 5 {
            return keep_alive_ok()(peer);
        }
        peer.read_request()?;
        peer.answer(OK)?;
        peer.read_request()?;
        Ok(())
    });
    let address = hang_up.addr();
    with_client(pool_config(), client_config(), |core, client| async move {
        let mut held = Vec::new();
        for _ in 0..5 {
            held.push(client.pool().acquire(&destination(address)).await.unwrap());
        }
        for mut conn in held {
            futures_lite::AsyncWriteExt::write_all(
                &mut *conn,
                b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            )
            .await
            .unwrap();
            let mut answer = [0; OK.len()];
            futures_lite::AsyncReadExt::read_exact(&mut *conn, &mut answer)
                .await
                .unwrap();
            conn.release();
        }
        assert_eq!(total(&client).idle.current, 5);
        assert_eq!(fetch(&client, get(address)).await.unwrap(), "ok");
        assert_eq!(total(&client).opened, 6);
        assert_in_order(&core, &client, 2).await;
    });
    assert_eq!(hang_up.counts().accepted, 6);
}

/// Fault row E3: it hangs up after every request head but the first of each of five connections.
#[test]
fn server_that_hangs_up_for_good_sees_one_request_more_and_no_loop() {
    for max in [5, 6] {
        let server = Server::script(|peer: &mut Peer| {
            if peer.index() < 5 {
                peer.read_request()?;
                peer.answer(OK)?;
            }
            peer.read_request()?;
            peer.close()
        });
        let address = server.addr();
        let pool = pool_config().max_connections(max);
        with_client(pool, client_config(), |core, client| async move {
            let mut responses = Vec::new();
            for _ in 0..5 {
                responses.push(client.send(get(address)).await.unwrap());
            }
            for response in responses {
                text(response).await.unwrap();
            }
            assert_eq!(total(&client).idle.current, 5);
            let error = client.send(get(address)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ClosedBeforeResponse);
            let told: Vec<_> = error
                .attempts()
                .iter()
                .map(|attempt| (attempt.is_reused(), attempt.decision()))
                .collect();
            let again = Decision::Retry {
                reason: Reason::Stale,
                pause: Duration::ZERO,
            };
            let not = Decision::Stop(Reason::NotStale);
            assert_eq!(told, [(true, again), (false, not)]);
            assert_eq!(total(&client).opened, 6);
            assert_in_order(&core, &client, 5).await;
        });
        let counts = server.counts();
        assert_eq!((counts.accepted, counts.requests), (6, 7), "at most {max}");
    }
}
