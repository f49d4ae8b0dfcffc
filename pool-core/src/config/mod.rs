//! The limits and timeouts of a pool.

mod builder;

use std::time::Duration;

pub use builder::{ConfigError, PoolConfigBuilder};

/// The limits and timeouts of one core's pool. Each limit is per destination and per core, but for
/// `max_total`, which is per core.
///
/// | value | unit, range | default | none | protects |
/// |---|---|---|---|---|
/// | `max_connections` | connections, 1.. | 1000 | – | the peer, and our descriptors |
/// | `max_total` | connections, 1.. | none | no cap | our descriptors, whatever the number of destinations |
/// | `max_idle` | connections, 0..=`max_connections` | `max_connections` | – | the peer's memory when load falls |
/// | `min_idle` | connections, 0..=`max_idle` | 0 | – | the first requests after a pause from the handshake |
/// | `max_pending` | waiters, 0.. | none | unlimited | our memory when the peer is slow |
/// | `max_unpooled` | connections, 0.. | 0 | – | callers who would rather exceed the cap than fail |
/// | `dials_in_flight` | connects, 1.. | 16 | – | the peer from a herd of handshakes |
/// | `dial_delay` | duration | none | dial at once | the peer from connects that a release makes needless |
/// | `acquire_timeout` | duration | 5 s | wait for ever | the caller's latency |
/// | `connect_timeout` | duration | 5 s | wait for ever | waiters behind a dead address |
/// | `hold_timeout` | duration | 5 s | never | the pool from a holder that hangs |
/// | `report_leaks` | bool | false | – | those who look for what holds connections for too long |
/// | `idle_timeout` | duration | 30 min | never | both sides from useless connections |
/// | `keep_alive_margin` | duration, 0.. | 1 s | 0 | requests from a peer that is about to close |
/// | `heartbeat_interval` | duration | none | no probes | idle connections from middleboxes that forget them |
/// | `heartbeat_timeout` | duration | 1 s | – | the pool from a probe that hangs |
/// | `max_lifetime` | duration | none | no limit | from what age brings: stale names, uneven load, leaks of the peer |
/// | `max_uses` | exchanges, 1.. | none | no limit | the same, counted in exchanges |
/// | `reuse_order` | [`ReuseOrder`] | `Lifo` | – | `Lifo` lets what load no longer needs go idle |
///
/// Durations are at least 1 ns, unless it says 0, and at most 2^63 ns (292 years). Timers never
/// fire early by the core's clock, and at most about half a millisecond late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    max_connections: u32,
    max_total: Option<u32>,
    max_idle: u32,
    min_idle: u32,
    max_pending: Option<u32>,
    max_unpooled: u32,
    dials_in_flight: u32,
    dial_delay: Option<Duration>,
    acquire_timeout: Option<Duration>,
    connect_timeout: Option<Duration>,
    hold_timeout: Option<Duration>,
    report_leaks: bool,
    idle_timeout: Option<Duration>,
    keep_alive_margin: Duration,
    heartbeat_interval: Option<Duration>,
    heartbeat_timeout: Duration,
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

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            max_connections: 1000,
            max_total: None,
            max_idle: 1000,
            min_idle: 0,
            max_pending: None,
            max_unpooled: 0,
            dials_in_flight: 16,
            dial_delay: None,
            acquire_timeout: Some(Duration::from_secs(5)),
            connect_timeout: Some(Duration::from_secs(5)),
            hold_timeout: Some(Duration::from_secs(5)),
            report_leaks: false,
            idle_timeout: Some(Duration::from_secs(30 * 60)),
            keep_alive_margin: Duration::from_secs(1),
            heartbeat_interval: None,
            heartbeat_timeout: Duration::from_secs(1),
            max_lifetime: None,
            max_uses: None,
            reuse_order: ReuseOrder::Lifo,
        }
    }
}

impl PoolConfig {
    /// Starts from the defaults.
    pub fn builder() -> PoolConfigBuilder {
        PoolConfigBuilder::default()
    }

    /// Starts from these values, to change some of them.
    pub fn to_builder(&self) -> PoolConfigBuilder {
        let max_idle = (self.max_idle != self.max_connections).then_some(self.max_idle);
        PoolConfigBuilder {
            config: self.clone(),
            max_idle,
        }
    }

    /// The most connections to a destination, whether connecting, idle or acquired.
    #[must_use]
    pub fn max_connections(&self) -> u32 {
        self.max_connections
    }

    /// The most connections to all destinations together.
    #[must_use]
    pub fn max_total(&self) -> Option<u32> {
        self.max_total
    }

    /// The most idle connections kept to a destination.
    #[must_use]
    pub fn max_idle(&self) -> u32 {
        self.max_idle
    }

    /// How many idle connections are kept to a destination that is in use.
    #[must_use]
    pub fn min_idle(&self) -> u32 {
        self.min_idle
    }

    /// The most waiters of a destination that no connect in flight will serve; `None` for no
    /// limit, 0 to fail fast.
    #[must_use]
    pub fn max_pending(&self) -> Option<u32> {
        self.max_pending
    }

    /// The most connections to a destination beyond `max_connections`, for acquires that time out.
    #[must_use]
    pub fn max_unpooled(&self) -> u32 {
        self.max_unpooled
    }

    /// The most connects to a destination that run at once.
    #[must_use]
    pub fn dials_in_flight(&self) -> u32 {
        self.dials_in_flight
    }

    /// How long a waiter waits for a release before a connect is started for it.
    #[must_use]
    pub fn dial_delay(&self) -> Option<Duration> {
        self.dial_delay
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

    /// Whether a connection that is held for half the hold timeout is reported.
    #[must_use]
    pub fn report_leaks(&self) -> bool {
        self.report_leaks
    }

    /// The longest a connection stays idle.
    #[must_use]
    pub fn idle_timeout(&self) -> Option<Duration> {
        self.idle_timeout
    }

    /// How long before the peer's announced timeout an idle connection is closed.
    #[must_use]
    pub fn keep_alive_margin(&self) -> Duration {
        self.keep_alive_margin
    }

    /// How often an idle connection is probed.
    #[must_use]
    pub fn heartbeat_interval(&self) -> Option<Duration> {
        self.heartbeat_interval
    }

    /// The longest a probe may take.
    #[must_use]
    pub fn heartbeat_timeout(&self) -> Duration {
        self.heartbeat_timeout
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_allowed_and_equal_the_default_config() {
        let config = PoolConfig::builder().build().unwrap();
        assert_eq!(config, PoolConfig::default());
        assert_eq!(config.max_idle(), 1000);
        assert_eq!(config.idle_timeout(), Some(Duration::from_secs(1800)));
    }

    #[test]
    fn a_config_can_be_changed_in_one_value() {
        let small = PoolConfig::builder().max_connections(7).build().unwrap();
        let larger = small.to_builder().max_connections(9).build().unwrap();
        assert_eq!((larger.max_connections(), larger.max_idle()), (9, 9));
        let capped = larger.to_builder().max_idle(3).build().unwrap();
        let capped = capped.to_builder().max_connections(12).build().unwrap();
        assert_eq!((capped.max_connections(), capped.max_idle()), (12, 3));
    }
}
