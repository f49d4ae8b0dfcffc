//! Connection pools pinned to event loops.
//!
//! A [`Core`] is one thread with one executor. It owns its sockets, its timers and any number of
//! [`Pool`]s, and nothing of them ever leaves it: a pool is `!Send`, its counters are plain
//! integers, and a warm acquire and release take no lock, atomic, allocation or system call.
//! Other threads reach a pool through its [`PoolHandle`]. An [`Engine`] is a core per CPU with a
//! pool each, started and ended together.
//!
//! The crate knows connections and no protocol. A [`Connector`] makes [`Connection`]s to a key; an
//! [acquire](Pool::acquire) takes an idle one, or a new one, or waits its turn; a [`Pooled`] guard
//! holds it until it is [released](Pooled::release).
//!
//! ```
//! use std::io::{self, BufRead, BufReader, Write};
//! use std::net::{SocketAddr, TcpListener};
//!
//! use futures_lite::{AsyncReadExt, AsyncWriteExt};
//! use pool_core::{ConnectOptions, Connector, Core, Pool, PoolConfig, TcpStream};
//!
//! struct Lines(Core);
//!
//! impl Connector for Lines {
//!     type Key = SocketAddr;
//!     type Connection = TcpStream;
//!     type Error = io::Error;
//!
//!     async fn connect(&self, address: &SocketAddr) -> io::Result<TcpStream> {
//!         TcpStream::connect(&self.0, *address, &ConnectOptions::default()).await
//!     }
//! }
//!
//! // A server that answers each line with "ok".
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let address = listener.local_addr()?;
//! std::thread::spawn(move || -> io::Result<()> {
//!     let (stream, _) = listener.accept()?;
//!     for line in BufReader::new(stream.try_clone()?).lines() {
//!         line?;
//!         (&stream).write_all(b"ok\n")?;
//!     }
//!     Ok(())
//! });
//!
//! let stats = Core::builder().run(|core| async move {
//!     let pool = Pool::new(&core, PoolConfig::default(), Lines(core.clone()));
//!     for _ in 0..3 {
//!         let mut conn = pool.acquire(&address).await?;
//!         conn.write_all(b"hello\n").await?;
//!         let mut answer = [0; 3];
//!         conn.read_exact(&mut answer).await?;
//!         // At a message boundary. A guard that is only dropped closes its connection.
//!         conn.release();
//!     }
//!     Ok::<_, Box<dyn std::error::Error>>(pool.snapshot().total)
//! })?.unwrap();
//!
//! assert_eq!((stats.acquires.fresh, stats.acquires.reused), (1, 2));
//! assert_eq!((stats.acquired.current, stats.idle.current), (0, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What closes a connection
//!
//! Its holder, its peer, a timer, or the pool's end; [`CloseReason`] names them. A connection whose
//! peer has closed it, or has sent bytes that nobody asked for, is not handed out: the core watches
//! the readiness of every idle socket and looks at it again at the acquire.
//!
//! # The parts
//!
//! [`state`] is every decision, as a state machine without I/O; it builds without the runtime
//! (feature `glommio`, on by default) and can be driven by something else. The rest puts sockets,
//! tasks and wakers around it. docs/ARCHITECTURE.md has the map.

mod close_reason;
mod config;
#[cfg(feature = "glommio")]
mod connector;
#[cfg(feature = "glommio")]
mod error;
#[cfg(feature = "glommio")]
mod fence;
#[cfg(feature = "glommio")]
mod net;
#[cfg(feature = "glommio")]
mod shell;
pub mod state;
mod stats;
mod time;

pub use close_reason::CloseReason;
pub use config::{ConfigError, PoolConfig, PoolConfigBuilder, ReuseOrder};
#[cfg(feature = "glommio")]
pub use connector::{Connection, Connector};
#[cfg(feature = "glommio")]
pub use error::{AcquireError, EngineStartError, JobError, StartError, SubmitError};
#[cfg(feature = "glommio")]
pub use net::{ConnectOptions, ForceClosed, ListenOptions, Readiness, TcpListener, TcpStream};
#[cfg(feature = "glommio")]
pub use shell::{
    Acquire, Core, CoreBuilder, CoreCounts, CoreEnd, CoreReport, CoreThread, Destination,
    DestinationSnapshot, Elapsed, Engine, EngineBuilder, EngineHandle, EngineReport, Pool,
    PoolHandle, PoolSnapshot, Pooled, SharedCap, Sleep, Submitted, allowed_cpus,
};
pub use state::{Histogram, Histograms};
pub use stats::{Acquires, DestinationStats, Gauge, Rejected, Timeouts};
pub use time::Timestamp;

/// The README's program is compiled and run with the tests.
#[cfg(all(doctest, feature = "glommio"))]
#[doc = include_str!("../README.md")]
struct Readme;
