//! A running gateway, with a scripted upstream behind it.

use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::{Arc, Mutex};

use clap::Parser;
use pinpool_examples::gateway::{Gateway, Settings, Totals};
use pinpool_examples::server::Timeouts;
use serde_json::Value;
use test_support::{DEADLINE, Peer, Request, Server, eventually};

use super::client::{Client, Response};

/// Settings from flags as a shell would split them. Without a word on it a test gets one core, and
/// ports from the kernel.
pub(crate) fn settings(flags: &str) -> Settings {
    let mut line = vec!["gateway"];
    line.extend(flags.split_whitespace());
    for (flag, value) in [
        ("--listen", "127.0.0.1:0"),
        ("--admin", "127.0.0.1:0"),
        ("--cores", "1"),
    ] {
        if !line.contains(&flag) {
            line.extend([flag, value]);
        }
    }
    Settings::try_parse_from(line).expect("good flags")
}

/// A running gateway. Dropped it stops; [`finish`](Self::finish) also checks its books.
pub(crate) struct Running(Option<Gateway>);

impl Running {
    pub(crate) fn start(flags: &str) -> Self {
        Self::start_with(&settings(flags))
    }

    fn start_with(settings: &Settings) -> Self {
        Self(Some(Gateway::start(settings).expect("the gateway starts")))
    }

    /// In front of these addresses.
    pub(crate) fn before(upstreams: &[SocketAddr], flags: &str) -> Self {
        Self::patient(upstreams, flags, Timeouts::default())
    }

    /// In front of these addresses, and as patient with its clients as it is told to be.
    pub(crate) fn patient(upstreams: &[SocketAddr], flags: &str, timeouts: Timeouts) -> Self {
        let upstreams = upstreams
            .iter()
            .map(|address| format!("--upstream http://{address} "));
        let mut settings = settings(&(upstreams.collect::<String>() + flags));
        settings.client_timeouts = timeouts;
        Self::start_with(&settings)
    }

    pub(crate) fn gateway(&self) -> &Gateway {
        self.0.as_ref().expect("it runs until it is stopped")
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.gateway().address())
    }

    /// Asks the admin address.
    pub(crate) fn admin(&self, request: &str) -> Response {
        let mut client = Client::connect(self.gateway().admin_address());
        client.send(request);
        client.response()
    }

    pub(crate) fn stats(&self) -> Value {
        let response = self.admin(&super::get("/stats"));
        assert_eq!(response.status(), 200);
        serde_json::from_slice(&response.body).expect("JSON")
    }

    /// A number of the total, by its place: `acquires/fresh`.
    pub(crate) fn count(&self, place: &str) -> u64 {
        let stats = self.stats();
        let count = stats.pointer(&format!("/total/{place}"));
        let count = count.and_then(Value::as_u64);
        count.unwrap_or_else(|| panic!("no count {place} in {stats}"))
    }

    #[track_caller]
    pub(crate) fn wait_for(&self, place: &str, count: u64) {
        eventually(DEADLINE, || self.count(place) == count);
    }

    /// Waits until nothing is acquired, connecting or pending.
    #[track_caller]
    pub(crate) fn wait_settled(&self) {
        eventually(DEADLINE, || {
            let stats = self.stats();
            let total = &stats["total"];
            ["acquired", "connecting", "pending"]
                .iter()
                .all(|gauge| total[gauge] == 0)
        });
    }

    /// How many upstream connections were closed for any reason, by reason.
    pub(crate) fn closes(&self) -> Vec<(String, u64)> {
        let stats = self.stats();
        let closes = stats["total"]["closes"].as_object().expect("an object");
        let counts = closes
            .iter()
            .map(|(reason, count)| (reason.clone(), count.as_u64().expect("a count")));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    pub(crate) fn stop(mut self) -> Totals {
        self.0.take().expect("it runs until it is stopped").stop()
    }

    /// Stops it once its books balance.
    #[track_caller]
    pub(crate) fn finish(self) -> Totals {
        self.wait_settled();
        assert_eq!(self.gateway().dead_core(), None);
        self.stop()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(gateway) = self.0.take() {
            gateway.stop();
        }
    }
}

/// A gateway in front of one scripted upstream.
pub(crate) struct Rig {
    running: Running,
    pub(crate) server: Server,
}

impl Rig {
    pub(crate) fn new(
        script: impl Fn(&mut Peer) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::with("", script)
    }

    /// A gateway with these flags beside its upstream.
    pub(crate) fn with(
        flags: &str,
        script: impl Fn(&mut Peer) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::patient(flags, Timeouts::default(), script)
    }

    /// A gateway with these flags, and as patient with its clients as it is told to be.
    pub(crate) fn patient(
        flags: &str,
        timeouts: Timeouts,
        script: impl Fn(&mut Peer) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let server = Server::script(script);
        let running = Running::patient(&[server.addr()], flags, timeouts);
        Self { running, server }
    }

    /// An upstream that notes each request and answers it with `answer`.
    pub(crate) fn recording(answer: impl AsRef<[u8]>) -> (Self, Record) {
        let record = Record::default();
        (Self::new(recording(&record, answer)), record)
    }

    /// The upstream as the gateway names it.
    pub(crate) fn upstream(&self) -> String {
        format!("http://{}", self.server.addr())
    }

    /// Stops the gateway once its books balance, and checks the scripts.
    #[track_caller]
    pub(crate) fn finish(self) -> Totals {
        let totals = self.running.finish();
        self.server.finish();
        totals
    }

    /// The gateway and its upstream, to stop one while the other goes on.
    pub(crate) fn split(self) -> (Running, Server) {
        (self.running, self.server)
    }
}

impl Deref for Rig {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.running
    }
}

/// The requests that an upstream has read, in their order.
#[derive(Clone, Default)]
pub(crate) struct Record(Arc<Mutex<Vec<Request>>>);

impl Record {
    pub(crate) fn push(&self, request: Request) {
        self.0.lock().expect("no panic under it").push(request);
    }

    pub(crate) fn all(&self) -> Vec<Request> {
        self.0.lock().expect("no panic under it").clone()
    }

    /// The heads as text.
    pub(crate) fn heads(&self) -> Vec<String> {
        let requests = self.all();
        let heads = requests
            .iter()
            .map(|request| String::from_utf8_lossy(&request.head).into_owned());
        heads.collect()
    }
}

/// Notes each request and answers it with `answer`.
pub(crate) fn recording(
    record: &Record,
    answer: impl AsRef<[u8]>,
) -> impl Fn(&mut Peer) -> io::Result<()> + Send + Sync + 'static {
    let record = record.clone();
    let answer = answer.as_ref().to_vec();
    move |peer| {
        while let Some(request) = peer.read_request()? {
            record.push(request);
            peer.answer(&answer)?;
        }
        Ok(())
    }
}
