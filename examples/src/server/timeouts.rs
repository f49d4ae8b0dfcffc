//! How long a server waits for its clients.

use std::time::Duration;

/// How long a server waits for its clients. All of it is about the client's side; what the server
/// itself waits for is no business of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For the first byte of the next request. Default: 75 s.
    pub idle: Duration,
    /// For a last request once the server is closing: a client that keeps its connection busy has
    /// sent one already, and would find it reset. Default: 200 ms.
    pub last_request: Duration,
    /// For the whole of a request head from its first byte on, however it drips in.
    /// Default: 30 s.
    pub head: Duration,
    /// For the next byte of a request's body, while somebody asks for it. Default: 30 s.
    pub body: Duration,
    /// For the client to take the next byte of its response. Default: 60 s.
    pub send: Duration,
    /// For the rest of a body that nobody reads, if that is small: it has usually come already.
    /// Default: 1 s.
    pub drain: Duration,
    /// For a client that is still sending to take in its last response and close. Default: 2 s.
    pub linger: Duration,
    /// The same while the server is closing, which such a client must not hold up. Default:
    /// 200 ms.
    pub linger_while_closing: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(75),
            last_request: Duration::from_millis(200),
            head: Duration::from_secs(30),
            body: Duration::from_secs(30),
            send: Duration::from_secs(60),
            drain: Duration::from_secs(1),
            linger: Duration::from_secs(2),
            linger_while_closing: Duration::from_millis(200),
        }
    }
}
