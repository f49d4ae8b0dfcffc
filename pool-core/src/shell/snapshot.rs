//! The statistics of a pool as plain values, for other threads too.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use super::handle::{PoolHandle, Submitted};
use super::shared::Shared;
use crate::connector::Connector;
use crate::error::SubmitError;
use crate::state::{DestinationStats, Histograms};

/// Destinations that a snapshot takes in one turn of the core.
const DESTINATIONS_PER_TURN: usize = 256;

/// The statistics of a pool at one moment: plain values.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PoolSnapshot<K> {
    /// A destination has an entry while it has a connection, a waiter, a timer or a handle.
    pub destinations: Vec<DestinationSnapshot<K>>,
    /// Of all destinations, those included that the pool has forgotten.
    pub total: DestinationStats,
    /// How long acquires waited, connects took and connections were held.
    pub histograms: Histograms,
}

/// The statistics of one destination at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DestinationSnapshot<K> {
    /// The destination.
    pub key: K,
    /// Its gauges and counts.
    pub stats: DestinationStats,
}

impl<K: Eq + Hash + Clone> PoolSnapshot<K> {
    /// Adds the statistics of another core's pool; destinations of the same key become one.
    pub fn merge(&mut self, other: Self) {
        let places = self.destinations.iter().enumerate();
        let mut places: HashMap<K, usize> =
            places.map(|(at, known)| (known.key.clone(), at)).collect();
        for destination in other.destinations {
            match places.get(&destination.key) {
                Some(at) => self.destinations[*at].stats.merge(&destination.stats),
                None => {
                    places.insert(destination.key.clone(), self.destinations.len());
                    self.destinations.push(destination);
                }
            }
        }
        self.total.merge(&other.total);
        self.histograms.merge(&other.histograms);
    }
}

impl<C: Connector> Shared<C> {
    /// Everything at this moment.
    pub(super) fn snapshot(&self) -> PoolSnapshot<C::Key> {
        let mut destinations = Vec::new();
        self.add_destinations(0, usize::MAX, &mut destinations);
        self.with_totals(destinations)
    }

    /// As [`snapshot`](Self::snapshot), but a bounded number of destinations in each turn: each is
    /// as it was at some moment in between.
    async fn snapshot_by_turns(&self) -> PoolSnapshot<C::Key> {
        let mut destinations = Vec::new();
        let mut from = 0;
        while self.add_destinations(from, DESTINATIONS_PER_TURN, &mut destinations) {
            from += DESTINATIONS_PER_TURN;
            self.core.sleep(Duration::ZERO).await;
        }
        self.with_totals(destinations)
    }

    /// Adds those destinations whose ids have the places from `from` on; returns whether there are
    /// further ones.
    fn add_destinations(
        &self,
        from: usize,
        places: usize,
        to: &mut Vec<DestinationSnapshot<C::Key>>,
    ) -> bool {
        let (state, names) = (self.state.borrow(), self.names.borrow());
        let found = names.range(from, places).filter_map(|(id, key)| {
            let (key, stats) = (key.clone(), state.destination_stats(id)?);
            Some(DestinationSnapshot { key, stats })
        });
        to.extend(found);
        names.places() > from.saturating_add(places)
    }

    fn with_totals(&self, destinations: Vec<DestinationSnapshot<C::Key>>) -> PoolSnapshot<C::Key> {
        let state = self.state.borrow();
        PoolSnapshot {
            destinations,
            total: *state.totals(),
            histograms: state.histograms(),
        }
    }
}

impl<C: Connector> PoolHandle<C>
where
    C::Key: Send,
{
    /// The pool's gauges and counts, without holding its core up: with many destinations they are
    /// taken in several turns, each as it was at some moment in between.
    ///
    /// # Errors
    ///
    /// As [`submit`](Self::submit).
    pub fn snapshot(&self) -> Result<Submitted<PoolSnapshot<C::Key>>, SubmitError> {
        self.submit(|pool| async move { pool.shared.snapshot_by_turns().await })
    }
}
