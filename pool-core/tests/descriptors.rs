//! A core whose descriptors fail it. These tests change what the whole process shares, so they are
//! a binary of their own and run one after the other.
#![cfg(feature = "glommio")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use common::{DEADLINE, Tcp, assert_in_order, config, exchange, total, wait_for};
use pool_core::{AcquireError, Core, CoreEnd, Engine, Pool, SubmitError};
use rustix::process::{Resource, getrlimit, setrlimit};
use test_support::{Server, eventually, keep_alive_ok};

/// More than the tests and their servers have open at a time, and soon used up.
const FEW: u64 = 256;

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(FEW);
    setrlimit(Resource::Nofile, limit).unwrap();
    alone
}

#[test]
fn core_without_descriptors_goes_on_and_recovers() {
    let _alone = alone();
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    // On a thread of its own: a core that does not wake up cannot tell that it is late.
    let thread = Core::builder().spawn(move |core| async move {
        let pool = Pool::new(&core, config().build().unwrap(), Tcp(core.clone()));
        let mut conn = pool.acquire(&address).await.unwrap();
        exchange(&mut conn).await.unwrap();
        let mut files = Vec::new();
        while let Ok(file) = File::open("/dev/null") {
            files.push(file);
        }
        for _ in 0..100 {
            exchange(&mut conn).await.unwrap();
        }
        // Nothing wakes it but its time.
        core.sleep(Duration::from_millis(5)).await;
        match pool.acquire(&address).await.unwrap_err() {
            AcquireError::Connect(error) => {
                let too_many = rustix::io::Errno::MFILE.raw_os_error();
                assert_eq!(error.raw_os_error(), Some(too_many), "{error}");
            }
            other => panic!("{other}"),
        }
        drop(files);
        conn.release();
        let conns = [
            pool.acquire(&address).await.unwrap(),
            pool.acquire(&address).await.unwrap(),
        ];
        for mut conn in conns {
            exchange(&mut conn).await.unwrap();
            conn.release();
        }
        assert_eq!((total(&pool).idle.current, core.panics()), (2, 0));
        assert_in_order(&core, &pool, 4).await;
    });
    let thread = thread.unwrap();
    eventually(DEADLINE, || thread.is_finished());
    thread.join().expect("it went on");
}

/// The numbers of the open descriptors for which `is_wanted` holds, given what they stand for.
fn descriptors(is_wanted: impl Fn(&str) -> bool) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    let number = |entry: std::fs::DirEntry| {
        // The one that reads the directory is gone by the time it is looked at.
        let target = std::fs::read_link(entry.path()).ok()?;
        let number = entry.file_name().to_string_lossy().parse().ok()?;
        is_wanted(&target.to_string_lossy()).then_some(number)
    };
    entries.map(Result::unwrap).filter_map(number).collect()
}

fn readiness_sets() -> Vec<i32> {
    descriptors(|target| target.contains("[eventpoll]"))
}

/// Puts something else in the place of each of these readiness sets.
#[allow(unsafe_code, reason = "no fault that the API allows ends a core")]
fn break_readiness_sets(numbers: &[i32]) {
    let null = File::open("/dev/null").unwrap();
    for number in numbers {
        // SAFETY: it is open, as no other test runs; it is not closed here, and stays open.
        let set = unsafe { OwnedFd::from_raw_fd(*number) };
        let mut set = std::mem::ManuallyDrop::new(set);
        rustix::io::dup2(&null, &mut set).unwrap();
        assert_eq!(set.as_raw_fd(), *number);
    }
}

#[test]
fn no_job_waits_for_a_core_that_died() {
    let _alone = alone();
    let (sender, receiver) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let thread = Core::builder().spawn(move |core| async move {
        let pool = Pool::new(&core, config().build().unwrap(), Tcp(core.clone()));
        sender.send(pool.handle()).unwrap();
        // Blocks the core on purpose: nobody empties the mailbox.
        let _ = gone.recv();
        std::future::pending::<()>().await;
    });
    let thread = thread.unwrap();
    let handle = receiver.recv().unwrap();
    let job = handle.submit(|_| std::future::pending::<()>()).unwrap();
    break_readiness_sets(&readiness_sets());
    drop(go);
    eventually(DEADLINE, || thread.is_finished());
    assert!(thread.join().is_err(), "it died");
    assert!(wait_for(job).is_err());
    assert_eq!(handle.submit(|_| async {}).unwrap_err(), SubmitError::Gone);
}

#[test]
fn core_that_dies_is_told_and_its_engine_still_drains() {
    let _alone = alone();
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let sets: Arc<Mutex<Option<Vec<i32>>>> = Arc::default();
    let first = Arc::clone(&sets);
    let engine = Engine::builder().unpinned(2).start(move |core| {
        // The cores start one after the other: the first finds only its own.
        first.lock().unwrap().get_or_insert_with(readiness_sets);
        Tcp(core.clone())
    });
    let engine = engine.unwrap();
    let handle = engine.handle();
    break_readiness_sets(sets.lock().unwrap().as_deref().unwrap());
    // Wakes it up, if it has not found out yet.
    let _job = handle.pools()[0].submit(|_| std::future::pending::<()>());
    eventually(DEADLINE, || handle.running().eq([1]));
    let refused = handle.pools()[0].submit(|_| async {}).unwrap_err();
    assert_eq!(refused, SubmitError::Gone);
    let job = handle.pools()[1].submit(move |pool| async move {
        let mut conn = pool.acquire(&address).await.unwrap();
        exchange(&mut conn).await.unwrap();
        conn.release();
    });
    assert_eq!(wait_for(job.unwrap()), Ok(()), "the other goes on");
    let (sender, drained) = mpsc::channel();
    std::thread::spawn(move || sender.send(engine.drain_blocking(DEADLINE)));
    let report = drained.recv_timeout(DEADLINE).expect("a drain ends");
    let ends: Vec<CoreEnd> = report.cores.iter().map(|core| core.end).collect();
    assert_eq!(ends, [CoreEnd::Died, CoreEnd::Drained]);
    assert!(!report.is_drained());
}

#[test]
fn engine_leaves_no_descriptor_behind() {
    const CORES: usize = 2;
    let _alone = alone();
    let is_event = |target: &str| target.contains("[eventfd]");
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let mut handles = Vec::new();
    let mut end_an_engine = |grace: Option<Duration>| {
        let config = config().max_connections(2).build().unwrap();
        let engine = Engine::builder().unpinned(CORES).config(config);
        let engine = engine.start(|core| Tcp(core.clone())).unwrap();
        let jobs = engine.handle().each(move |pool| async move {
            pool.acquire(&address).await.unwrap().release();
            let _held = [
                pool.acquire(&address).await.unwrap(),
                pool.acquire(&address).await.unwrap(),
            ];
            let _waits = pool.acquire(&address).await;
            std::future::pending::<()>().await;
        });
        server.wait_until(|counts| counts.open == 2 * CORES);
        handles.push((engine.handle(), jobs));
        match grace {
            Some(grace) => drop(engine.drain_blocking(grace)),
            None => drop(engine),
        }
        server.wait_until(|counts| counts.open == 0);
    };
    // What the process keeps for good, such as what the first core opens for all.
    end_an_engine(None);
    let others = descriptors(|target| !is_event(target)).len();
    let events = descriptors(is_event).len();
    let graces = [None, Some(Duration::ZERO), Some(Duration::from_millis(20))];
    let ended = graces.map(&mut end_an_engine).len();
    eventually(DEADLINE, || {
        descriptors(|target| !is_event(target)).len() <= others
    });
    // glommio forgets one with each executor. The handles, which are still there, hold none.
    let forgotten = ended * CORES;
    eventually(DEADLINE, || {
        descriptors(is_event).len() <= events + forgotten
    });
    drop(handles);
}
