//! An upstream that does not answer: what the client is told, and that nothing is left behind.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use common::{Client, Response, Rig, Running, get};
use test_support::{
    Gate, HangingListener, OK, Peer, Then, first_connections, keep_alive_ok, never_read,
    refused_address, respond_then,
};

/// Short for an upstream that never answers, and long for one that does.
const SHORT_WAIT: &str = "--response-head-timeout 500ms --retries 0";

const POST: &str = "POST / HTTP/1.1\r\nHost: site\r\nContent-Length: 5\r\n\r\nhello";

/// What a client is told: a status, an error of RFC 9209, and a line that names the reason.
#[derive(Clone, Copy)]
struct Told(u16, &'static str, &'static str);

const MALFORMED: Told = Told(
    502,
    "http_protocol_error",
    "the upstream's answer is malformed",
);
const NO_ANSWER: Told = Told(
    504,
    "http_response_timeout",
    "the upstream took too long to answer",
);
const QUEUE_FULL: Told = Told(
    503,
    "connection_limit_reached",
    "too many requests wait for an upstream connection",
);

/// The client is told so, and may go on with its connection.
#[track_caller]
fn assert_told(response: &Response, Told(status, error, line): Told) {
    assert_eq!(
        (response.status(), response.text()),
        (status, &*format!("{line}\n"))
    );
    assert_eq!(response.field("Content-Type"), Some("text/plain"));
    let proxy_status = format!("pinpool; error={error}");
    assert_eq!(response.field("Proxy-Status"), Some(&*proxy_status));
    let retry = (status == 503).then_some("1");
    assert_eq!(response.field("Retry-After"), retry);
    assert_eq!(response.field("Connection"), None);
}

/// An upstream whose first connection goes wrong: the sender of a GET and that of a POST are told
/// so, the request was sent once, the pool notes `reason`, and the same client connection is
/// served by the next upstream connection.
fn fails_once(
    flags: &str,
    fault: impl Fn(&mut Peer) -> io::Result<()> + Send + Sync + 'static,
    reason: &str,
    told: Told,
) {
    let fault = Arc::new(fault);
    for request in [&get("/"), POST] {
        let fault = Arc::clone(&fault);
        let script = first_connections(1, move |peer: &mut Peer| fault(peer), keep_alive_ok());
        let rig = Rig::with(flags, script);
        let mut client = rig.client();
        client.send(request);
        assert_told(&client.response(), told);
        rig.wait_settled();
        assert_eq!(rig.closes(), [(reason.to_owned(), 1)]);
        assert_eq!(rig.server.counts().requests, 1, "it was not repeated");
        client.send(request);
        assert_eq!(client.response().text(), "ok");
        rig.server
            .wait_until(|counts| (counts.accepted, counts.open) == (2, 1));
        assert_eq!(rig.finish().responses, [1, 0, 0, 1]);
    }
}

#[test]
fn upstream_that_closes_instead_of_answering() {
    let told = Told(
        502,
        "connection_terminated",
        "the upstream closed the connection without an answer",
    );
    let fault = respond_then(0, Then::FinBeforeHead);
    fails_once("", fault, "exchange_failed", told);
}

#[test]
fn upstream_that_resets_instead_of_answering() {
    let told = Told(
        502,
        "connection_terminated",
        "the upstream reset the connection",
    );
    let fault = respond_then(0, Then::ResetBeforeHead);
    fails_once("", fault, "reset", told);
}

#[test]
fn upstream_that_closes_in_the_middle_of_its_head() {
    let told = Told(
        502,
        "http_response_incomplete",
        "the upstream closed in the middle of its answer",
    );
    let fault = |peer: &mut Peer| {
        peer.read_request()?;
        peer.answer("HTTP/1.1 200 OK\r\nContent-Le")
    };
    fails_once("", fault, "exchange_failed", told);
}

#[test]
fn upstream_that_says_nothing() {
    let fault = respond_then(0, Then::StallBeforeHead);
    fails_once(SHORT_WAIT, fault, "exchange_failed", NO_ANSWER);
}

#[test]
fn upstream_that_stalls_after_an_interim_response() {
    let fault = |peer: &mut Peer| {
        peer.read_request()?;
        peer.send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nConte")?;
        peer.stall()
    };
    fails_once(SHORT_WAIT, fault, "exchange_failed", NO_ANSWER);
}

#[test]
fn answers_that_are_malformed() {
    for answer in [
        "SSH-2.0-OpenSSH\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nNo colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: one\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
    ] {
        let fault = move |peer: &mut Peer| {
            peer.read_request()?;
            peer.answer(answer)?;
            peer.stall()
        };
        fails_once("", fault, "exchange_failed", MALFORMED);
    }
}

#[test]
fn answer_with_more_connection_options_than_anybody_needs() {
    let told = Told(
        502,
        "http_protocol_error",
        "the upstream's answer cannot be passed on",
    );
    let fault = |peer: &mut Peer| {
        peer.read_request()?;
        let options = "q,".repeat(65);
        // The rest of it is waited for a moment.
        peer.answer(format!(
            "HTTP/1.1 200 OK\r\nConnection: {options}\r\nContent-Length: 10\r\n\r\nhello"
        ))?;
        peer.stall()
    };
    fails_once("", fault, "exchange_failed", told);
}

#[test]
fn answer_whose_head_has_no_end_is_not_collected_for_ever() {
    let fault = |peer: &mut Peer| {
        peer.read_request()?;
        peer.answer("HTTP/1.1 200 OK\r\n")?;
        loop {
            peer.send("A: b\r\n".repeat(1000))?;
        }
    };
    fails_once("", fault, "exchange_failed", MALFORMED);
}

#[test]
fn interim_responses_without_end_are_not_passed_on_for_ever() {
    let script = |peer: &mut Peer| {
        peer.read_request()?;
        loop {
            peer.send("HTTP/1.1 103 Early Hints\r\n\r\n")?;
        }
    };
    let rig = Rig::new(first_connections(1, script, keep_alive_ok()));
    let mut client = rig.client();
    client.send(get("/"));
    client.expect("HTTP/1.1 103 Early Hints\r\n\r\n".repeat(16));
    assert_told(&client.response(), MALFORMED);
    assert_eq!(client.get("/").text(), "ok");
    rig.finish();
}

/// An upstream that cannot be connected to: every request on the client's connection gets this.
fn cannot_connect(upstream: SocketAddr, flags: &str, timeouts: u64, told: Told) {
    let gateway = Running::before(&[upstream], flags);
    let mut client = gateway.client();
    for request in [&get("/"), POST] {
        client.send(request);
        assert_told(&client.response(), told);
    }
    gateway.wait_settled();
    assert_eq!(gateway.count("timeouts/connect"), timeouts);
    assert_eq!(gateway.count("acquires/fresh"), 0);
    assert_eq!(gateway.closes(), [], "what was never open is not closed");
    assert_eq!(gateway.finish().responses, [0, 0, 0, 2]);
}

#[test]
fn upstream_that_refuses_the_connection() {
    let refused = refused_address();
    let told = Told(
        502,
        "connection_refused",
        "the upstream refused the connection",
    );
    cannot_connect(refused.addr(), "", 0, told);
}

#[test]
fn upstream_that_does_not_take_the_connection() {
    let hanging = HangingListener::new();
    let told = Told(
        504,
        "connection_timeout",
        "connecting to the upstream took too long",
    );
    cannot_connect(
        hanging.addr(),
        "--connect-timeout 100ms --retries 0",
        2,
        told,
    );
}

#[test]
fn upstream_that_does_not_take_the_connection_within_the_acquire_timeout() {
    let hanging = HangingListener::new();
    let gateway = Running::before(&[hanging.addr()], "--acquire-timeout 100ms");
    let mut client = gateway.client();
    let told = Told(
        504,
        "connection_timeout",
        "connecting to the upstream took too long",
    );
    for request in [&get("/"), POST] {
        client.send(request);
        // No limit was reached that waiting for another request's end would help against.
        assert_told(&client.response(), told);
    }
    assert_eq!(gateway.count("timeouts/acquire"), 2);
    gateway.stop();
}

#[test]
fn upstream_that_comes_back_is_used_again_at_once() {
    let refused = refused_address();
    let address = refused.addr();
    let gateway = Running::before(&[address], "");
    let mut client = gateway.client();
    assert_eq!(client.get("/").status(), 502);
    drop(refused);
    let server = test_support::Server::script_at(address, keep_alive_ok());
    // The pool makes the first request after a refused connect wait a moment, and not fail.
    assert_eq!(client.get("/").text(), "ok");
    gateway.finish();
    server.finish();
}

/// A gateway with one upstream connection, on which a request waits for the gate.
fn occupied(flags: &str) -> (Rig, Gate, Client) {
    let gate = Gate::new();
    let gated = gate.clone();
    let rig = Rig::with(&format!("--max-connections 1 {flags}"), move |peer| {
        while peer.read_request()?.is_some() {
            peer.wait_at(&gated)?;
            peer.answer(OK)?;
        }
        Ok(())
    });
    let mut holder = rig.client();
    holder.send(get("/"));
    gate.wait_for_arrivals(1);
    (rig, gate, holder)
}

#[test]
fn request_that_gets_no_connection_in_time_may_come_again() {
    let (rig, gate, mut holder) = occupied("--acquire-timeout 500ms");
    let mut client = rig.client();
    client.send(get("/"));
    let told = Told(
        503,
        "connection_limit_reached",
        "no upstream connection became free in time",
    );
    assert_told(&client.response(), told);
    assert_eq!(
        (rig.count("timeouts/acquire"), rig.count("pending")),
        (1, 0)
    );
    gate.open();
    assert_eq!(holder.response().text(), "ok");
    assert_eq!(client.get("/").text(), "ok");
    assert_eq!(rig.server.counts().accepted, 1);
    assert_eq!(rig.finish().responses, [2, 0, 0, 1]);
}

#[test]
fn request_beyond_the_queue_may_come_again() {
    let (rig, gate, mut holder) = occupied("--max-pending 0");
    let mut client = rig.client();
    for _ in 0..2 {
        client.send(get("/"));
        assert_told(&client.response(), QUEUE_FULL);
    }
    assert_eq!((rig.count("acquired"), rig.count("pending")), (1, 0));
    gate.open();
    assert_eq!(holder.response().text(), "ok");
    rig.wait_for("idle", 1);
    assert_eq!(client.get("/").text(), "ok");
    assert_eq!(rig.server.counts().accepted, 1);
    assert_eq!(rig.finish().responses, [2, 0, 0, 2]);
}

#[test]
fn queue_takes_as_many_as_it_is_told_to() {
    let (rig, gate, mut holder) = occupied("--max-pending 1");
    let (mut waiting, mut refused) = (rig.client(), rig.client());
    waiting.send(get("/"));
    rig.wait_for("pending", 1);
    assert_told(&refused.get("/"), QUEUE_FULL);
    gate.open();
    assert_eq!(holder.response().text(), "ok");
    assert_eq!(waiting.response().text(), "ok");
    rig.finish();
}

#[test]
fn exchange_that_holds_its_connection_for_too_long_is_ended() {
    let rig = Rig::with(
        "--hold-timeout 500ms",
        first_connections(1, respond_then(0, Then::StallBeforeHead), keep_alive_ok()),
    );
    let mut client = rig.client();
    client.send(get("/"));
    let told = Told(504, "http_response_timeout", "the exchange took too long");
    assert_told(&client.response(), told);
    rig.wait_settled();
    assert_eq!(rig.count("timeouts/hold"), 1);
    assert_eq!(rig.closes(), [("hold_timeout".to_owned(), 1)]);
    assert_eq!(client.get("/").text(), "ok");
    rig.finish();
}

#[test]
fn failure_in_the_middle_of_a_large_body_ends_the_clients_connection_without_a_reset() {
    let refused = refused_address();
    let gateway = Running::before(&[refused.addr()], "");
    let mut client = gateway.client();
    let head = "POST / HTTP/1.1\r\nHost: site\r\nContent-Length: 1000000\r\n\r\n";
    // Much of it is still unread when the answer is there.
    client.send([head.as_bytes(), &[0; 300_000]].concat());
    let response = client.response();
    assert_eq!(
        (response.status(), response.field("Connection")),
        (502, Some("close"))
    );
    // A reset would cost many a client the answer.
    client.expect_eof();
    drop(client);
    gateway.finish();
}

#[test]
fn failure_before_the_end_of_a_body_of_unknown_length_announces_the_close() {
    let refused = refused_address();
    let gateway = Running::before(&[refused.addr()], "");
    let head = "POST / HTTP/1.1\r\nHost: site\r\nTransfer-Encoding: chunked\r\n\r\n";
    let (open, whole) = ("5\r\nhello\r\n", "5\r\nhello\r\n0\r\n\r\n");
    let mut client = gateway.client();
    client.send([head, whole].concat());
    let response = client.response();
    assert_eq!(
        (response.status(), response.field("Connection")),
        (502, None),
        "all of it has come"
    );
    client.send([head, open].concat());
    let response = client.response();
    assert_eq!(
        (response.status(), response.field("Connection")),
        (502, Some("close"))
    );
    client.expect_eof();
    drop(client);
    gateway.finish();
}

#[test]
fn upstream_that_takes_no_more_of_a_body() {
    let rig = Rig::with("--write-timeout 500ms", never_read());
    let mut client = rig.client();
    let mut writer = client.writer();
    // More than any kernel buffers.
    let sending = thread::spawn(move || {
        let head = "POST / HTTP/1.1\r\nHost: site\r\nContent-Length: 268435456\r\n\r\n";
        writer.write_all(head.as_bytes())?;
        let piece = vec![0; 1 << 20];
        (0..256).try_for_each(|_| writer.write_all(&piece))
    });
    let response = client.response();
    assert_eq!(
        (response.status(), response.text()),
        (504, "the upstream took too long to take the request\n")
    );
    assert_eq!(response.field("Connection"), Some("close"));
    rig.wait_settled();
    // How much of it the gateway took is open.
    let _ = sending.join().unwrap();
    drop(client);
    rig.finish();
}

#[test]
fn client_that_pauses_in_its_body_is_not_the_upstreams_fault() {
    let rig = Rig::with(SHORT_WAIT, |peer| {
        while let Some(request) = peer.read_request()? {
            match request.line().contains("/stall") {
                true => return peer.stall(),
                false => peer.answer(OK)?,
            }
        }
        Ok(())
    });
    let (first, second) = POST.split_at(POST.len() - 2);
    let mut client = rig.client();
    client.send(first);
    rig.server.wait_until(|counts| counts.requests == 1);
    // The limit passes for a request that began later.
    assert_told(&rig.client().get("/stall"), NO_ANSWER);
    client.expect_silence();
    client.send(second);
    assert_eq!(client.response().text(), "ok");
    rig.finish();
}
