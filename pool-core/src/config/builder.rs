//! How the values of a config are given, and which are allowed.

use std::time::Duration;

use super::{PoolConfig, ReuseOrder};

/// Collects the values of a [`PoolConfig`]; [`build`](Self::build) checks them.
///
/// Timeouts and limits that can be switched off take a value or `None`:
///
/// ```
/// # use std::time::Duration;
/// let config = pool_core::PoolConfig::builder()
///     .max_connections(64)
///     .acquire_timeout(Duration::from_millis(200))
///     .hold_timeout(None)
///     .build()?;
/// # Ok::<(), pool_core::ConfigError>(())
/// ```
#[must_use = "a builder does nothing until it is built"]
#[derive(Clone, Debug, Default)]
pub struct PoolConfigBuilder {
    /// Its `max_idle` is not looked at.
    pub(super) config: PoolConfig,
    pub(super) max_idle: Option<u32>,
}

impl PoolConfigBuilder {
    /// The most connections to a destination, whether connecting, idle or acquired. At least 1.
    pub fn max_connections(mut self, connections: u32) -> Self {
        self.config.max_connections = connections;
        self
    }

    /// The most connections to all destinations of the pool together; at least 1. When it binds,
    /// the connection that has been idle for longest is closed for a destination that needs one,
    /// whatever it is connected to. `None` sets no cap.
    pub fn max_total(mut self, connections: impl Into<Option<u32>>) -> Self {
        self.config.max_total = connections.into();
        self
    }

    /// The most idle connections kept to a destination, at most `max_connections`. With `None`
    /// it is `max_connections`; with 0 a connection that is released goes to a waiter or is closed.
    pub fn max_idle(mut self, connections: impl Into<Option<u32>>) -> Self {
        self.max_idle = connections.into();
        self
    }

    /// How many idle connections are kept to a destination, at most `max_idle`, by connects in the
    /// background. They are kept from the destination's first acquire until nobody has acquired
    /// one for `idle_timeout`, as far as the caps leave room. After a connect that failed, the pool
    /// connects for waiters only until one has succeeded.
    pub fn min_idle(mut self, connections: u32) -> Self {
        self.config.min_idle = connections;
        self
    }

    /// The most waiters of a destination that no connect in flight will serve. With `None` there
    /// is no limit; with 0 an acquire that can start no connect fails at once.
    pub fn max_pending(mut self, waiters: impl Into<Option<u32>>) -> Self {
        self.config.max_pending = waiters.into();
        self
    }

    /// What an acquire does whose timeout has passed: with 0 it fails, otherwise a connection
    /// beyond `max_connections` is made for it, at most so many of them at a time to a destination.
    /// Such a connection is closed at its release. `max_total` holds for it all the same.
    pub fn max_unpooled(mut self, connections: u32) -> Self {
        self.config.max_unpooled = connections;
        self
    }

    /// The most connects to a destination that run at once. At least 1.
    pub fn dials_in_flight(mut self, connects: u32) -> Self {
        self.config.dials_in_flight = connects;
        self
    }

    /// How long a waiter waits for a release before a connect is started for it, while there are
    /// acquired connections that may be released. `None` connects at once.
    pub fn dial_delay(mut self, delay: impl Into<Option<Duration>>) -> Self {
        self.config.dial_delay = delay.into();
        self
    }

    /// The longest wait for a connection, counted from the first poll of an acquire, which is when
    /// it takes its place in the queue, also while a connect runs for it. `None` waits for ever.
    pub fn acquire_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.config.acquire_timeout = timeout.into();
        self
    }

    /// The longest a connect may take, from its start to a usable connection. `None` leaves it to
    /// the operating system.
    pub fn connect_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.config.connect_timeout = timeout.into();
        self
    }

    /// The longest a connection may be held, after which it is closed under its holder. `None`
    /// never does.
    pub fn hold_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.config.hold_timeout = timeout.into();
        self
    }

    /// Whether to warn, with the place of the acquire, when a connection has been held for half
    /// the hold timeout.
    pub fn report_leaks(mut self, report: bool) -> Self {
        self.config.report_leaks = report;
        self
    }

    /// The longest a connection stays idle before it is closed. `None` keeps it until the peer
    /// closes it.
    pub fn idle_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.config.idle_timeout = timeout.into();
        self
    }

    /// How long before the end of the keep-alive time that its peer has announced an idle
    /// connection is closed. If the announced time is no longer than that, it is closed at its
    /// release. Zero trusts the peer's clock and the network.
    pub fn keep_alive_margin(mut self, margin: Duration) -> Self {
        self.config.keep_alive_margin = margin;
        self
    }

    /// How often an idle connection is probed by [`Connector::probe`]. It counts as idle
    /// meanwhile, and its idle time goes on. `None` never probes.
    ///
    #[cfg_attr(
        feature = "glommio",
        doc = "[`Connector::probe`]: crate::Connector::probe"
    )]
    #[cfg_attr(
        not(feature = "glommio"),
        doc = "[`Connector::probe`]: crate::state::Effect::Probe"
    )]
    pub fn heartbeat_interval(mut self, interval: impl Into<Option<Duration>>) -> Self {
        self.config.heartbeat_interval = interval.into();
        self
    }

    /// The longest a probe may take before the connection is closed.
    pub fn heartbeat_timeout(mut self, timeout: Duration) -> Self {
        self.config.heartbeat_timeout = timeout;
        self
    }

    /// The age from which a connection is given out no more: it is closed when it is idle, or is
    /// released. Each connection gets a limit of its own, up to 10 % shorter, so that those made
    /// together do not end together. `None` sets no limit.
    pub fn max_lifetime(mut self, age: impl Into<Option<Duration>>) -> Self {
        self.config.max_lifetime = age.into();
        self
    }

    /// How many times a connection is used before it is closed at its release; at least 1, which
    /// reuses none. `None` sets no limit.
    pub fn max_uses(mut self, uses: impl Into<Option<u32>>) -> Self {
        self.config.max_uses = uses.into();
        self
    }

    /// Which idle connection is reused first.
    pub fn reuse_order(mut self, order: ReuseOrder) -> Self {
        self.config.reuse_order = order;
        self
    }

    /// Checks every value.
    ///
    /// # Errors
    ///
    /// The first value that is out of its range, by name. Nothing is corrected silently.
    pub fn build(self) -> Result<PoolConfig, ConfigError> {
        let Self {
            mut config,
            max_idle,
        } = self;
        at_least_one("max_connections", config.max_connections)?;
        at_least_one("max_total", config.max_total.unwrap_or(1))?;
        config.max_idle = max_idle.unwrap_or(config.max_connections);
        at_most(
            "max_idle",
            config.max_idle,
            "max_connections",
            config.max_connections,
        )?;
        at_most("min_idle", config.min_idle, "max_idle", config.max_idle)?;
        at_least_one("dials_in_flight", config.dials_in_flight)?;
        at_least_one("max_uses", config.max_uses.unwrap_or(1))?;
        for (field, given) in [
            ("dial_delay", config.dial_delay),
            ("acquire_timeout", config.acquire_timeout),
            ("connect_timeout", config.connect_timeout),
            ("hold_timeout", config.hold_timeout),
            ("idle_timeout", config.idle_timeout),
            ("heartbeat_interval", config.heartbeat_interval),
            ("max_lifetime", config.max_lifetime),
        ] {
            in_range(
                field,
                given,
                Duration::from_nanos(1),
                "1 ns to 2^63 ns, or none",
            )?;
        }
        let timeout = Some(config.heartbeat_timeout);
        in_range(
            "heartbeat_timeout",
            timeout,
            Duration::from_nanos(1),
            "1 ns to 2^63 ns",
        )?;
        let margin = Some(config.keep_alive_margin);
        in_range("keep_alive_margin", margin, Duration::ZERO, "0 to 2^63 ns")?;
        Ok(config)
    }
}

/// A value that a [`PoolConfig`] does not allow.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A value is outside its range.
    #[error("{field} is {given}, expected {expected}")]
    OutOfRange {
        /// The name of the value, as in the builder.
        field: &'static str,
        /// What was given.
        given: String,
        /// What is allowed.
        expected: String,
    },
}

fn out_of_range(field: &'static str, given: impl Into<String>, expected: String) -> ConfigError {
    ConfigError::OutOfRange {
        field,
        given: given.into(),
        expected,
    }
}

fn at_least_one(field: &'static str, given: u32) -> Result<(), ConfigError> {
    match given {
        0 => Err(out_of_range(field, "0", "at least 1".to_owned())),
        _ => Ok(()),
    }
}

fn at_most(field: &'static str, given: u32, bound: &str, most: u32) -> Result<(), ConfigError> {
    if given <= most {
        return Ok(());
    }
    let expected = format!("at most {bound}, {most}");
    Err(out_of_range(field, given.to_string(), expected))
}

/// Half of what a `Timestamp` holds, so that a deadline saturates in no process's life.
const LONGEST: Duration = Duration::from_nanos(1 << 63);

fn in_range(
    field: &'static str,
    given: Option<Duration>,
    least: Duration,
    expected: &str,
) -> Result<(), ConfigError> {
    match given {
        Some(value) if value < least || value > LONGEST => Err(out_of_range(
            field,
            format!("{value:?}"),
            expected.to_owned(),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(builder: PoolConfigBuilder) -> String {
        builder.build().unwrap_err().to_string()
    }

    #[test]
    fn bad_values_are_refused_by_name() {
        let build = PoolConfig::builder;
        assert_eq!(
            refusal(build().max_connections(0)),
            "max_connections is 0, expected at least 1"
        );
        assert_eq!(
            refusal(build().dials_in_flight(0)),
            "dials_in_flight is 0, expected at least 1"
        );
        assert_eq!(
            refusal(build().max_connections(2).max_idle(3)),
            "max_idle is 3, expected at most max_connections, 2"
        );
        assert_eq!(
            refusal(build().hold_timeout(Duration::ZERO)),
            "hold_timeout is 0ns, expected 1 ns to 2^63 ns, or none"
        );
        assert!(refusal(build().acquire_timeout(Duration::ZERO)).starts_with("acquire_timeout"));
        assert!(refusal(build().connect_timeout(Duration::MAX)).starts_with("connect_timeout"));
        assert!(refusal(build().idle_timeout(Duration::ZERO)).starts_with("idle_timeout"));
        assert!(refusal(build().max_lifetime(Duration::ZERO)).starts_with("max_lifetime"));
        assert_eq!(
            refusal(build().max_uses(0)),
            "max_uses is 0, expected at least 1"
        );
        assert!(refusal(build().max_total(0)).starts_with("max_total is 0"));
        assert_eq!(
            refusal(build().max_connections(9).max_idle(2).min_idle(3)),
            "min_idle is 3, expected at most max_idle, 2"
        );
        assert!(refusal(build().dial_delay(Duration::ZERO)).starts_with("dial_delay"));
        assert!(refusal(build().heartbeat_interval(Duration::ZERO)).starts_with("heartbeat_i"));
        assert_eq!(
            refusal(build().heartbeat_timeout(Duration::ZERO)),
            "heartbeat_timeout is 0ns, expected 1 ns to 2^63 ns"
        );
        assert!(refusal(build().keep_alive_margin(Duration::MAX)).starts_with("keep_alive_margin"));
    }

    #[test]
    fn max_idle_follows_max_connections_unless_set() {
        let config = PoolConfig::builder().max_connections(7).build().unwrap();
        assert_eq!(config.max_idle(), 7);
        let config = PoolConfig::builder()
            .max_connections(7)
            .max_idle(0)
            .build()
            .unwrap();
        assert_eq!(config.max_idle(), 0);
    }

    #[test]
    fn none_switches_a_limit_off_and_zero_pending_is_allowed() {
        let config = PoolConfig::builder()
            .hold_timeout(None)
            .max_pending(0)
            .build()
            .unwrap();
        assert_eq!(config.hold_timeout(), None);
        assert_eq!(config.max_pending(), Some(0));
        assert_eq!(PoolConfig::default().max_pending(), None);
    }
}
