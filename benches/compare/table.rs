//! The report as text.

use std::fmt::Write;

use crate::numbers::shown;
use crate::report::{CaseReport, Report, Row};

const COLUMNS: [&str; 8] = [
    "",
    "req/s",
    "p50 µs",
    "p99 µs",
    "CPU µs/req",
    "user",
    "system",
    "syscalls/req",
];

/// From which share of waiting on the figures are called disturbed.
const DISTURBED: f64 = 0.1;

/// What the figures were taken with.
pub(crate) fn head(report: &Report) -> String {
    let machine = &report.machine;
    let mut text = format!(
        "{}: {}, {} CPUs, {}, load {} before\n\
         {} rounds of {} s; proxies on CPU {}, wrk and the origin ({}) on CPU {}\n",
        machine.date,
        machine.processor,
        machine.cpus,
        machine.kernel,
        machine.load_before,
        report.rounds,
        report.seconds,
        report.proxy_cpu,
        report.origin,
        report.load_cpu,
    );
    if report.proxy_cpu == report.load_cpu {
        text.push_str("there is one CPU only: the load takes from what the proxies have\n");
    }
    for proxy in &report.proxies {
        let _ = writeln!(text, "{:<8} {}", proxy.name, proxy.about);
    }
    for proxy in &report.skipped {
        let _ = writeln!(text, "{:<8} skipped: {}", proxy.name, proxy.about);
    }
    text
}

/// One case: medians, each with its ratio to nginx.
pub(crate) fn case(case: &CaseReport) -> String {
    let mut lines: Vec<Vec<String>> = vec![COLUMNS.map(str::to_owned).to_vec()];
    lines.extend(case.rows.iter().map(cells));
    let widths: Vec<usize> = (0..COLUMNS.len())
        .map(|column| {
            let cells = lines.iter().map(|line| line[column].chars().count());
            cells.max().unwrap_or(0)
        })
        .collect();
    let mut text = format!("\n{} ({})\n", case.title, case.name);
    for line in &lines {
        let _ = write!(text, "{:<width$}", line[0], width = widths[0]);
        for (cell, width) in line.iter().zip(&widths).skip(1) {
            let _ = write!(text, "  {cell:>width$}");
        }
        text.push('\n');
    }
    text.push_str(&disturbance(case));
    text.push_str(&aims(case));
    text
}

fn cells(row: &Row) -> Vec<String> {
    let (median, ratio) = (&row.median, &row.to_nginx);
    let figures = [
        (median.requests_per_second, ratio.requests_per_second),
        (median.p50, ratio.p50),
        (median.p99, ratio.p99),
        (median.cpu_per_request, ratio.cpu_per_request),
        (median.user_per_request, ratio.user_per_request),
        (median.system_per_request, ratio.system_per_request),
        (median.syscalls_per_request, ratio.syscalls_per_request),
    ];
    let cells = figures.map(|(figure, ratio)| match ratio {
        Some(ratio) => format!("{} {ratio:>5.2}×", shown(figure)),
        None => format!("{}       ", shown(figure)),
    });
    std::iter::once(row.proxy.clone()).chain(cells).collect()
}

/// Whether others had the proxies' CPU, which latency and requests per second then tell of.
fn disturbance(case: &CaseReport) -> String {
    let waited = case.rows.iter().filter_map(|row| row.median.waited);
    let most = waited.fold(0.0, f64::max);
    if most < DISTURBED {
        return String::new();
    }
    let percent = most * 100.0;
    format!("disturbed: a proxy waited for its CPU for {percent:.0} % of the time that it ran\n")
}

/// The gateway's ratios beside those aimed at.
fn aims(case: &CaseReport) -> String {
    let Some(gateway) = case.row("gateway") else {
        return String::new();
    };
    let mut parts = Vec::new();
    let mut part = |what: String, ratio: Option<f64>, aim: f64| {
        let ratio = ratio.map(|ratio| {
            // As printed, so that what looks reached is.
            let reached = (ratio * 100.0).round() <= (aim * 100.0).round();
            let verdict = if reached { "reached" } else { "not reached" };
            format!("{what} {ratio:.2} (aim {aim:.2}, {verdict})")
        });
        parts.extend(ratio);
    };
    let to_nginx = &gateway.to_nginx;
    part(
        "CPU to nginx".to_owned(),
        to_nginx.cpu_per_request,
        case.aims.to_nginx,
    );
    if let Some(best) = &case.best_peer {
        let what = format!("CPU to the best peer, {},", best.peer);
        part(what, Some(best.gateway_cpu_to_it), case.aims.to_best_peer);
    }
    part("p99 to nginx".to_owned(), to_nginx.p99, 1.0);
    if parts.is_empty() {
        return String::new();
    }
    format!("gateway: {}\n", parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::case as case_of;

    #[test]
    fn case_shows_medians_ratios_and_aims() {
        let text = case(&case_of(&[
            ("gateway", &[8.0]),
            ("nginx", &[10.0]),
            ("haproxy", &[16.0]),
        ]));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "1 KiB, 64 connections (1k-64)");
        assert!(lines[3].starts_with("gateway  125000  1.25×"), "{text}");
        assert!(lines[3].contains(" 8.00  0.80×"), "{text}");
        assert!(lines[3].ends_with(" 4.00  1.00×"), "{text}");
        assert_eq!(
            lines[6],
            "gateway: CPU to nginx 0.80 (aim 0.75, not reached); \
             CPU to the best peer, nginx, 0.80 (aim 0.90, reached)"
        );
        let widths: Vec<usize> = lines[2..6]
            .iter()
            .map(|line| line.chars().count())
            .collect();
        assert!(widths.iter().all(|width| *width == widths[0]), "{text}");
    }

    #[test]
    fn waiting_for_the_cpu_is_told_if_there_was_much_of_it() {
        let quiet = case(&case_of(&[("nginx", &[90.0])]));
        assert!(!quiet.contains("disturbed"), "{quiet}");
        let busy = case(&case_of(&[("nginx", &[90.0]), ("haproxy", &[120.0])]));
        assert!(
            busy.contains("disturbed: a proxy waited for its CPU for 12 %"),
            "{busy}"
        );
    }

    #[test]
    fn figures_that_are_missing_are_dashes() {
        let text = case(&case_of(&[("haproxy", &[])]));
        let row = text.lines().nth(3).unwrap();
        assert_eq!(row.matches('-').count(), 6, "{text}");
        assert!(!text.contains("aim"), "{text}");
    }
}
