//! What was measured, as values, as a text, and as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::plan::Plan;
use super::record::{Interval, Tally};

/// The percentiles that are told.
pub(super) const PERCENTILES: [(&str, f64); 7] = [
    ("p50", 50.0),
    ("p75", 75.0),
    ("p90", 90.0),
    ("p95", 95.0),
    ("p99", 99.0),
    ("p99.9", 99.9),
    ("p99.99", 99.99),
];

/// Points of the distribution for each factor of ten towards 100 %.
const POINTS_PER_DECADE: i32 = 16;

/// What a run has measured.
///
/// As JSON it has the fields below, by their names. Latencies are in microseconds, counted from when
/// a request was meant to start to the end of its response, and those of whole responses alone.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// What was asked for.
    pub url: String,
    /// By which method.
    pub method: String,
    /// `closed`, or `open`.
    pub mode: &'static str,
    /// Open loop: how many requests were to start per second.
    pub rate: Option<u32>,
    /// How many connections were to be in use at a time.
    pub connections: u32,
    /// How many threads loaded.
    pub threads: usize,
    /// Whether connections were used again.
    pub keep_alive: bool,
    /// How long was measured, in seconds; without the warm-up.
    pub elapsed_s: f64,
    /// Requests that got a whole response.
    pub requests: u64,
    /// Those per second.
    pub requests_per_s: f64,
    /// Those of them whose status was below 400.
    pub succeeded: u64,
    /// Bytes read from the connections, heads and framing included.
    pub bytes_read: u64,
    /// Those per second.
    pub bytes_read_per_s: f64,
    /// Whole responses by class: `1xx` to `5xx`, and `other`.
    pub status_classes: BTreeMap<&'static str, u64>,
    /// Whole responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Requests that failed.
    pub errors: u64,
    /// Those by the kind of the error, by its name in `http_client::ErrorKind`.
    pub errors_by_kind: BTreeMap<String, u64>,
    /// Open loop: requests that were not begun because too many waited.
    pub dropped: u64,
    /// Requests that were under way or waiting at the end, and are not among the others.
    pub unfinished: u64,
    /// How long the oldest of those had waited by then, in seconds.
    pub longest_unfinished_s: f64,
    /// The latency of whole responses, in microseconds: `p50` to `p99.99`, `max`, `mean` and
    /// `stdev`.
    pub latency_us: BTreeMap<&'static str, f64>,
    /// Connections that were opened, the warm-up included.
    pub connections_opened: u64,
    /// The seconds in order. The last one may be shorter.
    pub seconds: Vec<Second>,
    /// The distribution: which share of the latencies is at most how long.
    pub distribution: Vec<Point>,
}

/// A second of a run.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct Second {
    /// Its number, from 1.
    pub second: u64,
    /// Its length in seconds.
    pub length_s: f64,
    /// Requests that got a whole response in it.
    pub requests: u64,
    /// Those per second.
    pub requests_per_s: f64,
    /// Requests that failed in it.
    pub errors: u64,
    /// Requests that were dropped in it.
    pub dropped: u64,
    /// Bytes read in it.
    pub bytes_read: u64,
    /// The median latency of its responses in microseconds; 0 if there was none.
    pub p50_us: f64,
    /// The 99th percentile of them.
    pub p99_us: f64,
}

/// A point of the distribution of latencies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Point {
    /// The share in percent.
    pub percentile: f64,
    /// The latency in microseconds that so many do not exceed.
    pub us: f64,
}

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

fn per_second(count: u64, elapsed: Duration) -> f64 {
    match elapsed.is_zero() {
        true => 0.0,
        false => count as f64 / elapsed.as_secs_f64(),
    }
}

impl Second {
    pub(super) fn of(number: u64, interval: &Interval) -> Self {
        let at = |percentile| micros(interval.latency.value_at_percentile(percentile));
        Self {
            second: number,
            length_s: interval.length.as_secs_f64(),
            requests: interval.requests,
            requests_per_s: per_second(interval.requests, interval.length),
            errors: interval.errors,
            dropped: interval.dropped,
            bytes_read: interval.bytes_read,
            p50_us: at(50.0),
            p99_us: at(99.0),
        }
    }
}

impl Report {
    pub(super) fn of(
        plan: &Plan,
        url: String,
        threads: usize,
        tally: &Tally,
        seconds: Vec<Second>,
    ) -> Self {
        let statuses = tally.statuses();
        let succeeded = statuses.range(..400).map(|(_, count)| count).sum();
        let mut status_classes = BTreeMap::new();
        for (status, count) in &statuses {
            *status_classes.entry(class(*status)).or_default() += count;
        }
        let (requests, errors_by_kind) = (tally.latency.len(), tally.errors());
        Self {
            url,
            method: plan.method.to_string(),
            mode: match plan.rate {
                Some(_) => "open",
                None => "closed",
            },
            rate: plan.rate,
            connections: plan.connections,
            threads,
            keep_alive: !plan.no_keep_alive,
            elapsed_s: tally.elapsed.as_secs_f64(),
            requests,
            requests_per_s: per_second(requests, tally.elapsed),
            succeeded,
            bytes_read: tally.bytes_read,
            bytes_read_per_s: per_second(tally.bytes_read, tally.elapsed),
            status_classes,
            statuses,
            errors: errors_by_kind.values().sum(),
            errors_by_kind,
            dropped: tally.dropped,
            unfinished: tally.unfinished,
            longest_unfinished_s: tally.longest_unfinished.as_secs_f64(),
            latency_us: latencies(tally),
            connections_opened: tally.opened,
            seconds,
            distribution: distribution(tally),
        }
    }

    /// How the load was made.
    pub(super) fn load_text(&self) -> String {
        let mode = match self.rate {
            Some(rate) => format!("open loop, {rate} requests/s"),
            None => "closed loop".to_owned(),
        };
        let keep_alive = match self.keep_alive {
            true => "",
            false => ", a new one for each request",
        };
        format!(
            "{mode}; connections {}{keep_alive}; threads {}",
            self.connections, self.threads
        )
    }

    /// Whether at least one request got a whole response with a status below 400.
    #[must_use]
    pub fn any_succeeded(&self) -> bool {
        self.succeeded > 0
    }
}

fn class(status: u16) -> &'static str {
    match status / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        5 => "5xx",
        _ => "other",
    }
}

fn latencies(tally: &Tally) -> BTreeMap<&'static str, f64> {
    let longest = longest(tally);
    let at = |percentile| micros(tally.latency.value_at_percentile(percentile)).min(longest);
    let named = PERCENTILES.map(|(name, percentile)| (name, at(percentile)));
    let mut all = BTreeMap::from(named);
    all.insert("max", longest);
    all.insert("mean", tally.latency.mean() / 1e3);
    all.insert("stdev", tally.latency.stdev() / 1e3);
    all
}

fn longest(tally: &Tally) -> f64 {
    micros(super::record::nanos(tally.longest))
}

/// Ever finer towards 100 %, until one point stands for one request; that is the longest one.
fn distribution(tally: &Tally) -> Vec<Point> {
    let (count, longest) = (tally.latency.len(), longest(tally));
    if count == 0 {
        return Vec::new();
    }
    let shares = (0..).map(|n| 10f64.powf(f64::from(n) / f64::from(POINTS_PER_DECADE)));
    let shares = shares.take_while(|share| *share < count as f64);
    let mut points: Vec<_> = shares
        .map(|share| {
            let percentile = 100.0 - 100.0 / share;
            let us = micros(tally.latency.value_at_percentile(percentile)).min(longest);
            Point { percentile, us }
        })
        .collect();
    let last = Point {
        percentile: 100.0,
        us: longest,
    };
    points.push(last);
    points
}

/// A latency as people read it.
pub(super) fn as_text(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{us:.1} us"),
        us if us < 1e6 => format!("{:.2} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

pub(super) fn listed<K: fmt::Display>(counts: impl IntoIterator<Item = (K, u64)>) -> String {
    let counts = counts.into_iter();
    let parts: Vec<_> = counts
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    match parts.is_empty() {
        true => "none".to_owned(),
        false => parts.join(", "),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            requests,
            elapsed_s,
            requests_per_s,
            ..
        } = self;
        writeln!(f, "target       {} {}", self.method, self.url)?;
        writeln!(f, "load         {}", self.load_text())?;
        writeln!(
            f,
            "requests     {requests} in {elapsed_s:.2} s, {requests_per_s:.1}/s"
        )?;
        let (read, rate) = (self.bytes_read as f64 / 1e6, self.bytes_read_per_s / 1e6);
        writeln!(f, "transfer     {read:.2} MB read, {rate:.2} MB/s")?;
        let classes = self.status_classes.iter();
        writeln!(f, "statuses     {}", listed(classes.map(|(k, n)| (k, *n))))?;
        let kinds = self.errors_by_kind.iter();
        writeln!(f, "errors       {}", listed(kinds.map(|(k, n)| (k, *n))))?;
        if self.rate.is_some() {
            let dropped = self.dropped;
            writeln!(f, "dropped      {dropped}, as too many waited")?;
        }
        if self.unfinished > 0 {
            let (unfinished, longest) = (self.unfinished, self.longest_unfinished_s);
            writeln!(
                f,
                "unfinished   {unfinished} at the end, the oldest after {longest:.3} s"
            )?;
        }
        writeln!(f, "connections  {} opened", self.connections_opened)?;
        write!(f, "latency     ")?;
        if *requests == 0 {
            return write!(f, " none");
        }
        let names = PERCENTILES.iter().map(|(name, _)| *name);
        for (number, name) in names.chain(["max", "mean"]).enumerate() {
            let us = self.latency_us.get(name).copied().unwrap_or_default();
            let text = as_text(us);
            match number {
                0 => write!(f, " {name:<6} {text:>10}")?,
                _ => write!(f, "\n             {name:<6} {text:>10}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Second {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            second,
            requests_per_s,
            errors,
            dropped,
            ..
        } = self;
        let (p50, p99) = (as_text(self.p50_us), as_text(self.p99_us));
        write!(
            f,
            "{second:>5} s  {requests_per_s:>10.1} requests/s  p50 {p50:>9}  p99 {p99:>9}"
        )?;
        if *errors > 0 {
            write!(f, "  {errors} errors")?;
        }
        if *dropped > 0 {
            write!(f, "  {dropped} dropped")?;
        }
        Ok(())
    }
}
