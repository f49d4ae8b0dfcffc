//! The core by itself: its clock, tasks, sockets and end.
#![cfg(feature = "glommio")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use pool_core::{ConnectOptions, Core, ListenOptions, TcpListener, TcpStream};

const LOCALHOST: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn run<F, Fut>(main: F) -> Fut::Output
where
    F: FnOnce(Core) -> Fut,
    Fut: Future,
{
    Core::builder().run(main).expect("a core starts")
}

async fn pair(core: &Core) -> (TcpStream, TcpStream) {
    let mut listener = TcpListener::bind(core, LOCALHOST, &ListenOptions::default()).unwrap();
    let address = listener.local_addr();
    let connecting = TcpStream::connect(core, address, &ConnectOptions::default())
        .await
        .unwrap();
    (connecting, listener.accept().await.unwrap())
}

#[test]
fn sleeps_end_in_the_order_of_their_deadlines_and_never_early() {
    let order = run(|core| async move {
        let order = Rc::new(RefCell::new(Vec::new()));
        for ms in [30, 10, 20, 0, 5] {
            let (core2, order) = (core.clone(), Rc::clone(&order));
            core.spawn(async move {
                let deadline = core2.now().saturating_add(Duration::from_millis(ms));
                core2.sleep_until(deadline).await;
                assert!(core2.now() >= deadline);
                order.borrow_mut().push(ms);
            });
        }
        while order.borrow().len() < 5 {
            core.sleep(Duration::from_millis(1)).await;
        }
        order.take()
    });
    assert_eq!(order, [0, 5, 10, 20, 30]);
}

#[test]
fn timeout_drops_what_takes_too_long() {
    struct Flag(Rc<Cell<bool>>);
    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    run(|core| async move {
        let dropped = Rc::new(Cell::new(false));
        let flag = Flag(Rc::clone(&dropped));
        let never = async move {
            let _flag = flag;
            std::future::pending::<()>().await;
        };
        assert!(core.timeout(Duration::from_millis(5), never).await.is_err());
        assert!(dropped.get());
        assert_eq!(
            core.timeout(Duration::from_secs(60), async { 7 }).await,
            Ok(7)
        );
    });
}

#[test]
fn bytes_arrive_whole_both_ways() {
    run(|core| async move {
        let (mut a, mut b) = pair(&core).await;
        let sent: Vec<u8> = (0..3_000_000u32).map(|i| i.to_le_bytes()[0]).collect();
        let expected = sent.clone();
        core.spawn(async move {
            a.write_all(&sent).await.unwrap();
            a.close().await.unwrap();
            let mut answer = Vec::new();
            a.read_to_end(&mut answer).await.unwrap();
            assert_eq!(answer, b"got it");
        });
        let mut got = BytesMut::new();
        while poll_fn(|cx| b.poll_read_buf(cx, &mut got, 64 << 10))
            .await
            .unwrap()
            > 0
        {}
        assert_eq!(got, expected);
        b.write_all(b"got it").await.unwrap();
        b.close().await.unwrap();
    });
}

#[test]
fn refused_connect_says_so() {
    run(|core| async move {
        let address = test_support::refused_address().addr();
        let refused = TcpStream::connect(&core, address, &ConnectOptions::default()).await;
        assert_eq!(
            refused.unwrap_err().kind(),
            std::io::ErrorKind::ConnectionRefused
        );
    });
}

#[test]
fn socket_leaves_the_set_when_it_is_dropped_even_while_connecting() {
    run(|core| async move {
        let hanging = test_support::HangingListener::new();
        {
            let options = ConnectOptions::default();
            let connect = TcpStream::connect(&core, hanging.addr(), &options);
            assert!(
                core.timeout(Duration::from_millis(5), connect)
                    .await
                    .is_err()
            );
        }
        assert_eq!(core.registered_sockets(), 0);
        let (a, b) = pair(&core).await;
        assert_eq!(core.registered_sockets(), 2);
        drop((a, b));
        assert_eq!(core.registered_sockets(), 0);
    });
}

#[test]
fn busy_socket_lets_other_tasks_and_timers_run() {
    // A peer that is always ready: without a budget per turn its reader would never yield.
    run(|core| async move {
        let mut listener = TcpListener::bind(&core, LOCALHOST, &ListenOptions::default()).unwrap();
        let address = listener.local_addr();
        let flood = std::thread::spawn(move || {
            let mut socket = std::net::TcpStream::connect(address).unwrap();
            let zeros = vec![0; 1 << 20];
            while socket.write_all(&zeros).is_ok() {}
        });
        let stream = listener.accept().await.unwrap();
        let reading = Rc::new(Cell::new(true));
        let wanted = Rc::clone(&reading);
        let read = Rc::new(Cell::new(0));
        let counted = Rc::clone(&read);
        core.spawn(async move {
            let mut buffer = vec![0; 1024];
            while wanted.get() {
                let n = poll_fn(|cx| stream.poll_read(cx, &mut buffer))
                    .await
                    .unwrap();
                counted.set(counted.get() + n);
            }
        });
        for _ in 0..20 {
            core.sleep(Duration::from_millis(1)).await;
        }
        reading.set(false);
        assert!(read.get() > 0);
        while core.registered_sockets() > 1 {
            core.sleep(Duration::from_millis(1)).await;
        }
        flood.join().unwrap();
    });
}

#[test]
fn panic_in_a_task_is_counted_and_the_core_lives_on() {
    run(|core| async move {
        core.spawn(async { panic!("on purpose") });
        core.sleep(Duration::from_millis(1)).await;
        assert_eq!(core.panics(), 1);
        let (mut a, mut b) = pair(&core).await;
        a.write_all(b"x").await.unwrap();
        let mut byte = [0];
        b.read_exact(&mut byte).await.unwrap();
    });
}

#[test]
fn panic_of_the_main_future_comes_out_after_the_clean_up() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = Core::builder().spawn(move |core| async move {
        let options = ConnectOptions::default();
        let stream = TcpStream::connect(&core, address, &options).await.unwrap();
        core.spawn(async move {
            let mut byte = [0];
            let _ = poll_fn(|cx| stream.poll_read(cx, &mut byte)).await;
        });
        panic!("on purpose");
    });
    let (mut peer, _) = listener.accept().unwrap();
    assert!(thread.unwrap().join().is_err());
    assert_eq!(
        peer.read(&mut [0]).unwrap(),
        0,
        "the task's socket was closed"
    );
}

#[test]
fn tasks_and_sockets_end_with_the_core() {
    let (listener, dropped) = run(|core| async move {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let dropped = Rc::new(Cell::new(false));
        struct Flag(Rc<Cell<bool>>);
        impl Drop for Flag {
            fn drop(&mut self) {
                self.0.set(true);
            }
        }
        let flag = Flag(Rc::clone(&dropped));
        let core2 = core.clone();
        core.spawn(async move {
            let _flag = flag;
            let options = ConnectOptions::default();
            let stream = TcpStream::connect(&core2, address, &options).await.unwrap();
            let mut byte = [0];
            let _ = poll_fn(|cx| stream.poll_read(cx, &mut byte)).await;
        });
        core.sleep(Duration::from_millis(5)).await;
        (listener, dropped)
    });
    assert!(dropped.get());
    let (mut peer, _) = listener.accept().unwrap();
    assert_eq!(peer.read(&mut [0]).unwrap(), 0);
}

#[test]
fn idle_core_sleeps_and_makes_no_turn() {
    run(|core| async move {
        core.sleep(Duration::from_millis(1)).await;
        let before = core.turns();
        core.sleep(Duration::from_millis(300)).await;
        // To go to sleep, to wake up, and one that finds nothing left to do between them; a stray
        // timer or waker would make thousands.
        let turns = core.turns() - before;
        assert!(turns <= 10, "a sleeping core took {turns} turns");
    });
}

#[test]
fn now_is_fresh_after_something_else_woke_a_task() {
    // The driver sleeps; a foreign waker runs this task. A clock that had stopped with the driver
    // would start every time limit too early.
    run(|core| async move {
        let started = Instant::now();
        let before = core.now();
        let mut thread = None;
        poll_fn(|cx| {
            if thread.is_some() && started.elapsed() >= Duration::from_millis(50) {
                return Poll::Ready(());
            }
            let waker = cx.waker().clone();
            thread.get_or_insert_with(|| {
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(60));
                    waker.wake();
                })
            });
            Poll::Pending
        })
        .await;
        let passed = core.now().saturating_duration_since(before);
        assert!(passed >= Duration::from_millis(50), "{passed:?}");
        thread.unwrap().join().unwrap();
    });
}

#[test]
fn second_core_on_a_thread_is_refused() {
    let caught =
        run(|_| async { std::panic::catch_unwind(|| Core::builder().run(|_| async {}).is_ok()) });
    assert!(caught.is_err());
}

#[test]
fn unknown_cpu_is_named() {
    let refused = Core::builder()
        .cpu(Some(4095))
        .run(|_| async {})
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "there is no CPU 4095 that this process may run on"
    );
    let refused = Core::builder()
        .cpu(Some(4095))
        .spawn(|_| async {})
        .unwrap_err();
    assert!(refused.to_string().contains("4095"));
}

#[test]
fn thread_of_a_core_tells_that_its_main_future_has_panicked() {
    let (go, goes) = std::sync::mpsc::channel::<()>();
    let thread = Core::builder()
        .spawn(move |_| async move {
            let _ = goes.recv();
            panic!("as the test wants it");
        })
        .unwrap();
    assert!(!thread.is_finished());
    drop(go);
    test_support::eventually(test_support::DEADLINE, || thread.is_finished());
    assert!(thread.join().is_err());
}
