//! The course of a connection: request by request, and what each is answered with.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http_codec::{Limits, RequestHead, ServerExchange};
use pool_core::{Core, TcpStream};

use super::answer::{self, Head, Malformed, TEN};
use super::catalogue::{self, CATALOGUE};
use super::keys::Keys;
use super::mix;
use super::plan::{Afterwards, NoPlan, Part, Place, Plan, Then, plan};
use super::tally::Tally;
use super::wire::{Gone, NoRequest, Wire};

/// How long a client may take for a whole request, from the end of the answer before.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The most that `/echo` keeps.
const MOST_ECHO: usize = 1 << 20;

/// The most that is written at a time.
const PIECE: usize = 64 << 10;

/// A head that never ends is given up after so many pieces: 16 MiB.
const ENDLESS_PIECES: usize = 256;

static FILL: [u8; PIECE] = [b'x'; PIECE];

/// What the connections of an origin share.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) address: SocketAddr,
    pub(super) seed: u64,
    pub(super) tally: Arc<Tally>,
    pub(super) flaky: RefCell<Keys>,
    pub(super) mix: RefCell<Keys>,
}

/// How a connection goes on after an exchange.
#[derive(Debug)]
enum Next {
    Request,
    /// The client is owed a close that loses no answer.
    Finish,
    Close,
    Reset,
}

/// What matters of a request beside its target.
#[derive(Clone, Copy, Debug)]
struct Asked {
    is_head: bool,
    /// The client will send no other request.
    last: bool,
}

/// Counts the connection as closed, however its task ends.
struct Open(Arc<Tally>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.closed.add();
    }
}

/// Serves an accepted connection, which is counted already, until it ends.
pub(super) async fn serve(origin: Rc<Origin>, core: Core, stream: TcpStream) {
    let _open = Open(Arc::clone(&origin.tally));
    let mut wire = Wire::new(&core, stream);
    loop {
        match exchange(&origin, &mut wire).await {
            Ok(Next::Request) => {}
            Ok(Next::Finish) => return wire.finish().await,
            Ok(Next::Reset) => return wire.reset(),
            Ok(Next::Close) | Err(Gone) => return,
        }
    }
}

async fn exchange(origin: &Origin, wire: &mut Wire) -> Result<Next, Gone> {
    let core = wire.core().clone();
    let limit = core.now().saturating_add(REQUEST_TIMEOUT);
    let left = || limit.saturating_duration_since(core.now());
    let mut request = ServerExchange::new(&Limits::default());
    let head = core.timeout(left(), wire.head(&mut request)).await;
    let head = match head.map_err(|_| Gone)? {
        Ok(head) => head,
        Err(why) => return refuse_request(origin, wire, why).await,
    };
    let asked = Asked {
        is_head: head.method() == "HEAD",
        last: !head.keep_alive(),
    };
    let plan = origin.plan(&head);
    if let Ok(Plan::Early { status }) = plan {
        let early = Asked {
            last: true,
            ..asked
        };
        text(wire, early, status, "too early\n").await?;
        // Unread bytes make this a reset.
        return Ok(Next::Close);
    }
    if head.expects_continue() {
        wire.write(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
    }
    let most = match plan {
        Ok(Plan::Echo) => MOST_ECHO,
        _ => 0,
    };
    let body = core.timeout(left(), wire.body(&mut request, most)).await;
    let body = match body.map_err(|_| Gone)? {
        Ok(body) => body,
        Err(why) => return refuse_request(origin, wire, why).await,
    };
    match (plan, body) {
        (Ok(Plan::Echo), Some(body)) => {
            let head = Head::new(200).field("Content-Length", body.len());
            answered(wire, asked, head, &body).await
        }
        (Ok(Plan::Echo), None) => {
            let what = format!("/echo takes up to {MOST_ECHO} bytes\n");
            text(wire, asked, 413, &what).await
        }
        (Ok(plan), _) => perform(origin, wire, asked, plan).await,
        (Err((status, why)), _) => text(wire, asked, status, &why).await,
    }
}

async fn refuse_request(origin: &Origin, wire: &mut Wire, why: NoRequest) -> Result<Next, Gone> {
    let NoRequest::Malformed(error) = why else {
        return Err(Gone);
    };
    origin.tally.malformed.add();
    let asked = Asked {
        is_head: false,
        last: true,
    };
    text(wire, asked, error.reply_status(), &format!("{error}\n")).await
}

impl Origin {
    /// Counts the request, and says what it gets: never `Flaky` or `Mix`, which are decided here.
    fn plan(&self, head: &RequestHead) -> Result<Plan, (u16, String)> {
        let (entry, plan) = match plan(head.target()) {
            Ok(planned) => planned,
            Err(NoPlan::NotFound) => {
                self.tally.unknown.add();
                return Err((404, "no such path; / lists them all\n".to_owned()));
            }
            Err(NoPlan::Bad(entry, why)) => {
                self.tally.requests[entry].add();
                return Err((400, format!("{}: {why}\n", CATALOGUE[entry].path)));
            }
        };
        self.tally.requests[entry].add();
        Ok(match plan {
            Plan::Flaky { key, fail, refused } => {
                let before = self.flaky.borrow_mut().count(&key);
                match before < fail {
                    true => Plan::Status(refused),
                    false => Plan::Bytes(TEN.len() as u64),
                }
            }
            Plan::Mix { seed, faults, ms } => {
                let seed = seed.unwrap_or(self.seed);
                let number = self.mix.borrow_mut().count(&seed.to_string());
                let (fault, plan) = mix::pick(seed, number, faults, ms);
                self.tally.mix[fault].add();
                plan
            }
            plan => plan,
        })
    }
}

async fn perform(origin: &Origin, wire: &mut Wire, asked: Asked, plan: Plan) -> Result<Next, Gone> {
    match plan {
        Plan::Index => text(wire, asked, 200, &catalogue::index(origin.address)).await,
        Plan::Counts => counts(origin, wire, asked).await,
        Plan::Bytes(length) => bytes(wire, asked, length).await,
        Plan::Status(refused) => {
            let body = format!("{}\n", refused.status);
            finish_head(wire, asked, refused.status, answer::refusal(refused), &body).await
        }
        Plan::Cut { at, then } => cut(wire, asked, at, then).await,
        Plan::After { ms, then } => after(wire, asked, ms, then).await,
        Plan::Drip { part, ms, bytes } => drip(wire, asked, part, ms, bytes).await,
        Plan::Interim { status, count } => interim(wire, asked, status, count).await,
        Plan::Bodiless {
            status,
            length,
            stray,
        } => bodiless(wire, asked, status, length, stray).await,
        Plan::Malformed(what) => malformed(wire, what).await,
        Plan::Echo | Plan::Early { .. } | Plan::Flaky { .. } | Plan::Mix { .. } => {
            unreachable!("decided before")
        }
    }
}

/// Sends a whole response with a body of text.
async fn text(wire: &mut Wire, asked: Asked, status: u16, body: &str) -> Result<Next, Gone> {
    finish_head(wire, asked, status, Head::new(status), body).await
}

/// Sends a whole response whose head is begun, with the body where the status allows one.
async fn finish_head(
    wire: &mut Wire,
    asked: Asked,
    status: u16,
    head: Head,
    body: &str,
) -> Result<Next, Gone> {
    let (head, body) = match status {
        204 | 304 => (head, ""),
        205 => (head.field("Content-Length", 0), ""),
        _ => {
            let head = head.field("Content-Type", "text/plain");
            (head.field("Content-Length", body.len()), body)
        }
    };
    answered(wire, asked, head, body.as_bytes()).await
}

/// Ends the head and sends it with the body that it announces.
async fn answered(wire: &mut Wire, asked: Asked, head: Head, body: &[u8]) -> Result<Next, Gone> {
    let mut answer = head.last(asked.last).end();
    if !asked.is_head {
        answer.extend_from_slice(body);
    }
    wire.write(&answer).await?;
    Ok(asked.next())
}

impl Asked {
    fn next(self) -> Next {
        match self.last {
            true => Next::Finish,
            false => Next::Request,
        }
    }
}

async fn counts(origin: &Origin, wire: &mut Wire, asked: Asked) -> Result<Next, Gone> {
    match serde_json::to_string(&origin.tally.counts()) {
        Ok(json) => {
            let json = json + "\n";
            let head = Head::new(200).field("Content-Type", "application/json");
            let head = head.field("Content-Length", json.len());
            answered(wire, asked, head, json.as_bytes()).await
        }
        Err(error) => text(wire, asked, 500, &format!("{error}\n")).await,
    }
}

async fn bytes(wire: &mut Wire, asked: Asked, length: u64) -> Result<Next, Gone> {
    let head = Head::new(200).field("Content-Length", length);
    wire.write(&head.last(asked.last).end()).await?;
    let mut left = if asked.is_head { 0 } else { length };
    while left > 0 {
        let piece = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
        wire.write(&FILL[..piece]).await?;
        left -= piece as u64;
    }
    Ok(asked.next())
}

async fn cut(wire: &mut Wire, asked: Asked, at: Place, then: Then) -> Result<Next, Gone> {
    let (first, rest) = answer::cut(at, asked.is_head, asked.last);
    wire.write(&first).await?;
    match then {
        Then::Close => Ok(Next::Close),
        Then::Reset => Ok(Next::Reset),
        Then::Stall(ms) => {
            wire.pause(ms).await?;
            wire.write(&rest).await?;
            Ok(asked.next())
        }
    }
}

async fn after(wire: &mut Wire, asked: Asked, ms: u64, then: Afterwards) -> Result<Next, Gone> {
    let head = Head::new(200).field("Content-Length", TEN.len());
    answered(wire, asked, head, TEN).await?;
    wire.pause(ms).await?;
    match then {
        Afterwards::Close => Ok(Next::Close),
        Afterwards::Reset => Ok(Next::Reset),
        Afterwards::Stray(bytes) => {
            wire.write(&FILL[..bytes]).await?;
            Ok(asked.next())
        }
    }
}

async fn drip(
    wire: &mut Wire,
    asked: Asked,
    part: Part,
    ms: u64,
    bytes: u64,
) -> Result<Next, Gone> {
    let length = usize::try_from(bytes).unwrap_or(PIECE).min(PIECE);
    let head = Head::new(200).field("Content-Length", length);
    let head = head.last(asked.last).end();
    let body = if asked.is_head { &[] } else { &FILL[..length] };
    let (whole_first, dripping, whole_last) = match part {
        Part::Head => (&[][..], &*head, body),
        Part::Body => (&*head, body, &[][..]),
    };
    wire.write(whole_first).await?;
    for byte in dripping {
        wire.pause(ms).await?;
        wire.write(std::slice::from_ref(byte)).await?;
    }
    wire.write(whole_last).await?;
    Ok(asked.next())
}

async fn interim(wire: &mut Wire, asked: Asked, status: u16, count: u64) -> Result<Next, Gone> {
    let head = Head::new(status);
    let head = match status {
        103 => head.field("Link", "</style.css>; rel=preload; as=style"),
        _ => head,
    };
    let one = head.end();
    let at_a_time = (PIECE / one.len()) as u64;
    let mut left = count;
    while left > 0 {
        let now = left.min(at_a_time);
        wire.write(&one.repeat(usize::try_from(now).unwrap_or(1)))
            .await?;
        left -= now;
    }
    let head = Head::new(200).field("Content-Length", TEN.len());
    answered(wire, asked, head, TEN).await
}

async fn bodiless(
    wire: &mut Wire,
    asked: Asked,
    status: u16,
    length: Option<u64>,
    stray: usize,
) -> Result<Next, Gone> {
    let head = Head::new(status);
    let head = match length {
        Some(length) => head.field("Content-Length", length),
        None => head,
    };
    let mut answer = head.last(asked.last).end();
    answer.extend_from_slice(&FILL[..stray]);
    wire.write(&answer).await?;
    Ok(asked.next())
}

async fn malformed(wire: &mut Wire, what: Malformed) -> Result<Next, Gone> {
    wire.write(what.bytes.as_bytes()).await?;
    if what.endless {
        for _ in 0..ENDLESS_PIECES {
            wire.write(&FILL).await?;
        }
    }
    Ok(Next::Finish)
}
