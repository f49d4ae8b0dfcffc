//! Connectors that do the least.

use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use pool_core::{ConnectOptions, Connection, Connector, Core, Readiness, TcpStream};

/// Connects over TCP.
#[derive(Debug)]
pub struct Tcp(pub Core);

impl Connector for Tcp {
    type Key = SocketAddr;
    type Connection = TcpStream;
    type Error = io::Error;

    async fn connect(&self, key: &SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect(&self.0, *key, &ConnectOptions::default()).await
    }
}

/// Gives out sockets that it has, each to as many connections as it takes: more connections than
/// there are descriptors. Of what a pool does with a connection only the cache lines differ: the
/// connections that share a socket share what is known of its readiness.
#[derive(Debug)]
pub struct Sharing {
    sockets: Vec<Rc<TcpStream>>,
    given: Cell<usize>,
}

impl Sharing {
    /// Opens `sockets` connections to `address`.
    ///
    /// # Errors
    ///
    /// What the kernel answers.
    ///
    /// # Panics
    ///
    /// If `sockets` is 0.
    pub async fn open(core: &Core, address: SocketAddr, sockets: usize) -> io::Result<Self> {
        assert!(sockets > 0, "there has to be a socket to share");
        let options = ConnectOptions::default();
        let mut opened = Vec::with_capacity(sockets);
        for _ in 0..sockets {
            let stream = TcpStream::connect(core, address, &options).await?;
            opened.push(Rc::new(stream));
        }
        Ok(Self {
            sockets: opened,
            given: Cell::new(0),
        })
    }
}

/// A connection of [`Sharing`].
#[derive(Debug)]
pub struct SharedSocket(Rc<TcpStream>);

impl Connection for SharedSocket {
    fn readiness(&self) -> Readiness {
        self.0.readiness()
    }
}

impl Connector for Sharing {
    type Key = SocketAddr;
    type Connection = SharedSocket;
    type Error = Infallible;

    async fn connect(&self, _: &SocketAddr) -> Result<SharedSocket, Infallible> {
        let given = self.given.replace(self.given.get().wrapping_add(1));
        let socket = &self.sockets[given % self.sockets.len()];
        Ok(SharedSocket(Rc::clone(socket)))
    }
}
