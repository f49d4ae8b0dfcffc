//! The report as a page: one file, which loads nothing.

use std::fmt::Write;

use super::plot::{Axis, Line, number, svg};
use super::report::{PERCENTILES, Report, Second, as_text, listed};
use crate::html::escaped;

/// More points than that are put together, so that a page of a long run stays small.
const MOST_POINTS: usize = 600;

/// A last second that is shorter tells little of a rate.
const SHORTEST_SHOWN: f64 = 0.5;

const STYLE: &str = "
:root { color-scheme: light dark; --back: #fff; --text: #1b1f24; --faint: #667; --grid: #dde1e6;
  --one: #0b62c4; --two: #c2410c; }
@media (prefers-color-scheme: dark) { :root { --back: #14171b; --text: #e4e7eb; --faint: #9aa3ad;
  --grid: #2c333b; --one: #6cb2ff; --two: #ff9d5c; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 70rem; background: var(--back);
  color: var(--text); font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.25rem; overflow-wrap: anywhere; margin: 0 0 .25rem; }
h2 { font-size: 1rem; margin: 0; }
p { margin: 0 0 1rem; color: var(--faint); }
main { display: grid; gap: 1.5rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
section { min-width: 0; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .2rem .75rem .2rem 0; border-bottom: 1px solid var(--grid);
  vertical-align: top; overflow-wrap: anywhere; }
th { font-weight: normal; color: var(--faint); }
td { font-variant-numeric: tabular-nums; }
svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--faint); font-size: 12px; }
svg text.y { text-anchor: end; }
svg text.x { text-anchor: middle; }
svg line.grid { stroke: var(--grid); stroke-width: 1; }
svg .one { stroke: var(--one); stroke-width: 2; fill: none; stroke-linejoin: round; }
svg .two { stroke: var(--two); stroke-width: 2; fill: none; stroke-linejoin: round; }
svg circle.one { fill: var(--one); }
svg circle.two { fill: var(--two); }
";

impl Report {
    /// The report as an HTML page with the distribution of the latency and the course of the run as
    /// plots. It loads nothing, and follows the reader's choice of light or dark.
    #[must_use]
    pub fn to_html(&self) -> String {
        let target = escaped(&format!("{} {}", self.method, self.url));
        let mut page = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>Load test: {target}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
             <h1>{target}</h1>\n<p>{}</p>\n<main>\n",
            escaped(&self.load_text())
        );
        let latencies = PERCENTILES.iter().map(|(name, _)| *name);
        let latencies = latencies.chain(["max", "mean"]).map(|name| {
            let us = self.latency_us.get(name).copied().unwrap_or_default();
            (name, as_text(us))
        });
        let latencies = match self.requests {
            0 => table([("no whole response", String::new())]),
            _ => table(latencies),
        };
        add(&mut page, "Summary", &table(self.rows()));
        add(&mut page, "Latency", &latencies);
        add(
            &mut page,
            "Latency by percentile",
            &self.distribution_plot(),
        );
        let shown = shown(&self.seconds);
        let stretch = shown.first().map_or(1, |first| first.seconds);
        let each = match stretch {
            0 | 1 => String::new(),
            // The caption tells it, as a mean would hide a second that stands out.
            _ => format!(", the highest of each {stretch} s"),
        };
        add(&mut page, "Requests per second", &rate_plot(&shown));
        add(
            &mut page,
            &format!("Latency per second{each}"),
            &latency_plot(&shown),
        );
        page.push_str("</main>\n</body>\n</html>\n");
        page
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = vec![
            ("requests", self.requests.to_string()),
            ("requests per second", format!("{:.1}", self.requests_per_s)),
            ("measured", format!("{:.2} s", self.elapsed_s)),
            ("read", format!("{:.2} MB", self.bytes_read as f64 / 1e6)),
            (
                "read per second",
                format!("{:.2} MB", self.bytes_read_per_s / 1e6),
            ),
            (
                "statuses",
                listed(self.status_classes.iter().map(|(k, n)| (k, *n))),
            ),
            (
                "errors",
                listed(self.errors_by_kind.iter().map(|(k, n)| (k, *n))),
            ),
        ];
        if self.rate.is_some() {
            rows.push(("dropped", self.dropped.to_string()));
        }
        if self.unfinished > 0 {
            let (unfinished, longest) = (self.unfinished, self.longest_unfinished_s);
            let text = format!("{unfinished}, the oldest after {longest:.3} s");
            rows.push(("unfinished", text));
        }
        rows.push(("connections opened", self.connections_opened.to_string()));
        rows
    }

    fn distribution_plot(&self) -> String {
        let points = self.distribution.iter();
        let left = points.map(|point| 1.0 - point.percentile / 100.0);
        let least_left = 1.0 / (self.requests.max(1) as f64);
        let points = left.zip(&self.distribution);
        let points: Vec<_> = points
            .map(|(left, point)| (1.0 / left.max(least_left), point.us))
            .collect();
        let y = latency_axis(points.iter().map(|(_, us)| *us));
        let line = Line {
            class: "one",
            label: "latency",
            points,
        };
        let x = Axis::percentiles(least_left);
        svg("Latency by percentile", &x, &y, &[line])
    }
}

fn add(page: &mut String, heading: &str, content: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(page, "<section>\n<h2>{heading}</h2>\n{content}\n</section>");
}

fn table<'a>(rows: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let mut table = String::from("<table>");
    for (name, text) in rows {
        let text = escaped(&text);
        let _ = write!(
            table,
            "<tr><th scope=\"row\">{name}</th><td>{text}</td></tr>"
        );
    }
    table.push_str("</table>");
    table
}

/// Some seconds in a row.
struct Stretch {
    seconds: usize,
    /// The number of its last second.
    until: f64,
    requests_per_s: f64,
    p50_us: f64,
    p99_us: f64,
}

fn shown(seconds: &[Second]) -> Vec<Stretch> {
    let seconds = match seconds {
        [before @ .., last] if last.length_s < SHORTEST_SHOWN && !before.is_empty() => before,
        all => all,
    };
    let stretch = seconds.len().div_ceil(MOST_POINTS).max(1);
    let stretches = seconds.chunks(stretch).map(|seconds| {
        let length: f64 = seconds.iter().map(|second| second.length_s).sum();
        let requests: u64 = seconds.iter().map(|second| second.requests).sum();
        let highest = |of: fn(&Second) -> f64| seconds.iter().map(of).fold(0.0, f64::max);
        Stretch {
            seconds: stretch,
            until: seconds.last().map_or(0.0, |last| last.second as f64),
            requests_per_s: requests as f64 / length.max(1e-9),
            p50_us: highest(|second| second.p50_us),
            p99_us: highest(|second| second.p99_us),
        }
    });
    stretches.collect()
}

fn time_axis(shown: &[Stretch]) -> Axis {
    let last = shown.last().map_or(1.0, |last| last.until);
    Axis::linear(last, |at| format!("{} s", number(at)))
}

fn rate_plot(shown: &[Stretch]) -> String {
    let points: Vec<_> = shown
        .iter()
        .map(|stretch| (stretch.until, stretch.requests_per_s))
        .collect();
    let most = points.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let line = Line {
        class: "one",
        label: "requests/s",
        points,
    };
    let y = Axis::linear(most, |at| match at {
        at if at >= 1e6 => format!("{} M", number(at / 1e6)),
        at if at >= 1e3 => format!("{} k", number(at / 1e3)),
        at => number(at),
    });
    svg("Requests per second", &time_axis(shown), &y, &[line])
}

fn latency_plot(shown: &[Stretch]) -> String {
    let points = |of: fn(&Stretch) -> f64| -> Vec<_> {
        let points = shown.iter().map(|stretch| (stretch.until, of(stretch)));
        points.collect()
    };
    let lines = [
        Line {
            class: "one",
            label: "p50",
            points: points(|stretch| stretch.p50_us),
        },
        Line {
            class: "two",
            label: "p99",
            points: points(|stretch| stretch.p99_us),
        },
    ];
    let values = lines.iter().flat_map(|line| &line.points);
    let y = latency_axis(values.map(|(_, us)| *us));
    svg("Latency per second", &time_axis(shown), &y, &lines)
}

/// Logarithmic: the median and the longest are seen in one picture.
fn latency_axis(values: impl Iterator<Item = f64> + Clone) -> Axis {
    let values = values.filter(|us| *us > 0.0);
    let least = values.clone().fold(f64::INFINITY, f64::min);
    let most = values.fold(0.0, f64::max);
    let least = if least.is_finite() { least } else { 1.0 };
    Axis::log(least / 1.2, most * 1.2, |us| match us {
        us if us >= 1e6 => format!("{} s", number(us / 1e6)),
        us if us >= 1e3 => format!("{} ms", number(us / 1e3)),
        us => format!("{} us", number(us)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loadgen::record::Interval;
    use std::time::Duration;

    #[test]
    fn course_of_a_long_run_keeps_its_highest_latencies_in_few_points() {
        let mut interval = Interval::new();
        interval.length = Duration::from_secs(1);
        interval.requests = 10;
        let quiet = Second::of(1, &interval);
        let mut seconds: Vec<_> = (1..=6001)
            .map(|second| Second { second, ..quiet })
            .collect();
        seconds[1234].p99_us = 5e6;
        let shown = shown(&seconds);
        assert!(shown.len() <= MOST_POINTS);
        let most = shown
            .iter()
            .map(|stretch| stretch.p99_us)
            .fold(0.0, f64::max);
        assert_eq!(most, 5e6);
        assert!(shown.iter().all(|s| (s.requests_per_s - 10.0).abs() < 1e-6));
        assert_eq!(shown.last().map(|last| last.until), Some(6001.0));
    }

    #[test]
    fn what_comes_from_outside_is_text_and_no_markup() {
        assert_eq!(escaped("a<b>&\"c"), "a&lt;b&gt;&amp;&quot;c");
    }
}
