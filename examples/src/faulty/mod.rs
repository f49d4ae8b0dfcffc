//! An origin that breaks HTTP as it is asked to: each path is a fault, so that one running origin
//! offers them all. `GET /` lists them.
//!
//! The requests are read by the codec, and the responses are written as bytes, most of which the
//! codec would refuse to write. It runs on a [`Core`] of its own, with a task per
//! connection, and not with threads: a stalled or dripping answer costs a timer, so that a storm of
//! a thousand clients that wait costs as little as one; and the sockets of the engine reset, close
//! and tell of a client that left, as the faults need it.
//!
//! What is wrong on purpose is wrong in the answer alone. A request is read to its end before its
//! answer begins (but for `/early`), after a 100 where the client waits for one, so that a close is
//! a FIN where it is meant to be one, and a reset comes from nothing but the fault. An answer to HEAD ends with its head, and what was to
//! happen in its body happens behind that. A client that closes, even its sending side alone, ends
//! the stall or the drip that it is in.
//!
//! Everything has a bound: a wait ten minutes, a body 1 GiB, 1024 keys, of which the oldest makes
//! room, the connections by [`Settings`].
//!
//! ```
//! use std::io::{Read, Write};
//! use std::net::TcpStream;
//!
//! use pinpool_examples::faulty::FaultyOrigin;
//!
//! let origin = FaultyOrigin::start(7)?;
//! let mut client = TcpStream::connect(origin.addr())?;
//! client.write_all(b"GET /close/mid-body HTTP/1.1\r\nHost: site\r\n\r\n")?;
//! let mut answer = String::new();
//! client.read_to_string(&mut answer)?;
//! assert_eq!(answer, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234");
//! assert_eq!(origin.counts().requests_to("/close/WHERE"), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod answer;
mod catalogue;
mod keys;
mod mix;
mod plan;
mod query;
mod serve;
mod settings;
mod tally;
mod wire;

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use futures_channel::oneshot;
use futures_lite::FutureExt;
use pool_core::{Core, TcpListener};

use crate::server::{Service, ServiceError, accept_each};
use keys::Keys;
use serve::{Origin, serve};
use tally::Tally;

pub use settings::Settings;
pub use tally::Counts;

/// A running origin of faults, until it is dropped: then its connections are closed where they
/// stand, and its thread has ended.
#[derive(Debug)]
#[must_use = "it stops when it is dropped"]
pub struct FaultyOrigin {
    address: SocketAddr,
    tally: Arc<Tally>,
    /// There until the drop.
    service: Option<Service>,
}

impl FaultyOrigin {
    /// Starts one on a free port of this machine; `seed` is that of `/mix`.
    ///
    /// # Errors
    ///
    /// [`ServiceError`]; nothing is left then.
    pub fn start(seed: u64) -> Result<Self, ServiceError> {
        Self::with(&Settings {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            seed,
            ..Settings::default()
        })
    }

    /// Starts one as it is told.
    ///
    /// # Errors
    ///
    /// [`ServiceError`]; nothing is left then.
    pub fn with(settings: &Settings) -> Result<Self, ServiceError> {
        let tally = Arc::new(Tally::new());
        let counted = Arc::clone(&tally);
        let (seed, most) = (settings.seed, settings.max_connections);
        let service = Service::listen(
            "faulty-origin",
            None,
            settings.listen,
            move |core, listener, stopped| {
                let origin = Origin {
                    address: listener.local_addr(),
                    seed,
                    tally: counted,
                    flaky: RefCell::new(Keys::default()),
                    mix: RefCell::new(Keys::default()),
                };
                run(core, listener, Rc::new(origin), most, stopped)
            },
        )?;
        Ok(Self {
            address: service.address(),
            tally,
            service: Some(service),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// What it has seen so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.tally.counts()
    }

    /// Whether it has ended by itself, which only a panic of its core does.
    #[must_use]
    pub fn has_died(&self) -> bool {
        self.service.as_ref().is_none_or(Service::has_ended)
    }
}

impl Drop for FaultyOrigin {
    fn drop(&mut self) {
        if let Some(service) = self.service.take() {
            service.stop();
        }
    }
}

async fn run(
    core: Core,
    mut listener: TcpListener,
    origin: Rc<Origin>,
    most: u32,
    stopped: oneshot::Receiver<()>,
) {
    let accepting = accept_each(&core, &mut listener, |stream| {
        let tally = &origin.tally;
        let open = tally.open();
        tally.connections.add();
        if open >= u64::from(most) {
            tally.refused.add();
            tally.closed.add();
        } else {
            core.spawn(serve(Rc::clone(&origin), core.clone(), stream));
        }
    });
    let stopped = async {
        // A handle that was dropped stops it too.
        let _ = stopped.await;
    };
    // The core drops the connections with their tasks.
    accepting.or(stopped).await;
}
