//! Faults that other pools have shown on sockets: what peers, and futures that are dropped, leave
//! behind.
#![cfg(feature = "glommio")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use common::{DEADLINE, assert_in_order, config, exchange, total, until, with_pool};
use futures_lite::future::poll_once;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use pool_core::{AcquireError, CloseReason, ConnectOptions, Core, TcpStream};
use test_support::{Gate, OK, Server, keep_alive_ok, refused_address};

/// The `at`th of many loopback addresses, with this port.
fn nth(at: u16, port: u16) -> SocketAddr {
    let [high, low] = at.to_be_bytes();
    (Ipv4Addr::new(127, 1, high, low), port).into()
}

/// Fault row G1: an entry per host stays for ever, also where no connection ever opened.
#[test]
fn many_destinations_that_answer_once_or_refuse_leave_nothing() {
    const EACH: u16 = 1000;
    // Whatever loopback address is dialled.
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let server = Server::script_on(listener, keep_alive_ok());
    let open = server.addr().port();
    let refused = refused_address();
    let closed = refused.addr().port();
    let short = config().idle_timeout(Duration::from_millis(20));
    with_pool(short, |core, pool| async move {
        for at in 0..EACH {
            let mut conn = pool.acquire(&nth(at, open)).await.unwrap();
            exchange(&mut conn).await.unwrap();
            conn.release();
            let error = pool.acquire(&nth(at, closed)).await.unwrap_err();
            assert!(matches!(error, AcquireError::Connect(_)), "{error}");
        }
        until(&core, "all are forgotten", || {
            pool.snapshot().destinations.is_empty()
        })
        .await;
        let stats = total(&pool);
        let each = u64::from(EACH);
        assert_eq!((stats.opened, stats.connect_failed), (each, each));
        assert_eq!(stats.closed(CloseReason::IdleTimeout), each);
        assert_eq!((stats.live(), core.registered_sockets()), (0, 0));
    });
    server.wait_until(|counts| counts.open == 0);
}

/// Fault row G3: a server is taken out, and its idle connections stay open.
#[test]
fn retired_destination_is_left_by_idle_connections_at_once_and_by_held_ones_at_their_release() {
    let servers = [(); 2].map(|()| Server::script(keep_alive_ok()));
    let [retired, other] = [servers[0].addr(), servers[1].addr()];
    let [first, second] = servers;
    with_pool(config(), |core, pool| async move {
        let mut held = pool.acquire(&retired).await.unwrap();
        for address in [retired, other] {
            pool.acquire(&address).await.unwrap().release();
        }
        let left = core.clone();
        let open = || (first.counts().open, second.counts().open);
        until(&left, "the servers have accepted all", || open() == (2, 1)).await;
        pool.retire(&retired);
        until(&left, "the idle one is gone", || first.counts().open == 1).await;
        exchange(&mut held).await.unwrap();
        held.release();
        until(&left, "so is the other", || first.counts().open == 0).await;
        assert_eq!(total(&pool).closed(CloseReason::Drained), 2);
        assert_eq!(second.counts().open, 1, "nobody else is concerned");
        let conn = pool.acquire(&retired).await.unwrap();
        assert!(!conn.is_reused());
        conn.release();
        pool.retire(&"127.0.0.1:1".parse().unwrap());
        assert_in_order(&core, &pool, 4).await;
    });
}

#[test]
fn waiter_of_a_retired_destination_gets_a_new_connection() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    with_pool(config().max_connections(1), |core, pool| async move {
        let held = pool.acquire(&address).await.unwrap();
        let served = Rc::new(Cell::new(false));
        let (pool2, served2) = (pool.clone(), Rc::clone(&served));
        core.spawn(async move {
            let mut conn = pool2.acquire(&address).await.unwrap();
            assert!(!conn.is_reused());
            exchange(&mut conn).await.unwrap();
            served2.set(true);
        });
        pool.retire(&address);
        held.release();
        until(&core, "it is served", || served.get()).await;
    });
    assert_eq!(server.counts().accepted, 2);
}

/// Fault row G12: a read polled once under a time limit and dropped leaves its timer, and the next
/// read times out at once.
#[test]
fn read_that_was_given_up_does_not_end_the_next() {
    const LIMIT: Duration = Duration::from_millis(50);
    let gate = Gate::new();
    let late = gate.clone();
    let server = Server::script(move |peer| {
        peer.wait_at(&late)?;
        peer.send(OK)?;
        peer.stall()
    });
    let address = server.addr();
    with_pool(config(), |core, pool| async move {
        let mut conn = pool.acquire(&address).await.unwrap();
        let mut answer = [0; OK.len()];
        for _ in 0..100 {
            let mut read = pin!(core.timeout(LIMIT, conn.read(&mut answer)));
            assert!(poll_once(&mut read).await.is_none());
        }
        // Until the limits that were given up would be over.
        core.sleep(2 * LIMIT).await;
        {
            let mut read = pin!(core.timeout(DEADLINE, conn.read_exact(&mut answer)));
            assert!(poll_once(&mut read).await.is_none(), "nothing is there");
            gate.open();
            read.await.expect("it is in time").unwrap();
        }
        assert_eq!(answer, OK);
        conn.write_all(b"more").await.unwrap();
        conn.release();
        assert_in_order(&core, &pool, 1).await;
    });
}

/// Fault row G15: a peer that resets right after the handshake makes calls on the socket fail that
/// nobody expects to.
#[test]
fn peer_that_resets_right_after_the_handshake_causes_errors_and_no_panic() {
    const TASKS: usize = 10;
    const CONNECTS: usize = 1000;
    let server = Server::script(|peer| peer.reset());
    let address = server.addr();
    with_pool(config().max_connections(4), |core, pool| async move {
        let left = Rc::new(Cell::new(TASKS));
        for _ in 0..TASKS {
            let (core2, left) = (core.clone(), Rc::clone(&left));
            core.spawn(async move {
                for _ in 0..CONNECTS {
                    dial_and_use(&core2, address).await;
                }
                left.set(left.get() - 1);
            });
        }
        until(&core, "all have tried", || left.get() == 0).await;
        // The same through the pool, which pauses between such connects.
        for _ in 0..100 {
            if let Ok(mut conn) = pool.acquire(&address).await {
                let _ = conn.local_addr();
                assert!(exchange(&mut conn).await.is_err());
                conn.release();
            }
        }
        assert_eq!(core.panics(), 0);
        until(&core, "no socket is left", || {
            core.registered_sockets() == 0
        })
        .await;
        assert_in_order(&core, &pool, 4).await;
    });
}

/// Whatever fails, it is told by an error.
async fn dial_and_use(core: &Core, address: SocketAddr) {
    let options = ConnectOptions::default()
        .keepalive(Some(Duration::from_secs(60)))
        .user_timeout(Some(Duration::from_secs(5)));
    if let Ok(mut stream) = TcpStream::connect(core, address, &options).await {
        assert_eq!(stream.peer_addr(), address);
        let _ = stream.local_addr();
        let _ = stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await;
        let _ = stream.read(&mut [0; 1]).await;
    }
}
