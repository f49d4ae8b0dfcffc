//! What the command line says of retries.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use http_client::{BudgetConfig, ClientConfig, RetryTable, Timeouts};
use pool_core::ConfigError;

use super::settings::Settings;

/// The retry presets by the names that they have on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// Nothing is retried
    None,
    /// What was never sent, what may be repeated, and the stale connection
    Default,
    /// As Apache HttpClient 4.3
    Apache,
    /// The same with timeouts retried
    ApacheTimeouts,
    /// As the HttpClient of the JDK
    Jdk,
    /// As Apache HttpAsyncClient 4.1
    Async,
}

impl Preset {
    fn table(self) -> RetryTable {
        match self {
            Self::None => RetryTable::none(),
            Self::Default => RetryTable::default(),
            Self::Apache => RetryTable::apache_4_3(),
            Self::ApacheTimeouts => RetryTable::apache_4_3_with_timeouts(),
            Self::Jdk => RetryTable::jdk(),
            Self::Async => RetryTable::apache_async_4_1(),
        }
    }
}

/// A share of the requests in percent, or none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(Option<f64>);

/// The text is no share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a share of the requests from 0% to 100%, such as 20%, or none")]
pub struct NotAShare;

impl FromStr for Share {
    type Err = NotAShare;

    fn from_str(text: &str) -> Result<Self, NotAShare> {
        if text == "none" {
            return Ok(Self(None));
        }
        let percent = text.strip_suffix('%').ok_or(NotAShare)?;
        let percent: f64 = percent.parse().map_err(|_| NotAShare)?;
        match (0.0..=100.0).contains(&percent) {
            true => Ok(Self(Some(percent))),
            false => Err(NotAShare),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(percent) => write!(f, "{percent}%"),
            None => f.write_str("none"),
        }
    }
}

impl Settings {
    /// How each core's client behaves.
    ///
    /// # Errors
    ///
    /// A value is out of its range.
    pub fn client_config(&self) -> Result<ClientConfig, ConfigError> {
        let mut table = self.retry.table();
        if let Some(retries) = self.retries {
            table = table.retries(retries);
        }
        let budget = self
            .retry_budget
            .0
            .map(|percent| BudgetConfig::builder().ratio(percent / 100.0).build());
        let timeouts = Timeouts::builder()
            .total(self.request_timeout.get())
            .response_head(self.response_head_timeout.get())
            .write_stall(self.write_timeout.get());
        Ok(ClientConfig::default()
            .retry(table)
            .retry_budget(budget.transpose()?)
            .timeouts(timeouts.build()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn parse(line: &str) -> Result<Settings, clap::Error> {
        Settings::try_parse_from(std::iter::once("gateway").chain(line.split_whitespace()))
    }

    #[test]
    fn every_preset_has_a_name_on_the_command_line() {
        for (name, table) in [
            ("none", RetryTable::none()),
            ("default", RetryTable::default()),
            ("apache", RetryTable::apache_4_3()),
            ("apache-timeouts", RetryTable::apache_4_3_with_timeouts()),
            ("jdk", RetryTable::jdk()),
            ("async", RetryTable::apache_async_4_1()),
        ] {
            let settings = parse(&format!("--retry {name}")).unwrap();
            assert_eq!(settings.retry.table(), table);
        }
        assert_eq!(parse("").unwrap().retry, Preset::Default);
    }

    #[test]
    fn flags_reach_the_client() {
        let line = "--retries 4 --retry-budget 12.5% --request-timeout 3s";
        let config = parse(line).unwrap().client_config().unwrap();
        let shown = format!("{config:?}");
        for part in ["max_attempts: 5", "125000", "total: Some(3s)"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let config = parse("--retry-budget none")
            .unwrap()
            .client_config()
            .unwrap();
        assert!(format!("{config:?}").contains("retry_budget: None"));
    }

    #[test]
    fn wrong_flag_is_refused_with_what_was_expected() {
        for (line, expected) in [
            ("--retry often", "possible values: none, default, apache"),
            ("--retry-budget 20", "from 0% to 100%, such as 20%"),
            ("--retry-budget 101%", "from 0% to 100%, such as 20%"),
            ("--retry-budget NaN%", "from 0% to 100%, such as 20%"),
            ("--retries many", "invalid digit"),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
