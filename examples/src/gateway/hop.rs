//! What concerns one hop only, in heads and in trailers (RFC 9110 §7.6.1).

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_codec::{Field, Fields, connection_tokens, is_hop_by_hop};

use crate::server::{Fault, RequestBody};

/// No honest peer names more than a few. Each costs a comparison with every field.
const MOST_OPTIONS: usize = 64;

/// The options that the `Connection` lines of a head name, gathered once. What most peers say,
/// `close` and `keep-alive`, costs no allocation.
#[derive(Debug, Default)]
pub(super) struct ConnectionOptions {
    close: bool,
    others: Vec<Box<str>>,
}

/// There are too many of them.
#[derive(Debug)]
pub(super) struct TooManyOptions;

impl ConnectionOptions {
    pub(super) fn of(fields: &Fields) -> Result<Self, TooManyOptions> {
        let mut options = Self::default();
        for (count, token) in connection_tokens(fields).enumerate() {
            if count == MOST_OPTIONS {
                return Err(TooManyOptions);
            }
            if token.eq_ignore_ascii_case("close") {
                options.close = true;
            } else if !is_hop_by_hop(token) {
                options.others.push(token.into());
            }
        }
        Ok(options)
    }

    fn name(&self, name: &str) -> bool {
        let is_name = |option: &str| option.eq_ignore_ascii_case(name);
        (self.close && is_name("close")) || self.others.iter().any(|option| is_name(option))
    }

    /// The fields that are meant for the other end: not the hop-by-hop ones, and not those that
    /// are named here.
    ///
    /// What the gateway adds itself is written apart from them, so a client that names one of
    /// ours, `X-Forwarded-For` say, cannot make it disappear.
    pub(super) fn end_to_end<'a>(&self, fields: &'a Fields) -> impl Iterator<Item = Field<'a>> {
        let stays_behind = |name: &str| is_hop_by_hop(name) || self.name(name);
        fields.iter().filter(move |field| !stays_behind(field.name))
    }

    /// Leaves in `trailers` what is not named here. The rest that must not be passed on from there
    /// the codec has dropped.
    pub(super) fn keep_end_to_end(&self, trailers: &mut HeaderMap) {
        if self.close {
            trailers.remove("close");
        }
        for option in &self.others {
            trailers.remove(&**option);
        }
    }
}

/// A client's request body on its way to the upstream, without the trailers that stay behind.
#[derive(Debug)]
pub(super) struct PassedBody {
    body: RequestBody,
    options: ConnectionOptions,
}

impl PassedBody {
    pub(super) fn new(body: RequestBody, options: ConnectionOptions) -> Self {
        Self { body, options }
    }
}

impl Body for PassedBody {
    type Data = Bytes;
    type Error = Fault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        let mut frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            self.options.keep_end_to_end(trailers);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use http_codec::{Limits, RequestEvent, ServerExchange};

    fn fields(lines: &str) -> Fields {
        let mut src = BytesMut::from(&*format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n"));
        match ServerExchange::new(&Limits::default()).decode(&mut src) {
            Ok(RequestEvent::Head(head)) => head.fields().clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn usual_options_are_kept_without_a_list_of_them() {
        for lines in [
            "",
            "Connection: keep-alive\r\n",
            "Connection: Close, TE\r\n",
        ] {
            let options = ConnectionOptions::of(&fields(lines)).unwrap();
            assert_eq!(options.others.capacity(), 0, "{lines}");
        }
    }

    #[test]
    fn options_of_all_lines_name_fields_in_any_case() {
        let fields = fields(
            "Connection: X-A, close\r\nx-a: 1\r\nB: 2\r\nconnection: b\r\nClose: 3\r\nC: 4\r\n",
        );
        let options = ConnectionOptions::of(&fields).unwrap();
        let passed: Vec<_> = options
            .end_to_end(&fields)
            .map(|field| field.name)
            .collect();
        assert_eq!(passed, ["Host", "C"]);
    }

    #[test]
    fn more_options_than_anybody_needs_are_refused() {
        let line = |count: usize| format!("Connection: {}\r\n", vec!["q"; count].join(","));
        assert!(ConnectionOptions::of(&fields(&line(MOST_OPTIONS))).is_ok());
        assert!(ConnectionOptions::of(&fields(&line(MOST_OPTIONS + 1))).is_err());
        let lines = line(1).repeat(MOST_OPTIONS + 1);
        assert!(ConnectionOptions::of(&fields(&lines)).is_err());
    }

    #[test]
    fn trailers_that_are_named_stay_behind() {
        let options = ConnectionOptions::of(&fields("Connection: X-Named, close\r\n")).unwrap();
        let mut trailers = HeaderMap::new();
        for name in ["x-sum", "x-named", "close"] {
            trailers.append(name, "1".parse().unwrap());
            trailers.append(name, "2".parse().unwrap());
        }
        options.keep_end_to_end(&mut trailers);
        let kept: Vec<_> = trailers.keys().map(http::HeaderName::as_str).collect();
        assert_eq!((kept, trailers.len()), (vec!["x-sum"], 2));
    }
}
