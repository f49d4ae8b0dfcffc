//! `GET /stats`: what every core's pool says of itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_client::{Destination, TcpConnector};
use http_codec::RequestHead;
use pool_core::{CloseReason, Core, DestinationStats, PoolHandle, PoolSnapshot};
use serde::{Serialize, Serializer};

use crate::server::{Fault, Refusal, Service, ServiceError, Session};

/// A core that does not answer within this is reported instead of waited for.
const PATIENCE: Duration = Duration::from_secs(2);

type Handles = Arc<[PoolHandle<TcpConnector>]>;

/// Starts the admin server on a core of its own, so that it answers while the others are busy.
pub(super) fn start(address: SocketAddr, handles: Handles) -> Result<Service, ServiceError> {
    Service::start("admin", address, move |session| {
        serve(session, Arc::clone(&handles))
    })
}

async fn serve(mut session: Session, handles: Handles) {
    loop {
        let (status, body) = match session.next_request().await {
            Ok(Some(head)) => answer(session.core(), &head, &handles).await,
            Ok(None) | Err(Refusal::Fault(Fault::Gone(_))) => return,
            Err(Refusal::TooSlow) => (408, "the request head took too long\n".to_owned()),
            Err(Refusal::Fault(Fault::Malformed(error))) => {
                (error.reply_status(), format!("{error}\n"))
            }
        };
        let kind = if status == 200 {
            "application/json"
        } else {
            "text/plain"
        };
        let answered = session.answer(status, body, |writer| {
            writer.field("Content-Type", kind)?;
            if status == 405 {
                writer.field("Allow", "GET, HEAD")?;
            }
            Ok(())
        });
        if answered.is_err() || !session.finish().await {
            return;
        }
    }
}

async fn answer(core: &Core, head: &RequestHead, handles: &Handles) -> (u16, String) {
    let path = head.target().split('?').next().unwrap_or_default();
    match (head.method(), path) {
        ("GET" | "HEAD", "/stats") => match serde_json::to_string(&stats(core, handles).await) {
            Ok(json) => (200, json + "\n"),
            Err(error) => (500, format!("{error}\n")),
        },
        (_, "/stats") => (405, "only GET and HEAD\n".to_owned()),
        _ => (404, "try /stats\n".to_owned()),
    }
}

async fn stats(core: &Core, handles: &Handles) -> Stats {
    let mut total = DestinationStats::default();
    let mut cores = Vec::new();
    for (number, handle) in handles.iter().enumerate() {
        let asked = handle.submit(|pool| async move { CorePool::of(&pool.snapshot()) });
        let answer = match asked {
            Ok(answer) => match core.timeout(PATIENCE, answer).await {
                Ok(answer) => answer.map_err(|error| error.to_string()),
                Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
            },
            Err(error) => Err(error.to_string()),
        };
        cores.push(match answer {
            Ok(pool) => {
                total.merge(&pool.total);
                CoreStats {
                    core: number,
                    destinations: pool.destinations,
                    error: None,
                }
            }
            Err(error) => CoreStats {
                core: number,
                destinations: Vec::new(),
                error: Some(error),
            },
        });
    }
    Stats {
        cores,
        total: Counters::of(&total),
    }
}

/// What a core sends through its mailbox: plain values.
struct CorePool {
    destinations: Vec<DestinationRow>,
    total: DestinationStats,
}

impl CorePool {
    fn of(snapshot: &PoolSnapshot<Destination>) -> Self {
        let rows = snapshot
            .destinations
            .iter()
            .map(|destination| DestinationRow {
                key: destination.key.to_string(),
                counters: Counters::of(&destination.stats),
            });
        Self {
            destinations: rows.collect(),
            total: snapshot.total,
        }
    }
}

#[derive(Serialize)]
struct Stats {
    cores: Vec<CoreStats>,
    total: Counters,
}

#[derive(Serialize)]
struct CoreStats {
    core: usize,
    destinations: Vec<DestinationRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
struct DestinationRow {
    key: String,
    #[serde(flatten)]
    counters: Counters,
}

#[derive(Serialize)]
struct Counters {
    acquired: u32,
    idle: u32,
    connecting: u32,
    pending: u32,
    acquires: Acquires,
    #[serde(serialize_with = "by_reason")]
    closes: DestinationStats,
    timeouts: Timeouts,
}

#[derive(Serialize)]
struct Acquires {
    fresh: u64,
    reused: u64,
    queued: u64,
}

#[derive(Serialize)]
struct Timeouts {
    acquire: u64,
    connect: u64,
    hold: u64,
}

impl Counters {
    fn of(stats: &DestinationStats) -> Self {
        Self {
            acquired: stats.acquired.current,
            idle: stats.idle.current,
            connecting: stats.connecting.current,
            pending: stats.pending.current,
            acquires: Acquires {
                fresh: stats.acquires.fresh,
                reused: stats.acquires.reused,
                queued: stats.acquires.queued,
            },
            closes: *stats,
            timeouts: Timeouts {
                acquire: stats.timeouts.acquire,
                connect: stats.timeouts.connect,
                hold: stats.timeouts.hold,
            },
        }
    }
}

fn by_reason<S: Serializer>(stats: &DestinationStats, serializer: S) -> Result<S::Ok, S::Error> {
    let closes = CloseReason::ALL
        .iter()
        .map(|reason| (reason.as_str(), stats.closed(*reason)));
    serializer.collect_map(closes)
}
