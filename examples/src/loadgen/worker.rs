//! A thread that loads: a core with a pool and a client of its own, and a task for each connection.

use std::cell::{Cell, RefCell};
use std::error::Error as StdError;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use futures_channel::oneshot;
use futures_lite::FutureExt;
use http_client::{
    Client, ClientConfig, Destination, ErrorKind, Outgoing, RetryTable, Sent, Timeouts,
};
use pool_core::{ConfigError, Core, CoreThread, Pool, PoolConfig, StartError};

use super::arrivals::{Arrivals, Schedule};
use super::counted::CountedConnector;
use super::plan::Encoded;
use super::record::{Interval, Recorder, Tally};

/// After a request of which nothing was sent: a server that refuses connections is not to be called
/// in a loop without a pause.
const PAUSE: Duration = Duration::from_millis(1);

/// The part of a run that a thread has.
#[derive(Clone, Debug)]
pub(super) struct Share {
    pub(super) thread: usize,
    pub(super) threads: usize,
    pub(super) cpu: usize,
    pub(super) connections: u32,
    pub(super) request: Encoded,
    pub(super) timeout: Option<Duration>,
    pub(super) warmup: Duration,
    pub(super) longest: Duration,
    /// How many requests all threads together are to send.
    pub(super) requests: Option<u64>,
    /// How many requests per second all threads together are to start: open loop.
    pub(super) rate: Option<u32>,
    pub(super) max_waiting: usize,
}

/// A thread's part of a whole: the first threads have one more where it does not divide.
pub(super) fn part(all: u64, thread: usize, threads: usize) -> u64 {
    let (thread, threads) = (thread as u64, threads as u64);
    all / threads + u64::from(thread < all % threads)
}

impl Share {
    /// How many of the requests are this thread's.
    fn own_requests(&self) -> Option<u64> {
        Some(part(self.requests?, self.thread, self.threads))
    }

    fn measured_from(&self, begun: Instant) -> Instant {
        begun + self.warmup
    }

    /// Open loop: when this thread's requests are meant to start, those of the warm-up first.
    fn starts(&self, begun: Instant) -> Option<impl Iterator<Item = Instant> + use<>> {
        let rate = self.rate?;
        let measured_from = self.measured_from(begun);
        let until = measured_from + self.longest;
        let schedule = |from| Schedule {
            from,
            rate,
            thread: self.thread as u64,
            threads: self.threads as u64,
        };
        let warmup = schedule(begun).starts(None);
        let measured = schedule(measured_from).starts(self.requests);
        let warmup = warmup.take_while(move |start| *start < measured_from);
        Some(warmup.chain(measured.take_while(move |start| *start < until)))
    }

    fn pool_config(&self) -> Result<PoolConfig, ConfigError> {
        PoolConfig::builder()
            .max_connections(self.connections)
            .acquire_timeout(None)
            .connect_timeout(self.timeout)
            .hold_timeout(None)
            .build()
    }

    fn client_config(&self) -> Result<ClientConfig, ConfigError> {
        // One limit over all of a request: whatever hangs, it is told as that.
        let timeouts = Timeouts::builder()
            .total(self.timeout)
            .response_head(None)
            .body_idle(None)
            .write_stall(None);
        Ok(ClientConfig::default()
            .timeouts(timeouts.build()?)
            .retry(RetryTable::none())
            .retry_budget(None))
    }
}

/// What a thread tells while it runs.
#[derive(Debug)]
pub(super) enum News {
    /// The server can be reached.
    Ready,
    /// It cannot, and this is why.
    Unreachable(String),
    /// A second has passed, counted from 1; what was measured in it.
    Second(usize, u64, Box<Interval>),
    /// The thread has ended; it will tell nothing more.
    Ended(usize),
}

/// A thread at work.
#[derive(Debug)]
pub(super) struct Worker {
    thread: CoreThread<Option<Tally>>,
    go: Option<oneshot::Sender<Instant>>,
    stop: Option<oneshot::Sender<()>>,
}

impl Worker {
    /// Starts a thread, which then sees whether the server can be reached, and waits.
    pub(super) fn start(share: Share, news: mpsc::Sender<News>) -> Result<Self, StartError> {
        let (go, gone) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        let builder = Core::builder()
            .name(format!("load-{}", share.thread))
            .cpu(Some(share.cpu));
        let thread = builder.spawn(move |core| async move {
            let _ended = Ended(share.thread, news.clone());
            run(core, share, news, gone, stopped).await
        })?;
        Ok(Self {
            thread,
            go: Some(go),
            stop: Some(stop),
        })
    }

    /// Lets it begin, at this moment.
    pub(super) fn begin(&mut self, at: Instant) {
        if let Some(go) = self.go.take() {
            let _ = go.send(at);
        }
    }

    pub(super) fn stop(&mut self) {
        // One that waits for its begin hears of the end by that.
        self.go = None;
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    /// Waits for its end. `None` if it never began, or died: its panic is on stderr then.
    pub(super) fn join(self) -> Option<Tally> {
        self.thread.join().ok().flatten()
    }
}

/// Tells of the end however it comes.
struct Ended(usize, mpsc::Sender<News>);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.1.send(News::Ended(self.0));
    }
}

async fn run(
    core: Core,
    share: Share,
    news: mpsc::Sender<News>,
    go: oneshot::Receiver<Instant>,
    stopped: oneshot::Receiver<()>,
) -> Option<Tally> {
    let reached = match Reached::the_server(&core, &share).await {
        Ok(reached) => reached,
        Err(why) => {
            let _ = news.send(News::Unreachable(why));
            return None;
        }
    };
    let _ = news.send(News::Ready);
    let begun = go.await.ok()?;
    let load = Rc::new(Load::new(core, share, reached, begun));
    let all_ended = load.start();
    let stopped = async {
        // A handle that was dropped stops it too.
        let _ = stopped.await;
    };
    stopped
        .or(all_ended)
        .or(load.sleep_until(load.until()))
        .or(load.tell_seconds(&news))
        .await;
    Some(load.close(&news))
}

/// A client whose server can be reached.
struct Reached {
    client: Client<CountedConnector>,
    destination: Destination,
    read: Rc<Cell<u64>>,
}

impl Reached {
    /// The connection that shows it is the first of those that load.
    async fn the_server(core: &Core, share: &Share) -> Result<Self, String> {
        let told = |error: ConfigError| error.to_string();
        let request = &share.request.destination;
        let destination: Destination = request.parse().map_err(|_| request.clone())?;
        let read = Rc::new(Cell::new(0));
        let connector = CountedConnector::new(core, Rc::clone(&read));
        let pool = Pool::new(core, share.pool_config().map_err(told)?, connector);
        let client = Client::new(pool, share.client_config().map_err(told)?);
        let connection = client.pool().acquire(&destination).await;
        connection.map_err(|error| in_full(&error))?.release();
        Ok(Self {
            client,
            destination,
            read,
        })
    }
}

fn in_full(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// What the tasks of a thread share.
struct Load {
    core: Core,
    share: Share,
    client: Client<CountedConnector>,
    destination: Destination,
    read: Rc<Cell<u64>>,
    measured_from: Instant,
    recorder: RefCell<Recorder>,
    /// The seconds that have been told.
    seconds: Cell<u64>,
    /// When the request began that each connection has under way.
    under_way: Vec<Cell<Option<Instant>>>,
    /// How many requests may still be begun.
    left: Cell<Option<u64>>,
    arrivals: Option<Arrivals>,
    closed: Cell<bool>,
}

impl Load {
    fn new(core: Core, share: Share, reached: Reached, begun: Instant) -> Self {
        let connections = usize::try_from(share.connections).unwrap_or(usize::MAX);
        Self {
            core,
            client: reached.client,
            destination: reached.destination,
            read: reached.read,
            measured_from: share.measured_from(begun),
            recorder: RefCell::new(Recorder::new()),
            seconds: Cell::new(0),
            under_way: vec![Cell::new(None); connections],
            left: Cell::new(share.own_requests()),
            arrivals: share
                .starts(begun)
                .map(|starts| Arrivals::new(starts, share.max_waiting, connections)),
            closed: Cell::new(false),
            share,
        }
    }

    /// Starts the connections; what it returns ends when all have.
    fn start(self: &Rc<Self>) -> impl Future<Output = ()> + use<> {
        let (sender, ended) = oneshot::channel::<()>();
        let sender = Rc::new(sender);
        for slot in 0..self.under_way.len() {
            let (load, sender) = (Rc::clone(self), Rc::clone(&sender));
            self.core.spawn(async move {
                // The last one to drop it has ended last, by a panic too.
                let _sender = sender;
                load.ask_on(slot).await;
            });
        }
        let load = Rc::clone(self);
        self.core.spawn(async move { load.pace().await });
        async move {
            let _ = ended.await;
        }
    }

    /// One connection's requests, one after the other.
    async fn ask_on(&self, slot: usize) {
        let mut begun = None;
        while let Some(start) = self.next_start(begun).await {
            self.under_way[slot].set(Some(start));
            let outcome = self.exchange().await;
            let now = Instant::now();
            self.under_way[slot].set(None);
            begun = Some(now);
            if start >= self.measured_from && !self.closed.get() {
                let latency = now.saturating_duration_since(start);
                let counted = outcome.map_err(|failed| failed.kind);
                self.recorder.borrow_mut().record(latency, counted);
            }
            if outcome.is_err_and(|failed| failed.unsent) {
                self.core.sleep(PAUSE).await;
                begun = None;
            }
        }
    }

    /// When the next request is to start that nobody has begun: in a closed loop now, which is when
    /// the one before has ended; `None` if there is to be none.
    async fn next_start(&self, ended: Option<Instant>) -> Option<Instant> {
        if let Some(arrivals) = &self.arrivals {
            return arrivals.next().await;
        }
        let now = ended.unwrap_or_else(Instant::now);
        if now < self.measured_from {
            return Some(now);
        }
        match self.left.get() {
            None => {}
            Some(0) => return None,
            Some(left) => self.left.set(Some(left - 1)),
        }
        Some(now)
    }

    /// Sends a request and reads its response to the end.
    async fn exchange(&self) -> Result<u16, Failed> {
        let request = &self.share.request;
        let outgoing = Outgoing::new(request.head.clone(), request.sent, request.body());
        let answered = self.client.exchange(&self.destination, outgoing, |_| {});
        let (head, mut body) = answered.await.map_err(Failed::of)?;
        while let Some(frame) = body.frame().await {
            frame.map_err(Failed::of)?;
        }
        Ok(head.status())
    }

    /// Lets requests arrive at their times.
    async fn pace(&self) {
        let Some(arrivals) = &self.arrivals else {
            return;
        };
        while let Some(start) = arrivals.next_start() {
            self.sleep_until(start).await;
            self.admit(arrivals, Instant::now());
        }
        // Where the time is what ends it, it is to run for that time.
        if self.share.requests.is_some() {
            arrivals.close();
        }
    }

    fn admit(&self, arrivals: &Arrivals, now: Instant) {
        arrivals.admit(now, |start| {
            if start >= self.measured_from {
                self.recorder.borrow_mut().record_drop();
            }
        });
    }

    /// When it ends, where nothing else ends it before.
    fn until(&self) -> Instant {
        self.measured_from + self.share.longest
    }

    async fn sleep_until(&self, at: Instant) {
        let limit = at.saturating_duration_since(Instant::now());
        if !limit.is_zero() {
            self.core.sleep(limit).await;
        }
    }

    /// Tells each second what was measured in it, without an end.
    async fn tell_seconds(&self, news: &mpsc::Sender<News>) {
        self.sleep_until(self.measured_from).await;
        self.recorder.borrow_mut().begin(self.read.get());
        loop {
            let second = Duration::from_secs(self.seconds.get() + 1);
            self.sleep_until(self.measured_from + second).await;
            self.tell_second(news);
        }
    }

    fn tell_second(&self, news: &mpsc::Sender<News>) {
        let number = self.seconds.get() + 1;
        self.seconds.set(number);
        let at = Instant::now().saturating_duration_since(self.measured_from);
        let ended = self.recorder.borrow_mut().end_interval(at, self.read.get());
        let _ = news.send(News::Second(self.share.thread, number, Box::new(ended)));
    }

    /// Ends the measurement: what is still under way is counted as that.
    fn close(&self, news: &mpsc::Sender<News>) -> Tally {
        self.closed.set(true);
        let now = Instant::now();
        if let Some(arrivals) = &self.arrivals {
            // What this thread was too late to see was meant to start all the same.
            self.admit(arrivals, now);
        }
        if now > self.measured_from {
            self.tell_second(news);
        }
        let waiting = self.arrivals.iter().flat_map(Arrivals::take_waiting);
        let under_way = self.under_way.iter().filter_map(Cell::get);
        let unfinished = under_way
            .chain(waiting)
            .filter(|start| *start >= self.measured_from);
        let mut total = self.recorder.replace(Recorder::new()).total;
        for start in unfinished {
            total.unfinished += 1;
            let waited = now.saturating_duration_since(start);
            total.longest_unfinished = total.longest_unfinished.max(waited);
        }
        total.elapsed = now.saturating_duration_since(self.measured_from);
        total.opened = self.client.pool().snapshot().total.opened;
        total
    }
}

/// A request that failed.
#[derive(Clone, Copy, Debug)]
struct Failed {
    kind: ErrorKind,
    unsent: bool,
}

impl Failed {
    #[allow(clippy::needless_pass_by_value, reason = "it maps an error")]
    fn of(error: http_client::Error) -> Self {
        Self {
            kind: error.kind(),
            unsent: error.sent() == Sent::None,
        }
    }
}
