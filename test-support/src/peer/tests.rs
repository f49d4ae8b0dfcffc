use super::*;
use crate::gate::Gate;
use crate::scripts::OK;
use crate::server::Server;
use crate::testing::{Client, GET};
use std::sync::mpsc;

#[test]
fn a_head_is_read_across_pieces_and_the_rest_is_kept() {
    let (sender, heads) = mpsc::channel();
    let server = Server::script(move |peer| {
        while let Some(head) = peer.read_request_head()? {
            sender.send(head).unwrap();
        }
        Ok(())
    });
    let mut client = Client::new(&server);
    let (left, right) = GET.split_at(GET.len() - 2);
    client.send(left);
    client.send(&[right, GET].concat());
    assert_eq!(heads.recv().unwrap(), GET);
    assert_eq!(heads.recv().unwrap(), GET);
    drop(client);
    server.finish();
}

#[test]
fn a_request_is_read_with_its_body() {
    let (sender, requests) = mpsc::channel();
    let server = Server::script(move |peer| {
        while let Some(request) = peer.read_request()? {
            sender.send(request).unwrap();
        }
        Ok(())
    });
    let mut client = Client::new(&server);
    client.send(b"PUT /a HTTP/1.1\r\ncontent-LENGTH: 3\r\n\r\nabc");
    client.send(b"PUT /b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(b"4;e=1\r\nwiki\r\n5\r\npedia\r\n0\r\nT: v\r\n\r\n");
    let (a, b) = (requests.recv().unwrap(), requests.recv().unwrap());
    assert_eq!(a.line(), "PUT /a HTTP/1.1");
    assert_eq!(a.header("Content-Length").as_deref(), Some("3"));
    assert_eq!(a.body, b"abc");
    assert_eq!(b.body, b"wikipedia");
    assert_eq!(b.header("Content-Length"), None);
    drop(client);
    server.finish();
}

#[test]
fn bytes_are_read_by_number_and_to_the_end() {
    let server = Server::script(|peer| {
        assert_eq!(peer.read_exact(3)?, b"abc");
        assert_eq!(peer.read_until_eof()?, b"defg");
        peer.send("done")
    });
    let mut client = Client::new(&server);
    client.send(b"abcdefg");
    client.fin();
    client.expect(b"done");
    client.expect_eof();
    assert_eq!(server.wait_until(|counts| counts.open == 0).eofs, 1);
    server.finish();
}

#[test]
fn slow_sends_arrive_whole() {
    let server = Server::script(|peer| peer.send_slowly(OK, 7, Duration::from_millis(1)));
    let mut client = Client::new(&server);
    client.expect(OK);
    client.expect_eof();
    server.finish();
}

#[test]
fn after_a_fin_the_script_reads_on() {
    let server = Server::script(|peer| {
        peer.fin()?;
        assert_eq!(peer.read_exact(4)?, b"late");
        Ok(())
    });
    let mut client = Client::new(&server);
    client.expect_eof();
    client.send(b"late");
    client.fin();
    server.wait_until(|counts| counts.open == 0);
    server.finish();
}

#[test]
fn close_sends_a_fin_and_goes_on_with_the_script() {
    let gate = Gate::new();
    let held = gate.clone();
    let server = Server::script(move |peer| {
        peer.close()?;
        peer.wait_at(&held)?;
        assert!(peer.send("x").is_err());
        Ok(())
    });
    let mut client = Client::new(&server);
    client.expect_eof();
    assert_eq!(server.counts().open, 0);
    gate.open();
    server.finish();
}

#[test]
fn reset_delivers_what_was_sent_before() {
    let server = Server::script(|peer| {
        peer.send(OK)?;
        peer.reset()
    });
    let mut client = Client::new(&server);
    server.wait_until(|counts| counts.accepted == 1 && counts.open == 0);
    client.expect(OK);
    client.expect_reset();
    server.finish();
}

#[test]
fn wait_closed_tells_fin_from_rst() {
    let (sender, closes) = mpsc::channel();
    let server = Server::script(move |peer| {
        sender.send(peer.wait_closed()?).unwrap();
        Ok(())
    });
    let mut client = Client::new(&server);
    client.send(b"thrown away");
    drop(client);
    assert_eq!(closes.recv().unwrap(), Closed::Eof);
    Client::new(&server).reset();
    assert_eq!(closes.recv().unwrap(), Closed::Reset);
    let counts = server.wait_until(|counts| counts.open == 0);
    assert_eq!((counts.eofs, counts.resets), (1, 1));
    server.finish();
}

#[test]
fn a_script_reports_a_step_by_opening_a_gate() {
    let gate = Gate::new();
    let reached = gate.clone();
    let server = Server::script(move |peer| {
        peer.read_request_head()?;
        reached.open();
        peer.stall()
    });
    let mut client = Client::new(&server);
    client.send(GET);
    gate.wait();
    assert_eq!(server.counts().requests, 1);
    drop(client);
    server.finish();
}

#[test]
fn a_client_that_resets_during_a_send_ends_the_script_quietly() {
    let server = Server::script(|peer| {
        loop {
            peer.send([0; 4096])?;
        }
    });
    let mut client = Client::new(&server);
    client.expect(&[0; 4096]);
    client.reset();
    let counts = server.wait_until(|counts| counts.open == 0);
    assert_eq!(counts.resets, 1);
    server.finish();
}
