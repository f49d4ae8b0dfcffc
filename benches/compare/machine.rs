//! What the figures were taken on.

use std::fs;
use std::time::SystemTime;

use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub date: String,
    pub processor: String,
    pub cpus: usize,
    pub kernel: String,
    /// Processes that wanted to run, over the minute before the first measurement: more than those
    /// of the comparison make its figures worse.
    pub load_before: String,
}

impl Machine {
    pub(crate) fn here() -> Self {
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let system = rustix::system::uname();
        Self {
            date: httpdate::fmt_http_date(SystemTime::now()),
            processor: processor(&info).to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: format!("Linux {}", system.release().to_string_lossy()),
            load_before: load.split(' ').next().unwrap_or_default().to_owned(),
        }
    }
}

fn processor(info: &str) -> &str {
    let name = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    name.map_or("unknown", |name| name.trim_start_matches([' ', '\t', ':']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_is_named_if_the_kernel_names_it() {
        assert_eq!(processor("processor\t: 0\nmodel name\t: A 1\n"), "A 1");
        assert_eq!(processor("processor\t: 0\n"), "unknown");
    }
}
