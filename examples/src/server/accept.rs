//! The accept loop.

use std::time::Duration;

use pool_core::{Core, TcpListener, TcpStream};

/// Out of descriptors, the next accept fails at once; some will have been closed after this.
const PAUSE: Duration = Duration::from_millis(50);

/// Gives each accepted connection to `serve`, for ever.
///
/// # Cancel safety
///
/// Dropping the future loses no connection that was accepted.
pub async fn accept_each(
    core: &Core,
    listener: &mut TcpListener,
    mut serve: impl FnMut(TcpStream),
) {
    loop {
        match listener.accept().await {
            Ok(stream) => serve(stream),
            Err(error) => {
                tracing::warn!(%error, "accept failed, trying again soon");
                core.sleep(PAUSE).await;
            }
        }
    }
}
