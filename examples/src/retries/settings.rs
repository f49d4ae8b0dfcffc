//! What the program can be told on its command line.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use http::{Method, Uri};
use http_client::{ClientConfig, Timeouts};
use pool_core::{ConfigError, PoolConfig};

use crate::durations::TimeLimit;
use crate::request_flags::{method, url};
use crate::retry_flags::RetryFlags;

/// Sends requests and shows every attempt of each, with why it was repeated or not.
///
/// Without a URL it starts an origin of faults and meets each of them. Durations are whole numbers
/// with a unit, such as 500ms, 5s or 30m, or none. Ends with 1 if a request to a URL got no whole
/// response.
#[derive(Clone, Debug, Parser)]
#[command(name = "retries", max_term_width = 100)]
pub struct Settings {
    /// What to ask for, in order [default: the faults of an origin that is started for it]
    #[arg(value_name = "URL", value_parser = url)]
    pub urls: Vec<Uri>,
    /// The method of the requests to the URLs
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "GET", requires = "urls", value_parser = method)]
    pub method: Method,
    /// The body of the requests to the URLs [default: none]
    #[arg(long, value_name = "TEXT", requires = "urls")]
    pub body: Option<String>,
    /// The requests to the URLs may be repeated, whatever their method
    #[arg(long, requires = "urls")]
    pub idempotent: bool,
    /// How many requests each URL gets
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1, requires = "urls", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub requests: u32,
    /// Which requests are sent again, and how often
    #[command(flatten)]
    pub retry: RetryFlags,
    /// How long a connect may take
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub connect_timeout: TimeLimit,
    /// How long the origin may take to answer, from the last byte of the request to its head
    #[arg(long, value_name = "TIME", default_value = "250ms")]
    pub response_head_timeout: TimeLimit,
    /// How long the body of a response may pause
    #[arg(long, value_name = "TIME", default_value = "250ms")]
    pub body_timeout: TimeLimit,
    /// How long an attempt may take, from its wait for a connection to the head of its response
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub attempt_timeout: TimeLimit,
    /// How long a request may take in all, retries and bodies included
    #[arg(long, value_name = "TIME", default_value = "3s")]
    pub request_timeout: TimeLimit,
}

impl Settings {
    /// Reads a command line, the program's name first, and checks it as a whole.
    ///
    /// # Errors
    ///
    /// What is wrong with it and what was expected; or the help, if it asks for that.
    pub fn read<I>(line: I) -> Result<Self, clap::Error>
    where
        I: IntoIterator,
        I::Item: Into<OsString> + Clone,
    {
        let settings = Self::try_parse_from(line)?;
        let checked = settings.client_config().and(settings.pool_config());
        match checked {
            Ok(_) => Ok(settings),
            Err(error) => Err(Self::command().error(ErrorKind::ValueValidation, error)),
        }
    }

    pub(super) fn client_config(&self) -> Result<ClientConfig, ConfigError> {
        let timeouts = Timeouts::builder()
            .total(self.request_timeout.get())
            .attempt(self.attempt_timeout.get())
            .response_head(self.response_head_timeout.get())
            .body_idle(self.body_timeout.get());
        let config = ClientConfig::default().timeouts(timeouts.build()?);
        self.retry.apply(config)
    }

    pub(super) fn pool_config(&self) -> Result<PoolConfig, ConfigError> {
        let config = PoolConfig::builder().connect_timeout(self.connect_timeout.get());
        config.build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Settings, clap::Error> {
        Settings::read(std::iter::once("retries").chain(line.split_whitespace()))
    }

    #[test]
    fn flags_reach_the_client_and_the_pool() {
        let settings = read(
            "http://a/b http://c -X POST --body pay --idempotent -n 3 --retry jdk --retries 7 \
             --retry-budget none --connect-timeout 2s --response-head-timeout 3s \
             --body-timeout 4s --attempt-timeout 5s --request-timeout none",
        );
        let settings = settings.unwrap();
        assert_eq!(settings.urls, ["http://a/b", "http://c"]);
        assert_eq!(
            (settings.method.as_str(), settings.body.as_deref()),
            ("POST", Some("pay"))
        );
        assert!(settings.idempotent);
        assert_eq!(settings.requests, 3);
        let shown = format!(
            "{:?} {:?}",
            settings.client_config().unwrap(),
            settings.pool_config().unwrap()
        );
        for part in [
            "max_attempts: 8",
            "retry_budget: None",
            "connect_timeout: Some(2s)",
            "response_head: Some(3s)",
            "body_idle: Some(4s)",
            "attempt: Some(5s)",
            "total: None",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }

    #[test]
    fn without_flags_nothing_takes_long() {
        let settings = read("").unwrap();
        assert!(settings.urls.is_empty());
        let shown = format!("{:?}", settings.client_config().unwrap());
        for part in [
            "max_attempts: 3",
            "total: Some(3s)",
            "attempt: Some(1s)",
            "response_head: Some(250ms)",
            "body_idle: Some(250ms)",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }

    #[test]
    fn help_says_what_the_program_does() {
        for flag in ["-h", "--help"] {
            let help = read(flag).unwrap_err();
            assert_eq!(help.exit_code(), 0);
            let help = help.to_string();
            assert!(help.starts_with("Sends requests and shows every"), "{help}");
        }
    }

    #[test]
    fn wrong_flag_is_refused_with_what_was_expected_and_ends_with_2() {
        for (line, expected) in [
            ("here", "expected http://HOST:PORT"),
            ("https://a", "expected http"),
            ("http://a:0/", "from 1 to 65535"),
            ("/path", "expected http://HOST:PORT"),
            ("http://a -X G=T", "expected a method, such as GET"),
            ("http://a -X CONNECT", "other than CONNECT"),
            ("http://a -n 0", "0 is not in 1..=1000000"),
            ("http://a -n many", "invalid digit"),
            ("--retry often", "possible values: none, default, apache"),
            ("--retry-budget 20", "from 0% to 100%, such as 20%"),
            ("--request-timeout 5", "such as 500ms, 5s, 30m or 1h"),
            ("--attempt-timeout 0s", "expected 1 ns to 2^63 ns, or none"),
            ("--connect-timeout 0s", "connect_timeout"),
            ("-X POST", "required arguments were not provided"),
            ("--body a", "required arguments were not provided"),
            ("-n 2", "required arguments were not provided"),
            ("--idempotent", "required arguments were not provided"),
        ] {
            let error = read(line).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
            let error = error.to_string();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
