//! The cores of an engine: started together, reached together, ended together.
#![cfg(feature = "glommio")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use common::{DEADLINE, Tcp, config, exchange, total, until, wait_for};
use pool_core::{
    AcquireError, CloseReason, ConnectOptions, Connector, Core, CoreEnd, Engine, EngineBuilder,
    EngineReport, EngineStartError, JobError, Pool, StartError, SubmitError, TcpStream,
    allowed_cpus,
};
use test_support::{Server, eventually, keep_alive_ok, never_answer};

/// Two cores that go wherever there is room, with a name by which their threads are known.
fn two_cores<C: Connector>(name: &str) -> EngineBuilder<C> {
    Engine::builder().unpinned(2).name(name)
}

fn start(name: &str) -> Engine<Tcp> {
    let builder = two_cores(name).config(config().max_connections(1).build().unwrap());
    builder.start(|core| Tcp(core.clone())).unwrap()
}

/// How many threads the engine of that name has. A core's executor has one more, named like its
/// own.
fn threads(name: &str) -> usize {
    let prefix = format!("{name}-");
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let comm = |task: io::Result<std::fs::DirEntry>| {
        // A thread may end between the two looks.
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    let names = tasks.filter_map(comm);
    names.filter(|comm| comm.starts_with(&prefix)).count()
}

/// Drains an engine, and says so if it never ends.
fn drain<C: Connector>(engine: Engine<C>, grace: Duration) -> EngineReport {
    let (sender, drained) = mpsc::channel();
    thread::spawn(move || sender.send(engine.drain_blocking(grace)));
    drained.recv_timeout(DEADLINE).expect("a drain ends")
}

fn ends(report: &EngineReport) -> Vec<CoreEnd> {
    report.cores.iter().map(|core| core.end).collect()
}

/// A switch that a job can wait for and a test can throw.
#[derive(Clone, Default)]
struct Switch(Arc<AtomicBool>);

impl Switch {
    fn throw(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_thrown(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    async fn thrown(&self, pool: &Pool<Tcp>) {
        until(pool.core(), "the switch is thrown", || self.is_thrown()).await;
    }
}

/// Throws its switch when it is dropped.
struct Dropped(Switch);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.throw();
    }
}

#[test]
fn every_core_has_a_thread_and_a_pool_of_its_own() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let engine = start("own");
    let handle = engine.handle();
    assert_eq!(handle.pools().len(), 2);
    let jobs = handle.each(move |pool| async move {
        let mut conn = pool.acquire(&address).await.unwrap();
        exchange(&mut conn).await.unwrap();
        conn.release();
        let name = thread::current().name().unwrap().to_owned();
        (name, total(&pool).idle.current)
    });
    let answers: Vec<_> = jobs
        .into_iter()
        .map(|job| wait_for(job.unwrap()).unwrap())
        .collect();
    assert_eq!(answers, [("own-0".to_owned(), 1), ("own-1".to_owned(), 1)]);
    assert_eq!(server.counts().open, 2);
    assert_eq!(handle.running().collect::<Vec<_>>(), [0, 1]);
    let report = drain(engine, DEADLINE);
    assert!(report.is_drained());
    assert_eq!(report.total().closed(CloseReason::Drained), 2);
    assert_eq!(handle.running().count(), 0);
    server.wait_until(|counts| counts.open == 0);
}

#[test]
fn by_default_there_is_a_core_pinned_to_each_allowed_cpu() {
    let cpus = allowed_cpus().unwrap();
    let engine = Engine::builder().start(|core| Tcp(core.clone())).unwrap();
    let jobs = engine.handle().each(|_| async { allowed_cpus().unwrap() });
    let pinned: Vec<_> = jobs
        .into_iter()
        .flat_map(|job| wait_for(job.unwrap()).unwrap())
        .collect();
    assert_eq!(pinned, cpus);
}

#[test]
fn drain_closes_idle_refuses_new_and_serves_those_who_wait() {
    let (server, other) = (
        Server::script(keep_alive_ok()),
        Server::script(keep_alive_ok()),
    );
    let (address, idle) = (server.addr(), other.addr());
    let engine = start("serve");
    let handle = engine.handle();
    let go = Switch::default();
    let jobs = handle.each({
        let go = go.clone();
        move |pool| async move {
            pool.acquire(&idle).await.unwrap().release();
            let mut held = pool.acquire(&address).await.unwrap();
            go.thrown(&pool).await;
            let late = pool.acquire(&idle).await.unwrap_err();
            assert!(matches!(late, AcquireError::Draining), "{late}");
            exchange(&mut held).await.unwrap();
            held.release();
        }
    });
    server.wait_until(|counts| counts.open == 2);
    let waiters = handle.each(move |pool| async move {
        let mut conn = pool.acquire(&address).await.unwrap();
        exchange(&mut conn).await.unwrap();
        conn.release();
    });
    let draining = engine.drain(DEADLINE);
    other.wait_until(|counts| counts.accepted == 2 && counts.open == 0);
    for refused in handle.each(|_| async {}) {
        assert_eq!(refused.unwrap_err(), SubmitError::Draining);
    }
    go.throw();
    for job in jobs.into_iter().chain(waiters) {
        wait_for(job.unwrap()).unwrap();
    }
    let report = futures_lite::future::block_on(draining);
    assert!(report.is_drained(), "{report:?}");
    let total = report.total();
    // On each core: one that was idle, and one that was held, handed on, and closed in the end.
    assert_eq!((total.opened, total.closed(CloseReason::Drained)), (4, 4));
    assert_eq!((total.acquires.queued, total.rejected.draining), (2, 2));
    for refused in handle.each(|_| async {}) {
        assert_eq!(refused.unwrap_err(), SubmitError::Gone);
    }
}

#[test]
fn what_is_left_at_the_deadline_is_ended() {
    let silent = Server::script(never_answer());
    let address = silent.addr();
    let engine = start("forced");
    let handle = engine.handle();
    let holders = handle.each(move |pool| async move {
        let mut held = pool.acquire(&address).await.unwrap();
        let broken = exchange(&mut held).await.unwrap_err();
        assert!(broken.to_string().contains("drain"), "{broken}");
    });
    silent.wait_until(|counts| counts.requests == 2);
    let waiters = handle.each(move |pool| async move {
        let rejected = pool.acquire(&address).await.unwrap_err();
        assert!(matches!(rejected, AcquireError::Draining), "{rejected}");
    });
    let idlers = handle.each(|_| pending::<()>());
    let (began, grace) = (Instant::now(), Duration::from_millis(200));
    let report = drain(engine, grace);
    println!("ended {:?} after the deadline", began.elapsed() - grace);
    for job in holders.into_iter().chain(waiters) {
        assert_eq!(wait_for(job.unwrap()), Ok(()), "it was told");
    }
    for job in idlers {
        assert_eq!(wait_for(job.unwrap()), Err(JobError::Gone));
    }
    for core in &report.cores {
        // On a machine that is very busy with something else, the clean-up is late.
        assert!(matches!(core.end, CoreEnd::CutShort | CoreEnd::Stuck));
        if let Some(counts) = core.counts {
            assert_eq!(counts.pool.closed(CloseReason::Drained), 1);
            assert_eq!((counts.pool.rejected.draining, counts.pool.live()), (1, 0));
        }
    }
    silent.wait_until(|counts| counts.open == 0);
    eventually(DEADLINE, || threads("forced") == 0);
}

#[test]
fn drain_without_grace_still_tells_holders_and_waiters() {
    let silent = Server::script(never_answer());
    let address = silent.addr();
    let engine = start("at-once");
    let handle = engine.handle();
    let holders = handle.each(move |pool| async move {
        let mut held = pool.acquire(&address).await.unwrap();
        exchange(&mut held).await.is_err()
    });
    silent.wait_until(|counts| counts.requests == 2);
    let waiters = handle.each(move |pool| async move { pool.acquire(&address).await.is_err() });
    drain(engine, Duration::ZERO);
    for job in holders.into_iter().chain(waiters) {
        assert_eq!(wait_for(job.unwrap()), Ok(true));
    }
}

#[test]
fn jobs_that_were_taken_before_the_drain_are_served() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let engine = start("taken");
    let handle = engine.handle();
    let (go, gone) = mpsc::channel::<()>();
    // Blocks the core on purpose, so that more jobs come in than it takes in one turn, and for so
    // long that glommio looks next at what other threads have woken.
    let (blocks, blocked) = mpsc::channel();
    let blocking = handle.pools()[0].submit(move |_| {
        blocks.send(()).unwrap();
        let _ = gone.recv();
        thread::sleep(Duration::from_millis(150));
        async {}
    });
    blocked.recv().unwrap();
    let submit = |_| {
        let job = handle.pools()[0].submit(move |pool| async move {
            let mut conn = pool.acquire(&address).await.unwrap();
            exchange(&mut conn).await.unwrap();
            conn.release();
        });
        job.unwrap()
    };
    let jobs: Vec<_> = (0..600).map(submit).collect();
    let draining = engine.drain(DEADLINE);
    drop(go);
    wait_for(blocking.unwrap()).unwrap();
    for job in jobs {
        wait_for(job).unwrap();
    }
    assert!(futures_lite::future::block_on(draining).is_drained());
}

#[test]
fn grace_without_end_waits_for_the_last_holder() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let engine = start("patient");
    let go = Switch::default();
    let handle = engine.handle();
    let job = handle.pools()[1].submit({
        let go = go.clone();
        move |pool| async move {
            let held = pool.acquire(&address).await.unwrap();
            go.thrown(&pool).await;
            held.release();
        }
    });
    server.wait_until(|counts| counts.open == 1);
    // Not polled, and dropped: the drain goes on all the same.
    drop(engine.drain(Duration::MAX));
    eventually(DEADLINE, || handle.running().eq([1]));
    go.throw();
    wait_for(job.unwrap()).unwrap();
    eventually(DEADLINE, || threads("patient") == 0);
    server.wait_until(|counts| counts.open == 0);
}

#[test]
fn tasks_and_jobs_are_dropped_with_their_core() {
    let engine = start("dropped");
    let switches: [Switch; 3] = Default::default();
    let [task, job, sleeper] = switches.clone().map(Dropped);
    let handle = engine.handle();
    let submitted = handle.pools()[0].submit(move |pool| async move {
        pool.core().spawn(async move {
            let _task = task;
            pending::<()>().await;
        });
        let core = pool.core().clone();
        pool.core().spawn(async move {
            let _sleeper = sleeper;
            core.sleep(Duration::from_secs(3600)).await;
        });
        let _job = job;
        pending::<()>().await;
    });
    // No connection is held: there is nothing to wait for.
    assert!(drain(engine, DEADLINE).is_drained());
    assert_eq!(wait_for(submitted.unwrap()), Err(JobError::Gone));
    assert!(switches.iter().all(Switch::is_thrown));
}

/// Panics for one address and connects to the others.
struct Touchy(Core, SocketAddr);

impl Connector for Touchy {
    type Key = SocketAddr;
    type Connection = TcpStream;
    type Error = io::Error;

    async fn connect(&self, key: &SocketAddr) -> io::Result<TcpStream> {
        assert_ne!(*key, self.1, "on purpose");
        TcpStream::connect(&self.0, *key, &ConnectOptions::default()).await
    }
}

#[test]
fn panics_of_user_code_are_counted_and_the_core_lives_on() {
    let (server, touched) = (
        Server::script(keep_alive_ok()),
        Server::script(keep_alive_ok()),
    );
    let (address, touchy) = (server.addr(), touched.addr());
    let engine = two_cores("panics")
        .start(move |core| Touchy(core.clone(), touchy))
        .unwrap();
    let handle = engine.handle();
    let pool = &handle.pools()[0];
    let job = pool.submit(|_| async { panic!("on purpose") });
    assert_eq!(wait_for::<()>(job.unwrap()), Err(JobError::Panicked));
    let task = pool.submit(|pool| {
        pool.core().spawn(async { panic!("on purpose") });
        async {}
    });
    assert_eq!(wait_for(task.unwrap()), Ok(()));
    let connect = pool.submit(move |pool| async move {
        let error = pool.acquire(&touchy).await.unwrap_err();
        assert!(matches!(error, AcquireError::ConnectPanicked), "{error}");
    });
    assert_eq!(wait_for(connect.unwrap()), Ok(()));
    let after = pool.submit(move |pool| async move {
        pool.acquire(&address).await.unwrap().release();
        pool.core().panics()
    });
    assert_eq!(wait_for(after.unwrap()), Ok(3));
    assert_eq!(handle.running().count(), 2);
    let report = drain(engine, DEADLINE);
    assert!(report.is_drained());
    let panics: Vec<_> = report
        .cores
        .iter()
        .map(|core| core.counts.unwrap().panics)
        .collect();
    assert_eq!(panics, [3, 0]);
}

#[test]
fn core_that_cannot_be_started_is_named_and_the_others_end() {
    let allowed = allowed_cpus().unwrap()[0];
    let refused = Engine::builder()
        .cpus([allowed, 4095])
        .name("no-cpu")
        .start(|core| Tcp(core.clone()));
    let error = refused.unwrap_err();
    assert_eq!(
        error.to_string(),
        "core 1: there is no CPU 4095 that this process may run on"
    );
    let EngineStartError::Core { core: 1, source } = error else {
        panic!("{error:?}");
    };
    assert!(matches!(source, StartError::NoSuchCpu { cpu: 4095 }));
    eventually(DEADLINE, || threads("no-cpu") == 0);
}

#[test]
fn connector_that_panics_while_it_is_made_is_a_start_error() {
    let first = AtomicBool::new(true);
    let refused = two_cores("no-conn").start(move |core| {
        assert!(first.swap(false, Ordering::Relaxed), "on purpose");
        Tcp(core.clone())
    });
    let error = refused.unwrap_err();
    assert!(
        matches!(error, EngineStartError::ConnectorPanicked { core: 1 }),
        "{error}"
    );
    eventually(DEADLINE, || threads("no-conn") == 0);
}

#[test]
fn engine_without_cores_is_refused() {
    for builder in [Engine::builder().cpus([]), Engine::builder().unpinned(0)] {
        let error = builder.start(|core| Tcp(core.clone())).unwrap_err();
        assert!(matches!(error, EngineStartError::NoCores), "{error}");
    }
}

#[test]
fn dropping_an_engine_ends_its_threads_and_what_they_hold() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let engine = start("drop");
    let handle = engine.handle();
    let jobs = handle.each(move |pool| async move {
        let _held = pool.acquire(&address).await.unwrap();
        pending::<()>().await;
    });
    server.wait_until(|counts| counts.open == 2);
    drop(engine);
    assert_eq!(handle.running().count(), 0, "it has waited");
    eventually(DEADLINE, || threads("drop") == 0);
    for job in jobs {
        assert_eq!(wait_for(job.unwrap()), Err(JobError::Gone));
    }
    server.wait_until(|counts| counts.open == 0);
}

#[test]
fn engine_may_be_dropped_on_a_core_of_its_own() {
    let engine = start("inside");
    let pools = engine.handle();
    let job = pools.pools()[0].submit(move |_| async move { drop(engine) });
    assert_eq!(
        wait_for(job.unwrap()),
        Ok(()),
        "it does not wait for itself"
    );
    eventually(DEADLINE, || threads("inside") == 0);
}

#[test]
fn drain_does_not_wait_for_a_core_that_is_blocked() {
    let engine = start("stuck");
    let handle = engine.handle();
    let (go, gone) = mpsc::channel::<()>();
    let (blocks, blocked) = mpsc::channel();
    let job = handle.pools()[0].submit(move |_| {
        blocks.send(()).unwrap();
        let _ = gone.recv();
        async {}
    });
    blocked.recv().unwrap();
    let report = drain(engine, Duration::from_secs(1));
    assert_eq!(ends(&report), [CoreEnd::Stuck, CoreEnd::Drained]);
    assert!(report.cores[0].counts.is_none());
    let refused = handle.pools()[0].submit(|_| async {}).unwrap_err();
    assert_eq!(refused, SubmitError::Draining);
    drop(go);
    eventually(DEADLINE, || threads("stuck") == 0);
    drop(job);
}

#[test]
fn engine_and_its_handle_go_to_any_thread() {
    fn any_thread<T: Send + Sync>() {}
    any_thread::<Engine<Tcp>>();
    any_thread::<pool_core::EngineHandle<Tcp>>();
}
