//! What the origin counts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use super::catalogue::CATALOGUE;
use super::mix;

/// What a [`FaultyOrigin`](super::FaultyOrigin) has seen so far. `GET /counts` is the same as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Counts {
    /// Connections that were accepted.
    pub connections: u64,
    /// Those of them that are open.
    pub open: u64,
    /// Those of them that were closed at once, as too many were open.
    pub refused: u64,
    /// Requests by path, as the index lists it: `/flaky/KEY` for all its keys. A request counts
    /// once its head is read. Paths without a request are left out.
    pub requests: BTreeMap<&'static str, u64>,
    /// Requests to a path that the index does not list.
    pub unknown: u64,
    /// Requests that could not be read.
    pub malformed: u64,
    /// Requests to `/mix` by what they met, `healthy` included.
    pub mix: BTreeMap<&'static str, u64>,
}

impl Counts {
    /// All requests whose head could be read.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.requests.values().sum::<u64>() + self.unknown
    }

    /// The requests to `path`, as the index lists it.
    #[must_use]
    pub fn requests_to(&self, path: &str) -> u64 {
        self.requests.get(path).copied().unwrap_or_default()
    }
}

/// Counters that one thread raises and others read; each is right by itself.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) connections: Counter,
    pub(super) closed: Counter,
    pub(super) refused: Counter,
    pub(super) unknown: Counter,
    pub(super) malformed: Counter,
    /// By entry of the catalogue.
    pub(super) requests: Vec<Counter>,
    /// By number of the fault.
    pub(super) mix: Vec<Counter>,
}

#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Tally {
    pub(super) fn new() -> Self {
        Self {
            connections: Counter::default(),
            closed: Counter::default(),
            refused: Counter::default(),
            unknown: Counter::default(),
            malformed: Counter::default(),
            requests: CATALOGUE.iter().map(|_| Counter::default()).collect(),
            mix: mix::names().map(|_| Counter::default()).collect(),
        }
    }

    pub(super) fn open(&self) -> u64 {
        // First what can only fall behind, so that the difference is never below zero.
        let closed = self.closed.get();
        self.connections.get().saturating_sub(closed)
    }

    pub(super) fn counts(&self) -> Counts {
        let paths = CATALOGUE.iter().map(|entry| entry.path);
        Counts {
            connections: self.connections.get(),
            open: self.open(),
            refused: self.refused.get(),
            requests: seen(paths, &self.requests),
            unknown: self.unknown.get(),
            malformed: self.malformed.get(),
            mix: seen(mix::names(), &self.mix),
        }
    }
}

fn seen(
    names: impl Iterator<Item = &'static str>,
    counters: &[Counter],
) -> BTreeMap<&'static str, u64> {
    let counts = counters.iter().map(Counter::get);
    names.zip(counts).filter(|(_, count)| *count > 0).collect()
}
