//! The attempts of the demonstration's requests under each preset, and the table they stand in.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::io::{self, Write};

use common::Client;
use http_client::{Decision, Reason};
use pinpool_examples::faulty::FaultyOrigin;
use pinpool_examples::retries::{
    Connection, Report, RetriesError, Row, Settings, cases, demonstrate, run,
};
use test_support::refused_address;

/// Longer than anything here takes, however slow the machine.
const PATIENT: &str = "--connect-timeout 30s --body-timeout 30s --attempt-timeout none \
    --request-timeout none";

/// Requests whose attempts do not wait for a time limit. Each preset is asked them all.
const LINES: [&str; 7] = [
    "GET /flaky/get",
    "GET /bytes/100",
    "GET /close/before-head",
    "GET /close/mid-head",
    "GET /malformed",
    "GET /",
    "PUT /flaky/stream",
];

/// The first leaves the connection that the second loses.
const LOST_POST: [&str; 2] = ["GET /ok", "POST /close/before-head"];

const STALLED: &str = "GET /stall/before-head?ms=60000";

const STALLED_POST: &str = "POST /stall/before-head?ms=60000";

fn settings(line: &str) -> Settings {
    Settings::read(std::iter::once("retries").chain(line.split_whitespace())).unwrap()
}

/// The requests of the demonstration with these lines, and what became of their attempts: how many
/// alike, how they ended, and what was decided.
fn attempts(flags: &str, lines: &[&str]) -> Vec<(String, Vec<String>)> {
    let origin = FaultyOrigin::start(7).unwrap();
    let mut cases = cases();
    cases.retain(|case| lines.contains(&&*case.line()));
    let mut all = Vec::new();
    let report = demonstrate(&settings(flags), &origin, &cases, |told| {
        let texts: Vec<_> = told.rows.iter().map(text).collect();
        let alike = texts.chunk_by(|one, next| one == next);
        let alike = alike.map(|alike| format!("{} x {}", alike.len(), alike[0]));
        all.push((told.line.clone(), alike.collect()));
        Ok(())
    });
    assert!(report.unwrap().is_clean());
    all
}

fn text(row: &Row) -> String {
    let decision = match row.decision {
        None => "handed over".to_owned(),
        Some(Decision::Retry { reason, .. }) => format!("again: {reason}"),
        Some(other) => other.to_string(),
    };
    format!("{}; {decision}", row.outcome)
}

fn check(preset: &str, expected: &[(&str, &[&str])]) {
    let with = |head: &str| {
        format!("--retry {preset} --retry-budget none {PATIENT} --response-head-timeout {head}")
    };
    let mut found = attempts(&with("30s"), &LINES);
    found.extend(attempts(&with("30s"), &LOST_POST));
    found.extend(attempts(&with("50ms"), &[STALLED, STALLED_POST]));
    for (line, expected) in expected {
        let rows = found.iter().find(|(found, _)| found == line);
        assert_eq!(rows.unwrap().1, *expected, "{preset}: {line}");
    }
}

#[test]
fn none_repeats_nothing() {
    #[rustfmt::skip]
    check("none", &[
        ("GET /flaky/get", &["1 x status 500; not again: never retried"]),
        ("GET /close/before-head", &["1 x closed before a response; not again: never retried"]),
        ("GET /", &["1 x connection refused; not again: never retried"]),
        ("PUT /flaky/stream", &["1 x status 500; not again: never retried"]),
        (STALLED, &["1 x no response head in time; not again: never retried"]),
    ]);
}

#[test]
fn default_repeats_what_may_be_repeated_and_a_stale_connection_once() {
    #[rustfmt::skip]
    check("default", &[
        ("GET /flaky/get", &[
            "1 x status 500; again: it may be repeated",
            "1 x status 200; handed over",
        ]),
        ("GET /close/before-head", &[
            "1 x closed before a response; again: the reused connection had been closed",
            "1 x closed before a response; not again: the connection was not stale",
        ]),
        ("POST /close/before-head", &[
            "1 x closed before a response; not again: it may not be repeated",
        ]),
        ("GET /close/mid-head", &["1 x closed in the middle of the response; not again: never retried"]),
        ("GET /malformed", &["1 x malformed response; not again: never retried"]),
        ("GET /", &[
            "2 x connection refused; again: nothing had been sent",
            "1 x connection refused; not again: no attempt left",
        ]),
        ("PUT /flaky/stream", &["1 x status 500; not again: its body cannot be sent again"]),
        (STALLED, &[
            "2 x no response head in time; again: it may be repeated",
            "1 x no response head in time; not again: no attempt left",
        ]),
        (STALLED_POST, &["1 x no response head in time; not again: it may not be repeated"]),
    ]);
}

#[test]
fn apache_repeats_what_carries_no_entity_but_no_timeouts() {
    #[rustfmt::skip]
    check("apache", &[
        ("GET /flaky/get", &["1 x status 500; not again: never retried"]),
        ("GET /close/before-head", &[
            "3 x closed before a response; again: it carries no entity",
            "1 x closed before a response; not again: no attempt left",
        ]),
        ("POST /close/before-head", &[
            "1 x closed before a response; not again: all of it had been sent",
        ]),
        ("GET /malformed", &[
            "3 x malformed response; again: it carries no entity",
            "1 x malformed response; not again: no attempt left",
        ]),
        ("GET /", &["1 x connection refused; not again: never retried"]),
        (STALLED, &["1 x no response head in time; not again: never retried"]),
    ]);
}

#[test]
fn apache_with_timeouts_repeats_a_request_without_an_answer_whatever_it_is() {
    #[rustfmt::skip]
    check("apache-timeouts", &[
        ("POST /close/before-head", &[
            "3 x closed before a response; again: always retried",
            "1 x closed before a response; not again: no attempt left",
        ]),
        ("GET /", &[
            "3 x connection refused; again: it carries no entity",
            "1 x connection refused; not again: no attempt left",
        ]),
        (STALLED_POST, &[
            "3 x no response head in time; again: always retried",
            "1 x no response head in time; not again: no attempt left",
        ]),
    ]);
}

#[test]
fn jdk_repeats_a_get_on_an_expired_connection_and_nothing_else() {
    #[rustfmt::skip]
    check("jdk", &[
        ("GET /flaky/get", &["1 x status 500; not again: never retried"]),
        ("GET /close/before-head", &[
            "1 x closed before a response; again: the reused connection had been closed",
            "1 x closed before a response; not again: the connection was not stale",
        ]),
        ("POST /close/before-head", &[
            "1 x closed before a response; not again: it may not be repeated",
        ]),
        ("GET /", &["1 x connection refused; not again: never retried"]),
        (STALLED, &["1 x no response head in time; not again: never retried"]),
    ]);
}

#[test]
fn async_repeats_any_request_without_an_answer_and_get_for_the_rest() {
    #[rustfmt::skip]
    check("async", &[
        ("POST /close/before-head", &[
            "3 x closed before a response; again: always retried",
            "1 x closed before a response; not again: no attempt left",
        ]),
        ("GET /malformed", &[
            "3 x malformed response; again: it may be repeated",
            "1 x malformed response; not again: no attempt left",
        ]),
        ("GET /", &[
            "3 x connection refused; again: it may be repeated",
            "1 x connection refused; not again: no attempt left",
        ]),
        (STALLED_POST, &[
            "3 x no response head in time; again: always retried",
            "1 x no response head in time; not again: no attempt left",
        ]),
    ]);
}

#[test]
fn a_request_goes_on_to_the_second_destination_with_a_stream_that_was_not_read() {
    let origin = FaultyOrigin::start(7).unwrap();
    let mut cases = cases();
    // The last of all, and a healthy one of the same line before it.
    cases.retain(|case| case.line() == "PUT /echo");
    let flags = format!("{PATIENT} --response-head-timeout 30s");
    let mut all = Vec::new();
    let report = demonstrate(&settings(&flags), &origin, &cases, |told| {
        assert!(told.end.is_answered());
        all.push(told.rows.clone());
        Ok(())
    });
    let report = report.unwrap();
    assert!(report.is_clean() && report.all_answered());
    let to = format!("http://{}", origin.addr());
    let [healthy, rows] = &all[..] else {
        panic!("{all:?}")
    };
    assert_eq!(healthy.len(), 1);
    assert_eq!(healthy[0].connection, Connection::Fresh);
    assert_eq!((rows[0].number, rows[0].connection), (1, Connection::None));
    assert_ne!(rows[0].destination, to);
    assert_eq!(
        (rows[1].number, rows[1].connection),
        (2, Connection::Reused)
    );
    assert_eq!(rows[1].destination, to);
    assert_eq!(origin.counts().requests_to("/echo"), 2);
}

/// Its time limits are short, so what is checked holds also where one passes that should not.
#[test]
fn the_demonstration_meets_every_fault_and_its_numbers_add_up() {
    let origin = FaultyOrigin::start(7).unwrap();
    let cases = cases();
    let (mut lines, mut granted, mut refused) = (Vec::new(), 0, 0);
    let report = demonstrate(&settings("--retry-budget 20%"), &origin, &cases, |told| {
        lines.push(told.line.clone());
        let numbers = told.rows.iter().map(|row| row.number);
        assert!(numbers.eq(1..=u32::try_from(told.rows.len()).unwrap()));
        assert!(told.rows.is_sorted_by_key(|row| row.elapsed));
        let (last, others) = told.rows.split_last().unwrap();
        assert!(!matches!(last.decision, Some(Decision::Retry { .. })));
        for row in others {
            match row.decision {
                Some(Decision::Retry {
                    reason: Reason::Stale,
                    ..
                }) => {}
                Some(Decision::Retry { .. }) => granted += 1,
                other => panic!("{}: {other:?} before the last", told.line),
            }
        }
        refused += u64::from(last.decision == Some(Decision::Stop(Reason::NoBudget)));
        Ok(())
    });
    let report = report.unwrap();
    assert!(report.is_clean());
    assert_eq!(report.requests, cases.len() as u64);
    assert!(cases.iter().map(|case| case.line()).eq(lines));
    assert!(0 < report.answered && report.answered < report.requests);
    let counts = report.retries;
    assert_eq!((counts.granted, counts.refused), (granted, refused));
    assert!(granted > 0);

    let index = Client::connect(origin.addr()).get("/");
    let paths = index.text().lines().filter(|line| line.starts_with('/'));
    let about_itself = ["/", "/counts"];
    for path in paths.filter(|path| !about_itself.contains(path)) {
        assert!(origin.counts().requests_to(path) > 0, "{path}");
    }
}

/// The table of these requests.
fn table(origin: &FaultyOrigin, path: &str, flags: &str) -> (Report, String) {
    let mut out = Vec::new();
    let line = format!(
        "http://{}{path} {PATIENT} --response-head-timeout 30s {flags}",
        origin.addr()
    );
    let report = run(&settings(&line), &mut out).unwrap();
    assert!(report.is_clean());
    (report, String::from_utf8(out).unwrap())
}

#[test]
fn requests_to_a_url_are_told_below_one_heading() {
    let origin = FaultyOrigin::start(7).unwrap();
    let (report, text) = table(&origin, "/flaky/a", "-n 2");
    assert!(report.all_answered());
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines[0],
        "policy    default, 3 attempts at the most; budget 20%"
    );
    let heading = lines.iter().position(|line| line.starts_with("   # "));
    let heading = heading.unwrap();
    let decision = lines[heading].find("decision").unwrap();
    let blocks: Vec<_> = lines[heading + 1..].split(|line| line.is_empty()).collect();
    let [first, second] = &blocks[..2] else {
        panic!("{text}")
    };
    assert_eq!((first[0], second[0]), ("GET /flaky/a", "GET /flaky/a"));
    assert!(first[1].contains("status 500"), "{text}");
    let decided: String = first[1].chars().skip(decision).collect();
    assert_eq!(decided, "again: it may be repeated");
    assert!(first[2].contains("status 200"), "{text}");
    assert_eq!(first[3], "  => status 200, 10 bytes");
    assert_eq!(second[1].split_whitespace().nth(2), Some("reused"));
    assert_eq!(second[2], "  => status 200, 10 bytes");
    assert_eq!(text.matches("decision").count(), 1);
    let [requests, budget, pool] = blocks[2][..] else {
        panic!("{text}")
    };
    assert_eq!(requests, "requests  2, 2 of them with a whole response");
    assert_eq!(budget, "budget    1 retries granted, 0 refused");
    let opened = report.opened;
    assert_eq!(
        pool,
        format!("pool      {opened} connections opened; 0 acquired, 0 pending")
    );
}

#[test]
fn a_post_to_a_url_is_repeated_only_if_it_is_said_to_be_idempotent() {
    let origin = FaultyOrigin::start(7).unwrap();
    let post = "-X POST --body pay";
    let (_, text) = table(&origin, "/flaky/a", post);
    assert!(text.contains("POST /flaky/a\n"), "{text}");
    assert!(text.contains("not again: it may not be repeated\n  => status 500, 4 bytes\n"));
    let (_, text) = table(&origin, "/flaky/b", &format!("{post} --idempotent"));
    assert!(text.contains("  => status 200, 10 bytes\n"), "{text}");
    assert_eq!(origin.counts().requests_to("/flaky/KEY"), 3);
    let (_, text) = table(&origin, "/echo", post);
    assert!(text.contains("  => status 200, 3 bytes\n"), "{text}");
}

#[test]
fn a_response_without_its_end_is_no_answer() {
    let origin = FaultyOrigin::start(7).unwrap();
    for (path, end) in [
        (
            "/close/mid-body",
            "  => status 200, 5 bytes, then: closed in the middle",
        ),
        (
            "/bytes/16777217",
            "  => status 200, more than 16777216 bytes",
        ),
        ("/malformed", "  => error: malformed response"),
    ] {
        let (report, text) = table(&origin, path, "");
        assert!(text.contains(end), "{text}");
        assert!(!report.all_answered());
        assert_eq!((report.requests, report.answered), (1, 0));
    }
}

#[test]
fn retries_beyond_the_budget_are_refused_and_counted() {
    let nobody = refused_address();
    let line = format!(
        "http://{} -n 20 --retry apache-timeouts --retry-budget 0% {PATIENT}",
        nobody.addr()
    );
    let mut out = Vec::new();
    let report = run(&settings(&line), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let refused = text
        .matches("not again: the retry budget is used up")
        .count() as u64;
    assert!(refused > 0, "{text}");
    assert_eq!(report.retries.refused, refused);
    let granted = text.matches(" again: it carries no entity").count() as u64;
    assert_eq!(report.retries.granted, granted);
    assert!(report.is_clean());
}

/// Takes so many bytes, as a pipe whose reader leaves.
struct Leaving(usize);

impl Write for Leaving {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.min(bytes.len()) {
            0 => Err(io::ErrorKind::BrokenPipe.into()),
            taken => {
                self.0 -= taken;
                Ok(taken)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_reader_that_leaves_ends_the_run_with_an_error() {
    let origin = FaultyOrigin::start(7).unwrap();
    let line = format!("http://{}/ok -n 1000000", origin.addr());
    for taken in [0, 1000] {
        let error = run(&settings(&line), &mut Leaving(taken)).unwrap_err();
        assert!(matches!(error, RetriesError::Output(_)), "{error}");
        assert_eq!(error.to_string(), "the output: broken pipe");
    }
}
