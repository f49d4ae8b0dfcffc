use bytes::BytesMut;
use http_codec::{DecodeError, DecodeErrorKind, FieldSlots, Limit, RequestView, ResponseView};

use crate::case::Case;
use crate::decode::{Trace, read};
use crate::head::Head;
use crate::reader::Event;

/// Byte by byte takes quadratic time to check, so only this far.
const MAX_DRIP: usize = 2048;

/// The same messages, error and verdicts come out of the stream whole, cut anywhere, and byte by
/// byte; and a view of its first head agrees with the exchange.
pub fn split(bytes: &[u8]) {
    let case = Case::of(bytes);
    let whole = read(&case, &[]);
    assert_same(&whole, &read(&case, &case.cuts));
    let every: Vec<usize> = (1..=case.stream.len().min(MAX_DRIP)).collect();
    assert_same(&whole, &read(&case, &every));
    check_view(&case);
}

fn assert_same(whole: &Trace, cut: &Trace) {
    assert_eq!(whole.messages, cut.messages);
    assert_eq!(whole.error.map(fault), cut.error.map(fault));
    assert_eq!((whole.reuse, whole.taken), (cut.reuse, cut.taken));
}

/// What of an error is promised not to depend on the pieces.
fn fault(error: DecodeError) -> (DecodeErrorKind, Option<u64>, u16) {
    (error.category(), error.offset(), error.reply_status())
}

/// What a view makes of the stream must be what the exchange makes of it before the end of file.
fn check_view(case: &Case<'_>) {
    // A view has no more room than this.
    let fields = case.limits.max_fields().min(FieldSlots::CAPACITY);
    let case = Case {
        limits: case.limits.with_max_fields(fields),
        ..*case
    };
    let mut src = BytesMut::from(case.stream);
    let read = case.reader().next(&mut src, false);
    let taken = case.stream.len() - src.len();
    let viewed = view(&case);
    match (&viewed, read) {
        (Ok(None), Ok(Event::NeedData)) => {}
        (Ok(Some((viewed, len))), Ok(Event::Head(head) | Event::Interim(head))) => {
            assert_eq!((viewed, *len), (&head, taken));
        }
        // What follows the head, and what came before, is the exchange's alone to judge.
        (Ok(Some(_)), Err(error)) => assert!(matches!(
            error.category(),
            DecodeErrorKind::TooLarge(Limit::BodyBytes | Limit::Interim)
        )),
        (Err(viewed), Err(error)) => assert_eq!(fault(*viewed), fault(error)),
        (viewed, read) => panic!("the view says {viewed:?}, the exchange {read:?}"),
    }
}

fn view(case: &Case<'_>) -> Result<Option<(Head, usize)>, DecodeError> {
    let mut slots = FieldSlots::new();
    if case.is_response {
        let parsed = ResponseView::parse(case.stream, case.sent, &case.limits, &mut slots)?;
        Ok(parsed.map(|(view, len)| (Head::from(&view), len)))
    } else {
        let parsed = RequestView::parse(case.stream, &case.limits, &mut slots)?;
        Ok(parsed.map(|(view, len)| (Head::from(&view), len)))
    }
}
