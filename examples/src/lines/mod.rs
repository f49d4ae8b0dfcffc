//! Pooled connections of a protocol that is not HTTP: a line is asked, a line is answered.
//!
//! A server greets with `READY`, answers `PING` with `PONG`, and any other line with the same line
//! in capitals. `connector` is what its users write to pool connections to it; `server` is the
//! server; [`run`] puts both to work.

mod connector;
mod server;

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use pool_core::{
    AcquireError, CloseReason, DestinationStats, Engine, Histograms, Pool, PoolConfig, PoolHandle,
};

pub use connector::{LineConnector, LineError, LineStream};
pub use server::LineServer;

type BoxError = Box<dyn Error + Send + Sync>;

/// How many questions [`run`] asks.
const QUESTIONS: usize = 1000;

/// How many of them are under way at a time: more than there are connections, so that some queue.
const AT_A_TIME: usize = 16;

const CONNECTIONS: u32 = 4;

/// How often an idle connection is probed; in a service, tens of seconds.
const HEARTBEAT: Duration = Duration::from_millis(20);

/// How long holders may go on once the pool drains.
const GRACE: Duration = Duration::from_secs(5);

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// There was no connection to ask it over.
    #[error("no connection: {0}")]
    Acquire(#[from] AcquireError<LineError>),
    /// The connection failed on the way. Whether the server has seen the question is not known.
    #[error(transparent)]
    Line(#[from] LineError),
}

/// Asks one line over a connection of `pool`'s.
///
/// # Errors
///
/// [`AskError`]; the connection that failed, if it was one, is closed.
///
/// # Cancel safety
///
/// Dropping the future closes the connection that it uses, as it is in the middle of an exchange.
pub async fn ask(
    pool: &Pool<LineConnector>,
    address: SocketAddr,
    line: &str,
) -> Result<String, AskError> {
    let mut stream = pool.acquire(&address).await?;
    match stream.ask(line).await {
        Ok(answer) => {
            // A whole answer has been read: the connection stands at a message boundary.
            stream.release();
            Ok(answer)
        }
        Err(error) => {
            stream.close(CloseReason::ExchangeFailed);
            Err(error.into())
        }
    }
}

/// The limits that [`run`] gives its pool: few connections, for which the questions queue.
#[must_use]
pub fn config() -> PoolConfig {
    PoolConfig::builder()
        .max_connections(CONNECTIONS)
        .acquire_timeout(Duration::from_secs(10))
        .hold_timeout(Duration::from_secs(10))
        .heartbeat_interval(HEARTBEAT)
        .build()
        .expect("constants within their ranges")
}

/// Starts a server and a pool in front of it, asks from this thread, which is not the pool's, and
/// tells what came of it once both have ended.
///
/// # Errors
///
/// What the system refuses, or the first question without the right answer.
pub fn run() -> Result<Report, BoxError> {
    let server = LineServer::start()?;
    let address = server.address();
    let engine = Engine::builder()
        .unpinned(1)
        .name("lines")
        .config(config())
        .start(LineConnector::new)?;
    let handle = engine.handle().pools()[0].clone();
    ask_many(&handle, address)?;
    await_probes(&handle)?;
    let histograms = handle.snapshot()?.wait()?.histograms;
    let ended = engine.drain_blocking(GRACE);
    Ok(Report {
        stats: ended.total(),
        histograms,
        accepted: server.stop(),
    })
}

/// Asks all questions from a thread that is not the pool's.
fn ask_many(handle: &PoolHandle<LineConnector>, address: SocketAddr) -> Result<(), BoxError> {
    let questions: Vec<_> = (0..QUESTIONS).map(|n| format!("question {n}")).collect();
    for asked in questions.chunks(AT_A_TIME) {
        let lines = asked.to_vec();
        let job = handle.submit(move |pool| async move { ask_all(&pool, address, lines).await })?;
        let answers = job.wait()??;
        let expected: Vec<_> = asked.iter().map(|line| line.to_uppercase()).collect();
        if answers != expected {
            return Err(format!("asked {asked:?}, was answered {answers:?}").into());
        }
    }
    Ok(())
}

/// Asks these side by side. On the pool's own core a job starts as soon as it is submitted.
async fn ask_all(
    pool: &Pool<LineConnector>,
    address: SocketAddr,
    lines: Vec<String>,
) -> Result<Vec<String>, BoxError> {
    let handle = pool.handle();
    let start =
        |line: String| handle.submit(move |pool| async move { ask(&pool, address, &line).await });
    let asked: Vec<_> = lines.into_iter().map(start).collect::<Result<_, _>>()?;
    let mut answers = Vec::new();
    for answer in asked {
        answers.push(answer.await??);
    }
    Ok(answers)
}

/// Waits until every idle connection has been probed.
fn await_probes(handle: &PoolHandle<LineConnector>) -> Result<(), BoxError> {
    let probed = handle.submit(|pool| async move {
        let core = pool.core().clone();
        let all = async {
            while pool.snapshot().total.probes < u64::from(CONNECTIONS) {
                core.sleep(HEARTBEAT).await;
            }
        };
        core.timeout(GRACE, all).await
    })?;
    Ok(probed.wait()??)
}

/// What came of a [`run`].
#[derive(Clone, Debug)]
pub struct Report {
    /// The pool's counts after its drain.
    pub stats: DestinationStats,
    /// How long things took before it.
    pub histograms: Histograms,
    /// How many connections the server accepted.
    pub accepted: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = &self.stats;
        let acquires = &stats.acquires;
        writeln!(f, "questions    {}", acquires.requested)?;
        writeln!(
            f,
            "acquires     {} fresh, {} reused; {} had to queue",
            acquires.fresh, acquires.reused, acquires.queued
        )?;
        writeln!(
            f,
            "connections  {} opened, at most {} acquired at a time; the server accepted {}",
            stats.opened, stats.acquired.highest, self.accepted
        )?;
        writeln!(f, "probes       {}", stats.probes)?;
        for reason in CloseReason::ALL {
            let closed = stats.closed(*reason);
            if closed > 0 {
                writeln!(f, "closed       {closed} by {reason}")?;
            }
        }
        let Histograms {
            acquire_wait,
            connect,
            hold,
            ..
        } = &self.histograms;
        for (what, histogram) in [("wait", acquire_wait), ("connect", connect), ("hold", hold)] {
            let at = |percent| histogram.percentile(percent);
            writeln!(f, "{what:<12} p50 {:?}, p99 {:?}", at(50.0), at(99.0))?;
        }
        Ok(())
    }
}
