//! Requests with every attempt of theirs, and why each was repeated or not, as a table.
//!
//! [`run`] is the program: it sends the requests of its command line, or those of [`cases`] to an
//! origin of faults. Each request becomes a [`Told`], whose rows are its attempts and whose text is
//! its part of the table. They are sent one after the other, over one pool.
//!
//! ```
//! use pinpool_examples::faulty::FaultyOrigin;
//! use pinpool_examples::retries::{Settings, cases, demonstrate};
//!
//! let origin = FaultyOrigin::start(7)?;
//! let settings = Settings::read(["retries", "--retry", "none"])?;
//! let mut cases = cases();
//! cases.retain(|case| case.line() == "GET /flaky/get");
//! let mut rows = Vec::new();
//! let report = demonstrate(&settings, &origin, &cases, |told| {
//!     rows.extend_from_slice(&told.rows);
//!     Ok(())
//! })?;
//! assert_eq!((rows.len(), rows[0].outcome.as_str()), (1, "status 500"));
//! assert_eq!((report.acquired, report.pending), (0, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod ask;
mod cases;
mod settings;
mod told;

use std::fmt;
use std::io::{self, Write};
use std::iter;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http_client::{Client, ClientConfig, RetryCounts, RetryPolicy, TcpConnector};
use pool_core::{
    ConfigError, ConnectOptions, Core, DestinationStats, Pool, PoolConfig, StartError,
};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::faulty::FaultyOrigin;
use crate::server::ServiceError;
use ask::{Ask, Payload};

pub use cases::{Case, cases};
pub use settings::Settings;
pub use told::{Connection, End, Row, Told};

/// The seed of the origin's `/mix`.
const SEED: u64 = 7;

/// How long a connection may take to be put away or closed, once its request has ended.
const SETTLED_WITHIN: Duration = Duration::from_secs(5);

/// How often it is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Why the requests could not be sent, or not be told of.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RetriesError {
    /// The origin could not be started.
    #[error("the origin: {0}")]
    Origin(#[from] ServiceError),
    /// The client's core could not be started.
    #[error(transparent)]
    Core(#[from] StartError),
    /// A limit is out of its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is no port for nobody to listen at.
    #[error("no free port: {0}")]
    Port(io::Error),
    /// What is to be told does not reach its reader.
    #[error("the output: {0}")]
    Output(io::Error),
}

/// What has been sent in all, and that nothing is left of it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Report {
    /// How many requests were sent.
    pub requests: u64,
    /// How many of them got a whole response.
    pub answered: u64,
    /// What the retry budget granted and refused.
    pub retries: RetryCounts,
    /// How many connections were opened.
    pub opened: u64,
    /// How many are still acquired, now that all requests have ended.
    pub acquired: u32,
    /// How many acquires are still pending.
    pub pending: u32,
}

impl Report {
    /// Whether every request got a whole response.
    #[must_use]
    pub fn all_answered(&self) -> bool {
        self.answered == self.requests
    }

    /// Whether the pool is left without a connection or a place in its queue taken.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        (self.acquired, self.pending) == (0, 0)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            requests,
            answered,
            retries: RetryCounts {
                granted, refused, ..
            },
            opened,
            acquired,
            pending,
        } = self;
        writeln!(
            f,
            "requests  {requests}, {answered} of them with a whole response"
        )?;
        writeln!(f, "budget    {granted} retries granted, {refused} refused")?;
        write!(
            f,
            "pool      {opened} connections opened; {acquired} acquired, {pending} pending"
        )
    }
}

/// Sends the requests that the settings ask for, or those of the demonstration, and writes the
/// table to `out` as it comes about, and the report behind it.
///
/// # Errors
///
/// [`RetriesError`]. That requests fail is none: the table tells.
pub fn run(settings: &Settings, out: &mut dyn Write) -> Result<Report, RetriesError> {
    let origin = match settings.urls.is_empty() {
        true => Some(FaultyOrigin::start(SEED)?),
        false => None,
    };
    write_heading(settings, origin.as_ref(), out).map_err(RetriesError::Output)?;
    let tell = |told: &Told| writeln!(out, "{told}");
    let report = match &origin {
        Some(origin) => demonstrate(settings, origin, &cases(), tell)?,
        None => send_all(settings, asks(settings).map(|ask| (ask, false)), tell)?,
    };
    writeln!(out, "{report}").map_err(RetriesError::Output)?;
    Ok(report)
}

fn write_heading(
    settings: &Settings,
    origin: Option<&FaultyOrigin>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let table = settings.retry.table();
    writeln!(
        out,
        "policy    {}, {} attempts at the most; budget {}",
        table.name(),
        table.max_attempts(),
        settings.retry.retry_budget
    )?;
    writeln!(
        out,
        "timeouts  connect {}, response head {}, body {}, attempt {}, request {}",
        settings.connect_timeout,
        settings.response_head_timeout,
        settings.body_timeout,
        settings.attempt_timeout,
        settings.request_timeout
    )?;
    if let Some(origin) = origin {
        writeln!(out, "origin    http://{}, seed {SEED}", origin.addr())?;
    }
    writeln!(out, "\n{}", told::HEADING)
}

/// Sends these requests to `origin`, in order, and hands what became of each to `tell`.
///
/// # Errors
///
/// [`RetriesError`]: of the start, and the first that `tell` gives.
pub fn demonstrate(
    settings: &Settings,
    origin: &FaultyOrigin,
    cases: &[Case],
    tell: impl FnMut(&Told) -> io::Result<()>,
) -> Result<Report, RetriesError> {
    // Bound, so that nobody else gets the port, but not listening.
    let (_bound, nobody) = bound().map_err(RetriesError::Port)?;
    let asks = cases
        .iter()
        .map(|case| (case.ask(origin.addr(), nobody), case.closes));
    send_all(settings, asks, tell)
}

fn bound() -> io::Result<(Socket, SocketAddr)> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    socket.bind(&SockAddr::from(any))?;
    let address = socket.local_addr()?.as_socket();
    Ok((socket, address.ok_or(io::ErrorKind::AddrNotAvailable)?))
}

/// The requests of the command line.
fn asks(settings: &Settings) -> impl Iterator<Item = Ask> {
    let requests = usize::try_from(settings.requests).unwrap_or(usize::MAX);
    let payload = match &settings.body {
        None => Payload::None,
        Some(text) => Payload::Whole(Bytes::from(text.clone())),
    };
    let ask = move |uri| Ask {
        method: settings.method.clone(),
        uri,
        note: String::new(),
        payload: payload.clone(),
        idempotent: settings.idempotent,
        instead: Vec::new(),
    };
    let urls = settings.urls.iter().cloned();
    urls.flat_map(move |uri| iter::repeat_n(ask(uri), requests))
}

/// Sends each; where it is said so, waits behind it until the peer's close has been seen.
fn send_all(
    settings: &Settings,
    asks: impl Iterator<Item = (Ask, bool)>,
    tell: impl FnMut(&Told) -> io::Result<()>,
) -> Result<Report, RetriesError> {
    let (pool, client) = (settings.pool_config()?, settings.client_config()?);
    let main = |core: Core| send_over(core, pool, client, asks, tell);
    Core::builder().name("retries").run(main)?
}

async fn send_over(
    core: Core,
    pool: PoolConfig,
    client: ClientConfig,
    asks: impl Iterator<Item = (Ask, bool)>,
    mut tell: impl FnMut(&Told) -> io::Result<()>,
) -> Result<Report, RetriesError> {
    let connector = TcpConnector::new(&core, ConnectOptions::default());
    let pool = Pool::new(&core, pool, connector);
    let client = Client::new(pool.clone(), client);
    let (mut requests, mut answered) = (0, 0);
    for (ask, closes) in asks {
        let told = ask.send(&client).await;
        requests += 1;
        answered += u64::from(told.end.is_answered());
        tell(&told).map_err(RetriesError::Output)?;
        if closes {
            settle(&pool, |stats| stats.idle.current == 0).await;
        }
    }
    settle(&pool, |stats| {
        (stats.acquired.current, stats.pending.current) == (0, 0)
    })
    .await;
    let stats = pool.snapshot().total;
    pool.drain(Duration::ZERO).await;
    Ok(Report {
        requests,
        answered,
        retries: client.retry_counts(),
        opened: stats.opened,
        acquired: stats.acquired.current,
        pending: stats.pending.current,
    })
}

/// Waits until the pool is like that, for as long as that may take.
async fn settle(pool: &Pool<TcpConnector>, is_settled: impl Fn(&DestinationStats) -> bool) {
    let core = pool.core();
    let settled = async {
        while !is_settled(&pool.snapshot().total) {
            core.sleep(LOOK_AGAIN).await;
        }
    };
    // The report tells of what never settles.
    let _ = core.timeout(SETTLED_WITHIN, settled).await;
}
