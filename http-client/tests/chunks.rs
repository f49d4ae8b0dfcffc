//! Bodies in chunks as they come over a socket: in any pieces, broken off, with sizes that no body
//! has, and without an end.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::time::Duration;

use common::*;
use http_client::{Body, ClientConfig, ErrorKind, IncomingBody, Phase, TcpConnector};
use http_codec::Limits;
use test_support::{Peer, Server, eventually};

const HEAD: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
const CHUNKS: &str = "4;e=1\r\nwiki\r\n5\r\npedia\r\n0\r\nT: v\r\n\r\n";

/// What came of a body: its data, its trailer `T`, and how it broke off.
#[derive(Debug, Default, PartialEq)]
struct Read {
    data: Vec<u8>,
    trailer: Option<String>,
    broken: Option<ErrorKind>,
}

async fn read(mut body: IncomingBody<TcpConnector>) -> Read {
    let mut read = Read::default();
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                assert_eq!(error.phase(), Phase::Receive);
                read.broken = Some(error.kind());
                continue;
            }
        };
        match frame.into_data() {
            Ok(data) => read.data.extend_from_slice(&data),
            Err(frame) => {
                let trailers = frame.into_trailers().unwrap();
                read.trailer = Some(trailers["t"].to_str().unwrap().to_owned());
            }
        }
    }
    read
}

/// Fault row F5: the line end of a chunk's size falls into two reads.
#[test]
fn chunks_may_come_in_any_pieces() {
    let pause = Duration::from_millis(5);
    let server = Server::script(move |peer: &mut Peer| {
        for cut in 1..CHUNKS.len() {
            peer.read_request()?;
            peer.answer(format!("{HEAD}{}", &CHUNKS[..cut]))?;
            peer.sleep(pause)?;
            peer.send(&CHUNKS[cut..])?;
        }
        peer.read_request()?;
        peer.answer(HEAD)?;
        peer.send_slowly(CHUNKS, 1, pause)?;
        peer.stall()
    });
    let address = server.addr();
    with_client(pool_config(), client_config(), |_, client| async move {
        for cut in 1..=CHUNKS.len() {
            let body = client.send(get(address)).await.unwrap().into_body();
            let whole = Read {
                data: b"wikipedia".to_vec(),
                trailer: Some("v".to_owned()),
                broken: None,
            };
            assert_eq!(read(body).await, whole, "cut at {cut}");
        }
        assert_eq!(total(&client).opened, 1);
    });
    server.finish();
}

/// Fault row C12: the peer is through before the body is, and the client waits for its timeout.
#[test]
fn chunks_cut_short_are_an_error_after_what_came_wherever_they_are_cut() {
    let server = Server::script(|peer: &mut Peer| {
        peer.read_request()?;
        peer.answer(format!("{HEAD}{}", &CHUNKS[..peer.index()]))?;
        peer.fin()?;
        peer.stall()
    });
    let address = server.addr();
    with_client(pool_config(), client_config(), |core, client| async move {
        for cut in 0..CHUNKS.len() {
            let body = client.send(get(address)).await.unwrap().into_body();
            let read = read(body).await;
            assert_eq!(read.broken, Some(ErrorKind::Truncated), "cut at {cut}");
            assert_eq!(read.trailer, None);
            let came: String = [7..11, 16..21]
                .map(|data| CHUNKS.get(data.start.min(cut)..data.end.min(cut)).unwrap())
                .concat();
            assert_eq!(read.data, came.as_bytes(), "cut at {cut}");
            let stats = total(&client);
            assert_eq!((stats.idle.current, stats.opened), (0, cut as u64 + 1));
        }
        assert_in_order(&core, &client, 2).await;
    });
    eventually(DEADLINE, || server.counts().open == 0);
}

/// What a client with these limits reads of `answer`, behind which the peer closes.
fn read_of(answer: String, limits: Limits) -> Result<Vec<u8>, ErrorKind> {
    let server = Server::script(move |peer: &mut Peer| {
        peer.read_request()?;
        peer.answer(&answer)?;
        peer.fin()?;
        peer.stall()
    });
    let address = server.addr();
    with_client(pool_config(), limited(limits), |core, client| async move {
        let read = match client.send(get(address)).await {
            Ok(response) => read(response.into_body()).await,
            Err(error) => Read {
                broken: Some(error.kind()),
                ..Read::default()
            },
        };
        assert_in_order(&core, &client, 2).await;
        read.broken.map_or(Ok(read.data), Err)
    })
}

fn limited(limits: Limits) -> ClientConfig {
    client_config().limits(limits)
}

/// Fault row F7: a size near the integer limit wraps, or aborts.
#[test]
fn sizes_near_the_integer_limit_are_errors() {
    for (size, kind) in [
        ("7fffffffffffffff", ErrorKind::Truncated),
        ("fffffffffffffffe", ErrorKind::Truncated),
        ("ffffffffffffffff", ErrorKind::Truncated),
        ("10000000000000000", ErrorKind::MalformedResponse),
        ("fffffffffffffffff", ErrorKind::MalformedResponse),
    ] {
        for before in ["", "2\r\nab\r\n"] {
            let answer = format!("{HEAD}{before}{size}\r\nxy\r\n0\r\n\r\n");
            assert_eq!(read_of(answer, Limits::default()), Err(kind), "{size}");
            let short = Limits::default().with_max_body_bytes(Some(1 << 20));
            let answer = format!("{HEAD}{before}{size}\r\nxy\r\n0\r\n\r\n");
            let refused = Err(ErrorKind::MalformedResponse);
            assert_eq!(read_of(answer, short), refused, "{size}");
        }
    }
    let zeros = "0".repeat(1000);
    let answer = format!("{HEAD}{zeros}1\r\nx\r\n{zeros}0\r\n\r\n");
    assert_eq!(read_of(answer, Limits::default()), Ok(b"x".to_vec()));
}

/// Fault row F7, at the limit of the client's own.
#[test]
fn limit_on_a_body_holds_to_the_byte() {
    const LIMIT: usize = 1000;
    let limits = Limits::default().with_max_body_bytes(Some(LIMIT as u64));
    for length in [LIMIT - 1, LIMIT, LIMIT + 1] {
        let data = "x".repeat(length);
        let (first, rest) = data.split_at(7);
        for answer in [
            format!("{HEAD}{length:x}\r\n{data}\r\n0\r\n\r\n"),
            format!(
                "{HEAD}7\r\n{first}\r\n{:x}\r\n{rest}\r\n0\r\n\r\n",
                rest.len()
            ),
            format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{data}"),
            format!("HTTP/1.1 200 OK\r\n\r\n{data}"),
        ] {
            let read = read_of(answer, limits);
            match length <= LIMIT {
                true => assert_eq!(read, Ok(data.clone().into_bytes())),
                false => assert_eq!(read, Err(ErrorKind::MalformedResponse)),
            }
        }
    }
}

/// Fault row F8: trailers without end. And all else of a response that has an end only if its peer
/// says so.
#[test]
fn what_a_peer_never_ends_is_an_error_at_its_limit() {
    let chunk = format!("{HEAD}1\r\nx\r\n");
    for (begin, filler) in [
        (format!("{HEAD}0\r\nX: "), "v"),
        (format!("{HEAD}0\r\n"), "X: y\r\n"),
        (format!("{chunk}1;e="), "v"),
        (format!("{HEAD}0"), "0"),
        (chunk, "1;eeeeeeeeeeeeeeeeeeeeee\r\nx\r\n"),
        ("HTTP/1.1 200 OK\r\nX: ".to_owned(), "v"),
        ("HTTP/1.1 200 OK\r\n".to_owned(), "X: y\r\n"),
        ("HTTP/1.1 200 ".to_owned(), "reason"),
        (String::new(), "\r\n"),
    ] {
        let case = format!("{begin:?} {filler:?}");
        let flood = filler.repeat((64 << 10) / filler.len());
        let server = Server::script(move |peer: &mut Peer| {
            peer.read_request()?;
            peer.answer(&begin)?;
            for _ in 0..(1 << 30) / flood.len() {
                peer.send(&flood)?;
            }
            // Whoever has taken all of it has no limit.
            peer.fin()
        });
        let address = server.addr();
        with_client(pool_config(), client_config(), |core, client| async move {
            let kind = match client.send(request("GET", address, Body::empty())).await {
                Ok(response) => read(response.into_body()).await.broken,
                Err(error) => Some(error.kind()),
            };
            assert_eq!(kind, Some(ErrorKind::MalformedResponse), "{case}");
            assert_in_order(&core, &client, 2).await;
        });
    }
}
