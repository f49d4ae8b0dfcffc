//! Connections that count what is read from them.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use http_client::{ConnectError, Destination, TcpConnector, Transport};
use pool_core::{CloseReason, ConnectOptions, Connection, Connector, Core, Readiness, TcpStream};

/// Makes TCP connections, and counts the bytes that come in over all of them.
#[derive(Debug)]
pub(super) struct CountedConnector {
    tcp: TcpConnector,
    read: Rc<Cell<u64>>,
}

impl CountedConnector {
    pub(super) fn new(core: &Core, read: Rc<Cell<u64>>) -> Self {
        Self {
            tcp: TcpConnector::new(core, ConnectOptions::default()),
            read,
        }
    }
}

impl Connector for CountedConnector {
    type Key = Destination;
    type Connection = Counted;
    type Error = ConnectError;

    async fn connect(&self, key: &Destination) -> Result<Counted, ConnectError> {
        Ok(Counted {
            stream: self.tcp.connect(key).await?,
            read: Rc::clone(&self.read),
        })
    }
}

/// A TCP connection that counts.
#[derive(Debug)]
pub(super) struct Counted {
    stream: TcpStream,
    read: Rc<Cell<u64>>,
}

impl Connection for Counted {
    fn readiness(&self) -> Readiness {
        self.stream.readiness()
    }

    fn check(&mut self) -> Result<(), CloseReason> {
        self.stream.check()
    }
}

impl Transport for Counted {
    fn poll_read_buf(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        let read = self.stream.poll_read_buf(cx, buf, limit);
        if let Poll::Ready(Ok(bytes)) = read {
            self.read.set(self.read.get() + bytes as u64);
        }
        read
    }

    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_write_vectored(cx, bufs)
    }
}
