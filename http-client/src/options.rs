/// What a request says of itself beyond its head, in its
/// [extensions](http::Request::extensions_mut).
///
/// ```
/// use http_client::{Body, RequestOptions};
///
/// let mut request = http::Request::post("http://payments.example/").body(Body::full("42"))?;
/// // It carries a key by which the server knows a repetition.
/// request.extensions_mut().insert(RequestOptions::new().idempotent(true));
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestOptions {
    idempotent: Option<bool>,
}

impl RequestOptions {
    /// Nothing: all is as the head says.
    #[must_use]
    pub const fn new() -> Self {
        Self { idempotent: None }
    }

    /// Whether sending the request twice has the effect of sending it once. Default: as its method
    /// says, [`is_idempotent`](crate::is_idempotent).
    #[must_use]
    pub const fn idempotent(mut self, yes: bool) -> Self {
        self.idempotent = Some(yes);
        self
    }

    pub(crate) const fn is_idempotent(&self) -> Option<bool> {
        self.idempotent
    }
}
