//! What the kernel says about IPv4 sockets: by a peek, and by its own table.
//!
//! The table is slow to read where there are many sockets, but shows what no safe call of the
//! standard library does: that a client's FIN has arrived behind bytes that nobody read, without
//! reading them, and how full the accept queue of a listener is.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use socket2::SockRef;

/// The two ends of a connection, ours first.
pub(crate) type Ends = (SocketAddr, SocketAddr);

/// How the client left a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Its FIN has arrived.
    Fin,
    /// The kernel does not know the connection any more.
    Gone,
}

/// What a look at the receive queue of a connection tells about the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peeked {
    /// Nothing to read: the client has not closed.
    Open,
    /// Bytes to read: a FIN may stand behind them.
    Bytes,
    /// Its FIN is next.
    Fin,
    /// It has reset, which the kernel tells only once: the next read will see a FIN instead.
    Reset,
}

/// `MSG_PEEK | MSG_DONTWAIT` of Linux.
const PEEK: i32 = 0x02 | 0x40;

/// Looks without taking bytes and without waiting.
pub(crate) fn peek(stream: &TcpStream) -> Peeked {
    let socket = SockRef::from(stream);
    match socket.recv_with_flags(&mut [MaybeUninit::uninit()], PEEK) {
        Ok(0) => Peeked::Fin,
        Ok(_) => Peeked::Bytes,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Peeked::Open,
        Err(_) => Peeked::Reset,
    }
}

const LISTEN: u8 = 0x0a;

/// The states in which the client may still send: established, and after our own FIN.
const CLIENT_OPEN: [u8; 3] = [0x01, 0x04, 0x05];

struct Row {
    ends: Ends,
    state: u8,
    receive_queue: usize,
}

/// How the client left the connection, if it did.
pub(crate) fn left(ends: Ends) -> Option<Left> {
    departures(&[ends])[0]
}

/// How many of the connections the clients have left.
pub(crate) fn count_left(connections: &[Ends]) -> usize {
    let departed = departures(connections);
    departed.iter().flatten().count()
}

/// How many connections wait in the accept queue of the listener at `addr`.
pub(crate) fn accept_queue(addr: SocketAddr) -> Option<usize> {
    let listener = table()
        .into_iter()
        .find(|row| row.state == LISTEN && row.ends.0 == addr)?;
    // For a listener, this column is the length of the accept queue.
    Some(listener.receive_queue)
}

fn departures(connections: &[Ends]) -> Vec<Option<Left>> {
    let first = look(connections);
    if first.iter().all(Option::is_none) {
        return first;
    }
    // The table is read in pieces while sockets come and go, so that it can miss a row. Only what
    // two readings agree on is believed.
    let second = look(connections);
    first
        .into_iter()
        .zip(second)
        .map(|(first, second)| first.and(second))
        .collect()
}

fn look(connections: &[Ends]) -> Vec<Option<Left>> {
    let states: HashMap<Ends, u8> = table().iter().map(|row| (row.ends, row.state)).collect();
    connections
        .iter()
        .map(|ends| match states.get(ends) {
            None => Some(Left::Gone),
            Some(state) if CLIENT_OPEN.contains(state) => None,
            Some(_) => Some(Left::Fin),
        })
        .collect()
}

fn table() -> Vec<Row> {
    let text = fs::read_to_string("/proc/net/tcp").expect("the kernel's table of TCP sockets");
    text.lines().skip(1).filter_map(row).collect()
}

fn row(line: &str) -> Option<Row> {
    let mut columns = line.split_ascii_whitespace().skip(1);
    let ends = (address(columns.next()?)?, address(columns.next()?)?);
    let state = u8::from_str_radix(columns.next()?, 16).ok()?;
    let (_, receive_queue) = columns.next()?.split_once(':')?;
    let receive_queue = usize::from_str_radix(receive_queue, 16).ok()?;
    Some(Row {
        ends,
        state,
        receive_queue,
    })
}

fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    // The kernel prints the address, which it keeps in network order, as a number of the host.
    let ip = u32::from_str_radix(ip, 16).ok()?.to_ne_bytes();
    let port = u16::from_str_radix(port, 16).ok()?;
    Some((Ipv4Addr::from(ip), port).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::{DEADLINE, eventually};
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::Duration;

    fn pair() -> (TcpStream, TcpStream, Ends) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (ours, from) = listener.accept().unwrap();
        let ends = (ours.local_addr().unwrap(), from);
        (client, ours, ends)
    }

    #[test]
    fn an_open_connection_is_not_left() {
        let (_client, _ours, ends) = pair();
        assert_eq!(left(ends), None);
    }

    #[test]
    fn a_fin_behind_unread_bytes_is_seen() {
        let (mut client, _ours, ends) = pair();
        client.write_all(b"unread").unwrap();
        drop(client);
        eventually(DEADLINE, || left(ends) == Some(Left::Fin));
        assert_eq!(count_left(&[ends, ends]), 2);
    }

    #[test]
    fn a_peek_tells_fin_bytes_and_rst_apart() {
        let (mut client, mut ours, _) = pair();
        assert_eq!(peek(&ours), Peeked::Open);
        client.write_all(b"x").unwrap();
        eventually(DEADLINE, || peek(&ours) == Peeked::Bytes);
        drop(client);
        ours.read_exact(&mut [0]).unwrap();
        eventually(DEADLINE, || peek(&ours) == Peeked::Fin);

        let (client, mut ours, _) = pair();
        SockRef::from(&client)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(client);
        eventually(DEADLINE, || peek(&ours) == Peeked::Reset);
        assert_eq!(ours.read(&mut [0]).unwrap(), 0, "told only once");
    }

    #[test]
    fn the_accept_queue_of_a_listener_is_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        assert_eq!(accept_queue(addr), Some(0));
        let _client = TcpStream::connect(addr).unwrap();
        eventually(DEADLINE, || accept_queue(addr) == Some(1));
        drop(listener);
        assert_eq!(accept_queue(addr), None);
    }
}
