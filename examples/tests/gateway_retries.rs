//! What the gateway sends again, and to whom.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Rig, Running, get};
use test_support::{OK, Server, keep_alive_ok, refused_address};

const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\npay";
const REFUSAL: &str = "HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\nno";

/// An upstream that refuses every other request, beginning with the first.
fn refusing(flags: &str) -> Rig {
    let number = AtomicUsize::new(0);
    Rig::with(flags, move |peer| {
        while peer.read_request()?.is_some() {
            let refused = number.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
            peer.answer(if refused {
                REFUSAL
            } else {
                std::str::from_utf8(OK).unwrap()
            })?;
        }
        Ok(())
    })
}

#[test]
fn a_refused_get_is_asked_again_and_a_refused_post_passed_on() {
    let rig = refusing("");
    let mut client = rig.client();
    assert_eq!(client.get("/").text(), "ok");
    client.send(POST);
    assert_eq!(client.response().status(), 503);
    assert_eq!(rig.server.counts().requests, 3);
    assert_eq!(rig.finish().responses, [1, 0, 0, 1]);
}

#[test]
fn without_retries_every_answer_is_the_upstreams_first() {
    for flags in ["--retry none", "--retries 0", "--retry jdk"] {
        let rig = refusing(flags);
        let mut client = rig.client();
        assert_eq!(client.get("/").status(), 503, "{flags}");
        assert_eq!(client.get("/").text(), "ok", "{flags}");
        assert_eq!(rig.server.counts().requests, 2, "{flags}");
        rig.finish();
    }
}

#[test]
fn a_request_goes_on_to_the_next_upstream_where_one_cannot_be_connected_to() {
    let (down, up) = (refused_address(), Server::script(keep_alive_ok()));
    let gateway = Running::before(&[down.addr(), up.addr()], "");
    let mut client = gateway.client();
    for _ in 0..4 {
        assert_eq!(client.get("/").text(), "ok");
        // Its body was never asked for, so it can go elsewhere.
        client.send(POST);
        assert_eq!(client.response().text(), "ok");
    }
    assert_eq!(up.counts().requests, 8);
    gateway.finish();
}

#[test]
fn a_request_that_takes_too_long_in_all_is_told_so() {
    let rig = Rig::with("--request-timeout 100ms", test_support::never_answer());
    let mut client = rig.client();
    client.send(get("/"));
    assert_eq!(client.response().status(), 504);
    rig.finish();
}
