//! A small origin server to point a proxy or a load generator at.
//!
//! | path | answer |
//! |---|---|
//! | `/` | a line of text |
//! | `/bytes/N` | N bytes, with their length |
//! | `/chunked/N` | N bytes, chunked |
//! | `/echo` | the request's body, framed as it came, with its trailers |
//! | `/count` | how many bytes the request's body had |
//! | `/status/N` | status N, from 200 to 999 |

use std::net::SocketAddr;

use bytes::Bytes;
use http_codec::{BodyLength, EncodeError, Fields, RequestHead};

use crate::server::{BodyPart, Fault, Lost, Refusal, Service, ServiceError, Session};

const HELLO: &str = "pinpool origin: try /bytes/1024, /chunked/1024, /echo, /count, /status/404\n";

/// A body is made of copies of this.
static PIECE: [u8; 16 << 10] = [b'x'; 16 << 10];

/// More is queued only below this.
const QUEUED_BYTES: usize = 64 << 10;

/// Starts the origin on a core of its own, which is not pinned to a CPU.
///
/// # Errors
///
/// [`ServiceError`].
pub fn start(address: SocketAddr) -> Result<Service, ServiceError> {
    start_on(None, address)
}

/// Starts the origin on a core of its own, pinned to `cpu` if there is one.
///
/// # Errors
///
/// [`ServiceError`].
pub fn start_on(cpu: Option<usize>, address: SocketAddr) -> Result<Service, ServiceError> {
    Service::start_on("origin", cpu, address, serve)
}

/// Why a response has no end.
enum Broken {
    Client,
    Encode,
}

impl From<EncodeError> for Broken {
    fn from(_: EncodeError) -> Self {
        Self::Encode
    }
}

impl From<Fault> for Broken {
    fn from(_: Fault) -> Self {
        Self::Client
    }
}

impl From<Lost> for Broken {
    fn from(_: Lost) -> Self {
        Self::Client
    }
}

impl From<std::io::Error> for Broken {
    fn from(_: std::io::Error) -> Self {
        Self::Client
    }
}

async fn serve(mut session: Session) {
    loop {
        let answered = match session.next_request().await {
            Ok(Some(head)) => answer(&mut session, &head).await,
            Ok(None) | Err(Refusal::Fault(Fault::Gone(_))) => return,
            Err(Refusal::TooSlow) => text(&session, 408),
            Err(Refusal::Fault(Fault::Malformed(error))) => text(&session, error.reply_status()),
        };
        if answered.is_err() || !session.finish().await {
            return;
        }
    }
}

async fn answer(session: &mut Session, head: &RequestHead) -> Result<(), Broken> {
    let path = head.target().split('?').next().unwrap_or_default();
    let (name, number) = path[1.min(path.len())..]
        .split_once('/')
        .unwrap_or((&path[1..], ""));
    if !matches!(name, "echo" | "count") {
        session.discard_body().await;
    }
    match (name, number.parse::<u64>()) {
        ("", _) => Ok(session.answer(200, HELLO, |_| Ok(()))?),
        ("bytes", Ok(length)) => send(session, BodyLength::Exact(length), length).await,
        ("chunked", Ok(length)) => send(session, BodyLength::Chunked, length).await,
        ("status", Ok(status @ 200..1000)) => text(session, u16::try_from(status).unwrap_or(500)),
        ("echo", _) => echo(session, head).await,
        ("count", _) => count(session).await,
        _ => text(session, 404),
    }
}

fn text(session: &Session, status: u16) -> Result<(), Broken> {
    Ok(session.answer(status, format!("{status}\n"), |_| Ok(()))?)
}

async fn send(session: &mut Session, length: BodyLength, bytes: u64) -> Result<(), Broken> {
    session.respond(200, length, |_| Ok(()))?;
    let mut left = if session.connection().body_allowed() {
        bytes
    } else {
        0
    };
    while left > 0 {
        let piece = usize::try_from(left).map_or(PIECE.len(), |left| left.min(PIECE.len()));
        session
            .connection()
            .push(Bytes::from_static(&PIECE[..piece]))?;
        left -= piece as u64;
        if session.connection().queued() >= QUEUED_BYTES {
            session.flush().await?;
        }
    }
    Ok(session.connection().end(None)?)
}

/// The first piece is read before the response begins, so that a client that waits for 100 gets
/// it.
async fn echo(session: &mut Session, head: &RequestHead) -> Result<(), Broken> {
    let mut part = next_part(session).await?;
    session.respond_and_read_on(200, head.body_length(), |_| Ok(()))?;
    loop {
        match part {
            BodyPart::Data(data) => {
                if session.connection().body_allowed() {
                    session.connection().push(data)?;
                }
            }
            BodyPart::End(trailers) => {
                let trailers = trailers.unwrap_or_default();
                let trailers = trailer_lines(&trailers);
                return Ok(session.connection().end(Some(&trailers))?);
            }
        }
        session.flush().await?;
        part = next_part(session).await?;
    }
}

fn trailer_lines(fields: &Fields) -> Vec<(&str, &[u8])> {
    fields
        .iter()
        .map(|field| (field.name, field.value))
        .collect()
}

async fn count(session: &mut Session) -> Result<(), Broken> {
    let mut bytes = 0;
    while let BodyPart::Data(data) = next_part(session).await? {
        bytes += data.len() as u64;
    }
    Ok(session.answer(200, format!("{bytes}\n"), |_| Ok(()))?)
}

/// The next piece of the request's body; what is queued leaves meanwhile.
async fn next_part(session: &mut Session) -> Result<BodyPart, Broken> {
    let part = session.beside_client(|session, cx| session.connection().poll_body(cx));
    Ok(part.await??)
}
