//! How a program that runs until it is told to end is told.

use std::io;
use std::sync::mpsc;
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

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
