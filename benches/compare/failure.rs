//! Why a comparison ends early.

use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("interrupted")]
    Interrupted,
    #[error("{0}")]
    Other(String),
}

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self::Other(text.into())
    }
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Says what was being done when something failed.
pub(crate) trait While<T> {
    fn during(self, what: impl Display) -> Result<T>;
}

impl<T, E: Display> While<T> for std::result::Result<T, E> {
    fn during(self, what: impl Display) -> Result<T> {
        self.map_err(|error| Failure::new(format!("{what}: {error}")))
    }
}

/// Whether the user has asked for the end. Every wait looks at it, so that the guards of the
/// children and of the directory run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(crate) fn on_signals() -> io::Result<Self> {
        let stop = Self::default();
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop.0))?;
        }
        Ok(stop)
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            return Err(Failure::Interrupted);
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
