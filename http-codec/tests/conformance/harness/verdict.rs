//! Whether what the codec made of a case passes.

use std::fmt::Debug;

use super::case::{Case, Expect, Message};
use super::seen::{Outcome, Seen};

impl Case {
    /// Runs the case whole, at the splits it suggests, cut in two everywhere and byte by byte.
    ///
    /// The result must be the expected one or a listed alternative, and the same however the input
    /// is split. The error says what was expected and what was seen.
    pub(crate) fn judge(&self) -> Result<(), String> {
        let limits = self.limits();
        let whole = self.run(&self.input, &[], &limits);
        if let Some(difference) = self.expect.difference(&whole) {
            let listed = |other: &Expect| other.difference(&whole).is_none();
            if !self.alternatives.iter().any(listed) {
                return Err(difference);
            }
        }
        let len = self.input.len();
        let in_two = (0..len).map(|cut| vec![cut]);
        let splits = [self.splits.clone(), (0..len).collect()];
        for cuts in splits.into_iter().chain(in_two) {
            let split = self.run(&self.input, &cuts, &limits);
            if split != whole {
                let (whole, split) = (describe(&whole), describe(&split));
                return Err(format!(
                    "expected the same however it is split, {whole}; saw, cut at {cuts:?}, {split}"
                ));
            }
        }
        Ok(())
    }
}

impl Expect {
    /// Says what was expected and what was seen, where they differ.
    pub(crate) fn difference(&self, outcome: &Outcome) -> Option<String> {
        match (outcome, self.error, &self.ok) {
            (Err((seen, _)), Some(expected), _) if *seen == expected => None,
            (Ok(seen), None, Some(expected)) => differs(seen, expected, self),
            (_, Some(expected), _) => Some(format!(
                "expected error {expected:?}; saw {}",
                describe(outcome)
            )),
            (_, None, _) => Some(format!("expected a message; saw {}", describe(outcome))),
        }
    }
}

fn describe(outcome: &Outcome) -> String {
    match outcome {
        Ok(seen) => seen.to_string(),
        Err((category, reply)) => format!("error {category:?} (reply {reply})"),
    }
}

fn differs(seen: &Seen, expected: &Message, expect: &Expect) -> Option<String> {
    // Parsers in use give no reason that has bytes above 0x7F: the cases leave those open.
    let reason = expected.reason.as_deref().map(trim);
    let open = reason.as_ref().is_some_and(|reason| !reason.is_ascii());
    let reason = if open { seen.reason.clone() } else { reason };
    let expect_continue = expected.expect_continue.unwrap_or(seen.expect_continue);
    let timeout = expect.keep_alive_timeout_s.unwrap_or(seen.hint.timeout);
    let max = expect.keep_alive_max.unwrap_or(seen.hint.max);
    [
        differ("status", &expected.status, &seen.status),
        differ("method", &expected.method, &seen.method),
        differ("target", &expected.target, &seen.target),
        differ("version", &expected.version, &seen.version),
        differ("reason", &reason, &seen.reason),
        differ("headers", &pairs(&expected.headers), &seen.headers),
        differ("trailers", &pairs(&expected.trailers), &seen.trailers),
        differ(
            "body",
            &expected.body.escape_ascii().to_string(),
            &seen.body.escape_ascii().to_string(),
        ),
        differ("body_framing", &expected.body_framing, &seen.body_framing),
        differ("keep_alive", &expected.keep_alive, &seen.keep_alive),
        differ("consumed", &expected.consumed, &seen.consumed),
        differ("interim", &expected.interim, &seen.interim),
        differ("upgrade", &expected.upgrade, &seen.upgrade),
        differ("expect_continue", &expect_continue, &seen.expect_continue),
        differ("keep_alive_timeout_s", &timeout, &seen.hint.timeout),
        differ("keep_alive_max", &max, &seen.hint.max),
    ]
    .into_iter()
    .flatten()
    .next()
}

fn differ<T: Debug + PartialEq>(what: &str, expected: &T, seen: &T) -> Option<String> {
    (expected != seen).then(|| format!("{what}: expected {expected:?}; saw {seen:?}"))
}

fn trim(text: &str) -> String {
    text.trim_matches([' ', '\t']).to_owned()
}

fn pairs(list: &[(String, String)]) -> Vec<(String, String)> {
    list.iter()
        .map(|(name, value)| (name.to_lowercase(), trim(value)))
        .collect()
}
