//! Ready-made scripts.

use std::io;
use std::sync::{Mutex, PoisonError};

use crate::gate::Gate;
use crate::peer::Peer;

/// An answer with the body `ok` that keeps the connection.
pub const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// An answer with the body `ok` that announces the close.
pub const OK_CLOSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";

/// The head of an answer that announces ten bytes.
const HEAD_OF_TEN: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n";

/// Half the body that [`HEAD_OF_TEN`] announces.
const HALF_OF_TEN: &[u8] = b"01234";

/// What no client can take for the start of an answer.
const STRAY: &[u8] = b"stray bytes!";

/// What [`respond_then`] does after its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// At once, unasked: FIN, then waits for the client's close.
    Fin,
    /// At once, unasked: RST.
    Reset,
    /// At once, unasked: 12 bytes that belong to no answer.
    StrayBytes,
    /// On the next request: FIN instead of an answer.
    FinBeforeHead,
    /// On the next request: RST instead of an answer.
    ResetBeforeHead,
    /// On the next request: nothing.
    StallBeforeHead,
    /// On the next request: a head that announces a body of ten bytes, then nothing.
    StallAfterHead,
    /// On the next request: the head and five of ten bytes, then nothing.
    StallMidBody,
    /// On the next request: the head and five of ten bytes, then FIN.
    FinMidBody,
    /// On the next request: the head and five of ten bytes, then RST.
    ResetMidBody,
    /// On the next request: a whole answer with `Connection: close`; the socket stays open until
    /// the client closes it.
    ConnectionClose,
}

/// Answers each request with [`OK`] until the client closes.
pub fn keep_alive_ok() -> impl Fn(&mut Peer) -> io::Result<()> + Send + Sync + 'static {
    |peer| {
        while peer.read_request()?.is_some() {
            peer.answer(OK)?;
        }
        Ok(())
    }
}

/// Answers each request with a body that names connection and request, [`tag`], until the client
/// closes.
pub fn keep_alive_tagged() -> impl Fn(&mut Peer) -> io::Result<()> + Send + Sync + 'static {
    |peer| {
        let mut n = 0;
        while peer.read_request()?.is_some() {
            n += 1;
            peer.answer(tagged_answer(peer.index() + 1, n))?;
        }
        Ok(())
    }
}

/// The body of the `n`-th answer on a connection, `R-<connection>-<n>`, both counted from 1.
#[must_use]
pub fn tag(connection: usize, n: usize) -> String {
    format!("R-{connection}-{n}")
}

/// The answer with the body [`tag`].
#[must_use]
pub fn tagged_answer(connection: usize, n: usize) -> Vec<u8> {
    let body = tag(connection, n);
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}

/// Answers the first `n` requests of each connection with [`OK`], then does `then`, and reads
/// until the client closes.
pub fn respond_then(
    n: usize,
    then: Then,
) -> impl Fn(&mut Peer) -> io::Result<()> + Send + Sync + 'static {
    let gate = Gate::new();
    gate.open();
    respond_then_at(n, &gate, then)
}

/// [`respond_then`], where each connection waits at `gate` right before the fault: after the last
/// answer for what comes unasked, after the next request for the rest, and for the faults in a
/// body after the head, or its first half, is sent.
pub fn respond_then_at(
    n: usize,
    gate: &Gate,
    then: Then,
) -> impl Fn(&mut Peer) -> io::Result<()> + Send + Sync + use<> {
    let gate = gate.clone();
    move |peer| {
        for _ in 0..n {
            if peer.read_request()?.is_none() {
                return Ok(());
            }
            peer.answer(OK)?;
        }
        let unasked = matches!(then, Then::Fin | Then::Reset | Then::StrayBytes);
        if !unasked && peer.read_request()?.is_none() {
            return Ok(());
        }
        match then {
            Then::StallAfterHead => peer.send(HEAD_OF_TEN)?,
            Then::StallMidBody | Then::FinMidBody | Then::ResetMidBody => {
                peer.send([HEAD_OF_TEN, HALF_OF_TEN].concat())?;
            }
            _ => {}
        }
        peer.wait_at(&gate)?;
        match then {
            Then::Fin | Then::FinBeforeHead | Then::FinMidBody => peer.fin()?,
            Then::Reset | Then::ResetBeforeHead | Then::ResetMidBody => return peer.reset(),
            Then::StrayBytes => peer.send(STRAY)?,
            Then::ConnectionClose => peer.answer(OK_CLOSE)?,
            Then::StallBeforeHead | Then::StallAfterHead | Then::StallMidBody => {}
        }
        peer.stall()
    }
}

/// Reads all that arrives and never answers.
pub fn never_answer() -> impl Fn(&mut Peer) -> io::Result<()> + Send + Sync + 'static {
    respond_then(0, Then::StallBeforeHead)
}

/// Accepts and never reads, so that a large request fills the kernel's buffers and stops.
pub fn never_read() -> impl Fn(&mut Peer) -> io::Result<()> + Send + Sync + 'static {
    |peer| peer.stall_without_reading()
}

/// Answers with [`OK`] once `n` requests are in progress at the same time, then collects the next
/// `n`: shows that a client sends `n` requests in parallel. If fewer come, the script fails at
/// [`DEADLINE`](crate::DEADLINE).
///
/// # Panics
///
/// When `n` is 0.
pub fn answer_together(n: usize) -> impl Fn(&mut Peer) -> io::Result<()> + Send + Sync + 'static {
    assert!(n > 0, "a group of no requests");
    let group = Mutex::new((0, Gate::new()));
    move |peer| {
        while peer.read_request()?.is_some() {
            let gate = {
                let mut group = group.lock().unwrap_or_else(PoisonError::into_inner);
                let gate = group.1.clone();
                group.0 += 1;
                if group.0 == n {
                    gate.open();
                    *group = (0, Gate::new());
                }
                gate
            };
            peer.wait_at(&gate)?;
            peer.answer(OK)?;
        }
        Ok(())
    }
}

/// Runs `first` on the first `n` accepted connections and `rest` on all others.
pub fn first_connections(
    n: usize,
    first: impl Fn(&mut Peer) -> io::Result<()> + Send + Sync + 'static,
    rest: impl Fn(&mut Peer) -> io::Result<()> + Send + Sync + 'static,
) -> impl Fn(&mut Peer) -> io::Result<()> + Send + Sync + 'static {
    move |peer| {
        if peer.index() < n {
            first(peer)
        } else {
            rest(peer)
        }
    }
}

#[cfg(test)]
mod tests;
