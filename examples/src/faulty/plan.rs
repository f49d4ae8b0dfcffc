//! What a request is answered with, as its target says.

use super::answer::{MALFORMED, Malformed};
use super::catalogue::{CATALOGUE, Entry};
use super::query::{BadRequest, Query, number};

/// The longest that a client can ask to be kept waiting, in milliseconds: ten minutes.
pub(super) const LONGEST_MS: u64 = 600_000;

/// A stall outlasts the read timeouts that clients commonly have.
const STALL_MS: u64 = 30_000;

/// The largest body of `/bytes`.
const MOST_BYTES: u64 = 1 << 30;

/// The largest body that drips.
const MOST_DRIPS: u64 = 4096;

/// What may be sent behind a response that has ended.
const MOST_STRAY: u64 = 64 << 10;

const MOST_INTERIM: u64 = 1_000_000;

const MOST_FAILURES: u64 = 1_000_000;

/// A day.
const LONGEST_RETRY_AFTER: u64 = 86_400;

const LONGEST_KEY: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    Index,
    Counts,
    Bytes(u64),
    Echo,
    Status(Refused),
    /// Refuses the first requests with this key, then answers.
    Flaky {
        key: String,
        fail: u64,
        refused: Refused,
    },
    /// An answer up to a place in it, then something else.
    Cut {
        at: Place,
        then: Then,
    },
    /// A whole answer that leaves the connection open, then something else.
    After {
        ms: u64,
        then: Afterwards,
    },
    Drip {
        part: Part,
        ms: u64,
        bytes: u64,
    },
    Interim {
        status: u16,
        count: u64,
    },
    /// An answer before the request's body is read.
    Early {
        status: u16,
    },
    /// A status that has no body, with a length or with bytes behind it.
    Bodiless {
        status: u16,
        length: Option<u64>,
        stray: usize,
    },
    Malformed(Malformed),
    /// One of those above, by seed and number.
    Mix {
        seed: Option<u64>,
        faults: u64,
        ms: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) status: u16,
    pub(super) retry_after: Option<RetryAfter>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetryAfter {
    Seconds(u64),
    /// A date that lies so many seconds ahead.
    Date(u64),
    Unparsable,
}

/// Where an answer is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    BeforeHead,
    MidHead,
    AfterHead,
    MidBody,
    MidChunk,
    BeforeLastChunk,
}

impl Place {
    pub(super) const ALL: [(&'static str, Self); 6] = [
        ("before-head", Self::BeforeHead),
        ("mid-head", Self::MidHead),
        ("after-head", Self::AfterHead),
        ("mid-body", Self::MidBody),
        ("mid-chunk", Self::MidChunk),
        ("before-last-chunk", Self::BeforeLastChunk),
    ];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Close,
    Reset,
    /// Goes on after so many milliseconds.
    Stall(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Afterwards {
    Close,
    Reset,
    Stray(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Head,
    Body,
}

/// Why a target has no plan.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoPlan {
    /// Nothing is there.
    NotFound,
    /// Something is, and the index of its entry, but not so.
    Bad(usize, BadRequest),
}

/// The entry of the catalogue that `target` is about, and what it asks for.
pub(super) fn plan(target: &str) -> Result<(usize, Plan), NoPlan> {
    let (path, query) = in_origin_form(target);
    let found = CATALOGUE.iter().enumerate();
    let found = found.filter_map(|(index, entry)| Some((index, entry, entry.matches(path)?)));
    let Some((index, entry, variable)) = found.into_iter().next() else {
        return Err(NoPlan::NotFound);
    };
    let plan = read(entry, variable, path, query);
    plan.map(|plan| (index, plan))
        .map_err(|bad| NoPlan::Bad(index, bad))
}

/// The path and the query. A server takes absolute targets too (RFC 9112 §3.2.2).
fn in_origin_form(target: &str) -> (&str, &str) {
    let target = match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains(['/', '?']) => {
            rest.find(['/', '?']).map_or("/", |at| &rest[at..])
        }
        _ => target,
    };
    match target.split_once('?') {
        Some(("", query)) => ("/", query),
        Some(split) => split,
        None => (target, ""),
    }
}

fn read(entry: &Entry, variable: &str, path: &str, query: &str) -> Result<Plan, BadRequest> {
    let mut query = Query::parse(query);
    let plan = (entry.read)(variable, path, &mut query)?;
    query.end()?;
    Ok(plan)
}

type Read = Result<Plan, BadRequest>;

pub(super) fn bytes(variable: &str, _: &str, _: &mut Query<'_>) -> Read {
    Ok(Plan::Bytes(number("N", variable, 0..=MOST_BYTES)?))
}

pub(super) fn status(variable: &str, _: &str, query: &mut Query<'_>) -> Read {
    Ok(Plan::Status(Refused {
        status: status_code("CODE", variable)?,
        retry_after: retry_after(query)?,
    }))
}

pub(super) fn flaky(variable: &str, path: &str, query: &mut Query<'_>) -> Read {
    keyed(variable, path, query, 500, None)
}

pub(super) fn limited(variable: &str, path: &str, query: &mut Query<'_>) -> Read {
    keyed(variable, path, query, 429, Some(RetryAfter::Seconds(1)))
}

fn keyed(
    variable: &str,
    path: &str,
    query: &mut Query<'_>,
    status: u16,
    otherwise: Option<RetryAfter>,
) -> Read {
    if variable.is_empty() || variable.len() > LONGEST_KEY {
        let text = format!("KEY: expected 1 to {LONGEST_KEY} characters");
        return Err(BadRequest::new(text));
    }
    let fail = query.number("fail", 0..=MOST_FAILURES)?.unwrap_or(1);
    let status = match query.text("status") {
        Some(text) => status_code("status", text)?,
        None => status,
    };
    Ok(Plan::Flaky {
        key: path.to_owned(),
        fail,
        refused: Refused {
            status,
            retry_after: retry_after(query)?.or(otherwise),
        },
    })
}

pub(super) fn close(variable: &str, _: &str, _: &mut Query<'_>) -> Read {
    cut(variable, Then::Close)
}

pub(super) fn reset(variable: &str, _: &str, _: &mut Query<'_>) -> Read {
    cut(variable, Then::Reset)
}

pub(super) fn stall(variable: &str, _: &str, query: &mut Query<'_>) -> Read {
    cut(variable, Then::Stall(ms(query, STALL_MS)?))
}

fn cut(variable: &str, then: Then) -> Read {
    let at = one_of("WHERE", variable, &Place::ALL)?;
    Ok(Plan::Cut { at, then })
}

pub(super) fn close_after(_: &str, _: &str, query: &mut Query<'_>) -> Read {
    after(query, Afterwards::Close)
}

pub(super) fn reset_after(_: &str, _: &str, query: &mut Query<'_>) -> Read {
    after(query, Afterwards::Reset)
}

pub(super) fn stray(_: &str, _: &str, query: &mut Query<'_>) -> Read {
    let bytes = query.number("bytes", 1..=MOST_STRAY)?.unwrap_or(12);
    after(query, Afterwards::Stray(size(bytes)))
}

fn after(query: &mut Query<'_>, then: Afterwards) -> Read {
    let ms = ms(query, 0)?;
    Ok(Plan::After { ms, then })
}

pub(super) fn drip(variable: &str, _: &str, query: &mut Query<'_>) -> Read {
    Ok(Plan::Drip {
        part: one_of(
            "PART",
            variable,
            &[("head", Part::Head), ("body", Part::Body)],
        )?,
        ms: ms(query, 100)?,
        bytes: query.number("bytes", 1..=MOST_DRIPS)?.unwrap_or(10),
    })
}

pub(super) fn interim(variable: &str, _: &str, query: &mut Query<'_>) -> Read {
    Ok(Plan::Interim {
        status: code("CODE", variable, 100, 199)?,
        count: query.number("count", 1..=MOST_INTERIM)?.unwrap_or(1),
    })
}

pub(super) fn early(_: &str, _: &str, query: &mut Query<'_>) -> Read {
    Ok(Plan::Early {
        status: match query.text("status") {
            Some(text) => status_code("status", text)?,
            None => 413,
        },
    })
}

pub(super) fn bodiless(variable: &str, _: &str, query: &mut Query<'_>) -> Read {
    Ok(Plan::Bodiless {
        status: one_of("CODE", variable, &[("204", 204), ("304", 304)])?,
        length: query.number("length", 0..=MOST_BYTES)?,
        stray: size(query.number("stray", 0..=MOST_STRAY)?.unwrap_or(0)),
    })
}

pub(super) fn malformed(_: &str, _: &str, query: &mut Query<'_>) -> Read {
    let kinds = &MALFORMED;
    let kind = query.text("kind").unwrap_or(kinds[0].0);
    Ok(Plan::Malformed(one_of("kind", kind, kinds)?))
}

pub(super) fn mix(_: &str, _: &str, query: &mut Query<'_>) -> Read {
    Ok(Plan::Mix {
        seed: query.number("seed", 0..=u64::MAX)?,
        faults: query.number("faults", 0..=100)?.unwrap_or(50),
        ms: ms(query, 1000)?,
    })
}

fn retry_after(query: &mut Query<'_>) -> Result<Option<RetryAfter>, BadRequest> {
    let ahead = query.number("in", 0..=LONGEST_RETRY_AFTER)?;
    let given = query.text("retry-after");
    if ahead.is_some() && given != Some("date") {
        return Err(BadRequest::new("in: goes with retry-after=date alone"));
    }
    let Some(given) = given else { return Ok(None) };
    Ok(Some(match given {
        "date" => RetryAfter::Date(ahead.unwrap_or(1)),
        "unparsable" => RetryAfter::Unparsable,
        seconds => match number("retry-after", seconds, 0..=LONGEST_RETRY_AFTER) {
            Ok(seconds) => RetryAfter::Seconds(seconds),
            Err(BadRequest(text)) => {
                return Err(BadRequest(text + ", date, or unparsable"));
            }
        },
    }))
}

fn ms(query: &mut Query<'_>, otherwise: u64) -> Result<u64, BadRequest> {
    Ok(query.number("ms", 0..=LONGEST_MS)?.unwrap_or(otherwise))
}

fn status_code(what: &str, text: &str) -> Result<u16, BadRequest> {
    code(what, text, 200, 599)
}

fn code(what: &str, text: &str, low: u16, high: u16) -> Result<u16, BadRequest> {
    let code = number(what, text, low.into()..=high.into())?;
    Ok(u16::try_from(code).unwrap_or(high))
}

fn one_of<T: Copy>(what: &str, text: &str, all: &[(&str, T)]) -> Result<T, BadRequest> {
    let found = all.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|(name, _)| *name).collect();
        let names = names.join(", ");
        BadRequest(format!("{what}={text}: expected one of {names}"))
    })
}

/// All sizes here have bounds far below that of a `usize`.
fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_targets_are_read_as_the_others_are() {
        for (target, path, query) in [
            ("/ok?ms=1", "/ok", "ms=1"),
            ("http://site:80/ok?ms=1", "/ok", "ms=1"),
            ("http://site", "/", ""),
            ("http://site?ms=1", "/", "ms=1"),
            ("/flaky/http://a", "/flaky/http://a", ""),
            ("/ok?a=http://site/b", "/ok", "a=http://site/b"),
            ("*", "*", ""),
        ] {
            assert_eq!(in_origin_form(target), (path, query), "{target}");
        }
    }
}
