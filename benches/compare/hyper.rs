//! A reverse proxy of hyper and the pooling client of hyper-util on one thread, for `compare`:
//! `compare_hyper LISTEN UPSTREAM`. It does what a user of the two would write first: the hop's
//! fields are taken out, the body is passed on as it comes, a failure is a 502.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;

use bytes::Bytes;
use http::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::uri::{Authority, Scheme};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::Either;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpListener;

type Upstream = Client<HttpConnector, Incoming>;
type Answer = Response<Either<Incoming, Empty<Bytes>>>;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(listen), Some(upstream)) = (arguments.next(), arguments.next()) else {
        return Err("usage: compare_hyper LISTEN UPSTREAM, both as ADDRESS:PORT".into());
    };
    let listen: SocketAddr = listen.parse()?;
    let upstream: Authority = upstream.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(listen, upstream))
}

async fn serve(listen: SocketAddr, upstream: Authority) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(listen).await?;
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Upstream = Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .build(connector);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (client, upstream) = (client.clone(), upstream.clone());
        let service = service_fn(move |request| forward(client.clone(), upstream.clone(), request));
        tokio::spawn(async move {
            // A client that leaves in the middle is none of the others' business.
            let _ = http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn forward(
    client: Upstream,
    upstream: Authority,
    mut request: Request<Incoming>,
) -> Result<Answer, Infallible> {
    let mut uri = std::mem::take(request.uri_mut()).into_parts();
    uri.scheme = Some(Scheme::HTTP);
    uri.authority = Some(upstream);
    let Ok(uri) = Uri::from_parts(uri) else {
        return Ok(empty(StatusCode::BAD_REQUEST));
    };
    *request.uri_mut() = uri;
    *request.version_mut() = http::Version::HTTP_11;
    remove_hop_fields(request.headers_mut());
    match client.request(request).await {
        Ok(mut response) => {
            remove_hop_fields(response.headers_mut());
            Ok(response.map(Either::Left))
        }
        Err(_) => Ok(empty(StatusCode::BAD_GATEWAY)),
    }
}

/// RFC 9110, section 7.6.1: the fields that concern one connection only, those included that
/// `Connection` names.
fn remove_hop_fields(fields: &mut HeaderMap) {
    const HOP: [HeaderName; 7] = [
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
        TE,
        TRAILER,
        TRANSFER_ENCODING,
        UPGRADE,
        HeaderName::from_static("keep-alive"),
    ];
    let connection: Vec<HeaderValue> = fields.get_all(CONNECTION).iter().cloned().collect();
    let named = connection.iter().filter_map(|value| value.to_str().ok());
    for name in named.flat_map(|value| value.split(',')) {
        fields.remove(name.trim());
    }
    fields.remove(CONNECTION);
    for name in &HOP {
        fields.remove(name);
    }
}

fn empty(status: StatusCode) -> Answer {
    let mut response = Response::new(Either::Right(Empty::new()));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_the_hop_are_removed_and_those_of_the_message_are_kept() {
        let mut fields = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, x-hop"),
            ("x-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("host", "a"),
        ] {
            fields.insert(name, HeaderValue::from_static(value));
        }
        remove_hop_fields(&mut fields);
        assert_eq!(fields.len(), 1);
        assert!(fields.contains_key("host"));
    }
}
