//! What the kernel says about processes: their descendants and their CPU time.

use std::fs;
use std::time::Duration;

use crate::failure::{Failure, Result, While};

/// The CPU time of some processes so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuTime {
    /// Exact, from the scheduler.
    pub total: Duration,
    /// How long threads were ready to run while something else had their CPU.
    pub waited: Duration,
    /// Clock ticks, from which the share of user and system is taken.
    pub user: u64,
    pub system: u64,
}

impl CpuTime {
    /// Of processes, with all their threads.
    pub(crate) fn of(pids: &[u32]) -> Result<Self> {
        let mut sum = Self::default();
        for pid in pids {
            let stat = read(&format!("/proc/{pid}/stat"))?;
            let stat = Stat::parse(&stat)
                .ok_or_else(|| Failure::new(format!("/proc/{pid}/stat reads {stat:?}")))?;
            sum.user += stat.user;
            sum.system += stat.system;
            let (ran, waited) = match scheduled(*pid)? {
                Some(times) => times,
                None => (ticks(stat.user + stat.system), Duration::ZERO),
            };
            sum.total += ran;
            sum.waited += waited;
        }
        Ok(sum)
    }

    /// What was used between then and now.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            total: self.total.saturating_sub(before.total),
            waited: self.waited.saturating_sub(before.waited),
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
        }
    }

    /// The share of the time spent in user mode, if there are ticks to tell it from.
    pub(crate) fn user_share(self) -> Option<f64> {
        let ticks = self.user + self.system;
        (ticks > 0).then(|| self.user as f64 / ticks as f64)
    }
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).during(path)
}

fn ticks(number: u64) -> Duration {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_secs_f64(number as f64 / per_second as f64)
}

/// How long a process's threads have run, and waited to run, unless the kernel does not count it.
fn scheduled(pid: u32) -> Result<Option<(Duration, Duration)>> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).during(format!("process {pid}"))?;
    let (mut ran, mut waited) = (Duration::ZERO, Duration::ZERO);
    for thread in threads {
        let path = thread.during(format!("process {pid}"))?.path();
        // A thread that has ended in between has no file; a kernel without the file, no thread.
        let Ok(text) = fs::read_to_string(path.join("schedstat")) else {
            continue;
        };
        let times = parse_schedstat(&text)
            .ok_or_else(|| Failure::new(format!("schedstat of {pid} reads {text:?}")))?;
        ran += times.0;
        waited += times.1;
    }
    Ok((ran > Duration::ZERO).then_some((ran, waited)))
}

/// The nanoseconds spent running, and those spent waiting to.
fn parse_schedstat(text: &str) -> Option<(Duration, Duration)> {
    let mut numbers = text.split_whitespace().map(|number| number.parse().ok());
    let mut next = || numbers.next().flatten().map(Duration::from_nanos);
    Some((next()?, next()?))
}

/// What is used of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    user: u64,
    system: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name may have spaces and parentheses; nothing after it has.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            user: fields.get(11)?.parse().ok()?,
            system: fields.get(12)?.parse().ok()?,
        })
    }
}

/// A process and all its descendants.
pub(crate) fn family(pid: u32) -> Result<Vec<u32>> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").during("/proc")? {
        let name = entry.during("/proc")?.file_name();
        let Some(other) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(format!("/proc/{other}/stat")).unwrap_or_default();
        parents.extend(Stat::parse(&stat).map(|stat| (other, stat.parent)));
    }
    let mut family = vec![pid];
    let mut next = 0;
    while let Some(&parent) = family.get(next) {
        next += 1;
        let children = parents.iter().filter(|(_, of)| *of == parent);
        family.extend(children.map(|(child, _)| *child));
    }
    Ok(family)
}

/// Whether a tracer is attached to each thread of each process.
pub(crate) fn traced(pids: &[u32]) -> bool {
    pids.iter().all(|pid| {
        let Ok(mut threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
            return false;
        };
        threads.all(|thread| {
            let status = thread.map(|thread| fs::read_to_string(thread.path().join("status")));
            status.is_ok_and(|status| status.is_ok_and(|status| has_tracer(&status)))
        })
    })
}

fn has_tracer(status: &str) -> bool {
    let mut lines = status.lines();
    let tracer = lines.find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|pid| pid.trim() != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_parsed_behind_a_name_with_parentheses() {
        let text = "17 (a) b (c)) S 5 17 17 0 -1 4194560 100 0 0 0 250 31 7 8 20 0 1 0 99\n";
        let expected = Stat {
            parent: 5,
            user: 250,
            system: 31,
        };
        assert_eq!(Stat::parse(text), Some(expected));
        for wrong in [
            "",
            "17 (a",
            "17 (a) S 5 17",
            "17 (a) S x 0 0 0 0 0 0 0 0 0 1 1",
        ] {
            assert_eq!(Stat::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn schedstat_gives_the_times_spent_running_and_waiting() {
        let times = parse_schedstat("318105 51877 1\n");
        let expected = (Duration::from_nanos(318_105), Duration::from_nanos(51_877));
        assert_eq!(times, Some(expected));
        assert_eq!(parse_schedstat("318105"), None);
        assert_eq!(parse_schedstat(""), None);
        assert_eq!(parse_schedstat("-1 0 0"), None);
    }

    #[test]
    fn tracer_is_seen() {
        assert!(has_tracer("Name:\ta\nTracerPid:\t12\nUid:\t0"));
        assert!(!has_tracer("Name:\ta\nTracerPid:\t0\nUid:\t0"));
        assert!(!has_tracer(""));
    }

    #[test]
    fn time_of_a_process_grows_with_what_it_does() {
        let pid = [std::process::id()];
        let before = CpuTime::of(&pid).unwrap();
        let since = std::time::Instant::now();
        let mut used = CpuTime::default();
        while used.total.is_zero() && since.elapsed() < Duration::from_secs(60) {
            used = CpuTime::of(&pid).unwrap().since(before);
        }
        assert!(!used.total.is_zero());
    }

    #[test]
    fn share_of_user_mode_needs_ticks() {
        let mut time = CpuTime::default();
        assert_eq!(time.user_share(), None);
        (time.user, time.system) = (1, 3);
        assert_eq!(time.user_share(), Some(0.25));
    }
}
