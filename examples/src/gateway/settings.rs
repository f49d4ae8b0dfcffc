//! What the gateway can be told on its command line.

use std::net::SocketAddr;
use std::str::FromStr;

use clap::Parser;
use http_client::{ClientConfig, Destination, InvalidDestination, Timeouts as RequestTimeouts};
use pool_core::{ConfigError, PoolConfig};

use super::GatewayError;
use crate::durations::TimeLimit;
use crate::retry_flags::RetryFlags;
use crate::server::Timeouts;

/// A reverse proxy over pinned connection pools. Runs until SIGINT or SIGTERM.
///
/// Durations are whole numbers with a unit, such as 500ms, 5s or 30m, or none.
#[derive(Clone, Debug, Parser)]
#[command(name = "gateway", max_term_width = 100)]
pub struct Settings {
    /// Where clients are served
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Where GET /stats is answered
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8081")]
    pub admin: SocketAddr,
    /// Where requests go, round robin if given more than once [default: an embedded origin]
    #[arg(long, value_name = "http://HOST:PORT", value_parser = upstream)]
    pub upstream: Vec<String>,
    /// How many cores serve, each pinned to a CPU [default: all that the process may run on]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub cores: Option<u16>,
    /// Upstream connections, per core and upstream
    #[arg(long, value_name = "N", default_value_t = defaults().max_connections())]
    pub max_connections: u32,
    /// Requests that may wait for a connection, per core and upstream; 0 fails fast
    #[arg(long, value_name = "N|none", default_value_t = Bound(defaults().max_pending()))]
    pub max_pending: Bound,
    /// How long a request may wait for a connection
    #[arg(long, value_name = "TIME", default_value_t = defaults().acquire_timeout().into())]
    pub acquire_timeout: TimeLimit,
    /// How long a connect may take
    #[arg(long, value_name = "TIME", default_value_t = defaults().connect_timeout().into())]
    pub connect_timeout: TimeLimit,
    /// How long an upstream connection may be idle
    #[arg(long, value_name = "TIME", default_value_t = defaults().idle_timeout().into())]
    pub idle_timeout: TimeLimit,
    /// From what age on an upstream connection is used no more
    #[arg(long, value_name = "TIME", default_value_t = defaults().max_lifetime().into())]
    pub max_lifetime: TimeLimit,
    /// How many requests an upstream connection is used for
    #[arg(long, value_name = "N|none", default_value_t = Bound(defaults().max_uses()))]
    pub max_uses: Bound,
    /// How long one exchange, its bodies included, may hold an upstream connection
    #[arg(long, value_name = "TIME", default_value = "5m")]
    pub hold_timeout: TimeLimit,
    /// How long an upstream may take to answer, from the last byte of the request to its head
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub response_head_timeout: TimeLimit,
    /// How long an upstream may take nothing of a request that waits to leave
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub write_timeout: TimeLimit,
    /// How long a request may take in all, retries and bodies included
    #[arg(long, value_name = "TIME", default_value = "none")]
    pub request_timeout: TimeLimit,
    /// Which requests are sent again, and how often
    #[command(flatten)]
    pub retry: RetryFlags,
    /// How long exchanges in flight may go on after SIGINT or SIGTERM
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub drain_timeout: TimeLimit,
    /// How long clients are waited for; no flags, as the defaults fit
    #[arg(skip)]
    pub client_timeouts: Timeouts,
}

fn defaults() -> PoolConfig {
    PoolConfig::default()
}

impl Settings {
    /// The limits of each core's pool.
    ///
    /// # Errors
    ///
    /// A value is out of its range.
    pub fn pool_config(&self) -> Result<PoolConfig, ConfigError> {
        PoolConfig::builder()
            .max_connections(self.max_connections)
            .max_pending(self.max_pending.0)
            .acquire_timeout(self.acquire_timeout.get())
            .connect_timeout(self.connect_timeout.get())
            .idle_timeout(self.idle_timeout.get())
            .hold_timeout(self.hold_timeout.get())
            .max_lifetime(self.max_lifetime.get())
            .max_uses(self.max_uses.0)
            .build()
    }

    /// How each core's client behaves.
    ///
    /// # Errors
    ///
    /// A value is out of its range.
    pub fn client_config(&self) -> Result<ClientConfig, ConfigError> {
        let timeouts = RequestTimeouts::builder()
            .total(self.request_timeout.get())
            .response_head(self.response_head_timeout.get())
            .write_stall(self.write_timeout.get());
        let config = ClientConfig::default().timeouts(timeouts.build()?);
        self.retry.apply(config)
    }

    /// The CPUs to serve on.
    pub(super) fn cpus(&self) -> Result<Vec<usize>, GatewayError> {
        // Where they are not told, there is at least this one.
        let mut cpus = pool_core::allowed_cpus().unwrap_or_else(|_| vec![0]);
        let asked = self.cores.map_or(cpus.len(), usize::from);
        if asked > cpus.len() {
            return Err(GatewayError::Cores {
                asked,
                available: cpus.len(),
            });
        }
        cpus.truncate(asked);
        Ok(cpus)
    }
}

/// Checks a destination; it is kept as text, which can go to the cores.
fn upstream(text: &str) -> Result<String, InvalidDestination> {
    text.parse::<Destination>()
        .map(|destination| destination.to_string())
}

/// A bound, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound(pub Option<u32>);

/// The text is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a whole number, or none")]
pub struct NotABound;

impl FromStr for Bound {
    type Err = NotABound;

    fn from_str(text: &str) -> Result<Self, NotABound> {
        match text {
            "none" => Ok(Self(None)),
            number => number
                .parse()
                .map(|bound| Self(Some(bound)))
                .map_err(|_| NotABound),
        }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(bound) => bound.fmt(f),
            None => f.write_str("none"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn parse(line: &str) -> Result<Settings, clap::Error> {
        Settings::try_parse_from(std::iter::once("gateway").chain(line.split_whitespace()))
    }

    #[test]
    fn without_flags_the_documented_defaults_hold() {
        let settings = parse("").unwrap();
        assert_eq!(settings.listen, "127.0.0.1:8080".parse().unwrap());
        assert_eq!(settings.admin, "127.0.0.1:8081".parse().unwrap());
        let config = settings.pool_config().unwrap();
        assert_eq!(
            (config.max_connections(), config.max_pending()),
            (1000, None)
        );
        assert_eq!(config.acquire_timeout(), Some(Duration::from_secs(5)));
        assert_eq!(config.idle_timeout(), Some(Duration::from_secs(1800)));
        assert_eq!(config.hold_timeout(), Some(Duration::from_secs(300)));
    }

    #[test]
    fn flags_reach_the_pool() {
        let line = "--max-connections 7 --max-pending 0 --acquire-timeout none \
                    --connect-timeout 250ms --idle-timeout 30m --hold-timeout 1h \
                    --max-lifetime 10m --max-uses 500";
        let config = parse(line).unwrap().pool_config().unwrap();
        assert_eq!(
            (config.max_connections(), config.max_pending()),
            (7, Some(0))
        );
        assert_eq!(config.acquire_timeout(), None);
        assert_eq!(config.connect_timeout(), Some(Duration::from_millis(250)));
        assert_eq!(config.hold_timeout(), Some(Duration::from_secs(3600)));
        assert_eq!(config.max_lifetime(), Some(Duration::from_secs(600)));
        assert_eq!(config.max_uses(), Some(500));
    }

    #[test]
    fn flags_reach_the_client() {
        let line = "--retries 4 --retry-budget 12.5% --request-timeout 3s \
                    --response-head-timeout 2s --write-timeout none";
        let config = parse(line).unwrap().client_config().unwrap();
        let shown = format!("{config:?}");
        for part in [
            "max_attempts: 5",
            "125000",
            "total: Some(3s)",
            "response_head: Some(2s)",
            "write_stall: None",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }

    #[test]
    fn wrong_flag_is_refused_with_what_was_expected() {
        for (line, expected) in [
            ("--listen nowhere", "invalid socket address"),
            ("--upstream 127.0.0.1:80", "expected http://HOST:PORT"),
            ("--upstream https://a", "expected http"),
            ("--idle-timeout 5", "such as 500ms, 5s, 30m or 1h, or none"),
            ("--max-pending many", "expected a whole number, or none"),
            ("--max-connections -1", "-1"),
            ("--cores 0", "0 is not in 1..=65535"),
            ("--core 1", "unexpected argument '--core'"),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(expected), "{line}: {error}");
        }
        let zero = parse("--max-connections 0")
            .unwrap()
            .pool_config()
            .unwrap_err();
        assert!(zero.to_string().contains("max_connections"), "{zero}");
        let cores = parse("--cores 60000").unwrap().cpus().unwrap_err();
        assert!(cores.to_string().starts_with("--cores 60000"), "{cores}");
    }
}
