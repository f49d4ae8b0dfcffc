//! The client of this crate's own tests.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use socket2::SockRef;

use crate::scripts::OK;
use crate::server::Server;
use crate::wait::DEADLINE;

pub(crate) const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n";

pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) fn new(server: &Server) -> Self {
        let stream = TcpStream::connect(server.addr()).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        Self(stream)
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    pub(crate) fn expect(&mut self, bytes: &[u8]) {
        let mut read = vec![0; bytes.len()];
        self.0.read_exact(&mut read).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&read),
            String::from_utf8_lossy(bytes)
        );
    }

    pub(crate) fn get(&mut self) {
        self.send(GET);
        self.expect(OK);
    }

    pub(crate) fn fin(&mut self) {
        self.0.shutdown(Shutdown::Write).unwrap();
    }

    pub(crate) fn reset(self) {
        let socket = SockRef::from(&self.0);
        socket.set_linger(Some(Duration::ZERO)).unwrap();
    }

    pub(crate) fn expect_eof(&mut self) {
        assert_eq!(self.0.read(&mut [0]).unwrap(), 0);
    }

    pub(crate) fn expect_reset(&mut self) {
        let error = self.0.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }

    /// Nothing has arrived so far.
    pub(crate) fn expect_silence(&mut self) {
        self.0.set_nonblocking(true).unwrap();
        let error = self.0.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
        self.0.set_nonblocking(false).unwrap();
    }
}
