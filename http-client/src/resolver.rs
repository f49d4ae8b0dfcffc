//! Names to addresses, by the operating system.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_channel::oneshot;

/// Threads at a time. The operating system's resolver may take half a minute for a name whose
/// server does not answer, and cannot be called off.
const THREADS: usize = 64;

/// Resolves each name on a thread of its own, up to a number of threads at a time.
#[derive(Debug)]
pub(crate) struct Resolver {
    /// Threads that run, also for those that nobody waits for any more.
    running: Arc<AtomicUsize>,
    limit: usize,
}

impl Default for Resolver {
    fn default() -> Self {
        Self::with_limit(THREADS)
    }
}

impl Resolver {
    fn with_limit(limit: usize) -> Self {
        Self {
            running: Arc::default(),
            limit,
        }
    }

    /// The addresses of `host`, in the order that the operating system gives them.
    ///
    /// # Errors
    ///
    /// What the resolver says, `ResourceBusy` if too many threads run already, or what the kernel
    /// says if no thread can be started.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves a thread behind, which counts until the resolver is through.
    pub(crate) async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let host = host.to_owned();
        self.run(move || {
            let addresses = (host.as_str(), port).to_socket_addrs()?;
            Ok(addresses.collect())
        })
        .await
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let slot = self.slot()?;
        let (sender, receiver) = oneshot::channel();
        std::thread::Builder::new()
            .name("resolve".to_owned())
            .spawn(move || {
                let result = work();
                drop(slot);
                // Nobody asks any more when the connect has timed out.
                let _ = sender.send(result);
            })?;
        receiver
            .await
            .unwrap_or_else(|_| Err(io::Error::other("the resolver panicked")))
    }

    fn slot(&self) -> io::Result<Slot> {
        // Only the count is shared, nothing that it would have to order.
        let slot = Slot(Arc::clone(&self.running));
        if slot.0.fetch_add(1, Ordering::Relaxed) < self.limit {
            return Ok(slot);
        }
        let limit = self.limit;
        Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            format!("{limit} names are being resolved already, the most at a time"),
        ))
    }
}

/// A running thread, until it is dropped.
struct Slot(Arc<AtomicUsize>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::{block_on, poll_once};
    use test_support::{DEADLINE, Gate, eventually};

    #[test]
    fn threads_are_bounded_even_where_nobody_waits_for_them_any_more() {
        let resolver = Resolver::with_limit(3);
        let gate = Gate::new();
        for _ in 0..3 {
            let gate = gate.clone();
            let mut hanging = Box::pin(resolver.run(move || {
                gate.wait();
                Ok(())
            }));
            assert!(block_on(poll_once(&mut hanging)).is_none());
            // As a connect does that has timed out.
            drop(hanging);
        }
        gate.wait_for_arrivals(3);
        for _ in 0..2 {
            let error = block_on(resolver.run(|| Ok(()))).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
            assert!(error.to_string().starts_with("3 names"), "{error}");
        }
        gate.open();
        eventually(DEADLINE, || block_on(resolver.run(|| Ok(()))).is_ok());
        eventually(DEADLINE, || resolver.running.load(Ordering::Relaxed) == 0);
    }

    #[test]
    fn thread_that_fails_or_panics_makes_room_for_the_next() {
        let resolver = Resolver::with_limit(1);
        for _ in 0..3 {
            let failed = block_on(resolver.run(|| Err::<(), _>(io::ErrorKind::NotFound.into())));
            assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::NotFound);
            let panicked = block_on(resolver.run(|| -> io::Result<()> { panic!("on purpose") }));
            assert_eq!(panicked.unwrap_err().to_string(), "the resolver panicked");
            eventually(DEADLINE, || resolver.running.load(Ordering::Relaxed) == 0);
        }
    }

    #[test]
    fn address_needs_no_network_to_be_resolved() {
        let resolved = block_on(Resolver::default().resolve("127.0.0.1", 80));
        assert_eq!(resolved.unwrap(), ["127.0.0.1:80".parse().unwrap()]);
    }
}
