//! Exchanges: what goes out, what comes back, and where the connection ends up.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use common::*;
use futures_lite::StreamExt;
use http::Request;
use http_body::{Body as _, Frame};
use http_client::{Body, Error, ErrorKind, Phase, ReadError, Sent};
use pool_core::CloseReason;
use test_support::{Gate, OK, OK_CLOSE, Server, Then, keep_alive_tagged, respond_then};

/// A body of the given frames, without a length.
struct Frames(Vec<Result<Frame<Bytes>, io::Error>>);

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.0.is_empty() {
            Poll::Ready(None)
        } else {
            Poll::Ready(Some(self.0.remove(0)))
        }
    }
}

fn data(text: &'static str) -> Result<Frame<Bytes>, io::Error> {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

/// The head and the body of each request that a server has read.
type Record = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// A server that keeps what it reads and answers each request with `answer`.
fn recorder(answer: &'static [u8]) -> (Server, Record) {
    let seen = Record::default();
    let record = Arc::clone(&seen);
    let server = Server::script(move |peer| {
        while let Some(request) = peer.read_request()? {
            let head = String::from_utf8_lossy(&request.head).into_owned();
            record.lock().unwrap().push((head, request.body));
            peer.answer(answer)?;
        }
        Ok(())
    });
    (server, seen)
}

#[test]
fn requests_share_one_connection_and_answers_stay_in_step() {
    let server = Server::script(keep_alive_tagged());
    let address = server.addr();
    with_client(pool_config(), client_config(), |core, client| async move {
        for n in 1..=50 {
            assert_eq!(
                fetch(&client, get(address)).await.unwrap(),
                format!("R-1-{n}")
            );
        }
        assert_in_order(&core, &client, 4).await;
    });
    assert_eq!(server.counts().accepted, 1);
}

#[test]
fn head_goes_out_with_a_host_and_the_callers_fields() {
    let (server, seen) = recorder(OK);
    let address = server.addr();
    with_client(pool_config(), client_config(), |_, client| async move {
        let request = Request::builder()
            .uri(uri(address, "/a/b?c=d"))
            .header("X-Test", "yes");
        fetch(&client, request.body(Body::empty()).unwrap())
            .await
            .unwrap();
        let named = Request::builder()
            .uri(uri(address, ""))
            .header("Host", "other.example");
        fetch(&client, named.body(Body::empty()).unwrap())
            .await
            .unwrap();
    });
    let seen = seen.lock().unwrap();
    assert_eq!(
        seen[0].0,
        format!("GET /a/b?c=d HTTP/1.1\r\nHost: {address}\r\nx-test: yes\r\n\r\n")
    );
    assert_eq!(seen[1].0, "GET / HTTP/1.1\r\nhost: other.example\r\n\r\n");
}

#[test]
fn bodies_arrive_with_the_framing_they_have() {
    let (server, seen) = recorder(OK);
    let address = server.addr();
    with_client(pool_config(), client_config(), |core, client| async move {
        let full = request("POST", address, Body::full("hello"));
        fetch(&client, full).await.unwrap();
        let frames = Frames(vec![data("wiki"), data(""), data("pedia")]);
        fetch(&client, request("POST", address, Body::stream(frames)))
            .await
            .unwrap();
        let known = Request::post(uri(address, "/")).header("Content-Length", "9");
        let frames = Frames(vec![data("wiki"), data("pedia")]);
        fetch(&client, known.body(Body::stream(frames)).unwrap())
            .await
            .unwrap();
        fetch(&client, request("POST", address, Body::empty()))
            .await
            .unwrap();
        assert_eq!(total(&client).opened, 1);
        assert_in_order(&core, &client, 2).await;
    });
    let seen = seen.lock().unwrap();
    let bodies: Vec<_> = seen.iter().map(|(_, body)| body.as_slice()).collect();
    assert_eq!(bodies, [&b"hello"[..], b"wikipedia", b"wikipedia", b""]);
    let framing = |n: usize| {
        let lines = seen[n].0.lines().map(str::to_ascii_lowercase);
        lines
            .filter(|l| l.starts_with("content-length") || l.starts_with("transfer"))
            .collect()
    };
    let expected: [Vec<String>; 4] = std::array::from_fn(framing);
    assert_eq!(expected[0], ["content-length: 5"]);
    assert_eq!(expected[1], ["transfer-encoding: chunked"]);
    assert_eq!(expected[2], ["content-length: 9"]);
    assert_eq!(expected[3], ["content-length: 0"]);
}

#[test]
fn wrong_requests_are_refused_before_anything_leaves() {
    let (server, seen) = recorder(OK);
    let address = server.addr();
    with_client(pool_config(), client_config(), |_, client| async move {
        let bad: Vec<Request<Body>> = vec![
            Request::get("/relative").body(Body::empty()).unwrap(),
            Request::get("https://127.0.0.1/")
                .body(Body::empty())
                .unwrap(),
            Request::get(format!("http://me@{address}/"))
                .body(Body::empty())
                .unwrap(),
            Request::post(uri(address, "/"))
                .header("Content-Length", "4")
                .body(Body::full("hello"))
                .unwrap(),
            Request::post(uri(address, "/"))
                .header("Transfer-Encoding", "chunked")
                .body(Body::full("hello"))
                .unwrap(),
        ];
        for request in bad {
            let error = client.send(request).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidRequest);
            assert_eq!(
                (error.phase(), error.sent(), error.attempt()),
                (Phase::Prepare, Sent::None, 0)
            );
        }
        assert_eq!(total(&client).opened, 0);
    });
    assert!(seen.lock().unwrap().is_empty());
}

#[test]
fn connection_close_is_honoured() {
    // Fault C6: the server keeps its side open.
    let server = Server::script(respond_then(0, Then::ConnectionClose));
    let address = server.addr();
    with_client(pool_config(), client_config(), |core, client| async move {
        for _ in 0..3 {
            assert_eq!(fetch(&client, get(address)).await.unwrap(), "ok");
        }
        let stats = total(&client);
        assert_eq!(
            (stats.opened, stats.closed(CloseReason::ConnectionClose)),
            (3, 3)
        );
        assert_in_order(&core, &client, 2).await;
    });
    assert!(OK_CLOSE.len() > OK.len());
}

#[test]
fn trailers_come_after_the_data() {
    let server = Server::script(|peer| {
        peer.read_request()?;
        peer.answer(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nT: v\r\n\r\n",
        )
    });
    let address = server.addr();
    with_client(pool_config(), client_config(), |_, client| async move {
        let mut body = client.send(get(address)).await.unwrap().into_body();
        assert_eq!(
            body.frame().await.unwrap().unwrap().into_data().unwrap(),
            "ok"
        );
        let trailers = body
            .frame()
            .await
            .unwrap()
            .unwrap()
            .into_trailers()
            .unwrap();
        assert_eq!(trailers["t"], "v");
        assert!(body.frame().await.is_none());
        assert!(body.is_end_stream());
    });
}

#[test]
fn data_stream_gives_the_data_and_drops_the_trailers() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let server = Server::script(move |peer| {
        peer.read_request()?;
        peer.answer(format!(
            "{chunked}4\r\nwiki\r\n5\r\npedia\r\n0\r\nT: v\r\n\r\n"
        ))?;
        peer.read_request()?;
        peer.answer(format!("{chunked}4\r\nwiki\r\n"))?;
        peer.close()
    });
    let address = server.addr();
    with_client(pool_config(), client_config(), |_, client| async move {
        let response = client.send(get(address)).await.unwrap();
        let data = response.into_body().into_data_stream();
        let data: Vec<Result<Bytes, Error>> = data.collect().await;
        let data: Vec<Bytes> = data.into_iter().map(Result::unwrap).collect();
        assert_eq!(data.concat(), b"wikipedia");
        let response = client.send(get(address)).await.unwrap();
        let mut cut = response.into_body().into_data_stream();
        assert_eq!(cut.next().await.unwrap().unwrap(), "wiki");
        let error = cut.next().await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Truncated);
        assert!(cut.next().await.is_none());
        assert_eq!(total(&client).opened, 1);
        assert_eq!(total(&client).acquired.current, 0);
    });
}

#[test]
fn body_cut_short_is_an_error_after_what_came() {
    // Fault C12.
    let server = Server::script(respond_then(0, Then::FinMidBody));
    let address = server.addr();
    with_client(pool_config(), client_config(), |core, client| async move {
        let mut body = client.send(get(address)).await.unwrap().into_body();
        assert_eq!(body.size_hint().exact(), Some(10));
        assert_eq!(
            body.frame().await.unwrap().unwrap().into_data().unwrap(),
            "01234"
        );
        let error = body.frame().await.unwrap().unwrap_err();
        assert_eq!(
            (error.kind(), error.phase()),
            (ErrorKind::Truncated, Phase::Receive)
        );
        assert!(body.frame().await.is_none());
        assert_eq!(total(&client).closed(CloseReason::ExchangeFailed), 1);
        assert_in_order(&core, &client, 2).await;
    });
}

#[test]
fn reset_in_the_middle_of_a_response_is_told_as_one() {
    let server = Server::script(respond_then(0, Then::ResetMidBody));
    let address = server.addr();
    with_client(pool_config(), client_config(), |core, client| async move {
        let error = fetch(&client, get(address)).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.phase()),
            (ErrorKind::Reset, Phase::Receive)
        );
        assert_in_order(&core, &client, 2).await;
    });
}

#[test]
fn malformed_answer_closes_and_says_what_is_wrong() {
    let server = Server::script(|peer| {
        peer.read_request()?;
        peer.answer("SSH-2.0-OpenSSH\r\n\r\n")?;
        peer.stall()
    });
    let address = server.addr();
    with_client(pool_config(), client_config(), |core, client| async move {
        let error = client.send(get(address)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MalformedResponse);
        assert!(std::error::Error::source(&error).is_some());
        assert_in_order(&core, &client, 2).await;
    });
}

#[test]
fn body_longer_than_the_caller_reads_is_refused() {
    let server = Server::script(test_support::keep_alive_ok());
    let address = server.addr();
    with_client(pool_config(), client_config(), |core, client| async move {
        let response = client.send(get(address)).await.unwrap();
        let error = response.into_body().bytes(1).await.unwrap_err();
        assert!(matches!(error, ReadError::TooLong { limit: 1 }));
        assert_in_order(&core, &client, 2).await;
    });
}

#[test]
fn send_dropped_at_any_moment_leaves_nothing_behind() {
    let gate = Gate::new();
    let gated = gate.clone();
    let server = Server::script(move |peer| {
        while peer.read_request()?.is_some() {
            peer.send(&OK[..10])?;
            peer.wait_at(&gated)?;
            peer.answer(&OK[10..])?;
        }
        Ok(())
    });
    let address = server.addr();
    with_client(
        pool_config().max_connections(2),
        client_config(),
        |core, client| async move {
            for polls in 0..8 {
                let mut sending = Box::pin(client.send(request("POST", address, Body::full("x"))));
                for _ in 0..polls {
                    let polled = futures_lite::future::poll_once(&mut sending).await;
                    assert!(polled.is_none(), "the gate is closed");
                    core.sleep(Duration::from_millis(1)).await;
                }
                drop(sending);
                let stats = total(&client);
                assert_eq!(
                    (stats.acquired.current, stats.pending.current),
                    (0, 0),
                    "{polls} polls"
                );
            }
            gate.open();
            assert_eq!(fetch(&client, get(address)).await.unwrap(), "ok");
            assert_in_order(&core, &client, 2).await;
        },
    );
}

#[test]
fn response_head_has_a_deadline_that_a_drip_does_not_extend() {
    let server = Server::script(|peer| {
        peer.read_request()?;
        peer.send_slowly(OK, 1, Duration::from_millis(10))?;
        peer.stall()
    });
    let address = server.addr();
    let short = client_config().response_head_timeout(Some(Duration::from_millis(60)));
    with_client(pool_config(), short, |core, client| async move {
        let error = client.send(get(address)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::HeadTimeout);
        assert_eq!((error.phase(), error.sent()), (Phase::Receive, Sent::All));
        assert_in_order(&core, &client, 2).await;
    });
}

#[test]
fn hold_timeout_of_the_pool_is_told_apart_from_a_reset() {
    let server = Server::script(test_support::never_answer());
    let address = server.addr();
    let short = pool_config().hold_timeout(Some(Duration::from_millis(30)));
    with_client(short, client_config(), |core, client| async move {
        let error = client.send(get(address)).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.phase()),
            (ErrorKind::HoldTimeout, Phase::Wait)
        );
        client.pool().set_config(pool_config().build().unwrap());
        assert_in_order(&core, &client, 2).await;
    });
}

#[test]
fn early_answer_is_delivered_while_the_body_still_goes_out() {
    // The peer answers 413 and closes without reading: the answer counts, the connection does not.
    let server = Server::script(|peer| {
        peer.read_request_head()?;
        peer.answer("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig")?;
        peer.close()
    });
    let address = server.addr();
    struct Endless;
    impl http_body::Body for Endless {
        type Data = Bytes;
        type Error = io::Error;
        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[0; 16 << 10])))))
        }
    }
    with_client(pool_config(), client_config(), |core, client| async move {
        let response = client
            .send(request("POST", address, Body::stream(Endless)))
            .await
            .unwrap();
        assert_eq!(response.status(), 413);
        assert_eq!(text(response).await.unwrap(), "big");
        assert_eq!(total(&client).idle.current, 0);
        assert_in_order(&core, &client, 2).await;
    });
}

#[test]
fn failing_request_body_is_the_callers_error_and_not_retried() {
    // Fault E1, on a warm connection.
    let (server, seen) = recorder(OK);
    let address = server.addr();
    with_client(pool_config(), client_config(), |core, client| async move {
        fetch(&client, get(address)).await.unwrap();
        let broken = Frames(vec![Err(io::Error::other("disk on fire"))]);
        let put = request("PUT", address, Body::stream(broken));
        let error = client.send(put).await.unwrap_err();
        assert_eq!((error.kind(), error.attempt()), (ErrorKind::RequestBody, 1));
        assert_eq!(error.io().unwrap().to_string(), "disk on fire");
        let short = Request::post(uri(address, "/")).header("Content-Length", "9");
        let short = short
            .body(Body::stream(Frames(vec![data("wiki")])))
            .unwrap();
        assert_eq!(
            client.send(short).await.unwrap_err().kind(),
            ErrorKind::RequestBody
        );
        assert_in_order(&core, &client, 2).await;
    });
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[test]
fn exchange_gives_interim_heads_and_the_final_one_as_they_came() {
    let server = Server::script(|peer| {
        peer.read_request()?;
        peer.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")?;
        peer.answer("HTTP/1.1 299 As It Came\r\nX-Odd:  spaced \r\nContent-Length: 0\r\n\r\n")
    });
    let address = server.addr();
    with_client(pool_config(), client_config(), |_, client| async move {
        let mut head = bytes::BytesMut::new();
        let mut writer = http_codec::RequestWriter::new(&mut head, "GET", "/").unwrap();
        writer.field("Host", "test").unwrap();
        let sent = writer.finish(http_codec::BodyLength::None).unwrap();
        let outgoing = http_client::Outgoing::new(head.freeze(), sent, Body::empty());
        let interim = Rc::new(RefCell::new(Vec::new()));
        let seen = Rc::clone(&interim);
        let target = destination(address);
        let exchanged = client.exchange(&target, outgoing, move |head| {
            seen.borrow_mut().push(head.status());
        });
        let (head, body) = exchanged.await.unwrap();
        assert_eq!(*interim.borrow(), [103]);
        assert_eq!((head.status(), head.reason()), (299, &b"As It Came"[..]));
        assert_eq!(head.fields().get("x-odd"), Some(&b"spaced"[..]));
        assert!(body.is_end_stream());
    });
}
