//! The limits and timeouts of a pool.

use std::time::Duration;

/// The limits and timeouts of one core's pool. Each limit is per destination and per core.
///
/// | value | unit, range | default | none | protects |
/// |---|---|---|---|---|
/// | `max_connections` | connections, 1.. | 1000 | – | the peer, and our descriptors |
/// | `max_idle` | connections, 0..=`max_connections` | `max_connections` | – | the peer's memory when load falls |
/// | `max_pending` | waiters, 0.. | none | unlimited | our memory when the peer is slow |
/// | `dials_in_flight` | connects, 1.. | 16 | – | the peer from a herd of handshakes |
/// | `acquire_timeout` | duration | 5 s | wait for ever | the caller's latency |
/// | `connect_timeout` | duration | 5 s | wait for ever | waiters behind a dead address |
/// | `hold_timeout` | duration | 5 s | never | the pool from a holder that hangs |
/// | `idle_timeout` | duration | 30 min | never | both sides from useless connections |
/// | `max_lifetime` | duration | none | no limit | from what age brings: stale names, uneven load, leaks of the peer |
/// | `max_uses` | exchanges, 1.. | none | no limit | the same, counted in exchanges |
/// | `reuse_order` | [`ReuseOrder`] | `Lifo` | – | `Lifo` lets what load no longer needs go idle |
///
/// Durations are at least 1 ns and at most 2^63 ns (292 years). Timers never fire early by the
/// core's clock, and at most about half a millisecond late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    max_connections: u32,
    max_idle: u32,
    max_pending: Option<u32>,
    dials_in_flight: u32,
    acquire_timeout: Option<Duration>,
    connect_timeout: Option<Duration>,
    hold_timeout: Option<Duration>,
    idle_timeout: Option<Duration>,
    max_lifetime: Option<Duration>,
    max_uses: Option<u32>,
    reuse_order: ReuseOrder,
}

/// Which idle connection is reused first.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReuseOrder {
    /// The one used last: the others can go idle until their timeout, and it is the least likely
    /// to be stale.
    #[default]
    Lifo,
    /// The one idle for longest: all are kept in use alike.
    Fifo,
}

impl PoolConfig {
    /// Starts from the defaults.
    pub fn builder() -> PoolConfigBuilder {
        PoolConfigBuilder::default()
    }

    /// The most connections to a destination, whether connecting, idle or acquired.
    #[must_use]
    pub fn max_connections(&self) -> u32 {
        self.max_connections
    }

    /// The most idle connections kept to a destination.
    #[must_use]
    pub fn max_idle(&self) -> u32 {
        self.max_idle
    }

    /// The most waiters of a destination that no connect in flight will serve; `None` for no
    /// limit, 0 to fail fast.
    #[must_use]
    pub fn max_pending(&self) -> Option<u32> {
        self.max_pending
    }

    /// The most connects to a destination that run at once.
    #[must_use]
    pub fn dials_in_flight(&self) -> u32 {
        self.dials_in_flight
    }

    /// The longest wait for a connection, from the call of acquire.
    #[must_use]
    pub fn acquire_timeout(&self) -> Option<Duration> {
        self.acquire_timeout
    }

    /// The longest a connect may take.
    #[must_use]
    pub fn connect_timeout(&self) -> Option<Duration> {
        self.connect_timeout
    }

    /// The longest a connection may be held.
    #[must_use]
    pub fn hold_timeout(&self) -> Option<Duration> {
        self.hold_timeout
    }

    /// The longest a connection stays idle.
    #[must_use]
    pub fn idle_timeout(&self) -> Option<Duration> {
        self.idle_timeout
    }

    /// The longest a connection is given out after it was made.
    #[must_use]
    pub fn max_lifetime(&self) -> Option<Duration> {
        self.max_lifetime
    }

    /// How many times a connection is used.
    #[must_use]
    pub fn max_uses(&self) -> Option<u32> {
        self.max_uses
    }

    /// Which idle connection is reused first.
    #[must_use]
    pub fn reuse_order(&self) -> ReuseOrder {
        self.reuse_order
    }
}

impl Default for PoolConfig {
    fn default() -> Self {
        let defaults = PoolConfigBuilder::default();
        Self {
            max_connections: defaults.max_connections,
            max_idle: defaults.max_connections,
            max_pending: defaults.max_pending,
            dials_in_flight: defaults.dials_in_flight,
            acquire_timeout: defaults.acquire_timeout,
            connect_timeout: defaults.connect_timeout,
            hold_timeout: defaults.hold_timeout,
            idle_timeout: defaults.idle_timeout,
            max_lifetime: defaults.max_lifetime,
            max_uses: defaults.max_uses,
            reuse_order: defaults.reuse_order,
        }
    }
}

/// Collects the values of a [`PoolConfig`]; [`build`](Self::build) checks them.
///
/// Timeouts and `max_pending` take a value or `None`:
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
#[derive(Clone, Debug)]
pub struct PoolConfigBuilder {
    max_connections: u32,
    max_idle: Option<u32>,
    max_pending: Option<u32>,
    dials_in_flight: u32,
    acquire_timeout: Option<Duration>,
    connect_timeout: Option<Duration>,
    hold_timeout: Option<Duration>,
    idle_timeout: Option<Duration>,
    max_lifetime: Option<Duration>,
    max_uses: Option<u32>,
    reuse_order: ReuseOrder,
}

impl Default for PoolConfigBuilder {
    fn default() -> Self {
        Self {
            max_connections: 1000,
            max_idle: None,
            max_pending: None,
            dials_in_flight: 16,
            acquire_timeout: Some(Duration::from_secs(5)),
            connect_timeout: Some(Duration::from_secs(5)),
            hold_timeout: Some(Duration::from_secs(5)),
            idle_timeout: Some(Duration::from_secs(30 * 60)),
            max_lifetime: None,
            max_uses: None,
            reuse_order: ReuseOrder::Lifo,
        }
    }
}

impl PoolConfigBuilder {
    /// The most connections to a destination, whether connecting, idle or acquired. At least 1.
    pub fn max_connections(mut self, connections: u32) -> Self {
        self.max_connections = connections;
        self
    }

    /// The most idle connections kept to a destination, at most `max_connections`. With `None`
    /// it is `max_connections`; with 0 a connection that is released goes to a waiter or is closed.
    pub fn max_idle(mut self, connections: impl Into<Option<u32>>) -> Self {
        self.max_idle = connections.into();
        self
    }

    /// The most waiters of a destination that no connect in flight will serve. With `None` there
    /// is no limit; with 0 an acquire that can start no connect fails at once.
    pub fn max_pending(mut self, waiters: impl Into<Option<u32>>) -> Self {
        self.max_pending = waiters.into();
        self
    }

    /// The most connects to a destination that run at once. At least 1.
    pub fn dials_in_flight(mut self, connects: u32) -> Self {
        self.dials_in_flight = connects;
        self
    }

    /// The longest wait for a connection, counted from the first poll of an acquire, which is when
    /// it takes its place in the queue, also while a connect runs for it. `None` waits for ever.
    pub fn acquire_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.acquire_timeout = timeout.into();
        self
    }

    /// The longest a connect may take, from its start to a usable connection. `None` leaves it to
    /// the operating system.
    pub fn connect_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.connect_timeout = timeout.into();
        self
    }

    /// The longest a connection may be held, after which it is closed under its holder. `None`
    /// never does.
    ///
    /// As no clock is read for a reuse, it counts from when the core last read it: if a task has
    /// kept the thread, that is as much earlier as the turn has lasted by then.
    pub fn hold_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.hold_timeout = timeout.into();
        self
    }

    /// The longest a connection stays idle before it is closed. `None` keeps it until the peer
    /// closes it.
    pub fn idle_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.idle_timeout = timeout.into();
        self
    }

    /// The age from which a connection is given out no more: it is closed when it is idle, or is
    /// released. Each connection gets a limit of its own, up to 10 % shorter, so that those made
    /// together do not end together. `None` sets no limit.
    pub fn max_lifetime(mut self, age: impl Into<Option<Duration>>) -> Self {
        self.max_lifetime = age.into();
        self
    }

    /// How many times a connection is used before it is closed at its release; at least 1, which
    /// reuses none. `None` sets no limit.
    pub fn max_uses(mut self, uses: impl Into<Option<u32>>) -> Self {
        self.max_uses = uses.into();
        self
    }

    /// Which idle connection is reused first.
    pub fn reuse_order(mut self, order: ReuseOrder) -> Self {
        self.reuse_order = order;
        self
    }

    /// Checks every value.
    ///
    /// # Errors
    ///
    /// The first value that is out of its range, by name. Nothing is corrected silently.
    pub fn build(self) -> Result<PoolConfig, ConfigError> {
        at_least_one("max_connections", self.max_connections)?;
        let max_idle = self.max_idle.unwrap_or(self.max_connections);
        if max_idle > self.max_connections {
            return Err(ConfigError::OutOfRange {
                field: "max_idle",
                given: max_idle.to_string(),
                expected: format!("at most max_connections, {}", self.max_connections),
            });
        }
        at_least_one("dials_in_flight", self.dials_in_flight)?;
        at_least_one("max_uses", self.max_uses.unwrap_or(1))?;
        Ok(PoolConfig {
            max_connections: self.max_connections,
            max_idle,
            max_pending: self.max_pending,
            dials_in_flight: self.dials_in_flight,
            acquire_timeout: timeout("acquire_timeout", self.acquire_timeout)?,
            connect_timeout: timeout("connect_timeout", self.connect_timeout)?,
            hold_timeout: timeout("hold_timeout", self.hold_timeout)?,
            idle_timeout: timeout("idle_timeout", self.idle_timeout)?,
            max_lifetime: timeout("max_lifetime", self.max_lifetime)?,
            max_uses: self.max_uses,
            reuse_order: self.reuse_order,
        })
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

fn at_least_one(field: &'static str, given: u32) -> Result<(), ConfigError> {
    if given >= 1 {
        return Ok(());
    }
    Err(ConfigError::OutOfRange {
        field,
        given: given.to_string(),
        expected: "at least 1".to_owned(),
    })
}

/// Half of what a `Timestamp` holds, so that a deadline saturates in no process's life.
const LONGEST_TIMEOUT: Duration = Duration::from_nanos(1 << 63);

fn timeout(field: &'static str, given: Option<Duration>) -> Result<Option<Duration>, ConfigError> {
    match given {
        Some(value) if value.is_zero() || value > LONGEST_TIMEOUT => Err(ConfigError::OutOfRange {
            field,
            given: format!("{value:?}"),
            expected: "1 ns to 2^63 ns, or none".to_owned(),
        }),
        allowed => Ok(allowed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(builder: PoolConfigBuilder) -> String {
        builder.build().unwrap_err().to_string()
    }

    #[test]
    fn the_defaults_are_allowed_and_equal_the_default_config() {
        let config = PoolConfig::builder().build().unwrap();
        assert_eq!(config, PoolConfig::default());
        assert_eq!(config.max_idle(), 1000);
        assert_eq!(config.idle_timeout(), Some(Duration::from_secs(1800)));
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
