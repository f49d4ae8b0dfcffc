//! The body of a response as a stream of its data.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use http_body::Body as _;
use pool_core::Connector;

use crate::error::Error;
use crate::incoming::IncomingBody;
use crate::transport::Transport;

/// The data of a response body, without its trailers: what
/// [`into_data_stream`](IncomingBody::into_data_stream) makes of one.
///
/// It ends after the first error. Dropping it drops the body, with what follows for the
/// connection.
pub struct DataStream<C: Connector>(IncomingBody<C>)
where
    C::Connection: Transport;

impl<C: Connector> IncomingBody<C>
where
    C::Connection: Transport,
{
    /// The body as a stream of its data. Trailers are dropped.
    ///
    /// ```
    /// # use http::Request;
    /// # use http_client::{Body, Client, ClientConfig, TcpConnector};
    /// # use pool_core::{ConnectOptions, Core, Pool, PoolConfig};
    /// # use test_support::{Server, keep_alive_ok};
    /// use futures_lite::StreamExt;
    ///
    /// # let server = Server::script(keep_alive_ok());
    /// # let uri = format!("http://{}/", server.addr());
    /// # let length = Core::builder().run(|core| async move {
    /// #     let connector = TcpConnector::new(&core, ConnectOptions::default());
    /// #     let pool = Pool::new(&core, PoolConfig::default(), connector);
    /// #     let client = Client::new(pool, ClientConfig::default());
    /// #     let request = Request::get(uri).body(Body::empty())?;
    /// let response = client.send(request).await?;
    /// let mut data = response.into_body().into_data_stream();
    /// let length = data.try_fold(0, |sum, data| Ok(sum + data.len())).await?;
    /// #     Ok::<_, Box<dyn std::error::Error>>(length)
    /// # })?.unwrap();
    /// # assert_eq!(length, 2);
    /// # Ok::<(), pool_core::StartError>(())
    /// ```
    #[must_use]
    pub fn into_data_stream(self) -> DataStream<C> {
        DataStream(self)
    }
}

impl<C: Connector> Stream for DataStream<C>
where
    C::Connection: Transport,
{
    type Item = Result<Bytes, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let body = &mut self.get_mut().0;
        loop {
            match ready!(Pin::new(&mut *body).poll_frame(cx)) {
                None => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Poll::Ready(Some(Ok(data)));
                    }
                }
            }
        }
    }
}

impl<C: Connector> fmt::Debug for DataStream<C>
where
    C::Connection: Transport,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DataStream").field(&self.0).finish()
    }
}
