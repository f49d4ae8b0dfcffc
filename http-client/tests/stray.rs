//! Bytes that no request has asked for: they answer none, and end their connection.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use common::*;
use http_client::Body;
use pool_core::CloseReason;
use test_support::{Gate, Peer, Server, keep_alive_tagged, tagged_answer};

/// A whole answer that a client that is one behind would take for its own.
const WHOLE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray";

/// Sends `answer` to the first request of the first connection, and `stray` when the first gate is
/// open, and opens the second; all other answers tell their connection and their number.
fn strays(answer: Vec<u8>, stray: &'static str, gate: &Gate, sent: &Gate) -> Server {
    let (gate, sent) = (gate.clone(), sent.clone());
    Server::script(move |peer: &mut Peer| {
        if peer.index() == 0 {
            peer.read_request()?;
            peer.answer(&answer)?;
            peer.wait_at(&gate)?;
            peer.send(stray)?;
            sent.open();
            return peer.stall();
        }
        keep_alive_tagged()(peer)
    })
}

/// Fault row C2: what comes while a connection is idle is read as the next answer.
#[test]
fn bytes_on_an_idle_connection_close_it_and_no_answer_is_one_behind() {
    let no_body = |head: &str| head.as_bytes().to_vec();
    for (method, answer, body) in [
        ("GET", tagged_answer(1, 1), "R-1-1"),
        // The body that it announces and that it cannot have comes all the same.
        (
            "HEAD",
            no_body("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
            "",
        ),
        (
            "GET",
            no_body("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"),
            "",
        ),
    ] {
        for stray in ["stray bytes!", "s", "\r\n", WHOLE] {
            let gate = Gate::new();
            let server = strays(answer.clone(), stray, &gate, &Gate::new());
            let address = server.addr();
            with_client(pool_config(), client_config(), |core, client| async move {
                let first = request(method, address, Body::empty());
                assert_eq!(fetch(&client, first).await.unwrap(), body);
                assert_eq!(total(&client).idle.current, 1);
                gate.open();
                until(&core, "it is closed", || {
                    total(&client).closed(CloseReason::StrayBytes) == 1
                })
                .await;
                for n in 1..=2 {
                    let next = fetch(&client, get(address)).await.unwrap();
                    assert_eq!(next, format!("R-2-{n}"), "after {stray:?}");
                }
                let stats = total(&client);
                assert_eq!((stats.opened, stats.closed_total()), (2, 1));
                assert_in_order(&core, &client, 2).await;
            });
        }
    }
}

/// Fault row C2, for what comes right behind an answer, or while nobody reads that.
#[test]
fn bytes_behind_an_answer_close_its_connection_and_no_answer_is_one_behind() {
    for stray in ["stray bytes!", "s", "\r\n", WHOLE] {
        for together in [true, false] {
            let (gate, sent) = (Gate::new(), Gate::new());
            let (mut answer, mut later) = (tagged_answer(1, 1), stray);
            if together {
                answer.extend_from_slice(stray.as_bytes());
                later = "";
            }
            let server = strays(answer, later, &gate, &sent);
            let address = server.addr();
            with_client(pool_config(), client_config(), |core, client| async move {
                let mut body = client.send(get(address)).await.unwrap().into_body();
                let data = body.frame().await.unwrap().unwrap().into_data().unwrap();
                assert_eq!(data, "R-1-1");
                gate.open();
                until(&core, "all is sent", || sent.is_open()).await;
                assert!(body.frame().await.is_none());
                until(&core, "it is closed", || {
                    total(&client).closed(CloseReason::StrayBytes) == 1
                })
                .await;
                let next = fetch(&client, get(address)).await.unwrap();
                assert_eq!(next, "R-2-1", "after {stray:?}");
                assert_in_order(&core, &client, 2).await;
            });
        }
    }
}
