use super::*;
use crate::server::Server;
use crate::testing::{Client, GET};
use std::thread;

/// A server with the script at a gate, and a client that has `n` answers.
fn after(n: usize, then: Then) -> (Server, Gate, Client) {
    let gate = Gate::new();
    let server = Server::script(respond_then_at(n, &gate, then));
    let mut client = Client::new(&server);
    for _ in 0..n {
        client.get();
    }
    (server, gate, client)
}

#[test]
fn keep_alive_ok_answers_every_request_on_one_connection() {
    let server = Server::script(keep_alive_ok());
    let mut client = Client::new(&server);
    client.get();
    client.send(b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody");
    client.expect(OK);
    client.send(&[GET, GET].concat());
    client.expect(&[OK, OK].concat());
    drop(client);
    let counts = server.wait_until(|counts| counts.open == 0);
    assert_eq!((counts.accepted, counts.requests), (1, 4));
    server.finish();
}

#[test]
fn keep_alive_tagged_names_connection_and_request() {
    let server = Server::script(keep_alive_tagged());
    let mut one = Client::new(&server);
    one.send(GET);
    one.expect(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nR-1-1");
    let mut two = Client::new(&server);
    two.send(&[GET, GET].concat());
    two.expect(&[tagged_answer(2, 1), tagged_answer(2, 2)].concat());
    drop((one, two));
    server.finish();
}

#[test]
fn fin_and_reset_come_unasked_once_the_gate_opens() {
    let (server, gate, mut client) = after(2, Then::Fin);
    gate.wait_for_arrivals(1);
    client.expect_silence();
    gate.open();
    client.expect_eof();
    drop(client);
    server.wait_until(|counts| counts.eofs == 1 && counts.open == 0);
    server.finish();

    let (server, gate, mut client) = after(1, Then::Reset);
    gate.wait_for_arrivals(1);
    client.expect_silence();
    gate.open();
    client.expect_reset();
    server.finish();
}

#[test]
fn stray_bytes_come_unasked_and_the_connection_stays() {
    let (server, gate, mut client) = after(1, Then::StrayBytes);
    gate.open();
    client.expect(STRAY);
    client.expect_silence();
    assert_eq!(server.counts().open, 1);
    drop(client);
    server.finish();
}

#[test]
fn fin_and_reset_before_the_head_wait_for_the_request() {
    let (server, gate, mut client) = after(1, Then::FinBeforeHead);
    gate.open();
    client.expect_silence();
    client.send(GET);
    client.expect_eof();
    server.finish();

    let (server, gate, mut client) = after(0, Then::ResetBeforeHead);
    gate.open();
    client.expect_silence();
    client.send(GET);
    client.expect_reset();
    server.finish();
}

#[test]
fn answers_can_break_off_in_the_body() {
    let (server, gate, mut client) = after(1, Then::ResetMidBody);
    client.send(GET);
    client.expect(&[HEAD_OF_TEN, HALF_OF_TEN].concat());
    client.expect_silence();
    gate.open();
    client.expect_reset();
    server.finish();

    let (server, gate, mut client) = after(0, Then::FinMidBody);
    gate.open();
    client.send(GET);
    client.expect(&[HEAD_OF_TEN, HALF_OF_TEN].concat());
    client.expect_eof();
    server.finish();
}

#[test]
fn answers_can_stall_and_then_the_close_is_seen() {
    let cases: [(Then, &[&[u8]]); 3] = [
        (Then::StallBeforeHead, &[]),
        (Then::StallAfterHead, &[HEAD_OF_TEN]),
        (Then::StallMidBody, &[HEAD_OF_TEN, HALF_OF_TEN]),
    ];
    for (then, sent) in cases {
        let (server, gate, mut client) = after(1, then);
        gate.open();
        client.send(GET);
        client.expect(&sent.concat());
        let counts = server.wait_until(|counts| counts.requests == 2);
        assert_eq!((counts.open, counts.in_progress), (1, 1), "{then:?}");
        client.expect_silence();
        drop(client);
        let counts = server.wait_until(|counts| counts.open == 0);
        assert_eq!((counts.eofs, counts.in_progress), (1, 0), "{then:?}");
        server.finish();
    }
}

#[test]
fn a_connection_close_answer_leaves_the_socket_open() {
    let server = Server::script(respond_then(0, Then::ConnectionClose));
    let mut client = Client::new(&server);
    client.send(GET);
    client.expect(OK_CLOSE);
    client.expect_silence();
    assert_eq!(server.counts().open, 1);
    drop(client);
    server.wait_until(|counts| counts.eofs == 1 && counts.open == 0);
    server.finish();
}

#[test]
fn never_answer_reads_and_stays_silent() {
    let server = Server::script(never_answer());
    let mut client = Client::new(&server);
    client.send(GET);
    // More than the buffers of a connection hold.
    client.send(&vec![0; 32 << 20]);
    server.wait_until(|counts| counts.requests == 1);
    client.expect_silence();
    drop(client);
    server.wait_until(|counts| counts.eofs == 1);
    server.finish();
}

#[test]
fn never_read_lets_a_large_send_block_and_sees_the_close() {
    let server = Server::script(never_read());
    let mut client = Client::new(&server);
    client.0.set_nonblocking(true).unwrap();
    let blocked = loop {
        if let Err(error) = io::Write::write(&mut client.0, &[0; 65536]) {
            break error;
        }
    };
    assert_eq!(blocked.kind(), io::ErrorKind::WouldBlock);
    client.0.set_nonblocking(false).unwrap();
    client.reset();
    server.wait_until(|counts| counts.resets == 1 && counts.open == 0);

    drop(Client::new(&server));
    server.wait_until(|counts| counts.eofs == 1 && counts.open == 0);
    server.finish();
}

#[test]
fn answer_together_waits_for_parallel_requests_group_by_group() {
    let server = Server::script(answer_together(3));
    for _ in 0..2 {
        let mut clients: Vec<_> = (0..3).map(|_| Client::new(&server)).collect();
        clients[0].send(GET);
        clients[1].send(GET);
        server.wait_until(|counts| counts.in_progress == 2);
        clients[0].expect_silence();
        clients[2].send(GET);
        for client in &mut clients {
            client.expect(OK);
        }
    }
    assert_eq!(server.counts().highest_in_progress, 3);
    server.finish();
}

#[test]
fn first_connections_get_a_script_of_their_own() {
    let server = Server::script(first_connections(
        2,
        respond_then(0, Then::FinBeforeHead),
        keep_alive_ok(),
    ));
    for _ in 0..2 {
        let mut client = Client::new(&server);
        client.send(GET);
        client.expect_eof();
    }
    Client::new(&server).get();
    server.finish();
}

#[test]
fn ungated_faults_reach_many_clients_at_once() {
    let server = Server::script(respond_then(1, Then::Reset));
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let mut client = Client::new(&server);
                client.get();
                client.expect_reset();
            });
        }
    });
    let counts = server.wait_until(|counts| counts.open == 0);
    assert_eq!((counts.accepted, counts.requests), (20, 20));
    server.finish();
}
