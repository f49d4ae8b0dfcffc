//! The presets, case by case, against what is known of the clients that they are named after. What
//! is expected is worked out here, one question after another, and not from the rules of a table.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::fmt::Write;
use std::time::Duration;

use http_client::{
    ErrorKind, FailedAttempt, JdkSwitches, Phase, RefusedResponse, RetryPolicy, RetryRequest,
    RetryTable, Rule, Sent, Verdict,
};

const METHODS: [&str; 12] = [
    "GET", "HEAD", "DELETE", "OPTIONS", "TRACE", "PUT", "POST", "PATCH", "QUERY", "CONNECT", "FOO",
    "get",
];
const PHASES: [Phase; 6] = [
    Phase::Prepare,
    Phase::Acquire,
    Phase::Connect,
    Phase::Send,
    Phase::Wait,
    Phase::Receive,
];
const AMOUNTS: [Sent; 3] = [Sent::None, Sent::Part, Sent::All];

/// What is done about an attempt, whatever the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Course {
    Stop,
    Again,
    /// Over a fresh connection, without a pause.
    AgainFresh,
}
use Course::{Again, AgainFresh, Stop};

fn course(verdict: Verdict) -> Course {
    match verdict {
        Verdict::Stop(_) => Stop,
        Verdict::Retry(_) => Again,
        Verdict::RetryFresh(_) => AgainFresh,
        other => panic!("a verdict that these tests do not know: {other:?}"),
    }
}

fn again_if(yes: bool) -> Course {
    if yes { Again } else { Stop }
}

type Oracle = fn(&FailedAttempt<'_>) -> Course;

fn presets() -> [(RetryTable, Oracle); 9] {
    let jdk = |all_methods, retry_connect| {
        let mut switches = JdkSwitches::default();
        (switches.all_methods, switches.retry_connect) = (all_methods, retry_connect);
        RetryTable::jdk_with(switches)
    };
    [
        (RetryTable::none(), |_| Stop),
        (RetryTable::default(), ours),
        (RetryTable::apache_4_3(), apache),
        (RetryTable::apache_4_3_with_timeouts(), apache_with_timeouts),
        (RetryTable::jdk(), |failed| java(failed, false, false)),
        (jdk(true, false), |failed| java(failed, true, false)),
        (jdk(false, true), |failed| java(failed, false, true)),
        (jdk(true, true), |failed| java(failed, true, true)),
        (RetryTable::apache_async_4_1(), apache_async),
    ]
}

/// The request is at fault, or a limit binds, or nobody waits any more, or the head of a response
/// has been handed over: there is nothing that sending it again could cure.
fn is_beyond_cure(kind: ErrorKind) -> bool {
    [
        ErrorKind::InvalidRequest,
        ErrorKind::RequestBody,
        ErrorKind::BreakerOpen,
        ErrorKind::QueueFull,
        ErrorKind::Draining,
        ErrorKind::Truncated,
        ErrorKind::BodyTimeout,
        ErrorKind::HoldTimeout,
        ErrorKind::TotalTimeout,
        ErrorKind::Cancelled,
    ]
    .contains(&kind)
}

/// Time ran out while the request waited for a connection.
fn waited_in_vain(failed: &FailedAttempt<'_>) -> bool {
    failed.kind == ErrorKind::AcquireTimeout
        || failed.kind == ErrorKind::AttemptTimeout && failed.phase == Phase::Acquire
}

/// Time ran out while a connection was made.
fn connected_in_vain(failed: &FailedAttempt<'_>) -> bool {
    failed.kind == ErrorKind::ConnectTimeout
        || failed.kind == ErrorKind::AttemptTimeout && failed.phase == Phase::Connect
}

/// Time ran out on a connection.
fn exchanged_in_vain(failed: &FailedAttempt<'_>) -> bool {
    match failed.kind {
        ErrorKind::HeadTimeout | ErrorKind::WriteTimeout => true,
        ErrorKind::AttemptTimeout => failed.phase >= Phase::Send,
        _ => false,
    }
}

/// The peer ended the connection: seen by a read, or by a write.
fn lost(failed: &FailedAttempt<'_>) -> bool {
    let kind = failed.kind;
    kind == ErrorKind::ClosedBeforeResponse
        || kind == ErrorKind::Reset
        || kind == ErrorKind::WriteFailed
}

/// It was lost before anything of an answer came, and had answered requests before.
fn expired(failed: &FailedAttempt<'_>) -> bool {
    lost(failed) && failed.reused && failed.phase != Phase::Receive
}

fn get_or_head(failed: &FailedAttempt<'_>) -> bool {
    failed.request.method == "GET" || failed.request.method == "HEAD"
}

/// The Java clients go by the class of the request, and these have no body to set.
fn carries_an_entity(failed: &FailedAttempt<'_>) -> bool {
    failed.request.has_body
        || !["GET", "HEAD", "DELETE", "OPTIONS", "TRACE"].contains(&failed.request.method)
}

fn ours(failed: &FailedAttempt<'_>) -> Course {
    let harmless = failed.sent == Sent::None || failed.request.idempotent;
    if is_beyond_cure(failed.kind)
        || waited_in_vain(failed)
        || failed.kind == ErrorKind::TlsFailed
        || failed.kind == ErrorKind::UnknownHost
        || failed.kind == ErrorKind::MalformedResponse
        || !harmless
    {
        return Stop;
    }
    if expired(failed) && failed.retried_before == 0 {
        return AgainFresh;
    }
    // A peer that hangs up on a fresh connection, or again, does it to the next one too.
    again_if(!lost(failed) || failed.sent == Sent::None)
}

fn apache(failed: &FailedAttempt<'_>) -> Course {
    if is_beyond_cure(failed.kind)
        || waited_in_vain(failed)
        || connected_in_vain(failed)
        || exchanged_in_vain(failed)
        || failed.kind == ErrorKind::UnknownHost
        || failed.kind == ErrorKind::ConnectRefused
        || failed.kind == ErrorKind::TlsFailed
    {
        return Stop;
    }
    again_if(!carries_an_entity(failed) || failed.sent != Sent::All)
}

fn apache_with_timeouts(failed: &FailedAttempt<'_>) -> Course {
    let no_response = failed.kind == ErrorKind::ClosedBeforeResponse;
    if no_response || connected_in_vain(failed) || exchanged_in_vain(failed) {
        return Again;
    }
    if is_beyond_cure(failed.kind)
        || waited_in_vain(failed)
        || failed.kind == ErrorKind::UnknownHost
        || failed.kind == ErrorKind::TlsFailed
    {
        return Stop;
    }
    again_if(!carries_an_entity(failed))
}

fn java(failed: &FailedAttempt<'_>, all_methods: bool, retry_connect: bool) -> Course {
    if failed.retried_before > 0 {
        return Stop;
    }
    if expired(failed) && (all_methods || get_or_head(failed)) {
        return AgainFresh;
    }
    let unconnected =
        failed.kind == ErrorKind::ConnectRefused || failed.kind == ErrorKind::ConnectFailed;
    again_if(retry_connect && unconnected)
}

fn apache_async(failed: &FailedAttempt<'_>) -> Course {
    if is_beyond_cure(failed.kind) {
        return Stop;
    }
    let always = waited_in_vain(failed)
        || connected_in_vain(failed)
        || exchanged_in_vain(failed)
        || failed.kind == ErrorKind::ClosedBeforeResponse;
    again_if(always || get_or_head(failed))
}

/// Whether a failure can have come at this point. Without a connection nothing has been sent.
fn is_possible(kind: ErrorKind, phase: Phase, sent: Sent, reused: bool) -> bool {
    let amount = match phase {
        Phase::Send => sent != Sent::All,
        Phase::Wait => sent == Sent::All,
        Phase::Receive => true,
        _ => sent == Sent::None && !reused,
    };
    let place = match kind {
        ErrorKind::InvalidRequest | ErrorKind::BreakerOpen => phase == Phase::Prepare,
        ErrorKind::AcquireTimeout | ErrorKind::QueueFull => phase == Phase::Acquire,
        ErrorKind::UnknownHost
        | ErrorKind::ConnectRefused
        | ErrorKind::ConnectFailed
        | ErrorKind::ConnectTimeout
        | ErrorKind::TlsFailed => phase == Phase::Connect,
        ErrorKind::RequestBody | ErrorKind::WriteFailed | ErrorKind::WriteTimeout => {
            phase == Phase::Send
        }
        ErrorKind::ClosedBeforeResponse => phase == Phase::Send || phase == Phase::Wait,
        ErrorKind::Reset | ErrorKind::HeadTimeout | ErrorKind::HoldTimeout => phase >= Phase::Send,
        ErrorKind::MalformedResponse | ErrorKind::Truncated | ErrorKind::BodyTimeout => {
            phase == Phase::Receive
        }
        ErrorKind::Draining | ErrorKind::AttemptTimeout => phase >= Phase::Acquire,
        _ => true,
    };
    amount && place
}

fn requests() -> impl Iterator<Item = RetryRequest<'static>> {
    METHODS.into_iter().flat_map(|method| {
        [None, Some(false), Some(true)]
            .into_iter()
            .flat_map(move |marked| {
                [false, true].into_iter().map(move |has_body| {
                    let mut request = RetryRequest::new(method);
                    request.idempotent = marked.unwrap_or(request.idempotent);
                    request.has_body = has_body;
                    request
                })
            })
    })
}

fn failures() -> Vec<FailedAttempt<'static>> {
    let mut failures = Vec::new();
    for kind in ErrorKind::ALL {
        let before = failures.len();
        for (phase, sent, reused) in PHASES.into_iter().flat_map(|phase| {
            AMOUNTS
                .into_iter()
                .flat_map(move |sent| [false, true].map(|reused| (phase, sent, reused)))
        }) {
            if !is_possible(kind, phase, sent, reused) {
                continue;
            }
            for request in requests() {
                for (attempt, retried_before) in [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)] {
                    let mut failed = FailedAttempt::new(request, kind);
                    (failed.phase, failed.sent, failed.reused) = (phase, sent, reused);
                    (failed.attempt, failed.retried_before) = (attempt, retried_before);
                    failures.push(failed);
                }
            }
        }
        assert!(failures.len() > before, "{kind:?} can come somewhere");
    }
    failures
}

#[test]
fn every_preset_decides_on_every_failure_as_its_model_does() {
    let failures = failures();
    for (table, expected) in presets() {
        let wrong: Vec<_> = failures
            .iter()
            .map(|failed| (failed, table.after_failure(failed)))
            .filter(|(failed, verdict)| course(*verdict) != expected(failed))
            .collect();
        if let Some((failed, verdict)) = wrong.first() {
            panic!(
                "{}: {} of {} differ, the first is {failed:?}: {verdict:?}, expected {:?}",
                table.name(),
                wrong.len(),
                failures.len(),
                expected(failed)
            );
        }
    }
}

/// Fault rows E3 and E5.
#[test]
fn a_stale_connection_is_replaced_once_and_only_for_what_may_be_repeated() {
    for method in METHODS {
        let mut stale =
            FailedAttempt::new(RetryRequest::new(method), ErrorKind::ClosedBeforeResponse);
        (stale.phase, stale.sent, stale.reused) = (Phase::Wait, Sent::All, true);
        let known = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "QUERY"];
        let once = if known.contains(&method) {
            AgainFresh
        } else {
            Stop
        };
        let decided = |failed: &_| course(RetryTable::default().after_failure(failed));
        assert_eq!(decided(&stale), once, "{method}");
        let mut twice = stale;
        (twice.attempt, twice.retried_before) = (2, 1);
        assert_eq!(decided(&twice), Stop, "{method}");
        let mut fresh = stale;
        fresh.reused = false;
        assert_eq!(decided(&fresh), Stop, "{method}");
    }
}

#[test]
fn only_ours_repeats_for_a_status_and_only_what_may_be_repeated() {
    for (table, _) in presets() {
        for status in 400..=599 {
            let cured = table.name() == "default" && [429, 500, 502, 503, 504].contains(&status);
            assert_eq!(table.retries_status(status), cured, "{}", table.name());
            for request in requests() {
                for attempt in 1..=6 {
                    let mut refused = RefusedResponse::new(request, status);
                    refused.attempt = attempt;
                    let decided = course(table.after_response(&refused));
                    let expected = again_if(cured && request.idempotent);
                    assert_eq!(decided, expected, "{}: {refused:?}", table.name());
                }
            }
        }
    }
}

#[test]
fn attempts_pauses_and_the_longest_retry_after_of_every_preset() {
    for (table, _) in presets() {
        let attempts = match table.name() {
            "none" => 1,
            "default" => 3,
            "apache_4_3" | "apache_4_3_with_timeouts" | "apache_async_4_1" => 4,
            "jdk" => 5,
            other => panic!("{other} is not known"),
        };
        assert_eq!(table.max_attempts(), attempts, "{}", table.name());
        let is_ours = table.name() == "default";
        let longest = if is_ours { 30 } else { 0 };
        assert_eq!(table.max_retry_after(), Duration::from_secs(longest));
        for retry in 1..=64 {
            let most = match is_ours {
                true => Duration::from_millis(100 << (retry - 1).min(10)).min(MOST_OF_OURS),
                false => Duration::ZERO,
            };
            assert_eq!(table.pause(retry, 0.0), Duration::ZERO, "{}", table.name());
            assert_eq!(table.pause(retry, 0.5), most / 2, "{}", table.name());
        }
    }
}

const MOST_OF_OURS: Duration = Duration::from_secs(2);

#[test]
fn a_kind_that_no_retry_cures_has_no_rule_to_be_set() {
    for kind in ErrorKind::ALL {
        let set = RetryTable::none().rule(kind, Rule::Always);
        assert_eq!(set.is_err(), is_beyond_cure(kind), "{kind:?}");
        for (table, _) in presets() {
            let never = table.rule_of(kind) == Rule::Never;
            assert!(never || !is_beyond_cure(kind), "{}: {kind:?}", table.name());
        }
    }
}

/// The table of docs/RETRIES.md.
fn rendered() -> String {
    let mut switches = JdkSwitches::default();
    (switches.all_methods, switches.retry_connect) = (true, true);
    let columns = [
        ("`none`", RetryTable::none()),
        ("`default`", RetryTable::default()),
        ("`apache_4_3`", RetryTable::apache_4_3()),
        (
            "`apache_4_3_with_timeouts`",
            RetryTable::apache_4_3_with_timeouts(),
        ),
        ("`jdk`", RetryTable::jdk()),
        ("`jdk_with` both switches", RetryTable::jdk_with(switches)),
        ("`apache_async_4_1`", RetryTable::apache_async_4_1()),
    ];
    let mut text = String::new();
    let mut row = |name: &str, cell: &dyn Fn(&RetryTable) -> String| {
        write!(text, "| {name} |").unwrap();
        for (_, table) in &columns {
            write!(text, " {} |", cell(table)).unwrap();
        }
        text.push('\n');
    };
    row("attempts", &|table| table.max_attempts().to_string());
    for kind in ErrorKind::ALL
        .into_iter()
        .filter(|kind| !is_beyond_cure(*kind))
    {
        row(&kind.to_string(), &|table| table.rule_of(kind).to_string());
    }
    row("any other failure", &|_| Rule::Never.to_string());
    row("statuses, if idempotent", &|table| {
        let statuses = (400..=599).filter(|status| table.retries_status(*status));
        let statuses: Vec<_> = statuses.map(|status: u16| status.to_string()).collect();
        match statuses.is_empty() {
            true => "none".to_owned(),
            false => statuses.join(", "),
        }
    });
    row("pauses, at most", &|table| {
        let pauses: Vec<_> = (1..table.max_attempts())
            .map(|retry| 2 * table.pause(retry, 0.5))
            .collect();
        match pauses.iter().all(Duration::is_zero) {
            true => "no pause".to_owned(),
            false => pauses
                .iter()
                .map(|pause| format!("{pause:?}"))
                .collect::<Vec<_>>()
                .join(", "),
        }
    });
    row(
        "longest `Retry-After`",
        &|table| match table.retries_status(429) || table.retries_status(503) {
            true => format!("{:?}", table.max_retry_after()),
            false => "–".to_owned(),
        },
    );
    let names: Vec<_> = columns.iter().map(|(name, _)| *name).collect();
    let head = format!("| | {} |\n|---|{}\n", names.join(" | "), "---|".repeat(7));
    head + &text
}

#[test]
fn the_table_of_the_docs_is_what_the_code_says() {
    let docs = include_str!("../../docs/RETRIES.md");
    let right = rendered();
    assert!(
        docs.contains(&right),
        "docs/RETRIES.md differs; the table is\n\n{right}"
    );
}
