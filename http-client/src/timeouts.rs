//! How long what may take.

use std::time::Duration;

use pool_core::ConfigError;

use crate::client::ClientConfig;

/// How long a request and its parts may take.
///
/// | value | how long | default |
/// |---|---|---|
/// | `total` | the request, all its attempts, the pauses between them and the response body | none |
/// | `attempt` | one attempt, from the acquire of its connection to the head of its response | none |
/// | `response_head` | the peer, from the end of the request to the end of the response's head | 10 s |
/// | `body_idle` | from one piece of the response body to the next | 30 s |
/// | `write_stall` | the peer takes nothing of the request although bytes wait to leave | 30 s |
/// | `expect_continue` | the body of a request with `Expect: 100-continue` is held back | 1 s |
///
/// Each is a duration from 1 ns to 2^63 ns, or `None` for no limit. No timer is set unless there is
/// something to wait for.
///
/// What the pool limits comes on top: the wait for a connection, connecting, and how long one is
/// held.
///
/// ```
/// # use std::time::Duration;
/// use http_client::{ClientConfig, Timeouts};
///
/// let timeouts = Timeouts::builder()
///     .total(Duration::from_secs(20))
///     .response_head(Duration::from_secs(5))
///     .body_idle(None)
///     .build()?;
/// let config = ClientConfig::default().timeouts(timeouts);
/// # let _ = config;
///
/// let error = Timeouts::builder().attempt(Duration::ZERO).build().unwrap_err();
/// assert_eq!(error.to_string(), "attempt is 0ns, expected 1 ns to 2^63 ns, or none");
/// # Ok::<(), pool_core::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    pub(crate) total: Option<Duration>,
    pub(crate) attempt: Option<Duration>,
    pub(crate) response_head: Option<Duration>,
    pub(crate) body_idle: Option<Duration>,
    pub(crate) write_stall: Option<Duration>,
    pub(crate) expect_continue: Option<Duration>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            total: None,
            attempt: None,
            response_head: Some(Duration::from_secs(10)),
            body_idle: Some(Duration::from_secs(30)),
            write_stall: Some(Duration::from_secs(30)),
            expect_continue: Some(Duration::from_secs(1)),
        }
    }
}

impl Timeouts {
    /// Starts from the defaults.
    pub fn builder() -> TimeoutsBuilder {
        TimeoutsBuilder::default()
    }

    /// Starts from these values.
    pub fn to_builder(self) -> TimeoutsBuilder {
        TimeoutsBuilder(self)
    }

    /// See [`TimeoutsBuilder::total`].
    #[must_use]
    pub fn total(&self) -> Option<Duration> {
        self.total
    }

    /// See [`TimeoutsBuilder::attempt`].
    #[must_use]
    pub fn attempt(&self) -> Option<Duration> {
        self.attempt
    }

    /// See [`TimeoutsBuilder::response_head`].
    #[must_use]
    pub fn response_head(&self) -> Option<Duration> {
        self.response_head
    }

    /// See [`TimeoutsBuilder::body_idle`].
    #[must_use]
    pub fn body_idle(&self) -> Option<Duration> {
        self.body_idle
    }

    /// See [`TimeoutsBuilder::write_stall`].
    #[must_use]
    pub fn write_stall(&self) -> Option<Duration> {
        self.write_stall
    }

    /// See [`TimeoutsBuilder::expect_continue`].
    #[must_use]
    pub fn expect_continue(&self) -> Option<Duration> {
        self.expect_continue
    }
}

/// Collects the values of [`Timeouts`]; [`build`](Self::build) checks them.
#[must_use = "a builder does nothing until it is built"]
#[derive(Clone, Copy, Debug, Default)]
pub struct TimeoutsBuilder(Timeouts);

impl TimeoutsBuilder {
    /// How long a request may take in all: its attempts, the pauses between them, and the body of
    /// its response. A retry whose pause would outlast it is not made. What is read of the body
    /// after it has passed is [`TotalTimeout`](crate::ErrorKind::TotalTimeout), unless the body has
    /// come to its end.
    pub fn total(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.0.total = limit.into();
        self
    }

    /// How long one attempt may take, from the acquire of its connection to the head of its
    /// response: [`AttemptTimeout`](crate::ErrorKind::AttemptTimeout).
    pub fn attempt(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.0.attempt = limit.into();
        self
    }

    /// How long the peer may take to answer: from the moment the kernel took the last of the
    /// request to the end of the response's head. Bytes that drip in and interim responses do not
    /// extend it. [`HeadTimeout`](crate::ErrorKind::HeadTimeout).
    ///
    /// It does not run while the request's own body pauses, for which a deadline is the caller's;
    /// nor while `write_stall` or `expect_continue` do. Where those are none it runs in their
    /// place, from the last write.
    pub fn response_head(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.0.response_head = limit.into();
        self
    }

    /// How long the response body may pause: from the first poll that finds nothing to the next
    /// data or the end. It runs only if the caller waits for the body; one that takes its time
    /// between two reads is not held up against the peer.
    /// [`BodyTimeout`](crate::ErrorKind::BodyTimeout).
    ///
    /// It runs, too, while the request's body is still leaving. For streams that answer each other
    /// in both directions, set none.
    pub fn body_idle(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.0.body_idle = limit.into();
        self
    }

    /// How long the peer may take nothing of the request while bytes of it wait to leave:
    /// [`WriteTimeout`](crate::ErrorKind::WriteTimeout). Once the head of the final response has
    /// come it ends the request only, not the response.
    pub fn write_stall(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.0.write_stall = limit.into();
        self
    }

    /// How long the body of a request with `Expect: 100-continue` waits, from when the head has
    /// left, for 100 (Continue) or a final response. Then it is sent all the same: the peer may not
    /// know the expectation (RFC 9110 §10.1.1).
    pub fn expect_continue(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.0.expect_continue = limit.into();
        self
    }

    /// Checks the values.
    ///
    /// # Errors
    ///
    /// A value is out of its range.
    pub fn build(self) -> Result<Timeouts, ConfigError> {
        /// Half of what a `Timestamp` holds, so that a deadline saturates in no process's life.
        const LONGEST: Duration = Duration::from_nanos(1 << 63);
        let Timeouts {
            total,
            attempt,
            response_head,
            body_idle,
            write_stall,
            expect_continue,
        } = self.0;
        for (field, limit) in [
            ("total", total),
            ("attempt", attempt),
            ("response_head", response_head),
            ("body_idle", body_idle),
            ("write_stall", write_stall),
            ("expect_continue", expect_continue),
        ] {
            if let Some(limit) = limit
                && (limit.is_zero() || limit > LONGEST)
            {
                return Err(ConfigError::OutOfRange {
                    field,
                    given: format!("{limit:?}"),
                    expected: "1 ns to 2^63 ns, or none".to_owned(),
                });
            }
        }
        Ok(self.0)
    }
}

impl ClientConfig {
    /// How long requests and their parts may take. Default: [`Timeouts::default`].
    #[must_use]
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Set = fn(TimeoutsBuilder, Option<Duration>) -> TimeoutsBuilder;
    type Get = fn(&Timeouts) -> Option<Duration>;

    #[test]
    fn each_value_is_set_checked_and_told_by_its_name() {
        let values: [(&str, Set, Get); 6] = [
            ("total", TimeoutsBuilder::total, Timeouts::total),
            ("attempt", TimeoutsBuilder::attempt, Timeouts::attempt),
            (
                "response_head",
                TimeoutsBuilder::response_head,
                Timeouts::response_head,
            ),
            ("body_idle", TimeoutsBuilder::body_idle, Timeouts::body_idle),
            (
                "write_stall",
                TimeoutsBuilder::write_stall,
                Timeouts::write_stall,
            ),
            (
                "expect_continue",
                TimeoutsBuilder::expect_continue,
                Timeouts::expect_continue,
            ),
        ];
        for (name, set, get) in values {
            let longest = Duration::from_nanos(1 << 63);
            for good in [None, Some(Duration::from_nanos(1)), Some(longest)] {
                let timeouts = set(Timeouts::builder(), good).build().unwrap();
                assert_eq!(get(&timeouts), good, "{name}");
                let others = values.iter().filter(|(other, ..)| *other != name);
                for (other, _, get) in others {
                    assert_eq!(
                        get(&timeouts),
                        get(&Timeouts::default()),
                        "{other} by {name}"
                    );
                }
                assert_eq!(timeouts.to_builder().build(), Ok(timeouts));
            }
            for bad in [Duration::ZERO, longest + Duration::from_nanos(1)] {
                let refused = set(Timeouts::builder(), Some(bad)).build().unwrap_err();
                let expected = format!("{name} is {bad:?}, expected 1 ns to 2^63 ns, or none");
                assert_eq!(refused.to_string(), expected);
            }
        }
    }
}
