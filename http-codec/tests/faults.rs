//! What other codecs got wrong in public: responses out of step, connections kept that must not
//! be, or closed that need not.

mod support;

use bytes::BytesMut;
use http_codec::{
    BodyLength, ClientExchange, DecodeErrorKind, EncodeError, Limits, MustClose, Progress,
    RequestEvent, RequestWriter, ResponseEvent, Reuse, ServerExchange,
};
use support::{Received, client, receive};

/// Reads one whole response from `stream`; with the verdict on its connection, which a fault ends.
fn exchange(method: &str, stream: &str) -> Result<(Received, Reuse), DecodeErrorKind> {
    let mut exchange = client(method, &Limits::default());
    let mut src = BytesMut::from(stream);
    match receive(&mut exchange, &mut src) {
        Ok(received) => Ok((
            received.expect("a whole response"),
            exchange.reuse(src.len()),
        )),
        Err(error) => {
            let failed = Reuse::MustClose(MustClose::DecodeFailed);
            assert_eq!(exchange.reuse(0), failed, "{stream}");
            Err(error.category())
        }
    }
}

/// Fault row C4: the body announced by a 204 arrives later and is read as the next status line.
#[test]
fn a_204_that_announces_a_body_ends_its_connection() {
    for announced in [
        "Content-Length: 3\r\n",
        "Content-Length: 3\r\nConnection: keep-alive\r\n",
        "Transfer-Encoding: chunked\r\n",
    ] {
        // The body has not come by the time of the verdict.
        let stream = format!("HTTP/1.1 204 No Content\r\n{announced}\r\n");
        let (received, reuse) = exchange("GET", &stream).expect("a response");
        assert!(received.body.is_empty());
        assert_eq!(reuse, Reuse::MustClose(MustClose::LengthWithoutBody));
    }
    let stream = "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n";
    let (_, reuse) = exchange("GET", stream).expect("a response");
    assert_eq!(reuse, Reuse::KeepAlive);
}

/// Whoever merges trailers into the head would see these past every check made on the head.
const NEVER_TRAILERS: &str = "\
    Content-Length Transfer-Encoding Trailer Host \
    Connection Proxy-Connection Keep-Alive TE Upgrade HTTP2-Settings \
    Authorization Proxy-Authorization WWW-Authenticate Proxy-Authenticate Cookie Set-Cookie \
    Cache-Control Pragma Expect Max-Forwards Range \
    If-Match If-None-Match If-Modified-Since If-Unmodified-Since If-Range If-Anything-New \
    Age Date Expires Location Retry-After Vary Warning \
    Content-Encoding Content-Type Content-Range \
    Forwarded Via X-Real-IP X-Forwarded-For X-Forwarded-Host X-Forwarded-Proto X-Forwarded-New";

/// What trailers are for, and names that only look like those above.
const FINE_TRAILERS: &str = "\
    ETag Digest Content-Digest Server-Timing Grpc-Status Authentication-Info X-Checksum \
    If Iffy X-Forwarded Hosts X-Host Dates";

fn each_spelling(names: &'static str) -> impl Iterator<Item = String> {
    names
        .split_whitespace()
        .flat_map(|name| [name.to_owned(), name.to_lowercase(), name.to_uppercase()])
}

#[test]
fn what_acts_only_in_a_head_is_dropped_from_the_trailers_of_both_roles() {
    let received = |name: &str| {
        let chunks = format!("0\r\nX-A: 1\r\n{name}: 2\r\nX-B: 3\r\n\r\n");
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut src = BytesMut::from(format!("{head}{chunks}").as_str());
        let mut response = client("GET", &Limits::default());
        let response = receive(&mut response, &mut src).expect("no fault");
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut src = BytesMut::from(format!("{head}{chunks}").as_str());
        let mut request = ServerExchange::new(&Limits::default());
        let request = loop {
            if let RequestEvent::End(trailers) = request.decode(&mut src).expect("no fault") {
                break trailers;
            }
        };
        [response.and_then(|response| response.trailers), request].map(|trailers| {
            let trailers = trailers.expect("trailers");
            assert!(trailers.contains("x-a") && trailers.contains("x-b"));
            trailers.contains(name)
        })
    };
    for name in each_spelling(NEVER_TRAILERS) {
        assert_eq!(received(&name), [false, false], "{name}");
    }
    for name in each_spelling(FINE_TRAILERS) {
        assert_eq!(received(&name), [true, true], "{name}");
    }
}

#[test]
fn what_acts_only_in_a_head_is_not_sent_as_a_trailer() {
    let sent = |name: &str| {
        let mut dst = BytesMut::new();
        let mut writer = RequestWriter::new(&mut dst, "POST", "/").expect("a good line");
        writer.field("Host", "a").expect("a good field");
        let sent = writer.finish(BodyLength::Chunked).expect("a whole head");
        let mut exchange = ClientExchange::new(sent, &Limits::default());
        exchange.frame_end(Some(&[(name, b"1")]), &mut dst)
    };
    for name in each_spelling(NEVER_TRAILERS) {
        assert_eq!(sent(&name), Err(EncodeError::ForbiddenTrailer), "{name}");
    }
    for name in each_spelling(FINE_TRAILERS) {
        assert_eq!(sent(&name), Ok(()), "{name}");
    }
}

/// Fault row C8: an HTTP/1.0 connection is kept although the server never offered it.
#[test]
fn http_1_0_is_kept_only_when_the_server_says_so() {
    let head = "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n";
    let (_, reuse) = exchange("GET", &format!("{head}\r\nok")).expect("a response");
    assert_eq!(reuse, Reuse::MustClose(MustClose::Http10));
    let kept = format!("{head}Connection: keep-alive\r\n\r\nok");
    assert_eq!(
        exchange("GET", &kept).expect("a response").1,
        Reuse::KeepAlive
    );
    let chunked = "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    assert_eq!(
        exchange("GET", chunked).err(),
        Some(DecodeErrorKind::AmbiguousFraming)
    );
}

/// Fault row C14: implementations disagree on where a response with two framings ends.
#[test]
fn contradicting_lengths_never_leave_a_connection_in_use() {
    let both = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n\
                2\r\nok\r\n0\r\n\r\n";
    let (received, reuse) = exchange("GET", both).expect("a response");
    assert_eq!(received.body, b"ok");
    assert_eq!(reuse, Reuse::MustClose(MustClose::AmbiguousFraming));

    let with_length = |length: &str| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\nabc");
        exchange("GET", &head).map(|(_, reuse)| reuse)
    };
    assert_eq!(with_length("3, 3"), Ok(Reuse::KeepAlive));
    assert_eq!(
        with_length("3 "),
        Ok(Reuse::KeepAlive),
        "blanks around a value are not its part"
    );
    assert_eq!(with_length("3, 4"), Err(DecodeErrorKind::AmbiguousFraming));
    for bad in ["+3", "3 3", "0x3", "99999999999999999999"] {
        assert_eq!(with_length(bad), Err(DecodeErrorKind::BadLength), "{bad}");
    }
}

/// Fault row F2: an interim response is taken for the final one and all later reads are off by one.
#[test]
fn interim_responses_never_answer_the_request() {
    let mut src = BytesMut::new();
    for body in ["a", "b", "c"] {
        src.extend_from_slice(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n");
        src.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 P\r\n\r\n");
        src.extend_from_slice(b"HTTP/1.1 199 Odd\r\n\r\nHTTP/1.1 200 OK\r\n");
        src.extend_from_slice(format!("Content-Length: 1\r\n\r\n{body}").as_bytes());
    }
    for body in ["a", "b", "c"] {
        let mut exchange = client("GET", &Limits::default());
        let received = receive(&mut exchange, &mut src)
            .expect("no fault")
            .expect("a response");
        assert_eq!(received.status(), 200);
        assert_eq!(received.interim, [103, 100, 102, 199]);
        assert_eq!(received.body, body.as_bytes());
        assert_eq!(exchange.reuse(0), Reuse::KeepAlive);
    }
    assert!(src.is_empty());
}

/// Fault row F2: a switch of protocols that nobody asked for.
#[test]
fn an_unasked_101_is_an_error() {
    let stream = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n";
    assert_eq!(
        exchange("GET", stream).err(),
        Some(DecodeErrorKind::BadHead)
    );
}

/// Fault row F11: the 100 that answers `Expect` reaches the user as the response.
#[test]
fn a_100_is_told_apart_from_the_response() {
    let mut dst = BytesMut::new();
    let mut writer = RequestWriter::new(&mut dst, "POST", "/").expect("a line");
    writer.field("Host", "a").expect("a field");
    writer.field("Expect", "100-continue").expect("a field");
    let sent = writer.finish(BodyLength::Exact(2)).expect("a head");
    assert!(sent.expects_continue());
    let mut exchange = ClientExchange::new(sent, &Limits::default());
    exchange.head_sent();

    let mut src = BytesMut::from("HTTP/1.1 100 Continue\r\n\r\n");
    let event = exchange.decode(&mut src);
    assert!(matches!(event, Ok(ResponseEvent::Interim(head)) if head.status() == 100));
    assert!(matches!(
        exchange.decode(&mut src),
        Ok(ResponseEvent::NeedData)
    ));
    assert!(!exchange.response_done());
    exchange.frame_data(2).expect("the body may go");

    src.extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let received = receive(&mut exchange, &mut src)
        .expect("no fault")
        .expect("a response");
    assert_eq!((received.status(), received.interim), (200, vec![]));
    assert_eq!(exchange.reuse(src.len()), Reuse::KeepAlive);
}

/// Fault row F12: responses without a body are read until the connection closes.
#[test]
fn responses_without_a_body_keep_their_connection() {
    for (method, stream) in [
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", "HTTP/1.1 304 Not Modified\r\n\r\n"),
        (
            "GET",
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\n\r\n",
        ),
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"),
        ("HEAD", "HTTP/1.1 200 OK\r\n\r\n"),
    ] {
        let (received, reuse) = exchange(method, stream).expect("a response");
        assert!(received.body.is_empty());
        assert_eq!(reuse, Reuse::KeepAlive, "{method} {stream}");
    }
}

/// Fault row F5: a line end of chunked framing that falls into two reads.
#[test]
fn chunked_framing_may_break_anywhere() {
    let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let body = b"4;e=1\r\nwiki\r\n5\r\npedia\r\n0\r\nT: v\r\n\r\n";
    let run = |cuts: &[usize]| {
        let mut exchange = client("GET", &Limits::default());
        let mut src = BytesMut::from(&head[..]);
        let (mut text, mut start) = (Vec::new(), 0);
        for cut in cuts.iter().copied().chain([body.len()]) {
            src.extend_from_slice(&body[start..cut]);
            start = cut;
            loop {
                match exchange.decode(&mut src).expect("no fault") {
                    ResponseEvent::NeedData => break,
                    ResponseEvent::Data(data) => text.extend_from_slice(&data),
                    ResponseEvent::End(trailers) => {
                        let trailers = trailers.expect("trailers");
                        assert_eq!(trailers.get("t"), Some(&b"v"[..]));
                        assert_eq!(text, b"wikipedia", "{cuts:?}");
                        return;
                    }
                    ResponseEvent::Head(_) | ResponseEvent::Interim(_) => {}
                }
            }
        }
        panic!("no end, cut at {cuts:?}");
    };
    for cut in 0..body.len() {
        run(&[cut]);
    }
    run(&(0..body.len()).collect::<Vec<_>>());
}

#[test]
fn bytes_behind_a_response_end_its_connection_unless_they_answer_another_request() {
    let mut exchange = client("GET", &Limits::default());
    let mut src = BytesMut::from("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nagarbage");
    assert!(
        receive(&mut exchange, &mut src)
            .expect("no fault")
            .is_some()
    );
    assert_eq!(src, "garbage");
    assert_eq!(
        exchange.reuse(src.len()),
        Reuse::MustClose(MustClose::UnreadBytes)
    );
    assert_eq!(exchange.reuse(0), Reuse::KeepAlive);
}

#[test]
fn an_early_response_waits_for_the_request_before_the_connection_is_kept() {
    let mut dst = BytesMut::new();
    let mut writer = RequestWriter::new(&mut dst, "POST", "/").expect("a line");
    writer.field("Host", "a").expect("a field");
    let sent = writer.finish(BodyLength::Chunked).expect("a head");
    let mut exchange = ClientExchange::new(sent, &Limits::default());
    assert_eq!(exchange.progress(), Progress::Unsent);
    exchange.head_sent();
    assert_eq!(exchange.progress(), Progress::Sending);
    let mut src = BytesMut::from("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert!(
        receive(&mut exchange, &mut src)
            .expect("no fault")
            .is_some()
    );
    assert_eq!(exchange.progress(), Progress::Done);
    assert_eq!(exchange.reuse(0), Reuse::NotYet);
    exchange.frame_end(None, &mut dst).expect("an end");
    assert_eq!(exchange.reuse(0), Reuse::KeepAlive);
}

#[test]
fn a_tunnel_leaves_the_bytes_behind_the_head() {
    let mut exchange = client("CONNECT", &Limits::default());
    let mut src = BytesMut::from("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    let received = receive(&mut exchange, &mut src)
        .expect("no fault")
        .expect("a head");
    assert!(received.head.is_some_and(|head| head.upgrade()));
    assert_eq!(src, "hello");
    assert_eq!(
        exchange.reuse(src.len()),
        Reuse::MustClose(MustClose::Upgraded)
    );
}

#[test]
fn a_fault_stays_and_tells_the_place() {
    let mut exchange = client("GET", &Limits::default());
    let stream = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nokX";
    let mut src = BytesMut::from(stream);
    let error = receive(&mut exchange, &mut src).expect_err("a fault");
    assert_eq!(error.offset(), Some(stream.len() as u64 - 1));
    assert_eq!(error.reply_status(), 502);
    let mut clean = BytesMut::from("HTTP/1.1 200 OK\r\n\r\n");
    assert_eq!(
        exchange.decode(&mut clean).expect_err("the same fault"),
        error
    );
    assert_eq!(exchange.reuse(0), Reuse::MustClose(MustClose::DecodeFailed));
}

#[test]
fn a_body_cut_short_is_an_error_after_its_bytes() {
    let mut exchange = client("GET", &Limits::default());
    let mut src = BytesMut::from("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
    assert!(matches!(
        exchange.decode(&mut src),
        Ok(ResponseEvent::Head(_))
    ));
    let Ok(ResponseEvent::Data(data)) = exchange.decode_eof(&mut src) else {
        panic!("no data")
    };
    assert_eq!(data, "abc");
    let error = exchange.decode_eof(&mut src).expect_err("a cut");
    assert_eq!(error.category(), DecodeErrorKind::Incomplete);
}
