//! The breakers of a client, one for each destination that was asked of late.

use std::cell::Cell;

use pool_core::{Core, Timestamp};

use crate::destination::Destination;
use crate::error::{At, ErrorKind, Failure, Phase};
use crate::per_destination::PerDestination;
use crate::retry::{
    Breaker, BreakerConfig, BreakerCounts, BreakerState, Open, Permit, Report, Transition,
};

pub(crate) struct Breakers {
    config: Option<BreakerConfig>,
    known: PerDestination<Breaker>,
    /// Of the breakers that were forgotten.
    forgotten: Cell<BreakerCounts>,
}

impl Breakers {
    pub(crate) fn new(config: Option<BreakerConfig>) -> Self {
        Self {
            config,
            known: PerDestination::default(),
            forgotten: Cell::default(),
        }
    }

    /// Asks for leave to make an attempt.
    pub(crate) fn admit<'l>(
        &'l self,
        core: &'l Core,
        destination: &'l Destination,
    ) -> Result<Leave<'l>, Open> {
        let Some(config) = &self.config else {
            return Ok(Leave::free(core, destination));
        };
        let now = core.now();
        let forget = |breaker: &mut Breaker| {
            let is_idle = breaker.is_idle(now);
            if is_idle {
                self.forgotten.set(add(self.forgotten.get(), breaker));
            }
            is_idle
        };
        let make = || Breaker::new(config, now);
        let admitted = self
            .known
            .with(destination, make, forget, |breaker| breaker.admit(now))?;
        tell(destination, admitted.transition);
        Ok(Leave {
            core,
            destination,
            permit: Some((self, admitted.permit)),
        })
    }

    pub(crate) fn counts(&self) -> BreakerCounts {
        self.known.fold(self.forgotten.get(), add)
    }

    pub(crate) fn state(&self, now: Timestamp, destination: &Destination) -> BreakerState {
        self.known
            .with_known(destination, |breaker| breaker.state(now))
            .unwrap_or(BreakerState::Closed)
    }

    fn report(&self, now: Timestamp, destination: &Destination, permit: Permit, report: Report) {
        let transition = self
            .known
            .with_known(destination, |breaker| breaker.report(now, permit, report));
        tell(destination, transition.flatten());
    }
}

fn add(mut counts: BreakerCounts, breaker: &Breaker) -> BreakerCounts {
    let more = breaker.counts();
    counts.opened += more.opened;
    counts.rejected += more.rejected;
    counts.probes += more.probes;
    counts
}

fn tell(destination: &Destination, transition: Option<Transition>) {
    let Some(Transition { from, to, why }) = transition else {
        return;
    };
    if to == BreakerState::Open {
        tracing::warn!(%destination, %from, %to, %why, "breaker");
    } else {
        tracing::info!(%destination, %from, %to, %why, "breaker");
    }
}

/// Leave to make an attempt. Dropped without a report, it tells nothing of the destination.
pub(crate) struct Leave<'l> {
    core: &'l Core,
    destination: &'l Destination,
    permit: Option<(&'l Breakers, Permit)>,
}

impl<'l> Leave<'l> {
    /// Where there is no breaker.
    pub(crate) fn free(core: &'l Core, destination: &'l Destination) -> Self {
        Self {
            core,
            destination,
            permit: None,
        }
    }

    pub(crate) fn report_status(mut self, status: u16) {
        self.report(match status {
            500 | 502 | 503 | 504 => Report::Failure,
            _ => Report::Success,
        });
    }

    pub(crate) fn report_failure(mut self, failure: &Failure, at: &At) {
        self.report(judge(failure.kind, at.phase, at.reused));
    }

    fn report(&mut self, report: Report) {
        if let Some((breakers, permit)) = self.permit.take() {
            breakers.report(self.core.now(), self.destination, permit, report);
        }
    }
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.report(Report::Neutral);
    }
}

/// What a failure tells of a destination.
fn judge(kind: ErrorKind, phase: Phase, reused: bool) -> Report {
    match kind {
        // The keep-alive race: the peer had every right to close.
        ErrorKind::WriteFailed | ErrorKind::ClosedBeforeResponse | ErrorKind::Reset
            if reused && phase < Phase::Receive =>
        {
            Report::Neutral
        }
        // It may have waited for others of ours all the time.
        ErrorKind::TotalTimeout | ErrorKind::AttemptTimeout if phase <= Phase::Acquire => {
            Report::Neutral
        }
        ErrorKind::UnknownHost
        | ErrorKind::ConnectRefused
        | ErrorKind::ConnectFailed
        | ErrorKind::ConnectTimeout
        | ErrorKind::TlsFailed
        | ErrorKind::WriteFailed
        | ErrorKind::WriteTimeout
        | ErrorKind::ClosedBeforeResponse
        | ErrorKind::Reset
        | ErrorKind::HeadTimeout
        | ErrorKind::AttemptTimeout
        | ErrorKind::TotalTimeout
        | ErrorKind::MalformedResponse
        | ErrorKind::Truncated
        | ErrorKind::HoldTimeout => Report::Failure,
        ErrorKind::InvalidRequest
        | ErrorKind::RequestBody
        | ErrorKind::BreakerOpen
        | ErrorKind::AcquireTimeout
        | ErrorKind::QueueFull
        | ErrorKind::Draining
        | ErrorKind::BodyTimeout
        | ErrorKind::Cancelled => Report::Neutral,
    }
}
