//! Figures of one operation, and the file that keeps those of the last time.

use std::collections::BTreeMap;
use std::path::Path;

/// What one operation takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figures {
    pub(crate) instructions: f64,
    /// Those that are atomic read-modify-writes.
    pub(crate) locked: f64,
    /// Those that enter the kernel.
    pub(crate) syscalls: f64,
    pub(crate) allocations: f64,
}

impl Figures {
    pub(crate) const HEADER: &str =
        "case                        instructions   locked  syscalls  allocations";

    /// A line of the table; with the figures of before, how the instructions have changed.
    pub(crate) fn row(&self, name: &str, before: Option<&Self>) -> String {
        let change = before.map_or(String::new(), |before| {
            let percent = (self.instructions / before.instructions - 1.0) * 100.0;
            format!("   {percent:+.1} %")
        });
        format!(
            "{name:<27} {:>12.1} {:>8.2} {:>9.2} {:>12.2}{change}",
            self.instructions, self.locked, self.syscalls, self.allocations
        )
    }

    /// Whether any figure is greater than that of `before`, by more than rounding; instructions by
    /// more than the factor.
    pub(crate) fn exceed(&self, before: &Self, tolerance: f64) -> bool {
        let more = |now: f64, then: f64| now > then + 0.05;
        self.instructions > before.instructions * tolerance
            || more(self.locked, before.locked)
            || more(self.syscalls, before.syscalls)
            || more(self.allocations, before.allocations)
    }
}

/// The figures of the last time, by case.
#[derive(Debug, Default)]
pub(crate) struct Kept(BTreeMap<String, Figures>);

impl Kept {
    /// Reads the file; without it, or its lines, there are none.
    pub(crate) fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        Self(text.lines().filter_map(parse).collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Figures> {
        self.0.get(name)
    }

    pub(crate) fn insert(&mut self, name: &str, figures: Figures) {
        self.0.insert(name.to_owned(), figures);
    }

    pub(crate) fn updated_by(mut self, newer: Self) -> Self {
        self.0.extend(newer.0);
        self
    }

    pub(crate) fn write(&self, path: &Path) {
        let rows = self.0.iter();
        let rows = rows.map(|(name, figures)| figures.row(name, None) + "\n");
        let text = format!("{}\n{}", Figures::HEADER, rows.collect::<String>());
        std::fs::write(path, text).expect("the figures can be kept");
    }
}

fn parse(line: &str) -> Option<(String, Figures)> {
    let mut fields = line.split_whitespace();
    let name = fields.next()?.to_owned();
    let mut number = || fields.next()?.parse().ok();
    let figures = Figures {
        instructions: number()?,
        locked: number()?,
        syscalls: number()?,
        allocations: number()?,
    };
    Some((name, figures))
}
