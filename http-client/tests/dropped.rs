//! Requests and responses that their callers drop, and what becomes of the connections.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::future::pending;
use std::task::Poll;
use std::time::{Duration, Instant};

use common::*;
use futures_lite::future::poll_once;
use http::Request;
use http_client::{Backoff, Body, ClientConfig, DrainLimits, RetryTable, Timeouts};
use pool_core::{CloseReason, Core};
use test_support::{Gate, OK, OK_CLOSE, Peer, Server, Then, keep_alive_ok, respond_then};

/// Reads up to `bytes` bytes of what is dropped, however long it takes.
fn drains(bytes: u64) -> ClientConfig {
    client_config().drain_limits(DrainLimits::new(bytes, DEADLINE))
}

/// Sends `first` to each request, and `rest` when the gate is open.
fn in_two_parts(gate: &Gate, first: String, rest: String) -> Server {
    let gate = gate.clone();
    Server::script(move |peer| {
        while peer.read_request()?.is_some() {
            peer.answer(&first)?;
            peer.wait_at(&gate)?;
            peer.send(&rest)?;
        }
        Ok(())
    })
}

fn with_length(length: usize) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n")
}

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

#[test]
fn rest_of_a_dropped_body_is_read_if_it_is_little_and_the_connection_used_again() {
    let chunks = "5\r\n56789\r\n0\r\nT: v\r\n\r\n";
    for (first, rest, limit) in [
        (with_length(10) + "01234", "56789", 5),
        (with_length(10), "0123456789", 10),
        (CHUNKED.to_owned() + "5\r\n01234\r\n", chunks, chunks.len()),
    ] {
        let gate = Gate::new();
        let server = in_two_parts(&gate, first, rest.to_owned());
        let address = server.addr();
        with_client(
            pool_config(),
            drains(limit as u64),
            |core, client| async move {
                let mut body = client.send(get(address)).await.unwrap().into_body();
                if limit != 10 {
                    let first = body.frame().await.unwrap().unwrap();
                    assert_eq!(first.into_data().unwrap(), "01234");
                }
                drop(body);
                assert_eq!(total(&client).acquired.current, 1, "it is being read");
                gate.open();
                until(&core, "it is given back", || {
                    total(&client).idle.current == 1
                })
                .await;
                let again = fetch(&client, get(address)).await.unwrap();
                assert_eq!(again, "0123456789");
                assert_eq!(total(&client).opened, 1);
            },
        );
    }
}

#[test]
fn connection_is_back_at_once_where_the_rest_is_there_already() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let no_time = client_config().drain_limits(DrainLimits::new(2, Duration::ZERO));
    with_client(pool_config(), no_time, |_, client| async move {
        for _ in 0..3 {
            drop(client.send(get(address)).await.unwrap());
            let stats = total(&client);
            assert_eq!((stats.idle.current, stats.opened), (1, 1));
        }
    });
}

#[test]
fn body_dropped_after_its_last_byte_gives_its_connection_back() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let none = client_config().drain_limits(DrainLimits::NONE);
    with_client(pool_config(), none, |_, client| async move {
        for _ in 0..3 {
            let mut body = client.send(get(address)).await.unwrap().into_body();
            let data = body.frame().await.unwrap().unwrap();
            assert_eq!(data.into_data().unwrap(), "ok");
            drop(body);
            let stats = total(&client);
            assert_eq!((stats.idle.current, stats.opened), (1, 1));
        }
    });
}

#[test]
fn connection_closes_at_once_where_it_cannot_be_used_again_or_too_much_is_left() {
    let until_close = "HTTP/1.1 200 OK\r\n\r\n0";
    let answers = [
        (with_length(11), 10),
        (with_length(11) + "0", 10),
        (with_length(10), 0),
        (until_close.to_owned(), 1 << 20),
        (String::from_utf8(OK_CLOSE.to_vec()).unwrap(), 1 << 20),
    ];
    for (first, limit) in answers {
        let server = in_two_parts(&Gate::new(), first, String::new());
        let address = server.addr();
        with_client(pool_config(), drains(limit), |_, client| async move {
            drop(client.send(get(address)).await.unwrap());
            let stats = total(&client);
            assert_eq!(stats.acquired.current, 0);
            assert_eq!(stats.closed(CloseReason::Abandoned), 1);
        });
    }
}

#[test]
fn connection_of_a_request_that_still_leaves_closes_at_once() {
    let server = Server::script(|peer| {
        peer.read_request_head()?;
        peer.answer(OK)?;
        peer.stall()
    });
    let address = server.addr();
    with_client(pool_config(), drains(1 << 20), |_, client| async move {
        let endless = body(|_| Poll::Pending);
        let response = client.send(request("POST", address, endless)).await;
        drop(response.unwrap());
        let stats = total(&client);
        assert_eq!(
            (stats.acquired.current, stats.closed(CloseReason::Abandoned)),
            (0, 1)
        );
    });
}

#[test]
fn rest_that_turns_out_to_be_too_much_too_late_or_broken_closes_the_connection() {
    let in_time = |bytes| DrainLimits::new(bytes, DEADLINE);
    let chunk = "a\r\n0123456789\r\n".to_owned();
    for (first, rest, limits) in [
        (CHUNKED.to_owned() + &chunk, chunk.clone(), in_time(20)),
        // All of it in one read.
        (
            CHUNKED.to_owned() + &chunk.repeat(3) + "0\r\n\r\n",
            String::new(),
            in_time(20),
        ),
        // In pieces of one byte the sizes are most of it.
        (CHUNKED.to_owned(), "1\r\nx\r\n".repeat(4), in_time(20)),
        (CHUNKED.to_owned(), "x\r\n".to_owned(), in_time(20)),
        (
            CHUNKED.to_owned(),
            chunk,
            DrainLimits::new(64, Duration::from_millis(20)),
        ),
    ] {
        let gate = Gate::new();
        if limits != DrainLimits::new(64, Duration::from_millis(20)) {
            gate.open();
        }
        let server = in_two_parts(&gate, first, rest);
        let address = server.addr();
        let config = client_config().drain_limits(limits);
        with_client(pool_config(), config, |core, client| async move {
            drop(client.send(get(address)).await.unwrap());
            until(&core, "it is closed", || {
                total(&client).closed(CloseReason::ExchangeFailed) == 1
            })
            .await;
            assert_in_order(&core, &client, 2).await;
        });
    }
}

#[test]
fn pool_that_ends_does_not_wait_for_the_rest_beyond_its_grace() {
    let server = Server::script(respond_then(0, Then::StallMidBody));
    let address = server.addr();
    with_client(pool_config(), drains(64), |core, client| async move {
        drop(client.send(get(address)).await.unwrap());
        assert_eq!(total(&client).acquired.current, 1);
        client.pool().drain(Duration::from_millis(20)).await;
        let stats = total(&client);
        assert_eq!((stats.acquired.current, stats.closed_total()), (0, 1));
        until(&core, "no socket is left", || {
            core.registered_sockets() == 0
        })
        .await;
    });
    server.wait_until(|counts| counts.open == 0);
}

#[test]
fn connection_whose_rest_is_read_is_held_no_longer_than_any_other() {
    let server = Server::script(respond_then(0, Then::StallMidBody));
    let address = server.addr();
    let short = pool_config().hold_timeout(Duration::from_millis(50));
    with_client(short, drains(64), |core, client| async move {
        drop(client.send(get(address)).await.unwrap());
        until(&core, "it is closed", || {
            total(&client).closed(CloseReason::HoldTimeout) == 1
        })
        .await;
        until(&core, "no socket is left", || {
            core.registered_sockets() == 0
        })
        .await;
        client.pool().set_config(pool_config().build().unwrap());
        assert_in_order(&core, &client, 2).await;
    });
}

#[test]
fn body_that_outlives_its_core_closes_its_connection() {
    let server = Server::script(respond_then(0, Then::StallMidBody));
    let address = server.addr();
    let (kept, client) = with_client(pool_config(), drains(64), |core, client| async move {
        let kept = client.send(get(address)).await.unwrap().into_body();
        // Others end together with the core: with their task, and while they are read.
        let held = client.send(get(address)).await.unwrap();
        core.spawn(async move {
            let _held = held;
            pending::<()>().await;
        });
        drop(client.send(get(address)).await.unwrap());
        assert_eq!(total(&client).acquired.current, 3);
        (kept, client)
    });
    drop(kept);
    assert_eq!(total(&client).acquired.current, 0);
    server.wait_until(|counts| counts.accepted == 3 && counts.open == 0);
}

/// Drops what `begin` begins after so many polls that are not ready, from none to as many as there
/// are; each time the pool has to be in order. Begins anew until there were `least` of them: a
/// machine that is busy elsewhere lets a drip come in one piece.
async fn drop_at_every_poll<F: Future>(
    core: &Core,
    client: &TestClient,
    least: usize,
    mut begin: impl FnMut() -> F,
) {
    let started = Instant::now();
    let mut polls = 0;
    loop {
        let mut future = Box::pin(begin());
        let mut ended = false;
        for _ in 0..polls {
            ended = poll_once(&mut future).await.is_some();
            if ended {
                break;
            }
            core.sleep(Duration::from_millis(1)).await;
        }
        drop(future);
        until(core, "nothing is acquired", || {
            total(client).acquired.current == 0
        })
        .await;
        assert_in_order(core, client, 3).await;
        match (ended, polls > least) {
            (true, true) => return,
            (true, false) => polls = 0,
            (false, _) => polls += 1,
        }
        assert!(
            started.elapsed() < DEADLINE,
            "never more than {polls} polls"
        );
    }
}

/// Answers each request by a drip of an interim response and of [`OK`] around its body.
fn drips(peer: &mut Peer) -> std::io::Result<()> {
    let pause = Duration::from_millis(1);
    while let Some(head) = peer.read_request_head()? {
        peer.send_slowly("HTTP/1.1 100 Continue\r\n\r\n", 9, pause)?;
        peer.read_body(&head)?;
        peer.send_slowly(OK, 8, pause)?;
    }
    Ok(())
}

/// A body of five pieces, each in another turn of the core.
fn pauses(core: &Core) -> Body {
    let (core, mut turn, mut left) = (core.clone(), core.turns(), 5);
    body(move |cx| {
        if std::mem::replace(&mut turn, core.turns()) == core.turns() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        data("piece")
    })
}

fn three() -> pool_core::PoolConfigBuilder {
    pool_config().max_connections(3)
}

#[test]
fn request_with_a_streaming_body_leaves_nothing_wherever_it_is_dropped() {
    let server = Server::script(drips);
    let address = server.addr();
    with_client(three(), client_config(), |core, client| async move {
        let begin = || fetch(&client, request("POST", address, pauses(&core)));
        drop_at_every_poll(&core, &client, 5, begin).await;
    });
}

#[test]
fn request_that_expects_to_be_asked_leaves_nothing_wherever_it_is_dropped() {
    let server = Server::script(drips);
    let address = server.addr();
    let waits = Timeouts::builder().expect_continue(DEADLINE).build();
    let config = client_config().timeouts(waits.unwrap());
    with_client(three(), config, |core, client| async move {
        let begin = || {
            let request = Request::post(uri(address, "/")).header("Expect", "100-continue");
            fetch(&client, request.body(pauses(&core)).unwrap())
        };
        drop_at_every_poll(&core, &client, 5, begin).await;
    });
}

#[test]
fn response_leaves_nothing_wherever_it_is_dropped() {
    let server = Server::script(|peer| {
        let pause = Duration::from_millis(1);
        while peer.read_request()?.is_some() {
            peer.answer(with_length(20))?;
            peer.send_slowly("01234567890123456789", 3, pause)?;
        }
        Ok(())
    });
    let address = server.addr();
    with_client(three(), drains(10), |core, client| async move {
        let begin = || async {
            // Frame by frame, so that a drop finds the body at each of them.
            let mut body = client.send(get(address)).await.unwrap().into_body();
            while let Some(frame) = body.frame().await {
                frame.unwrap();
            }
        };
        let too_much_was_left = || total(&client).closed(CloseReason::Abandoned) > 0;
        for _ in 0..20 {
            drop_at_every_poll(&core, &client, 3, begin).await;
            if too_much_was_left() {
                break;
            }
        }
        assert!(too_much_was_left());
    });
}

#[test]
fn request_that_is_sent_again_leaves_nothing_wherever_it_is_dropped() {
    // Each connection refuses its first request, answers the second and hangs up on the third.
    let server = Server::script(|peer| {
        let pause = Duration::from_millis(1);
        for answer in [refusal(503, "").as_bytes(), OK] {
            if peer.read_request()?.is_some() {
                peer.send_slowly(answer, 5, pause)?;
            }
        }
        peer.read_request()?;
        peer.close()
    });
    let address = server.addr();
    let policy = RetryTable::default().backoff(Backoff::fixed(Duration::from_millis(3)));
    let config = client_config()
        .retry(policy)
        .retry_budget(Some(budget(1.0)));
    with_client(three(), config, |core, client| async move {
        let begin = || fetch(&client, get(address));
        drop_at_every_poll(&core, &client, 3, begin).await;
        assert!(client.retry_counts().granted > 0);
    });
}

#[test]
fn tunnel_leaves_nothing_wherever_its_request_is_dropped() {
    let server = Server::script(|peer| {
        if peer.read_request()?.is_some() {
            peer.send_slowly("HTTP/1.1 200 OK\r\n\r\n", 4, Duration::from_millis(1))?;
        }
        peer.stall()
    });
    let address = server.addr();
    with_client(three(), client_config(), |core, client| async move {
        let begin = || async {
            let connect = Request::connect(address.to_string()).body(Body::empty());
            let body = client.send(connect.unwrap()).await.unwrap().into_body();
            drop(body.into_tunnel().unwrap());
        };
        drop_at_every_poll(&core, &client, 3, begin).await;
        until(&core, "every tunnel is closed", || {
            server.counts().open == 0
        })
        .await;
    });
}
