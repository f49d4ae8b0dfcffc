use std::ops::Range;

use bytes::BytesMut;
use http_codec::{BodyLength, DecodeError, DecodeErrorKind, Limit, Reuse};

use crate::case::Case;
use crate::chunked;
use crate::head::{FieldList, Head};
use crate::reader::Event;

/// Reads requests off the stream, one after another: no panic, nothing beyond the limits.
pub fn decode_request(bytes: &[u8]) {
    let case = Case {
        is_response: false,
        ..Case::of(bytes)
    };
    read(&case, &case.cuts);
}

/// Reads the response to one of a few requests: no panic, nothing beyond the limits.
pub fn decode_response(bytes: &[u8]) {
    let case = Case {
        is_response: true,
        ..Case::of(bytes)
    };
    read(&case, &case.cuts);
}

/// All that a stream was read as.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Trace {
    pub(crate) messages: Vec<Message>,
    pub(crate) error: Option<DecodeError>,
    pub(crate) reuse: Option<Reuse>,
    /// Bytes of the messages that were read.
    pub(crate) taken: usize,
}

/// One request, or one response with those before it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) interim: Vec<Head>,
    pub(crate) head: Option<Head>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<FieldList>,
    /// After the head, and after the end.
    pub(crate) reuse: Vec<Reuse>,
}

impl Message {
    fn is_chunked(&self) -> bool {
        let body = self.head.as_ref().map(|head| head.body);
        body == Some(BodyLength::Chunked)
    }
}

/// Feeds the stream in pieces that end at `cuts`, then the end of file.
pub(crate) fn read(case: &Case<'_>, cuts: &[usize]) -> Trace {
    let mut reader = case.reader();
    let mut trace = Trace::default();
    let mut message = Message::default();
    let mut src = BytesMut::new();
    let mut cuts = cuts.iter().copied();
    let (mut fed, mut eof, mut body_at) = (0, false, 0);
    loop {
        match reader.next(&mut src, eof) {
            Ok(Event::NeedData) if fed < case.stream.len() => {
                let end = cuts.next().unwrap_or(case.stream.len());
                src.extend_from_slice(&case.stream[fed..end]);
                fed = end;
            }
            Ok(Event::NeedData) => {
                assert!(!eof, "waits after the end of file");
                eof = true;
            }
            Ok(Event::Interim(head)) => message.interim.push(head),
            Ok(Event::Head(head)) => {
                body_at = fed - src.len();
                message.head = Some(head);
                message.reuse.push(reader.reuse(0));
            }
            Ok(Event::Data(data)) => message.body.extend_from_slice(&data),
            Ok(Event::End(trailers)) => {
                trace.taken = fed - src.len();
                check_body(&message, case.stream, body_at..trace.taken);
                message.trailers = trailers;
                message
                    .reuse
                    .push(reader.reuse(case.stream.len() - trace.taken));
                trace.messages.push(std::mem::take(&mut message));
                if !reader.turn() {
                    break;
                }
            }
            Ok(Event::Closed) => break,
            Err(error) => {
                let again = reader.next(&mut src, eof);
                assert_eq!(again.err(), Some(error), "another error the second time");
                trace.error = Some(error);
                if message.is_chunked() {
                    chunked::check_fault(case.stream, body_at, error);
                }
                break;
            }
        }
    }
    if let Some(error) = trace.error {
        // How much of a body without a length came out before one byte was too many depends on the
        // pieces; in all other framings the limit bites at the head or at the size of a chunk.
        if error.category() == DecodeErrorKind::TooLarge(Limit::BodyBytes) {
            message.body.clear();
        }
        trace.messages.push(message);
    }
    trace.reuse = Some(reader.reuse(case.stream.len() - trace.taken));
    trace
}

/// Panics unless the body has the length that the head gives it, and is what stands at `place`.
fn check_body(message: &Message, stream: &[u8], place: Range<usize>) {
    let head = message.head.as_ref().expect("an end without a head");
    match head.body {
        BodyLength::None => assert!(message.body.is_empty() && place.is_empty()),
        BodyLength::Exact(length) => {
            assert_eq!(message.body.len() as u64, length);
            assert_eq!(message.body, stream[place]);
        }
        BodyLength::Chunked => {
            chunked::check_whole(stream, place.start, place.end, &message.body);
        }
        BodyLength::UntilClose => assert_eq!(message.body, stream[place]),
    }
}
