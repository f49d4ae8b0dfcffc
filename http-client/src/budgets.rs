//! The retry budgets of a client, one for each destination that was asked of late.

use std::cell::Cell;

use pool_core::Timestamp;

use crate::destination::Destination;
use crate::per_destination::PerDestination;
use crate::retry::{BudgetConfig, RetryBudget};

/// How many retries a client's budgets have granted and refused. Those that were cancelled in
/// their pause are among the granted; those after a stale connection are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryCounts {
    /// Retries that were made, or were to be.
    pub granted: u64,
    /// Retries that the policy wanted and the budget did not allow.
    pub refused: u64,
}

pub(crate) struct Budgets {
    config: Option<BudgetConfig>,
    known: PerDestination<RetryBudget>,
    /// Of the budgets that were forgotten.
    forgotten: Cell<RetryCounts>,
}

impl Budgets {
    pub(crate) fn new(config: Option<BudgetConfig>) -> Self {
        Self {
            config,
            known: PerDestination::default(),
            forgotten: Cell::default(),
        }
    }

    /// Counts a request, at its first attempt.
    pub(crate) fn deposit(&self, now: Timestamp, destination: &Destination) {
        self.with(now, destination, |budget| budget.deposit(now));
    }

    /// Asks for a retry; without budgets every one is allowed.
    pub(crate) fn withdraw(&self, now: Timestamp, destination: &Destination) -> bool {
        self.with(now, destination, |budget| budget.withdraw(now))
            .unwrap_or(true)
    }

    /// Takes back a retry that was allowed at `withdrawn_at` and is not going to be sent.
    pub(crate) fn refund(&self, withdrawn_at: Timestamp, destination: &Destination) {
        self.known
            .with_known(destination, |budget| budget.refund(withdrawn_at));
    }

    pub(crate) fn counts(&self) -> RetryCounts {
        self.known.fold(self.forgotten.get(), add)
    }

    fn with<T>(
        &self,
        now: Timestamp,
        destination: &Destination,
        change: impl FnOnce(&mut RetryBudget) -> T,
    ) -> Option<T> {
        let config = self.config.as_ref()?;
        let make = || RetryBudget::new(config);
        let forget = |budget: &mut RetryBudget| {
            let is_idle = budget.is_idle(now);
            if is_idle {
                self.forgotten.set(add(self.forgotten.get(), budget));
            }
            is_idle
        };
        Some(self.known.with(destination, make, forget, change))
    }
}

fn add(counts: RetryCounts, budget: &RetryBudget) -> RetryCounts {
    RetryCounts {
        granted: counts.granted + budget.granted(),
        refused: counts.refused + budget.refused(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn destination(n: u64) -> Destination {
        format!("http://host-{n}.example").parse().unwrap()
    }

    fn floorless() -> BudgetConfig {
        let builder = BudgetConfig::builder().floor_per_second(0).ratio(1.0);
        builder.build().unwrap()
    }

    /// Fault row G1: an entry for each host that stays for ever.
    #[test]
    fn destinations_asked_once_are_forgotten_and_their_counts_kept() {
        let budgets = Budgets::new(Some(floorless()));
        let mut now = Timestamp::ZERO;
        for n in 0..10_000 {
            budgets.deposit(now, &destination(n));
            assert!(budgets.withdraw(now, &destination(n)));
            assert!(!budgets.withdraw(now, &destination(n)));
            now = now + Duration::from_millis(100);
        }
        // Those of the window of 10 s, and as many again before they are looked for.
        let known = budgets.known.len();
        assert!(known <= 2 * 104, "{known} destinations");
        let (granted, refused) = (10_000, 10_000);
        assert_eq!(budgets.counts(), RetryCounts { granted, refused });
    }

    #[test]
    fn one_destination_does_not_spend_what_another_has() {
        let budgets = Budgets::new(Some(floorless()));
        let (rich, poor) = (destination(0), destination(1));
        budgets.deposit(Timestamp::ZERO, &rich);
        assert!(!budgets.withdraw(Timestamp::ZERO, &poor));
        assert!(budgets.withdraw(Timestamp::ZERO, &rich));
        budgets.refund(Timestamp::ZERO, &rich);
        assert!(budgets.withdraw(Timestamp::ZERO, &rich));
    }

    #[test]
    fn without_budgets_every_retry_is_allowed_and_nothing_is_kept() {
        let budgets = Budgets::new(None);
        budgets.deposit(Timestamp::ZERO, &destination(0));
        assert!(budgets.withdraw(Timestamp::ZERO, &destination(0)));
        budgets.refund(Timestamp::ZERO, &destination(0));
        assert_eq!(budgets.known.len(), 0);
        assert_eq!(budgets.counts(), RetryCounts::default());
    }
}
