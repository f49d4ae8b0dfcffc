//! Each path of the faulty origin as its bytes on the wire, and what it counts.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::time::{Duration, Instant, SystemTime};

use common::{Client, End, get, request};
use pinpool_examples::faulty::FaultyOrigin;
use test_support::{DEADLINE, eventually};

const TEN: &str = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
    a\r\n0123456789\r\n0\r\n\r\n";

/// The longest wait that the origin offers: nothing waits for its end.
const FOREVER: &str = "ms=600000";

fn start() -> FaultyOrigin {
    FaultyOrigin::start(7).unwrap()
}

/// All that comes in answer to `GET path`, and how the connection ends.
fn answer_to(origin: &FaultyOrigin, path: &str) -> (String, End) {
    let mut client = Client::connect(origin.addr());
    client.send(get(path));
    let (bytes, end) = client.rest();
    (String::from_utf8(bytes).unwrap(), end)
}

/// The answer up to each place at which it can be cut.
fn cuts() -> [(&'static str, &'static str, &'static str); 6] {
    let head = TEN.find("\r\n\r\n").unwrap() + 4;
    let cut = |answer: &'static str, end: &str| answer.split_at(answer.find(end).unwrap());
    let named = |name, (first, rest)| (name, first, rest);
    [
        named("before-head", TEN.split_at(0)),
        named("mid-head", TEN.split_at(head / 2)),
        named("after-head", cut(TEN, "01234")),
        named("mid-body", cut(TEN, "56789")),
        named("mid-chunk", cut(CHUNKED, "56789")),
        named("before-last-chunk", cut(CHUNKED, "0\r\n\r\n")),
    ]
}

#[test]
fn client_that_waits_for_100_gets_it() {
    let origin = start();
    let mut client = Client::connect(origin.addr());
    client.send("POST /status/500 HTTP/1.1\r\nHost: site\r\nExpect: 100-continue\r\n");
    client.send("Content-Length: 5\r\n\r\n");
    client.expect("HTTP/1.1 100 Continue\r\n\r\n");
    client.send("hello");
    assert_eq!(client.response().status(), 500);
}

#[test]
fn status_is_always_that_one() {
    let origin = start();
    let mut client = Client::connect(origin.addr());
    for status in [200, 204, 205, 304, 400, 429, 500, 599] {
        for _ in 0..2 {
            let response = client.get(&format!("/status/{status}"));
            assert_eq!(response.status(), status);
            assert_eq!(response.field("Retry-After"), None);
        }
    }
    assert_eq!(client.get("/status/400").text(), "400\n");
}

#[test]
fn retry_after_comes_in_seconds_as_a_date_and_unparsable() {
    let origin = start();
    let mut client = Client::connect(origin.addr());
    let response = client.get("/status/503?retry-after=120");
    assert_eq!(response.field("Retry-After"), Some("120"));
    let response = client.get("/status/503?retry-after=unparsable");
    assert_eq!(response.field("Retry-After"), Some("in a little while"));
    for (query, ahead) in [("retry-after=date", 1), ("retry-after=date&in=3600", 3600)] {
        let ahead = Duration::from_secs(ahead);
        let before = SystemTime::now();
        let response = client.get(&format!("/status/503?{query}"));
        let date = httpdate::parse_http_date(response.field("Retry-After").unwrap()).unwrap();
        assert!(date >= before + ahead, "{date:?}");
        assert!(
            date <= SystemTime::now() + ahead + Duration::from_secs(1),
            "{date:?}"
        );
    }
}

#[test]
fn flaky_fails_the_first_requests_with_a_key_whatever_their_connection() {
    let origin = start();
    for key in ["a", "b"] {
        for status in [500, 200, 200] {
            let mut client = Client::connect(origin.addr());
            assert_eq!(client.get(&format!("/flaky/{key}")).status(), status);
        }
    }
    let mut client = Client::connect(origin.addr());
    let path = "/flaky/c?fail=2&status=503&retry-after=0";
    for (status, retry_after) in [(503, Some("0")), (503, Some("0")), (200, None)] {
        let response = client.get(path);
        assert_eq!(response.status(), status);
        assert_eq!(response.field("Retry-After"), retry_after);
    }
    assert_eq!(origin.counts().requests_to("/flaky/KEY"), 9);
}

#[test]
fn limited_says_when_to_come_again() {
    let origin = start();
    let mut client = Client::connect(origin.addr());
    let refused = client.get("/limited/a");
    assert_eq!(
        (refused.status(), refused.field("Retry-After")),
        (429, Some("1"))
    );
    assert_eq!(client.get("/limited/a").status(), 200);
    let refused = client.get("/limited/b?retry-after=unparsable");
    assert_eq!(
        (refused.status(), refused.field("Retry-After")),
        (429, Some("in a little while"))
    );
    // The path is a part of the key.
    assert_eq!(client.get("/flaky/a").status(), 500);
}

#[test]
fn close_and_reset_leave_the_answer_where_it_is_cut() {
    let origin = start();
    for (place, first, _) in cuts() {
        let closed = answer_to(&origin, &format!("/close/{place}"));
        assert_eq!(closed, (first.to_owned(), End::Fin), "{place}");
        let reset = answer_to(&origin, &format!("/reset/{place}"));
        assert_eq!(reset, (first.to_owned(), End::Reset), "{place}");
    }
    assert_eq!(origin.counts().requests_to("/close/WHERE"), 6);
    assert_eq!(origin.counts().requests_to("/reset/WHERE"), 6);
}

#[test]
fn close_is_a_fin_however_large_the_request_was() {
    let origin = start();
    let mut client = Client::connect(origin.addr());
    let head = "POST /close/before-head HTTP/1.1\r\nHost: site\r\nContent-Length: 300000\r\n\r\n";
    client.send([head.as_bytes(), &[b'x'; 300_000]].concat());
    client.expect_eof();
}

#[test]
fn answer_to_head_is_never_cut_behind_its_head() {
    let origin = start();
    for (place, first, _) in cuts() {
        let mut client = Client::connect(origin.addr());
        client.send(request(&format!("HEAD /close/{place}")));
        let (bytes, end) = client.rest();
        let head = first.find("\r\n\r\n").map_or(first.len(), |end| end + 4);
        assert_eq!(
            (bytes, end),
            (first.as_bytes()[..head].to_vec(), End::Fin),
            "{place}"
        );
    }
}

#[test]
fn stall_stands_still_at_its_place_and_goes_on() {
    let origin = start();
    for (place, first, rest) in cuts() {
        let mut client = Client::connect(origin.addr());
        client.send(get(&format!("/stall/{place}?ms=1")));
        client.expect(first.to_owned() + rest);
        client.send(get(&format!("/stall/{place}?{FOREVER}")));
        client.expect(first);
        client.expect_silence();
        // Whoever gives up ends the stall.
        client.fin();
        client.expect_eof();
    }
    eventually(DEADLINE, || origin.counts().open == 0);
}

#[test]
fn kept_connection_is_closed_behind_its_answer() {
    let origin = start();
    assert_eq!(
        answer_to(&origin, "/close-after"),
        (TEN.to_owned(), End::Fin)
    );
    assert_eq!(
        answer_to(&origin, "/close-after?ms=1"),
        (TEN.to_owned(), End::Fin)
    );
    assert_eq!(
        answer_to(&origin, "/reset-after?ms=1"),
        (TEN.to_owned(), End::Reset)
    );
    let mut client = Client::connect(origin.addr());
    client.send(get(&format!("/close-after?{FOREVER}")));
    client.expect(TEN);
    client.expect_silence();
}

#[test]
fn stray_bytes_follow_an_answer() {
    let origin = start();
    let mut client = Client::connect(origin.addr());
    client.send(get("/stray?bytes=3&ms=1"));
    client.expect(TEN.to_owned() + "xxx");
    client.send(get("/stray"));
    client.expect(TEN.to_owned() + &"x".repeat(12));
    assert_eq!(client.get("/ok").status(), 200);
}

#[test]
fn drip_sends_a_byte_at_a_time() {
    let origin = start();
    let mut client = Client::connect(origin.addr());
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nxxxxxxxxxx";
    for (part, bytes) in [("head", answer.len() - 10), ("body", 10)] {
        let begin = Instant::now();
        client.send(get(&format!("/drip/{part}?ms=1")));
        client.expect(answer);
        // A pause before each byte, of which none can be too short.
        let least = Duration::from_millis(u64::try_from(bytes).unwrap());
        assert!(begin.elapsed() >= least, "{part}");
    }
    client.send(get(&format!("/drip/body?bytes=4096&{FOREVER}")));
    client.expect("HTTP/1.1 200 OK\r\nContent-Length: 4096\r\n\r\n");
    client.fin();
    client.expect_eof();
    let mut client = Client::connect(origin.addr());
    client.send(get(&format!("/drip/head?{FOREVER}")));
    client.fin();
    client.expect_eof();
}

#[test]
fn interim_responses_come_before_the_final_one() {
    let origin = start();
    let mut client = Client::connect(origin.addr());
    client.send(get("/interim/103"));
    client.expect("HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload; as=style\r\n\r\n");
    client.expect(TEN);
    for (path, line) in [
        ("/interim/100?count=3", "HTTP/1.1 100 Continue"),
        ("/interim/101", "HTTP/1.1 101 Switching Protocols"),
        ("/interim/199", "HTTP/1.1 199 "),
        ("/interim/100?count=10000", "HTTP/1.1 100 Continue"),
    ] {
        client.send(get(path));
        let count = path
            .split_once('=')
            .map_or(1, |(_, count)| count.parse().unwrap());
        client.expect(format!("{line}\r\n\r\n").repeat(count));
        client.expect(TEN);
    }
}

#[test]
fn early_answer_leaves_the_body_unread() {
    let origin = start();
    let head = "POST /early HTTP/1.1\r\nHost: site\r\nContent-Length: 1000000\r\n";
    let mut client = Client::connect(origin.addr());
    client.send(format!("{head}Expect: 100-continue\r\n\r\n"));
    let response = client.response();
    assert_eq!(
        (response.status(), response.field("Connection")),
        (413, Some("close"))
    );
    client.expect_eof();
    let mut client = Client::connect(origin.addr());
    client.send([format!("{head}\r\n").as_bytes(), &[b'x'; 20_000]].concat());
    assert_eq!(client.response().status(), 413);
    assert_eq!(client.rest(), (Vec::new(), End::Reset));
}

#[test]
fn bodiless_status_comes_with_a_length_and_with_bytes_behind_it() {
    let origin = start();
    let mut client = Client::connect(origin.addr());
    for (path, bytes) in [
        ("/bodiless/204", "HTTP/1.1 204 No Content\r\n\r\n"),
        (
            "/bodiless/304?length=100",
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\n\r\n",
        ),
        (
            "/bodiless/204?length=3&stray=3",
            "HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\nxxx",
        ),
    ] {
        client.send(get(path));
        client.expect(bytes);
    }
    assert_eq!(client.get("/ok").status(), 200);
}

#[test]
fn malformed_answers_are_what_their_names_say() {
    let origin = start();
    for (kind, has) in [
        ("status-line", "ICY 200 OK\r\n"),
        ("version", "HTTP/3.1 200"),
        ("status", "HTTP/1.1 2x0 "),
        ("field", "\r\nno colon\r\n"),
        ("fold", "\r\n A: folded\r\n"),
        ("length", "\r\nContent-Length: +3\r\n"),
        ("lengths", "Content-Length: 3\r\nContent-Length: 4\r\n"),
        (
            "both",
            "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        ),
        ("chunk-size", "\r\n\r\nzz\r\n"),
        ("chunk-overflow", "\r\n\r\nffffffffffffffff\r\n"),
    ] {
        let (bytes, end) = answer_to(&origin, &format!("/malformed?kind={kind}"));
        assert!(bytes.contains(has), "{kind}: {bytes}");
        assert_eq!(end, End::Fin, "{kind}");
    }
    assert!(answer_to(&origin, "/malformed").0.starts_with("ICY "));
    let (bytes, end) = answer_to(&origin, "/malformed?kind=endless");
    assert_eq!((bytes.find("\r\n\r\n"), end), (None, End::Fin));
    assert!(bytes.len() > 16 << 20, "{}", bytes.len());
}
