//! The load: wrk, one thread.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::cases::Case;
use crate::children::Child;
use crate::failure::{Failure, Result, Stop, While};

/// How much longer than asked wrk may take before it counts as stuck.
const SLACK: Duration = Duration::from_secs(30);

/// What wrk says about one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Load {
    pub requests: u64,
    pub per_second: f64,
    /// Microseconds.
    pub p50: f64,
    pub p99: f64,
    /// What it counted as failed, in its own words.
    pub errors: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Wrk<'a> {
    pub program: &'a Path,
    pub directory: &'a Path,
    pub cpu: usize,
    pub stop: &'a Stop,
}

impl Wrk<'_> {
    pub(crate) fn run(&self, address: SocketAddr, case: &Case, seconds: u32) -> Result<Load> {
        let mut command = Command::new(self.program);
        command
            .args(["--latency", "--threads", "1", "--timeout", "10"])
            .args(["--connections", &case.connections.to_string()])
            .args(["--duration", &format!("{seconds}s")]);
        if case.posted > 0 {
            let script = self.directory.join("post.lua");
            let text =
                include_str!("templates/post.lua").replace("@bytes@", &case.posted.to_string());
            std::fs::write(&script, text).during(script.display())?;
            command.arg("--script").arg(script);
        }
        command.arg(format!("http://{address}{}", case.path));
        let output = self.directory.join("wrk.out");
        let mut wrk = Child::start("wrk", &mut command, self.cpu, output)?;
        let longest = Duration::from_secs(seconds.into()) + SLACK;
        let status = wrk.wait(longest, self.stop)?;
        let output = wrk.output();
        match parse(&output) {
            Some(load) if status.success() => Ok(load),
            _ => Err(Failure::new(format!("wrk ended: {status}\n{output}"))),
        }
    }
}

fn parse(output: &str) -> Option<Load> {
    let lines = || output.lines().map(str::trim);
    let after = |label: &str| lines().find_map(|line| line.strip_prefix(label).map(str::trim));
    let requests = lines().find_map(|line| line.split_once(" requests in "))?;
    let mut errors = Vec::new();
    if let Some(counts) = after("Socket errors:") {
        errors.push(format!("socket errors: {counts}"));
    }
    if let Some(count) = after("Non-2xx or 3xx responses:") {
        errors.push(format!("responses other than 2xx or 3xx: {count}"));
    }
    let load = Load {
        requests: requests.0.parse().ok()?,
        per_second: after("Requests/sec:")?.parse().ok()?,
        p50: microseconds(after("50%")?)?,
        p99: microseconds(after("99%")?)?,
        errors,
    };
    Some(load)
}

fn microseconds(text: &str) -> Option<f64> {
    let unit = text.find(|character: char| character.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit);
    let factor = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" => 60e6,
        "h" => 3600e6,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
Running 1s test @ http://127.0.0.1:18080/
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.02ms  200.00us   9.99ms   95.00%
    Req/Sec    62.10k     1.20k   64.00k    70.00%
  Latency Distribution
     50%  980.00us
     75%    1.05ms
     90%    1.20ms
     99%    2.50ms
  61800 requests in 1.00s, 75.00MB read
Requests/sec:  61743.21
Transfer/sec:     74.93MB
";

    #[test]
    fn figures_of_a_run_are_read() {
        let load = parse(OUTPUT).unwrap();
        assert_eq!((load.requests, load.per_second), (61800, 61743.21));
        assert_eq!((load.p50, load.p99), (980.0, 2500.0));
        assert!(load.errors.is_empty());
    }

    #[test]
    fn errors_of_a_run_are_kept_in_its_words() {
        let output = OUTPUT.replace(
            "Requests/sec",
            "  Socket errors: connect 0, read 3, write 0, timeout 1\n  \
             Non-2xx or 3xx responses: 17\nRequests/sec",
        );
        assert_eq!(
            parse(&output).unwrap().errors,
            [
                "socket errors: connect 0, read 3, write 0, timeout 1",
                "responses other than 2xx or 3xx: 17"
            ]
        );
    }

    #[test]
    fn output_without_a_figure_is_not_taken() {
        for line in OUTPUT.lines().filter(|line| {
            ["50%", "99%", "requests in", "Requests/sec"]
                .iter()
                .any(|part| line.contains(part))
        }) {
            assert_eq!(parse(&OUTPUT.replace(line, "")), None, "{line}");
        }
    }

    #[test]
    fn each_unit_of_time_is_known() {
        for (text, expected) in [
            ("12.50us", Some(12.5)),
            ("1.5ms", Some(1500.0)),
            ("2.00s", Some(2e6)),
            ("1.0m", Some(60e6)),
            ("1.0h", Some(3600e6)),
            ("1.0d", None),
            ("12", None),
            ("us", None),
        ] {
            assert_eq!(microseconds(text), expected, "{text}");
        }
    }
}
