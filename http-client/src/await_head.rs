//! An exchange until the head of its response has come, under the deadlines of an attempt.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http_codec::{ResponseEvent, ResponseHead};
use pool_core::{Connector, Core, Sleep, Timestamp};

use crate::destination::Destination;
use crate::error::{ErrorKind, Failure};
use crate::exchange::Exchange;
use crate::timer::ProgressTimer;
use crate::transport::Transport;

/// When an attempt is over, and what for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) at: Timestamp,
    pub(crate) kind: ErrorKind,
}

impl Limit {
    /// The earlier of two.
    pub(crate) fn earlier(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) if other.at < one.at => Some(other),
            (one, other) => one.or(other),
        }
    }
}

/// The timer of a limit, set once something has to be waited for.
pub(crate) struct LimitTimer {
    core: Core,
    limit: Option<Limit>,
    timer: Option<Sleep>,
}

impl LimitTimer {
    pub(crate) fn new(core: &Core, limit: Option<Limit>) -> Self {
        Self {
            core: core.clone(),
            limit,
            timer: None,
        }
    }

    /// What it is to be called if it has passed, as far as this turn's reading of the clock tells.
    pub(crate) fn passed(&self) -> Option<Failure> {
        let limit = self.limit.filter(|limit| self.core.now() >= limit.at)?;
        Some(Failure::new(limit.kind))
    }

    /// Ready once the limit has passed; always pending without one.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Failure> {
        let Some(limit) = self.limit else {
            return Poll::Pending;
        };
        let core = &self.core;
        let timer = self.timer.get_or_insert_with(|| core.sleep_until(limit.at));
        Pin::new(timer).poll(cx).map(|()| Failure::new(limit.kind))
    }
}

/// An exchange until the head of its final response, under the head timeout.
pub(crate) struct AwaitHead<C: Connector> {
    pub(crate) exchange: Box<Exchange<C>>,
    core: Core,
    limit: Option<Duration>,
    /// Runs while the peer is waited for, from the last write.
    timer: ProgressTimer,
    attempt: LimitTimer,
}

impl<C> AwaitHead<C>
where
    C: Connector<Key = Destination>,
    C::Connection: Transport,
{
    /// Waits for the head at most for `head`, and for all at most until `attempt`.
    pub(crate) fn new(
        exchange: Box<Exchange<C>>,
        core: &Core,
        head: Option<Duration>,
        attempt: Option<Limit>,
    ) -> Self {
        Self {
            exchange,
            core: core.clone(),
            limit: head,
            timer: ProgressTimer::default(),
            attempt: LimitTimer::new(core, attempt),
        }
    }

    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        interim: &mut impl FnMut(ResponseHead),
    ) -> Poll<Result<ResponseHead, Failure>> {
        loop {
            match self.exchange.poll_event(cx) {
                Poll::Pending => return self.poll_timer(cx),
                Poll::Ready(Err(failure)) => return Poll::Ready(Err(failure)),
                Poll::Ready(Ok(ResponseEvent::Interim(head))) => interim(head),
                Poll::Ready(Ok(ResponseEvent::Head(head))) => return Poll::Ready(Ok(head)),
                Poll::Ready(Ok(_)) => unreachable!("data or an end before the head"),
            }
        }
    }

    fn poll_timer<T>(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Failure>> {
        if let Poll::Ready(failure) = self.attempt.poll(cx) {
            return Poll::Ready(Err(failure));
        }
        let Some(limit) = self.limit else {
            return Poll::Pending;
        };
        if !self.exchange.awaits_peer() {
            self.timer.stop();
            return Poll::Pending;
        }
        // A request that is still leaving is progress; an answer that drips in is not.
        let sent = self.exchange.bytes_sent();
        let passed = self.timer.poll(cx, &self.core, limit, sent);
        passed.map(|()| Err(Failure::new(ErrorKind::HeadTimeout)))
    }
}
