//! What a command line says of retries.

use std::fmt;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use http_client::{BudgetConfig, ClientConfig, RetryTable};
use pool_core::ConfigError;

/// The flags about retries.
#[derive(Clone, Copy, Debug, Args)]
pub struct RetryFlags {
    /// Which requests are sent again
    #[arg(long, value_name = "POLICY", value_enum, default_value_t = Preset::Default)]
    pub retry: Preset,
    /// How many times a request may be sent again [default: as the policy has it]
    #[arg(long, value_name = "N")]
    pub retries: Option<u32>,
    /// How many retries a destination is worth on a core, as a share of the requests; at least 3 a second
    #[arg(long, value_name = "SHARE|none", default_value = "20%")]
    pub retry_budget: Share,
}

impl RetryFlags {
    /// The policy that they name.
    #[must_use]
    pub fn table(&self) -> RetryTable {
        let table = self.retry.table();
        match self.retries {
            Some(retries) => table.retries(retries),
            None => table,
        }
    }

    /// `config` with the policy and the budget that they name.
    ///
    /// # Errors
    ///
    /// A value is out of its range.
    pub fn apply(&self, config: ClientConfig) -> Result<ClientConfig, ConfigError> {
        let budget = self
            .retry_budget
            .0
            .map(|percent| BudgetConfig::builder().ratio(percent / 100.0).build());
        Ok(config.retry(self.table()).retry_budget(budget.transpose()?))
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: RetryFlags,
    }

    fn parse(line: &str) -> Result<RetryFlags, clap::Error> {
        let words = std::iter::once("program").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.flags)
    }

    fn config(line: &str) -> String {
        let config = parse(line).unwrap().apply(ClientConfig::default());
        format!("{:?}", config.unwrap())
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
            assert_eq!(parse(&format!("--retry {name}")).unwrap().table(), table);
        }
        assert_eq!(parse("").unwrap().table(), RetryTable::default());
    }

    #[test]
    fn flags_reach_the_client() {
        let shown = config("--retries 4 --retry-budget 12.5%");
        for part in ["max_attempts: 5", "125000"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(config("--retry-budget none").contains("retry_budget: None"));
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
