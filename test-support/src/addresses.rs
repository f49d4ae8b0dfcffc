//! Addresses that do not answer a connect, or refuse it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use socket2::{Domain, SockAddr, Socket, Type};

use crate::kernel;
use crate::wait::{DEADLINE, eventually};

/// Room for any burst of connects, once the listener is let go.
const BACKLOG: i32 = 4096;

/// An address at which every connect hangs.
///
/// The kernel drops the SYN of a connect to a listener whose accept queue is full. A backlog of 0
/// is a queue of one; this type fills it with a connection of its own and never accepts. The
/// client's kernel repeats the SYN after 1 s, 3 s, 7 s and so on, and gives up after minutes.
#[derive(Debug)]
pub struct HangingListener {
    listener: Socket,
    addr: SocketAddr,
    filler: TcpStream,
}

impl HangingListener {
    /// A hanging listener on a free port of 127.0.0.1. Once this returns, connects hang.
    ///
    /// # Panics
    ///
    /// When the listener cannot be made, or its queue does not fill.
    #[must_use]
    pub fn new() -> Self {
        let (listener, addr) = bound();
        listener.listen(0).expect("a listener with backlog 0");
        let filler = TcpStream::connect(addr).expect("a connection that fills the backlog");
        // The client is connected before its last ACK has put the connection into the queue.
        eventually(DEADLINE, || kernel::accept_queue(addr) == Some(1));
        Self {
            listener,
            addr,
            filler,
        }
    }

    /// Where connects hang.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Ends the hanging: empties the queue and returns the listener, with an ordinary backlog,
    /// for [`Server::script_on`](crate::Server::script_on). Connects under way finish when the
    /// client's kernel repeats its SYN.
    ///
    /// # Panics
    ///
    /// When the kernel does not allow it.
    #[must_use]
    pub fn into_listener(self) -> TcpListener {
        // Accepted while the queue is still short, so that it is the filler that goes.
        let (first, from) = self.listener.accept().expect("the filler");
        let filler = self.filler.local_addr().expect("the address of the filler");
        assert_eq!(from.as_socket(), Some(filler), "a client was in the queue");
        drop((first, self.filler));
        self.listener.listen(BACKLOG).expect("a longer backlog");
        self.listener.into()
    }
}

impl Default for HangingListener {
    fn default() -> Self {
        Self::new()
    }
}

/// An address that refuses every connect, held so that no other socket gets its port.
#[derive(Debug)]
pub struct RefusedAddress {
    _bound: Socket,
    addr: SocketAddr,
}

impl RefusedAddress {
    /// Where connects are refused.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

/// A free port of 127.0.0.1 with no listener: a socket is bound to it and does not listen, to
/// which the kernel answers with RST, so that a connect fails with `ECONNREFUSED`.
///
/// # Panics
///
/// When no port can be bound.
#[must_use]
pub fn refused_address() -> RefusedAddress {
    let (socket, addr) = bound();
    RefusedAddress {
        _bound: socket,
        addr,
    }
}

fn bound() -> (Socket, SocketAddr) {
    let bind = || -> io::Result<_> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        socket.bind(&SockAddr::from(any))?;
        let addr = socket.local_addr()?.as_socket();
        Ok((socket, addr.ok_or(io::ErrorKind::AddrNotAvailable)?))
    };
    bind().expect("a free port of 127.0.0.1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Server;
    use std::thread;
    use std::time::{Duration, Instant};

    #[test]
    fn connects_to_a_hanging_listener_stay_in_progress() {
        let hanging = HangingListener::new();
        let addr = hanging.addr();
        let connects: Vec<_> = (0..4)
            .map(|_| {
                thread::spawn(move || {
                    TcpStream::connect_timeout(&addr, Duration::from_millis(400)).map(drop)
                })
            })
            .collect();
        for connect in connects {
            let error = connect.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        }
    }

    /// A nonblocking connect, whose first SYN has been sent.
    fn begin_connect(addr: SocketAddr) -> Socket {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        let error = socket.connect(&addr.into()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(115), "EINPROGRESS");
        socket
    }

    #[test]
    fn a_nonblocking_connect_to_a_hanging_listener_has_no_outcome_yet() {
        let hanging = HangingListener::new();
        let socket = begin_connect(hanging.addr());
        let end = Instant::now() + Duration::from_millis(300);
        eventually(DEADLINE, || {
            assert!(socket.peer_addr().is_err(), "connected");
            assert!(socket.take_error().unwrap().is_none(), "failed");
            Instant::now() > end
        });
    }

    #[test]
    fn a_hanging_connect_finishes_once_the_listener_is_let_go() {
        let hanging = HangingListener::new();
        let client = begin_connect(hanging.addr());
        let server = Server::script_on(hanging.into_listener(), |peer| peer.stall());
        server.wait_until(|counts| counts.accepted == 1);
        assert!(client.peer_addr().is_ok());
        drop(client);
        server.finish();
    }

    #[test]
    fn a_refused_address_refuses_every_time() {
        let refused = refused_address();
        for _ in 0..3 {
            let error = TcpStream::connect(refused.addr()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        }
    }
}
