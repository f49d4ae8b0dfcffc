//! Each path of the faulty origin as its bytes on the wire, and what it counts.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::time::{Duration, Instant, SystemTime};

use common::{Client, End, get, request};
use pinpool_examples::faulty::{FaultyOrigin, Settings};
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
fn index_lists_paths_that_work() {
    let origin = start();
    let mut client = Client::connect(origin.addr());
    let response = client.get("/");
    assert_eq!(response.status(), 200);
    let lines: Vec<_> = response.text().lines().collect();
    let url = format!("'http://{}/", origin.addr());
    let examples = lines.iter().filter_map(|line| line.split_once(&url));
    let examples: Vec<_> = examples
        .map(|(_, path)| path.trim_end_matches('\''))
        .collect();
    assert!(examples.len() >= 20, "{}", response.text());
    for path in examples {
        let mut client = Client::connect(origin.addr());
        client.send(get(&format!("/{path}")));
        eventually(DEADLINE, || origin.counts().unknown == 0);
    }
    eventually(DEADLINE, || origin.counts().requests.len() == 20);
    assert_eq!(origin.counts().unknown, 0);
}

#[test]
fn healthy_paths_keep_the_connection() {
    let origin = start();
    let mut client = Client::connect(origin.addr());
    assert_eq!(client.get("/ok").text(), "xxxxxxxxxx");
    assert_eq!(client.get("/bytes/0").text(), "");
    assert!(client.get("/bytes/300000").body == vec![b'x'; 300_000]);
    client.send("POST /echo HTTP/1.1\r\nHost: site\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.response().text(), "hello");
    client.send("POST /echo HTTP/1.1\r\nHost: site\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send("2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n");
    assert_eq!(client.response().text(), "hello");
    client.send("HEAD /bytes/5 HTTP/1.1\r\nHost: site\r\n\r\n");
    assert_eq!(client.head().field("Content-Length"), Some("5"));
    // Two at once are answered one after the other.
    client.send(get("/bytes/1") + &get("/bytes/2"));
    assert_eq!(
        (client.response().text(), client.response().text()),
        ("x", "xx")
    );
    assert_eq!(origin.counts().connections, 1);
    client.send("GET /ok HTTP/1.1\r\nHost: site\r\nConnection: close\r\n\r\n");
    assert_eq!(client.response().field("Connection"), Some("close"));
    client.expect_eof();
}

#[test]
fn echo_refuses_what_it_would_have_to_keep() {
    let origin = start();
    let mut client = Client::connect(origin.addr());
    for (length, status) in [(1 << 20, 200), ((1 << 20) + 1, 413)] {
        let head = format!("POST /echo HTTP/1.1\r\nHost: site\r\nContent-Length: {length}\r\n\r\n");
        client.send([head.as_bytes(), &vec![b'x'; length]].concat());
        assert_eq!(client.response().status(), status, "{length}");
    }
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
fn forgotten_key_fails_anew() {
    let origin = start();
    let mut client = Client::connect(origin.addr());
    let mut get = |key: &str| client.get(&format!("/flaky/{key}")).status();
    assert_eq!([get("old"), get("old")], [500, 200]);
    for key in 0..1023 {
        assert_eq!(get(&key.to_string()), 500);
    }
    assert_eq!(get("old"), 200, "as many keys as are remembered");
    assert_eq!([get("new"), get("old")], [500, 500]);
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
    client.send([format!("{head}\r\n").as_bytes(), &[b'x'; 50_000]].concat());
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

/// What the first requests of a mix get, each on a connection of its own.
fn mixed(origin: &FaultyOrigin, query: &str) -> Vec<(String, End)> {
    let path = format!("/mix?ms=0&{query}");
    let ask = |_| {
        let mut client = Client::connect(origin.addr());
        client.send(get(&path));
        // An answer that keeps the connection has no end by itself.
        client.fin();
        let (bytes, end) = client.rest();
        let mut text = String::from_utf8(bytes).unwrap();
        if let Some(date) = text.find("GMT") {
            text.replace_range(date - 26..date, "");
        }
        (text, end)
    };
    (0..60).map(ask).collect()
}

#[test]
fn mix_is_decided_by_the_seed_and_the_number_of_the_request() {
    let (origin, again) = (start(), start());
    let first = mixed(&origin, "");
    assert_eq!(mixed(&again, ""), first, "that of the origin");
    assert_eq!(mixed(&FaultyOrigin::start(8).unwrap(), "seed=7"), first);
    assert_ne!(mixed(&origin, ""), first, "later numbers");
    assert_ne!(mixed(&again, "seed=8"), first);
    assert_eq!(origin.counts().mix["healthy"], {
        let counts = origin.counts();
        counts.mix.values().sum::<u64>() - faults(&counts.mix)
    });
    let mut kinds: Vec<_> = first.iter().map(|(text, _)| text).collect();
    kinds.sort();
    kinds.dedup();
    assert!(kinds.len() > 5, "{kinds:?}");
}

fn faults(mix: &std::collections::BTreeMap<&'static str, u64>) -> u64 {
    let faults = mix.iter().filter(|(name, _)| **name != "healthy");
    faults.map(|(_, count)| count).sum()
}

#[test]
fn share_of_faults_in_the_mix_is_as_asked() {
    let origin = start();
    let mut client = Client::connect(origin.addr());
    for _ in 0..50 {
        assert_eq!(client.get("/mix?faults=0").text(), "xxxxxxxxxx");
    }
    mixed(&origin, "faults=100");
    let counts = origin.counts();
    assert_eq!((counts.mix["healthy"], faults(&counts.mix)), (50, 60));
}

#[test]
fn wrong_parameter_is_answered_with_what_was_expected() {
    let origin = start();
    let mut client = Client::connect(origin.addr());
    for (path, text) in [
        (
            "/stall/before-head?ms=600001",
            "ms=600001: expected a whole number from 0 to 600000",
        ),
        (
            "/stall/nowhere",
            "WHERE=nowhere: expected one of before-head, mid-head",
        ),
        (
            "/status/199",
            "CODE=199: expected a whole number from 200 to 599",
        ),
        ("/status/600", "CODE=600: expected"),
        (
            "/status/503?retry-after=soon",
            "from 0 to 86400, date, or unparsable",
        ),
        (
            "/status/503?retry-after=1&in=1",
            "in: goes with retry-after=date alone",
        ),
        ("/flaky/", "KEY: expected 1 to 64 characters"),
        ("/flaky/a?status=100", "status=100: expected"),
        (
            "/bytes/1073741825",
            "N=1073741825: expected a whole number from 0 to 1073741824",
        ),
        ("/drip/tail", "PART=tail: expected one of head, body"),
        (
            "/drip/body?bytes=4097",
            "bytes=4097: expected a whole number from 1 to 4096",
        ),
        (
            "/interim/200",
            "CODE=200: expected a whole number from 100 to 199",
        ),
        ("/interim/100?count=1000001", "count=1000001: expected"),
        ("/bodiless/200", "CODE=200: expected one of 204, 304"),
        (
            "/malformed?kind=good",
            "kind=good: expected one of status-line, version",
        ),
        (
            "/mix?faults=101",
            "faults=101: expected a whole number from 0 to 100",
        ),
        ("/mix?seed=-1", "seed=-1: expected"),
        ("/ok?ms=1", "ms: this path takes no parameters"),
        ("/close-after?m=1", "m: this path takes ms"),
        ("/stray?ms=1&ms=2", "ms is given more than once"),
    ] {
        let response = client.get(path);
        assert_eq!(response.status(), 400, "{path}");
        assert!(
            response.text().contains(text),
            "{path}: {}",
            response.text()
        );
    }
    for path in ["/nothing", "/okay", "/close", "/index"] {
        assert_eq!(client.get(path).status(), 404, "{path}");
    }
    assert_eq!(origin.counts().unknown, 4);
}

#[test]
fn request_that_cannot_be_read_is_answered_and_ends_the_connection() {
    let origin = start();
    let long = get(&format!("/{}", "a".repeat(17 << 10)));
    for (bytes, status) in [("nonsense\r\n\r\n", 400), (&*long, 414)] {
        let mut client = Client::connect(origin.addr());
        client.send(bytes);
        assert_eq!(client.response().status(), status);
        client.expect_eof();
    }
    assert_eq!((origin.counts().malformed, origin.counts().total()), (2, 0));
}

#[test]
fn counts_are_told_as_json_and_in_process() {
    let origin = start();
    let mut client = Client::connect(origin.addr());
    for path in ["/ok", "/ok", "/status/500", "/nothing", "/mix?faults=0"] {
        client.get(path);
    }
    let response = client.get("/counts");
    assert_eq!(response.field("Content-Type"), Some("application/json"));
    let counts: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
    let expected = serde_json::json!({
        "connections": 1, "open": 1, "refused": 0, "unknown": 1, "malformed": 0,
        "requests": {"/counts": 1, "/ok": 2, "/status/CODE": 1, "/mix": 1},
        "mix": {"healthy": 1},
    });
    assert_eq!(counts, expected);
    assert_eq!(serde_json::to_value(origin.counts()).unwrap(), expected);
    assert_eq!(origin.counts().total(), 6);
    drop(client);
    eventually(DEADLINE, || origin.counts().open == 0);
}

#[test]
fn connections_beyond_the_bound_are_closed_and_make_no_one_else_wait() {
    let settings = Settings {
        listen: "127.0.0.1:0".parse().unwrap(),
        max_connections: 2,
        ..Settings::default()
    };
    let origin = FaultyOrigin::with(&settings).unwrap();
    let mut clients = [
        Client::connect(origin.addr()),
        Client::connect(origin.addr()),
    ];
    for client in &mut clients {
        assert_eq!(client.get("/ok").status(), 200);
    }
    Client::connect(origin.addr()).expect_eof();
    assert_eq!((origin.counts().refused, origin.counts().open), (1, 2));
    let [first, mut second] = clients;
    drop(first);
    eventually(DEADLINE, || origin.counts().open == 1);
    assert_eq!(Client::connect(origin.addr()).get("/ok").status(), 200);
    assert_eq!(second.get("/ok").status(), 200);
}

#[test]
fn dropped_origin_ends_its_connections_and_gives_its_port_back() {
    let origin = start();
    let waiting = [
        format!("/stall/before-head?{FOREVER}"),
        format!("/drip/body?{FOREVER}"),
        format!("/close-after?{FOREVER}"),
        "/bytes/1073741824".to_owned(),
    ];
    let mut clients = waiting.map(|path| {
        let mut client = Client::connect(origin.addr());
        client.send(get(&path));
        client
    });
    eventually(DEADLINE, || origin.counts().total() == 4);
    let address = origin.addr();
    drop(origin);
    for client in &mut clients {
        client.rest();
    }
    let settings = Settings {
        listen: address,
        ..Settings::default()
    };
    let again = FaultyOrigin::with(&settings).unwrap();
    assert_eq!(Client::connect(address).get("/ok").status(), 200);
    let error = FaultyOrigin::with(&settings).unwrap_err().to_string();
    assert_eq!(error, format!("{address} is in use by another program"));
    drop(again);
}
