//! The report as one page without anything outside of it: bars for each case and figure.

use std::fmt::Write;

use crate::numbers::shown;
use crate::report::{CaseReport, Figure, Figures, Report, Row};
use crate::table;

/// What is drawn, by what is better.
const CHARTS: [(&str, Figure); 4] = [
    ("CPU µs per request (less is better)", Figure::Cpu),
    ("requests per second (more is better)", Figure::PerSecond),
    ("p50, µs (less is better)", Figure::P50),
    ("p99, µs (less is better)", Figure::P99),
];

const WIDTH: f64 = 320.0;
const BAR: f64 = 14.0;
const LINE: f64 = 22.0;
/// Where bars begin, after the names.
const LEFT: f64 = 66.0;
/// What is kept free behind the longest bar for its figure.
const RIGHT: f64 = 100.0;

pub(crate) fn page(report: &Report) -> String {
    let cases: String = report.cases.iter().map(section).collect();
    let errors: String = report
        .errors
        .iter()
        .map(|error| format!("<li>{}</li>", escaped(error)))
        .collect();
    let errors = if errors.is_empty() {
        errors
    } else {
        format!(
            "<p class=\"errors\">Errors; the figures beside them do not count:</p><ul class=\"errors\">{errors}</ul>"
        )
    };
    include_str!("templates/page.html")
        .replace("@cases@", &cases)
        .replace("@errors@", &errors)
        .replace("@head@", &escaped(&table::head(report)))
}

fn section(case: &CaseReport) -> String {
    let charts: String = CHARTS
        .iter()
        .map(|(caption, figure)| {
            let bars = chart(&case.rows, *figure, caption);
            format!("<figure><figcaption>{caption}</figcaption>{bars}</figure>\n")
        })
        .collect();
    let (title, text) = (escaped(case.title), escaped(&table::case(case)));
    format!(
        "<h2>{title}</h2>\n<div class=\"charts\">\n{charts}</div>\n\
         <details><summary>table</summary><pre>{}</pre></details>\n",
        text.trim()
    )
}

/// Horizontal bars, each with its figure and its ratio to nginx.
fn chart(rows: &[Row], figure: Figure, label: &str) -> String {
    let value = |figures: &Figures| *figures.get(figure);
    let longest = rows.iter().filter_map(|row| value(&row.median));
    let longest = longest.fold(0.0, f64::max);
    let height = LINE * rows.len() as f64;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">",
        escaped(label)
    );
    for (number, row) in rows.iter().enumerate() {
        let top = LINE * number as f64;
        let base = top + BAR;
        let median = value(&row.median);
        let length = match median {
            Some(median) if longest > 0.0 => (WIDTH - LEFT - RIGHT) * median / longest,
            _ => 0.0,
        };
        let class = if row.proxy == "gateway" {
            "own"
        } else {
            "peer"
        };
        let ratio =
            value(&row.to_nginx).map_or_else(String::new, |ratio| format!(" ({ratio:.2}×)"));
        let _ = write!(
            svg,
            "<text x=\"0\" y=\"{base:.0}\">{}</text>\
             <rect class=\"{class}\" x=\"{LEFT}\" y=\"{:.0}\" width=\"{length:.1}\" height=\"{BAR}\" rx=\"2\"/>\
             <text x=\"{:.1}\" y=\"{base:.0}\">{}{ratio}</text>",
            escaped(&row.proxy),
            top + 2.0,
            LEFT + length + 5.0,
            shown(median),
        );
    }
    svg.push_str("</svg>");
    svg
}

fn escaped(text: &str) -> String {
    // What the template marks its places with is escaped too.
    pinpool_examples::html::escaped(text).replace('@', "&#64;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{case, report};

    fn widths(svg: &str) -> Vec<f64> {
        let bars = svg.split("<rect ").skip(1);
        let widths = bars.map(|bar| {
            bar.split("width=\"")
                .nth(1)
                .unwrap()
                .split('"')
                .next()
                .unwrap()
        });
        widths.map(|width| width.parse().unwrap()).collect()
    }

    #[test]
    fn bars_are_as_long_as_their_figures() {
        let case = case(&[("gateway", &[5.0]), ("nginx", &[10.0])]);
        let svg = chart(&case.rows, Figure::Cpu, "CPU");
        assert_eq!(widths(&svg), [77.0, 154.0]);
        assert!(svg.contains("5.00 (0.50×)"), "{svg}");
        assert_eq!(widths(&chart(&case.rows, Figure::P99, "p99")), [0.0, 0.0]);
    }

    #[test]
    fn page_needs_nothing_from_outside_and_nothing_breaks_out_of_it() {
        let mut report = report(vec![case(&[("gateway", &[5.0]), ("nginx", &[10.0])])]);
        report.errors.push("<script>@cases@".to_owned());
        let page = page(&report);
        assert!(!page.contains("<script") && page.contains("&lt;script&gt;&#64;cases&#64;"));
        assert!(!page.contains("src=") && !page.contains("href=") && !page.contains("@import"));
        assert_eq!(page.matches("<svg ").count(), CHARTS.len());
        assert!(page.contains("prefers-color-scheme: dark"));
    }
}
