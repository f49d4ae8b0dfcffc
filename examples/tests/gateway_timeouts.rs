//! How long the gateway waits for its clients: for a request, for the rest of one, and for its
//! response to be taken.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::io::Write;
use std::thread;
use std::time::Duration;

use common::{Client, End, Response, Rig, Running, get};
use pinpool_examples::server::Timeouts;
use test_support::{Gate, OK, Peer, first_connections, keep_alive_ok, refused_address};

/// Passes soon, for a client that does nothing.
const SHORT: Duration = Duration::from_millis(100);

/// Does not pass for a client that does something, however busy the machine is.
const LONG: Duration = Duration::from_secs(1);

const NEVER: Duration = Duration::from_secs(24 * 3600);

/// The client is told that it was too slow, and that this was the last.
#[track_caller]
fn assert_too_slow(response: &Response, line: &str) {
    assert_eq!(
        (response.status(), response.text()),
        (408, &*format!("{line}\n"))
    );
    assert_eq!(
        response.field("Proxy-Status"),
        Some("pinpool; error=http_request_error")
    );
    assert_eq!(response.field("Connection"), Some("close"));
}

#[test]
fn client_that_never_asks_is_closed() {
    let timeouts = Timeouts {
        idle: SHORT,
        ..Timeouts::default()
    };
    let rig = Rig::patient("", timeouts, keep_alive_ok());
    rig.client().expect_eof();
    let totals = rig.finish();
    assert_eq!((totals.requests, totals.refused), (0, 0));
}

#[test]
fn head_that_takes_too_long_is_refused() {
    let timeouts = Timeouts {
        head: SHORT,
        ..Timeouts::default()
    };
    let rig = Rig::patient("", timeouts, keep_alive_ok());
    for begin in ["G", "GET / HTTP/1.1\r\nHost: si"] {
        let mut client = rig.client();
        client.send(begin);
        assert_too_slow(&client.response(), "the request head took too long");
        client.expect_eof();
    }
    // The time for a head begins with its first byte.
    let mut client = rig.client();
    client.send([get("/").as_bytes(), b"G"].concat());
    assert_eq!(client.response().text(), "ok");
    assert_too_slow(&client.response(), "the request head took too long");
    drop(client);
    let totals = rig.finish();
    assert_eq!((totals.requests, totals.refused), (1, 3));
}

/// Short for a client that pauses in its body.
fn short_for_bodies() -> Timeouts {
    Timeouts {
        body: SHORT,
        ..Timeouts::default()
    }
}

/// Heads with a part of a body.
const PAUSED: [&str; 4] = [
    "POST / HTTP/1.1\r\nHost: site\r\nContent-Length: 5\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: site\r\nContent-Length: 5\r\n\r\nhell",
    "POST / HTTP/1.1\r\nHost: site\r\nContent-Length: 1000000\r\n\r\nhello",
    "POST / HTTP/1.1\r\nHost: site\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
];

#[test]
fn client_that_pauses_in_its_body_is_told_so_and_frees_the_upstream_connection() {
    for request in PAUSED {
        let stalling = |peer: &mut Peer| {
            peer.read_request_head()?;
            peer.stall()
        };
        let script = first_connections(1, stalling, keep_alive_ok());
        let rig = Rig::patient("--max-connections 1", short_for_bodies(), script);
        let mut client = rig.client();
        client.send(request);
        assert_too_slow(&client.response(), "the request body took too long");
        // The client has not closed, and the upstream connection is gone.
        rig.server.wait_until(|counts| counts.open == 0);
        rig.wait_settled();
        assert_eq!(rig.closes(), [("abandoned".to_owned(), 1)]);
        client.expect_eof();
        drop(client);
        assert_eq!(rig.client().get("/").text(), "ok");
        assert_eq!(rig.finish().responses, [1, 0, 1, 0]);
    }
}

#[test]
fn client_that_is_asked_for_its_body_and_sends_none_is_told_so() {
    let rig = Rig::patient("", short_for_bodies(), |peer| peer.stall());
    let mut client = rig.client();
    client
        .send("POST / HTTP/1.1\r\nHost: site\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    client.expect("HTTP/1.1 100 Continue\r\n\r\n");
    assert_too_slow(&client.response(), "the request body took too long");
    drop(client);
    rig.finish();
}

#[test]
fn client_that_pauses_in_its_body_while_it_gets_its_response_sees_that_break_off() {
    for request in PAUSED {
        let rig = Rig::patient("", short_for_bodies(), |peer| {
            peer.read_request_head()?;
            peer.answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
            // What comes from the upstream does not give the client more time.
            while peer.send("5\r\nhello\r\n").is_ok() {
                peer.sleep(SHORT / 10)?;
            }
            Ok(())
        });
        let mut client = rig.client();
        client.send(request);
        assert_eq!(client.head().status(), 200);
        let (rest, end) = client.rest();
        assert!(!rest.ends_with(b"0\r\n\r\n"));
        assert_eq!(end, End::Fin);
        rig.server.wait_until(|counts| counts.open == 0);
        drop(client);
        assert_eq!(rig.finish().broken, 1);
    }
}

#[test]
fn client_whose_body_the_upstream_holds_back_does_not_pause() {
    let timeouts = Timeouts {
        body: LONG,
        ..Timeouts::default()
    };
    let gate = Gate::new();
    let gated = gate.clone();
    let late = move |peer: &mut Peer| {
        peer.wait_at(&gated)?;
        peer.read_request()?;
        peer.answer(OK)
    };
    let never = |peer: &mut Peer| peer.stall();
    let script = first_connections(1, late, never);
    let rig = Rig::patient("--response-head-timeout none", timeouts, script);
    // More than the kernel's buffers and the gateway's hold.
    let length = 64 << 20;
    let mut held = rig.client();
    let mut writer = held.writer();
    let sending = thread::spawn(move || {
        let head = format!("POST / HTTP/1.1\r\nHost: site\r\nContent-Length: {length}\r\n\r\n");
        writer.write_all(head.as_bytes())?;
        writer.write_all(&vec![0; length])
    });
    gate.wait_for_arrivals(1);
    // The limit passes for a request that began later.
    let mut client = rig.client();
    client.send(PAUSED[0]);
    assert_too_slow(&client.response(), "the request body took too long");
    held.expect_silence();
    gate.open();
    assert_eq!(held.response().text(), "ok");
    sending.join().unwrap().unwrap();
    rig.finish();
}

#[test]
fn client_that_takes_nothing_of_its_response_is_closed() {
    let timeouts = Timeouts {
        send: SHORT,
        ..Timeouts::default()
    };
    let rig = Rig::patient("", timeouts, |peer| {
        peer.read_request()?;
        peer.answer("HTTP/1.1 200 OK\r\n\r\n")?;
        while peer.send([b'x'; 64 << 10]).is_ok() {}
        Ok(())
    });
    let mut client = Client::connect_narrow(rig.gateway().address());
    client.send(get("/"));
    rig.server
        .wait_until(|counts| (counts.accepted, counts.open) == (1, 0));
    rig.wait_settled();
    assert_eq!(rig.closes(), [("abandoned".to_owned(), 1)]);
    assert_eq!(rig.finish().broken, 1);
}

#[test]
fn client_that_does_not_close_after_its_last_response_does_not_hold_up_the_stop() {
    let timeouts = Timeouts {
        linger: NEVER,
        linger_while_closing: SHORT,
        ..Timeouts::default()
    };
    let refused = refused_address();
    let gateway = Running::patient(&[refused.addr()], "--drain-timeout none", timeouts);
    let mut client = gateway.client();
    let head = "POST / HTTP/1.1\r\nHost: site\r\nContent-Length: 1000000\r\n\r\n";
    client.send([head.as_bytes(), &[0; 300_000]].concat());
    let response = client.response();
    assert_eq!(
        (response.status(), response.field("Connection")),
        (502, Some("close"))
    );
    client.expect_eof();
    // It returns.
    gateway.stop();
}
