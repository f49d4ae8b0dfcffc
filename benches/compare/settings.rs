//! What `compare` can be told on its command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;

use crate::cases::CaseName;
use crate::proxies::Kind;

/// Runs proxies side by side, one worker each, and prints what a request costs in each of them,
/// and in relation to nginx. What is not installed is named and skipped.
#[derive(Clone, Debug, Parser)]
#[command(name = "compare", max_term_width = 100)]
pub(crate) struct Settings {
    /// How many times each case is measured with each proxy, in turn
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// How long one measurement takes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: u32,
    /// Which cases to run [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub cases: Vec<CaseName>,
    /// Which proxies to run [default: all that are there]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub proxies: Vec<Kind>,
    /// The program of the gateway [default: built from this workspace]
    #[arg(long, value_name = "PATH")]
    pub gateway: Option<PathBuf>,
    /// Do not count system calls, even if strace is there
    #[arg(long)]
    pub no_strace: bool,
    /// Writes all figures to a file, each round's included
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Writes a page with bars to a file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Serves the origin that is used where nginx is missing
    #[arg(long, value_name = "ADDR", hide = true)]
    pub serve_origin: Option<SocketAddr>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Settings, clap::Error> {
        Settings::try_parse_from(std::iter::once("compare").chain(line.split_whitespace()))
    }

    #[test]
    fn lists_are_separated_by_commas() {
        let settings = parse("--cases 1k-64,post --proxies gateway,nginx").unwrap();
        assert_eq!(settings.cases, [CaseName::Small64, CaseName::Post]);
        assert_eq!(settings.proxies, [Kind::Gateway, Kind::Nginx]);
    }

    #[test]
    fn wrong_flag_is_refused_with_what_was_expected() {
        for (line, expected) in [
            ("--rounds 0", "0 is not in 1..=1000"),
            ("--seconds 0.5", "invalid digit"),
            (
                "--cases 2k",
                "[possible values: 1k-1, 1k-64, 1k-512, 64k-64, post, chunked]",
            ),
            (
                "--proxies apache",
                "[possible values: gateway, nginx, haproxy, hyper",
            ),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
