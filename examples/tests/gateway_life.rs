//! The gateway from its start, which may be refused, to its stop, which loses no answer; and how
//! it spreads requests over upstreams.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use common::{End, Rig, Running, get, settings};
use pinpool_examples::gateway::{Gateway, GatewayError};
use pinpool_examples::server::Timeouts;
use test_support::{
    DEADLINE, Gate, OK, Server, Then, eventually, keep_alive_ok, keep_alive_tagged,
    refused_address, respond_then, respond_then_at,
};

#[test]
fn requests_go_round_the_upstreams() {
    let servers = ["a", "b"].map(|name| {
        Server::script(move |peer| {
            while peer.read_request()?.is_some() {
                peer.answer(format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{name}"
                ))?;
            }
            Ok(())
        })
    });
    let gateway = Running::before(&[servers[0].addr(), servers[1].addr()], "");
    let mut client = gateway.client();
    let served: String = (0..6).map(|_| client.get("/").text().to_owned()).collect();
    assert_eq!(served, "ababab");
    gateway.wait_settled();
    let stats = gateway.stats();
    let destinations = stats["cores"][0]["destinations"].as_array().unwrap();
    for server in &servers {
        let key = format!("http://{}", server.addr());
        let destination = destinations.iter().find(|d| d["key"] == *key).unwrap();
        assert_eq!(
            (&destination["idle"], &destination["acquires"]["reused"]),
            (&1.into(), &2.into())
        );
        assert_eq!((server.counts().accepted, server.counts().requests), (1, 3));
    }
    gateway.finish();
    servers.into_iter().for_each(Server::finish);
}

#[test]
fn upstream_that_is_down_takes_nothing_from_the_other() {
    let (server, refused) = (Server::script(keep_alive_ok()), refused_address());
    let gateway = Running::before(&[refused.addr(), server.addr()], "--retries 0");
    let mut client = gateway.client();
    for status in [502, 200, 502, 200] {
        assert_eq!(client.get("/").status(), status);
    }
    gateway.finish();
    server.finish();
}

/// Stops it on a thread of its own, and returns once it takes no more clients.
fn begin_stop(gateway: Running) -> thread::JoinHandle<pinpool_examples::gateway::Totals> {
    let address = gateway.gateway().address();
    let stopping = thread::spawn(move || gateway.stop());
    eventually(DEADLINE, || refuses(address));
    stopping
}

fn refuses(address: SocketAddr) -> bool {
    let connected = TcpStream::connect(address);
    connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

#[test]
fn stop_lets_exchanges_in_flight_end_and_closes_idle_clients() {
    let gate = Gate::new();
    let gated = gate.clone();
    let rig = Rig::new(move |peer| {
        while let Some(request) = peer.read_request()? {
            if request.line().contains("/slow") {
                peer.wait_at(&gated)?;
            }
            peer.answer(OK)?;
        }
        Ok(())
    });
    let (mut idle, mut silent, mut busy) = (rig.client(), rig.client(), rig.client());
    assert_eq!(idle.get("/").text(), "ok");
    busy.send([get("/slow"), get("/never")].concat());
    gate.wait_for_arrivals(1);
    let (gateway, server) = rig.split();
    let stopping = begin_stop(gateway);
    idle.expect_eof();
    silent.expect_eof();
    busy.expect_silence();
    assert!(!stopping.is_finished(), "an exchange is in flight");
    gate.open();
    let response = busy.response();
    assert_eq!(
        (response.text(), response.field("Connection")),
        ("ok", Some("close"))
    );
    busy.expect_eof();
    drop(busy);
    let totals = stopping.join().unwrap();
    assert_eq!((totals.requests, totals.responses), (2, [2, 0, 0, 0]));
    assert_eq!((totals.broken, totals.pools.opened), (0, 1));
    assert_eq!(totals.pools.live(), 0);
    assert_eq!(
        totals.to_string(),
        "2 requests: 2 2xx, 0 3xx, 0 4xx, 0 5xx, 0 broken off; \
         0 refused; 1 upstream connections, reused 1 times"
    );
    server.wait_until(|counts| counts.open == 0 && counts.requests == 2);
    server.finish();
}

#[test]
fn request_that_is_on_its_way_when_the_stop_begins_is_answered() {
    let timeouts = Timeouts {
        last_request: DEADLINE,
        ..Timeouts::default()
    };
    let rig = Rig::patient("", timeouts, keep_alive_ok());
    let mut client = rig.client();
    assert_eq!(client.get("/").text(), "ok");
    let (gateway, server) = rig.split();
    let stopping = begin_stop(gateway);
    let response = client.get("/");
    assert_eq!(
        (response.text(), response.field("Connection")),
        ("ok", Some("close"))
    );
    client.expect_eof();
    assert_eq!(stopping.join().unwrap().responses, [2, 0, 0, 0]);
    server.finish();
}

#[test]
fn stop_lets_a_body_in_flight_come_to_its_end() {
    let gate = Gate::new();
    let gated = gate.clone();
    let rig = Rig::new(move |peer| {
        peer.read_request()?;
        peer.answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")?;
        peer.wait_at(&gated)?;
        peer.send("6\r\n world\r\n0\r\n\r\n")
    });
    let mut client = rig.client();
    client.send(get("/"));
    assert_eq!(client.head().status(), 200);
    client.expect("5\r\nhello\r\n");
    let (gateway, server) = rig.split();
    let stopping = begin_stop(gateway);
    gate.open();
    client.expect("6\r\n world\r\n0\r\n\r\n");
    client.expect_eof();
    assert_eq!(stopping.join().unwrap().responses, [1, 0, 0, 0]);
    server.finish();
}

#[test]
fn stop_does_not_wait_for_an_exchange_that_does_not_end() {
    for then in [Then::StallBeforeHead, Then::StallMidBody] {
        let rig = Rig::with(
            "--drain-timeout 200ms --response-head-timeout none",
            respond_then(0, then),
        );
        let mut client = rig.client();
        client.send(get("/"));
        rig.server.wait_until(|counts| counts.requests == 1);
        if then == Then::StallMidBody {
            assert_eq!(client.head().status(), 200);
            client.expect("01234");
        }
        let (gateway, server) = rig.split();
        let totals = gateway.stop();
        assert_eq!((totals.requests, totals.pools.live()), (1, 0));
        let (rest, end) = client.rest();
        assert_eq!(
            (String::from_utf8_lossy(&rest).as_ref(), end),
            ("", End::Fin)
        );
        server.wait_until(|counts| counts.open == 0);
        server.finish();
    }
}

#[test]
fn old_client_that_the_stop_cuts_off_sees_a_reset() {
    let rig = Rig::with("--drain-timeout 200ms", |peer| {
        peer.read_request()?;
        peer.answer("HTTP/1.1 200 OK\r\n\r\nhello")?;
        peer.stall()
    });
    let mut client = rig.client();
    client.send("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(client.head().status(), 200);
    client.expect("hello");
    let (gateway, server) = rig.split();
    gateway.stop();
    assert_eq!(client.rest(), (Vec::new(), End::Reset));
    server.finish();
}

#[test]
fn stop_counts_what_was_done() {
    let rig = Rig::new(|peer| {
        while let Some(request) = peer.read_request()? {
            let line = request.line();
            let status = line.split(['/', ' ']).nth(2).unwrap_or_default();
            peer.answer(format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n"))?;
        }
        Ok(())
    });
    let mut client = rig.client();
    for status in [200, 201, 301, 404, 404, 500, 503, 999] {
        assert_eq!(client.get(&format!("/{status}")).status(), status);
    }
    let totals = rig.finish();
    assert_eq!((totals.requests, totals.responses), (8, [2, 1, 2, 3]));
}

#[test]
fn stopped_gateway_can_be_started_again_where_it_was() {
    let server = Server::script(keep_alive_tagged());
    let first = Running::before(&[server.addr()], "");
    let (listen, admin) = (first.gateway().address(), first.gateway().admin_address());
    let mut client = first.client();
    assert_eq!(client.get("/").text(), "R-1-1");
    first.finish();
    assert!(refuses(listen) && refuses(admin));
    let flags = format!("--listen {listen} --admin {admin}");
    let second = Running::before(&[server.addr()], &flags);
    assert_eq!(second.client().get("/").text(), "R-2-1");
    second.finish();
    server.finish();
}

fn start_error(flags: &str) -> GatewayError {
    match Gateway::start(&settings(flags)) {
        Ok(gateway) => panic!("it started: {}", gateway.stop()),
        Err(error) => error,
    }
}

#[test]
fn port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let expected = format!("{address} is in use by another program");
    assert_eq!(
        start_error(&format!("--listen {address}")).to_string(),
        expected
    );
    assert_eq!(
        start_error(&format!("--admin {address}")).to_string(),
        expected
    );
}

#[test]
fn ports_of_another_gateway_are_in_use() {
    let rig = Rig::new(keep_alive_ok());
    let (listen, admin) = (rig.gateway().address(), rig.gateway().admin_address());
    for (flag, address) in [("listen", listen), ("admin", admin)] {
        let error = start_error(&format!("--{flag} {address}"));
        let expected = format!("{address} is in use by another program");
        assert_eq!(error.to_string(), expected);
    }
    assert_eq!(rig.client().get("/").text(), "ok");
    rig.finish();
}

#[test]
fn start_that_fails_leaves_nothing_running() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let admin = taken.local_addr().unwrap();
    start_error(&format!("--listen {free} --admin {admin}"));
    assert!(refuses(free));
    // A listener that is still there would refuse this one.
    TcpListener::bind(free).unwrap();
}

#[test]
fn address_of_somebody_else_is_named() {
    // TEST-NET-1 belongs to no machine.
    let error = start_error("--listen 192.0.2.1:0").to_string();
    assert!(
        error.starts_with("192.0.2.1:0 cannot be listened on: "),
        "{error}"
    );
    let error = start_error("--admin 192.0.2.1:0").to_string();
    assert!(
        error.starts_with("192.0.2.1:0 cannot be listened on: "),
        "{error}"
    );
}

#[test]
fn more_cores_than_there_are_is_an_error_that_says_how_many_there_are() {
    let available = thread::available_parallelism().unwrap();
    let error = start_error("--cores 60000").to_string();
    assert_eq!(
        error,
        format!("--cores 60000: this process may run on {available}")
    );
}

#[test]
fn clients_that_come_while_it_stops_are_refused_and_those_in_flight_are_served() {
    let gate = Gate::new();
    let rig = Rig::new(respond_then_at(0, &gate, Then::ConnectionClose));
    let mut clients: Vec<_> = (0..20).map(|_| rig.client()).collect();
    clients.iter_mut().for_each(|client| client.send(get("/")));
    gate.wait_for_arrivals(20);
    let (gateway, server) = rig.split();
    let stopping = begin_stop(gateway);
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response().text(), "ok");
        client.expect_eof();
    }
    assert_eq!(stopping.join().unwrap().responses, [20, 0, 0, 0]);
    server.finish();
}
