//! From when times count, and what goes first after a pause.
#![cfg(feature = "glommio")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use common::{DEADLINE, assert_in_order, config, exchange, total, until, with_pool};
use futures_lite::future::poll_once;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use pool_core::{
    AcquireError, CloseReason, ConnectOptions, Connection, Connector, Core, Pool, Readiness,
    TcpStream,
};
use test_support::{HangingListener, OK, Server, keep_alive_ok};

/// What a task does in its turn before it asks for a time.
const WORK: Duration = Duration::from_millis(40);
const LIMIT: Duration = Duration::from_millis(50);

/// The driver is up, and a turn has lasted for a while.
async fn late_in_a_turn(core: &Core) {
    core.sleep(Duration::from_millis(1)).await;
    thread::sleep(WORK);
}

#[test]
fn sleep_of_no_time_gives_way() {
    let main = |core: Core| async move {
        let other = Rc::new(Cell::new(false));
        let (core2, done) = (core.clone(), Rc::clone(&other));
        core.spawn(async move {
            core2.sleep(Duration::from_millis(1)).await;
            done.set(true);
        });
        let started = Instant::now();
        while !other.get() {
            assert!(started.elapsed() < DEADLINE, "the other one is starved");
            core.sleep(Duration::ZERO).await;
        }
    };
    Core::builder().run(main).unwrap();
}

#[test]
fn sleep_counts_from_its_call() {
    let main = |core: Core| async move {
        late_in_a_turn(&core).await;
        let called = Instant::now();
        core.sleep(LIMIT).await;
        assert!(called.elapsed() >= LIMIT, "{:?}", called.elapsed());

        let mut again = core.sleep(Duration::ZERO);
        late_in_a_turn(&core).await;
        let called = Instant::now();
        again.restart(LIMIT);
        again.await;
        assert!(called.elapsed() >= LIMIT, "{:?}", called.elapsed());
    };
    Core::builder().run(main).unwrap();
}

#[test]
fn timeouts_of_connect_and_acquire_count_from_the_acquire() {
    let hanging = HangingListener::new();
    let address = hanging.addr();
    for of_connect in [true, false] {
        let config = match of_connect {
            true => config().connect_timeout(LIMIT),
            false => config().acquire_timeout(LIMIT),
        };
        with_pool(config, |core, pool| async move {
            late_in_a_turn(&core).await;
            let called = Instant::now();
            let error = pool.acquire(&address).await.unwrap_err();
            assert!(called.elapsed() >= LIMIT, "{:?}", called.elapsed());
            match of_connect {
                true => assert!(matches!(error, AcquireError::ConnectTimeout), "{error}"),
                false => assert!(matches!(error, AcquireError::AcquireTimeout), "{error}"),
            }
        });
    }
}

#[test]
fn what_came_in_during_a_pause_goes_before_what_timed_out_in_it() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    with_pool(config().connect_timeout(LIMIT), |core, pool| async move {
        core.sleep(Duration::from_millis(1)).await;
        let mut acquire = pin!(pool.acquire(&address));
        assert!(poll_once(&mut acquire).await.is_none());
        // The kernel ends the connect; the core learns of it after the connect's time.
        thread::sleep(2 * LIMIT);
        let mut conn = acquire.await.expect("a connection that was there in time");
        exchange(&mut conn).await.unwrap();
        conn.release();
        assert_in_order(&core, &pool, 2).await;
    });
}

/// Its check takes as long as it is told, and says yes.
struct Slow {
    stream: TcpStream,
    takes: Rc<Cell<Duration>>,
}

impl Connection for Slow {
    fn readiness(&self) -> Readiness {
        self.stream.readiness()
    }

    fn check(&mut self) -> Result<(), CloseReason> {
        thread::sleep(self.takes.get());
        // Whoever calls `sleep` reads the clock.
        drop(Core::current().map(|core| core.sleep(Duration::ZERO)));
        // Without a look at the socket, so that it will be asked again.
        Ok(())
    }
}

struct SlowTcp(Core, Rc<Cell<Duration>>);

impl Connector for SlowTcp {
    type Key = SocketAddr;
    type Connection = Slow;
    type Error = io::Error;

    async fn connect(&self, key: &SocketAddr) -> io::Result<Slow> {
        let stream = TcpStream::connect(&self.0, *key, &ConnectOptions::default()).await?;
        let takes = Rc::clone(&self.1);
        Ok(Slow { stream, takes })
    }
}

#[test]
fn idle_connection_that_expires_while_it_is_looked_at_costs_no_permit() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let main = |core: Core| async move {
        let takes = Rc::new(Cell::new(Duration::ZERO));
        let connector = SlowTcp(core.clone(), Rc::clone(&takes));
        let config = config().max_connections(1).idle_timeout(LIMIT);
        let pool = Pool::new(&core, config.build().unwrap(), connector);
        for round in 1..=3 {
            takes.set(Duration::ZERO);
            let mut conn = pool.acquire(&address).await.unwrap();
            conn.stream
                .write_all(b"GET / HTTP/1.1\r\n\r\n")
                .await
                .unwrap();
            // To the last byte, so that the pool asks the connection whether there is more.
            conn.stream.read_exact(&mut [0; OK.len()]).await.unwrap();
            conn.release();
            // Its idle time begins with the next reading of the clock.
            core.sleep(Duration::ZERO).await;
            takes.set(LIMIT);
            assert!(pool.try_acquire(&address).is_none(), "its time is over");
            let stats = total(&pool);
            assert_eq!((stats.acquired.current, stats.pending.current), (0, 0));
            assert_eq!(stats.connecting.current, 0, "nobody has asked for one");
            until(&core, "it is closed", || {
                total(&pool).closed(CloseReason::IdleTimeout) == round
            })
            .await;
        }
        until(&core, "no socket is left", || {
            core.registered_sockets() == 0
        })
        .await;
    };
    Core::builder().run(main).unwrap();
}
