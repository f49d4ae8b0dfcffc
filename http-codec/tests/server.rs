//! The server's side of exchanges: what the response head says, and what becomes of the
//! connection.

mod support;

use bytes::BytesMut;
use http_codec::{
    BodyLength, DecodeErrorKind, EncodeError, FieldSlots, Limit, Limits, MustClose, RequestEvent,
    RequestView, Reuse, ServerExchange,
};
use support::accept;

fn accepted(request: &str) -> ServerExchange {
    let mut exchange = ServerExchange::new(&Limits::default());
    let mut src = BytesMut::from(request);
    assert!(accept(&mut exchange, &mut src).expect("no fault").is_some());
    exchange
}

/// Answers `request` and gives the bytes of the head.
fn answer(request: &str, status: u16, body: BodyLength) -> (String, ServerExchange) {
    let mut exchange = accepted(request);
    let mut dst = BytesMut::new();
    let writer = exchange.respond(&mut dst, status).expect("a response");
    writer.finish(body).expect("a whole head");
    (String::from_utf8_lossy(&dst).into_owned(), exchange)
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const HEAD: &str = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n";
const OLD: &str = "GET / HTTP/1.0\r\n\r\n";
const OLD_KEPT: &str = "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";

#[test]
fn the_framing_fields_follow_from_request_status_and_body() {
    use BodyLength::{Chunked, Exact, None, UntilClose};
    for (request, status, body, expected) in [
        (
            GET,
            200,
            None,
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        ),
        (
            GET,
            200,
            Exact(5),
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
        ),
        (
            GET,
            200,
            Chunked,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        ),
        (
            GET,
            200,
            UntilClose,
            "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
        ),
        (GET, 204, None, "HTTP/1.1 204 No Content\r\n\r\n"),
        (GET, 204, Exact(0), "HTTP/1.1 204 No Content\r\n\r\n"),
        (
            GET,
            205,
            None,
            "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n",
        ),
        (GET, 304, None, "HTTP/1.1 304 Not Modified\r\n\r\n"),
        (
            GET,
            304,
            Exact(9),
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
        ),
        (GET, 299, None, "HTTP/1.1 299 \r\nContent-Length: 0\r\n\r\n"),
        (HEAD, 200, None, "HTTP/1.1 200 OK\r\n\r\n"),
        (
            HEAD,
            200,
            Exact(9),
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
        ),
        (
            HEAD,
            200,
            Chunked,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        ),
        (
            OLD,
            200,
            Exact(1),
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\n",
        ),
        (
            OLD_KEPT,
            200,
            Chunked,
            "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
        ),
        (
            OLD_KEPT,
            200,
            Exact(1),
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\r\n",
        ),
    ] {
        let (head, _) = answer(request, status, body);
        assert_eq!(head, expected, "{status} {body:?} to {request}");
    }
}

#[test]
fn answers_to_head_need_no_data() {
    for body in [
        BodyLength::Exact(9),
        BodyLength::Chunked,
        BodyLength::UntilClose,
    ] {
        let (_, mut exchange) = answer(HEAD, 200, body);
        assert!(!exchange.body_allowed() && exchange.response_done());
        assert_eq!(exchange.frame_data(1), Err(EncodeError::BodyNotAllowed));
        assert_eq!(exchange.reuse(), Reuse::KeepAlive, "{body:?}");
    }
}

#[test]
fn responses_begun_without_a_body_allow_no_data_and_are_done() {
    for (status, body) in [
        (200, BodyLength::None),
        (200, BodyLength::Exact(0)),
        (205, BodyLength::None),
        (205, BodyLength::Exact(0)),
    ] {
        let (head, mut exchange) = answer(GET, status, body);
        assert!(head.contains("\r\nContent-Length: 0\r\n"), "{head}");
        assert!(!exchange.body_allowed() && exchange.response_done());
        assert_eq!(exchange.frame_data(1), Err(EncodeError::BodyNotAllowed));
        assert_eq!(exchange.frame_end(None, &mut BytesMut::new()), Ok(()));
        assert_eq!(exchange.reuse(), Reuse::KeepAlive, "{status} {body:?}");
    }
    let (_, exchange) = answer(GET, 200, BodyLength::Exact(1));
    assert!(exchange.body_allowed() && !exchange.response_done());
}

#[test]
fn bodies_where_none_may_be_are_refused_and_leave_no_trace() {
    for status in [204, 205] {
        let mut exchange = accepted(GET);
        let mut dst = BytesMut::new();
        let mut writer = exchange.respond(&mut dst, status).expect("a response");
        writer.field("X", "y").expect("a field");
        assert_eq!(
            writer.finish(BodyLength::Exact(1)),
            Err(EncodeError::BodyNotAllowed)
        );
        assert!(dst.is_empty() && !exchange.response_started());
    }
}

#[test]
fn what_the_codec_writes_itself_is_refused_as_a_field() {
    let mut exchange = accepted(GET);
    let mut dst = BytesMut::new();
    let mut writer = exchange.respond(&mut dst, 200).expect("a response");
    writer.reason(b"Fine").expect("a reason");
    assert_eq!(writer.reason(b"a\r\nX: y"), Err(EncodeError::BadReason));
    assert_eq!(
        writer.field("Content-Length", "1"),
        Err(EncodeError::FramingField)
    );
    assert_eq!(
        writer.field("transfer-encoding", "chunked"),
        Err(EncodeError::FramingField)
    );
    assert_eq!(
        writer.field("connection", "close"),
        Err(EncodeError::ConnectionField)
    );
    assert_eq!(writer.field("X", "a\r\nb"), Err(EncodeError::BadFieldValue));
    writer.field("X", "y").expect("a field");
    assert_eq!(writer.reason(b"Late"), Err(EncodeError::ReasonAfterFields));
    writer.close();
    writer.finish(BodyLength::None).expect("a whole head");
    let expected = "HTTP/1.1 200 Fine\r\nX: y\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    assert_eq!(dst, expected);
    assert_eq!(exchange.reuse(), Reuse::MustClose(MustClose::CloseSent));
    assert!(matches!(
        exchange.respond(&mut dst, 200),
        Err(EncodeError::ResponseStarted)
    ));
}

#[test]
fn pipelined_requests_are_served_in_turn() {
    let mut exchange = ServerExchange::new(&Limits::default());
    let mut src = BytesMut::from(
        "POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc\
         GET /2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    );
    let (head, body) = accept(&mut exchange, &mut src)
        .expect("no fault")
        .expect("a request");
    assert_eq!((head.target(), body.as_slice()), ("/1", &b"abc"[..]));
    assert!(
        matches!(exchange.decode(&mut src), Ok(RequestEvent::End(None))),
        "stays in place"
    );
    assert_eq!(
        exchange.start_next(),
        Err(EncodeError::NotReusable(Reuse::NotYet))
    );

    let mut dst = BytesMut::new();
    let writer = exchange.respond(&mut dst, 200).expect("a response");
    writer.finish(BodyLength::Chunked).expect("a whole head");
    assert_eq!(exchange.reuse(), Reuse::NotYet);
    exchange.frame_end(None, &mut dst).expect("an end");
    exchange.start_next().expect("a kept connection");

    let (head, _) = accept(&mut exchange, &mut src)
        .expect("no fault")
        .expect("a request");
    assert_eq!(head.target(), "/2");
    let writer = exchange.respond(&mut dst, 200).expect("a response");
    writer.finish(BodyLength::None).expect("a whole head");
    let closing = Reuse::MustClose(MustClose::CloseReceived);
    assert_eq!(
        exchange.start_next(),
        Err(EncodeError::NotReusable(closing))
    );
}

#[test]
fn a_response_to_a_request_still_arriving_does_not_end_the_connection() {
    let mut exchange = ServerExchange::new(&Limits::default());
    let mut src = BytesMut::from("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n");
    assert!(matches!(
        exchange.decode(&mut src),
        Ok(RequestEvent::Head(_))
    ));
    let mut dst = BytesMut::new();
    let writer = exchange.respond(&mut dst, 200).expect("a response");
    writer.finish(BodyLength::None).expect("a whole head");
    assert_eq!(exchange.reuse(), Reuse::NotYet);
    src.extend_from_slice(b"abc");
    assert!(matches!(
        exchange.decode(&mut src),
        Ok(RequestEvent::Data(_))
    ));
    assert_eq!(exchange.reuse(), Reuse::KeepAlive);
}

#[test]
fn interim_responses_go_to_clients_that_know_them_and_before_the_final_one() {
    let mut exchange = accepted(GET);
    let mut dst = BytesMut::new();
    let mut writer = exchange.interim(&mut dst, 103).expect("an interim head");
    writer.field("Link", "</x>").expect("a field");
    writer.finish();
    assert_eq!(dst, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n");
    assert!(matches!(
        exchange.interim(&mut dst, 101),
        Err(EncodeError::BadStatus(101))
    ));
    assert!(matches!(
        exchange.respond(&mut dst, 100),
        Err(EncodeError::BadStatus(100))
    ));

    let mut exchange = accepted(OLD);
    let mut dst = BytesMut::new();
    let mut writer = exchange.interim(&mut dst, 103).expect("an interim head");
    writer.field("Link", "</x>").expect("a field");
    writer.finish();
    assert!(dst.is_empty(), "HTTP/1.0 knows no interim responses");
    let writer = exchange.respond(&mut dst, 200).expect("a response");
    writer.finish(BodyLength::None).expect("a whole head");
    assert!(matches!(
        exchange.interim(&mut dst, 100),
        Err(EncodeError::ResponseStarted)
    ));
}

#[test]
fn interim_response_may_have_a_reason_of_its_own() {
    for (request, expected) in [
        (GET, "HTTP/1.1 102 Wait\r\nX: y\r\n\r\n"),
        // HTTP/1.0 gets nothing, and the calls come to the same.
        (OLD, ""),
    ] {
        let mut exchange = accepted(request);
        let mut dst = BytesMut::from("before ");
        let mut writer = exchange.interim(&mut dst, 102).expect("an interim head");
        writer.reason(b"A longer one").expect("a reason");
        writer.reason(b"Wait").expect("a reason");
        assert_eq!(writer.reason(b"a\r\nX: y"), Err(EncodeError::BadReason));
        writer.field("X", "y").expect("a field");
        assert_eq!(writer.reason(b"Late"), Err(EncodeError::ReasonAfterFields));
        writer.finish();
        assert_eq!(dst, format!("before {expected}"));
    }
}

#[test]
fn a_request_that_cannot_be_read_gets_its_reply_and_a_close() {
    let mut exchange = ServerExchange::new(&Limits::default());
    let mut src = BytesMut::from("GET / HTTP/2.0\r\nHost: a\r\n\r\n");
    let error = exchange.decode(&mut src).expect_err("a fault");
    let mut dst = BytesMut::new();
    let writer = exchange
        .respond(&mut dst, error.reply_status())
        .expect("a response");
    writer.finish(BodyLength::None).expect("a whole head");
    let expected = "HTTP/1.1 505 HTTP Version Not Supported\r\n\
                    Content-Length: 0\r\nConnection: close\r\n\r\n";
    assert_eq!(dst, expected);
    assert_eq!(exchange.reuse(), Reuse::MustClose(MustClose::DecodeFailed));
}

#[test]
fn an_answer_before_any_request_closes_the_connection() {
    let mut exchange = ServerExchange::new(&Limits::default());
    let mut dst = BytesMut::new();
    let writer = exchange.respond(&mut dst, 408).expect("a response");
    writer.finish(BodyLength::None).expect("a whole head");
    assert!(dst.ends_with(b"Connection: close\r\n\r\n"));
    assert_eq!(exchange.reuse(), Reuse::MustClose(MustClose::NoRequest));
}

#[test]
fn a_switch_of_protocols_is_for_those_who_offered_it() {
    let mut exchange = accepted(GET);
    let mut dst = BytesMut::new();
    assert!(matches!(
        exchange.respond(&mut dst, 101),
        Err(EncodeError::UpgradeNotOffered)
    ));

    let offer = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    let mut exchange = accepted(offer);
    let mut writer = exchange.respond(&mut dst, 101).expect("a response");
    writer.field("Upgrade", "x").expect("a field");
    writer.finish(BodyLength::None).expect("a whole head");
    let expected = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n";
    assert_eq!(dst, expected);
    assert_eq!(exchange.reuse(), Reuse::MustClose(MustClose::Upgraded));

    let connect = "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n";
    let (head, exchange) = answer(connect, 200, BodyLength::None);
    assert_eq!(head, "HTTP/1.1 200 OK\r\n\r\n");
    assert_eq!(exchange.reuse(), Reuse::MustClose(MustClose::Upgraded));
    assert_eq!(
        answer(connect, 403, BodyLength::None).1.reuse(),
        Reuse::KeepAlive
    );
}

#[test]
fn the_end_of_file_between_requests_is_clean() {
    let mut exchange = ServerExchange::new(&Limits::default());
    let mut src = BytesMut::from(GET);
    assert!(matches!(
        exchange.decode_eof(&mut src),
        Ok(RequestEvent::Head(_))
    ));
    assert!(matches!(
        exchange.decode_eof(&mut src),
        Ok(RequestEvent::End(None))
    ));
    let mut dst = BytesMut::new();
    let writer = exchange.respond(&mut dst, 200).expect("a response");
    writer.finish(BodyLength::None).expect("a whole head");
    exchange.start_next().expect("a kept connection");
    assert!(matches!(
        exchange.decode_eof(&mut src),
        Ok(RequestEvent::Closed)
    ));
    assert_eq!(exchange.reuse(), Reuse::MustClose(MustClose::PeerClosed));
}

/// Feeds `stream` in pieces of `step` bytes; the kind of the fault and where it stands.
fn fault(stream: &str, step: usize, limits: &Limits) -> Option<(DecodeErrorKind, Option<u64>)> {
    let mut exchange = ServerExchange::new(limits);
    let mut src = BytesMut::new();
    for piece in stream.as_bytes().chunks(step) {
        src.extend_from_slice(piece);
        loop {
            match exchange.decode(&mut src) {
                Ok(RequestEvent::NeedData) => break,
                Ok(RequestEvent::Head(_) | RequestEvent::Data(_)) => {}
                Ok(_) => return None,
                Err(error) => return Some((error.category(), error.offset())),
            }
        }
    }
    None
}

#[test]
fn a_fault_stands_at_the_same_byte_however_the_request_is_split() {
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
    for (head, faulty) in [
        ("", "GET / HTTP/1.1|\nHost: a\r\n\r\n"),
        ("", "\r\nGET / HTTP/1.1\r\nHost: a|\nX: y\r\n\r\n"),
        // Other faults come behind the one that counts.
        ("", "GET / HTTP/1.1\r\nHost: a|\nno field\r\n\r\n"),
        ("", "GET / HTTP/1.1|\nX: 1\r\nX: 2\r\nX: 3\r\nX: 4\r\n\r\n"),
        ("", "GET / HTTP/1.1|\nHost: a\r\n\n"),
        (chunked, "X: 1|\nno field\r\n\r\n"),
        (chunked, "X: 1|\nX: 2\r\nX: 3\r\nX: 4\r\nX: 5\r\n\r\n"),
        (chunked, "X: 1|\nY: 2\r\n\r\n"),
    ] {
        let kind = match head {
            "" => DecodeErrorKind::BadHead,
            _ => DecodeErrorKind::BadChunk,
        };
        let stream = [head, &faulty.replace('|', "")].concat();
        let at = head.len() + faulty.find('|').expect("a mark");
        for step in [1, 2, 7, stream.len()] {
            let limits = Limits::default().with_max_fields(3);
            let expected = Some((kind, Some(at as u64)));
            assert_eq!(
                fault(&stream, step, &limits),
                expected,
                "{stream:?} by {step}"
            );
        }
    }
}

#[test]
fn half_an_empty_line_counts_against_the_limit_of_a_head() {
    let limits = Limits::default().with_max_head_bytes(3);
    let too_large = DecodeErrorKind::TooLarge(Limit::HeadBytes);
    for stream in ["\r\n\r", "\r\n\rX", "\r\n\r\n", "\r\nG"] {
        for step in [1, 2, stream.len()] {
            assert_eq!(
                fault(stream, step, &limits),
                Some((too_large, None)),
                "{stream:?}"
            );
        }
        let mut slots = FieldSlots::new();
        let viewed = RequestView::parse(stream.as_bytes(), &limits, &mut slots);
        assert_eq!(
            viewed.map_err(|error| error.category()).err(),
            Some(too_large)
        );
    }
}
