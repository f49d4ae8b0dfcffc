//! A core whose descriptors fail it. These tests change what the whole process shares, so they are
//! a binary of their own and run one after the other.
#![cfg(feature = "glommio")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use common::{DEADLINE, Tcp, assert_in_order, config, exchange, total, wait_for};
use pool_core::{AcquireError, Core, Pool, SubmitError};
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

/// Puts something else in the place of every readiness set of the process.
#[allow(unsafe_code, reason = "no fault that the API allows ends a core")]
fn break_readiness_sets() {
    let null = File::open("/dev/null").unwrap();
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    for entry in entries.map(Result::unwrap) {
        let is_set = std::fs::read_link(entry.path())
            .is_ok_and(|target| target.to_string_lossy().contains("[eventpoll]"));
        if is_set {
            let number: i32 = entry.file_name().to_string_lossy().parse().unwrap();
            // SAFETY: it is open, as nothing else runs; it is not closed here, and stays open.
            let set = unsafe { OwnedFd::from_raw_fd(number) };
            let mut set = std::mem::ManuallyDrop::new(set);
            rustix::io::dup2(&null, &mut set).unwrap();
            assert_eq!(set.as_raw_fd(), number);
        }
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
    break_readiness_sets();
    drop(go);
    eventually(DEADLINE, || thread.is_finished());
    assert!(thread.join().is_err(), "it died");
    assert!(wait_for(job).is_err());
    assert_eq!(handle.submit(|_| async {}).unwrap_err(), SubmitError::Gone);
}
