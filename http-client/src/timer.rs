//! Time limits that begin anew with each sign of progress.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pool_core::{Core, Sleep};

/// Measures how long there has been no progress. It sets no timer until it is polled.
#[derive(Default)]
pub(crate) struct ProgressTimer {
    sleep: Option<Sleep>,
    progress: u64,
}

impl ProgressTimer {
    /// Ready once `limit` has passed since the first poll, or since the first one with this value of
    /// `progress`.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        core: &Core,
        limit: Duration,
        progress: u64,
    ) -> Poll<()> {
        let sleep = match &mut self.sleep {
            Some(sleep) => {
                if self.progress != progress {
                    sleep.restart(limit);
                }
                sleep
            }
            none => none.insert(core.sleep(limit)),
        };
        self.progress = progress;
        Pin::new(sleep).poll(cx)
    }

    /// Cancels the timer; the next poll is the first one again.
    pub(crate) fn stop(&mut self) {
        self.sleep = None;
    }
}
