use bytes::{BufMut, BytesMut};

use crate::error::EncodeError;
use crate::frame;
use crate::framing::{BodyLength, Notes};
use crate::syntax::{self, is_named};

/// Writes a request head into the caller's buffer in one pass.
///
/// The head is whole only after [`finish`](Self::finish). Dropped before, or when `finish` fails,
/// the writer takes back all it wrote, so the buffer never holds half a head.
#[derive(Debug)]
pub struct RequestWriter<'b> {
    dst: &'b mut BytesMut,
    start: usize,
    finished: bool,
    method: Method,
    notes: Notes<'static>,
}

/// The methods whose body rules differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Head,
    Connect,
    Trace,
    /// A method that means content: no body is sent as `Content-Length: 0` (RFC 9110 §8.6).
    WithContent,
    Other,
}

/// What the answer to a request, and the fate of its connection, depend on later.
///
/// It is small and `Copy`: keep it beside the bytes of the head to send both again in another
/// [`ClientExchange`](crate::ClientExchange).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentRequest {
    head: bool,
    connect: bool,
    body: BodyLength,
    close: bool,
    expects_continue: bool,
    upgrade: bool,
}

impl<'b> RequestWriter<'b> {
    /// Begins an HTTP/1.1 request (RFC 9112 §3) at the end of `dst`.
    ///
    /// # Errors
    ///
    /// [`EncodeError::BadMethod`] if `method` is no token; [`EncodeError::BadTarget`] if `target`
    /// is empty or has a byte other than visible ASCII. `dst` is then unchanged.
    pub fn new(dst: &'b mut BytesMut, method: &str, target: &str) -> Result<Self, EncodeError> {
        if !syntax::is_token(method.as_bytes()) {
            return Err(EncodeError::BadMethod);
        }
        if !syntax::is_target(target.as_bytes()) {
            return Err(EncodeError::BadTarget);
        }
        let start = dst.len();
        dst.reserve(method.len() + target.len() + 256);
        dst.put_slice(method.as_bytes());
        dst.put_u8(b' ');
        dst.put_slice(target.as_bytes());
        dst.put_slice(b" HTTP/1.1\r\n");
        let method = match method {
            "HEAD" => Method::Head,
            "CONNECT" => Method::Connect,
            "TRACE" => Method::Trace,
            "POST" | "PUT" | "PATCH" => Method::WithContent,
            _ => Method::Other,
        };
        Ok(Self {
            dst,
            start,
            finished: false,
            method,
            notes: Notes::default(),
        })
    }

    /// Adds a field line. `Connection` options, `Upgrade` and `Expect: 100-continue` are noted for
    /// [`SentRequest`].
    ///
    /// # Errors
    ///
    /// [`EncodeError::BadFieldName`], [`EncodeError::BadFieldValue`] for what could inject;
    /// [`EncodeError::FramingField`] for `Content-Length` and `Transfer-Encoding`;
    /// [`EncodeError::DuplicateHost`]. The line is then left out and the writer goes on.
    pub fn field(
        &mut self,
        name: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<(), EncodeError> {
        let (name, value) = (name.as_ref(), value.as_ref());
        frame::check_field(name, value)?;
        match name.len() {
            4 if is_named(name, b"host") => {
                if self.notes.hosts > 0 {
                    return Err(EncodeError::DuplicateHost);
                }
                self.notes.hosts += 1;
            }
            6 if is_named(name, b"expect") => {
                self.notes.expect_continue |=
                    syntax::trim(value).eq_ignore_ascii_case(b"100-continue");
            }
            7 if is_named(name, b"upgrade") => {
                self.notes.upgrade_field |= !syntax::trim(value).is_empty();
            }
            10 if is_named(name, b"connection") => self.notes.note_connection(value),
            14 | 17 if frame::is_framing_field(name) => return Err(EncodeError::FramingField),
            _ => {}
        }
        frame::put_field(self.dst, name, value);
        Ok(())
    }

    /// Writes the framing fields for `body` and ends the head.
    ///
    /// [`BodyLength::None`] writes nothing, except `Content-Length: 0` for POST, PUT and PATCH
    /// (RFC 9110 §8.6).
    ///
    /// # Errors
    ///
    /// [`EncodeError::MissingHost`]; [`EncodeError::UntilCloseRequest`];
    /// [`EncodeError::BodyNotAllowed`] for CONNECT and TRACE. The buffer is then as it was before
    /// [`new`](Self::new).
    pub fn finish(mut self, body: BodyLength) -> Result<SentRequest, EncodeError> {
        if self.notes.hosts == 0 {
            return Err(EncodeError::MissingHost);
        }
        let bodiless = matches!(body, BodyLength::None | BodyLength::Exact(0));
        match self.method {
            _ if body == BodyLength::UntilClose => return Err(EncodeError::UntilCloseRequest),
            Method::Connect | Method::Trace if !bodiless => {
                return Err(EncodeError::BodyNotAllowed);
            }
            Method::Connect | Method::Trace => {}
            Method::WithContent if bodiless => frame::put_framing(self.dst, BodyLength::Exact(0)),
            _ => frame::put_framing(self.dst, body),
        }
        self.dst.put_slice(b"\r\n");
        self.finished = true;
        Ok(SentRequest {
            head: self.method == Method::Head,
            connect: self.method == Method::Connect,
            body,
            close: self.notes.close,
            expects_continue: self.notes.expect_continue,
            upgrade: self.notes.upgrade_option && self.notes.upgrade_field,
        })
    }
}

impl Drop for RequestWriter<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.dst.truncate(self.start);
        }
    }
}

impl SentRequest {
    /// Was it HEAD?
    #[must_use]
    pub fn is_head(&self) -> bool {
        self.head
    }

    /// Was it CONNECT?
    #[must_use]
    pub fn is_connect(&self) -> bool {
        self.connect
    }

    /// How the body is framed.
    #[must_use]
    pub fn body_length(&self) -> BodyLength {
        self.body
    }

    /// Did it say `Connection: close`?
    #[must_use]
    pub fn asks_close(&self) -> bool {
        self.close
    }

    /// Did it say `Expect: 100-continue`?
    #[must_use]
    pub fn expects_continue(&self) -> bool {
        self.expects_continue
    }

    /// Did it offer an upgrade, so that 101 may answer it?
    #[must_use]
    pub fn upgrade_offered(&self) -> bool {
        self.upgrade
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(method: &str, body: BodyLength) -> Result<String, EncodeError> {
        let mut dst = BytesMut::new();
        let mut writer = RequestWriter::new(&mut dst, method, "/")?;
        writer.field("Host", "a")?;
        writer.finish(body)?;
        Ok(String::from_utf8_lossy(&dst).into_owned())
    }

    #[test]
    fn methods_that_mean_content_announce_its_absence() {
        let get = written("GET", BodyLength::None);
        assert_eq!(get.as_deref(), Ok("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        let post = written("POST", BodyLength::None);
        let expected = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(post.as_deref(), Ok(expected));
    }

    #[test]
    fn bodies_where_none_may_be_are_refused() {
        assert_eq!(
            written("TRACE", BodyLength::Exact(1)),
            Err(EncodeError::BodyNotAllowed)
        );
        assert_eq!(
            written("CONNECT", BodyLength::Chunked),
            Err(EncodeError::BodyNotAllowed)
        );
        let until_close = written("POST", BodyLength::UntilClose);
        assert_eq!(until_close, Err(EncodeError::UntilCloseRequest));
    }

    #[test]
    fn injection_is_refused_and_leaves_no_trace() {
        let mut dst = BytesMut::from(&b"before"[..]);
        assert!(RequestWriter::new(&mut dst, "GET", "/ HTTP/1.1\r\nX: y").is_err());
        assert!(RequestWriter::new(&mut dst, "GET X", "/").is_err());
        let mut writer = RequestWriter::new(&mut dst, "GET", "/").expect("a good line");
        for value in ["a\r\nX: y", "a\nb", "a\rb", "a\0b"] {
            assert_eq!(writer.field("X", value), Err(EncodeError::BadFieldValue));
        }
        assert_eq!(
            writer.field("X: y\r\nZ", "1"),
            Err(EncodeError::BadFieldName)
        );
        assert_eq!(writer.field("", "1"), Err(EncodeError::BadFieldName));
        assert_eq!(
            writer.field("content-LENGTH", "1"),
            Err(EncodeError::FramingField)
        );
        assert_eq!(
            writer.finish(BodyLength::None),
            Err(EncodeError::MissingHost)
        );
        assert_eq!(dst, "before");
    }

    #[test]
    fn what_matters_later_is_noted() {
        let mut dst = BytesMut::new();
        let mut writer = RequestWriter::new(&mut dst, "HEAD", "/").expect("a good line");
        writer.field("Host", "a").expect("a good field");
        assert_eq!(writer.field("host", "b"), Err(EncodeError::DuplicateHost));
        writer
            .field("Connection", "close, Upgrade")
            .expect("a good field");
        writer.field("Upgrade", "websocket").expect("a good field");
        writer
            .field("Expect", "100-Continue")
            .expect("a good field");
        let sent = writer.finish(BodyLength::None).expect("a whole head");
        assert!(sent.is_head() && sent.asks_close() && sent.upgrade_offered());
        assert!(sent.expects_continue() && !sent.is_connect());
    }
}
