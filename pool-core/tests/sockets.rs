//! What the core knows of a socket: what has come in, what is unread, how it ended.
#![cfg(feature = "glommio")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use common::{DEADLINE, Tcp, assert_in_order, config, total, until, with_pool};
use futures_lite::future::poll_once;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use pool_core::{
    CloseReason, ConnectOptions, Connection, Connector, Core, Pool, Pooled, Readiness, TcpStream,
};
use test_support::{Gate, OK, Server, eventually};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n";

struct Greeted(Core);

impl Connector for Greeted {
    type Key = SocketAddr;
    type Connection = TcpStream;
    type Error = io::Error;

    async fn connect(&self, key: &SocketAddr) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(&self.0, *key, &ConnectOptions::default()).await?;
        let mut greeting = [0; 7];
        stream.read_exact(&mut greeting).await?;
        assert_eq!(&greeting, b"220 hi\n");
        Ok(stream)
    }
}

#[test]
fn connector_may_read_its_greeting_to_the_last_byte() {
    let server = Server::script(|peer| {
        peer.send("220 hi\n")?;
        peer.stall()
    });
    let address = server.addr();
    let main = |core: Core| async move {
        let pool = Pool::new(&core, config().build().unwrap(), Greeted(core.clone()));
        for reused in [false, true] {
            let conn = pool.acquire(&address).await.unwrap();
            assert_eq!(conn.is_reused(), reused);
            conn.release();
        }
    };
    Core::builder().run(main).unwrap();
}

/// Knows better than its socket.
struct Trusting(TcpStream);

impl Connection for Trusting {
    fn readiness(&self) -> Readiness {
        self.0.readiness()
    }

    fn check(&mut self) -> Result<(), CloseReason> {
        Ok(())
    }
}

struct Trusts(Core);

impl Connector for Trusts {
    type Key = SocketAddr;
    type Connection = Trusting;
    type Error = io::Error;

    async fn connect(&self, key: &SocketAddr) -> io::Result<Trusting> {
        let stream = TcpStream::connect(&self.0, *key, &ConnectOptions::default()).await?;
        Ok(Trusting(stream))
    }
}

#[test]
fn check_that_says_yes_is_believed() {
    let server = Server::script(|peer| {
        while peer.read_request()?.is_some() {
            peer.answer([OK, b"more"].concat())?;
        }
        Ok(())
    });
    let address = server.addr();
    let main = |core: Core| async move {
        let pool = Pool::new(&core, config().build().unwrap(), Trusts(core.clone()));
        let mut conn = pool.acquire(&address).await.unwrap();
        conn.0.write_all(REQUEST).await.unwrap();
        conn.0.read_exact(&mut [0; OK.len()]).await.unwrap();
        conn.release();
        assert_eq!(total(&pool).idle.current, 1);
        let mut conn = pool.acquire(&address).await.unwrap();
        assert!(conn.is_reused(), "{:?}", total(&pool));
        let mut more = [0; 4];
        conn.0.read_exact(&mut more).await.unwrap();
        assert_eq!(&more, b"more");
    };
    Core::builder().run(main).unwrap();
}

/// Whether the kernel has the peer's FIN for the socket at `local`, without asking the socket.
fn has_fin(local: SocketAddr) -> bool {
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let port = format!(":{:04X}", local.port());
    let mut lines = sockets.lines().map(str::split_ascii_whitespace);
    lines.any(|mut fields| {
        let (own, state) = (fields.nth(1), fields.nth(1));
        own.is_some_and(|own| own.ends_with(&port)) && state == Some("08")
    })
}

#[test]
fn end_of_file_that_the_holder_has_read_is_remembered() {
    let gate = Gate::new();
    let server = {
        let gate = gate.clone();
        Server::script(move |peer| {
            peer.read_request()?;
            peer.answer(OK)?;
            peer.wait_at(&gate)?;
            peer.fin()?;
            peer.stall()
        })
    };
    let address = server.addr();
    with_pool(config().max_connections(1), |core, pool| async move {
        let mut conn = pool.acquire(&address).await.unwrap();
        conn.write_all(REQUEST).await.unwrap();
        // To the last byte: the core does not know yet that there is no more.
        conn.read_exact(&mut [0; OK.len()]).await.unwrap();
        gate.open();
        // From here to the release the core takes no turn, so the read is all it hears of the FIN.
        let local = conn.local_addr().unwrap();
        eventually(DEADLINE, || has_fin(local));
        assert!(!conn.is_peer_closed());
        assert_eq!(poll_once(conn.read(&mut [0; 5])).await.unwrap().unwrap(), 0);
        assert!(conn.is_peer_closed());
        conn.release();
        let stats = total(&pool);
        assert_eq!(stats.idle.current, 0, "{stats:?}");
        assert_eq!(stats.closed(CloseReason::PeerClosed), 1);
        assert_in_order(&core, &pool, 1).await;
    });
}

#[test]
fn reset_that_a_write_met_first_is_no_clean_end_for_the_reader() {
    let gate = Gate::new();
    let server = {
        let gate = gate.clone();
        Server::script(move |peer| {
            peer.read_request()?;
            peer.send("half a body")?;
            peer.wait_at(&gate)?;
            peer.reset()
        })
    };
    let address = server.addr();
    with_pool(config(), |core, pool| async move {
        let mut conn = pool.acquire(&address).await.unwrap();
        conn.write_all(REQUEST).await.unwrap();
        gate.open();
        until(&core, "the reset is here", || conn.is_peer_closed()).await;
        assert!(conn.write_all(b"the rest of the request").await.is_err());
        let mut body = Vec::new();
        let end = conn.read_to_end(&mut body).await;
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(body, b"half a body");
        let again = conn.read(&mut [0]).await.unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::ConnectionReset);
    });
}

/// A server that answers a request with `answer`, an urgent byte and `more`; it says when all is
/// sent, and keeps the connection until the channel is dropped.
fn urgent_server() -> (SocketAddr, mpsc::Receiver<()>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, sent) = mpsc::sync_channel(0);
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 256]).unwrap();
        let socket = socket2::SockRef::from(&stream);
        socket.send(b"answer").unwrap();
        socket.send_out_of_band(b"!").unwrap();
        socket.send(b"more").unwrap();
        while sender.send(()).is_ok() {}
    });
    (address, sent)
}

/// A connection on which `answer`, an urgent byte and `more` have come in.
async fn all_has_come_in(core: &Core, pool: &Pool<Tcp>) -> (Pooled<Tcp>, mpsc::Receiver<()>) {
    let (address, sent) = urgent_server();
    let mut conn = pool.acquire(&address).await.unwrap();
    conn.write_all(REQUEST).await.unwrap();
    until(core, "all is sent", || sent.try_recv().is_ok()).await;
    // Two turns, each of which takes in what there is.
    core.sleep(Duration::ZERO).await;
    core.sleep(Duration::ZERO).await;
    (conn, sent)
}

#[test]
fn urgent_data_hides_no_unread_bytes_from_the_release() {
    with_pool(config(), |core, pool| async move {
        let (mut conn, _sent) = all_has_come_in(&core, &pool).await;
        let mut answer = [0; 64];
        let n = conn.read(&mut answer).await.unwrap();
        assert_eq!(&answer[..n], b"answer", "the mark ends the read");
        conn.release();
        let stats = total(&pool);
        assert_eq!(stats.idle.current, 0, "{stats:?}");
        assert_eq!(stats.closed(CloseReason::StrayBytes), 1);
    });
}

#[test]
fn urgent_data_hides_no_unread_bytes_from_the_reader() {
    with_pool(config(), |core, pool| async move {
        let (mut conn, _sent) = all_has_come_in(&core, &pool).await;
        let mut all = Vec::new();
        while all.len() < 10 {
            let mut piece = [0; 64];
            let read = core.timeout(DEADLINE, conn.read(&mut piece)).await;
            all.extend_from_slice(&piece[..read.expect("it is all here").unwrap()]);
        }
        assert_eq!(all, b"answermore");
        assert!(
            poll_once(conn.read(&mut [0])).await.is_none(),
            "all is read"
        );
        conn.release();
        let stats = total(&pool);
        assert_eq!(stats.idle.current, 0, "the urgent byte was not: {stats:?}");
        assert_eq!(stats.closed(CloseReason::StrayBytes), 1);
    });
}

/// A server that answers once, and has more to say when the gate opens.
fn answers_then(
    gate: &Gate,
    then: impl Fn(&mut test_support::Peer) -> io::Result<()> + Send + Sync + 'static,
) -> Server {
    let gate = gate.clone();
    Server::script(move |peer| {
        peer.read_request()?;
        peer.answer(OK)?;
        peer.wait_at(&gate)?;
        then(peer)
    })
}

#[test]
fn end_of_both_directions_is_no_reset() {
    let gate = Gate::new();
    let server = answers_then(&gate, |peer| {
        peer.send("bye")?;
        peer.fin()?;
        peer.stall()
    });
    let address = server.addr();
    with_pool(config(), |core, pool| async move {
        let mut conn = pool.acquire(&address).await.unwrap();
        common::exchange(&mut conn).await.unwrap();
        conn.shutdown(Shutdown::Write).unwrap();
        gate.open();
        until(&core, "the FIN is here", || conn.is_peer_closed()).await;
        core.sleep(Duration::ZERO).await;
        let stats = total(&pool);
        assert_eq!(stats.acquired.current, 1, "{stats:?}");
        assert_eq!(stats.closed(CloseReason::Reset), 0);
        let mut rest = Vec::new();
        conn.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"bye");
        conn.release();
        assert_eq!(total(&pool).closed(CloseReason::PeerClosed), 1);
    });
}

#[test]
fn write_refused_after_our_own_shutdown_is_no_reset_for_the_reader() {
    let gate = Gate::new();
    let server = answers_then(&gate, |peer| {
        peer.send("bye")?;
        peer.fin()?;
        peer.stall()
    });
    let address = server.addr();
    with_pool(config(), |core, pool| async move {
        let mut conn = pool.acquire(&address).await.unwrap();
        common::exchange(&mut conn).await.unwrap();
        conn.shutdown(Shutdown::Write).unwrap();
        let refused = conn.write(b"x").await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::BrokenPipe);
        gate.open();
        let mut rest = Vec::new();
        conn.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"bye");
        let reset = poll_once(poll_fn(|cx| conn.poll_reset(cx))).await;
        assert!(reset.is_none());
        conn.release();
        let stats = total(&pool);
        assert_eq!(stats.closed(CloseReason::PeerClosed), 1, "{stats:?}");
        until(&core, "it is closed", || core.registered_sockets() == 0).await;
    });
}

/// Waits for the reset in a task of its own, which nothing else wakes.
fn tell_reset(core: &Core, conn: &Rc<Pooled<Tcp>>) -> Rc<Cell<bool>> {
    let told = Rc::new(Cell::new(false));
    let (conn, told2) = (Rc::clone(conn), Rc::clone(&told));
    core.spawn(async move {
        poll_fn(|cx| conn.poll_reset(cx)).await;
        drop(conn);
        told2.set(true);
    });
    told
}

#[test]
fn reset_is_told_behind_unread_bytes() {
    let (bytes, reset) = (Gate::new(), Gate::new());
    let server = {
        let reset = reset.clone();
        answers_then(&bytes, move |peer| {
            peer.send("unread")?;
            peer.wait_at(&reset)?;
            peer.reset()
        })
    };
    let address = server.addr();
    with_pool(config(), |core, pool| async move {
        let mut conn = pool.acquire(&address).await.unwrap();
        common::exchange(&mut conn).await.unwrap();
        bytes.open();
        let readiness = conn.readiness();
        until(&core, "the bytes are here", || {
            readiness.check_quiet().is_err()
        })
        .await;
        let early = poll_once(poll_fn(|cx| conn.poll_reset(cx))).await;
        assert!(early.is_none(), "bytes are no reset");
        let conn = Rc::new(conn);
        let told = tell_reset(&core, &conn);
        assert!(!told.get());
        reset.open();
        until(&core, "who waits for it is woken", || told.get()).await;
        let mut conn = Rc::into_inner(conn).unwrap();
        let mut unread = [0; 6];
        conn.read_exact(&mut unread).await.unwrap();
        assert_eq!(&unread, b"unread");
    });
}

#[test]
fn fin_is_no_reset_but_one_may_follow_it() {
    let (fin, reset) = (Gate::new(), Gate::new());
    let server = {
        let reset = reset.clone();
        answers_then(&fin, move |peer| {
            peer.fin()?;
            peer.wait_at(&reset)?;
            peer.reset()
        })
    };
    let address = server.addr();
    with_pool(config(), |core, pool| async move {
        let mut conn = pool.acquire(&address).await.unwrap();
        common::exchange(&mut conn).await.unwrap();
        fin.open();
        until(&core, "the FIN is here", || conn.is_peer_closed()).await;
        let early = poll_once(poll_fn(|cx| conn.poll_reset(cx))).await;
        assert!(early.is_none(), "a FIN is no reset");
        assert_eq!(conn.read(&mut [0]).await.unwrap(), 0);
        let early = poll_once(poll_fn(|cx| conn.poll_reset(cx))).await;
        assert!(early.is_none(), "nor is the end of file that was read");
        let told = tell_reset(&core, &Rc::new(conn));
        assert!(!told.get());
        reset.open();
        until(&core, "who waits for it is woken", || told.get()).await;
    });
}
