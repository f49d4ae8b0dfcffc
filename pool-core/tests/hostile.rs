//! User code that calls back into the pool, or panics, from wherever the pool calls it
//! (invariant 13): destructors, checks, connectors and wakers.
#![cfg(feature = "glommio")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use common::{DEADLINE, config, until};
use futures_lite::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use pool_core::{
    AcquireError, CloseReason, ConnectOptions, Connection, Connector, Core, Pool,
    PoolConfigBuilder, Readiness, TcpStream,
};
use test_support::{Gate, OK, Server, keep_alive_ok};

/// What a piece of user code does when the pool calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Nothing,
    Panics,
    /// Asks for a connection, looks once and gives up; takes an idle one; reads the counters.
    UsesPool,
    DrainsPool,
}

const MISCHIEF: [Does; 3] = [Does::Panics, Does::UsesPool, Does::DrainsPool];

thread_local! {
    static POOL: RefCell<Option<(Pool<Hostile>, SocketAddr)>> = const { RefCell::new(None) };
    static DROP: Cell<Does> = const { Cell::new(Does::Nothing) };
    static CHECK: Cell<Does> = const { Cell::new(Does::Nothing) };
    static READINESS: Cell<Does> = const { Cell::new(Does::Nothing) };
    static CONNECT: Cell<Does> = const { Cell::new(Does::Nothing) };
    static WAKE: Cell<Does> = const { Cell::new(Does::Nothing) };
    /// Bytes that come in while idle are the connection's own business, as under TLS.
    static DIGESTS: Cell<bool> = const { Cell::new(false) };
    static CALLED: Cell<u32> = const { Cell::new(0) };
}

fn act(does: &'static std::thread::LocalKey<Cell<Does>>) {
    let does = does.get();
    if does == Does::Nothing {
        return;
    }
    CALLED.set(CALLED.get() + 1);
    assert!(does != Does::Panics, "as the test wants it");
    let Some((pool, address)) = POOL.with_borrow(Clone::clone) else {
        return;
    };
    match does {
        Does::UsesPool => {
            let mut cx = Context::from_waker(Waker::noop());
            let _ = pin!(pool.acquire(&address)).poll(&mut cx);
            if let Some(conn) = pool.try_acquire(&address) {
                conn.release();
            }
            let _ = pool.snapshot();
        }
        Does::DrainsPool => {
            let mut cx = Context::from_waker(Waker::noop());
            let _ = pin!(pool.drain(Duration::ZERO)).poll(&mut cx);
        }
        Does::Nothing | Does::Panics => unreachable!(),
    }
}

/// Ends all mischief.
fn behave() {
    for does in [&DROP, &CHECK, &READINESS, &CONNECT, &WAKE] {
        does.set(Does::Nothing);
    }
}

struct Hostile(Core);

impl Connector for Hostile {
    type Key = SocketAddr;
    type Connection = HostileConnection;
    type Error = io::Error;

    async fn connect(&self, address: &SocketAddr) -> io::Result<HostileConnection> {
        act(&CONNECT);
        let stream = TcpStream::connect(&self.0, *address, &ConnectOptions::default()).await?;
        Ok(HostileConnection(stream))
    }
}

struct HostileConnection(TcpStream);

impl Connection for HostileConnection {
    fn readiness(&self) -> Readiness {
        act(&READINESS);
        self.0.readiness()
    }

    fn check(&mut self) -> Result<(), CloseReason> {
        act(&CHECK);
        if DIGESTS.get() {
            let mut cx = Context::from_waker(Waker::noop());
            let mut bytes = [0; 64];
            while let Poll::Ready(Ok(1..)) = Pin::new(&mut self.0).poll_read(&mut cx, &mut bytes) {}
        }
        self.0.check()
    }
}

impl Drop for HostileConnection {
    fn drop(&mut self) {
        act(&DROP);
    }
}

struct HostileWaker;

impl Wake for HostileWaker {
    fn wake(self: Arc<Self>) {
        act(&WAKE);
    }
}

/// Runs `test` on a core with a pool that user code can find, and checks that nothing is left.
fn with_hostile<F, Fut>(config: PoolConfigBuilder, address: SocketAddr, test: F)
where
    F: FnOnce(Core, Pool<Hostile>) -> Fut,
    Fut: Future<Output = ()>,
{
    behave();
    DIGESTS.set(false);
    CALLED.set(0);
    let config = config.build().unwrap();
    let main = |core: Core| async move {
        let pool = Pool::new(&core, config, Hostile(core.clone()));
        POOL.set(Some((pool.clone(), address)));
        test(core.clone(), pool.clone()).await;
        behave();
        POOL.take();
        pool.drain(Duration::ZERO).await;
        let stats = pool.snapshot().total;
        assert_eq!(stats.acquired.current, 0, "{stats:?}");
        assert_eq!(
            (stats.idle.current, stats.connecting.current),
            (0, 0),
            "{stats:?}"
        );
        assert_eq!(stats.pending.current, 0, "{stats:?}");
        until(&core, "all sockets are gone", || {
            core.registered_sockets() == 0
        })
        .await;
    };
    Core::builder().run(main).unwrap();
}

async fn exchange(conn: &mut HostileConnection) {
    let stream = &mut conn.0;
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    stream.read_exact(&mut [0; OK.len()]).await.unwrap();
}

/// The pool is in order: unless it was drained, it serves.
async fn assert_serves(core: &Core, pool: &Pool<Hostile>, address: SocketAddr, did: Does) {
    behave();
    assert!(CALLED.get() > 0, "{did:?} was not reached");
    until(core, "nothing is acquired", || {
        pool.snapshot().total.acquired.current == 0
    })
    .await;
    match pool.acquire(&address).await {
        Ok(mut conn) => {
            exchange(&mut conn).await;
            conn.release();
        }
        Err(AcquireError::Draining) => assert_eq!(did, Does::DrainsPool),
        Err(error) => panic!("{did:?}: {error}"),
    }
}

#[test]
fn destructor_of_a_closed_connection_may_do_anything() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    for does in MISCHIEF {
        with_hostile(
            config().max_connections(1),
            address,
            |core, pool| async move {
                let mut conn = pool.acquire(&address).await.unwrap();
                exchange(&mut conn).await;
                DROP.set(does);
                drop(conn);
                assert_eq!(core.panics(), u64::from(does == Does::Panics));
                assert_serves(&core, &pool, address, does).await;
            },
        );
    }
}

#[test]
fn destructor_of_an_idle_connection_may_do_anything_when_its_time_is_over() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    for does in MISCHIEF {
        let config = config().idle_timeout(Some(Duration::from_millis(1)));
        with_hostile(config, address, |core, pool| async move {
            let mut conn = pool.acquire(&address).await.unwrap();
            exchange(&mut conn).await;
            DROP.set(does);
            conn.release();
            until(&core, "the idle timeout has closed it", || CALLED.get() > 0).await;
            assert_serves(&core, &pool, address, does).await;
        });
    }
}

#[test]
fn check_at_release_may_do_anything() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    for does in MISCHIEF {
        with_hostile(
            config().max_connections(1),
            address,
            |core, pool| async move {
                let mut conn = pool.acquire(&address).await.unwrap();
                exchange(&mut conn).await;
                CHECK.set(does);
                conn.release();
                if does == Does::Panics {
                    let total = pool.snapshot().total;
                    assert_eq!(total.closed(CloseReason::ExchangeFailed), 1, "{total:?}");
                }
                assert_serves(&core, &pool, address, does).await;
            },
        );
    }
}

/// Its first connection sends stray bytes once the gate is open.
fn stray_after_the_first_answer(gate: &Gate) -> Server {
    let gate = gate.clone();
    Server::script(move |peer| {
        while peer.read_request()?.is_some() {
            peer.answer(OK)?;
            if peer.index() == 0 {
                peer.wait_at(&gate)?;
                peer.send(b"nobody asked")?;
            }
        }
        Ok(())
    })
}

#[test]
fn connection_under_check_is_not_given_to_whoever_the_check_asks_for() {
    let gate = Gate::new();
    let server = stray_after_the_first_answer(&gate);
    let address = server.addr();
    with_hostile(config(), address, |core, pool| async move {
        let mut conn = pool.acquire(&address).await.unwrap();
        exchange(&mut conn).await;
        conn.release();
        DIGESTS.set(true);
        CHECK.set(Does::UsesPool);
        gate.open();
        until(&core, "the watch has asked", || CALLED.get() > 0).await;
        assert_serves(&core, &pool, address, Does::UsesPool).await;
        assert_eq!(pool.snapshot().total.closed(CloseReason::StrayBytes), 1);
    });
}

#[test]
fn idle_connection_may_digest_what_comes_in() {
    let gate = Gate::new();
    let server = stray_after_the_first_answer(&gate);
    let address = server.addr();
    with_hostile(config(), address, |core, pool| async move {
        let mut conn = pool.acquire(&address).await.unwrap();
        exchange(&mut conn).await;
        conn.release();
        DIGESTS.set(true);
        CHECK.set(Does::UsesPool);
        POOL.take();
        gate.open();
        until(&core, "the watch has asked", || CALLED.get() > 0).await;
        assert!(pool.try_acquire(&address).unwrap().is_reused());
    });
}

#[test]
fn check_of_an_idle_connection_may_do_anything() {
    for does in MISCHIEF {
        let gate = Gate::new();
        let server = stray_after_the_first_answer(&gate);
        let address = server.addr();
        with_hostile(config(), address, |core, pool| async move {
            let mut conn = pool.acquire(&address).await.unwrap();
            exchange(&mut conn).await;
            conn.release();
            CHECK.set(does);
            gate.open();
            until(&core, "the watch has asked", || CALLED.get() > 0).await;
            assert_serves(&core, &pool, address, does).await;
        });
    }
}

#[test]
fn connection_whose_readiness_panics_fails_its_waiter_and_no_other() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let config = config().max_connections(1).connect_timeout(None);
    with_hostile(config, address, |core, pool| async move {
        READINESS.set(Does::Panics);
        let error = pool.acquire(&address).await.err().unwrap();
        assert!(matches!(error, AcquireError::ConnectPanicked), "{error:?}");
        assert_serves(&core, &pool, address, Does::Panics).await;
    });
}

#[test]
fn connector_may_do_anything() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    for does in MISCHIEF {
        let config = config().max_connections(2).connect_timeout(None);
        with_hostile(config, address, |core, pool| async move {
            CONNECT.set(does);
            let acquired = core
                .timeout(DEADLINE, pool.acquire(&address))
                .await
                .unwrap();
            match (does, acquired) {
                (Does::Panics, Err(AcquireError::ConnectPanicked))
                | (Does::DrainsPool, Err(AcquireError::Draining)) => {}
                (Does::UsesPool, Ok(conn)) => conn.release(),
                (_, outcome) => panic!("{does:?}: {:?}", outcome.map(|_| ())),
            }
            assert_serves(&core, &pool, address, does).await;
        });
    }
}

/// Polls once under a hostile waker and then under the task's own, so that the wake of the first
/// is the hostile one.
async fn first_poll_hostile<F: Future + Unpin>(mut future: F) -> F::Output {
    let hostile = Waker::from(Arc::new(HostileWaker));
    let first = Pin::new(&mut future).poll(&mut Context::from_waker(&hostile));
    if let Poll::Ready(output) = first {
        return output;
    }
    let core = Core::current().unwrap();
    until(&core, "the hostile waker was called", || CALLED.get() > 0).await;
    WAKE.set(Does::Nothing);
    future.await
}

#[test]
fn waker_of_an_acquire_may_do_anything_and_the_others_are_served() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    for does in MISCHIEF {
        with_hostile(
            config().max_connections(1),
            address,
            |core, pool| async move {
                let mut conn = pool.acquire(&address).await.unwrap();
                exchange(&mut conn).await;
                WAKE.set(does);
                let waits = Box::pin(first_poll_hostile(pool.acquire(&address)));
                let others = [pool.acquire(&address), pool.acquire(&address)];
                let frees = async {
                    futures_lite::future::yield_now().await;
                    conn.release();
                };
                let (first, ()) = futures_lite::future::zip(waits, frees).await;
                match (does, first) {
                    (Does::DrainsPool, Err(AcquireError::Draining)) => {}
                    (_, first) => first.unwrap().release(),
                }
                for other in others {
                    match (does, other.await) {
                        (Does::DrainsPool, Err(AcquireError::Draining)) => {}
                        (_, other) => other.unwrap().release(),
                    }
                }
                assert_serves(&core, &pool, address, does).await;
            },
        );
    }
}

#[test]
fn waker_of_a_read_may_do_anything_and_the_core_goes_on() {
    let gate = Gate::new();
    for does in MISCHIEF {
        let server = {
            let gate = gate.clone();
            Server::script(move |peer| {
                while peer.read_request()?.is_some() {
                    peer.wait_at(&gate)?;
                    peer.answer(OK)?;
                }
                Ok(())
            })
        };
        let address = server.addr();
        let gate = gate.clone();
        with_hostile(config(), address, |core, pool| async move {
            let mut conn = pool.acquire(&address).await.unwrap();
            conn.0.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
            WAKE.set(does);
            let mut answer = [0; OK.len()];
            let read = Box::pin(async { conn.0.read_exact(&mut answer).await });
            let opens = async {
                futures_lite::future::yield_now().await;
                gate.open();
            };
            let (read, ()) = futures_lite::future::zip(first_poll_hostile(read), opens).await;
            // A drain without grace closes what is acquired, under its holder.
            assert_eq!(read.is_ok(), does != Does::DrainsPool, "{read:?}");
            match does {
                Does::DrainsPool => drop(conn),
                _ => conn.release(),
            }
            assert_serves(&core, &pool, address, does).await;
        });
    }
}
