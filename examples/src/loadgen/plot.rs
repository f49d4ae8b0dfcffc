//! Line plots as SVG, to stand in a page: no script, no asset, colours by the page's style.

use std::fmt::Write;

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 38.0;

/// A line of a plot.
pub(super) struct Line<'a> {
    /// The class that gives it its colour.
    pub(super) class: &'static str,
    pub(super) label: &'a str,
    /// In the order of x. A point that the y axis has no place for is a gap.
    pub(super) points: Vec<(f64, f64)>,
}

/// What an axis has at which place.
pub(super) struct Axis {
    scale: Scale,
    from: f64,
    to: f64,
    ticks: Vec<(f64, String)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Scale {
    Linear,
    Log,
}

impl Axis {
    /// From 0 to at least `most`, with round ticks.
    pub(super) fn linear(most: f64, text: impl Fn(f64) -> String) -> Self {
        let step = round_step(most / 4.0);
        let most_ticks = (most / step).ceil().max(1.0);
        let numbers = (0..).map(f64::from).take_while(|n| *n <= most_ticks);
        let ticks = numbers.map(|n| n * step);
        Self {
            scale: Scale::Linear,
            from: 0.0,
            to: most_ticks * step,
            ticks: ticks.map(|at| (at, text(at))).collect(),
        }
    }

    /// From `least` to `most`, as wide as they are and no wider, with ticks at 1, 2 and 5 of each
    /// factor of ten; with those at 1 alone where there are many.
    pub(super) fn log(least: f64, most: f64, text: impl Fn(f64) -> String) -> Self {
        let (from, to) = (least.max(1e-3), most.max(least.max(1e-3) * 10.0));
        let (first, last) = (from.log10().floor(), to.log10().ceil());
        let decades = last - first;
        let steps: &[f64] = if decades > 3.0 {
            &[1.0]
        } else {
            &[1.0, 2.0, 5.0]
        };
        let mut ticks = Vec::new();
        let mut decade = first;
        while decade <= last {
            let at = steps.iter().map(|step| step * 10f64.powf(decade));
            ticks.extend(at.filter(|at| (from..=to).contains(at)));
            decade += 1.0;
        }
        Self {
            scale: Scale::Log,
            from,
            to,
            ticks: ticks.into_iter().map(|at| (at, text(at))).collect(),
        }
    }

    /// Towards 100 %, each factor of ten as wide as the one before. `least_left` is the share, from
    /// 0 to 1, that is left at its end.
    pub(super) fn percentiles(least_left: f64) -> Self {
        let names = ["0", "90", "99", "99.9", "99.99", "99.999", "99.9999"];
        let to = (1.0 / least_left.max(1e-9)).max(10.0);
        let ticks = (0..).map(|decade| 10f64.powi(decade)).zip(names);
        Self {
            scale: Scale::Log,
            from: 1.0,
            to,
            ticks: ticks
                .filter(|(at, _)| *at <= to)
                .map(|(at, name)| (at, format!("{name} %")))
                .collect(),
        }
    }

    /// Where a value stands, from 0 to 1.
    fn place(&self, value: f64) -> Option<f64> {
        let place = match self.scale {
            Scale::Linear => (value - self.from) / (self.to - self.from),
            Scale::Log if value <= 0.0 => return None,
            Scale::Log => (value / self.from).ln() / (self.to / self.from).ln(),
        };
        place.is_finite().then(|| place.clamp(0.0, 1.0))
    }
}

/// A number as a tick has it: what its last digits were is rounding.
pub(super) fn number(at: f64) -> String {
    let rounded = (at * 1e3).round() / 1e3;
    rounded.to_string()
}

/// 1, 2 or 5 times a power of ten, at least `step`.
fn round_step(step: f64) -> f64 {
    if !step.is_finite() || step <= 0.0 {
        return 1.0;
    }
    let decade = 10f64.powf(step.log10().floor());
    let rounded = [1.0, 2.0, 5.0].map(|times| times * decade);
    let fits = rounded.into_iter().find(|rounded| *rounded >= step);
    fits.unwrap_or(10.0 * decade)
}

/// The plot as an `svg` element. `title` is read out by those who do not see it.
pub(super) fn svg(title: &str, x: &Axis, y: &Axis, lines: &[Line<'_>]) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">"
    );
    draw_axes(&mut out, x, y);
    for (number, line) in lines.iter().enumerate() {
        let at = LEFT + number as f64 * 120.0;
        let (class, label) = (line.class, line.label);
        let _ = write!(
            out,
            "<line class=\"{class}\" x1=\"{at}\" y1=\"12\" x2=\"{}\" y2=\"12\"/>\
             <text x=\"{}\" y=\"16\">{label}</text>",
            at + 18.0,
            at + 24.0
        );
        draw_line(&mut out, x, y, line);
    }
    out.push_str("</svg>");
    out
}

fn across(x: &Axis, value: f64) -> Option<f64> {
    Some(LEFT + x.place(value)? * (WIDTH - LEFT - RIGHT))
}

fn up(y: &Axis, value: f64) -> Option<f64> {
    Some(HEIGHT - BOTTOM - y.place(value)? * (HEIGHT - TOP - BOTTOM))
}

fn draw_axes(out: &mut String, x: &Axis, y: &Axis) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for (value, text) in &y.ticks {
        let Some(at) = up(y, *value) else { continue };
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\"/>\
             <text class=\"y\" x=\"{}\" y=\"{:.1}\">{text}</text>",
            LEFT - 6.0,
            at + 4.0
        );
    }
    for (value, text) in &x.ticks {
        let Some(at) = across(x, *value) else {
            continue;
        };
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\"/>\
             <text class=\"x\" x=\"{at:.1}\" y=\"{}\">{text}</text>",
            bottom + 18.0
        );
    }
}

fn draw_line(out: &mut String, x: &Axis, y: &Axis, line: &Line<'_>) {
    let place = |(at, value): &(f64, f64)| Some((across(x, *at)?, up(y, *value)?));
    let places: Vec<_> = line.points.iter().map(place).collect();
    let class = line.class;
    for part in places.split(Option::is_none) {
        let points: Vec<_> = part.iter().flatten().collect();
        let _ = match points[..] {
            [] => continue,
            // A line through one point would not be seen.
            [(cx, cy)] => write!(
                out,
                "<circle class=\"{class}\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"3\"/>"
            ),
            _ => {
                let pairs: Vec<_> = points
                    .iter()
                    .map(|(x, y)| format!("{x:.1},{y:.1}"))
                    .collect();
                let pairs = pairs.join(" ");
                write!(out, "<polyline class=\"{class}\" points=\"{pairs}\"/>")
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_and_cover_what_is_shown() {
        let text = number;
        assert_eq!(
            texts(&Axis::linear(0.7, text)),
            ["0", "0.2", "0.4", "0.6", "0.8"]
        );
        assert_eq!(texts(&Axis::linear(870.0, text)), ["0", "500", "1000"]);
        assert_eq!(texts(&Axis::linear(0.0, text)), ["0", "1"]);
        assert_eq!(
            texts(&Axis::log(60.0, 1200.0, text)),
            ["100", "200", "500", "1000"]
        );
        assert_eq!(
            texts(&Axis::log(1.0, 1e5, text)),
            ["1", "10", "100", "1000", "10000", "100000"]
        );
        assert_eq!(
            texts(&Axis::percentiles(0.0005)),
            ["0 %", "90 %", "99 %", "99.9 %"]
        );
    }

    #[test]
    fn value_without_a_place_is_a_gap_and_a_point_alone_is_seen() {
        let text = number;
        let (x, y) = (Axis::linear(4.0, text), Axis::log(1.0, 100.0, text));
        let line = Line {
            class: "p50",
            label: "p50",
            points: vec![(1.0, 5.0), (2.0, 6.0), (3.0, 0.0), (4.0, 7.0)],
        };
        let svg = svg("t", &x, &y, &[line]);
        assert_eq!(svg.matches("<polyline").count(), 1);
        assert_eq!(svg.matches("<circle").count(), 1);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
