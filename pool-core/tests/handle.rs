//! Work for a pool from threads that are not its core's.
#![cfg(feature = "glommio")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use common::{DEADLINE, Random, Tcp, config, until, wait_for, with_pool};
use futures_lite::future::{block_on, zip};
use pool_core::{
    ConnectOptions, Connector, Core, CoreThread, Pool, PoolConfig, PoolHandle, SubmitError,
    TcpStream,
};
use test_support::eventually;

const SENDERS: usize = 4;

/// What a core's pool makes connections with, and where it notes what has come.
struct Desk {
    core: Core,
    /// The next number that each sender's messages ought to have.
    next: RefCell<[u32; SENDERS]>,
    out_of_order: Cell<u32>,
    closed: Cell<bool>,
    waiting: Cell<Option<Waker>>,
}

impl Connector for Desk {
    type Key = SocketAddr;
    type Connection = TcpStream;
    type Error = io::Error;

    async fn connect(&self, key: &SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect(&self.core, *key, &ConnectOptions::default()).await
    }
}

impl Desk {
    fn receive(&self, sender: usize, number: u32) {
        let next = &mut self.next.borrow_mut()[sender];
        if number != *next {
            self.out_of_order.set(self.out_of_order.get() + 1);
        }
        *next += 1;
    }

    fn close(&self) {
        self.closed.set(true);
        if let Some(waker) = self.waiting.take() {
            waker.wake();
        }
    }

    /// No timer runs, so nothing but a job ends the core's sleep.
    async fn wait_until_closed(&self) {
        poll_fn(|cx| {
            self.waiting.set(Some(cx.waker().clone()));
            match self.closed.get() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }
}

/// A core that takes jobs until its desk closes, with a mailbox that is full in no time. It comes
/// to its mail only once `go` has gone.
fn open_desk(go: Receiver<()>) -> (PoolHandle<Desk>, CoreThread<()>) {
    let (handles, handle) = mpsc::channel();
    let core = Core::builder().mailbox_capacity(64);
    let thread = core.spawn(move |core| async move {
        let desk = Desk {
            core: core.clone(),
            next: RefCell::default(),
            out_of_order: Cell::new(0),
            closed: Cell::new(false),
            waiting: Cell::new(None),
        };
        let pool = Pool::new(&core, PoolConfig::default(), desk);
        handles.send(pool.handle()).unwrap();
        let _ = go.recv();
        pool.connector().wait_until_closed().await;
        assert_eq!(core.panics(), 0);
    });
    (handle.recv().unwrap(), thread.unwrap())
}

/// Sends numbered messages to both desks, as they come, and again if the mailbox is full.
struct Numbered<'a> {
    sender: usize,
    desks: &'a [PoolHandle<Desk>; 2],
    sent: [u32; 2],
    refused: u32,
    /// Dropped at the first refusal.
    go: Option<[Sender<()>; 2]>,
    random: Random,
}

impl Numbered<'_> {
    fn send(&mut self, messages: u32) {
        for _ in 0..messages {
            let to = self.random.pick(&[0, 1]);
            self.send_one(to);
        }
    }

    fn send_one(&mut self, to: usize) {
        let (sender, number) = (self.sender, self.sent[to]);
        // Now and then one that keeps the core busy.
        let slow = self.random.one_in(5_000);
        let started = Instant::now();
        loop {
            let sent = self.desks[to].send(move |pool| async move {
                pool.connector().receive(sender, number);
                if slow {
                    thread::sleep(Duration::from_micros(500));
                }
            });
            match sent {
                Ok(()) => break,
                Err(refusal) => assert_eq!(refusal, SubmitError::Full),
            }
            assert!(started.elapsed() < DEADLINE, "the core does not wake up");
            self.refused += 1;
            self.go = None;
            thread::yield_now();
        }
        self.sent[to] += 1;
    }
}

/// What has come to a desk, of which sender, and how many were out of order. What was sent before
/// comes before the question.
fn received(desk: &PoolHandle<Desk>) -> ([u32; SENDERS], u32) {
    let mut asked = None;
    eventually(DEADLINE, || {
        let submitted = desk.submit(|pool| async move {
            let desk = pool.connector();
            (*desk.next.borrow(), desk.out_of_order.get())
        });
        // Else the mailbox is still full.
        asked = submitted.ok();
        asked.is_some()
    });
    wait_for(asked.unwrap()).unwrap()
}

/// So many messages, in rounds between which the cores have nothing to do and go to sleep.
fn exchange_messages(messages: u32) {
    const ROUNDS: u32 = 50;
    let (go, gone): (Vec<_>, Vec<_>) = [mpsc::channel(), mpsc::channel()].into_iter().unzip();
    let go: [_; 2] = go.try_into().unwrap();
    let opened: Vec<_> = gone.into_iter().map(open_desk).collect();
    let (desks, threads): (Vec<_>, Vec<_>) = opened.into_iter().unzip();
    let desks: [_; 2] = desks.try_into().unwrap_or_else(|_| unreachable!());

    let mut senders: [_; SENDERS] = std::array::from_fn(|sender| Numbered {
        sender,
        desks: &desks,
        sent: [0; 2],
        refused: 0,
        go: Some(go.clone()),
        random: Random::new(u64::try_from(sender).unwrap()),
    });
    drop(go);
    let each = messages / ROUNDS / u32::try_from(SENDERS).unwrap();
    for _ in 0..ROUNDS {
        thread::scope(|scope| {
            for sender in &mut senders {
                scope.spawn(|| sender.send(each));
            }
        });
        for (n, desk) in desks.iter().enumerate() {
            let sent = senders.each_ref().map(|sender| sender.sent[n]);
            assert_eq!(received(desk), (sent, 0), "desk {n}");
        }
    }
    let sent: u32 = senders.iter().flat_map(|sender| sender.sent).sum();
    assert_eq!(sent, messages);
    assert!(
        senders.iter().all(|sender| sender.refused > 0),
        "the mailboxes were full at times"
    );
    for (desk, thread) in desks.iter().zip(threads) {
        desk.send(|pool| async move { pool.connector().close() })
            .unwrap();
        thread.join().unwrap();
    }
}

#[test]
fn messages_arrive_once_and_in_the_order_of_each_sender() {
    exchange_messages(200_000);
}

#[test]
#[ignore = "takes long without optimizations: add `--release -- --ignored`"]
fn ten_million_messages_arrive_once_and_in_the_order_of_each_sender() {
    exchange_messages(10_000_000);
}

/// A core of its own with a pool, which ends when what comes back is dropped.
fn elsewhere() -> (PoolHandle<Tcp>, Elsewhere) {
    let (handles, handle) = mpsc::channel();
    let ended = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&ended);
    let thread = Core::builder().spawn(move |core| async move {
        let pool = Pool::new(&core, config().build().unwrap(), Tcp(core.clone()));
        handles.send(pool.handle()).unwrap();
        until(&core, "the test is done", || ends.load(Ordering::Relaxed)).await;
    });
    let thread = Some(thread.unwrap());
    (handle.recv().unwrap(), Elsewhere { ended, thread })
}

struct Elsewhere {
    ended: Arc<AtomicBool>,
    thread: Option<CoreThread<()>>,
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(CoreThread::join);
    }
}

#[test]
fn one_core_awaits_the_jobs_of_another() {
    let (handle, _there) = elsewhere();
    let main = |here: Core| async move {
        let there = thread::current().id();
        for _ in 0..100 {
            let job = handle.submit(|_| async { thread::current().id() });
            assert_ne!(job.unwrap().await, Ok(there));
            // So that both cores have gone to sleep when the next one comes.
            here.sleep(Duration::from_millis(1)).await;
        }
    };
    Core::builder().run(main).unwrap();
}

#[test]
fn another_runtime_awaits_several_jobs_at_once() {
    let (handle, _there) = elsewhere();
    let slow = handle.submit(|pool| async move {
        pool.core().sleep(Duration::from_millis(5)).await;
        1
    });
    let fast = handle.submit(|_| async { 2 });
    let both = zip(slow.unwrap(), fast.unwrap());
    assert_eq!(block_on(both), (Ok(1), Ok(2)));
}

#[test]
fn core_refuses_to_block_on_a_job() {
    let (handle, _there) = elsewhere();
    let main = |_| async move {
        let job = handle.submit(|_| async {}).unwrap();
        assert!(catch_unwind(AssertUnwindSafe(|| job.wait())).is_err());
    };
    Core::builder().run(main).unwrap();
}

/// Tells when it is dropped.
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn flag() -> (Flag, Arc<AtomicBool>) {
    let dropped = Arc::default();
    (Flag(Arc::clone(&dropped)), dropped)
}

#[test]
fn result_dropped_on_another_thread_cancels_a_job_that_runs() {
    let (handle, _there) = elsewhere();
    let (flag, dropped) = flag();
    let (begun, begins) = mpsc::channel();
    let job = handle.submit(move |_| async move {
        let _flag = flag;
        begun.send(()).unwrap();
        std::future::pending::<()>().await;
    });
    begins.recv_timeout(DEADLINE).unwrap();
    assert!(!dropped.load(Ordering::Relaxed));
    drop(job);
    eventually(DEADLINE, || dropped.load(Ordering::Relaxed));
}

#[test]
fn job_cancelled_before_its_turn_never_begins() {
    let (handle, _there) = elsewhere();
    let (go, goes) = mpsc::channel::<()>();
    handle
        .send(move |_| async move { _ = goes.recv() })
        .unwrap();
    let (flag, dropped) = flag();
    let began = Arc::new(AtomicBool::new(false));
    let begins = Arc::clone(&began);
    let job = handle.submit(move |_| {
        let _flag = flag;
        begins.store(true, Ordering::Relaxed);
        async {}
    });
    drop(job.unwrap());
    drop(go);
    eventually(DEADLINE, || dropped.load(Ordering::Relaxed));
    assert!(!began.load(Ordering::Relaxed));
}

#[test]
fn job_that_is_sent_goes_on_by_itself_and_may_panic() {
    with_pool(config(), |core, pool| async move {
        let handle = pool.handle();
        let (flag, dropped) = flag();
        thread::spawn(move || {
            let job = |pool: Pool<Tcp>| async move {
                let _flag = flag;
                pool.core().sleep(Duration::from_millis(1)).await;
                panic!("on purpose");
            };
            handle.send(job).unwrap();
            let at_once = |_| -> std::future::Ready<()> { panic!("on purpose") };
            handle.send(at_once).unwrap();
        })
        .join()
        .unwrap();
        until(&core, "both have panicked", || core.panics() == 2).await;
        assert!(dropped.load(Ordering::Relaxed));
    });
}

#[test]
fn job_that_is_sent_on_the_pools_own_core_begins_at_once() {
    with_pool(config(), |_, pool| async move {
        let (flag, dropped) = flag();
        pool.handle().send(|_| async move { drop(flag) }).unwrap();
        assert!(dropped.load(Ordering::Relaxed));
    });
}

#[test]
fn what_is_sent_to_a_pool_that_drains_or_whose_core_has_ended_is_refused() {
    let handle = with_pool(config(), |_, pool| async move {
        let handle = pool.handle();
        let mut drain = pin!(pool.drain(DEADLINE));
        let _ = futures_lite::future::poll_once(&mut drain).await;
        assert_eq!(handle.send(|_| async {}), Err(SubmitError::Draining));
        handle
    });
    let (flag, dropped) = flag();
    let refused = handle.send(|_| async move { drop(flag) });
    assert_eq!(refused, Err(SubmitError::Gone));
    assert!(dropped.load(Ordering::Relaxed));
}

#[test]
fn job_sent_to_a_pool_that_is_gone_when_its_turn_comes_is_dropped() {
    let (flag, dropped) = flag();
    let main = |core: Core| async move {
        let pool = Pool::new(&core, PoolConfig::default(), Tcp(core.clone()));
        let handle = pool.handle();
        let sender = thread::spawn(move || handle.send(|_| async move { drop(flag) }));
        // The core stands still, so the job waits in the mailbox.
        assert_eq!(sender.join().unwrap(), Ok(()));
        drop(pool);
        until(&core, "the job's turn has come", || {
            dropped.load(Ordering::Relaxed)
        })
        .await;
        assert_eq!(core.panics(), 0);
    };
    Core::builder().run(main).unwrap();
}
