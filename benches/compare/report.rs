//! The figures of a comparison, and what follows from them.

use pinpool_benches::median;
use serde::Serialize;

use crate::cases::{Aims, Case};
use crate::machine::Machine;
use crate::numbers::median_ratio;
use crate::processes::CpuTime;
use crate::wrk::Load;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    PerSecond,
    P50,
    P99,
    Cpu,
    User,
    System,
}

/// One measurement, or the medians of several, or ratios. Times are microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Figures {
    pub requests_per_second: Option<f64>,
    pub p50: Option<f64>,
    pub p99: Option<f64>,
    pub cpu_per_request: Option<f64>,
    pub user_per_request: Option<f64>,
    pub system_per_request: Option<f64>,
    pub syscalls_per_request: Option<f64>,
    /// How long the proxy waited for its CPU because others had it, as a share of the time that it
    /// ran; none in a ratio.
    pub waited: Option<f64>,
}

impl Figures {
    pub(crate) fn of(load: &Load, used: CpuTime) -> Self {
        let cpu =
            (load.requests > 0).then(|| used.total.as_secs_f64() * 1e6 / load.requests as f64);
        let user = cpu.zip(used.user_share()).map(|(cpu, share)| cpu * share);
        Self {
            requests_per_second: Some(load.per_second),
            p50: Some(load.p50),
            p99: Some(load.p99),
            cpu_per_request: cpu,
            user_per_request: user,
            system_per_request: cpu.zip(user).map(|(cpu, user)| cpu - user),
            syscalls_per_request: None,
            waited: (!used.total.is_zero())
                .then(|| used.waited.as_secs_f64() / used.total.as_secs_f64()),
        }
    }

    pub(crate) fn get(&self, figure: Figure) -> &Option<f64> {
        match figure {
            Figure::PerSecond => &self.requests_per_second,
            Figure::P50 => &self.p50,
            Figure::P99 => &self.p99,
            Figure::Cpu => &self.cpu_per_request,
            Figure::User => &self.user_per_request,
            Figure::System => &self.system_per_request,
        }
    }

    fn each(figure: impl Fn(Figure) -> Option<f64>, syscalls_per_request: Option<f64>) -> Self {
        Self {
            requests_per_second: figure(Figure::PerSecond),
            p50: figure(Figure::P50),
            p99: figure(Figure::P99),
            cpu_per_request: figure(Figure::Cpu),
            user_per_request: figure(Figure::User),
            system_per_request: figure(Figure::System),
            syscalls_per_request,
            waited: None,
        }
    }
}

/// A proxy in a case.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Row {
    pub proxy: String,
    pub rounds: Vec<Figures>,
    pub syscalls_per_request: Option<f64>,
    pub median: Figures,
    pub to_nginx: Figures,
}

impl Row {
    fn ratio(&self, other: &Self, figure: Figure) -> Option<f64> {
        let ours = self.rounds.iter().map(|round| round.get(figure));
        median_ratio(ours.zip(other.rounds.iter().map(|round| round.get(figure))))
    }

    fn take_median(&mut self) {
        self.median = Figures::each(
            |figure| median(self.rounds.iter().filter_map(|round| *round.get(figure))),
            self.syscalls_per_request,
        );
        self.median.waited = median(self.rounds.iter().filter_map(|round| round.waited));
    }

    fn compare_to(&mut self, nginx: &Self) {
        let pair = [(&self.syscalls_per_request, &nginx.syscalls_per_request)];
        let syscalls = median_ratio(pair);
        self.to_nginx = Figures::each(|figure| self.ratio(nginx, figure), syscalls);
    }
}

/// The gateway beside the peer that takes the least CPU time per request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct BestPeer {
    pub peer: String,
    pub gateway_cpu_to_it: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct CaseReport {
    pub name: String,
    pub title: &'static str,
    pub aims: Aims,
    pub rows: Vec<Row>,
    pub best_peer: Option<BestPeer>,
}

impl CaseReport {
    pub(crate) fn new(case: &Case, proxies: impl IntoIterator<Item = String>) -> Self {
        let row = |proxy| Row {
            proxy,
            ..Row::default()
        };
        Self {
            name: case.name(),
            title: case.title,
            aims: case.aims,
            rows: proxies.into_iter().map(row).collect(),
            best_peer: None,
        }
    }

    pub(crate) fn row(&self, proxy: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.proxy == proxy)
    }

    /// Fills in what follows from the rounds.
    pub(crate) fn conclude(&mut self) {
        self.rows.iter_mut().for_each(Row::take_median);
        if let Some(nginx) = self.row("nginx").cloned() {
            self.rows.iter_mut().for_each(|row| row.compare_to(&nginx));
        }
        self.best_peer = self.find_best_peer();
    }

    fn find_best_peer(&self) -> Option<BestPeer> {
        let gateway = self.row("gateway")?;
        let peers = self.rows.iter().filter(|row| row.proxy != gateway.proxy);
        let with_cpu = peers.filter_map(|row| Some((row.median.cpu_per_request?, row)));
        let (_, best) = with_cpu.min_by(|(one, _), (other, _)| one.total_cmp(other))?;
        Some(BestPeer {
            peer: best.proxy.clone(),
            gateway_cpu_to_it: gateway.ratio(best, Figure::Cpu)?,
        })
    }
}

/// A name and what is to be said about it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Named {
    pub name: String,
    pub about: String,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub machine: Machine,
    pub rounds: u32,
    pub seconds: u32,
    pub proxy_cpu: usize,
    pub load_cpu: usize,
    pub origin: String,
    pub proxies: Vec<Named>,
    pub skipped: Vec<Named>,
    pub cases: Vec<CaseReport>,
    /// What went wrong: the figures beside it are not to be trusted.
    pub errors: Vec<String>,
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;

    /// A case with the CPU time per request of each proxy in each round.
    pub(crate) fn case(cpu: &[(&str, &[f64])]) -> CaseReport {
        let names = cpu.iter().map(|(name, _)| (*name).to_owned());
        let mut report = CaseReport::new(&Case::chosen(&[])[1], names);
        for (row, (_, rounds)) in report.rows.iter_mut().zip(cpu) {
            row.rounds = rounds
                .iter()
                .map(|cpu| Figures {
                    requests_per_second: Some(1e6 / cpu),
                    cpu_per_request: Some(*cpu),
                    waited: Some(cpu / 1000.0),
                    ..Figures::default()
                })
                .collect();
            row.syscalls_per_request = Some(4.0);
        }
        report.conclude();
        report
    }

    pub(crate) fn report(cases: Vec<CaseReport>) -> Report {
        Report {
            machine: Machine::here(),
            rounds: 1,
            seconds: 1,
            proxy_cpu: 0,
            load_cpu: 1,
            origin: "origin".to_owned(),
            proxies: Vec::new(),
            skipped: Vec::new(),
            cases,
            errors: Vec::new(),
        }
    }

    #[test]
    fn cpu_time_is_split_by_the_ticks_of_both_modes() {
        let load = Load {
            requests: 1000,
            ..Load::default()
        };
        let used = CpuTime {
            total: Duration::from_millis(20),
            user: 1,
            system: 3,
            waited: Duration::from_millis(5),
        };
        let figures = Figures::of(&load, used);
        assert_eq!(figures.cpu_per_request, Some(20.0));
        assert_eq!(figures.user_per_request, Some(5.0));
        assert_eq!(figures.system_per_request, Some(15.0));
        assert_eq!(figures.waited, Some(0.25));
        assert_eq!(Figures::of(&Load::default(), used).cpu_per_request, None);
    }

    #[test]
    fn ratios_are_to_nginx_in_the_same_round() {
        let case = case(&[
            ("gateway", &[5.0, 30.0, 8.0]),
            ("nginx", &[10.0, 20.0, 8.0]),
        ]);
        let gateway = case.row("gateway").unwrap();
        assert_eq!(gateway.median.cpu_per_request, Some(8.0));
        assert_eq!(gateway.to_nginx.cpu_per_request, Some(1.0));
        assert_eq!(gateway.to_nginx.syscalls_per_request, Some(1.0));
        assert_eq!(gateway.to_nginx.p99, None);
    }

    #[test]
    fn best_peer_is_the_one_with_the_least_cpu_time() {
        let case = case(&[("gateway", &[6.0]), ("nginx", &[10.0]), ("haproxy", &[8.0])]);
        let best = case.best_peer.unwrap();
        assert_eq!(
            (best.peer.as_str(), best.gateway_cpu_to_it),
            ("haproxy", 0.75)
        );
    }

    #[test]
    fn without_nginx_or_the_gateway_there_are_no_ratios_to_them() {
        let alone = case(&[("gateway", &[6.0])]);
        assert_eq!(alone.rows[0].to_nginx, Figures::default());
        assert_eq!(alone.best_peer, None);
        assert_eq!(case(&[("nginx", &[6.0])]).best_peer, None);
    }
}
