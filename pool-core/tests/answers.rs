//! That every acquire ends, with its own answer: one that was rejected and has not looked yet
//! shares its place in the tables with whoever asks next.
#![cfg(feature = "glommio")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::cell::Cell;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use common::{Tcp, assert_all_accounted, config, exchange, total, until, with_pool};
use futures_lite::future::{poll_once, yield_now};
use pool_core::{AcquireError, Connector, Core, Pool, TcpStream};
use test_support::{HangingListener, Server, keep_alive_ok, never_answer, refused_address};

const SHORT: Duration = Duration::from_millis(20);

/// Has an acquire rejected that does not look, has another one ask, and lets both look in turn.
/// Returns what the first was told; the second has ended by then.
async fn told_after_the_next_has_asked<C: Connector>(
    core: &Core,
    pool: &Pool<C>,
    key: &C::Key,
    rejection: impl Future<Output = ()>,
    serve_the_next: impl FnOnce(),
) -> AcquireError<C::Error> {
    let mut first = pin!(pool.acquire(key));
    assert!(poll_once(&mut first).await.is_none(), "it has to wait");
    rejection.await;
    let ended = Rc::new(Cell::new(false));
    {
        let (pool, key, ended) = (pool.clone(), key.clone(), Rc::clone(&ended));
        core.spawn(async move {
            drop(pool.acquire(&key).await);
            ended.set(true);
        });
    }
    let told = poll_once(&mut first).await;
    serve_the_next();
    until(core, "the next has ended too", || ended.get()).await;
    assert_all_accounted(&total(pool));
    let told = told.expect("the first has its answer");
    told.expect_err("the first was rejected")
}

#[test]
fn acquire_timeout_is_told_to_the_one_it_struck() {
    let server = Server::script(never_answer());
    let address = server.addr();
    let config = config().max_connections(1).acquire_timeout(SHORT);
    with_pool(config, |core, pool| async move {
        let held = pool.acquire(&address).await.unwrap();
        let rejection = until(&core, "it times out", || total(&pool).timeouts.acquire == 1);
        let release = || held.release();
        let told = told_after_the_next_has_asked(&core, &pool, &address, rejection, release).await;
        assert!(matches!(told, AcquireError::AcquireTimeout), "{told}");
    });
}

#[test]
fn connect_timeout_is_told_to_the_one_it_struck() {
    let hanging = HangingListener::new();
    let address = hanging.addr();
    let config = config().max_connections(1).connect_timeout(SHORT);
    with_pool(config, |core, pool| async move {
        let rejection = until(&core, "it times out", || total(&pool).timeouts.connect == 1);
        let told = told_after_the_next_has_asked(&core, &pool, &address, rejection, || {}).await;
        assert!(matches!(told, AcquireError::ConnectTimeout), "{told}");
    });
}

/// Fails, and never in the poll in which it was started.
struct Fails;

impl Connector for Fails {
    type Key = ();
    type Connection = TcpStream;
    type Error = io::Error;

    async fn connect(&self, (): &()) -> io::Result<TcpStream> {
        yield_now().await;
        Err(io::Error::other("as the test wants it"))
    }
}

#[test]
fn failure_of_a_connect_is_told_to_the_one_it_struck() {
    let main = |core: Core| async move {
        let pool = Pool::new(&core, config().max_connections(1).build().unwrap(), Fails);
        let rejection = until(&core, "it fails", || total(&pool).connect_failed == 1);
        let told = told_after_the_next_has_asked(&core, &pool, &(), rejection, || {}).await;
        assert!(matches!(told, AcquireError::Connect(_)), "{told}");
    };
    Core::builder().run(main).unwrap();
}

#[test]
fn drain_is_told_to_the_one_it_struck() {
    let server = Server::script(never_answer());
    let address = server.addr();
    with_pool(config().max_connections(1), |core, pool| async move {
        let held = pool.acquire(&address).await.unwrap();
        let rejection = pool.drain(Duration::ZERO);
        let release = || held.release();
        let told = told_after_the_next_has_asked(&core, &pool, &address, rejection, release).await;
        assert!(matches!(told, AcquireError::Draining), "{told}");
    });
}

/// Runs `task` so many times at once and waits until each has ended.
async fn all_end<F: Future<Output = ()> + 'static>(
    core: &Core,
    pool: &Pool<Tcp>,
    tasks: usize,
    task: impl Fn(Pool<Tcp>) -> F,
) {
    let ended = Rc::new(Cell::new(0));
    for _ in 0..tasks {
        let (task, ended) = (task(pool.clone()), Rc::clone(&ended));
        core.spawn(async move {
            task.await;
            ended.set(ended.get() + 1);
        });
    }
    until(core, "every acquire has ended", || ended.get() == tasks).await;
    let stats = total(pool);
    assert_eq!((stats.acquired.current, stats.pending.current), (0, 0));
    assert_all_accounted(&stats);
}

#[test]
fn every_acquire_ends_when_the_peer_refuses() {
    let refused = refused_address();
    let address = refused.addr();
    let config = config().max_connections(4).acquire_timeout(SHORT);
    with_pool(config, |core, pool| async move {
        all_end(&core, &pool, 64, |pool| async move {
            for _ in 0..10 {
                assert!(pool.acquire(&address).await.is_err());
            }
        })
        .await;
        assert_eq!(total(&pool).acquires.requested, 640);
    });
}

#[test]
fn every_acquire_ends_under_overload() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let config = config()
        .max_connections(2)
        .acquire_timeout(Duration::from_millis(3));
    with_pool(config, |core, pool| async move {
        all_end(&core, &pool, 64, |pool| async move {
            for _ in 0..30 {
                match pool.acquire(&address).await {
                    Ok(mut conn) => {
                        exchange(&mut conn).await.unwrap();
                        // However fast the machine is, two connections are too few for all.
                        pool.core().sleep(Duration::from_millis(1)).await;
                        conn.release();
                    }
                    Err(AcquireError::AcquireTimeout) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        })
        .await;
        let stats = total(&pool);
        assert!(stats.timeouts.acquire > 0, "no overload: {stats:?}");
    });
}
