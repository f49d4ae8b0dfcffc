//! How many system calls a request takes, counted by strace in a run of its own.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::cases::Case;
use crate::children::{Child, wait_for};
use crate::failure::{Failure, Result, While};
use crate::processes::traced;
use crate::wrk::Wrk;

/// How long strace may take to attach.
const ATTACH: Duration = Duration::from_secs(10);

/// How long the load runs meanwhile, in seconds.
const SECONDS: u32 = 1;

/// System calls per request.
pub(crate) fn calls_per_request(
    strace: &Path,
    wrk: &Wrk<'_>,
    address: SocketAddr,
    pids: &[u32],
    case: &Case,
) -> Result<f64> {
    let counts = wrk.directory.join("strace.counts");
    let mut command = Command::new(strace);
    command.args(["-f", "-c", "-o"]).arg(&counts);
    for pid in pids {
        command.args(["-p", &pid.to_string()]);
    }
    let output = wrk.directory.join("strace.out");
    let mut strace = Child::start("strace", &mut command, wrk.cpu, output)?;
    wait_for("strace to attach", ATTACH, wrk.stop, || {
        strace.check_alive()?;
        Ok(traced(pids).then_some(()))
    })?;
    let load = wrk.run(address, case, SECONDS)?;
    strace.end();
    let text = std::fs::read_to_string(&counts).during("reading what strace counted")?;
    let calls = parse(&text).ok_or_else(|| Failure::new(format!("strace counted:\n{text}")))?;
    if load.requests == 0 {
        return Err(Failure::new("no request was answered under strace"));
    }
    Ok(calls as f64 / load.requests as f64)
}

/// The sum of the calls in a table of `strace -c`. The line with the total is not used: versions
/// differ in whether it has a figure in each column.
fn parse(table: &str) -> Option<u64> {
    let mut rules = 0;
    let mut sum = 0;
    for line in table.lines() {
        if line.starts_with("------") {
            rules += 1;
        } else if rules == 1 {
            sum += line.split_whitespace().nth(3)?.parse::<u64>().ok()?;
        }
    }
    (rules == 2).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.600000           3    200000           writev
 40.00    0.400000           2    150000     50000 recvfrom
  0.00    0.000000           0         7           epoll_wait
------ ----------- ----------- --------- --------- ----------------
100.00    1.000000           2    350007     50000 total
";

    #[test]
    fn calls_are_summed_with_and_without_errors() {
        assert_eq!(parse(TABLE), Some(350_007));
    }

    #[test]
    fn table_that_is_cut_off_or_malformed_is_not_taken() {
        assert_eq!(parse(""), None);
        let cut: Vec<&str> = TABLE.lines().take(5).collect();
        assert_eq!(parse(&cut.join("\n")), None);
        assert_eq!(parse(&TABLE.replace("200000", "many")), None);
    }
}
