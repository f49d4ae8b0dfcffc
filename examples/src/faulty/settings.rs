//! What the origin can be told on its command line.

use std::net::SocketAddr;

use clap::Parser;

use super::catalogue;

/// The gateway and its statistics have the ports before it.
const LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8082);

const MOST_CONNECTIONS: u32 = 4096;

/// An origin that breaks HTTP as it is asked to, a fault for each path. Runs until SIGINT or
/// SIGTERM.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "faulty_origin",
    max_term_width = 100,
    after_help = catalogue::index(LISTEN)
)]
pub struct Settings {
    /// Where clients are served
    #[arg(long, value_name = "ADDR", default_value_t = LISTEN)]
    pub listen: SocketAddr,
    /// The seed of /mix, where a request names none
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// How many connections are served at a time; those beyond are closed at once
    #[arg(long, value_name = "N", default_value_t = MOST_CONNECTIONS, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_connections: u32,
}

impl Default for Settings {
    /// As without flags.
    fn default() -> Self {
        Self {
            listen: LISTEN,
            seed: 0,
            max_connections: MOST_CONNECTIONS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_and_wrong_ones_are_refused_with_what_was_expected() {
        let parse = |line: &str| Settings::try_parse_from(line.split(' '));
        let settings = parse("faulty_origin").unwrap();
        assert_eq!((settings.listen, settings.seed), (LISTEN, 0));
        assert_eq!(settings.max_connections, 4096);
        let settings = parse("faulty_origin --listen [::1]:0 --seed 7 --max-connections 2");
        let settings = settings.unwrap();
        assert_eq!((settings.seed, settings.max_connections), (7, 2));
        assert_eq!(settings.listen.to_string(), "[::1]:0");
        for (line, expected) in [
            ("x --listen nowhere", "invalid socket address"),
            ("x --seed -1", "-1"),
            ("x --max-connections 0", "0 is not in 1..=4294967295"),
            ("x --help", "\n/close/WHERE\n"),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
