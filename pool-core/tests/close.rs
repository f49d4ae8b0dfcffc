//! Every way in which a connection ends, and that the books balance after each.
#![cfg(feature = "glommio")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::io;
use std::time::Duration;

use common::{assert_in_order, config, exchange, total, until, with_pool};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use pool_core::{AcquireError, CloseReason, ConnectOptions, ForceClosed, TcpStream};
use test_support::{Gate, OK, Server, keep_alive_ok, never_answer};

/// A server whose every connection answers once and then does `then` when the gate opens.
fn answer_once(
    gate: &Gate,
    then: impl Fn(&mut test_support::Peer) -> io::Result<()> + Send + Sync + 'static,
) -> Server {
    let gate = gate.clone();
    Server::script(move |peer| {
        if peer.read_request()?.is_none() {
            return Ok(());
        }
        peer.answer(OK)?;
        peer.wait_at(&gate)?;
        then(peer)
    })
}

/// What a peer does to an idle connection closes it, with the right reason, and the next acquire
/// gets a new one.
fn idle_ends_by(
    reason: CloseReason,
    then: impl Fn(&mut test_support::Peer) -> io::Result<()> + Send + Sync + 'static,
) {
    let gate = Gate::new();
    let server = answer_once(&gate, then);
    let address = server.addr();
    with_pool(config().max_connections(3), |core, pool| async move {
        let mut conns = Vec::new();
        for _ in 0..3 {
            let mut conn = pool.acquire(&address).await.unwrap();
            exchange(&mut conn).await.unwrap();
            conns.push(conn);
        }
        conns.into_iter().for_each(pool_core::Pooled::release);
        assert_eq!(total(&pool).idle.current, 3);
        gate.open();
        until(&core, "the watch has closed all", || {
            total(&pool).idle.current == 0
        })
        .await;
        assert_eq!(total(&pool).closed(reason), 3);
        assert!(!pool.acquire(&address).await.unwrap().is_reused());
        assert_in_order(&core, &pool, 3).await;
    });
}

#[test]
fn fin_while_idle_closes_it() {
    idle_ends_by(CloseReason::PeerClosed, |peer| peer.fin());
}

/// Fault row A3.
#[test]
fn rst_while_idle_closes_it() {
    idle_ends_by(CloseReason::Reset, |peer| peer.reset());
}

/// Fault row C2.
#[test]
fn stray_bytes_while_idle_close_it() {
    idle_ends_by(CloseReason::StrayBytes, |peer| {
        peer.send("twelve bytes")?;
        peer.wait_closed().map(|_| ())
    });
}

/// Fault row A3, a thousand times.
#[test]
fn reset_of_idle_connections_never_costs_a_permit() {
    let gate = Gate::new();
    gate.open();
    let server = answer_once(&gate, |peer| peer.reset());
    let address = server.addr();
    with_pool(config().max_connections(1), |core, pool| async move {
        for _ in 0..1000 {
            let mut conn = pool.acquire(&address).await.unwrap();
            // The reset may overtake the answer's last byte's reader, never its permit.
            let _ = exchange(&mut conn).await;
            conn.release();
        }
        assert_in_order(&core, &pool, 1).await;
    });
}

#[test]
fn fin_while_acquired_closes_it_on_release() {
    let gate = Gate::new();
    let server = answer_once(&gate, |peer| peer.fin());
    let address = server.addr();
    with_pool(config().max_connections(1), |core, pool| async move {
        let mut conn = pool.acquire(&address).await.unwrap();
        exchange(&mut conn).await.unwrap();
        gate.open();
        until(&core, "the FIN is here", || conn.is_peer_closed()).await;
        assert_eq!(
            total(&pool).acquired.current,
            1,
            "its holder may still read"
        );
        conn.release();
        let stats = total(&pool);
        assert_eq!((stats.acquired.current, stats.idle.current), (0, 0));
        assert_eq!(stats.closed(CloseReason::PeerClosed), 1);
        assert_in_order(&core, &pool, 1).await;
    });
}

#[test]
fn rst_while_acquired_frees_the_permit_before_the_holder_notices() {
    let gate = Gate::new();
    let server = answer_once(&gate, |peer| peer.reset());
    let address = server.addr();
    with_pool(config().max_connections(1), |core, pool| async move {
        let mut conn = pool.acquire(&address).await.unwrap();
        exchange(&mut conn).await.unwrap();
        gate.open();
        until(&core, "it is counted out", || {
            total(&pool).acquired.current == 0
        })
        .await;
        assert_eq!(total(&pool).closed(CloseReason::Reset), 1);
        let error = conn.read(&mut [0]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        let again = conn.read(&mut [0]).await.unwrap_err();
        assert_eq!(
            again.kind(),
            io::ErrorKind::ConnectionReset,
            "the first error stays"
        );
        let next = pool.acquire(&address).await.unwrap();
        conn.release();
        assert_eq!(
            total(&pool).acquired.current,
            1,
            "a release after it changes nothing"
        );
        next.release();
        assert_in_order(&core, &pool, 1).await;
    });
}

#[test]
fn answer_that_came_before_a_reset_can_be_read() {
    let gate = Gate::new();
    let server = answer_once(&gate, |peer| {
        peer.send("last words")?;
        peer.reset()
    });
    let address = server.addr();
    with_pool(config(), |core, pool| async move {
        let mut conn = pool.acquire(&address).await.unwrap();
        exchange(&mut conn).await.unwrap();
        gate.open();
        until(&core, "the reset is here", || conn.is_peer_closed()).await;
        let mut words = [0; 10];
        conn.read_exact(&mut words).await.unwrap();
        assert_eq!(&words, b"last words");
    });
}

#[test]
fn unread_bytes_at_release_close_it() {
    let gate = Gate::new();
    gate.open();
    let server = answer_once(&gate, |peer| peer.send("more").and_then(|()| peer.stall()));
    let address = server.addr();
    with_pool(config(), |core, pool| async move {
        let mut conn = pool.acquire(&address).await.unwrap();
        exchange(&mut conn).await.unwrap();
        let readiness = conn.readiness();
        until(&core, "they are here", || readiness.check_quiet().is_err()).await;
        conn.release();
        assert_eq!(total(&pool).closed(CloseReason::StrayBytes), 1);
        assert_in_order(&core, &pool, 2).await;
    });
}

#[test]
fn dropped_guard_closes_as_abandoned() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    with_pool(config().max_connections(1), |core, pool| async move {
        for _ in 0..10 {
            let mut conn = pool.acquire(&address).await.unwrap();
            assert!(!conn.is_reused());
            conn.write_all(b"GET /half").await.unwrap();
        }
        assert_eq!(total(&pool).closed(CloseReason::Abandoned), 10);
        assert_in_order(&core, &pool, 1).await;
    });
    server.wait_until(|counts| counts.open == 0);
}

#[test]
fn detached_connection_is_counted_out_and_lives_on() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    with_pool(config().max_connections(1), |core, pool| async move {
        let mut conn = pool.acquire(&address).await.unwrap();
        exchange(&mut conn).await.unwrap();
        let mut own = conn.detach();
        assert_eq!(total(&pool).live(), 0);
        assert_in_order(&core, &pool, 1).await;
        own.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        own.read_exact(&mut [0; OK.len()]).await.unwrap();
    });
}

#[test]
fn idle_timeout_closes_what_nobody_uses_and_only_that() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let short = config().idle_timeout(Some(Duration::from_millis(40)));
    with_pool(short, |core, pool| async move {
        let mut busy = pool.acquire(&address).await.unwrap();
        pool.acquire(&address).await.unwrap().release();
        until(&core, "it timed out", || {
            total(&pool).closed(CloseReason::IdleTimeout) == 1
        })
        .await;
        exchange(&mut busy).await.unwrap();
        busy.release();
        assert_eq!(total(&pool).idle.current, 1);
        assert_in_order(&core, &pool, 2).await;
    });
}

#[test]
fn hold_timeout_shuts_the_socket_under_its_holder_and_names_the_acquire() {
    let server = Server::script(never_answer());
    let address = server.addr();
    let short = config()
        .hold_timeout(Some(Duration::from_millis(40)))
        .max_connections(1);
    with_pool(short, |core, pool| async move {
        let acquire = pool.acquire(&address);
        let line = line!() - 1;
        let mut conn = acquire.await.unwrap();
        let error = exchange(&mut conn).await.unwrap_err();
        let closed = ForceClosed::find(&error).expect("the pool closed it");
        assert_eq!(closed.reason(), CloseReason::HoldTimeout);
        assert_eq!(
            (closed.acquired_at().file(), closed.acquired_at().line()),
            (file!(), line)
        );
        assert!(conn.write_all(b"x").await.is_err());
        let stats = total(&pool);
        assert_eq!((stats.acquired.current, stats.timeouts.hold), (0, 1));
        conn.release();
        assert_in_order(&core, &pool, 1).await;
    });
    server.wait_until(|counts| counts.open == 0);
}

#[test]
fn hold_timeout_serves_the_next_waiter() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let short = config()
        .hold_timeout(Some(Duration::from_millis(40)))
        .max_connections(1);
    with_pool(short, |_, pool| async move {
        let _leaked = pool.acquire(&address).await.unwrap();
        let mut next = pool.acquire(&address).await.unwrap();
        exchange(&mut next).await.unwrap();
    });
}

#[test]
fn idle_connections_close_when_the_last_pool_is_dropped() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    with_pool(config(), |core, pool| async move {
        let conns = (
            pool.acquire(&address).await.unwrap(),
            pool.acquire(&address).await.unwrap(),
        );
        conns.0.release();
        conns.1.release();
        drop(pool);
        until(&core, "they are closed", || core.registered_sockets() == 0).await;
    });
    server.wait_until(|counts| counts.open == 0);
}

#[test]
fn server_that_closes_at_once_is_dialled_once_per_acquire_and_not_in_a_loop() {
    let server = Server::script(|_| Ok(()));
    let address = server.addr();
    with_pool(config().max_connections(2), |core, pool| async move {
        for asked in 1..=5 {
            // The FIN comes before the acquire looks, or after.
            match pool.acquire(&address).await {
                Ok(mut conn) => assert!(exchange(&mut conn).await.is_err()),
                Err(AcquireError::ClosedUnused(reason)) => {
                    assert!(
                        matches!(reason, CloseReason::PeerClosed | CloseReason::Reset),
                        "{reason}"
                    );
                }
                Err(error) => panic!("{error}"),
            }
            assert_eq!(total(&pool).opened, asked);
        }
        assert_in_order(&core, &pool, 2).await;
    });
    server.wait_until(|counts| counts.accepted == 5);
}

#[test]
fn connections_exchanged_between_two_guards_are_closed_and_not_pooled() {
    let servers = [(); 2].map(|()| Server::script(keep_alive_ok()));
    let addresses = [servers[0].addr(), servers[1].addr()];
    with_pool(config(), |core, pool| async move {
        let mut one = pool.acquire(&addresses[0]).await.unwrap();
        let mut other = pool.acquire(&addresses[1]).await.unwrap();
        std::mem::swap(&mut *one, &mut *other);
        one.release();
        other.release();
        let stats = total(&pool);
        assert_eq!((stats.acquired.current, stats.idle.current), (0, 0));
        assert_eq!(stats.closed(CloseReason::ExchangeFailed), 2);
        assert_eq!(core.registered_sockets(), 0);
        for address in addresses {
            let conn = pool.acquire(&address).await.unwrap();
            assert_eq!(conn.peer_addr(), address);
            conn.release();
        }
        assert_in_order(&core, &pool, 2).await;
    });
}

#[test]
fn connection_put_in_anothers_place_is_closed_and_not_pooled() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    with_pool(config().max_connections(1), |core, pool| async move {
        let mut conn = pool.acquire(&address).await.unwrap();
        let options = ConnectOptions::default();
        *conn = TcpStream::connect(&core, address, &options).await.unwrap();
        exchange(&mut conn).await.unwrap();
        conn.release();
        let stats = total(&pool);
        assert_eq!((stats.acquired.current, stats.idle.current), (0, 0));
        assert_eq!(stats.closed(CloseReason::ExchangeFailed), 1);
        assert_eq!(core.registered_sockets(), 0);
        assert_in_order(&core, &pool, 1).await;
    });
    server.wait_until(|counts| counts.open == 0);
}

#[test]
fn connection_that_is_worn_out_is_closed_at_its_release_and_the_next_waiter_gets_a_new_one() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let worn = config().max_connections(1).max_uses(2);
    with_pool(worn, |core, pool| async move {
        for round in 1..=3 {
            for uses in 0..2 {
                let mut conn = pool.acquire(&address).await.unwrap();
                assert_eq!(conn.is_reused(), uses > 0);
                exchange(&mut conn).await.unwrap();
                conn.release();
            }
            assert_eq!(total(&pool).closed(CloseReason::MaxUses), round);
        }
        assert_in_order(&core, &pool, 1).await;
    });
    server.wait_until(|counts| counts.accepted == 3 && counts.open == 0);
}

#[test]
fn idle_connection_is_closed_at_the_end_of_its_lifetime() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let short = config().max_lifetime(Duration::from_millis(50));
    with_pool(short, |core, pool| async move {
        let mut conn = pool.acquire(&address).await.unwrap();
        exchange(&mut conn).await.unwrap();
        conn.release();
        until(&core, "its lifetime is over", || {
            total(&pool).closed(CloseReason::MaxLifetime) == 1
        })
        .await;
        assert_in_order(&core, &pool, 3).await;
    });
    server.wait_until(|counts| counts.accepted == 1 && counts.open == 0);
}
