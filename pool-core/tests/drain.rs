//! The end of a pool, and of the core under it.
#![cfg(feature = "glommio")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{DEADLINE, config, exchange, total, until, with_pool};
use pool_core::{AcquireError, CloseReason, JobError, SubmitError};
use test_support::{HangingListener, Server, keep_alive_ok, never_answer};

/// Fault row G6.
#[test]
fn drain_closes_idle_at_once_and_waits_for_the_held_ones() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    with_pool(config(), |core, pool| async move {
        let mut conns = Vec::new();
        for _ in 0..7 {
            conns.push(pool.acquire(&address).await.unwrap());
        }
        let busy = conns.split_off(5);
        conns.into_iter().for_each(pool_core::Pooled::release);
        let drained = Rc::new(Cell::new(false));
        let (pool2, drained2) = (pool.clone(), Rc::clone(&drained));
        core.spawn(async move {
            pool2.drain(DEADLINE).await;
            drained2.set(true);
        });
        assert_eq!(total(&pool).closed(CloseReason::Drained), 5);
        let refused = pool.acquire(&address).await.unwrap_err();
        assert!(matches!(refused, AcquireError::Draining));
        for mut conn in busy {
            assert!(!drained.get());
            exchange(&mut conn).await.unwrap();
            conn.release();
        }
        until(&core, "it is drained", || drained.get()).await;
        assert_eq!(total(&pool).live(), 0);
    });
    server.wait_until(|counts| counts.open == 0);
}

/// Fault row G7.
#[test]
fn drain_ends_what_is_left_at_its_deadline() {
    let (silent, hanging) = (Server::script(never_answer()), HangingListener::new());
    let (address, nowhere) = (silent.addr(), hanging.addr());
    with_pool(config().max_connections(1), |core, pool| async move {
        let mut held = pool.acquire(&address).await.unwrap();
        let rejected = Rc::new(Cell::new(0));
        for target in [address, nowhere] {
            let (pool, rejected) = (pool.clone(), Rc::clone(&rejected));
            core.spawn(async move {
                let error = pool.acquire(&target).await.unwrap_err();
                assert!(matches!(error, AcquireError::Draining), "{error}");
                rejected.set(rejected.get() + 1);
            });
        }
        pool.drain(Duration::from_millis(30)).await;
        until(&core, "the waiters know", || rejected.get() == 2).await;
        assert!(exchange(&mut held).await.is_err());
        assert_eq!(total(&pool).live(), 0);
        drop(held);
        until(&core, "no socket is left", || {
            core.registered_sockets() == 0
        })
        .await;
    });
    silent.wait_until(|counts| counts.open == 0);
}

#[test]
fn end_of_the_core_closes_what_its_pools_and_tasks_hold() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let handle = with_pool(config(), |core, pool| async move {
        pool.acquire(&address).await.unwrap().release();
        let pool2 = pool.clone();
        core.spawn(async move {
            let _held = pool2.acquire(&address).await.unwrap();
            std::future::pending::<()>().await;
        });
        pool.handle()
    });
    server.wait_until(|counts| counts.open == 0);
    let refused = handle.submit(|_| async {}).unwrap_err();
    assert!(
        matches!(refused, SubmitError::Gone | SubmitError::Draining),
        "{refused}"
    );
}

#[test]
fn job_from_another_thread_runs_on_the_core() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    with_pool(config(), |core, pool| async move {
        let handle = pool.handle();
        let jobs = std::thread::spawn(move || {
            for _ in 0..100 {
                let job = handle.submit(move |pool| async move {
                    let mut conn = pool.acquire(&address).await.unwrap();
                    exchange(&mut conn).await.unwrap();
                    conn.release();
                });
                job.unwrap().wait().unwrap();
            }
        });
        until(&core, "the jobs are done", || jobs.is_finished()).await;
        jobs.join().unwrap();
        assert_eq!(total(&pool).acquires.requested, 100);
        // On its own core a job runs at once.
        let ran = Rc::new(Cell::new(false));
        let own = pool.handle().submit(|pool| {
            let live = pool.snapshot().total.live();
            async move { live }
        });
        ran.set(true);
        assert_eq!(own.unwrap().await, Ok(1));
    });
}

#[test]
fn panicking_job_says_so_and_harms_nobody() {
    with_pool(config(), |core, pool| async move {
        let handle = pool.handle();
        let job = std::thread::spawn(move || {
            let outside = handle
                .submit(|_| async { panic!("on purpose") })
                .unwrap()
                .wait();
            let at_once = handle
                .submit(|_| -> std::future::Ready<()> { panic!("on purpose") })
                .unwrap()
                .wait();
            (outside, at_once)
        });
        until(&core, "the jobs are done", || job.is_finished()).await;
        assert_eq!(
            job.join().unwrap(),
            (Err(JobError::Panicked), Err(JobError::Panicked))
        );
        assert_eq!(core.panics(), 2);
    });
}

#[test]
fn full_mailbox_and_ended_core_are_told_apart_and_no_job_waits_for_ever() {
    let core = pool_core::Core::builder().mailbox_capacity(2);
    let (sender, receiver) = std::sync::mpsc::channel();
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let thread = core.spawn(move |core| async move {
        let config = config().build().unwrap();
        let pool = pool_core::Pool::new(&core, config, common::Tcp(core.clone()));
        sender.send(pool.handle()).unwrap();
        // Blocks the core on purpose: nobody empties the mailbox.
        let _ = gone.recv();
    });
    let handle = receiver.recv().unwrap();
    let queued = [
        handle.submit(|_| async {}).unwrap(),
        handle.submit(|_| async {}).unwrap(),
    ];
    assert_eq!(handle.submit(|_| async {}).unwrap_err(), SubmitError::Full);
    drop(go);
    thread.unwrap().join().unwrap();
    for job in queued {
        assert_eq!(job.wait(), Err(JobError::Gone));
    }
    assert!(handle.submit(|_| async {}).is_err());
}

#[test]
fn dropped_result_cancels_the_job() {
    struct Flag(Arc<AtomicBool>);
    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    with_pool(config(), |core, pool| async move {
        let dropped = Arc::new(AtomicBool::new(false));
        let flag = Flag(Arc::clone(&dropped));
        let submitted = pool.handle().submit(move |_| async move {
            let _flag = flag;
            std::future::pending::<()>().await;
        });
        drop(submitted.unwrap());
        until(&core, "the job is dropped", || {
            dropped.load(Ordering::Relaxed)
        })
        .await;
    });
}

#[test]
fn submit_is_refused_while_the_pool_drains_and_after_the_end_of_its_core() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let draining = with_pool(config(), |core, pool| async move {
        let held = pool.acquire(&address).await.unwrap();
        let handle = pool.handle();
        let pool2 = pool.clone();
        core.spawn(async move { pool2.drain(DEADLINE).await });
        let elsewhere = handle.clone();
        let thread = std::thread::spawn(move || elsewhere.submit(|_| async {}).unwrap_err());
        assert_eq!(thread.join().unwrap(), SubmitError::Draining);
        let here = handle.submit(|_| async {}).unwrap_err();
        assert_eq!(here, SubmitError::Draining);
        held.release();
        pool.drain(DEADLINE).await;
        let drained = handle.submit(|_| async {}).unwrap_err();
        assert_eq!(drained, SubmitError::Draining);
        handle
    });
    let open = with_pool(config(), |core, pool| async move {
        let handle = pool.handle();
        core.spawn(async move {
            let _pool = pool;
            std::future::pending::<()>().await;
        });
        handle
    });
    for handle in [draining, open] {
        assert_eq!(handle.submit(|_| async {}).unwrap_err(), SubmitError::Gone);
    }
}
