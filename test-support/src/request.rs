//! Requests, and how a script reads them.

use std::io;

use crate::peer::Peer;

/// No test has a longer head; a client that never ends one is a fault to report.
const MAX_HEAD: usize = 1 << 20;

/// A request as it was on the wire, except that a chunked body is decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The head with its empty line.
    pub head: Vec<u8>,
    /// The body.
    pub body: Vec<u8>,
}

impl Request {
    /// The request line.
    #[must_use]
    pub fn line(&self) -> String {
        self.lines().next().unwrap_or_default()
    }

    /// The value of the first field of that name, whatever its case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<String> {
        self.lines().skip(1).find_map(|line| {
            let (field, value) = line.split_once(':')?;
            field
                .eq_ignore_ascii_case(name)
                .then(|| value.trim().to_owned())
        })
    }

    fn lines(&self) -> impl Iterator<Item = String> {
        let lines = self.head.split(|byte| *byte == b'\n');
        lines.map(|line| String::from_utf8_lossy(line).trim_end().to_owned())
    }
}

/// Reading.
impl Peer {
    /// Reads up to and including the empty line of a request head. `None`: the client closed
    /// before its first byte.
    ///
    /// # Errors
    ///
    /// The client closed within the head, or reset.
    pub fn read_request_head(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.answered();
        let head = self.read_through(b"\r\n\r\n", "a request head")?;
        if head.is_some() {
            self.in_progress = true;
            self.shared.update(|state| {
                let counts = &mut state.counts;
                counts.requests += 1;
                counts.in_progress += 1;
                counts.highest_in_progress = counts.highest_in_progress.max(counts.in_progress);
            });
        }
        Ok(head)
    }

    /// Reads a request head and the body that it announces by `Content-Length` or
    /// `Transfer-Encoding: chunked` (given decoded). `None`: the client closed before its first
    /// byte. `Expect: 100-continue` is not answered: do that between
    /// [`read_request_head`](Self::read_request_head) and [`read_body`](Self::read_body).
    ///
    /// # Errors
    ///
    /// The client closed within the request, or reset.
    pub fn read_request(&mut self) -> io::Result<Option<Request>> {
        let Some(head) = self.read_request_head()? else {
            return Ok(None);
        };
        let body = self.read_body(&head)?;
        Ok(Some(Request { head, body }))
    }

    /// Reads exactly `n` bytes.
    ///
    /// # Errors
    ///
    /// The client closed earlier, or reset.
    pub fn read_exact(&mut self, n: usize) -> io::Result<Vec<u8>> {
        while self.received.len() < n {
            if self.receive()? == 0 {
                return Err(self.cut_off(&format!("{n} bytes")));
            }
        }
        Ok(self.received.drain(..n).collect())
    }

    /// Reads until the client's FIN.
    ///
    /// # Errors
    ///
    /// The client reset.
    pub fn read_until_eof(&mut self) -> io::Result<Vec<u8>> {
        while self.receive()? > 0 {}
        Ok(std::mem::take(&mut self.received))
    }

    /// Reads the body that a head announces.
    ///
    /// # Errors
    ///
    /// The head's length or a chunk's is no number, the client closed within the body, or reset.
    pub fn read_body(&mut self, head: &[u8]) -> io::Result<Vec<u8>> {
        let request = Request {
            head: head.to_vec(),
            body: Vec::new(),
        };
        let coding = request.header("transfer-encoding");
        if coding.is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
            return self.read_chunks();
        }
        let Some(length) = request.header("content-length") else {
            return Ok(Vec::new());
        };
        let n = length.parse().map_err(|_| not_a_length(&length))?;
        self.read_exact(n)
    }

    fn read_chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.read_line()?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).map_err(|_| not_a_length(&line))?;
            if size == 0 {
                break;
            }
            body.extend(self.read_exact(size)?);
            if !self.read_line()?.is_empty() {
                return Err(not_a_length("a chunk longer than its size"));
            }
        }
        while !self.read_line()?.is_empty() {}
        Ok(body)
    }

    fn read_line(&mut self) -> io::Result<String> {
        let line = self.read_through(b"\r\n", "a line of a chunked body")?;
        let line = line.ok_or_else(|| self.cut_off("a line of a chunked body"))?;
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    /// Reads through the first `end`. `None`: the client closed before the first byte.
    fn read_through(&mut self, end: &[u8], what: &str) -> io::Result<Option<Vec<u8>>> {
        loop {
            let found = self.received.windows(end.len()).position(|w| w == end);
            if let Some(at) = found {
                return Ok(Some(self.received.drain(..at + end.len()).collect()));
            }
            if self.received.len() > MAX_HEAD {
                let text = format!("{what} of more than {MAX_HEAD} bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            if self.receive()? == 0 {
                if self.received.is_empty() {
                    return Ok(None);
                }
                return Err(self.cut_off(what));
            }
        }
    }

    fn cut_off(&self, what: &str) -> io::Error {
        let text = format!(
            "the client closed after {} bytes of {what}",
            self.received.len()
        );
        io::Error::new(io::ErrorKind::UnexpectedEof, text)
    }
}

fn not_a_length(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not a length: {text}"))
}
