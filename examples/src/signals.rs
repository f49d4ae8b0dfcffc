//! How a program that runs until it is told to end is told.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// How soon a core that has died is noticed.
const LOOK_AFTER_CORES: Duration = Duration::from_secs(1);

/// Watches for SIGINT and SIGTERM: the first is received here, a second one ends the process at
/// once. To be called before anything runs, as a signal in between would end the process half
/// started.
///
/// # Errors
///
/// What the system refuses.
pub fn watch() -> io::Result<mpsc::Receiver<()>> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let mut stopping = false;
            for signal in signals.forever() {
                if stopping {
                    std::process::exit(128 + signal);
                }
                stopping = true;
                let _ = sender.send(());
            }
        })?;
    Ok(receiver)
}

/// Waits until the program is told to end, or `died` tells of what has ended by itself.
pub fn wait<T>(signals: &mpsc::Receiver<()>, mut died: impl FnMut() -> Option<T>) -> Option<T> {
    loop {
        match signals.recv_timeout(LOOK_AFTER_CORES) {
            Err(RecvTimeoutError::Timeout) => match died() {
                None => {}
                some => return some,
            },
            // An error means that the watcher is gone; ending is better than not being endable.
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
}
