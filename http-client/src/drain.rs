//! Responses that nobody wants any more.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http_codec::ResponseEvent;
use pool_core::{Connector, Sleep};

use crate::client::ClientConfig;
use crate::exchange::Exchange;
use crate::transport::Transport;

/// How much is read of a response that nobody wants, so that its connection can be used again.
///
/// A response body that is dropped before its end leaves the rest of itself on the connection. Where
/// that is little, reading it costs less than a new connection.
///
/// ```
/// # use std::time::Duration;
/// use http_client::{ClientConfig, DrainLimits};
///
/// let config = ClientConfig::default()
///     .drain_limits(DrainLimits::new(4 << 10, Duration::from_millis(20)));
/// let closes_at_once = ClientConfig::default().drain_limits(DrainLimits::NONE);
/// # let _ = (config, closes_at_once);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainLimits {
    bytes: u64,
    time: Duration,
}

impl Default for DrainLimits {
    /// 64 KiB within 100 ms.
    fn default() -> Self {
        Self::new(64 << 10, Duration::from_millis(100))
    }
}

impl DrainLimits {
    /// Nothing is read: the connection closes.
    pub const NONE: Self = Self::new(0, Duration::ZERO);

    /// Reads at most `bytes` bytes and waits at most `time` for them. Where more is known to be
    /// left, nothing is read. Of a body in chunks their sizes count, too.
    ///
    /// With 0 bytes nothing is read at all; with no time, what has come in already.
    #[must_use]
    pub const fn new(bytes: u64, time: Duration) -> Self {
        Self { bytes, time }
    }
}

impl ClientConfig {
    /// How much is read of a response body that is dropped before its end, or that a retry follows,
    /// before its connection is closed. Default: [`DrainLimits::default`].
    #[must_use]
    pub fn drain_limits(mut self, limits: DrainLimits) -> Self {
        self.drain_limits = limits;
        self
    }
}

/// Lets go of a response of which so many bytes are left, as far as that is known. It is read to
/// its end within the limits if the connection can be used again then; otherwise the connection
/// closes.
pub(crate) fn let_go<C: Connector>(exchange: Box<Exchange<C>>, left: Option<u64>)
where
    C::Connection: Transport,
{
    if exchange.is_over() {
        return exchange.finish();
    }
    let limits = exchange.drain_limits();
    let few = limits.bytes > 0 && left.is_none_or(|left| left <= limits.bytes);
    if !few || !exchange.may_be_kept() {
        return drop(exchange);
    }
    let core = exchange.core().clone();
    // Where the core is at its end the task is dropped, and the connection with it.
    core.spawn(async move {
        let mut draining = Draining {
            until: exchange.bytes_decoded().saturating_add(limits.bytes),
            time: limits.time,
            timer: None,
            exchange,
        };
        match poll_fn(|cx| draining.poll(cx)).await {
            true => draining.exchange.finish(),
            false => drop(draining.exchange.fail()),
        }
    });
}

struct Draining<C: Connector> {
    exchange: Box<Exchange<C>>,
    /// How far the bytes of the response may reach.
    until: u64,
    time: Duration,
    timer: Option<Sleep>,
}

impl<C: Connector> Draining<C>
where
    C::Connection: Transport,
{
    /// Ready with whether the response has come to its end within the limits.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        loop {
            match self.exchange.poll_event(cx) {
                Poll::Pending => break,
                Poll::Ready(Ok(ResponseEvent::End(_))) => return Poll::Ready(true),
                Poll::Ready(Err(_)) => return Poll::Ready(false),
                Poll::Ready(Ok(_)) if self.exchange.bytes_decoded() > self.until => {
                    return Poll::Ready(false);
                }
                Poll::Ready(Ok(_)) => {}
            }
        }
        let (core, time) = (self.exchange.core(), self.time);
        let timer = self.timer.get_or_insert_with(|| core.sleep(time));
        Pin::new(timer).poll(cx).map(|()| false)
    }
}
