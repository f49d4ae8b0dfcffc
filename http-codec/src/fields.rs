use alloc::string::ToString;
use alloc::vec::Vec;

use core::fmt;

use bytes::Bytes;

use crate::head::Span;
use crate::syntax;

/// Where one field line stands in its block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    pub(crate) name: Span,
    pub(crate) value: Span,
}

impl Line {
    /// The place of a line that was parsed out of `block`.
    pub(crate) fn of(block: &[u8], header: &httparse::Header<'_>) -> Self {
        Self {
            name: Span::of(block, header.name.as_bytes()),
            value: Span::of(block, header.value),
        }
    }
}

/// The field lines of one head or trailer section, as slices of the bytes received.
///
/// Nothing is copied or merged: the order, the spelling of names and repeated lines are as they
/// came (RFC 9110 §5.3). Names compare without case.
#[derive(Clone, Default)]
pub struct Fields {
    block: Bytes,
    lines: Vec<Line>,
}

/// One field line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// The name as received: a token.
    pub name: &'a str,
    /// The value without the blanks around it; it may hold bytes above 0x7F.
    pub value: &'a [u8],
}

impl Fields {
    pub(crate) fn new(block: Bytes, lines: Vec<Line>) -> Self {
        Self { block, lines }
    }

    pub(crate) fn block(&self) -> &Bytes {
        &self.block
    }

    /// The number of field lines.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Is there no field line?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The field lines in the order received.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Field<'_>> + Clone {
        self.lines.iter().map(|line| Field {
            name: str::from_utf8(self.slice(line.name)).unwrap_or_default(),
            value: self.slice(line.value),
        })
    }

    /// The value of the first line with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.get_all(name).next()
    }

    /// The values of all lines with this name, in the order received.
    pub fn get_all<'a, 'n>(
        &'a self,
        name: &'n str,
    ) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        self.lines
            .iter()
            .filter(move |line| self.slice(line.name).eq_ignore_ascii_case(name.as_bytes()))
            .map(move |line| self.slice(line.value))
    }

    /// Is there a line with this name?
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The name of the line at `index`, sharing the received buffer; `None` beyond the last line.
    #[must_use]
    pub fn name_bytes(&self, index: usize) -> Option<Bytes> {
        self.lines
            .get(index)
            .map(|line| self.block.slice(line.name.range()))
    }

    /// The value of the line at `index`, sharing the received buffer; `None` beyond the last line.
    #[must_use]
    pub fn value_bytes(&self, index: usize) -> Option<Bytes> {
        self.lines
            .get(index)
            .map(|line| self.block.slice(line.value.range()))
    }

    /// The lines as a map. Its values share the received buffer; the spelling of the names and the
    /// order among lines of different names are lost.
    ///
    /// # Panics
    ///
    /// Panics if there are more lines than a map can hold, 24,576, which takes a limit on fields
    /// beyond the default.
    #[cfg(feature = "http")]
    #[must_use]
    pub fn to_header_map(&self) -> http::HeaderMap {
        let mut map = http::HeaderMap::with_capacity(self.len());
        for line in &self.lines {
            // The decoder has checked both by rules that are no wider than the map's.
            let name = http::HeaderName::from_bytes(self.slice(line.name));
            let value = http::HeaderValue::from_maybe_shared(self.block.slice(line.value.range()));
            if let (Ok(name), Ok(value)) = (name, value) {
                map.append(name, value);
            }
        }
        map
    }

    fn slice(&self, span: Span) -> &[u8] {
        &self.block[span.range()]
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_fields(f, self.iter())
    }
}

/// As a map, though names may come more than once; values escaped.
pub(crate) fn debug_fields<'a>(
    f: &mut fmt::Formatter<'_>,
    fields: impl Iterator<Item = Field<'a>>,
) -> fmt::Result {
    let lines = fields.map(|field| (field.name, field.value.escape_ascii().to_string()));
    f.debug_map().entries(lines).finish()
}

/// The options named by all `Connection` lines (RFC 9110 §7.6.1), in the order received.
///
/// Elements that are no token are left out. A forwarder drops the fields these options name:
///
/// ```
/// # use http_codec::{Fields, connection_tokens, is_hop_by_hop};
/// fn is_forwarded(fields: &Fields, name: &str) -> bool {
///     !is_hop_by_hop(name)
///         && !connection_tokens(fields).any(|option| option.eq_ignore_ascii_case(name))
/// }
/// ```
pub fn connection_tokens(fields: &Fields) -> impl Iterator<Item = &str> {
    fields
        .get_all("connection")
        .flat_map(syntax::elements)
        .filter(|element| syntax::is_token(element))
        .filter_map(|token| str::from_utf8(token).ok())
}

/// Does the field speak of one connection only, so that a forwarder must not pass it on
/// (RFC 9110 §7.6.1)?
///
/// True for `Connection`, `Proxy-Connection`, `Keep-Alive`, `TE`, `Transfer-Encoding` and
/// `Upgrade`, in any case. The fields that `Connection` names are hop-by-hop as well: see
/// [`connection_tokens`].
#[must_use]
pub fn is_hop_by_hop(name: &str) -> bool {
    const NAMES: [&str; 6] = [
        "connection",
        "proxy-connection",
        "keep-alive",
        "te",
        "transfer-encoding",
        "upgrade",
    ];
    NAMES.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Must the field never act from a trailer section (RFC 9110 §6.5.1)?
///
/// A recipient that merges trailers into the head would take it for one that was there from the
/// beginning, past every check made on the head.
pub(crate) fn is_forbidden_trailer(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 34] = [
        // Framing and routing.
        b"content-length",
        b"transfer-encoding",
        b"trailer",
        b"host",
        // The connection.
        b"connection",
        b"proxy-connection",
        b"keep-alive",
        b"te",
        b"upgrade",
        b"http2-settings",
        // Who asks, and who may.
        b"authorization",
        b"proxy-authorization",
        b"www-authenticate",
        b"proxy-authenticate",
        b"cookie",
        b"set-cookie",
        // What a request is to do; conditions are below.
        b"cache-control",
        b"pragma",
        b"expect",
        b"max-forwards",
        b"range",
        // What a response means.
        b"age",
        b"date",
        b"expires",
        b"location",
        b"retry-after",
        b"vary",
        b"warning",
        // How to read the content.
        b"content-encoding",
        b"content-type",
        b"content-range",
        // Where a message came from.
        b"forwarded",
        b"via",
        b"x-real-ip",
    ];
    const PREFIXES: [&[u8]; 2] = [b"if-", b"x-forwarded-"];
    let is_known = NAMES.iter().any(|known| known.eq_ignore_ascii_case(name));
    is_known
        || PREFIXES.iter().any(|prefix| {
            name.get(..prefix.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[(&str, &str)]) -> Fields {
        let mut block = Vec::new();
        let mut index = Vec::new();
        for (name, value) in lines {
            let start = block.len();
            block.extend_from_slice(name.as_bytes());
            let middle = block.len();
            block.extend_from_slice(value.as_bytes());
            index.push(Line {
                name: Span::new(start, middle),
                value: Span::new(middle, block.len()),
            });
        }
        Fields::new(block.into(), index)
    }

    #[test]
    fn names_match_without_case_and_repeats_stay_apart() {
        let fields = fields(&[("Via", "a"), ("X", "1"), ("via", "b")]);
        assert_eq!(fields.get("VIA"), Some(&b"a"[..]));
        assert_eq!(fields.get_all("via").collect::<Vec<_>>(), [b"a", b"b"]);
        assert_eq!(fields.value_bytes(2).as_deref(), Some(&b"b"[..]));
        assert_eq!(fields.name_bytes(3), None);
    }

    #[test]
    fn connection_options_come_from_every_line() {
        let fields = fields(&[
            ("Connection", ",close, X-A"),
            ("connection", "\"q\",Upgrade"),
        ]);
        assert_eq!(
            connection_tokens(&fields).collect::<Vec<_>>(),
            ["close", "X-A", "Upgrade"]
        );
    }

    #[cfg(feature = "http")]
    #[test]
    fn map_holds_every_line_whatever_bytes_the_decoder_lets_through() {
        let mut head = b"GET / HTTP/1.1\r\nHost: a\r\n".to_vec();
        for byte in (0..=255).filter(|byte| syntax::is_text_byte(*byte)) {
            head.extend_from_slice(b"x: a");
            head.push(byte);
            head.extend_from_slice(b"b\r\n");
        }
        for byte in (0..=255).filter(|byte| syntax::is_token(&[*byte])) {
            head.push(byte);
            head.extend_from_slice(b"y: 1\r\n");
        }
        head.extend_from_slice(b"\r\n");
        let limits = crate::Limits::default().with_max_fields(1000);
        let mut src = bytes::BytesMut::from(&head[..]);
        let Ok(crate::RequestEvent::Head(head)) =
            crate::ServerExchange::new(&limits).decode(&mut src)
        else {
            panic!("the head is fine");
        };
        let map = head.fields().to_header_map();
        assert_eq!(map.len(), head.fields().len());
        for field in head.fields().iter() {
            let mut values = map.get_all(field.name).iter();
            assert!(values.any(|value| value.as_bytes() == field.value));
        }
    }
}
