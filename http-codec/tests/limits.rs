//! Limits bite before the end of what exceeds them has come, and memory stays flat.

mod support;

use bytes::BytesMut;
use http_codec::{
    ClientExchange, DecodeErrorKind, Limit, Limits, RequestEvent, ResponseEvent, ServerExchange,
};
use support::client;

/// More than any limit here lets through: what takes so much takes everything.
const ENDLESS: usize = 2 << 20;

/// Feeds `stream` in reads of 1 KiB until it ends, the codec has had enough, or it has taken
/// [`ENDLESS`]; with the bytes fed and the most that lay unread at once.
fn flood(
    exchange: &mut ClientExchange,
    stream: impl Iterator<Item = u8>,
) -> (Option<DecodeErrorKind>, usize, usize) {
    let mut src = BytesMut::new();
    let (mut fed, mut most) = (0, 0);
    let mut stream = stream.peekable();
    while fed < ENDLESS && stream.peek().is_some() {
        let before = src.len();
        src.extend(stream.by_ref().take(1024));
        fed += src.len() - before;
        loop {
            match exchange.decode(&mut src) {
                Ok(ResponseEvent::NeedData) => break,
                Ok(ResponseEvent::End(_)) => return (None, fed, most),
                Ok(_) => {}
                Err(error) => return (Some(error.category()), fed, most),
            }
        }
        most = most.max(src.len());
    }
    (None, fed, most)
}

fn endless(prefix: &'static str, filler: &'static str) -> impl Iterator<Item = u8> {
    prefix
        .bytes()
        .chain(filler.bytes().cycle())
        .take(100_000_000)
}

/// Fault row F4: interim responses without end eat memory and time.
#[test]
fn interim_responses_are_counted() {
    let mut exchange = client("GET", &Limits::default());
    let interim = "HTTP/1.1 100 Continue\r\n\r\n";
    let (error, fed, most) = flood(&mut exchange, endless("", interim));
    assert_eq!(error, Some(DecodeErrorKind::TooLarge(Limit::Interim)));
    assert!(fed <= 1024 && most <= interim.len());
}

/// Fault row F4: a head without end, as from a CONNECT proxy.
#[test]
fn a_head_without_end_is_given_up_at_its_limit() {
    for (prefix, filler, limit) in [
        ("HTTP/1.1 200 OK\r\nX: ", "v", Limit::HeadBytes),
        ("HTTP/1.1 200 ", "reason", Limit::HeadBytes),
        ("", "\r\n", Limit::HeadBytes),
        ("HTTP/1.1 200 OK\r\n", "X: y\r\n", Limit::Fields),
    ] {
        let mut exchange = client("CONNECT", &Limits::default());
        let (error, fed, most) = flood(&mut exchange, endless(prefix, filler));
        assert_eq!(
            error,
            Some(DecodeErrorKind::TooLarge(limit)),
            "{prefix}{filler}"
        );
        assert!(
            fed <= 65 * 1024 && most <= 65 * 1024,
            "{prefix}{filler}: {fed}, {most}"
        );
    }
}

/// Fault row F8: trailers without end.
#[test]
fn trailers_are_bounded() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ";
    let mut exchange = client("GET", &Limits::default());
    let (error, fed, most) = flood(&mut exchange, endless(head, "v"));
    assert_eq!(error, Some(DecodeErrorKind::TooLarge(Limit::TrailerBytes)));
    assert!(fed <= 17 * 1024 && most <= 17 * 1024);
}

#[test]
fn chunk_lines_are_bounded() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=";
    let mut exchange = client("GET", &Limits::default());
    let (error, fed, most) = flood(&mut exchange, endless(head, "v"));
    assert_eq!(
        error,
        Some(DecodeErrorKind::TooLarge(Limit::ChunkLineBytes))
    );
    assert!(fed <= 9 * 1024 && most == 0);
}

/// As CVE-2023-39326 in Go: much framing around little body.
#[test]
fn what_pads_chunk_lines_is_bounded_over_a_whole_message() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (padding, zeros, rest) in [
        (7901, "", format!(";{}", "e".repeat(7900))),
        (1, "", ";".to_owned()),
        (6000, "", " \t".repeat(3000)),
        (7985, "0".repeat(8000).as_str(), String::new()),
    ] {
        let chunk = format!("{zeros}1{rest}\r\nx\r\n");
        let mut exchange = client("GET", &Limits::default());
        let stream = head.bytes().chain(chunk.bytes().cycle()).take(10_000_000);
        let (error, fed, _) = flood(&mut exchange, stream);
        let too_large = DecodeErrorKind::TooLarge(Limit::ChunkExtensionBytes);
        assert_eq!(error, Some(too_large), "{chunk:.9}");
        let allowed = head.len() + (64 * 1024 / padding + 1) * chunk.len();
        assert!(fed <= allowed + 1024, "{chunk:.9}: {fed}");
    }
    let named = DecodeErrorKind::TooLarge(Limit::ChunkExtensionBytes).to_string();
    assert_eq!(named, "limit max_chunk_extension_bytes exceeded");
}

#[test]
fn chunk_extensions_meet_their_limit_at_the_byte_in_both_roles() {
    let limits = Limits::default().with_max_chunk_extension_bytes(10);
    let refused = DecodeErrorKind::TooLarge(Limit::ChunkExtensionBytes);
    for (chunks, fine) in [
        ("1;2345\r\nx\r\n1;2345\r\nx\r\n0\r\n\r\n", true),
        ("1;2345\r\nx\r\n1;23456\r\nx\r\n0\r\n\r\n", false),
        ("1;2345\r\nx\r\n1\r\nx\r\n0;2345\r\n\r\n", true),
        ("1;2345\r\nx\r\n1\r\nx\r\n0;23456\r\n\r\n", false),
        (
            "000000000000000000000000a\r\n0123456789\r\n0 \r\n\r\n",
            true,
        ),
        (
            "000000000000000000000000a\r\n0123456789\r\n0  \r\n\r\n",
            false,
        ),
    ] {
        let expected = if fine { Ok(()) } else { Err(refused) };
        for step in [1, chunks.len()] {
            let mut response = client("GET", &limits);
            let mut request = ServerExchange::new(&limits);
            let mut src = BytesMut::from("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            let read = chunks.as_bytes().chunks(step).try_for_each(|piece| {
                src.extend_from_slice(piece);
                while !matches!(
                    response.decode(&mut src)?,
                    ResponseEvent::NeedData | ResponseEvent::End(_)
                ) {}
                Ok(())
            });
            let read = read.map_err(|error: http_codec::DecodeError| error.category());
            assert_eq!(read, expected, "response {chunks:?} by {step}");

            let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
            let mut src = BytesMut::from(head);
            let read = chunks.as_bytes().chunks(step).try_for_each(|piece| {
                src.extend_from_slice(piece);
                while !matches!(
                    request.decode(&mut src)?,
                    RequestEvent::NeedData | RequestEvent::End(_)
                ) {}
                Ok(())
            });
            let read = read.map_err(|error: http_codec::DecodeError| error.category());
            assert_eq!(read, expected, "request {chunks:?} by {step}");
        }
    }
}

#[test]
fn chunk_extensions_are_counted_for_each_message_anew() {
    let limits = Limits::default().with_max_chunk_extension_bytes(10);
    let mut exchange = ServerExchange::new(&limits);
    let mut answer = BytesMut::new();
    for _ in 0..5 {
        let mut src = BytesMut::from(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
             0;345678901\r\n\r\n",
        );
        while !matches!(
            exchange.decode(&mut src).expect("within the limit"),
            RequestEvent::End(_)
        ) {}
        let writer = exchange.respond(&mut answer, 204).expect("a good status");
        writer
            .finish(http_codec::BodyLength::None)
            .expect("a good head");
        exchange.start_next().expect("both halves are done");
    }
}

/// Fault row F7: sizes at the limit, one less and one more, and where a sum would wrap.
#[test]
fn the_body_limit_holds_to_the_byte_in_every_framing() {
    let limits = Limits::default().with_max_body_bytes(Some(8));
    let run = |stream: &str| {
        let mut exchange = client("GET", &limits);
        let mut src = BytesMut::from(stream);
        loop {
            match exchange.decode(&mut src) {
                Ok(ResponseEvent::NeedData) => {
                    break match exchange.decode_eof(&mut src) {
                        Ok(_) => Ok(()),
                        Err(error) => Err(error.category()),
                    };
                }
                Ok(ResponseEvent::End(_)) => break Ok(()),
                Ok(_) => {}
                Err(error) => break Err(error.category()),
            }
        }
    };
    for size in [7, 8, 9] {
        let data = "x".repeat(size);
        let expected = if size > 8 {
            Err(DecodeErrorKind::TooLarge(Limit::BodyBytes))
        } else {
            Ok(())
        };
        let length = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n{data}");
        assert_eq!(run(&length), expected);
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(
            run(&format!("{head}{size:x}\r\n{data}\r\n0\r\n\r\n")),
            expected
        );
        let split = format!(
            "{head}1\r\nx\r\n{:x}\r\n{}\r\n0\r\n\r\n",
            size - 1,
            &data[1..]
        );
        assert_eq!(run(&split), expected);
        assert_eq!(run(&format!("HTTP/1.1 200 OK\r\n\r\n{data}")), expected);
    }
    let wrapping = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                    2\r\nab\r\nffffffffffffffff\r\n";
    assert_eq!(
        run(wrapping),
        Err(DecodeErrorKind::TooLarge(Limit::BodyBytes))
    );
}

/// Feeds a request byte by byte; how many bytes it took to be refused, and why.
fn drip(limits: &Limits, stream: &str) -> Option<(usize, DecodeErrorKind, u16)> {
    let mut exchange = ServerExchange::new(limits);
    let mut src = BytesMut::new();
    for (at, b) in stream.bytes().enumerate() {
        src.extend_from_slice(&[b]);
        match exchange.decode(&mut src) {
            Ok(RequestEvent::NeedData) => {}
            Ok(_) => return None,
            Err(error) => return Some((at + 1, error.category(), error.reply_status())),
        }
    }
    None
}

#[test]
fn a_dripping_request_meets_its_limits_at_the_byte() {
    let limits = Limits::default()
        .with_max_target_bytes(1000)
        .with_max_head_bytes(3000);
    let target = format!("GET /{}", "a".repeat(5000));
    let refused = drip(&limits, &target);
    let too_long = DecodeErrorKind::TooLarge(Limit::TargetBytes);
    assert_eq!(refused, Some(("GET ".len() + 1001, too_long, 414)));

    let value = format!("GET / HTTP/1.1\r\nX: {}", "v".repeat(5000));
    let too_large = DecodeErrorKind::TooLarge(Limit::HeadBytes);
    assert_eq!(drip(&limits, &value), Some((3000, too_large, 431)));
}

#[test]
fn the_defaults_take_what_honest_peers_send() {
    let mut head = format!("GET /{} HTTP/1.1\r\nHost: a\r\n", "t".repeat(7999));
    for n in 0..95 {
        head.push_str(&format!("X-{n}: {}\r\n", "v".repeat(90)));
    }
    head.push_str("\r\n");
    assert!(head.len() > 16 * 1024);
    let mut exchange = ServerExchange::new(&Limits::default());
    let mut src = BytesMut::from(head.as_str());
    let Ok(RequestEvent::Head(head)) = exchange.decode(&mut src) else {
        panic!("refused")
    };
    assert_eq!(head.fields().len(), 96);

    let mut exchange = client("GET", &Limits::default());
    let line = format!("5;x={}\r\nhello\r\n0\r\n\r\n", "e".repeat(4000));
    let stream = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{line}");
    let mut src = BytesMut::from(stream.as_str());
    assert!(
        support::receive(&mut exchange, &mut src)
            .expect("no fault")
            .is_some()
    );
}

#[test]
fn field_limits_beyond_the_usual_are_honoured() {
    let limits = Limits::default().with_max_fields(300);
    let head = format!(
        "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
        "X: y\r\n".repeat(299)
    );
    let mut exchange = ServerExchange::new(&limits);
    let event = exchange.decode(&mut BytesMut::from(head.as_str()));
    assert!(matches!(event, Ok(RequestEvent::Head(head)) if head.fields().len() == 300));
}

#[test]
fn a_field_limit_is_no_promise_of_memory() {
    let limits = Limits::default().with_max_fields(usize::MAX);
    let mut src = BytesMut::from(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: 1\r\nY: 2\r\n\r\n",
    );
    let mut server = ServerExchange::new(&limits);
    let head = server.decode(&mut src);
    assert!(matches!(head, Ok(RequestEvent::Head(head)) if head.fields().len() == 2));
    let end = server.decode(&mut src);
    assert!(matches!(end, Ok(RequestEvent::End(Some(trailers))) if trailers.len() == 2));

    // The shortest lines, as they take the most room for their length.
    let lines = "a:\r\n".repeat(1000);
    for stream in [
        format!("HTTP/1.1 204 No Content\r\n{lines}\r\n"),
        format!("HTTP/1.1 204 No Content\r\n{}\r\n", "a:\n".repeat(1000)),
    ] {
        let mut client = client("GET", &limits);
        let head = client.decode(&mut BytesMut::from(stream.as_str()));
        assert!(matches!(head, Ok(ResponseEvent::Head(head)) if head.fields().len() == 1000));
    }
    let trailers = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n{lines}\r\n");
    let mut src = BytesMut::from(trailers.as_str());
    let received = support::receive(&mut client("GET", &limits), &mut src);
    let trailers = received.expect("no fault").expect("a response").trailers;
    assert_eq!(trailers.map(|trailers| trailers.len()), Some(1000));
}
