//! TCP connections to destinations.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use pool_core::{ConnectOptions, Connector, Core, Sleep, TcpStream};

use crate::Destination;
use crate::error::BoxError;
use crate::resolver::Resolver;

/// How long an address is tried alone before the next one is tried as well (RFC 8305 §5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Connects over TCP, to the addresses of a name in the order that the resolver gives them.
///
/// The next address is tried when the one before has failed, and beside it after 250 ms; the first
/// to connect is taken and the others are closed. The time limit for all of it is the pool's
/// connect timeout.
///
/// Names are resolved by the operating system on a thread of their own, never on the core. A
/// connector runs at most 64 such threads at a time, those included that a connect which has timed
/// out has left behind; beyond that, names are refused with [`ConnectError::Resolve`] around an
/// error of kind [`ResourceBusy`](io::ErrorKind::ResourceBusy).
#[derive(Debug)]
pub struct TcpConnector {
    core: Core,
    options: ConnectOptions,
    resolver: Resolver,
}

/// Why no connection was made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The resolver does not know the name, failed, or is busy with too many names.
    #[error("{host} could not be resolved")]
    Resolve {
        /// The name.
        host: String,
        /// What the resolver says.
        source: io::Error,
    },
    /// None of the destination's addresses could be connected to.
    #[error("{address} could not be connected to")]
    Connect {
        /// The address that failed last.
        address: SocketAddr,
        /// What the kernel says.
        source: io::Error,
    },
    /// The TLS handshake failed. For connectors that make one: [`TcpConnector`] speaks plain TCP.
    #[error("the TLS handshake with {host} failed")]
    Tls {
        /// The name that was asked for.
        host: String,
        /// What was wrong.
        source: BoxError,
    },
}

impl TcpConnector {
    /// Connects on `core`, with `options` set on each socket.
    #[must_use]
    pub fn new(core: &Core, options: ConnectOptions) -> Self {
        Self {
            core: core.clone(),
            options,
            resolver: Resolver::default(),
        }
    }
}

impl Connector for TcpConnector {
    type Key = Destination;
    type Connection = TcpStream;
    type Error = ConnectError;

    async fn connect(&self, key: &Destination) -> Result<TcpStream, ConnectError> {
        let unresolved = |source| ConnectError::Resolve {
            host: key.host().to_owned(),
            source,
        };
        let addresses = match key.ip() {
            Some(ip) => vec![SocketAddr::new(ip, key.port())],
            None => {
                let resolved = self.resolver.resolve(key.host(), key.port());
                resolved.await.map_err(unresolved)?
            }
        };
        let connect = |address| TcpStream::connect(&self.core, address, &self.options);
        match first_to_connect(&self.core, addresses, connect).await {
            Ok(stream) => Ok(stream),
            Err(Some((address, source))) => Err(ConnectError::Connect { address, source }),
            Err(None) => {
                let none = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
                Err(unresolved(none))
            }
        }
    }
}

/// Tries the addresses in turn, each beside those before it that have not failed. The error is the
/// last failure; `None` where there is no address. Dropping the future drops all attempts.
async fn first_to_connect<T, F>(
    core: &Core,
    addresses: Vec<SocketAddr>,
    connect: impl Fn(SocketAddr) -> F,
) -> Result<T, Option<(SocketAddr, io::Error)>>
where
    F: Future<Output = io::Result<T>>,
{
    let mut untried = addresses.into_iter();
    let mut attempts: Vec<(SocketAddr, Pin<Box<F>>)> = Vec::new();
    let mut failure = None;
    // Runs while an address waits for its turn.
    let mut turn: Option<Sleep> = None;
    poll_fn(|cx| {
        loop {
            let under_way = attempts.len();
            let mut n = 0;
            while let Some((address, attempt)) = attempts.get_mut(n) {
                match attempt.as_mut().poll(cx) {
                    Poll::Pending => n += 1,
                    Poll::Ready(Ok(connected)) => return Poll::Ready(Ok(connected)),
                    Poll::Ready(Err(error)) => {
                        failure = Some((*address, error));
                        attempts.remove(n);
                    }
                }
            }
            let failed = attempts.len() < under_way;
            let turn_has_come = failed
                || turn
                    .as_mut()
                    .is_none_or(|turn| Pin::new(turn).poll(cx).is_ready());
            if turn_has_come && let Some(address) = untried.next() {
                attempts.push((address, Box::pin(connect(address))));
                turn = (untried.len() > 0).then(|| core.sleep(ATTEMPT_DELAY));
            } else if attempts.is_empty() {
                return Poll::Ready(Err(failure.take()));
            } else {
                return Poll::Pending;
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;
    use test_support::{HangingListener, Server, keep_alive_ok, refused_address};

    /// What becomes of an attempt.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Fate {
        Connects,
        Fails,
        Hangs,
        /// Once so many attempts have been started.
        ConnectsAfter(usize),
    }

    /// The port that connected, or the one that failed last.
    type Winner = Result<u16, Option<u16>>;

    type Outcome = (Winner, Vec<u16>, usize);

    /// How a race ends whose addresses, told by their ports from 0, have these fates; the ports
    /// tried in order; and how many attempts are left when it has ended.
    async fn race(core: &Core, fates: &[Fate]) -> Outcome {
        let tried = Rc::new(RefCell::new(Vec::new()));
        let alive = Rc::new(());
        let ports = 0..u16::try_from(fates.len()).unwrap();
        let addresses = ports.map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
        let connect = |address: SocketAddr| {
            tried.borrow_mut().push(address.port());
            let fate = fates[usize::from(address.port())];
            let (tried, alive) = (Rc::clone(&tried), Rc::clone(&alive));
            poll_fn(move |_| {
                let _attempt = &alive;
                match fate {
                    Fate::Connects => Poll::Ready(Ok(address.port())),
                    Fate::ConnectsAfter(n) if tried.borrow().len() >= n => {
                        Poll::Ready(Ok(address.port()))
                    }
                    Fate::Fails => Poll::Ready(Err(io::ErrorKind::ConnectionRefused.into())),
                    Fate::Hangs | Fate::ConnectsAfter(_) => Poll::Pending,
                }
            })
        };
        let ended = first_to_connect(core, addresses.collect(), connect).await;
        let outcome = match ended {
            Ok(port) => Ok(port),
            Err(failure) => Err(failure.map(|(address, _)| address.port())),
        };
        let tried = tried.borrow().clone();
        (outcome, tried, Rc::strong_count(&alive) - 1)
    }

    #[test]
    fn every_address_gets_its_turn_and_the_first_to_connect_wins() {
        use Fate::*;
        let table: [(&[Fate], Winner, &[u16]); 10] = [
            (&[], Err(None), &[]),
            (&[Connects], Ok(0), &[0]),
            (&[Fails], Err(Some(0)), &[0]),
            (&[Connects, Connects], Ok(0), &[0]),
            (&[Fails, Fails, Fails], Err(Some(2)), &[0, 1, 2]),
            (&[Fails, Connects, Hangs], Ok(1), &[0, 1]),
            (&[Hangs, Connects], Ok(1), &[0, 1]),
            (&[Hangs, Fails, Hangs, Connects], Ok(3), &[0, 1, 2, 3]),
            (&[Hangs, Hangs, Fails, Connects], Ok(3), &[0, 1, 2, 3]),
            // The earlier ones go on beside the later ones.
            (&[ConnectsAfter(3), Hangs, Hangs], Ok(0), &[0, 1, 2]),
        ];
        let ran = Core::builder().run(|core| async move {
            for (fates, outcome, tried) in table {
                let ended = race(&core, fates).await;
                assert_eq!(ended, (outcome, tried.to_vec(), 0), "{fates:?}");
            }
        });
        ran.unwrap();
    }

    #[test]
    fn attempt_that_hangs_is_left_alone_until_the_next_ones_turn() {
        let ran = Core::builder().run(|core| async move {
            let begun = core.now();
            let fates = &[Fate::Fails, Fate::Hangs, Fate::Connects];
            assert_eq!(race(&core, fates).await.0, Ok(2));
            assert!(core.now().saturating_duration_since(begun) >= ATTEMPT_DELAY);
        });
        ran.unwrap();
    }

    #[test]
    fn race_that_is_dropped_leaves_nothing_behind() {
        let ran = Core::builder().run(|core| async move {
            let hanging = [HangingListener::new(), HangingListener::new()];
            let addresses = hanging.iter().map(HangingListener::addr).collect();
            let sockets = core.registered_sockets();
            let begun = Cell::new(0);
            let options = ConnectOptions::default();
            let connect = |address| {
                begun.set(begun.get() + 1);
                TcpStream::connect(&core, address, &options)
            };
            let mut racing = Box::pin(first_to_connect(&core, addresses, connect));
            while begun.get() < 2 {
                assert!(futures_lite::future::poll_once(&mut racing).await.is_none());
                core.sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(core.registered_sockets(), sockets + 2);
            drop(racing);
            assert_eq!(core.registered_sockets(), sockets);
        });
        ran.unwrap();
    }

    #[test]
    fn address_that_answers_is_reached_past_one_that_hangs_and_one_that_refuses() {
        let ran = Core::builder().run(|core| async move {
            let (hanging, refused) = (HangingListener::new(), refused_address());
            let server = Server::script(keep_alive_ok());
            let addresses = vec![refused.addr(), hanging.addr(), server.addr()];
            let options = ConnectOptions::default();
            let connect = |address| TcpStream::connect(&core, address, &options);
            let stream = first_to_connect(&core, addresses, connect).await.unwrap();
            assert_eq!(stream.peer_addr(), server.addr());
        });
        ran.unwrap();
    }
}
