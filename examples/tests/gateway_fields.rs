//! Heads: which fields pass in either direction, and what the gateway adds; interim responses and
//! `Expect`.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::sync::{Arc, Mutex};

use common::{Rig, Running, chunked, get, read_chunked, request};
use test_support::{Gate, OK, refused_address};

/// What the gateway adds to a request of an HTTP/1.1 client on loopback.
const ADDED: &str = "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nVia: 1.1 pinpool\r\n";

#[test]
fn request_head_is_passed_on_without_what_concerns_the_hop() {
    let (rig, record) = Rig::recording(OK);
    let mut client = rig.client();
    client.send(
        "GET /a/b?c=d&e HTTP/1.1\r\nHost: site.example:8000\r\nConnection: keep-alive, X-Hop\r\n\
         Keep-Alive: timeout=5\r\nx-hop: 1\r\nTE: trailers\r\nProxy-Connection: keep-alive\r\n\
         Upgrade: websocket\r\nuSER-aGENT: test\r\nCookie: a=1\r\nCookie: b=2\r\nX-Empty:\r\n\r\n",
    );
    assert_eq!(client.response().status(), 200);
    assert_eq!(
        record.heads(),
        [format!(
            "GET /a/b?c=d&e HTTP/1.1\r\nHost: site.example:8000\r\nuSER-aGENT: test\r\n\
             Cookie: a=1\r\nCookie: b=2\r\nX-Empty: \r\n{ADDED}\r\n"
        )]
    );
    rig.finish();
}

#[test]
fn response_head_is_passed_on_without_what_concerns_the_hop() {
    let answer = "HTTP/1.1 299 As It Came\r\nServer: up\r\nConnection: keep-alive, X-Hop\r\n\
                  X-Hop: 1\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\n\
                  Upgrade: h2c\r\nSet-Cookie: a=1\r\nset-COOKIE: b=2\r\nX-Bytes: \u{e9}\r\n\
                  Via: 1.0 inner\r\nContent-Length: 2\r\n\r\nok";
    let (rig, _) = Rig::recording(answer);
    let mut client = rig.client();
    client.send(get("/"));
    client.expect(
        "HTTP/1.1 299 As It Came\r\nServer: up\r\nSet-Cookie: a=1\r\nset-COOKIE: b=2\r\n\
         X-Bytes: \u{e9}\r\nVia: 1.0 inner\r\nVia: 1.1 pinpool\r\nContent-Length: 2\r\n\r\nok",
    );
    rig.wait_settled();
    client.expect_silence();
    rig.finish();
}

#[test]
fn forwarding_fields_are_continued_and_a_client_cannot_name_them_away() {
    let (rig, record) = Rig::recording(OK);
    let mut client = rig.client();
    client.send(
        "GET / HTTP/1.1\r\nHost: site\r\nX-Forwarded-For: 203.0.113.9\r\nVia: 1.0 outer\r\n\
         X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-Proto: https\r\n\
         Connection: via, x-forwarded-proto\r\n\r\n",
    );
    assert_eq!(client.response().field("Via"), Some("1.1 pinpool"));
    assert_eq!(
        record.heads(),
        ["GET / HTTP/1.1\r\nHost: site\r\n\
          X-Forwarded-For: 203.0.113.9, 10.0.0.1, 127.0.0.1\r\nX-Forwarded-Proto: http\r\n\
          Via: 1.1 pinpool\r\n\r\n"]
    );
    rig.finish();
}

#[test]
fn target_reaches_the_upstream_as_a_path_and_its_authority_as_host() {
    let (rig, record) = Rig::recording(OK);
    let mut client = rig.client();
    for target in [
        "http://other.example/a?b",
        "http://other.example?q",
        "/r?u=http://x/",
    ] {
        client.send(get(target));
        assert_eq!(client.response().status(), 200);
    }
    client.send("OPTIONS * HTTP/1.1\r\nHost: site\r\n\r\n");
    assert_eq!(client.response().status(), 200);
    let seen: Vec<_> = record
        .all()
        .iter()
        .map(|request| (request.line(), request.header("Host").unwrap()))
        .collect();
    let expected = [
        ("GET /a?b HTTP/1.1", "other.example"),
        ("GET /?q HTTP/1.1", "other.example"),
        ("GET /r?u=http://x/ HTTP/1.1", "site"),
        ("OPTIONS * HTTP/1.1", "site"),
    ];
    assert_eq!(
        seen,
        expected.map(|(line, host)| (line.to_owned(), host.to_owned()))
    );
    rig.finish();
}

#[test]
fn trailers_that_concern_the_hop_or_tell_of_the_way_stay_behind() {
    const TRAILERS: &str = "X-Sum: 1\r\nX-Hop: 1\r\nx-HOP: 2\r\nKeep-Alive: a\r\nVia: 1.1 evil\r\n\
                            X-Forwarded-For: 203.0.113.9\r\nForwarded: for=a\r\nClose: 1\r\n";
    let body = String::from_utf8(chunked(b"hello", 5, TRAILERS)).unwrap();
    let framing = "Connection: X-Hop, keep-alive\r\nTransfer-Encoding: chunked";
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (trailers, answer) = (Arc::clone(&seen), body.clone());
    let rig = Rig::new(move |peer| {
        peer.read_request_head()?;
        let mut raw = Vec::new();
        while !raw.ends_with(b"\r\n\r\n") {
            raw.extend(peer.read_exact(1)?);
        }
        *trailers.lock().unwrap() = read_chunked(&mut &*raw)?.1;
        peer.answer(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n{answer}"))
    });
    let mut client = rig.client();
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: site\r\n{framing}\r\n\r\n{body}"
    ));
    assert_eq!(client.response().trailers, ["x-sum: 1", "close: 1"]);
    assert_eq!(*seen.lock().unwrap(), ["x-sum: 1", "close: 1"]);
    rig.finish();
}

#[test]
fn hops_are_counted_down_until_the_gateway_answers_itself() {
    let (rig, record) = Rig::recording(OK);
    let mut client = rig.client();
    let limited = |method: &str, hops: u32| {
        request(&format!("{method} /"))
            .replace("\r\n\r\n", &format!("\r\nMax-Forwards: {hops}\r\n\r\n"))
    };
    client.send(limited("OPTIONS", 2));
    assert_eq!(client.response().text(), "ok");
    client.send(limited("TRACE", 1));
    assert_eq!(client.response().text(), "ok");
    client.send(limited("OPTIONS", 0));
    let response = client.response();
    assert_eq!((response.status(), response.text()), (200, ""));
    assert_eq!(response.field("Content-Length"), Some("0"));
    client.send(limited("TRACE", 0));
    let response = client.response();
    assert_eq!(
        (response.status(), response.text()),
        (501, "this gateway answers no TRACE\n")
    );
    client.send(limited("GET", 0));
    assert_eq!(client.response().text(), "ok");
    let passed: Vec<_> = record
        .all()
        .iter()
        .map(|request| (request.line(), request.header("Max-Forwards").unwrap()))
        .collect();
    let expected = [("OPTIONS", "1"), ("TRACE", "0"), ("GET", "0")];
    assert_eq!(
        passed,
        expected.map(|(method, hops)| (format!("{method} / HTTP/1.1"), hops.to_owned()))
    );
    rig.finish();
}

#[test]
fn old_client_that_names_no_host_gets_the_upstreams() {
    let (rig, record) = Rig::recording(OK);
    let mut client = rig.client();
    client.send("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(client.response().field("Via"), Some("1.1 pinpool"));
    let added = ADDED.replace("1.1 pinpool", "1.0 pinpool");
    let address = rig.server.addr();
    assert_eq!(
        record.heads(),
        [format!("GET / HTTP/1.1\r\nHost: {address}\r\n{added}\r\n")]
    );
    rig.finish();
}

#[test]
fn upgrade_is_not_passed_on_and_one_that_nobody_asked_for_is_no_answer() {
    let (rig, _) = Rig::recording(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    );
    let mut client = rig.client();
    client.send("GET / HTTP/1.1\r\nHost: site\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n");
    let response = client.response();
    assert_eq!(response.status(), 502);
    assert_eq!(
        response.field("Proxy-Status"),
        Some("pinpool; error=http_protocol_error")
    );
    rig.finish();
}

#[test]
fn interim_responses_pass_at_once_except_100() {
    let gate = Gate::new();
    let gated = gate.clone();
    let rig = Rig::new(move |peer| {
        while peer.read_request()?.is_some() {
            peer.send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n")?;
            peer.send("HTTP/1.1 103 Soon\r\nLink: </a>\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\n")?;
            peer.wait_at(&gated)?;
            peer.answer(OK)?;
        }
        Ok(())
    });
    let mut client = rig.client();
    client.send(get("/"));
    client.expect("HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Soon\r\nLink: </a>\r\n\r\n");
    gate.open();
    assert_eq!(client.response().text(), "ok");
    client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    // Read as a final response: an old client knows no others.
    assert_eq!(client.response().text(), "ok");
    assert_eq!(rig.server.counts().accepted, 1);
    rig.finish();
}

/// A request whose client waits for 100 before it sends its body of two bytes.
const EXPECTING: &str =
    "POST / HTTP/1.1\r\nHost: site\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";

const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";

#[test]
fn client_that_waits_for_100_gets_it_from_the_gateway_alone() {
    let (rig, record) = Rig::recording([CONTINUE.as_bytes(), OK].concat());
    let mut client = rig.client();
    for _ in 0..2 {
        client.send(EXPECTING);
        client.expect(CONTINUE);
        client.send("hi");
        assert_eq!(client.response().text(), "ok");
    }
    for request in record.all() {
        assert_eq!(
            (request.header("Expect"), &*request.body),
            (None, &b"hi"[..])
        );
    }
    rig.finish();
}

#[test]
fn client_that_does_not_wait_with_its_body_gets_no_100() {
    let (rig, record) = Rig::recording(OK);
    let mut client = rig.client();
    client.send([EXPECTING, "hi"].concat());
    assert_eq!(client.response().text(), "ok");
    assert_eq!(record.all()[0].body, b"hi");
    rig.finish();
}

#[test]
fn old_client_gets_no_100_whatever_it_expects() {
    let (rig, record) = Rig::recording(OK);
    let mut client = rig.client();
    client.send(EXPECTING.replace("HTTP/1.1", "HTTP/1.0"));
    rig.wait_for("acquired", 1);
    client.expect_silence();
    client.send("hi");
    assert_eq!(client.response().text(), "ok");
    assert_eq!(record.all()[0].body, b"hi");
    rig.finish();
}

#[test]
fn body_is_not_asked_for_before_there_is_a_connection_to_send_it_on() {
    let gate = Gate::new();
    let gated = gate.clone();
    let rig = Rig::with("--max-connections 1", move |peer| {
        while peer.read_request()?.is_some() {
            peer.wait_at(&gated)?;
            peer.answer(OK)?;
        }
        Ok(())
    });
    let (mut first, mut second) = (rig.client(), rig.client());
    first.send(get("/"));
    rig.wait_for("acquired", 1);
    second.send(EXPECTING);
    rig.wait_for("pending", 1);
    second.expect_silence();
    gate.open();
    assert_eq!(first.response().text(), "ok");
    second.expect(CONTINUE);
    second.send("hi");
    assert_eq!(second.response().text(), "ok");
    rig.finish();
}

#[test]
fn body_is_not_asked_for_if_it_cannot_be_passed_on() {
    let refused = refused_address();
    let gateway = Running::before(&[refused.addr()], "");
    let mut client = gateway.client();
    client.send(EXPECTING);
    let response = client.response();
    assert_eq!(
        (response.status(), response.field("Connection")),
        (502, Some("close")),
        "the client may take the body for sent or not, so the connection is of no more use"
    );
    client.expect_eof();
    drop(client);
    gateway.finish();
}
