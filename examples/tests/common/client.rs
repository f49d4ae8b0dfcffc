//! A client that sends bytes and reads responses, and the ends of connections.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, Type};
use test_support::DEADLINE;

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Fin,
    Reset,
}

/// A response, its body without the framing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    /// The head with its empty line.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// The lines of the trailer section.
    pub(crate) trailers: Vec<String>,
}

impl Response {
    pub(crate) fn status(&self) -> u16 {
        let status = self.head.split(' ').nth(1);
        let status = status.and_then(|status| status.parse().ok());
        status.unwrap_or_else(|| panic!("no status line: {}", self.head))
    }

    /// The value of a field that is there once, or not at all.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let values = self.fields(name);
        assert!(values.len() < 2, "{name} more than once: {}", self.head);
        values.first().copied()
    }

    pub(crate) fn fields(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().skip(1);
        let fields = lines.filter_map(|line| line.split_once(':'));
        let named = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.trim()).collect()
    }

    pub(crate) fn text(&self) -> &str {
        str::from_utf8(&self.body).expect("a body of text")
    }
}

/// A client's connection. Every read gives up after the deadline.
#[derive(Debug)]
pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).expect("the server listens"))
    }

    /// A client whose kernel takes only a little at a time before the client reads it.
    pub(crate) fn connect_narrow(address: SocketAddr) -> Self {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None);
        let socket = socket.expect("a socket");
        socket.set_recv_buffer_size(4096).expect("a small buffer");
        socket.connect(&address.into()).expect("the server listens");
        Self::over(socket.into())
    }

    fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("a TCP option");
        stream
            .set_read_timeout(Some(DEADLINE))
            .expect("a socket option");
        Self(BufReader::new(stream))
    }

    /// The other end of the same connection, to write from another thread.
    pub(crate) fn writer(&self) -> TcpStream {
        self.0.get_ref().try_clone().expect("a descriptor")
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let sent = self.0.get_mut().write_all(bytes.as_ref());
        sent.expect("the peer takes the bytes");
    }

    pub(crate) fn get(&mut self, path: &str) -> Response {
        self.send(super::get(path));
        self.response()
    }

    /// Reads a head and nothing behind it: of an interim response, or of an answer to HEAD.
    pub(crate) fn head(&mut self) -> Response {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let read = self.0.read_until(b'\n', &mut head);
            let read = read.unwrap_or_else(|error| {
                let head = String::from_utf8_lossy(&head);
                panic!("{error} in a response head: {head:?}")
            });
            let head = String::from_utf8_lossy(&head);
            assert!(read > 0, "the end instead of a response head: {head:?}");
        }
        Response {
            head: String::from_utf8(head).expect("a head of text"),
            body: Vec::new(),
            trailers: Vec::new(),
        }
    }

    /// Reads a final response to anything but HEAD. A body that ends with the connection has to
    /// end clean.
    pub(crate) fn response(&mut self) -> Response {
        let mut response = self.head();
        assert!(response.status() >= 200, "not final: {}", response.head);
        if matches!(response.status(), 204 | 304) {
            return response;
        }
        if response.field("Transfer-Encoding") == Some("chunked") {
            assert_eq!(response.field("Content-Length"), None);
            (response.body, response.trailers) = read_chunked(&mut self.0).expect("a whole body");
        } else if let Some(length) = response.field("Content-Length") {
            response.body = vec![0; length.parse().expect("a length")];
            let read = self.0.read_exact(&mut response.body);
            read.expect("a whole body");
        } else {
            let (body, end) = self.rest();
            assert_eq!(end, End::Fin, "after {} bytes of the body", body.len());
            response.body = body;
        }
        response
    }

    /// Reads exactly these bytes.
    #[track_caller]
    pub(crate) fn expect(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        let mut read = vec![0; bytes.len()];
        self.0.read_exact(&mut read).expect("as many bytes");
        let text = String::from_utf8_lossy;
        assert_eq!(text(&read), text(bytes));
    }

    /// Nothing has arrived so far.
    #[track_caller]
    pub(crate) fn expect_silence(&mut self) {
        assert_eq!(self.0.buffer(), b"");
        let stream = self.0.get_mut();
        stream.set_nonblocking(true).expect("a socket option");
        let read = stream.read(&mut [0]).map_err(|error| error.kind());
        stream.set_nonblocking(false).expect("a socket option");
        assert_eq!(read, Err(io::ErrorKind::WouldBlock));
    }

    /// Reads all that is left, and how it ends.
    pub(crate) fn rest(&mut self) -> (Vec<u8>, End) {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => (rest, End::Fin),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => (rest, End::Reset),
            Err(error) => panic!("{error} after {} bytes", rest.len()),
        }
    }

    /// The peer has closed, and no byte comes before that.
    #[track_caller]
    pub(crate) fn expect_eof(&mut self) {
        let (rest, end) = self.rest();
        let rest = String::from_utf8_lossy(&rest);
        assert_eq!((rest.as_ref(), end), ("", End::Fin));
    }

    /// Ends the sending side; reading goes on.
    pub(crate) fn fin(&mut self) {
        let shut = self.0.get_ref().shutdown(Shutdown::Write);
        shut.expect("the connection is open");
    }

    /// Closes by RST.
    pub(crate) fn reset(self) {
        let socket = SockRef::from(self.0.get_ref());
        let set = socket.set_linger(Some(Duration::ZERO));
        set.expect("a socket option");
    }
}

/// Reads a chunked body with its trailer lines.
pub(crate) fn read_chunked(from: &mut impl BufRead) -> io::Result<(Vec<u8>, Vec<String>)> {
    let mut body = Vec::new();
    loop {
        let line = read_line(from)?;
        let size = usize::from_str_radix(&line, 16);
        let size = size.map_err(|_| io::Error::other(format!("not a chunk size: {line:?}")))?;
        if size == 0 {
            break;
        }
        let start = body.len();
        body.resize(start + size, 0);
        from.read_exact(&mut body[start..])?;
        let end = read_line(from)?;
        if !end.is_empty() {
            return Err(io::Error::other(format!("{end:?} behind a chunk")));
        }
    }
    let mut trailers = Vec::new();
    loop {
        let line = read_line(from)?;
        if line.is_empty() {
            return Ok((body, trailers));
        }
        trailers.push(line);
    }
}

fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    match line.strip_suffix("\r\n") {
        Some(line) => Ok(line.to_owned()),
        None => Err(io::Error::other(format!("no whole line: {line:?}"))),
    }
}
