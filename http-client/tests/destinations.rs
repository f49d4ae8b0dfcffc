//! What a URI says of where a request goes: which connection it takes, and its `Host`.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use common::*;
use http::Request;
use http_client::{Body, Client, Destination, ErrorKind, Phase, Sent};
use pool_core::{ConnectOptions, Connector, Core, Pool, TcpStream};
use test_support::{OK, Server};

/// Connects to one server, whatever the destination, and notes what that was.
struct Everywhere {
    core: Core,
    server: SocketAddr,
    asked: Rc<RefCell<Vec<(String, u16)>>>,
}

impl Connector for Everywhere {
    type Key = Destination;
    type Connection = TcpStream;
    type Error = io::Error;

    async fn connect(&self, key: &Destination) -> io::Result<TcpStream> {
        let asked = (key.host().to_owned(), key.port());
        self.asked.borrow_mut().push(asked);
        TcpStream::connect(&self.core, self.server, &ConnectOptions::default()).await
    }
}

/// Sends a GET to each of `uris` in turn; what destinations a connection was made to, and the
/// `Host` of each request.
fn ask(uris: &'static [&'static str]) -> (Vec<(String, u16)>, Vec<String>) {
    let hosts = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&hosts);
    let server = Server::script(move |peer| {
        while let Some(request) = peer.read_request()? {
            seen.lock().unwrap().push(request.header("host").unwrap());
            peer.answer(OK)?;
        }
        Ok(())
    });
    let server = server.addr();
    let main = move |core: Core| async move {
        let asked = Rc::default();
        let connector = Everywhere {
            core: core.clone(),
            server,
            asked: Rc::clone(&asked),
        };
        let pool = Pool::new(&core, pool_config().build().unwrap(), connector);
        let client = Client::new(pool, client_config());
        for uri in uris {
            let request = Request::get(*uri).body(Body::empty()).unwrap();
            let response = client.send(request).await.unwrap();
            assert_eq!(response.into_body().bytes(9).await.unwrap(), "ok");
        }
        asked.take()
    };
    let asked = Core::builder().run(main).unwrap();
    let hosts = hosts.lock().unwrap().clone();
    (asked, hosts)
}

#[test]
fn spellings_of_one_destination_share_a_connection_and_a_host() {
    for (uris, asked, host) in [
        (
            &[
                "http://a.example",
                "http://a.example:80/b",
                "http://A.Example:/?c",
                "HTTP://a.EXAMPLE:080/",
            ][..],
            ("a.example", 80),
            "a.example",
        ),
        (
            &["http://a.example:8080", "http://A.example:08080/b"],
            ("a.example", 8080),
            "a.example:8080",
        ),
        (
            &[
                "http://[2001:db8::1]/",
                "http://[2001:DB8::1]:80",
                "http://[2001:0db8:0:0:0:0:0:1]",
            ],
            ("2001:db8::1", 80),
            "[2001:db8::1]",
        ),
        (
            &["http://[::1]:81/", "http://[::1]:081/b"],
            ("::1", 81),
            "[::1]:81",
        ),
        (
            &["http://127.0.0.1:443/"],
            ("127.0.0.1", 443),
            "127.0.0.1:443",
        ),
    ] {
        let (connected, hosts) = ask(uris);
        assert_eq!(connected, [(asked.0.to_owned(), asked.1)], "{uris:?}");
        assert_eq!(hosts, vec![host; uris.len()], "{uris:?}");
    }
}

#[test]
fn different_destinations_share_nothing() {
    let uris = &[
        "http://a.example",
        "http://a.example:81",
        "http://b.example",
        "http://[::1]",
        "http://[::2]",
    ];
    let (connected, hosts) = ask(uris);
    assert_eq!(connected.len(), uris.len());
    let expected = ["a.example", "a.example:81", "b.example", "[::1]", "[::2]"];
    assert_eq!(hosts, expected);
}

#[test]
fn user_name_and_what_is_no_destination_are_refused_before_a_connection_is_made() {
    let server = Server::script(test_support::keep_alive_ok());
    let address = server.addr();
    with_client(pool_config(), client_config(), |_, client| async move {
        for uri in [
            format!("http://me@{address}/"),
            format!("http://me:secret@{address}/"),
            format!("http://:@{address}/"),
            format!("https://{address}/"),
            format!("http://127.0.0.1:{}/", 0),
            "http://[127.0.0.1]/".to_owned(),
            "/b".to_owned(),
        ] {
            let request = Request::get(&uri).body(Body::empty()).unwrap();
            let error = client.send(request).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{uri}");
            assert_eq!((error.phase(), error.sent()), (Phase::Prepare, Sent::None));
            let told = format!("{error:?} {error}");
            assert!(!told.contains("secret"), "{told}");
            let source = std::error::Error::source(&error).unwrap().to_string();
            assert_eq!(source.contains("user name"), uri.contains('@'), "{source}");
        }
        assert_eq!(total(&client).opened, 0);
    });
}
