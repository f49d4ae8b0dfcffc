//! A scripted raw TCP server for tests.
//!
//! A [`Server`] listens on loopback and runs a script, plain blocking code on a thread of its
//! own, for each connection it accepts. The script says byte by byte what the client gets to see:
//! answers, half answers, FIN, RST, silence. Nothing here uses an async runtime, so the code under
//! test keeps its executor to itself.
//!
//! ```
//! use std::io::{Read, Write};
//! use test_support::{OK, Server};
//!
//! let server = Server::script(|peer| {
//!     while peer.read_request()?.is_some() {
//!         peer.answer(OK)?;
//!     }
//!     Ok(())
//! });
//!
//! let mut client = std::net::TcpStream::connect(server.addr())?;
//! client.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n")?;
//! let mut answer = vec![0; OK.len()];
//! client.read_exact(&mut answer)?;
//! assert_eq!(answer, OK);
//!
//! drop(client);
//! server.wait_until(|counts| counts.eofs == 1 && counts.open == 0);
//! server.finish();
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Waiting without sleeping
//!
//! A test waits for what it needs to have happened: [`Server::wait_until`] for something the
//! server saw, [`Gate`] for a step of a script, [`eventually`] for anything else. These block the
//! calling thread. A test that runs on the executor under test must not block it, and uses
//! [`eventually_async`] with [`Server::counts`] and [`Gate::is_open`] or [`Gate::arrived`].
//!
//! # What counts as a failure
//!
//! A panic in a script, or an error that it returns, makes [`Server::finish`] panic. Two kinds of
//! error are not failures: the client went away (reset, broken pipe), which is what many tests are
//! about and which [`Counts::resets`] shows; and the server was stopped in the middle of a script.

mod addresses;
mod counts;
mod gate;
mod kernel;
mod peer;
mod request;
mod scripts;
mod server;
mod shared;
mod wait;
mod waits;

#[cfg(test)]
mod testing;

pub use addresses::{HangingListener, RefusedAddress, refused_address};
pub use counts::Counts;
pub use gate::Gate;
pub use peer::{Closed, Peer};
pub use request::Request;
pub use scripts::{
    OK, OK_CLOSE, Then, answer_together, first_connections, keep_alive_ok, keep_alive_tagged,
    never_answer, never_read, respond_then, respond_then_at, tag, tagged_answer,
};
pub use server::Server;
pub use wait::{DEADLINE, eventually, eventually_async};
