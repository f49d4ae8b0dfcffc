//! Requests that the gateway does not pass on, and what it tells their senders.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use common::{Client, Response, Rig, get};
use test_support::{OK, keep_alive_ok};

/// The gateway's own answer: a status, one line that names the reason, an error of RFC 9209.
#[track_caller]
fn assert_refusal(response: &Response, status: u16, line: &str) {
    assert_eq!(
        (response.status(), response.text()),
        (status, &*format!("{line}\n"))
    );
    assert_eq!(response.field("Content-Type"), Some("text/plain"));
    assert_eq!(
        response.field("Proxy-Status"),
        Some("pinpool; error=http_request_error")
    );
}

/// Each request gets this answer, loses its connection, and never reaches the upstream.
fn all_are_refused(status: u16, line: &str, requests: &[&str]) {
    let rig = Rig::new(keep_alive_ok());
    for request in requests {
        let mut client = rig.client();
        client.send(request);
        let response = client.response();
        assert_eq!(response.status(), status, "{request}");
        assert_refusal(&response, status, line);
        assert_eq!(response.field("Connection"), Some("close"), "{request}");
        // What came behind it is not served.
        client.expect_eof();
    }
    assert_eq!(rig.server.counts().accepted, 0);
    let totals = rig.finish();
    // What was no request has no response either.
    assert_eq!((totals.requests, totals.responses), (0, [0; 4]));
    assert_eq!(totals.refused, requests.len() as u64);
}

#[test]
fn request_that_is_none_is_refused() {
    all_are_refused(
        400,
        "malformed request",
        &[
            "hello\r\n\r\n",
            "GET /\r\n\r\n",
            "GET  / HTTP/1.1\r\nHost: site\r\n\r\n",
            "G(T / HTTP/1.1\r\nHost: site\r\n\r\n",
            "GET a HTTP/1.1\r\nHost: site\r\n\r\n",
            "GET /#a HTTP/1.1\r\nHost: site\r\n\r\n",
            "GET * HTTP/1.1\r\nHost: site\r\n\r\n",
            "GET / HTTQ/1.1\r\nHost: site\r\n\r\n",
            "GET / HTTP/1.1\nHost: site\n\n",
            "GET / HTTP/1.1\r\nHost: site\r\nNo colon\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: site\r\nA : space before the colon\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: site\r\nA: b\r\n folded\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: site\r\nA: b\0\r\n\r\n",
            "\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n",
        ],
    );
}

#[test]
fn request_without_one_host_is_refused() {
    all_are_refused(
        400,
        "malformed request",
        &[
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: me@a\r\n\r\n",
        ],
    );
}

#[test]
fn request_whose_end_two_readers_could_see_in_two_places_is_refused() {
    let smuggled = "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: site\r\n\r\n";
    let requests: Vec<_> = [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5\r\nContent-Length: 5",
        "Content-Length: 5, 5",
        "Content-Length: +5",
        "Content-Length: 0x5",
        "Content-Length: 99999999999999999999",
        "Content-Length:",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: gzip\r\nContent-Length: 5",
    ]
    .iter()
    .map(|framing| format!("POST / HTTP/1.1\r\nHost: site\r\n{framing}\r\n\r\n{smuggled}"))
    .chain([format!(
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n{smuggled}"
    )])
    .collect();
    let requests: Vec<_> = requests.iter().map(String::as_str).collect();
    all_are_refused(400, "malformed request", &requests);
}

#[test]
fn transfer_coding_that_is_not_known_is_refused() {
    all_are_refused(
        501,
        "the transfer coding is not supported",
        &["POST / HTTP/1.1\r\nHost: site\r\nTransfer-Encoding: gzip\r\n\r\n"],
    );
}

#[test]
fn version_that_is_not_spoken_is_refused() {
    all_are_refused(
        505,
        "the HTTP version is not supported",
        &[
            "GET / HTTP/2.0\r\nHost: site\r\n\r\n",
            "GET / HTTP/0.9\r\nHost: site\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ],
    );
}

#[test]
fn target_that_is_too_long_is_refused() {
    let long = "a".repeat(17 << 10);
    all_are_refused(
        414,
        "the request target is too long",
        // The second is refused before its line ends.
        &[&get(&format!("/{long}")), &format!("GET /{long}")],
    );
}

#[test]
fn head_that_is_too_large_is_refused() {
    let head = |fields: &str| format!("GET / HTTP/1.1\r\nHost: site\r\n{fields}");
    let long = "a".repeat(65 << 10);
    all_are_refused(
        431,
        "the request head is too large",
        &[
            &head(&format!("A: {long}\r\n\r\n")),
            &head(&"A: b\r\n".repeat(200)),
            // Refused before it ends.
            &head(&format!("A: {long}")),
        ],
    );
}

#[test]
fn head_that_is_large_but_not_too_large_is_passed_on() {
    let (rig, record) = Rig::recording(OK);
    let mut client = rig.client();
    let (target, value) = ("t".repeat(16_000), "v".repeat(40_000));
    client.send(format!(
        "GET /{target} HTTP/1.1\r\nHost: site\r\nA: {value}\r\n\r\n"
    ));
    assert_eq!(client.response().text(), "ok");
    let request = &record.all()[0];
    assert_eq!(request.line(), format!("GET /{target} HTTP/1.1"));
    assert_eq!(request.header("A"), Some(value));
    rig.finish();
}

#[test]
fn request_that_breaks_off_is_refused() {
    let rig = Rig::new(keep_alive_ok());
    let mut client = rig.client();
    client.send("GET / HTTP/1.1\r\nHost: si");
    client.fin();
    assert_refusal(&client.response(), 400, "malformed request");
    client.expect_eof();
    drop(client);
    assert_eq!(rig.server.counts().accepted, 0);
    rig.finish();
}

/// A body that goes wrong when its head is at the upstream: the client is told, and the upstream's
/// request has no end.
fn body_is_refused(status: u16, line: &str, head: &str, body: &str, then: fn(&mut Client)) {
    let rig = Rig::new(|peer| {
        let head = peer.read_request_head()?.unwrap();
        let body = peer.read_body(&head);
        assert!(body.is_err(), "a whole body: {body:?}");
        Ok(())
    });
    let mut client = rig.client();
    client.send(format!("POST / HTTP/1.1\r\nHost: site\r\n{head}\r\n\r\n"));
    rig.server.wait_until(|counts| counts.requests == 1);
    client.send(body);
    then(&mut client);
    let response = client.response();
    assert_refusal(&response, status, line);
    assert_eq!(response.field("Connection"), Some("close"));
    client.expect_eof();
    rig.wait_settled();
    assert_eq!(rig.closes(), [("exchange_failed".to_owned(), 1)]);
    rig.server.wait_until(|counts| counts.open == 0);
    drop(client);
    assert_eq!(rig.finish().responses, [0, 0, 1, 0]);
}

const CHUNKED: &str = "Transfer-Encoding: chunked";

#[test]
fn chunked_body_that_is_malformed_is_refused_and_never_ends_at_the_upstream() {
    for rest in [
        "xyz\r\n",
        "5\r\nhello0\r\n\r\n",
        "-1\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "10000000000000000\r\n",
    ] {
        let body = format!("3\r\nabc\r\n{rest}");
        body_is_refused(400, "malformed request", CHUNKED, &body, |_| ());
    }
}

#[test]
fn trailers_that_are_too_large_are_refused() {
    let body = format!("3\r\nabc\r\n0\r\nA: {}\r\n\r\n", "a".repeat(17 << 10));
    let line = "the trailers are too large";
    body_is_refused(431, line, CHUNKED, &body, |_| ());
}

#[test]
fn body_that_breaks_off_is_refused_and_never_ends_at_the_upstream() {
    for (head, body) in [
        ("Content-Length: 10", "hello"),
        (CHUNKED, "5\r\nhello\r\n"),
        (CHUNKED, "5\r\nhello\r\n0\r\n"),
    ] {
        body_is_refused(400, "malformed request", head, body, Client::fin);
    }
}

#[test]
fn connect_is_refused_and_costs_no_connection() {
    let rig = Rig::new(keep_alive_ok());
    let mut client = rig.client();
    client.send("CONNECT site:443 HTTP/1.1\r\nHost: site:443\r\n\r\n");
    let response = client.response();
    assert_eq!(
        (
            response.status(),
            response.text(),
            response.field("Connection")
        ),
        (501, "this gateway opens no tunnels\n", None)
    );
    assert_eq!(
        response.field("Proxy-Status"),
        Some("pinpool; error=http_request_denied")
    );
    assert_eq!(rig.server.counts().accepted, 0);
    assert_eq!(client.get("/").text(), "ok");
    assert_eq!(rig.finish().responses, [1, 0, 0, 1]);
}

#[test]
fn good_requests_before_a_bad_one_are_answered() {
    let rig = Rig::new(keep_alive_ok());
    let mut client = rig.client();
    client.send([&get("/"), &get("/"), "nonsense\r\n\r\n", &get("/")].concat());
    assert_eq!(client.response().text(), "ok");
    assert_eq!(client.response().text(), "ok");
    assert_refusal(&client.response(), 400, "malformed request");
    client.expect_eof();
    drop(client);
    assert_eq!(rig.server.counts().requests, 2);
    let totals = rig.finish();
    assert_eq!((totals.requests, totals.refused), (2, 1));
    assert_eq!(totals.responses, [2, 0, 0, 0]);
}

/// Each request gets this answer and keeps its connection, and never reaches the upstream.
fn all_are_answered(status: u16, line: &str, requests: &[String]) {
    let rig = Rig::new(keep_alive_ok());
    let mut client = rig.client();
    for request in requests {
        client.send(request);
        let response = client.response();
        assert_eq!(response.status(), status, "{request}");
        assert_refusal(&response, status, line);
        assert_eq!(response.field("Connection"), None);
    }
    assert_eq!(rig.server.counts().accepted, 0);
    assert_eq!(client.get("/").text(), "ok");
    let totals = rig.finish();
    assert_eq!(totals.responses, [1, 0, requests.len() as u64, 0]);
}

#[test]
fn target_of_another_scheme_is_refused() {
    all_are_answered(
        421,
        "this gateway serves http targets only",
        &["https://site/", "ftp://site/", "HTTPS://site"].map(get),
    );
}

#[test]
fn more_connection_options_than_anybody_needs_are_refused() {
    let head = |fields: &str| format!("GET / HTTP/1.1\r\nHost: site\r\n{fields}\r\n");
    all_are_answered(
        400,
        "too many connection options",
        &[
            head(&format!("Connection: {}\r\n", "q,".repeat(31_000))),
            head(&"Connection: a\r\n".repeat(65)),
        ],
    );
}

#[test]
fn hops_that_cannot_be_counted_are_refused() {
    let request =
        |value: &str| format!("OPTIONS / HTTP/1.1\r\nHost: site\r\nMax-Forwards: {value}\r\n\r\n");
    all_are_answered(
        400,
        "malformed Max-Forwards",
        &["many", "-1", "1, 2", ""].map(request),
    );
}
