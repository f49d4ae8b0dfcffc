//! What becomes of the two connections of an exchange: kept, reused, closed, and in which order
//! requests are served on them.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::io::ErrorKind;
use std::net::TcpStream;

use common::{Rig, Running, get};
use test_support::{
    Gate, OK, Then, answer_together, first_connections, keep_alive_ok, keep_alive_tagged,
    respond_then, respond_then_at,
};

#[test]
fn requests_of_one_client_connection_share_one_upstream_connection() {
    let rig = Rig::new(keep_alive_tagged());
    let mut client = rig.client();
    for n in 1..=50 {
        assert_eq!(client.get("/").text(), format!("R-1-{n}"));
    }
    rig.wait_settled();
    let stats = rig.stats();
    let total = &stats["total"];
    assert_eq!(
        total["acquires"],
        serde_json::json!({"fresh": 1, "reused": 49, "queued": 0})
    );
    assert_eq!((&total["idle"], rig.closes()), (&1.into(), Vec::new()));
    let counts = rig.server.counts();
    assert_eq!((counts.accepted, counts.requests), (1, 50));
    let totals = rig.finish();
    assert_eq!((totals.requests, totals.responses), (50, [50, 0, 0, 0]));
    client.expect_eof();
}

#[test]
fn upstream_connection_outlives_the_client_that_it_was_made_for() {
    let rig = Rig::new(keep_alive_tagged());
    for n in 1..=3 {
        assert_eq!(rig.client().get("/").text(), format!("R-1-{n}"));
    }
    assert_eq!(rig.server.counts().accepted, 1);
    rig.finish();
}

#[test]
fn clients_side_by_side_are_served_side_by_side() {
    let rig = Rig::new(answer_together(5));
    let mut clients: Vec<_> = (0..5).map(|_| rig.client()).collect();
    clients.iter_mut().for_each(|client| client.send(get("/")));
    for client in &mut clients {
        assert_eq!(client.response().text(), "ok");
    }
    rig.wait_for("idle", 5);
    assert_eq!(rig.server.counts().accepted, 5);
    rig.finish();
}

#[test]
fn requests_beyond_the_cap_wait_for_a_connection_and_are_all_served() {
    let gate = Gate::new();
    let gated = gate.clone();
    let rig = Rig::with("--max-connections 2", move |peer| {
        while peer.read_request()?.is_some() {
            peer.wait_at(&gated)?;
            peer.answer(OK)?;
        }
        Ok(())
    });
    let mut clients: Vec<_> = (0..6).map(|_| rig.client()).collect();
    clients.iter_mut().for_each(|client| client.send(get("/")));
    rig.wait_for("pending", 4);
    gate.wait_for_arrivals(2);
    assert_eq!(rig.count("acquired"), 2);
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response().text(), "ok");
    }
    rig.wait_settled();
    assert_eq!(rig.server.counts().highest_in_progress, 2);
    assert_eq!(rig.count("acquires/queued"), 4);
    rig.finish();
}

#[test]
fn pipelined_requests_are_answered_in_order_even_if_the_first_is_slow() {
    let gate = Gate::new();
    let gated = gate.clone();
    let rig = Rig::new(move |peer| {
        while let Some(request) = peer.read_request()? {
            let line = request.line();
            if line.contains("/slow") {
                peer.wait_at(&gated)?;
            }
            let length = line.len();
            peer.answer(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{line}"
            ))?;
        }
        Ok(())
    });
    let mut client = rig.client();
    let post = "POST /body HTTP/1.1\r\nHost: site\r\nContent-Length: 5\r\n\r\nhello";
    client.send([&get("/slow"), post, &get("/c"), &get("/d")].concat());
    gate.wait_for_arrivals(1);
    assert_eq!(
        rig.server.counts().requests,
        1,
        "the rest waits for its turn"
    );
    client.expect_silence();
    gate.open();
    for line in ["GET /slow", "POST /body", "GET /c", "GET /d"] {
        assert_eq!(client.response().text(), format!("{line} HTTP/1.1"));
    }
    assert_eq!(rig.server.counts().accepted, 1);
    rig.finish();
}

#[test]
fn many_pipelined_requests_are_all_answered() {
    let rig = Rig::new(keep_alive_tagged());
    let mut client = rig.client();
    // Several times what the gateway reads ahead.
    client.send(get("/").repeat(2000));
    for n in 1..=2000 {
        assert_eq!(client.response().text(), format!("R-1-{n}"));
    }
    assert_eq!(rig.finish().requests, 2000);
}

#[test]
fn request_that_comes_byte_by_byte_is_read() {
    let (rig, record) = Rig::recording(OK);
    let mut client = rig.client();
    let body = "POST /a HTTP/1.1\r\nHost: site\r\nTransfer-Encoding: chunked\r\n\r\n\
                2\r\nab\r\n3;x=y\r\ncde\r\n0\r\n\r\n";
    for byte in body.as_bytes() {
        client.send([*byte]);
    }
    assert_eq!(client.response().text(), "ok");
    assert_eq!(record.all()[0].body, b"abcde");
    rig.finish();
}

#[test]
fn old_client_is_served_once_unless_it_asks_to_be_kept() {
    let rig = Rig::new(keep_alive_ok());
    let mut client = rig.client();
    client.send("GET / HTTP/1.0\r\n\r\n");
    let response = client.response();
    assert_eq!(
        (response.text(), response.field("Connection")),
        ("ok", Some("close"))
    );
    client.expect_eof();

    let mut client = rig.client();
    for _ in 0..2 {
        client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        let response = client.response();
        assert_eq!(
            (response.text(), response.field("Connection")),
            ("ok", Some("keep-alive"))
        );
    }
    assert_eq!(rig.server.counts().accepted, 1);
    rig.finish();
    client.expect_eof();
}

#[test]
fn close_that_a_client_asks_for_ends_its_connection_and_no_other() {
    let (rig, record) = Rig::recording(OK);
    for _ in 0..2 {
        let mut client = rig.client();
        client.send("GET / HTTP/1.1\r\nHost: site\r\nConnection: close\r\n\r\n");
        let response = client.response();
        assert_eq!(
            (response.text(), response.field("Connection")),
            ("ok", Some("close"))
        );
        client.expect_eof();
    }
    assert_eq!(rig.server.counts().accepted, 1);
    for head in record.heads() {
        assert!(!head.to_lowercase().contains("connection:"), "{head}");
    }
    rig.finish();
}

#[test]
fn nothing_is_served_behind_a_request_that_asks_for_the_close() {
    let rig = Rig::new(keep_alive_tagged());
    let mut client = rig.client();
    let last = "GET / HTTP/1.1\r\nHost: site\r\nConnection: close\r\n\r\n";
    client.send([last, &get("/"), &get("/")].concat());
    assert_eq!(client.response().text(), "R-1-1");
    client.expect_eof();
    drop(client);
    assert_eq!(rig.server.counts().requests, 1);
    rig.finish();
}

#[test]
fn close_that_the_upstream_announces_ends_its_connection_and_not_the_clients() {
    // It leaves the close itself to the gateway.
    let rig = Rig::new(respond_then(0, Then::ConnectionClose));
    let mut client = rig.client();
    for _ in 0..3 {
        let response = client.get("/");
        assert_eq!(
            (response.text(), response.field("Connection")),
            ("ok", None)
        );
    }
    rig.wait_settled();
    assert_eq!(rig.closes(), [("connection_close".to_owned(), 3)]);
    rig.server
        .wait_until(|counts| counts.accepted == 3 && counts.open == 0);
    rig.finish();
}

#[test]
fn client_that_has_closed_its_sending_side_still_gets_its_answer() {
    let gate = Gate::new();
    let gated = gate.clone();
    let rig = Rig::new(move |peer| {
        peer.read_request()?;
        peer.wait_at(&gated)?;
        peer.answer(OK)
    });
    let mut client = rig.client();
    client.send(get("/"));
    client.fin();
    gate.wait_for_arrivals(1);
    gate.open();
    assert_eq!(client.response().text(), "ok");
    client.expect_eof();
    rig.finish();
}

#[test]
fn client_that_closes_without_a_request_is_not_answered() {
    let rig = Rig::new(keep_alive_ok());
    let mut client = rig.client();
    client.fin();
    client.expect_eof();
    rig.client().reset();
    assert_eq!(rig.client().get("/").text(), "ok");
    assert_eq!(rig.finish().requests, 1);
}

#[test]
fn upstream_that_closes_an_idle_connection_costs_no_request() {
    let gate = Gate::new();
    let rig = Rig::new(first_connections(
        1,
        respond_then_at(1, &gate, Then::Fin),
        keep_alive_ok(),
    ));
    let mut client = rig.client();
    assert_eq!(client.get("/").text(), "ok");
    gate.open();
    rig.wait_for("closes/peer_closed", 1);
    client.send("POST / HTTP/1.1\r\nHost: site\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!(client.response().text(), "ok");
    assert_eq!(rig.server.counts().accepted, 2);
    rig.finish();
}

#[test]
fn request_on_a_stale_connection_is_sent_once_more_if_that_is_safe() {
    let rig = Rig::new(first_connections(
        1,
        respond_then(1, Then::FinBeforeHead),
        keep_alive_ok(),
    ));
    let mut client = rig.client();
    assert_eq!(client.get("/").text(), "ok");
    assert_eq!(client.get("/").text(), "ok");
    let counts = rig.server.counts();
    assert_eq!((counts.accepted, counts.requests), (2, 3));
    rig.finish();
}

#[test]
fn request_on_a_stale_connection_is_not_repeated_if_it_may_have_been_carried_out() {
    for request in [
        "POST / HTTP/1.1\r\nHost: site\r\nContent-Length: 2\r\n\r\nhi",
        "POST / HTTP/1.1\r\nHost: site\r\n\r\n",
        // It might be repeated, but its body is gone once it was sent.
        "PUT / HTTP/1.1\r\nHost: site\r\nContent-Length: 2\r\n\r\nhi",
    ] {
        let rig = Rig::new(first_connections(
            1,
            respond_then(1, Then::FinBeforeHead),
            keep_alive_ok(),
        ));
        let mut client = rig.client();
        assert_eq!(client.get("/").text(), "ok");
        client.send(request);
        let response = client.response();
        assert_eq!(response.status(), 502);
        assert_eq!(
            response.field("Proxy-Status"),
            Some("pinpool; error=connection_terminated")
        );
        let counts = rig.server.counts();
        assert_eq!((counts.accepted, counts.requests), (1, 2));
        assert_eq!(client.get("/").text(), "ok");
        rig.finish();
    }
}

#[test]
fn idle_upstream_connections_close_after_their_time() {
    let rig = Rig::with("--idle-timeout 50ms", keep_alive_ok());
    let mut client = rig.client();
    assert_eq!(client.get("/").text(), "ok");
    rig.wait_for("closes/idle_timeout", 1);
    rig.server.wait_until(|counts| counts.open == 0);
    assert_eq!(client.get("/").text(), "ok");
    assert_eq!(rig.server.counts().accepted, 2);
    rig.finish();
}

#[test]
fn embedded_origin_serves_where_no_upstream_is_given() {
    let gateway = Running::start("");
    assert_eq!(gateway.gateway().upstreams().len(), 1);
    let mut client = gateway.client();
    let response = client.get("/bytes/1000");
    assert_eq!((response.status(), response.body), (200, vec![b'x'; 1000]));
    gateway.wait_for("idle", 1);
    let address = gateway.gateway().upstreams()[0].clone();
    gateway.finish();
    // It ends with the gateway.
    let refused = TcpStream::connect(address.strip_prefix("http://").unwrap());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}
