//! What a response says of its end, and what becomes of its connection, with a server that leaves
//! every connection open.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use common::*;
use http::Request;
use http_client::{Body, ErrorKind};
use pool_core::PoolConfigBuilder;
use test_support::{Gate, Server};

/// An answer that is taken for longer than it is would be waited for without end.
fn patient() -> PoolConfigBuilder {
    pool_config().hold_timeout(Some(DEADLINE))
}

/// How many requests go to one server, one after the other.
const REQUESTS: usize = 4;

/// Sends requests to a server that answers every one with `answer`; returns what came of each and
/// how many connections they took.
fn answers(method: &'static str, answer: String) -> (Vec<Result<String, ErrorKind>>, usize) {
    let server = Server::script(move |peer| {
        while peer.read_request()?.is_some() {
            peer.answer(&answer)?;
        }
        Ok(())
    });
    let address = server.addr();
    let results = with_client(patient(), client_config(), move |_, client| async move {
        let mut results = Vec::new();
        for _ in 0..REQUESTS {
            let result = fetch(&client, request(method, address, Body::empty())).await;
            results.push(result.map_err(|error| error.kind()));
        }
        results
    });
    (results, server.counts().accepted)
}

/// Asserts that each answer is read as `body`, all over one connection.
fn assert_kept(method: &'static str, answer: &str, body: &str) {
    let read = vec![Ok(body.to_owned()); REQUESTS];
    let seen = answers(method, answer.to_owned());
    assert_eq!(seen, (read, 1), "{method} {answer}");
}

/// Asserts that each answer is read as `body` and ends its connection.
fn assert_closed(answer: &str, body: &str) {
    let read = vec![Ok(body.to_owned()); REQUESTS];
    assert_eq!(
        answers("GET", answer.to_owned()),
        (read, REQUESTS),
        "{answer}"
    );
}

/// Asserts that each answer is an error and ends its connection.
fn assert_refused(answer: &str) {
    let refused = vec![Err(ErrorKind::MalformedResponse); REQUESTS];
    assert_eq!(
        answers("GET", answer.to_owned()),
        (refused, REQUESTS),
        "{answer}"
    );
}

/// Fault row C4: the body that a 204 announces comes late and is read as the next status line.
#[test]
fn connection_of_a_204_with_a_length_is_not_kept_for_its_late_body() {
    let gate = Gate::new();
    let late = gate.clone();
    let server = Server::script(move |peer| {
        peer.read_request()?;
        peer.answer("HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\n")?;
        peer.wait_at(&late)?;
        peer.send("abc")?;
        peer.stall()
    });
    let address = server.addr();
    with_client(patient(), client_config(), |core, client| async move {
        for opened in 1..=REQUESTS {
            let response = client.send(get(address)).await.unwrap();
            assert_eq!(response.status(), 204);
            assert_eq!(text(response).await.unwrap(), "");
            let total = total(&client);
            assert_eq!((total.idle.current, total.opened), (0, opened as u64));
        }
        gate.open();
        assert_in_order(&core, &client, 2).await;
    });
}

/// Fault row C4, for each way to announce what a 204 cannot have.
#[test]
fn connection_of_a_204_with_a_framing_is_not_kept() {
    for announced in [
        "Content-Length: 3\r\n",
        "Content-Length: 3\r\nConnection: keep-alive\r\n",
        "Transfer-Encoding: chunked\r\n",
    ] {
        assert_closed(&format!("HTTP/1.1 204 No Content\r\n{announced}\r\n"), "");
    }
    let none = "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n";
    assert_kept("GET", none, "");
}

/// Fault row C6: the server keeps its side open, and says in some way that it will not.
#[test]
fn connection_closes_however_the_answer_says_so() {
    for line in [
        "Connection: close",
        "CONNECTION: Close",
        "Connection: keep-alive, close",
        "Connection: , CLOSE ,",
        "Connection: keep-alive\r\nConnection: close",
        "Connection: close\r\nKeep-Alive: timeout=60",
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n{line}\r\n\r\nok");
        assert_closed(&answer, "ok");
    }
    for answer in [
        "HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
         2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.0 200 OK\r\nConnection: close, keep-alive\r\nContent-Length: 2\r\n\r\nok",
    ] {
        assert_closed(answer, "ok");
    }
    assert_closed("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", "");
}

#[test]
fn connection_closes_where_the_request_says_so() {
    let server = Server::script(test_support::keep_alive_ok());
    let address = server.addr();
    with_client(patient(), client_config(), |_, client| async move {
        for _ in 0..REQUESTS {
            let last = Request::get(uri(address, "/")).header("Connection", "close");
            let last = last.body(Body::empty()).unwrap();
            assert_eq!(fetch(&client, last).await.unwrap(), "ok");
        }
    });
    assert_eq!(server.counts().accepted, REQUESTS);
}

/// Fault row C8: an HTTP/1.0 answer without keep-alive is pooled.
#[test]
fn connection_of_an_http_1_0_server_is_kept_only_if_it_says_so() {
    let head = "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n";
    assert_closed(&format!("{head}\r\nok"), "ok");
    assert_kept(
        "GET",
        &format!("{head}Connection: keep-alive\r\n\r\nok"),
        "ok",
    );
    for line in ["", "Connection: keep-alive\r\n"] {
        let head = "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n";
        assert_refused(&format!("{head}{line}\r\n2\r\nok\r\n0\r\n\r\n"));
    }
}

/// Fault row C14: implementations disagree on where a response with two framings ends.
#[test]
fn connection_of_an_answer_with_two_lengths_is_not_kept() {
    let both = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_closed(&format!("{both}2\r\nok\r\n0\r\n\r\n"), "ok");
    let with_length = |length| format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\nabc");
    assert_kept("GET", &with_length("3, 3"), "abc");
    // Blanks around a value are not its part (RFC 9110 §5.5).
    assert_kept("GET", &with_length("3 "), "abc");
    assert_kept("GET", &with_length("3\r\nContent-Length: 3"), "abc");
    for length in [
        "3, 4",
        "3\r\nContent-Length: 4",
        "+3",
        "-3",
        "0x3",
        "3;",
        "",
        "99999999999999999999",
    ] {
        assert_refused(&with_length(length));
    }
}

/// Fault row F2: an interim response is taken for the final one.
#[test]
fn answers_stay_in_step_behind_interim_responses() {
    let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
                   HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 199 Odd\r\n\r\n";
    let server = Server::script(move |peer| {
        for n in 1..=REQUESTS {
            peer.read_request()?;
            peer.answer(format!(
                "{interim}HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{n}"
            ))?;
        }
        peer.stall()
    });
    let address = server.addr();
    with_client(patient(), client_config(), |_, client| async move {
        for n in 1..=REQUESTS {
            let response = client.send(get(address)).await.unwrap();
            assert_eq!(response.status(), 200);
            assert_eq!(text(response).await.unwrap(), n.to_string());
        }
        assert_eq!(total(&client).opened, 1);
    });
    assert_refused("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n");
}

/// Fault row F11: the 100 that was asked for is handed to the user as the response.
#[test]
fn answer_to_expect_is_not_the_response() {
    let server = Server::script(|peer| {
        while peer.read_request_head()?.is_some() {
            peer.send("HTTP/1.1 100 Continue\r\n\r\n")?;
            peer.read_exact(2)?;
            peer.answer("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
        }
        Ok(())
    });
    let address = server.addr();
    with_client(patient(), client_config(), |_, client| async move {
        for _ in 0..REQUESTS {
            let expecting = Request::post(uri(address, "/")).header("Expect", "100-continue");
            let expecting = expecting.body(Body::full("hi")).unwrap();
            let response = client.send(expecting).await.unwrap();
            assert_eq!(response.status(), 200);
            assert_eq!(text(response).await.unwrap(), "ok");
        }
        assert_eq!(total(&client).opened, 1);
    });
}

/// Fault row F12: a response that can have no body is read until its connection closes.
#[test]
fn connection_of_an_answer_without_a_body_is_kept() {
    assert_kept("GET", "HTTP/1.1 204 No Content\r\n\r\n", "");
    let unchanged = "HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\n\r\n";
    assert_kept("GET", unchanged, "");
    let in_chunks = "Transfer-Encoding: chunked\r\n\r\n";
    assert_kept("GET", &format!("HTTP/1.1 304 No\r\n{in_chunks}"), "");
    for head in ["Content-Length: 100\r\n\r\n", in_chunks, "\r\n"] {
        assert_kept("HEAD", &format!("HTTP/1.1 200 OK\r\n{head}"), "");
    }
}

#[test]
fn connection_is_kept_for_as_long_as_nothing_follows_the_answer() {
    let chunked =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nT: v\r\n\r\n";
    assert_kept("GET", chunked, "ok");
    let stray = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n";
    assert_closed(stray, "ok");
}
