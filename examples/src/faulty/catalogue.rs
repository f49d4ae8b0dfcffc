//! All that the origin offers: what it reads, and what it says of itself.

use std::fmt::Write;
use std::net::SocketAddr;

use super::plan::{self, Plan};
use super::query::{BadRequest, Query};

/// A path that the origin offers. A segment in capitals stands for what the client chooses.
pub(super) struct Entry {
    pub(super) path: &'static str,
    /// What it does, in lines.
    what: &'static str,
    /// The arguments of `curl`, of which the last is a target.
    example: &'static str,
    /// From the chosen segment, the whole path and the query.
    pub(super) read: fn(&str, &str, &mut Query<'_>) -> Result<Plan, BadRequest>,
}

#[rustfmt::skip]
pub(super) static CATALOGUE: [Entry; 20] = [
    Entry { path: "/", what: "this text",
        example: "/", read: |_, _, _| Ok(Plan::Index) },
    Entry { path: "/counts", what: "requests by path, connections, faults of the mix, as JSON",
        example: "/counts", read: |_, _, _| Ok(Plan::Counts) },
    Entry { path: "/ok", what: "ten bytes, healthy",
        example: "/ok", read: |_, _, _| Ok(Plan::Bytes(10)) },
    Entry { path: "/bytes/N", what: "N bytes, up to 1 GiB, healthy",
        example: "/bytes/1024", read: plan::bytes },
    Entry { path: "/echo", what: "the request's body, up to 1 MiB, healthy",
        example: "-d hello /echo", read: |_, _, _| Ok(Plan::Echo) },
    Entry { path: "/status/CODE", what: "always that status, 200 to 599\n\
        ?retry-after=SECONDS|date|unparsable; date: &in=SECONDS ahead (1)",
        example: "/status/503?retry-after=2", read: plan::status },
    Entry { path: "/flaky/KEY", what: "the first requests with that key fail, the others get 200\n\
        ?fail=N (1) ?status=CODE (500) ?retry-after=... as above",
        example: "/flaky/a?fail=2&status=503", read: plan::flaky },
    Entry { path: "/limited/KEY", what: "as /flaky, with 429 and Retry-After: 1\n\
        ?fail=N (1) ?status=CODE (429) ?retry-after=... as above",
        example: "/limited/a?retry-after=date&in=2", read: plan::limited },
    Entry { path: "/stall/WHERE", what: "an answer that stands still at that place\n\
        WHERE: before-head, mid-head, after-head, mid-body, mid-chunk, before-last-chunk\n\
        ?ms=N (30000)",
        example: "/stall/before-head?ms=5000", read: plan::stall },
    Entry { path: "/close/WHERE", what: "closes at that place of the answer; WHERE as above",
        example: "/close/mid-body", read: plan::close },
    Entry { path: "/reset/WHERE", what: "the same by RST",
        example: "/reset/before-head", read: plan::reset },
    Entry { path: "/close-after", what: "a whole answer that keeps the connection, which is then closed\n\
        ?ms=N later (0)",
        example: "/close-after?ms=100", read: plan::close_after },
    Entry { path: "/reset-after", what: "the same by RST, ?ms=N later (0)",
        example: "/reset-after", read: plan::reset_after },
    Entry { path: "/stray", what: "a whole answer, then bytes that nobody asked for\n\
        ?bytes=N (12) ?ms=N later (0)",
        example: "/stray?ms=100", read: plan::stray },
    Entry { path: "/drip/PART", what: "the head or the body, a byte at a time\n\
        PART: head, body; ?ms=N between two bytes (100) ?bytes=N in the body (10)",
        example: "/drip/head?ms=20", read: plan::drip },
    Entry { path: "/interim/CODE", what: "interim responses unasked, 100 to 199, then 200\n\
        ?count=N (1)",
        example: "/interim/103", read: plan::interim },
    Entry { path: "/early", what: "answers before the body is read, and closes with it unread\n\
        ?status=CODE (413)",
        example: "-T FILE /early", read: plan::early },
    Entry { path: "/bodiless/CODE", what: "204 or 304\n\
        ?length=N in Content-Length (none) ?stray=N bytes behind the head (0)",
        example: "/bodiless/204?length=3&stray=3", read: plan::bodiless },
    Entry { path: "/malformed", what: "no HTTP, or next to it\n\
        ?kind=status-line, version, status, field, fold, length, lengths, both, chunk-size,\n\
        chunk-overflow, endless",
        example: "/malformed?kind=lengths", read: plan::malformed },
    Entry { path: "/mix", what: "something of all this, decided by the seed and by how many came with it before\n\
        ?seed=N (that of the origin) ?faults=PERCENT (50) ?ms=N of its waits (1000)",
        example: "/mix?seed=7", read: plan::mix },
];

impl Entry {
    /// The segment that the client chooses, or nothing, if `path` is of this entry.
    pub(super) fn matches<'a>(&self, path: &'a str) -> Option<&'a str> {
        let named = self.path.rsplit_once('/');
        match named.filter(|(_, last)| last.starts_with(|c: char| c.is_ascii_uppercase())) {
            None => (self.path == path).then_some(""),
            Some((prefix, _)) => path.strip_prefix(prefix)?.strip_prefix('/'),
        }
    }
}

/// What the origin offers, to be read by people.
pub(super) fn index(address: SocketAddr) -> String {
    let mut text = "A faulty origin. A bad parameter is answered with 400 and what was expected.\n\
        Times are milliseconds, up to ten minutes.\n"
        .to_owned();
    for entry in &CATALOGUE {
        let (flags, target) = match entry.example.rsplit_once(' ') {
            Some((flags, target)) => (format!(" {flags}"), target),
            None => (String::new(), entry.example),
        };
        let what = entry.what.replace('\n', "\n    ");
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n{}\n    {what}\n    curl -i{flags} 'http://{address}{target}'\n",
            entry.path
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faulty::plan::plan;

    #[test]
    fn each_example_is_of_its_entry() {
        for (number, entry) in CATALOGUE.iter().enumerate() {
            let target = entry.example.rsplit(' ').next().unwrap();
            let planned = plan(target).map(|(found, _)| found);
            assert_eq!(planned, Ok(number), "{target}");
        }
    }

    #[test]
    fn index_names_every_path_with_a_line_to_try() {
        let text = index(SocketAddr::from(([127, 0, 0, 1], 8082)));
        for entry in &CATALOGUE {
            assert!(text.contains(&format!("\n{}\n    ", entry.path)));
        }
        let line = "    curl -i -d hello 'http://127.0.0.1:8082/echo'\n";
        assert!(text.contains(line), "{text}");
    }
}
