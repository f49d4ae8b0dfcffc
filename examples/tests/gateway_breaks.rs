//! Exchanges that break off in the middle: the client sees that its response is not whole, and an
//! upstream connection never outlives a client that is gone.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use common::{Client, End, Rig, get, pattern};
use test_support::{
    Gate, OK, Then, first_connections, keep_alive_ok, respond_then, respond_then_at,
};

const OLD_GET: &str = "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";

/// The upstream sends a head with this framing field and the begin of a body, and breaks off when
/// the client has read what `expected` says of it.
fn broken_off(request: &str, framing: &str, begin: &str, reset: bool, expected: &str) -> End {
    let gate = Gate::new();
    let gated = gate.clone();
    let answer = format!("HTTP/1.1 200 OK\r\n{framing}\r\n{begin}");
    let rig = Rig::new(move |peer| {
        peer.read_request()?;
        peer.answer(&answer)?;
        peer.wait_at(&gated)?;
        if reset { peer.reset() } else { peer.close() }
    });
    let mut client = rig.client();
    client.send(request);
    assert_eq!(client.head().status(), 200);
    client.expect(expected);
    gate.open();
    let (rest, end) = client.rest();
    assert_eq!(String::from_utf8_lossy(&rest), "");
    rig.wait_settled();
    let reason = if reset { "reset" } else { "exchange_failed" };
    assert_eq!(rig.closes(), [(reason.to_owned(), 1)]);
    let totals = rig.finish();
    assert_eq!((totals.broken, totals.responses), (1, [1, 0, 0, 0]));
    end
}

#[test]
fn response_that_breaks_off_mid_body_closes_the_client_connection_without_a_clean_end() {
    let (length, chunked) = ("Content-Length: 10\r\n", "Transfer-Encoding: chunked\r\n");
    for reset in [false, true] {
        // Five bytes of ten; and no chunk of size 0.
        assert_eq!(
            broken_off(&get("/"), length, "hello", reset, "hello"),
            End::Fin
        );
        for begin in [
            "5\r\nhello\r\n",
            "5\r\nhello",
            "a\r\nhello",
            "5\r\nhello\r\n0\r\nA: b\r\n",
        ] {
            let end = broken_off(&get("/"), chunked, begin, reset, "5\r\nhello\r\n");
            assert_eq!(end, End::Fin, "{begin}");
        }
    }
    // Without a framing of its own a FIN is its end, and only a reset is a break.
    let end = broken_off(&get("/"), "", "hello", true, "5\r\nhello\r\n");
    assert_eq!(end, End::Fin);
}

#[test]
fn old_client_whose_response_breaks_off_sees_a_reset() {
    let chunked = "Transfer-Encoding: chunked\r\n";
    for reset in [false, true] {
        let end = broken_off(OLD_GET, chunked, "5\r\nhello", reset, "hello");
        assert_eq!(end, End::Reset, "a FIN would be the end of the body");
        // Five bytes of ten are no whole body, whatever follows.
        let end = broken_off(OLD_GET, "Content-Length: 10\r\n", "hello", reset, "hello");
        assert_eq!(end, End::Fin);
    }
    assert_eq!(broken_off(OLD_GET, "", "hello", true, "hello"), End::Reset);
}

#[test]
fn response_whose_chunks_are_malformed_has_no_clean_end() {
    let rig = Rig::new(|peer| {
        peer.read_request()?;
        peer.answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nxyz\r\n")?;
        peer.stall()
    });
    let mut client = rig.client();
    client.send(get("/"));
    assert_eq!(client.head().status(), 200);
    let (rest, end) = client.rest();
    assert_eq!((&*rest, end), (&b"5\r\nhello\r\n"[..], End::Fin));
    assert_eq!(rig.finish().broken, 1);
}

#[test]
fn response_that_outlasts_the_hold_timeout_has_no_clean_end() {
    let rig = Rig::with("--hold-timeout 500ms", respond_then(0, Then::StallMidBody));
    let mut client = rig.client();
    client.send(get("/"));
    assert_eq!(client.head().status(), 200);
    let (rest, end) = client.rest();
    assert_eq!((&*rest, end), (&b"01234"[..], End::Fin));
    rig.wait_settled();
    assert_eq!(rig.closes(), [("hold_timeout".to_owned(), 1)]);
    rig.server.wait_until(|counts| counts.open == 0);
    rig.finish();
}

#[test]
fn slow_client_gets_all_that_came_before_the_break() {
    const PART: usize = 8 << 20;
    let answer = pattern(PART);
    let part = answer.clone();
    let rig = Rig::new(move |peer| {
        peer.read_request()?;
        let length = PART + 1;
        peer.answer(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"
        ))?;
        peer.send(&part)
    });
    let mut client = Client::connect_narrow(rig.gateway().address());
    client.send(get("/"));
    assert_eq!(client.head().status(), 200);
    let (rest, end) = client.rest();
    assert_eq!((rest.len(), end), (PART, End::Fin));
    assert!(rest == answer);
    assert_eq!(rig.finish().broken, 1);
}

#[test]
fn bytes_behind_a_response_are_nobodys_and_end_the_upstream_connection() {
    let rig = Rig::new(|peer| {
        while peer.read_request()?.is_some() {
            peer.answer([OK, b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"].concat())?;
        }
        Ok(())
    });
    let mut client = rig.client();
    for _ in 0..3 {
        assert_eq!(client.get("/").text(), "ok");
    }
    rig.wait_settled();
    assert_eq!(rig.closes(), [("stray_bytes".to_owned(), 3)]);
    client.expect_silence();
    rig.finish();
}

/// A client that goes away at some point of its exchange: its upstream connection closes, for that
/// reason, and the next client is served.
fn client_leaves(
    script: impl Fn(&mut test_support::Peer) -> std::io::Result<()> + Send + Sync + 'static,
    leave: impl FnOnce(&Rig, Client),
    reason: &str,
) {
    let rig = Rig::with(
        "--max-connections 1",
        first_connections(1, script, keep_alive_ok()),
    );
    let client = rig.client();
    leave(&rig, client);
    rig.wait_settled();
    assert_eq!(rig.closes(), [(reason.to_owned(), 1)]);
    rig.server
        .wait_until(|counts| counts.open == 0 && counts.eofs + counts.resets == 1);
    assert_eq!(rig.client().get("/").text(), "ok");
    rig.finish();
}

#[test]
fn client_that_resets_while_its_response_stalls_frees_the_upstream_connection() {
    // What is left of the response is waited for a moment.
    client_leaves(
        respond_then(0, Then::StallMidBody),
        |_, mut client| {
            client.send(get("/"));
            assert_eq!(client.head().status(), 200);
            client.expect("01234");
            client.reset();
        },
        "exchange_failed",
    );
}

#[test]
fn client_that_closes_while_its_response_streams_frees_the_upstream_connection() {
    let endless = |peer: &mut test_support::Peer| {
        peer.read_request()?;
        peer.answer("HTTP/1.1 200 OK\r\n\r\n")?;
        loop {
            peer.send([b'x'; 4096])?;
        }
    };
    client_leaves(
        endless,
        |_, mut client| {
            client.send(get("/"));
            assert_eq!(client.head().status(), 200);
        },
        "abandoned",
    );
}

#[test]
fn client_that_resets_while_it_waits_for_its_answer_frees_the_upstream_connection() {
    client_leaves(
        respond_then(0, Then::StallBeforeHead),
        |rig, mut client| {
            client.send(get("/"));
            rig.server.wait_until(|counts| counts.requests == 1);
            client.reset();
        },
        "abandoned",
    );
}

#[test]
fn client_that_resets_while_it_sends_its_body_ends_the_upstreams_request() {
    let rig = Rig::new(|peer| {
        let head = peer.read_request_head()?.unwrap();
        let body = peer.read_body(&head);
        assert!(body.is_err(), "a whole body: {body:?}");
        Ok(())
    });
    let mut client = rig.client();
    client.send("POST / HTTP/1.1\r\nHost: site\r\nContent-Length: 10\r\n\r\nhello");
    rig.server.wait_until(|counts| counts.requests == 1);
    client.reset();
    rig.wait_settled();
    let closes = rig.closes();
    // Either of the two directions may find out first.
    let reasons = ["abandoned", "exchange_failed"];
    assert!(
        closes.len() == 1 && closes[0].1 == 1 && reasons.contains(&&*closes[0].0),
        "{closes:?}"
    );
    rig.server.wait_until(|counts| counts.open == 0);
    rig.finish();
}

#[test]
fn client_that_resets_while_it_is_queued_gives_its_place_up() {
    let gate = Gate::new();
    let rig = Rig::with(
        "--max-connections 1",
        respond_then_at(0, &gate, Then::ConnectionClose),
    );
    let (mut holder, mut gone, mut next) = (rig.client(), rig.client(), rig.client());
    holder.send(get("/"));
    rig.server.wait_until(|counts| counts.requests == 1);
    gone.send(get("/"));
    rig.wait_for("pending", 1);
    next.send(get("/"));
    rig.wait_for("pending", 2);
    gone.reset();
    rig.wait_for("pending", 1);
    gate.open();
    assert_eq!(holder.response().text(), "ok");
    assert_eq!(next.response().text(), "ok");
    rig.wait_settled();
    assert_eq!(rig.server.counts().requests, 2);
    rig.finish();
}

#[test]
fn client_that_resets_behind_many_pipelined_requests_frees_the_upstream_connection() {
    let script = respond_then(0, Then::StallBeforeHead);
    let rig = Rig::with("--response-head-timeout none", script);
    let mut client = rig.client();
    client.send(get("/").repeat(2000));
    rig.server.wait_until(|counts| counts.requests == 1);
    client.reset();
    rig.wait_settled();
    rig.server.wait_until(|counts| counts.open == 0);
    rig.finish();
}

#[test]
fn client_that_resets_after_it_has_closed_its_sending_side_frees_the_upstream_connection() {
    let script = respond_then(0, Then::StallBeforeHead);
    let rig = Rig::with("--response-head-timeout none", script);
    let mut client = rig.client();
    client.send(get("/"));
    client.fin();
    rig.server.wait_until(|counts| counts.requests == 1);
    client.reset();
    rig.wait_settled();
    rig.server.wait_until(|counts| counts.open == 0);
    rig.finish();
}
