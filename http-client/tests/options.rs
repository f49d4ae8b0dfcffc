//! What a request asks for itself, beside what its client is configured for.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::time::Duration;

use bytes::BytesMut;
use common::*;
use http::Request;
use http_client::{
    Backoff, Body, Error, ErrorKind, Outgoing, RequestOptions, RetryTable, Timeouts,
};
use http_codec::{BodyLength, ReasonPhrase, RequestWriter};
use test_support::{OK, Peer, Server, first_connections, keep_alive_ok, never_answer};

fn with_options(mut request: Request<Body>, options: RequestOptions) -> Request<Body> {
    request.extensions_mut().insert(options);
    request
}

fn hurried() -> RequestOptions {
    let limit = Duration::from_millis(20);
    RequestOptions::new().timeouts(Timeouts::builder().total(limit).build().unwrap())
}

/// An encoded request, with what it asks for itself.
async fn exchange(
    client: &TestClient,
    address: std::net::SocketAddr,
    options: RequestOptions,
) -> Result<u16, Error> {
    let mut head = BytesMut::new();
    let mut writer = RequestWriter::new(&mut head, "GET", "/").unwrap();
    writer.field("Host", "test").unwrap();
    let sent = writer.finish(BodyLength::None).unwrap();
    let outgoing = Outgoing::new(head.freeze(), sent, Body::empty()).options(options);
    let to = destination(address);
    let (head, _) = client.exchange(&to, outgoing, |_| {}).await?;
    Ok(head.status())
}

#[test]
fn timeouts_of_a_request_are_its_own() {
    let server = Server::script(first_connections(2, never_answer(), keep_alive_ok()));
    let address = server.addr();
    with_client(pool_config(), client_config(), |core, client| async move {
        let error = exchange(&client, address, hurried()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TotalTimeout);
        let request = with_options(get(address), hurried());
        let error = client.send(request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TotalTimeout);
        // Those of the client are as they were.
        assert_eq!(fetch(&client, get(address)).await.unwrap(), "ok");
        assert_in_order(&core, &client, 2).await;
    });
}

#[test]
fn policy_of_a_request_is_its_own() {
    let server = Server::script(|peer: &mut Peer| {
        while peer.read_request()?.is_some() {
            peer.answer("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n")?;
        }
        Ok(())
    });
    let address = server.addr();
    let policy = |retries| {
        RetryTable::default()
            .retries(retries)
            .backoff(Backoff::NONE)
    };
    let config = client_config().retry(policy(2)).retry_budget(None);
    with_client(pool_config(), config, |_, client| async move {
        let mut asked = 0;
        for (options, attempts) in [
            (RequestOptions::new(), 3),
            (RequestOptions::new().retry(RetryTable::none()), 1),
            (RequestOptions::new().retry(policy(4)), 5),
            // One says nothing of the other.
            (RequestOptions::new().retry(policy(4)).idempotent(false), 1),
            (hurried().timeouts(Timeouts::default()).retry(policy(1)), 2),
        ] {
            let request = with_options(get(address), options.clone());
            let response = client.send(request).await.unwrap();
            assert_eq!(response.body().attempt(), attempts, "{options:?}");
            text(response).await.unwrap();
            assert_eq!(exchange(&client, address, options).await.unwrap(), 503);
            asked += 2 * attempts;
            server.wait_until(|counts| counts.requests == asked as usize);
        }
    });
}

#[test]
fn interim_responses_are_handed_over_and_the_final_one_is_in_step() {
    let server = Server::script(|peer: &mut Peer| {
        while peer.read_request()?.is_some() {
            peer.send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Soon\r\nLink: </a>\r\n\r\n")?;
            peer.send("HTTP/1.1 199 \r\n\r\n")?;
            peer.answer(OK)?;
        }
        Ok(())
    });
    let address = server.addr();
    with_client(pool_config(), client_config(), |core, client| async move {
        for _ in 0..3 {
            let mut told = Vec::new();
            let interim = |head: http::Response<()>| {
                let reason = head.extensions().get::<ReasonPhrase>();
                let reason = reason.map(|phrase| phrase.as_bytes().to_vec());
                let link = head.headers().get("link").cloned();
                told.push((head.status().as_u16(), reason, link));
            };
            let response = client.send_with(get(address), interim).await.unwrap();
            assert_eq!(response.status(), 200);
            assert_eq!(text(response).await.unwrap(), "ok");
            let [hints, soon] = ["</a>", "Soon"];
            let expected = [
                (100, None, None),
                (103, Some(soon.into()), Some(hints.parse().unwrap())),
                (199, Some(Vec::new()), None),
            ];
            assert_eq!(told, expected);
        }
        assert_eq!(total(&client).opened, 1);
        assert_in_order(&core, &client, 2).await;
    });
}
