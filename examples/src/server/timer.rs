//! A time limit on what is waited for.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pool_core::{Core, Sleep};

/// A time limit that begins anew whenever something else is waited for. It costs a timer of the
/// core only once something has been waited for at all.
#[derive(Debug)]
pub(super) struct Timer<W> {
    /// Nothing is waited for where there is no `W`; the sleep may still run.
    running: Option<(Option<W>, Sleep)>,
}

impl<W: PartialEq> Timer<W> {
    pub(super) fn new() -> Self {
        Self { running: None }
    }

    /// Ready once `waits_for` has been waited for this long.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        core: &Core,
        waits_for: W,
        limit: Duration,
    ) -> Poll<()> {
        let (current, sleep) = match &mut self.running {
            Some(running) => running,
            none => none.insert((None, core.sleep(limit))),
        };
        if current.as_ref() != Some(&waits_for) {
            *current = Some(waits_for);
            sleep.restart(limit);
        }
        Pin::new(sleep).poll(cx)
    }

    /// What is waited for next begins anew, even if it is the same.
    pub(super) fn stop(&mut self) {
        if let Some((waits_for, _)) = &mut self.running {
            *waits_for = None;
        }
    }

    #[cfg(test)]
    pub(super) fn deadline(&self) -> Option<pool_core::Timestamp> {
        self.running.as_ref().map(|(_, sleep)| sleep.deadline())
    }
}
