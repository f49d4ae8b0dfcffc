//! A protocol that is not HTTP over the pool: the program as it is, and its connector in front of
//! servers that do not behave.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::future::Future;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use pinpool_examples::lines::{self, AskError, LineConnector, LineError, LineServer};
use pool_core::{AcquireError, CloseReason, Core, Pool};
use test_support::{DEADLINE, eventually_async};

#[test]
fn the_program_asks_everything_over_few_connections_and_ends() {
    let (sender, ended) = mpsc::channel();
    // The thread is left behind if the program never ends: the test has failed then.
    thread::spawn(move || {
        let ran = lines::run().map_err(|error| error.to_string());
        drop(sender.send(ran));
    });
    let report = ended.recv_timeout(DEADLINE).unwrap().unwrap();
    let stats = &report.stats;
    assert_eq!(stats.acquires.requested, 1000);
    assert_eq!(stats.acquires.fresh + stats.acquires.reused, 1000);
    assert!(stats.acquires.queued >= 12, "{stats:?}");
    assert_eq!((stats.opened, stats.acquired.highest), (4, 4));
    assert_eq!(report.accepted, stats.opened);
    assert!(stats.probes >= 4);
    assert_eq!(stats.closed(CloseReason::Drained), stats.opened);
    assert_eq!((stats.live(), stats.pending.current), (0, 0));
    let text = report.to_string();
    for line in ["questions    1000\n", "closed       4 by drained\n"] {
        assert!(text.contains(line), "{text}");
    }
}

/// Runs `main` on a core with an empty pool, whose idle connections are probed.
fn with_pool<F, Fut>(main: F) -> Fut::Output
where
    F: FnOnce(Core, Pool<LineConnector>) -> Fut,
    Fut: Future,
{
    let main = |core: Core| {
        let pool = Pool::new(&core, lines::config(), LineConnector::new(&core));
        main(core, pool)
    };
    Core::builder().run(main).unwrap()
}

/// A server of one connection. It greets with these pieces, and answers each line with that, for as
/// long as the client takes it.
struct Peer {
    address: SocketAddr,
    thread: thread::JoinHandle<io::Result<()>>,
}

impl Peer {
    fn new(greeting: &'static [&str], answer: &'static str) -> Self {
        Self::serving(greeting, move |mut stream| {
            stream.write_all(answer.as_bytes())
        })
    }

    fn serving(
        greeting: &'static [&str],
        answer: impl Fn(&TcpStream) -> io::Result<()> + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let thread = thread::spawn(move || {
            let (mut stream, _) = listener.accept()?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(DEADLINE))?;
            for piece in greeting {
                stream.write_all(piece.as_bytes())?;
            }
            for line in BufReader::new(&stream).lines() {
                line?;
                answer(&stream)?;
            }
            Ok(())
        });
        Self { address, thread }
    }

    /// Waits until the client has gone.
    fn finish(self) -> io::Result<()> {
        self.thread.join().unwrap()
    }
}

async fn closes(core: &Core, pool: &Pool<LineConnector>, reason: CloseReason) {
    let closed = || pool.snapshot().total.closed(reason) == 1;
    let pause = || core.sleep(Duration::from_millis(1));
    eventually_async(DEADLINE, closed, pause).await;
}

async fn ask(pool: &Pool<LineConnector>, address: SocketAddr) -> Result<String, AskError> {
    lines::ask(pool, address, "hello").await
}

#[test]
fn a_connection_is_ready_only_once_its_server_has_greeted() {
    let peer = Peer::new(&["GO ", "AWAY\n"], "");
    let address = peer.address;
    let error = with_pool(|_, pool| async move { ask(&pool, address).await.unwrap_err() });
    let AskError::Acquire(AcquireError::Connect(LineError::Unexpected { got, .. })) = error else {
        panic!("{error:?}");
    };
    assert_eq!(got, "GO AWAY");
    peer.finish().unwrap();
}

#[test]
fn a_line_without_end_fails_the_question_and_closes_the_connection() {
    let peer = Peer::serving(&["READY\n"], |mut stream| {
        loop {
            stream.write_all(&[b'x'; 4096])?;
        }
    });
    let address = peer.address;
    with_pool(|_, pool| async move {
        let error = ask(&pool, address).await.unwrap_err();
        assert!(matches!(error, AskError::Line(LineError::TooLong)));
        let stats = pool.snapshot().total;
        assert_eq!(stats.closed(CloseReason::ExchangeFailed), 1);
    });
    // Closed with bytes on their way to it.
    peer.finish().unwrap_err();
}

#[test]
fn an_answer_with_more_behind_it_costs_the_connection() {
    let peer = Peer::new(&["READY\n"], "HELLO\nAND MORE\n");
    let address = peer.address;
    with_pool(|core, pool| async move {
        assert_eq!(ask(&pool, address).await.unwrap(), "HELLO");
        closes(&core, &pool, CloseReason::StrayBytes).await;
    });
    peer.finish().unwrap();
}

#[test]
fn a_wrong_answer_to_a_probe_closes_the_idle_connection() {
    let peer = Peer::new(&["READY\n"], "WHAT\n");
    let address = peer.address;
    with_pool(|core, pool| async move {
        assert_eq!(ask(&pool, address).await.unwrap(), "WHAT");
        closes(&core, &pool, CloseReason::HeartbeatFailed).await;
    });
    peer.finish().unwrap();
}

#[test]
fn the_server_answers_in_capitals_and_counts_whom_it_accepted() {
    let server = LineServer::start().unwrap();
    let address = server.address();
    let answer = with_pool(|_, pool| async move { ask(&pool, address).await.unwrap() });
    assert_eq!((answer.as_str(), server.stop()), ("HELLO", 1));
}
