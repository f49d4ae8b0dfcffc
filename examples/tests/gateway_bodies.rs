//! Bodies: whatever their framing and size, they arrive as they were sent.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::thread;

use common::{Client, Rig, chunked, get, pattern, read_chunked};
use test_support::{Gate, OK, never_read};

const LARGE: usize = 8 << 20;

/// A request with a body that has this framing field.
fn put(framing: &str) -> String {
    format!("PUT /file HTTP/1.1\r\nHost: site\r\n{framing}\r\n\r\n")
}

/// The field lines of a head that say how its body is framed.
fn framing(head: &str) -> Vec<String> {
    let lines = head.lines().map(str::to_lowercase);
    lines
        .filter(|line| line.starts_with("content-length:") || line.starts_with("transfer-"))
        .collect()
}

/// An upstream that answers once per connection and closes, so that any body has an end.
fn answering_once(answer: &[u8]) -> Rig {
    let answer = answer.to_vec();
    Rig::new(move |peer| {
        peer.read_request()?;
        peer.answer(&answer)
    })
}

fn assert_same(read: &[u8], sent: &[u8]) {
    assert_eq!(read.len(), sent.len());
    assert!(read == sent, "as many bytes, but others");
}

const LENGTH: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const EMPTY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                         3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nX-Sum: 532\r\n\r\n";
const CHUNKED_EMPTY: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
const BOTH: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n\
                      5\r\nhello\r\n0\r\n\r\n";
const UNTIL_CLOSE: &[u8] = b"HTTP/1.1 200 OK\r\n\r\nhello";
const OLD: &[u8] = b"HTTP/1.0 200 OK\r\n\r\nhello";

#[test]
fn response_body_reaches_a_client_in_a_framing_that_shows_its_end() {
    for (answer, framed, body, trailers) in [
        (LENGTH, "content-length: 5", "hello", &[][..]),
        (EMPTY, "content-length: 0", "", &[]),
        (
            CHUNKED,
            "transfer-encoding: chunked",
            "hello",
            &["x-sum: 532".to_owned()],
        ),
        (CHUNKED_EMPTY, "transfer-encoding: chunked", "", &[]),
        (BOTH, "transfer-encoding: chunked", "hello", &[]),
        (UNTIL_CLOSE, "transfer-encoding: chunked", "hello", &[]),
        (OLD, "transfer-encoding: chunked", "hello", &[]),
    ] {
        let rig = answering_once(answer);
        let mut client = rig.client();
        for _ in 0..2 {
            let response = client.get("/");
            assert_eq!(framing(&response.head), [framed]);
            assert_eq!((response.text(), &*response.trailers), (body, trailers));
        }
        rig.finish();
    }
}

#[test]
fn old_client_gets_no_chunks_but_a_body_that_ends_with_the_connection() {
    for (answer, framed) in [
        (LENGTH, Some("content-length: 5".to_owned())),
        (CHUNKED, None),
        (UNTIL_CLOSE, None),
    ] {
        let rig = answering_once(answer);
        let mut client = rig.client();
        client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        let response = client.response();
        assert_eq!(response.text(), "hello");
        assert_eq!(framing(&response.head), Vec::from_iter(framed.clone()));
        let kept = if framed.is_some() {
            "keep-alive"
        } else {
            "close"
        };
        assert_eq!(response.field("Connection"), Some(kept));
        rig.finish();
        client.expect_eof();
    }
}

#[test]
fn request_body_reaches_the_upstream_in_the_framing_it_has() {
    let (rig, record) = Rig::recording(OK);
    let mut client = rig.client();
    let text = chunked(b"hello world", 4, "");
    for request in [
        [put("Content-Length: 11").as_bytes(), b"hello world"].concat(),
        [put("Transfer-Encoding: chunked").as_bytes(), &text].concat(),
        put("Content-Length: 0").into_bytes(),
        b"POST / HTTP/1.1\r\nHost: site\r\n\r\n".to_vec(),
        get("/").into_bytes(),
    ] {
        client.send(request);
        assert_eq!(client.response().text(), "ok");
    }
    let seen: Vec<_> = record
        .all()
        .into_iter()
        .map(|request| {
            (
                framing(&String::from_utf8_lossy(&request.head)),
                request.body,
            )
        })
        .collect();
    let framed = |framing: &str, body: &str| (vec![framing.to_owned()], body.as_bytes().to_vec());
    let bare = (Vec::new(), Vec::new());
    assert_eq!(
        seen,
        [
            framed("content-length: 11", "hello world"),
            framed("transfer-encoding: chunked", "hello world"),
            framed("content-length: 0", ""),
            framed("content-length: 0", ""),
            bare,
        ]
    );
    assert_eq!(rig.server.counts().accepted, 1);
    rig.finish();
}

#[test]
fn trailers_of_a_request_reach_the_upstream() {
    let raw = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&raw);
    let rig = Rig::new(move |peer| {
        peer.read_request_head()?;
        let mut body = Vec::new();
        while !body.ends_with(b"\r\n\r\n") {
            body.extend(peer.read_exact(1)?);
        }
        *seen.lock().unwrap() = body;
        peer.answer(OK)
    });
    let mut client = rig.client();
    let body = chunked(b"hello world", 4, "X-Sum: 1116\r\nContent-Length: 3\r\n");
    client.send([put("Transfer-Encoding: chunked").as_bytes(), &body].concat());
    assert_eq!(client.response().text(), "ok");
    let (body, trailers) = read_chunked(&mut &**raw.lock().unwrap()).unwrap();
    assert_eq!(body, b"hello world");
    assert_eq!(trailers, ["x-sum: 1116"], "what frames is no trailer");
    rig.finish();
}

#[test]
fn large_bodies_arrive_bit_for_bit_both_ways() {
    let sent = pattern(LARGE);
    let (length, pieces) = (
        put(&format!("Content-Length: {LARGE}")),
        chunked(&sent, 10_007, ""),
    );
    let rig = Rig::new(|peer| {
        let mut chunks = false;
        while let Some(request) = peer.read_request()? {
            // Each answer in the other framing.
            chunks = !chunks;
            let (framing, body) = match chunks {
                true => (
                    "Transfer-Encoding: chunked".into(),
                    chunked(&request.body, 70_001, ""),
                ),
                false => (format!("Content-Length: {LARGE}"), request.body),
            };
            peer.answer(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n"))?;
            peer.send(body)?;
        }
        Ok(())
    });
    let mut client = rig.client();
    client.send([length.as_bytes(), &sent].concat());
    assert_same(&client.response().body, &sent);
    client.send([put("Transfer-Encoding: chunked").as_bytes(), &pieces].concat());
    assert_same(&client.response().body, &sent);
    assert_eq!(rig.server.counts().accepted, 1);
    rig.finish();
}

#[test]
fn bodies_that_stream_both_ways_at_once_do_not_hold_each_other_up() {
    // The upstream sends each piece back before it reads the next.
    const PIECE: usize = 64 << 10;
    let rig = Rig::new(|peer| {
        peer.read_request_head()?;
        peer.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n"
        ))?;
        for _ in 0..LARGE / PIECE {
            let piece = peer.read_exact(PIECE)?;
            peer.send(piece)?;
        }
        peer.wait_closed().map(|_| ())
    });
    let sent = pattern(LARGE);
    let mut client = rig.client();
    let mut writer = client.writer();
    let body = sent.clone();
    let sending = thread::spawn(move || {
        writer.write_all(put(&format!("Content-Length: {LARGE}")).as_bytes())?;
        writer.write_all(&body)
    });
    assert_same(&client.response().body, &sent);
    sending.join().unwrap().unwrap();
    rig.wait_for("idle", 1);
    rig.finish();
}

#[test]
fn client_that_reads_little_at_a_time_gets_it_all() {
    let answer = pattern(LARGE);
    let body = answer.clone();
    let rig = Rig::new(move |peer| {
        while peer.read_request()?.is_some() {
            peer.answer(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n"
            ))?;
            peer.send(&body)?;
        }
        Ok(())
    });
    let mut slow = Client::connect_narrow(rig.gateway().address());
    slow.send(get("/"));
    // It has not begun to read when another client has got all of its own.
    assert_same(&rig.client().get("/").body, &answer);
    assert_same(&slow.response().body, &answer);
    rig.finish();
}

#[test]
fn upstream_that_reads_late_gets_all_of_the_body() {
    let (gate, sent) = (Gate::new(), pattern(LARGE));
    let (gated, expected) = (gate.clone(), sent.clone());
    let rig = Rig::new(move |peer| {
        let head = peer.read_request_head()?.unwrap();
        peer.wait_at(&gated)?;
        let whole = peer.read_body(&head)? == expected;
        peer.answer(if whole {
            OK
        } else {
            b"HTTP/1.1 400 No\r\n\r\n"
        })
    });
    let mut client = rig.client();
    let mut writer = client.writer();
    let sending = thread::spawn(move || {
        writer.write_all(put("Transfer-Encoding: chunked").as_bytes())?;
        writer.write_all(&chunked(&sent, 100_003, ""))
    });
    gate.wait_for_arrivals(1);
    gate.open();
    assert_eq!(client.response().text(), "ok");
    sending.join().unwrap().unwrap();
    rig.finish();
}

#[test]
fn answer_to_head_says_what_a_body_would_have_and_has_none() {
    for (answer, framed) in [
        (
            &b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n"[..],
            "content-length: 1234",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "transfer-encoding: chunked",
        ),
    ] {
        let (rig, record) = Rig::recording(answer);
        let mut client = rig.client();
        for _ in 0..2 {
            client.send("HEAD /a HTTP/1.1\r\nHost: site\r\n\r\n");
            assert_eq!(framing(&client.head().head), [framed]);
        }
        rig.wait_settled();
        client.expect_silence();
        assert_eq!(record.all()[1].line(), "HEAD /a HTTP/1.1");
        assert_eq!(rig.server.counts().accepted, 1);
        rig.finish();
    }
}

#[test]
fn statuses_without_a_body_keep_both_connections() {
    for (answer, framed) in [
        (&b"HTTP/1.1 204 No Content\r\n\r\n"[..], None),
        (b"HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n", None),
        (
            b"HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\n\r\n",
            Some("content-length: 77".to_owned()),
        ),
    ] {
        let (rig, _) = Rig::recording(answer);
        let mut client = rig.client();
        for _ in 0..2 {
            let response = client.get("/");
            assert_eq!(response.head.split("\r\n").next(), first_line(answer));
            assert_eq!(framing(&response.head), Vec::from_iter(framed.clone()));
        }
        rig.wait_settled();
        client.expect_silence();
        assert_eq!(rig.server.counts().accepted, 1);
        rig.finish();
    }
}

#[test]
fn reset_content_has_no_content_however_the_upstream_says_so() {
    for rest in [
        "Content-Length: 0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "\r\n",
    ] {
        let rig = answering_once(format!("HTTP/1.1 205 Reset Content\r\n{rest}").as_bytes());
        let mut client = rig.client();
        for _ in 0..2 {
            let response = client.get("/");
            assert_eq!((response.status(), response.text()), (205, ""));
            assert_eq!(framing(&response.head), ["content-length: 0"]);
        }
        rig.finish();
    }
}

fn first_line(answer: &[u8]) -> Option<&str> {
    str::from_utf8(answer).unwrap().split("\r\n").next()
}

#[test]
fn answer_that_comes_before_the_end_of_the_body_reaches_the_client() {
    let rig = Rig::new(|peer| {
        peer.read_request_head()?;
        peer.answer("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig")?;
        peer.close()
    });
    let mut client = rig.client();
    let mut writer = client.writer();
    // More than any kernel buffers: the answer comes while the client still sends.
    let sending = thread::spawn(move || {
        writer.write_all(put("Content-Length: 268435456").as_bytes())?;
        let piece = vec![0; 1 << 20];
        (0..256).try_for_each(|_| writer.write_all(&piece))
    });
    let response = client.response();
    assert_eq!((response.status(), response.text()), (413, "big"));
    assert_eq!(response.field("Connection"), Some("close"));
    rig.wait_settled();
    assert_eq!(rig.count("idle"), 0);
    // How much of the rest the gateway takes is open.
    let _ = sending.join().unwrap();
    drop(client);
    rig.finish();
}

/// What the kernel's buffers and the gateway's may hold of a body, with room to spare.
const HELD: usize = 128 << 20;

/// Sends until that fails; returns how many bytes were taken.
fn send_for_ever(mut send: impl FnMut(&[u8]) -> io::Result<()>) -> usize {
    let piece = pattern(64 << 10);
    let sent = (1..).find(|_| send(&piece).is_err());
    sent.unwrap() * piece.len()
}

#[test]
fn response_that_the_client_does_not_take_is_held_back_at_the_upstream() {
    let sent = Arc::new(Mutex::new(0));
    let count = Arc::clone(&sent);
    let rig = Rig::with("--drain-timeout 500ms", move |peer| {
        peer.read_request()?;
        peer.answer("HTTP/1.1 200 OK\r\n\r\n")?;
        *count.lock().unwrap() = send_for_ever(|piece| peer.send(piece));
        Ok(())
    });
    let mut client = rig.client();
    client.send(get("/"));
    assert_eq!(client.head().status(), 200);
    let (gateway, server) = rig.split();
    // The time to take in more than that, if nothing held it back.
    assert_eq!(gateway.stop().broken, 0);
    server.wait_until(|counts| counts.open == 0);
    let sent = *sent.lock().unwrap();
    assert!(sent < HELD, "{sent}");
    server.finish();
}

#[test]
fn request_that_the_upstream_does_not_take_is_held_back_at_the_client() {
    let rig = Rig::with(
        "--drain-timeout 500ms --response-head-timeout none",
        never_read(),
    );
    let client = rig.client();
    let mut writer = client.writer();
    let sending = thread::spawn(move || {
        writer.write_all(put("Content-Length: 1000000000000").as_bytes())?;
        io::Result::Ok(send_for_ever(|piece| writer.write_all(piece)))
    });
    rig.server.wait_until(|counts| counts.accepted == 1);
    let (gateway, server) = rig.split();
    assert_eq!(gateway.stop().requests, 1);
    let sent = sending.join().unwrap().unwrap();
    assert!(sent < HELD, "{sent}");
    server.finish();
}
