//! The requests of the demonstration.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Method, Uri};
use http_client::Destination;

use super::ask::{Ask, Payload};

/// A request of the demonstration.
#[derive(Clone, Debug)]
pub struct Case {
    method: Method,
    target: &'static str,
    note: &'static str,
    payload: Payload,
    idempotent: bool,
    to: To,
    pub(super) closes: bool,
}

#[derive(Clone, Copy, Debug)]
enum To {
    Origin,
    /// An address at which nobody listens.
    Nobody,
    NobodyThenOrigin,
}

impl Case {
    /// The method and the target, by which it is known.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{} {}", self.method, self.target)
    }

    fn idempotent(mut self) -> Self {
        self.idempotent = true;
        self
    }

    fn once(mut self) -> Self {
        if let Payload::Whole(bytes) = self.payload {
            self.payload = Payload::Once(bytes);
        }
        self
    }

    fn to(mut self, to: To) -> Self {
        self.to = to;
        self
    }

    /// The origin closes behind the answer. The next request waits until the pool has seen it, so
    /// that every run finds the same.
    fn closes(mut self) -> Self {
        self.closes = true;
        self
    }

    pub(super) fn ask(&self, origin: SocketAddr, nobody: SocketAddr) -> Ask {
        let (address, instead) = match self.to {
            To::Origin => (origin, vec![]),
            To::Nobody => (nobody, vec![]),
            To::NobodyThenOrigin => (origin, vec![destination(nobody), destination(origin)]),
        };
        Ask {
            method: self.method.clone(),
            uri: uri(address, self.target),
            note: self.note.to_owned(),
            payload: self.payload.clone(),
            idempotent: self.idempotent,
            instead,
        }
    }
}

fn uri(address: SocketAddr, target: &str) -> Uri {
    let uri = format!("http://{address}{target}").parse();
    uri.expect("an address and a target of the list")
}

fn destination(address: SocketAddr) -> Destination {
    let destination = format!("http://{address}").parse();
    destination.expect("an address is a destination")
}

/// The requests of the demonstration, in their order. Together they meet every fault that the
/// origin has, and what there is beside: requests that may not be repeated, that cannot be, and
/// destinations where nobody is.
#[must_use]
pub fn cases() -> Vec<Case> {
    [statuses(), bodies(), lost(), broken(), odd(), nobody()].concat()
}

fn get(target: &'static str, note: &'static str) -> Case {
    Case {
        method: Method::GET,
        target,
        note,
        payload: Payload::None,
        idempotent: false,
        to: To::Origin,
        closes: false,
    }
}

fn with_body(method: Method, target: &'static str, note: &'static str) -> Case {
    Case {
        method,
        payload: Payload::Whole(Bytes::from_static(b"pay")),
        ..get(target, note)
    }
}

fn post(target: &'static str, note: &'static str) -> Case {
    with_body(Method::POST, target, note)
}

fn put(target: &'static str, note: &'static str) -> Case {
    with_body(Method::PUT, target, note)
}

/// Responses that are errors, and what they ask for.
#[rustfmt::skip]
fn statuses() -> Vec<Case> {
    vec![
        get("/ok", "healthy"),
        get("/flaky/get", "500, then 200"),
        get("/status/400", "always 400"),
        get("/status/503", "always 503"),
        get("/limited/seconds", "429 with Retry-After: 1, then 200"),
        get("/limited/date?retry-after=date", "the same with a date"),
        get("/limited/unparsable?retry-after=unparsable", "the same with what nobody can read"),
        get("/status/429?retry-after=20", "a pause that outlasts the request"),
        get("/status/503?retry-after=120", "a pause that is too long"),
        get("/mix?seed=459&ms=60000", "faults by the seed: a close, a stall, and none"),
    ]
}

/// Requests with a body: which may be repeated, and which can be.
#[rustfmt::skip]
fn bodies() -> Vec<Case> {
    vec![
        put("/echo", "healthy"),
        post("/flaky/post", "500 to what may not be repeated"),
        post("/flaky/idempotent", "500 to what may, as its caller says").idempotent(),
        put("/flaky/put", "500 to what may, by its method"),
        put("/flaky/stream", "500 to what may, but cannot: its body is a stream that has been read").once(),
        put("/early", "413, and closes with the body unread"),
    ]
}

/// Connections that end before an answer. Each follows a request that leaves one to be reused.
#[rustfmt::skip]
fn lost() -> Vec<Case> {
    vec![
        get("/bytes/100", "healthy, and leaves a connection to be reused"),
        get("/close/before-head", "the first loss may be a stale connection, the second is not"),
        post("/bytes/100", "leaves a connection to be reused"),
        post("/close/before-head", "lost, and perhaps acted on"),
        get("/ok", "leaves a connection to be reused"),
        get("/reset/before-head", "RST instead of an answer"),
        get("/close-after", "closes behind its answer").closes(),
        get("/ok", "does not meet the closed connection: the pool has seen it"),
        get("/reset-after", "RST behind its answer").closes(),
        get("/stray", "bytes behind its answer that nobody asked for").closes(),
    ]
}

/// Answers that stand still or break off.
#[rustfmt::skip]
fn broken() -> Vec<Case> {
    vec![
        get("/stall/before-head?ms=60000", "no answer within the response head timeout"),
        post("/stall/before-head?ms=60000", "the same to what may not be repeated"),
        get("/drip/head?ms=50", "a head that drips in has no more time than another"),
        get("/close/mid-head", "half a head"),
        get("/close/after-head", "no body: too late for a retry, the head has been handed over"),
        get("/close/mid-body", "half a body"),
        get("/close/mid-chunk", "half a chunk"),
        get("/reset/mid-body", "half a body, then RST"),
        get("/stall/mid-body?ms=60000", "half a body, then nothing"),
        get("/drip/body?ms=20", "a body that drips in, without a long pause"),
    ]
}

/// What is not quite an answer.
#[rustfmt::skip]
fn odd() -> Vec<Case> {
    vec![
        get("/interim/103", "103, then 200"),
        get("/bodiless/204?length=3&stray=3", "204 with a body").closes(),
        get("/malformed", "no HTTP"),
    ]
}

/// Destinations at which nobody listens.
#[rustfmt::skip]
fn nobody() -> Vec<Case> {
    vec![
        get("/", "nobody listens there").to(To::Nobody),
        post("/bytes/100", "nobody listens at the first destination, so nothing was sent").to(To::NobodyThenOrigin),
        put("/echo", "the same with a stream, of which nothing has been read").once().to(To::NobodyThenOrigin),
    ]
}
