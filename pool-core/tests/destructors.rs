//! Destructors of a user's values that call the pool or panic, wherever the core drops them: those
//! of connections, of tasks and of jobs.
#![cfg(feature = "glommio")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use common::{Tcp, config, total, until, wait_for};
use futures_lite::future::yield_now;
use pool_core::{
    AcquireError, ConnectOptions, Connection, Connector, Core, JobError, Pool, PoolConfigBuilder,
    Readiness, SubmitError, TcpStream,
};
use test_support::{Server, keep_alive_ok};

thread_local! {
    /// What the destructor of a connection does.
    static ON_DROP: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
}

/// Has the next connection that is dropped do this, once.
fn on_next_drop(does: impl FnOnce() + 'static) {
    let mut does = Some(does);
    ON_DROP.set(Some(Box::new(move || {
        if let Some(does) = does.take() {
            does();
        }
    })));
}

struct Hooked(TcpStream);

impl Connection for Hooked {
    fn readiness(&self) -> Readiness {
        self.0.readiness()
    }
}

impl Drop for Hooked {
    fn drop(&mut self) {
        // Back in its place only afterwards, and only if it returns: it may drop another one.
        if let Some(mut hook) = ON_DROP.take() {
            hook();
            ON_DROP.set(Some(hook));
        }
    }
}

struct HookedTcp(Core);

impl Connector for HookedTcp {
    type Key = SocketAddr;
    type Connection = Hooked;
    type Error = io::Error;

    async fn connect(&self, key: &SocketAddr) -> io::Result<Hooked> {
        let stream = TcpStream::connect(&self.0, *key, &ConnectOptions::default()).await?;
        Ok(Hooked(stream))
    }
}

fn with_hooked<F, Fut>(config: PoolConfigBuilder, main: F) -> Fut::Output
where
    F: FnOnce(Core, Pool<HookedTcp>) -> Fut,
    Fut: Future,
{
    ON_DROP.take();
    let config = config.build().unwrap();
    let main = |core: Core| {
        let pool = Pool::new(&core, config, HookedTcp(core.clone()));
        main(core, pool)
    };
    Core::builder().run(main).unwrap()
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "as the test wants it");
    }
}

#[test]
fn destructor_may_acquire_while_its_destination_is_being_forgotten() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let config = config().idle_timeout(Duration::from_millis(5));
    with_hooked(config, |core, pool| async move {
        let got = Rc::new(Cell::new(None));
        let (pool2, core2, got2) = (pool.clone(), core.clone(), Rc::clone(&got));
        on_next_drop(move || {
            // One is to be kept warm.
            core2.spawn(async move {
                got2.set(Some(pool2.acquire(&address).await.is_ok()));
            });
        });
        pool.acquire(&address).await.unwrap().release();
        until(&core, "the destructor's acquire has ended", || {
            got.get().is_some()
        })
        .await;
        assert_eq!((got.get(), core.panics()), (Some(true), 0));
    });
}

#[test]
fn destructor_of_an_evicted_connection_may_drain() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    with_hooked(config().max_connections(1), |core, pool| async move {
        pool.acquire(&address).await.unwrap().release();
        let pool2 = pool.clone();
        on_next_drop(move || {
            let mut cx = Context::from_waker(Waker::noop());
            let _ = pin!(pool2.drain(Duration::ZERO)).poll(&mut cx);
        });
        match pool.acquire_fresh(&address).await {
            Err(AcquireError::Draining) => {}
            outcome => panic!("{outcome:?}"),
        }
        pool.drain(Duration::ZERO).await;
        assert_eq!((total(&pool).live(), core.panics()), (0, 0));
        until(&core, "no socket is left", || {
            core.registered_sockets() == 0
        })
        .await;
    });
}

#[test]
fn pool_whose_idle_connections_all_panic_when_dropped_closes_each() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    with_hooked(config(), |core, pool| async move {
        let mut conns = Vec::new();
        for _ in 0..3 {
            conns.push(pool.acquire(&address).await.unwrap());
        }
        conns.into_iter().for_each(pool_core::Pooled::release);
        fn arm() {
            ON_DROP.set(Some(Box::new(|| {
                arm();
                panic!("as the test wants it");
            })));
        }
        arm();
        drop(pool);
        until(&core, "no socket is left", || {
            core.registered_sockets() == 0
        })
        .await;
        assert_eq!(core.panics(), 3);
        ON_DROP.take();
    });
    server.wait_until(|counts| counts.open == 0);
}

#[test]
fn job_that_panics_when_dropped_unrun_does_not_stop_the_end_of_its_core() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let (sender, receiver) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let thread = Core::builder().spawn(move |core| async move {
        let pool = Pool::new(&core, config().build().unwrap(), Tcp(core.clone()));
        let held = pool.acquire(&address).await.unwrap();
        core.spawn(async move {
            let _held = held;
            pending::<()>().await;
        });
        pool.acquire(&address).await.unwrap().release();
        sender.send(pool.handle()).unwrap();
        // Blocks the core on purpose: nobody empties the mailbox.
        let _ = gone.recv();
        7
    });
    let handle = receiver.recv().unwrap();
    let submit = |bomb: Option<Bomb>| {
        let job = move |_| {
            // Not if it runs.
            std::mem::forget(bomb);
            async {}
        };
        handle.submit(job).unwrap()
    };
    let jobs = [submit(Some(Bomb)), submit(Some(Bomb)), submit(None)];
    drop(go);
    let outcome = thread.unwrap().join();
    assert_eq!(outcome.expect("the core ends in order"), 7);
    for job in jobs {
        assert_eq!(wait_for(job), Err(JobError::Gone));
    }
    server.wait_until(|counts| counts.open == 0);
    assert_eq!(handle.submit(|_| async {}).unwrap_err(), SubmitError::Gone);
}

/// Ends at its second poll, with a bomb that only its destructor drops.
struct EndsWithABomb {
    polled: bool,
    _bomb: Bomb,
}

impl Future for EndsWithABomb {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.polled {
            return Poll::Ready(());
        }
        self.polled = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[test]
fn task_that_panics_when_dropped_at_its_end_harms_nobody() {
    let main = |core: Core| async move {
        for polled in [false, true] {
            let before = core.panics();
            core.spawn(EndsWithABomb {
                polled,
                _bomb: Bomb,
            });
            until(&core, "it has ended", || core.panics() == before + 1).await;
        }
        core.sleep(Duration::ZERO).await;
    };
    Core::builder().run(main).unwrap();
}

#[test]
fn task_that_panics_when_cancelled_does_not_stop_the_end_of_its_core() {
    let main = |core: Core| async move {
        let dropped = Rc::new(());
        for bomb in [Some(Bomb), None, Some(Bomb), None] {
            let held = Rc::clone(&dropped);
            core.spawn(async move {
                let _held = (held, bomb);
                pending::<()>().await;
            });
        }
        (core, dropped)
    };
    let (core, dropped) = Core::builder().run(main).unwrap();
    assert_eq!(core.panics(), 2);
    assert_eq!(Rc::strong_count(&dropped), 1, "all were cancelled");
}

#[test]
fn task_that_starts_itself_again_when_dropped_does_not_keep_its_core_from_ending() {
    struct Again(Core, Rc<Cell<u32>>);
    impl Drop for Again {
        fn drop(&mut self) {
            self.1.set(self.1.get() + 1);
            let again = Self(self.0.clone(), Rc::clone(&self.1));
            start(&self.0, again);
        }
    }
    fn start(core: &Core, again: Again) {
        core.spawn(async move {
            let _again = again;
            pending::<()>().await;
        });
    }
    let main = |core: Core| async move {
        let dropped = Rc::new(Cell::new(0));
        start(&core, Again(core.clone(), Rc::clone(&dropped)));
        dropped
    };
    let dropped = Core::builder().run(main).unwrap();
    assert!(dropped.get() > 0);
}

#[test]
fn task_started_on_a_core_that_has_ended_is_dropped() {
    let core = Core::builder().run(|core| async { core }).unwrap();
    let (held, ran) = (Rc::new(()), Rc::new(Cell::new(false)));
    let (held2, ran2) = (Rc::clone(&held), Rc::clone(&ran));
    core.spawn(async move {
        let _held = held2;
        ran2.set(true);
    });
    assert_eq!((Rc::strong_count(&held), ran.get()), (1, false));
    let bomb = Bomb;
    core.spawn(async move {
        let _bomb = bomb;
    });
    assert_eq!(core.panics(), 1);
}

#[test]
fn pool_on_a_core_that_has_ended_refuses() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let main = |core: Core| async move {
        let pool = Pool::new(&core, config().build().unwrap(), Tcp(core.clone()));
        pool.acquire(&address).await.unwrap().release();
        (core, pool)
    };
    let (core, pool) = Core::builder().run(main).unwrap();
    let late = Pool::new(&core, config().build().unwrap(), Tcp(core.clone()));
    for pool in [pool, late] {
        for acquire in [pool.acquire(&address), pool.acquire_fresh(&address)] {
            match pin!(acquire).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Err(AcquireError::Draining)) => {}
                outcome => panic!("{outcome:?}"),
            }
        }
        assert!(pool.try_acquire(&address).is_none());
        let stats = total(&pool);
        assert_eq!((stats.live(), stats.pending.current), (0, 0), "{stats:?}");
        let submitted = pool.handle().submit(|_| async {});
        assert_eq!(submitted.unwrap_err(), SubmitError::Gone);
    }
    assert_eq!((core.registered_sockets(), core.panics()), (0, 0));
}

/// Panics with a value whose destructor panics.
fn panic_with_a_bomb() {
    std::panic::panic_any(Bomb);
}

struct WakesWithABomb;

impl Wake for WakesWithABomb {
    fn wake(self: Arc<Self>) {
        panic_with_a_bomb();
    }
}

#[test]
fn panic_whose_value_panics_when_dropped_is_as_any_other() {
    let main = |core: Core| async move {
        core.spawn(async { panic_with_a_bomb() });
        assert_eq!(core.panics(), 1);
        core.spawn(async {
            yield_now().await;
            panic_with_a_bomb();
        });
        until(&core, "it has ended", || core.panics() == 2).await;
        let pool = Pool::new(&core, config().build().unwrap(), Tcp(core.clone()));
        let job = pool.handle().submit(|_| async { panic_with_a_bomb() });
        assert_eq!(job.unwrap().await, Err(JobError::Panicked));
        let waker = Waker::from(Arc::new(WakesWithABomb));
        let mut sleep = pin!(core.sleep(Duration::ZERO));
        let early = sleep.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(early.is_pending());
        core.sleep(Duration::from_millis(5)).await;
        sleep.await;
    };
    Core::builder().run(main).unwrap();
}
