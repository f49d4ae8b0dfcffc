//! What a request asks for itself, beside what its client is configured for.

use std::fmt;
use std::sync::Arc;

use crate::retry::RetryPolicy;
use crate::timeouts::Timeouts;

/// What a request says of itself beyond its head, and where it differs from the
/// [configuration](crate::ClientConfig) of its client.
///
/// Of a request of the `http` crate they stand in its
/// [extensions](http::Request::extensions_mut); of an encoded one in
/// [`Outgoing::options`](crate::Outgoing::options). A clone shares what the original has.
///
/// ```
/// # use std::time::Duration;
/// use http_client::{Body, RequestOptions, RetryTable, Timeouts};
///
/// let mut payment = http::Request::post("http://payments.example/").body(Body::full("42"))?;
/// // It carries a key by which the server knows a repetition.
/// payment.extensions_mut().insert(RequestOptions::new().idempotent(true));
///
/// let mut question = http::Request::get("http://status.example/").body(Body::empty())?;
/// // An answer that comes late is of no use, and neither is another attempt.
/// let timeouts = Timeouts::builder().total(Duration::from_millis(300)).build()?;
/// let options = RequestOptions::new().timeouts(timeouts).retry(RetryTable::none());
/// question.extensions_mut().insert(options);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct RequestOptions {
    idempotent: Option<bool>,
    /// Shared, and apart from the rest, so that a request without any pays for none.
    overrides: Option<Arc<Overrides>>,
}

/// What stands in the place of the client's configuration.
#[derive(Clone, Default)]
pub(crate) struct Overrides {
    pub(crate) timeouts: Option<Timeouts>,
    pub(crate) retry: Option<Arc<dyn RetryPolicy + Send + Sync>>,
}

impl RequestOptions {
    /// Nothing: all is as the head and the client say.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            idempotent: None,
            overrides: None,
        }
    }

    /// Whether sending the request twice has the effect of sending it once. Default: as its method
    /// says, [`is_idempotent`](crate::is_idempotent).
    #[must_use]
    pub fn idempotent(mut self, yes: bool) -> Self {
        self.idempotent = Some(yes);
        self
    }

    /// How long this request and its parts may take, all of them. Default: the client's
    /// [`Timeouts`].
    #[must_use]
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.overrides_mut().timeouts = Some(timeouts);
        self
    }

    /// When this request is sent again; [`RetryTable::none`](crate::RetryTable::none) for never.
    /// The retry budget and the breaker remain the client's. Default: the client's policy.
    #[must_use]
    pub fn retry(mut self, policy: impl RetryPolicy + Send + Sync + 'static) -> Self {
        self.overrides_mut().retry = Some(Arc::new(policy));
        self
    }

    fn overrides_mut(&mut self) -> &mut Overrides {
        Arc::make_mut(self.overrides.get_or_insert_default())
    }

    pub(crate) fn is_idempotent(&self) -> Option<bool> {
        self.idempotent
    }

    pub(crate) fn into_overrides(self) -> Option<Arc<Overrides>> {
        self.overrides
    }
}

impl fmt::Debug for Overrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let max_attempts = self.retry.as_ref().map(|policy| policy.max_attempts());
        f.debug_struct("Overrides")
            .field("timeouts", &self.timeouts)
            .field("max_attempts", &max_attempts)
            .finish_non_exhaustive()
    }
}
