use super::*;
use crate::gate::Gate;
use crate::scripts::{OK, keep_alive_ok};
use crate::testing::{Client, GET};
use std::time::Instant;

/// Far less than any deadline: what a stop may take on a loaded machine.
const PROMPT: Duration = Duration::from_secs(5);

fn panic_text(server: Server) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| server.finish())).unwrap_err();
    panic.downcast_ref::<String>().unwrap().clone()
}

#[test]
fn counts_follow_connections_and_requests() {
    let server = Server::script(keep_alive_ok());
    assert_eq!(server.counts(), Counts::default());
    let mut one = Client::new(&server);
    let two = Client::new(&server);
    one.get();
    let counts = server.wait_until(|counts| counts.accepted == 2);
    assert_eq!((counts.open, counts.highest_open), (2, 2));
    assert_eq!((counts.requests, counts.in_progress), (1, 0));
    drop(one);
    server.wait_until(|counts| counts.open == 1 && counts.eofs == 1);
    two.reset();
    let counts = server.wait_until(|counts| counts.open == 0);
    assert_eq!((counts.eofs, counts.resets), (1, 1));
    assert_eq!((counts.accepted, counts.highest_open), (2, 2));
    server.finish();
}

#[test]
fn connections_one_after_another_never_count_as_open_together() {
    let server = Server::script(keep_alive_ok());
    for i in 1..=500 {
        let mut client = Client::new(&server);
        // Odd ones close with a request unread: the script has the most left to do.
        client.send(GET);
        if i % 2 == 0 {
            client.expect(OK);
        }
    }
    let counts = server.wait_until(|counts| counts.accepted == 500 && counts.open == 0);
    assert_eq!(counts.highest_open, 1);
    server.finish();
}

#[test]
fn resets_are_counted_as_resets_however_late_the_script_looks() {
    let gate = Gate::new();
    let held = gate.clone();
    let server = Server::script(move |peer| {
        peer.wait_at(&held)?;
        peer.read_request_head().map(drop)
    });
    for _ in 0..20 {
        Client::new(&server).reset();
    }
    let counts = server.wait_until(|counts| counts.accepted == 20);
    assert_eq!((counts.open, counts.highest_open), (20, 1));
    gate.open();
    let counts = server.wait_until(|counts| counts.open == 0);
    assert_eq!((counts.eofs, counts.resets), (0, 20));
    server.finish();
}

#[test]
fn a_close_behind_bytes_that_no_script_reads_is_seen() {
    let gate = Gate::new();
    let held = gate.clone();
    let server = Server::script(move |peer| peer.wait_at(&held));
    for _ in 0..3 {
        Client::new(&server).send(GET);
    }
    let counts = server.wait_until(|counts| counts.accepted == 3);
    assert_eq!((counts.open, counts.highest_open), (3, 1));
    gate.open();
    server.finish();
}

#[test]
fn a_client_that_redials_after_the_servers_close_is_never_counted_twice() {
    let server = Server::script(|peer| {
        peer.read_request_head()?;
        peer.answer(OK)
    });
    for _ in 0..500 {
        let mut client = Client::new(&server);
        client.get();
        client.expect_eof();
    }
    assert_eq!(server.counts().highest_open, 1);
    assert_eq!(server.counts().highest_in_progress, 1);
    server.finish();
}

#[test]
#[should_panic(expected = "did not get there within 5ms: Counts { accepted: 0")]
fn wait_until_panics_with_the_counts() {
    let server = Server::script(keep_alive_ok());
    server.wait_within(Duration::from_millis(5), |counts| counts.accepted == 1);
}

#[test]
fn dropping_the_server_ends_blocked_scripts_and_closes_everything() {
    type Script = fn(&mut Peer) -> io::Result<()>;
    let scripts: [Script; 7] = [
        |peer| peer.read_request_head().map(drop),
        |peer| peer.stall(),
        |peer| peer.stall_without_reading(),
        |peer| peer.wait_closed().map(drop),
        |peer| peer.sleep(Duration::from_secs(3600)),
        |peer| peer.wait_at(&Gate::new()),
        |peer| {
            loop {
                peer.send([0; 65536])?;
            }
        },
    ];
    for (i, script) in scripts.into_iter().enumerate() {
        let server = Server::script(script);
        let addr = server.addr();
        let mut client = Client::new(&server);
        server.wait_until(|counts| counts.open == 1);
        let begun = Instant::now();
        if i % 2 == 0 {
            drop(server);
        } else {
            server.finish();
        }
        assert!(begun.elapsed() < PROMPT, "script {i}");
        io::copy(&mut client.0, &mut io::sink()).unwrap();
        let refused = TcpStream::connect(addr).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}

#[test]
fn a_stop_is_not_counted_as_a_close_of_the_client() {
    let server = Server::script(|peer| peer.stall());
    let shared = server.shared.clone();
    let _client = Client::new(&server);
    server.wait_until(|counts| counts.open == 1);
    server.finish();
    let counts = shared.lock().counts;
    assert_eq!((counts.open, counts.eofs, counts.resets), (0, 0, 0));
}

#[test]
fn finish_panics_with_what_scripts_failed_of() {
    let server = Server::script(|peer| {
        assert_eq!(peer.index(), 1, "planted");
        Err(io::Error::other("refused by the script"))
    });
    Client::new(&server).expect_eof();
    Client::new(&server).expect_eof();
    let text = panic_text(server);
    assert!(text.contains("connection 0: panicked"), "{text}");
    assert!(text.contains("planted"), "{text}");
    assert!(
        text.contains("connection 1: refused by the script"),
        "{text}"
    );
}

#[test]
fn a_request_cut_off_by_the_client_is_a_failure() {
    let server = Server::script(keep_alive_ok());
    let mut client = Client::new(&server);
    client.send(b"GET / HT");
    drop(client);
    server.wait_until(|counts| counts.accepted == 1 && counts.open == 0);
    let text = panic_text(server);
    assert!(text.contains("after 8 bytes of a request head"), "{text}");
}

#[test]
fn stop_listening_refuses_new_connects_and_keeps_the_old() {
    let mut server = Server::script(keep_alive_ok());
    let mut client = Client::new(&server);
    client.get();
    server.stop_listening();
    let refused = TcpStream::connect(server.addr()).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    client.get();
    server.finish();
}

#[test]
fn a_server_comes_back_on_the_address_of_another() {
    let server = Server::script(keep_alive_ok());
    let addr = server.addr();
    let mut client = Client::new(&server);
    client.get();
    server.finish();
    let server = Server::script_at(addr, keep_alive_ok());
    Client::new(&server).get();
    server.finish();
}

#[test]
fn many_connections_are_served_at_once() {
    let server = Server::script(keep_alive_ok());
    let mut clients: Vec<_> = (0..400).map(|_| Client::new(&server)).collect();
    clients.iter_mut().for_each(|client| client.send(GET));
    clients.iter_mut().for_each(|client| client.expect(OK));
    assert_eq!(server.counts().highest_open, 400);
    drop(clients);
    server.wait_until(|counts| counts.open == 0 && counts.eofs == 400);
    server.finish();
}
