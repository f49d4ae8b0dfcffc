use bytes::{BufMut, BytesMut};

use crate::error::EncodeError;
use crate::frame;
use crate::framing::BodyLength;
use crate::server_exchange::ServerExchange;
use crate::syntax;

/// Writes the head of a final response into the caller's buffer in one pass.
///
/// Made by [`ServerExchange::respond`]. Dropped before [`finish`](Self::finish), or when that
/// fails, it takes back all it wrote, and the exchange can respond anew.
#[derive(Debug)]
pub struct ResponseWriter<'b> {
    exchange: &'b mut ServerExchange,
    dst: &'b mut BytesMut,
    status_line: StatusLine,
    finished: bool,
    close: bool,
}

impl<'b> ResponseWriter<'b> {
    pub(crate) fn new(
        exchange: &'b mut ServerExchange,
        dst: &'b mut BytesMut,
        status: u16,
    ) -> Self {
        dst.reserve(256);
        let status_line = StatusLine::put(dst, status);
        Self {
            exchange,
            dst,
            status_line,
            finished: false,
            close: false,
        }
    }

    /// Replaces the reason phrase, which is the usual one for the status otherwise.
    ///
    /// # Errors
    ///
    /// [`EncodeError::BadReason`]; [`EncodeError::ReasonAfterFields`].
    pub fn reason(&mut self, reason: &[u8]) -> Result<(), EncodeError> {
        self.status_line.replace_reason(self.dst, reason)
    }

    /// Adds a field line.
    ///
    /// # Errors
    ///
    /// [`EncodeError::BadFieldName`], [`EncodeError::BadFieldValue`] for what could inject;
    /// [`EncodeError::FramingField`]; [`EncodeError::ConnectionField`]. The line is then left out
    /// and the writer goes on.
    pub fn field(
        &mut self,
        name: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<(), EncodeError> {
        put_checked_field(self.dst, name.as_ref(), value.as_ref())
    }

    /// Asks for the connection to be closed after this exchange: `Connection: close`.
    pub fn close(&mut self) {
        self.close = true;
    }

    /// Writes the framing and `Connection` fields and ends the head.
    ///
    /// - [`BodyLength::None`] says `Content-Length: 0` where a body could be.
    /// - In answer to HEAD and in 304, `Exact` and `Chunked` are announced and no data follows:
    ///   [`ServerExchange::body_allowed`] is false.
    /// - To an HTTP/1.0 client `Chunked` becomes `UntilClose`.
    /// - 101 and 2xx to CONNECT end the HTTP part of the connection; only `None` fits them.
    /// - `Connection: close` is written when the connection must close after this exchange, and
    ///   `keep-alive` to an HTTP/1.0 client that asked for it (RFC 9112 §9.3).
    ///
    /// # Errors
    ///
    /// [`EncodeError::BodyNotAllowed`] for a body in 101, 204, 205 and 2xx to CONNECT. The buffer
    /// is then as it was.
    pub fn finish(mut self, body: BodyLength) -> Result<(), EncodeError> {
        let plan = self
            .exchange
            .plan_response(self.status_line.status, body, self.close)?;
        frame::put_framing(self.dst, plan.announced);
        if let Some(options) = plan.connection {
            frame::put_field(self.dst, b"Connection", options);
        }
        self.dst.put_slice(b"\r\n");
        self.exchange.begin_response(&plan);
        self.finished = true;
        Ok(())
    }
}

impl Drop for ResponseWriter<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.dst.truncate(self.status_line.start);
        }
    }
}

/// Writes the head of an interim (1xx) response into the caller's buffer in one pass.
///
/// Made by [`ServerExchange::interim`]. To an HTTP/1.0 client it writes nothing, as such a client
/// knows no interim responses (RFC 9110 §15.2). Dropped before [`finish`](Self::finish) it takes
/// back all it wrote.
#[derive(Debug)]
pub struct InterimWriter<'b> {
    dst: &'b mut BytesMut,
    status_line: StatusLine,
    finished: bool,
    muted: bool,
}

impl<'b> InterimWriter<'b> {
    pub(crate) fn new(dst: &'b mut BytesMut, status: u16, muted: bool) -> Self {
        let status_line = StatusLine::put(dst, status);
        Self {
            dst,
            status_line,
            finished: false,
            muted,
        }
    }

    /// Replaces the reason phrase, which is the usual one for the status otherwise.
    ///
    /// # Errors
    ///
    /// As [`ResponseWriter::reason`].
    pub fn reason(&mut self, reason: &[u8]) -> Result<(), EncodeError> {
        self.status_line.replace_reason(self.dst, reason)
    }

    /// Adds a field line.
    ///
    /// # Errors
    ///
    /// As [`ResponseWriter::field`].
    pub fn field(
        &mut self,
        name: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<(), EncodeError> {
        put_checked_field(self.dst, name.as_ref(), value.as_ref())
    }

    /// Ends the head.
    pub fn finish(mut self) {
        self.dst.put_slice(b"\r\n");
        // A muted head has been written like any other, so that the same calls fail.
        self.finished = !self.muted;
    }
}

impl Drop for InterimWriter<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.dst.truncate(self.status_line.start);
        }
    }
}

/// The status line at the front of a head that is being written.
#[derive(Debug)]
struct StatusLine {
    status: u16,
    start: usize,
    end: usize,
}

impl StatusLine {
    /// Writes it with the usual reason phrase for the status.
    fn put(dst: &mut BytesMut, status: u16) -> Self {
        let start = dst.len();
        put_status_line(dst, status, canonical_reason(status).as_bytes());
        let end = dst.len();
        Self { status, start, end }
    }

    fn replace_reason(&mut self, dst: &mut BytesMut, reason: &[u8]) -> Result<(), EncodeError> {
        if !syntax::is_text(reason) {
            return Err(EncodeError::BadReason);
        }
        if dst.len() != self.end {
            return Err(EncodeError::ReasonAfterFields);
        }
        dst.truncate(self.start);
        put_status_line(dst, self.status, reason);
        self.end = dst.len();
        Ok(())
    }
}

fn put_checked_field(dst: &mut BytesMut, name: &[u8], value: &[u8]) -> Result<(), EncodeError> {
    frame::check_field(name, value)?;
    if frame::is_framing_field(name) {
        return Err(EncodeError::FramingField);
    }
    if name.eq_ignore_ascii_case(b"connection") {
        return Err(EncodeError::ConnectionField);
    }
    frame::put_field(dst, name, value);
    Ok(())
}

fn put_status_line(dst: &mut BytesMut, status: u16, reason: &[u8]) {
    dst.put_slice(b"HTTP/1.1 ");
    dst.put_slice(frame::decimal(u64::from(status), &mut [0; 20]));
    dst.put_u8(b' ');
    dst.put_slice(reason);
    dst.put_slice(b"\r\n");
}

/// The phrases of RFC 9110 §15 and the registry; empty for the rest, which is as good.
fn canonical_reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        425 => "Too Early",
        426 => "Upgrade Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}
