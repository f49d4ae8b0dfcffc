//! What stands behind the `?` of a target, taken out name by name.

use std::ops::RangeInclusive;

/// A request asks for something that this origin does not offer. The text says what was wrong and
/// what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct BadRequest(pub(super) String);

impl BadRequest {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// The parameters of a query that nobody has taken yet. They are taken as they stand, without
/// percent-decoding: no value here needs it.
#[derive(Debug)]
pub(super) struct Query<'a> {
    left: Vec<(&'a str, &'a str)>,
    /// What was asked for, to say it where something else was given.
    known: Vec<&'static str>,
}

impl<'a> Query<'a> {
    pub(super) fn parse(text: &'a str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Self {
            left: pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .collect(),
            known: Vec::new(),
        }
    }

    /// Takes the value of `name`. Of one that is given twice, the second is left and refused.
    pub(super) fn text(&mut self, name: &'static str) -> Option<&'a str> {
        self.known.push(name);
        let at = self.left.iter().position(|(given, _)| *given == name)?;
        Some(self.left.remove(at).1)
    }

    /// Takes a number within `range`.
    pub(super) fn number(
        &mut self,
        name: &'static str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, BadRequest> {
        self.text(name)
            .map(|text| number(name, text, range))
            .transpose()
    }

    /// Refuses what was not taken.
    pub(super) fn end(self) -> Result<(), BadRequest> {
        let Some((name, _)) = self.left.first() else {
            return Ok(());
        };
        Err(BadRequest(
            match (self.known.contains(name), &*self.known) {
                (true, _) => format!("{name} is given more than once"),
                (false, []) => format!("{name}: this path takes no parameters"),
                (false, known) => format!("{name}: this path takes {}", known.join(", ")),
            },
        ))
    }
}

/// Reads a number of `what` within `range`: digits alone, without a sign.
pub(super) fn number(
    what: &str,
    text: &str,
    range: RangeInclusive<u64>,
) -> Result<u64, BadRequest> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| digits);
    number.filter(|n| range.contains(n)).ok_or_else(|| {
        let (low, high) = range.into_inner();
        BadRequest(format!(
            "{what}={text}: expected a whole number from {low} to {high}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_taken_in_any_order_and_are_optional() {
        let mut query = Query::parse("ms=5&status=503&");
        assert_eq!(query.number("status", 200..=599), Ok(Some(503)));
        assert_eq!(query.number("ms", 0..=5), Ok(Some(5)));
        assert_eq!(query.number("fail", 0..=5), Ok(None));
        assert_eq!(query.end(), Ok(()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for bad in ["", "-1", "+1", "1.5", "x", "11", "99999999999999999999999"] {
            let text = format!("ms={bad}");
            let error = Query::parse(&text).number("ms", 1..=10).unwrap_err();
            let expected = format!("ms={bad}: expected a whole number from 1 to 10");
            assert_eq!(error.to_string(), expected);
        }
        let mut query = Query::parse("ms=1&MS=2");
        let _ = (query.text("ms"), query.text("in"));
        let error = query.end().unwrap_err();
        assert_eq!(error.to_string(), "MS: this path takes ms, in");
        let mut query = Query::parse("ms=1&ms=2");
        let _ = query.text("ms");
        let error = query.end().unwrap_err();
        assert_eq!(error.to_string(), "ms is given more than once");
        let error = Query::parse("a").end().unwrap_err();
        assert_eq!(error.to_string(), "a: this path takes no parameters");
    }
}
