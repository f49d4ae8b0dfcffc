//! What a server announces about how long it keeps a connection.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::time::Duration;

use common::*;
use pool_core::{CloseReason, PoolConfig};
use test_support::{Peer, Server};

/// A server that answers with this `Keep-Alive` field and leaves the connection open.
fn announcing(value: &'static str) -> Server {
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nKeep-Alive: {value}\r\n\r\nok");
    Server::script(move |peer: &mut Peer| {
        while peer.read_request()?.is_some() {
            peer.send(answer.as_bytes())?;
        }
        Ok(())
    })
}

/// How many connections three requests in a row took, and how many of them were closed for what
/// the server had announced.
fn connections(value: &'static str, config: &PoolConfig) -> (usize, u64) {
    let server = announcing(value);
    let address = server.addr();
    let expired = with_client(
        config.to_builder(),
        client_config(),
        |_, client| async move {
            for _ in 0..3 {
                fetch(&client, get(address)).await.unwrap();
            }
            let total = client.pool().snapshot().total;
            total.closed(CloseReason::KeepAliveExpired)
        },
    );
    (server.counts().accepted, expired)
}

/// Fault row D4.
#[test]
fn connection_that_its_server_is_about_to_close_is_not_used_again() {
    let config = pool_config().build().unwrap();
    for value in [
        "timeout=0",
        "timeout=1",
        "TIMEOUT=0",
        "max=0",
        "timeout=5, max=0",
    ] {
        assert_eq!(connections(value, &config), (3, 3), "{value}");
    }
    for value in [
        "timeout=5",
        "timeout=5, max=100",
        "timeout=",
        "timeout=-1",
        "timeout=\"0\"",
        "timeout=99999999999",
        "timeout=99999999999999999999999",
        "max=",
        "5",
        "",
    ] {
        assert_eq!(connections(value, &config), (1, 0), "{value}");
    }
}

/// Fault row D9.
#[test]
fn announced_time_holds_though_the_pool_has_no_idle_timeout() {
    let config = pool_config().idle_timeout(None);
    let config = config.keep_alive_margin(Duration::from_millis(4950));
    let config = config.build().unwrap();
    let server = announcing("timeout=5");
    let address = server.addr();
    with_client(
        config.to_builder(),
        client_config(),
        |core, client| async move {
            fetch(&client, get(address)).await.unwrap();
            until(&core, "it is closed", || {
                let total = client.pool().snapshot().total;
                total.closed(CloseReason::KeepAliveExpired) == 1
            })
            .await;
        },
    );
}
