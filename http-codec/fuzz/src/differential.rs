use bytes::BytesMut;
use http_codec::{Limits, Version};
use httparse::{EMPTY_HEADER, Header, Request, Response, Status};

use crate::case::Case;
use crate::head::{FieldList, Head, StartLine};
use crate::reader::Event;

const FIELDS: usize = 128;

/// The codec reads in the first head of the stream what `httparse` alone reads in it, or refuses
/// it.
pub fn differential(bytes: &[u8]) {
    let limits = Limits::default()
        .with_max_head_bytes(usize::MAX)
        .with_max_fields(FIELDS)
        .with_max_target_bytes(usize::MAX);
    let case = Case {
        limits,
        ..Case::of(bytes)
    };
    let reference = if case.is_response {
        response_head(case.stream)
    } else {
        request_head(case.stream)
    };
    let mut reader = case.reader();
    let mut src = BytesMut::from(case.stream);
    let mut read = reader.next(&mut src, false);
    let waits = matches!(read, Ok(Event::NeedData));
    if waits {
        read = reader.next(&mut src, true);
    }
    let taken = case.stream.len() - src.len();
    match (read, reference) {
        (Ok(Event::Head(head) | Event::Interim(head)), Ok(Status::Complete(reference))) => {
            assert!(!waits, "waits for more than a whole head");
            assert_eq!(taken, reference.len);
            reference.compare(&head);
        }
        // Nothing but empty lines.
        (Ok(Event::Closed), Ok(Status::Partial)) => {}
        (Err(_), _) => {}
        (read, reference) => panic!("the codec says {read:?}, httparse {reference:?}"),
    }
}

/// What `httparse` makes of a head.
#[derive(Debug)]
struct Reference {
    len: usize,
    minor: Option<u8>,
    /// Method and target, or status and reason.
    start: (Option<String>, Option<String>, Option<u16>),
    fields: FieldList,
}

impl Reference {
    fn compare(&self, head: &Head) {
        let minor = match head.version {
            Version::Http10 => 0,
            Version::Http11 => 1,
        };
        assert_eq!(Some(minor), self.minor);
        assert_eq!(head.fields, self.fields);
        match (&head.start, &self.start) {
            (StartLine::Request { method, target, .. }, (expected, path, _)) => {
                assert_eq!(
                    (Some(method), Some(target)),
                    (expected.as_ref(), path.as_ref())
                );
            }
            (StartLine::Response { status, reason, .. }, (_, expected, code)) => {
                assert_eq!(Some(*status), *code);
                // It gives none where there are bytes above 0x7F.
                if let Some(expected) = expected.as_deref().filter(|reason| !reason.is_empty()) {
                    let expected = expected.trim_matches([' ', '\t']);
                    assert_eq!(reason, expected.as_bytes());
                }
            }
        }
    }
}

fn request_head(bytes: &[u8]) -> httparse::Result<Reference> {
    let mut headers = [EMPTY_HEADER; FIELDS];
    let mut request = Request::new(&mut headers);
    let parsed = request.parse(bytes)?;
    let text = |part: Option<&str>| part.map(str::to_owned);
    Ok(match parsed {
        Status::Partial => Status::Partial,
        Status::Complete(len) => Status::Complete(Reference {
            len,
            minor: request.version,
            start: (text(request.method), text(request.path), None),
            fields: list(request.headers),
        }),
    })
}

fn response_head(bytes: &[u8]) -> httparse::Result<Reference> {
    let mut headers = [EMPTY_HEADER; FIELDS];
    let mut response = Response::new(&mut headers);
    let parsed = response.parse(bytes)?;
    Ok(match parsed {
        Status::Partial => Status::Partial,
        Status::Complete(len) => Status::Complete(Reference {
            len,
            minor: response.version,
            start: (None, response.reason.map(str::to_owned), response.code),
            fields: list(response.headers),
        }),
    })
}

fn list(headers: &[Header<'_>]) -> FieldList {
    let lines = headers.iter();
    lines
        .map(|header| (header.name.to_owned(), header.value.to_vec()))
        .collect()
}
