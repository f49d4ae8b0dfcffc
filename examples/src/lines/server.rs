//! A small server of lines, with a thread per connection and nothing of the engine.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// A server of lines on a port of its own of this machine.
#[derive(Debug)]
#[must_use = "it runs until it is stopped"]
pub struct LineServer {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
    accepting: thread::JoinHandle<u64>,
}

impl LineServer {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// What the system refuses.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopping);
        let accepting = thread::Builder::new()
            .name("line-server".to_owned())
            .spawn(move || accept(&listener, &stop))?;
        Ok(Self {
            address,
            stopping,
            accepting,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops it once its clients have closed their connections, and tells how many it accepted.
    #[must_use]
    pub fn stop(self) -> u64 {
        self.stopping.store(true, Ordering::Release);
        // Its accept blocks until somebody comes. If nobody can, it is not waited for.
        match TcpStream::connect(self.address) {
            Ok(_) => self.accepting.join().unwrap_or_default(),
            Err(_) => 0,
        }
    }
}

fn accept(listener: &TcpListener, stopping: &AtomicBool) -> u64 {
    let mut accepted = 0;
    thread::scope(|scope| {
        for stream in listener.incoming() {
            if stopping.load(Ordering::Acquire) {
                return;
            }
            if let Ok(stream) = stream {
                accepted += 1;
                // A client that has gone away needs no answer.
                scope.spawn(move || drop(serve(&stream)));
            }
        }
    });
    accepted
}

fn serve(mut stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.write_all(b"READY\n")?;
    for line in BufReader::new(stream).lines() {
        let answer = match line?.as_str() {
            "PING" => "PONG\n".to_owned(),
            question => question.to_uppercase() + "\n",
        };
        stream.write_all(answer.as_bytes())?;
    }
    Ok(())
}
