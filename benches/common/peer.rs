//! A peer that accepts connections and keeps them, without a thread for each.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::thread;

/// Accepts connections on a thread of its own, and keeps them until the process ends.
///
/// # Errors
///
/// What the kernel answers to the listener.
pub fn keep_connections() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::Builder::new()
        .name("peer".to_owned())
        .spawn(move || {
            let accepted = listener.incoming().map_while(Result::ok);
            let kept: Vec<_> = accepted.collect();
            drop(kept);
        })?;
    Ok(address)
}
