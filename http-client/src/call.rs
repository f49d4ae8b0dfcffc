//! A request from its first attempt to its last: where each goes, how long it may take, and what
//! is decided when it has ended.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use http_codec::ResponseHead;
use pool_core::{Connector, Pooled, Timestamp};

use crate::await_head::{AwaitHead, Limit, LimitTimer};
use crate::breakers::Leave;
use crate::client::Inner;
use crate::destination::Destination;
use crate::drain;
use crate::error::{At, Error, ErrorKind, Failure, Phase};
use crate::exchange::Exchange;
use crate::incoming::IncomingBody;
use crate::options::Overrides;
use crate::outgoing::Outgoing;
use crate::retry::{
    self, Attempt, Bounds, Decided, Decision, FailedAttempt, Open, Outcome, Reason,
    RefusedResponse, RetryPolicy, RetryRequest,
};
use crate::timeouts::Timeouts;
use crate::transport::Transport;

/// Statuses from here on are judged; below it a response is what was asked for.
const FIRST_JUDGED: u16 = 400;

pub(crate) struct Call<'c, C: Connector> {
    client: &'c Inner<C>,
    destinations: &'c [Destination],
    timeouts: Timeouts,
    overrides: Option<Arc<Overrides>>,
    begun: Timestamp,
    deadline: Option<Timestamp>,
    /// Which destination is being asked.
    turn: usize,
    /// Those that were judged.
    attempts: Vec<Attempt>,
}

/// Another attempt that is decided, and paid for.
struct Retry {
    pause: Duration,
    fresh: bool,
    withdrawn_at: Option<Timestamp>,
}

impl<'c, C> Call<'c, C>
where
    C: Connector<Key = Destination>,
    C::Connection: Transport,
{
    /// `destinations` is not empty.
    pub(crate) fn new(
        client: &'c Inner<C>,
        destinations: &'c [Destination],
        overrides: Option<Arc<Overrides>>,
    ) -> Self {
        let begun = client.pool.core().now();
        let timeouts = overrides.as_ref().and_then(|own| own.timeouts);
        let timeouts = timeouts.unwrap_or(client.config.timeouts);
        Self {
            client,
            destinations,
            timeouts,
            overrides,
            begun,
            deadline: timeouts.total.map(|limit| begun + limit),
            turn: 0,
            attempts: Vec::new(),
        }
    }

    pub(crate) async fn run(
        mut self,
        mut outgoing: Outgoing,
        mut interim: impl FnMut(ResponseHead),
    ) -> Result<(ResponseHead, IncomingBody<C>), Error> {
        let (core, config) = (self.client.pool.core(), &self.client.config);
        let budgets = &self.client.budgets;
        budgets.deposit(self.begun, &self.destinations[0]);
        let mut fresh = false;
        for number in 1.. {
            let leave = match self.admit() {
                Ok(leave) => leave,
                Err(open) => {
                    let failure = Failure::because(ErrorKind::BreakerOpen, open);
                    let at = At::unsent(Phase::Prepare, number, self.destination());
                    self.record(
                        Decision::Stop(Reason::Final),
                        Outcome::of(&failure, &at),
                        &at,
                    );
                    return Err(Error::new(failure, &at, self.attempts));
                }
            };
            let destination = self.destination();
            let limit = self.limit();
            let conn = match self.acquire(destination, fresh, limit).await {
                Ok(conn) => conn,
                Err((failure, phase)) => {
                    let at = At::unsent(phase, number, destination);
                    leave.report_failure(&failure, &at);
                    let Some(retry) = self.after_failure(&failure, &at, &outgoing) else {
                        return Err(Error::new(failure, &at, self.attempts));
                    };
                    fresh = self.wait(retry, &at).await;
                    continue;
                }
            };
            let exchange = Exchange::new(conn, outgoing, core, config, self.timeouts);
            let head_limit = self.timeouts.response_head;
            let mut awaiting = AwaitHead::new(exchange, core, head_limit, limit);
            let outcome = poll_fn(|cx| awaiting.poll(cx, &mut interim)).await;
            let mut exchange = awaiting.exchange;
            match outcome {
                Ok(head) if head.status() < FIRST_JUDGED => {
                    leave.report_status(head.status());
                    return self.accept(head, exchange, number).await;
                }
                Ok(head) => {
                    leave.report_status(head.status());
                    let at = exchange.at(number, destination);
                    let Some(retry) = self.after_response(&head, &at, exchange.outgoing()) else {
                        return self.accept(head, exchange, number).await;
                    };
                    outgoing = exchange.take_outgoing();
                    // Before the pause, in which nobody else could have the connection.
                    drain::let_go(exchange, head.body_length().bytes());
                    fresh = self.wait(retry, &at).await;
                }
                Err(failure) => {
                    let at = exchange.at(number, destination);
                    leave.report_failure(&failure, &at);
                    outgoing = exchange.fail();
                    let Some(retry) = self.after_failure(&failure, &at, &outgoing) else {
                        return Err(Error::new(failure, &at, self.attempts));
                    };
                    fresh = self.wait(retry, &at).await;
                }
            }
        }
        unreachable!("attempts have a bound below the largest number")
    }

    fn policy(&self) -> &dyn RetryPolicy {
        let own = self.overrides.as_ref().and_then(|own| own.retry.as_ref());
        &**own.unwrap_or(&self.client.config.retry)
    }

    fn destination(&self) -> &'c Destination {
        &self.destinations[self.turn % self.destinations.len()]
    }

    /// Asks the breakers: the first destination from the one whose turn it is that may be asked.
    fn admit(&mut self) -> Result<Leave<'c>, Open> {
        let (core, breakers) = (self.client.pool.core(), &self.client.breakers);
        let mut open = None;
        for _ in self.destinations {
            match breakers.admit(core, self.destination()) {
                Ok(leave) => return Ok(leave),
                Err(rejected) => open = open.or(Some(rejected)),
            }
            self.turn += 1;
        }
        open.map_or_else(|| Ok(Leave::free(core, self.destination())), Err)
    }

    /// Until when the request may take.
    fn total(&self) -> Option<Limit> {
        self.deadline.map(|at| Limit {
            at,
            kind: ErrorKind::TotalTimeout,
        })
    }

    /// Until when the attempt that begins now may take.
    fn limit(&self) -> Option<Limit> {
        let attempt = self.timeouts.attempt.map(|limit| Limit {
            at: self.client.pool.core().now() + limit,
            kind: ErrorKind::AttemptTimeout,
        });
        Limit::earlier(self.total(), attempt)
    }

    async fn acquire(
        &self,
        destination: &Destination,
        fresh: bool,
        limit: Option<Limit>,
    ) -> Result<Pooled<C>, (Failure, Phase)> {
        let pool = &self.client.pool;
        let mut acquire = pin!(match fresh {
            false => pool.acquire(destination),
            true => pool.acquire_fresh(destination),
        });
        let mut timer = LimitTimer::new(pool.core(), limit);
        poll_fn(|cx| match acquire.as_mut().poll(cx) {
            Poll::Ready(acquired) => Poll::Ready(acquired.map_err(Failure::of_acquire)),
            Poll::Pending => timer.poll(cx).map(|failure| Err((failure, Phase::Acquire))),
        })
        .await
    }

    fn after_failure(&mut self, failure: &Failure, at: &At, outgoing: &Outgoing) -> Option<Retry> {
        let failed = FailedAttempt {
            request: facts(outgoing),
            kind: failure.kind,
            phase: at.phase,
            sent: at.sent,
            reused: at.reused,
            attempt: at.attempt,
            retried_before: retry::retried_before(
                &self.attempts,
                failure.kind,
                at.phase,
                at.reused,
            ),
        };
        let bounds = self.bounds(at, outgoing);
        let decided = retry::after_failure(self.policy(), &failed, &bounds);
        self.decide(decided, Outcome::of(failure, at), at)
    }

    fn after_response(
        &mut self,
        head: &ResponseHead,
        at: &At,
        outgoing: &Outgoing,
    ) -> Option<Retry> {
        let refused = RefusedResponse {
            request: facts(outgoing),
            status: head.status(),
            attempt: at.attempt,
        };
        let fields = head.fields().get_all("retry-after");
        let asked = retry::longest_retry_after(fields, SystemTime::now());
        let bounds = self.bounds(at, outgoing);
        let decided = retry::after_response(self.policy(), &refused, asked, &bounds);
        self.decide(decided, Outcome::Refused(head.status()), at)
    }

    fn bounds(&self, at: &At, outgoing: &Outgoing) -> Bounds {
        let now = self.client.pool.core().now();
        Bounds {
            attempt: at.attempt,
            replayable: outgoing.is_replayable(),
            time_left: self
                .deadline
                .map(|deadline| deadline.saturating_duration_since(now)),
            chance: fastrand::f64(),
        }
    }

    /// Draws on the budget, and records what is decided.
    fn decide(&mut self, decided: Decided, outcome: Outcome, at: &At) -> Option<Retry> {
        let (mut decision, fresh) = decided;
        let now = self.client.pool.core().now();
        // A fresh connection after a stale one is no sign of trouble, and happens once.
        let is_counted = matches!(decision, Decision::Retry { .. }) && !fresh;
        if is_counted && !self.client.budgets.withdraw(now, &at.destination) {
            decision = Decision::Stop(Reason::NoBudget);
        }
        self.record(decision, outcome, at);
        let Decision::Retry { pause, .. } = decision else {
            return None;
        };
        Some(Retry {
            pause,
            fresh,
            withdrawn_at: is_counted.then_some(now),
        })
    }

    /// Waits until the next attempt is due: whether on a fresh connection.
    async fn wait(&mut self, retry: Retry, at: &At) -> bool {
        if retry.pause > Duration::ZERO {
            let mut waiting = Waiting {
                call: self,
                at,
                withdrawn_at: retry.withdrawn_at,
            };
            self.client.pool.core().sleep(retry.pause).await;
            waiting.withdrawn_at = None;
        }
        if !retry.fresh {
            self.turn += 1;
        }
        retry.fresh
    }

    fn record(&mut self, decision: Decision, outcome: Outcome, at: &At) {
        let destination = &at.destination;
        tracing::debug!(%destination, attempt = at.attempt, %outcome, %decision, "attempt ended");
        let now = self.client.pool.core().now();
        self.attempts.push(Attempt {
            number: at.attempt,
            destination: destination.to_string().into(),
            reused: at.reused,
            outcome,
            decision,
            elapsed: now.saturating_duration_since(self.begun),
        });
    }

    async fn accept(
        self,
        head: ResponseHead,
        exchange: Box<Exchange<C>>,
        number: u32,
    ) -> Result<(ResponseHead, IncomingBody<C>), Error> {
        let destination = self.destination().clone();
        let length = head.body_length();
        let core = self.client.pool.core();
        let timer = LimitTimer::new(core, self.total());
        let mut body =
            IncomingBody::new(exchange, destination, number, self.attempts, length, timer);
        poll_fn(|cx| Poll::Ready(body.finish_if_empty(cx))).await?;
        Ok((head, body))
    }
}

fn facts(outgoing: &Outgoing) -> RetryRequest<'_> {
    RetryRequest {
        method: outgoing.method(),
        idempotent: outgoing.idempotent,
        has_body: outgoing.has_body(),
    }
}

/// A retry in its pause. Dropped there, it gives back what it has drawn.
struct Waiting<'w, 'c, C: Connector> {
    call: &'w Call<'c, C>,
    at: &'w At,
    withdrawn_at: Option<Timestamp>,
}

impl<C: Connector> Drop for Waiting<'_, '_, C> {
    fn drop(&mut self) {
        if let Some(withdrawn_at) = self.withdrawn_at {
            let destination = &self.at.destination;
            self.call.client.budgets.refund(withdrawn_at, destination);
            let reason = Reason::Cancelled;
            tracing::debug!(%destination, attempt = self.at.attempt, %reason, "retry dropped");
        }
    }
}
