//! What the faulty origin is beside its faults: its healthy paths, its mix, its counts and bounds.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::collections::BTreeMap;

use common::{Client, End, get};
use pinpool_examples::faulty::{FaultyOrigin, Settings};
use test_support::{DEADLINE, eventually};

/// The longest wait that the origin offers: nothing waits for its end.
const FOREVER: &str = "ms=600000";

fn start() -> FaultyOrigin {
    FaultyOrigin::start(7).unwrap()
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
    let mut clients = Vec::new();
    for path in examples {
        let mut client = Client::connect(origin.addr());
        client.send(get(&format!("/{path}")));
        clients.push(client);
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

/// What the first requests of a mix get, each on a connection of its own.
fn mixed(origin: &FaultyOrigin, query: &str) -> Vec<(String, End)> {
    let path = format!("/mix?ms=0&{query}");
    let ask = |_| {
        let mut client = Client::connect(origin.addr());
        // The last request, as an answer that keeps the connection has no end by itself.
        let last = format!("GET {path} HTTP/1.1\r\nHost: site\r\nConnection: close\r\n\r\n");
        client.send(last);
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
    let mut kinds: Vec<_> = first.iter().map(|(text, _)| text).collect();
    kinds.sort();
    kinds.dedup();
    assert!(kinds.len() > 5, "{kinds:?}");
}

fn faults(mix: &BTreeMap<&'static str, u64>) -> u64 {
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

#[test]
fn client_that_resets_ends_its_stall_however_much_it_has_sent_ahead() {
    let origin = start();
    let mut client = Client::connect(origin.addr());
    client.send(get(&format!("/stall/before-head?{FOREVER}")));
    client.send(get("/ok").repeat(1000));
    eventually(DEADLINE, || origin.counts().total() == 1);
    client.reset();
    eventually(DEADLINE, || origin.counts().open == 0);
    assert_eq!(origin.counts().total(), 1);
}

#[test]
fn client_that_never_closes_is_closed_behind_its_last_answer() {
    let origin = start();
    let mut client = Client::connect(origin.addr());
    client.send("GET /ok HTTP/1.1\r\nHost: site\r\nConnection: close\r\n\r\n");
    assert_eq!(client.response().status(), 200);
    eventually(DEADLINE, || origin.counts().open == 0);
}
