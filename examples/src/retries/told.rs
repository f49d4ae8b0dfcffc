//! What became of a request, attempt by attempt, and the table that shows it.

use std::fmt;
use std::time::Duration;

use http_client::{Attempt, Decision, Error, Outcome, Phase};

/// The line above the rows of all requests.
pub(super) const HEADING: &str = "   # destination             over    outcome                                 \
    pause  elapsed  decision";

/// A request, its attempts, and how it ended. Its text is a block of the table.
#[derive(Debug)]
#[non_exhaustive]
pub struct Told {
    /// The method and the target.
    pub line: String,
    /// What there is to be seen in it; may be empty.
    pub note: String,
    /// One for each attempt, in order.
    pub rows: Vec<Row>,
    /// How it ended.
    pub end: End,
}

/// An attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Row {
    /// Its number, from 1.
    pub number: u32,
    /// Where it went, or was to go.
    pub destination: String,
    /// What it went over.
    pub connection: Connection,
    /// How it ended, in words.
    pub outcome: String,
    /// What was decided then; `None` where there was nothing to decide, as the response was not
    /// an error.
    pub decision: Option<Decision>,
    /// How long the request had taken by then.
    pub elapsed: Duration,
}

/// What an attempt went over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Connection {
    /// Nothing: none was acquired.
    None,
    /// One that was made for it.
    Fresh,
    /// One that had been used before.
    Reused,
}

/// How a request ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum End {
    /// With a whole response, whatever its status.
    Answered {
        /// The status.
        status: u16,
        /// The length of the body in bytes.
        length: u64,
    },
    /// With a response whose body broke off.
    Broken {
        /// The status.
        status: u16,
        /// How many bytes of the body had come.
        length: u64,
        /// Why there are no more.
        error: Error,
    },
    /// With a response that was longer than anybody wants to wait for.
    TooLong {
        /// The status.
        status: u16,
        /// How many bytes were read at the most.
        limit: u64,
    },
    /// Without a response.
    Failed(Error),
}

impl Row {
    pub(super) fn of(attempt: &Attempt) -> Self {
        let outcome = attempt.outcome();
        Self {
            number: attempt.number(),
            destination: attempt.destination().to_owned(),
            connection: match outcome {
                Outcome::Failed { phase, .. } if phase < Phase::Send => Connection::None,
                _ => Connection::of(attempt.is_reused()),
            },
            outcome: outcome.to_string(),
            decision: Some(attempt.decision()),
            elapsed: attempt.elapsed(),
        }
    }
}

impl Connection {
    pub(super) fn of(reused: bool) -> Self {
        match reused {
            true => Self::Reused,
            false => Self::Fresh,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Fresh => "fresh",
            Self::Reused => "reused",
        }
    }
}

impl End {
    /// Whether there is a whole response.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        matches!(self, Self::Answered { .. })
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.note {
            "" => writeln!(f, "{}", self.line)?,
            note => writeln!(f, "{}  ({note})", self.line)?,
        }
        for row in &self.rows {
            writeln!(f, "{row}")?;
        }
        writeln!(f, "  => {}", self.end)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pause, decision) = match self.decision {
            None => (None, "handed over".to_owned()),
            Some(Decision::Retry { reason, pause }) => (Some(pause), format!("again: {reason}")),
            Some(other) => (None, other.to_string()),
        };
        let pause = pause.map_or_else(|| "-".to_owned(), short);
        write!(
            f,
            "{:>4} {:<23} {:<7} {:<37} {pause:>7}  {:>7}  {decision}",
            self.number,
            self.destination,
            self.connection.name(),
            self.outcome,
            short(self.elapsed),
        )
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered { status, length } => {
                write!(f, "status {status}, {}", bytes(*length))
            }
            Self::Broken {
                status,
                length,
                error,
            } => {
                write!(f, "status {status}, {}, then: {error}", bytes(*length))
            }
            Self::TooLong { status, limit } => {
                write!(f, "status {status}, more than {}", bytes(*limit))
            }
            Self::Failed(error) => {
                write!(f, "error: {error}")?;
                // Of the causes the last says most, unless it says it again.
                match last_cause(error) {
                    Some(cause) => write!(f, ": {cause}"),
                    None => Ok(()),
                }
            }
        }
    }
}

fn last_cause(error: &Error) -> Option<String> {
    let mut cause = std::error::Error::source(error)?;
    while let Some(next) = cause.source() {
        cause = next;
    }
    Some(cause.to_string())
}

fn bytes(count: u64) -> String {
    match count {
        1 => "1 byte".to_owned(),
        _ => format!("{count} bytes"),
    }
}

/// To be read at a glance: three or four digits.
fn short(duration: Duration) -> String {
    if duration.is_zero() {
        "0s".to_owned()
    } else if duration >= Duration::from_secs(1) {
        format!("{duration:.2?}")
    } else if duration >= Duration::from_millis(100) {
        format!("{duration:.0?}")
    } else {
        format!("{duration:.1?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_client::Reason;

    fn row(status: u16, decision: Option<Decision>) -> Row {
        Row {
            number: 1,
            destination: "http://127.0.0.1:54321".to_owned(),
            connection: Connection::Reused,
            outcome: format!("status {status}"),
            decision,
            elapsed: Duration::from_micros(1234),
        }
    }

    #[test]
    fn rows_stand_below_their_heading() {
        let (reason, pause) = (Reason::Idempotent, Duration::from_millis(87));
        let again = Decision::Retry { reason, pause };
        let refused = row(503, Some(again)).to_string();
        assert_eq!(
            refused,
            "   1 http://127.0.0.1:54321  reused  status 503                             87.0ms    \
             1.2ms  again: it may be repeated"
        );
        let stopped = Decision::Stop(Reason::NoAttemptLeft);
        let stopped = row(503, Some(stopped)).to_string();
        let accepted = row(200, None).to_string();
        for (row, decision) in [
            (&refused, "again: it may be repeated"),
            (&stopped, "not again: no attempt left"),
            (&accepted, "handed over"),
        ] {
            for (title, cell) in [
                ("destination", "http"),
                ("over", "reused"),
                ("outcome", "status"),
                ("decision", decision),
            ] {
                assert_eq!(HEADING.find(title), row.find(cell), "{title}: {row}");
            }
            assert!(row[..HEADING.find("  decision").unwrap()].ends_with("1.2ms"));
        }
        assert!(stopped[..HEADING.find("  elapsed").unwrap()].ends_with('-'));
    }

    #[test]
    fn durations_keep_to_their_column() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1.0ns"),
            (999_999, "1000.0µs"),
            (99_940_000, "99.9ms"),
            (250_300_000, "250ms"),
            (1_086_000_000, "1.09s"),
        ] {
            assert_eq!(short(Duration::from_nanos(nanos)), text);
        }
    }

    #[test]
    fn a_request_is_told_with_its_note_if_it_has_one() {
        let mut told = Told {
            line: "GET /".to_owned(),
            note: String::new(),
            rows: vec![row(200, None)],
            end: End::Answered {
                status: 200,
                length: 1,
            },
        };
        let text = told.to_string();
        assert!(text.starts_with("GET /\n   1 http"), "{text}");
        assert!(text.ends_with("handed over\n  => status 200, 1 byte\n"));
        told.note = "healthy".to_owned();
        assert!(told.to_string().starts_with("GET /  (healthy)\n"));
    }
}
