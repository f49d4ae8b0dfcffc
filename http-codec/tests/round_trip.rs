//! What one role writes the other reads back unchanged.

mod support;

use bytes::{BufMut, BytesMut};
use http_codec::{
    BodyLength, ClientExchange, Limits, RequestWriter, Reuse, ServerExchange, Version,
};
use support::{accept, receive};

const FIELDS: [(&str, &[u8]); 4] = [
    ("Host", b"a.example"),
    ("X-A", b"1, 2"),
    ("X-a", b""),
    ("X-Obs", b"caf\xe9"),
];

fn lengths() -> [BodyLength; 4] {
    [
        BodyLength::None,
        BodyLength::Exact(0),
        BodyLength::Exact(9),
        BodyLength::Chunked,
    ]
}

/// The runs of data a body of this length is sent in.
fn runs(length: BodyLength) -> &'static [&'static [u8]] {
    match length {
        BodyLength::None | BodyLength::Exact(0) => &[],
        _ => &[b"wiki", b"", b"pedia"],
    }
}

#[test]
fn requests_come_out_as_they_went_in() {
    for method in ["GET", "POST", "DELETE"] {
        for length in lengths() {
            let mut wire = BytesMut::new();
            let mut writer = RequestWriter::new(&mut wire, method, "/a?b=c").expect("a line");
            for (name, value) in FIELDS {
                writer.field(name, value).expect("a field");
            }
            let sent = writer.finish(length).expect("a whole head");
            let mut sender = ClientExchange::new(sent, &Limits::default());
            for run in runs(length) {
                let frame = sender.frame_data(run.len()).expect("a frame");
                wire.put_slice(frame.prefix.as_ref());
                wire.put_slice(run);
                wire.put_slice(frame.suffix);
            }
            sender.frame_end(None, &mut wire).expect("an end");
            assert!(sender.request_done());

            let mut receiver = ServerExchange::new(&Limits::default());
            let (head, body) = accept(&mut receiver, &mut wire)
                .expect("no fault")
                .expect("a request");
            assert!(wire.is_empty());
            assert_eq!((head.method(), head.target()), (method, "/a?b=c"));
            assert_eq!(head.version(), Version::Http11);
            assert_eq!(body, runs(length).concat());
            let fields: Vec<_> = head.fields().iter().map(|f| (f.name, f.value)).collect();
            assert_eq!(fields[..FIELDS.len()], FIELDS);
        }
    }
}

#[test]
fn responses_come_out_as_they_went_in() {
    for length in lengths() {
        let mut request = BytesMut::from("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut sender = ServerExchange::new(&Limits::default());
        assert!(
            accept(&mut sender, &mut request)
                .expect("no fault")
                .is_some()
        );
        let mut wire = BytesMut::new();
        sender
            .interim(&mut wire, 103)
            .expect("an interim head")
            .finish();
        let mut writer = sender.respond(&mut wire, 200).expect("a response");
        writer.reason(b"Tr\xe8s bien").expect("a reason");
        for (name, value) in FIELDS {
            writer.field(name, value).expect("a field");
        }
        writer.finish(length).expect("a whole head");
        for run in runs(length) {
            let frame = sender.frame_data(run.len()).expect("a frame");
            wire.put_slice(frame.prefix.as_ref());
            wire.put_slice(run);
            wire.put_slice(frame.suffix);
        }
        let trailers: [(&str, &[u8]); 1] = [("X-Sum", b"7")];
        sender
            .frame_end(Some(&trailers), &mut wire)
            .expect("an end");
        assert_eq!(sender.reuse(), Reuse::KeepAlive);

        let mut receiver = support::client("GET", &Limits::default());
        let received = receive(&mut receiver, &mut wire)
            .expect("no fault")
            .expect("a response");
        assert_eq!(received.interim, [103]);
        assert_eq!(received.body, runs(length).concat());
        let head = received.head.expect("a head");
        assert_eq!(head.reason(), b"Tr\xe8s bien");
        let fields: Vec<_> = head.fields().iter().map(|f| (f.name, f.value)).collect();
        assert_eq!(fields[..FIELDS.len()], FIELDS);
        let sum = received
            .trailers
            .as_ref()
            .and_then(|trailers| trailers.get("x-sum"));
        assert_eq!(sum, (length == BodyLength::Chunked).then_some(&b"7"[..]));
        assert_eq!(receiver.reuse(wire.len()), Reuse::KeepAlive);
    }
}

#[test]
fn a_kept_head_can_be_sent_in_another_exchange() {
    let mut wire = BytesMut::new();
    let mut writer = RequestWriter::new(&mut wire, "HEAD", "/").expect("a line");
    writer.field("Host", "a").expect("a field");
    let sent = writer.finish(BodyLength::None).expect("a whole head");
    let kept = wire.freeze();
    for _ in 0..2 {
        let mut receiver = ServerExchange::new(&Limits::default());
        let mut src = BytesMut::from(&kept[..]);
        assert!(accept(&mut receiver, &mut src).expect("no fault").is_some());
        let mut exchange = ClientExchange::new(sent, &Limits::default());
        let mut answer = BytesMut::from("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
        assert!(
            receive(&mut exchange, &mut answer)
                .expect("no fault")
                .is_some()
        );
        assert_eq!(exchange.reuse(0), Reuse::KeepAlive);
    }
}

#[test]
fn head_and_body_are_slices_of_the_input() {
    let mut receiver = support::client("GET", &Limits::default());
    let mut src = BytesMut::from("HTTP/1.1 200 OK\r\nX: abc\r\nContent-Length: 3\r\n\r\nxyz");
    let input = src.as_ptr_range();
    let received = match receiver.decode(&mut src) {
        Ok(http_codec::ResponseEvent::Head(head)) => head,
        other => panic!("no head: {other:?}"),
    };
    let value = received.fields().value_bytes(0).expect("a field");
    assert!(input.contains(&value.as_ptr()));
    let Ok(http_codec::ResponseEvent::Data(data)) = receiver.decode(&mut src) else {
        panic!("no data")
    };
    assert!(input.contains(&data.as_ptr()));
}
