//! The origin's paths, and the manners of the server beneath it.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::net::{SocketAddr, TcpStream};

use common::{Client, chunked, get, pattern, request};
use pinpool_examples::origin;
use pinpool_examples::server::Service;

fn start() -> (Service, Client) {
    let service = origin::start(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let client = Client::connect(service.address());
    (service, client)
}

#[test]
fn bytes_come_with_their_length_and_chunks_without() {
    let (origin, mut client) = start();
    for length in [0, 1, 16 << 10, (16 << 10) + 1, 3 << 20] {
        let response = client.get(&format!("/bytes/{length}"));
        assert_eq!(response.status(), 200);
        assert_eq!(response.field("Content-Length"), Some(&*length.to_string()));
        assert!(response.body == vec![b'x'; length], "{length}");

        let response = client.get(&format!("/chunked/{length}?query"));
        assert_eq!(response.status(), 200);
        assert_eq!(response.field("Transfer-Encoding"), Some("chunked"));
        assert!(response.body == vec![b'x'; length], "{length}");
    }
    origin.stop();
    client.expect_eof();
}

#[test]
fn old_client_gets_bytes_until_the_close_instead_of_chunks() {
    let (origin, mut client) = start();
    client.send("GET /chunked/100000 HTTP/1.0\r\n\r\n");
    let response = client.response();
    assert_eq!(response.field("Transfer-Encoding"), None);
    assert_eq!(response.field("Connection"), Some("close"));
    assert_eq!(response.body, vec![b'x'; 100_000]);
    origin.stop();
}

#[test]
fn echo_gives_the_body_back_as_it_was_framed() {
    let (origin, mut client) = start();
    let body = pattern(200_000);
    let head = format!(
        "POST /echo HTTP/1.1\r\nHost: site\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    client.send([head.as_bytes(), &body].concat());
    let response = client.response();
    assert_eq!(response.field("Content-Length"), Some("200000"));
    assert!(response.body == body);

    let head = "PUT /echo HTTP/1.1\r\nHost: site\r\nTransfer-Encoding: chunked\r\n\r\n";
    let pieces = chunked(&body, 999, "X-Sum: 1\r\nX-More: 2\r\n");
    client.send([head.as_bytes(), &pieces].concat());
    let response = client.response();
    assert_eq!(response.field("Transfer-Encoding"), Some("chunked"));
    assert!(response.body == body);
    assert_eq!(response.trailers, ["X-Sum: 1", "X-More: 2"]);

    let response = client.get("/echo");
    assert_eq!(
        (response.field("Content-Length"), response.text()),
        (Some("0"), "")
    );
    origin.stop();
}

#[test]
fn count_says_how_many_bytes_the_body_had() {
    let (origin, mut client) = start();
    let body = pattern(300_000);
    let head = "POST /count HTTP/1.1\r\nHost: site\r\n";
    client.send(
        [
            format!("{head}Content-Length: 300000\r\n\r\n").as_bytes(),
            &body,
        ]
        .concat(),
    );
    assert_eq!(client.response().text(), "300000\n");
    let head = format!("{head}Transfer-Encoding: chunked\r\n\r\n");
    client.send([head.as_bytes(), &chunked(&body, 4096, "")].concat());
    assert_eq!(client.response().text(), "300000\n");
    assert_eq!(client.get("/count").text(), "0\n");
    origin.stop();
}

#[test]
fn status_answers_with_that_status() {
    let (origin, mut client) = start();
    for status in [200, 201, 301, 404, 418, 500, 503, 999] {
        let response = client.get(&format!("/status/{status}"));
        assert_eq!(
            (response.status(), response.text()),
            (status, &*format!("{status}\n"))
        );
    }
    for status in [204, 205, 304] {
        let response = client.get(&format!("/status/{status}"));
        assert_eq!((response.status(), response.text()), (status, ""));
    }
    for none in ["100", "199", "1000", "x", ""] {
        assert_eq!(
            client.get(&format!("/status/{none}")).status(),
            404,
            "{none}"
        );
    }
    origin.stop();
}

#[test]
fn head_is_answered_without_a_body() {
    let (origin, mut client) = start();
    for (path, field, value) in [
        ("/", "Content-Length", "75"),
        ("/bytes/1048576", "Content-Length", "1048576"),
        ("/chunked/1048576", "Transfer-Encoding", "chunked"),
        ("/count", "Content-Length", "2"),
        ("/nothing", "Content-Length", "4"),
    ] {
        client.send(request(&format!("HEAD {path}")));
        assert_eq!(client.head().field(field), Some(value), "{path}");
    }
    client.send("HEAD /echo HTTP/1.1\r\nHost: site\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.head().field("Content-Length"), Some("5"));
    assert_eq!(client.get("/").text().len(), 75);
    origin.stop();
}

#[test]
fn unknown_path_is_not_found() {
    let (origin, mut client) = start();
    for path in [
        "/nothing",
        "/bytes",
        "/bytes/",
        "/bytes/-1",
        "/bytes/1x",
        "/chunked/x",
    ] {
        let response = client.get(path);
        assert_eq!(
            (response.status(), response.text()),
            (404, "404\n"),
            "{path}"
        );
    }
    client.send("OPTIONS * HTTP/1.1\r\nHost: site\r\n\r\n");
    assert_eq!(client.response().status(), 200);
    client.send("CONNECT site:80 HTTP/1.1\r\nHost: site\r\n\r\n");
    assert_eq!(client.response().status(), 404);
    origin.stop();
}

#[test]
fn client_that_waits_for_100_gets_it_where_its_body_is_read() {
    let (origin, mut client) = start();
    let expecting = |path: &str, framing: &str| {
        format!("POST {path} HTTP/1.1\r\nHost: site\r\nExpect: 100-continue\r\n{framing}\r\n\r\n")
    };
    for path in ["/echo", "/count"] {
        client.send(expecting(path, "Content-Length: 5"));
        client.expect("HTTP/1.1 100 Continue\r\n\r\n");
        client.send("hello");
        let expected = if path == "/echo" { "hello" } else { "5\n" };
        assert_eq!(client.response().text(), expected);
        client.send(expecting(path, "Transfer-Encoding: chunked"));
        client.expect("HTTP/1.1 100 Continue\r\n\r\n");
        client.send(chunked(b"hello", 2, ""));
        assert_eq!(client.response().text(), expected);
    }
    client.send(expecting("/status/403", "Content-Length: 5"));
    // A final answer, and no 100 before or behind it.
    assert_eq!(client.response().text(), "403\n");
    client.expect_eof();
    drop(client);
    origin.stop();
}

#[test]
fn small_body_that_nobody_reads_costs_no_connection() {
    let (origin, mut client) = start();
    for _ in 0..3 {
        client.send("POST / HTTP/1.1\r\nHost: site\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!(client.response().status(), 200);
    }
    assert_eq!(client.get("/status/200").text(), "200\n");
    origin.stop();
}

#[test]
fn bad_request_is_answered_and_ends_the_connection() {
    let (origin, _) = start();
    for (bytes, status) in [
        ("nonsense\r\n\r\n".to_owned(), 400),
        (get(&format!("/{}", "a".repeat(17 << 10))), 414),
        (
            format!(
                "GET / HTTP/1.1\r\nHost: site\r\n{}\r\n",
                "A: b\r\n".repeat(200)
            ),
            431,
        ),
        ("GET / HTTP/3.0\r\nHost: site\r\n\r\n".to_owned(), 505),
    ] {
        let mut client = Client::connect(origin.address());
        client.send(bytes);
        let response = client.response();
        assert_eq!(
            (response.status(), response.text()),
            (status, &*format!("{status}\n"))
        );
        client.expect_eof();
    }
    origin.stop();
}

#[test]
fn response_that_nobody_reads_does_not_hold_up_the_stop() {
    let (origin, mut client) = start();
    client.send(get("/bytes/100000000000"));
    assert_eq!(client.head().status(), 200);
    let address = origin.address();
    origin.stop();
    TcpStream::connect(address).unwrap_err();
}
