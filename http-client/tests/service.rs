//! The client as a service of the tower ecosystem.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::future::poll_fn;
use std::time::Duration;

use common::*;
use futures_lite::future::poll_once;
use http::{Request, Response};
use http_body::Body as _;
use http_client::{Body, ErrorKind};
use test_support::{Server, first_connections, keep_alive_ok, never_answer, refused_address};
use tower_service::Service;

/// What code does that knows the service only by its bounds.
async fn ask<S, B>(mut service: S, request: Request<Body>) -> Result<Response<B>, S::Error>
where
    S: Service<Request<Body>, Response = Response<B>>,
{
    poll_fn(|cx| service.poll_ready(cx)).await?;
    service.call(request).await
}

#[test]
fn client_and_its_reference_are_services() {
    let (server, refused) = (Server::script(keep_alive_ok()), refused_address());
    let (address, nowhere) = (server.addr(), refused.addr());
    with_client(pool_config(), client_config(), |core, client| async move {
        let response = ask(&client, get(address)).await.unwrap();
        assert_eq!(text(response).await.unwrap(), "ok");
        let response = ask(client.clone(), get(address)).await.unwrap();
        assert_eq!(response.body().size_hint().exact(), Some(2));
        assert_eq!(text(response).await.unwrap(), "ok");
        let error = ask(&client, request("POST", nowhere, Body::full("x")));
        assert_eq!(error.await.unwrap_err().kind(), ErrorKind::ConnectRefused);
        assert_in_order(&core, &client, 2).await;
    });
}

#[test]
fn call_outlives_the_service_and_leaves_nothing_when_it_is_dropped() {
    let server = Server::script(first_connections(1, never_answer(), keep_alive_ok()));
    let address = server.addr();
    with_client(pool_config(), client_config(), |core, client| async move {
        let mut unanswered = client.clone().call(get(address));
        while server.counts().requests == 0 {
            assert!(poll_once(&mut unanswered).await.is_none());
            core.sleep(Duration::from_millis(1)).await;
        }
        drop(unanswered);
        // Not polled, it is not sent.
        drop(client.clone().call(get(address)));
        let response = client.clone().call(get(address)).await.unwrap();
        assert_eq!(text(response).await.unwrap(), "ok");
        assert_in_order(&core, &client, 2).await;
        assert_eq!(server.counts().requests, 2);
    });
}
