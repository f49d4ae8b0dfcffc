use http_codec::{DecodeError, DecodeErrorKind};

/// A chunked body read in the plainest way (RFC 9112 §7.1), whole and without limits, for the
/// codec's reading to be held to. Of the trailer section only the end is looked for.
#[derive(Debug)]
pub(crate) struct Chunked {
    body: Vec<u8>,
    trailers_at: usize,
    end: usize,
}

impl Chunked {
    /// None if no whole body stands at the front of `bytes`.
    fn of(bytes: &[u8]) -> Option<Self> {
        let mut body = Vec::new();
        let mut rest = bytes;
        loop {
            let line = take_line(&mut rest)?;
            let size = usize::try_from(size(line)?).ok()?;
            if size == 0 {
                break;
            }
            let (data, after) = rest.split_at_checked(size)?;
            body.extend_from_slice(data);
            rest = after.strip_prefix(b"\r\n")?;
        }
        let trailers_at = bytes.len() - rest.len();
        while !take_line(&mut rest)?.is_empty() {}
        Some(Self {
            body,
            trailers_at,
            end: bytes.len() - rest.len(),
        })
    }
}

/// Panics unless the chunked body that stands in `stream` from `start` to `end` is `body`.
pub(crate) fn check_whole(stream: &[u8], start: usize, end: usize, body: &[u8]) {
    let plain = Chunked::of(&stream[start..]).expect("the plain reading finds no whole body");
    assert_eq!(plain.body, body);
    assert_eq!(start + plain.end, end);
}

/// Panics if nothing is wrong with the chunked body that begins at `start`, though `error` says so.
pub(crate) fn check_fault(stream: &[u8], start: usize, error: DecodeError) {
    let Some(plain) = Chunked::of(&stream[start..]) else {
        return;
    };
    match error.category() {
        DecodeErrorKind::BadChunk => {
            let trailers_at = (start + plain.trailers_at) as u64;
            let in_trailers = error.offset().is_none_or(|offset| offset >= trailers_at);
            assert!(in_trailers, "{error} in a sound body");
        }
        DecodeErrorKind::TooLarge(_) => {}
        _ => panic!("{error} in a whole body"),
    }
}

/// Up to the first line end, which is taken as well.
fn take_line<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let len = rest.windows(2).position(|two| two == b"\r\n")?;
    let line = &rest[..len];
    *rest = &rest[len + 2..];
    Some(line)
}

/// That of a chunk-size line: hex digits, blanks, and from a semicolon on what is not looked at but
/// for controls.
fn size(line: &[u8]) -> Option<u64> {
    let is_blank = |b: &u8| matches!(b, b' ' | b'\t');
    let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    let (digits, extension) = line.split_at(digits);
    let padding = extension.iter().take_while(|b| is_blank(b)).count();
    let sound = match extension.get(padding) {
        None => true,
        Some(b';') => extension
            .iter()
            .all(|b| is_blank(b) || !b.is_ascii_control()),
        Some(_) => false,
    };
    // No sign gets here, which `from_str_radix` would take.
    let digits = std::str::from_utf8(digits).ok()?;
    u64::from_str_radix(digits, 16).ok().filter(|_| sound)
}
