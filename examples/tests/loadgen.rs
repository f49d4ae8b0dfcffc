//! What the load generator sends, and that it tells the truth about it.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use pinpool_examples::loadgen::{LoadgenError, Plan, Report, run};
use serde_json::Value;
use test_support::{
    OK, Peer, Server, Then, keep_alive_ok, never_answer, refused_address, respond_then,
};

/// Longer than anything here takes, however slow the machine.
const PATIENT: &str = "--timeout 60s";

fn plan(server: &Server, line: &str) -> Plan {
    let url = format!("http://{}/", server.addr());
    let words = line.split_whitespace().chain([&*url]);
    Plan::read(std::iter::once("loadgen").chain(words)).unwrap()
}

/// Runs to its end.
fn load(server: &Server, line: &str) -> Report {
    let (_stop, stopped) = mpsc::channel();
    run(&plan(server, line), &stopped, |_| {}).unwrap()
}

/// As many threads as there may be, two at the most.
fn threads() -> usize {
    pool_core::allowed_cpus().map_or(1, |cpus| cpus.len().min(2))
}

fn sum(report: &Report, of: impl Fn(&pinpool_examples::loadgen::Second) -> u64) -> u64 {
    report.seconds.iter().map(of).sum()
}

#[test]
fn counts_agree_with_what_the_origin_saw() {
    let server = Server::script(keep_alive_ok());
    let line = format!("-c 4 -n 203 -t {} {PATIENT}", threads());
    let report = load(&server, &line);
    let counts = server.counts();
    assert_eq!((report.requests, counts.requests), (203, 203));
    assert_eq!(report.connections_opened, counts.accepted as u64);
    assert!(counts.highest_open <= 4, "{counts:?}");
    assert_eq!(report.bytes_read, 203 * OK.len() as u64);
    assert_eq!(report.statuses, BTreeMap::from([(200, 203)]));
    assert_eq!((report.succeeded, report.errors), (203, 0));
    assert_eq!((report.dropped, report.unfinished), (0, 0));
    assert_eq!(report.threads, threads());
    assert_eq!(sum(&report, |second| second.requests), 203);
    assert_eq!(sum(&report, |second| second.bytes_read), report.bytes_read);
    server.finish();
}

#[test]
fn as_many_requests_are_sent_as_asked_for_with_fewer_than_connections_too() {
    let server = Server::script(keep_alive_ok());
    for (connections, requests) in [(8, 1), (8, 7), (1, 20), (3, 20)] {
        let before = server.counts().requests;
        let line = format!("-c {connections} -n {requests} {PATIENT}");
        let report = load(&server, &line);
        let seen = server.counts().requests - before;
        assert_eq!((report.requests, seen as u64), (requests, requests));
    }
    server.finish();
}

#[test]
fn run_for_a_time_accounts_for_every_request_that_the_origin_saw() {
    let server = Server::script(keep_alive_ok());
    let report = load(&server, &format!("-c 4 -d 300ms {PATIENT}"));
    assert!(report.elapsed_s >= 0.3 && report.requests > 0, "{report}");
    assert_eq!(report.errors, 0);
    assert!(report.unfinished <= 4);
    // What was under way at the end may have reached the origin or not.
    let seen = server.counts().requests as u64;
    assert!(seen >= report.requests && seen <= report.requests + report.unfinished);
    assert_eq!(sum(&report, |second| second.requests), report.requests);
    server.finish();
}

#[test]
fn warm_up_is_not_counted() {
    let server = Server::script(keep_alive_ok());
    let report = load(&server, &format!("-c 2 -n 50 --warmup 100ms {PATIENT}"));
    assert_eq!(report.requests, 50);
    assert!(server.counts().requests > 50);
    assert_eq!(sum(&report, |second| second.requests), 50);
    server.finish();
}

#[test]
fn without_keep_alive_each_request_has_a_connection_of_its_own() {
    let server = Server::script(keep_alive_ok());
    let report = load(&server, &format!("-c 2 -n 20 --no-keep-alive {PATIENT}"));
    assert_eq!((report.requests, report.connections_opened), (20, 20));
    assert_eq!(server.counts().accepted, 20);
    assert!(!report.keep_alive);
    server.finish();
}

#[test]
fn method_fields_and_body_reach_the_origin() {
    let server = Server::script(|peer: &mut Peer| {
        while let Some(request) = peer.read_request()? {
            let line = (request.line(), request.header("x-a"), &*request.body);
            let expected = (
                "PUT / HTTP/1.1".to_owned(),
                Some("1".to_owned()),
                &b"pay"[..],
            );
            assert_eq!(line, expected);
            peer.answer("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")?;
        }
        Ok(())
    });
    let report = load(
        &server,
        &format!("-c 1 -n 3 -X PUT -H X-A:1 --body pay {PATIENT}"),
    );
    assert_eq!(report.status_classes, BTreeMap::from([("4xx", 3)]));
    assert_eq!((report.requests, report.succeeded), (3, 0));
    assert!(!report.any_succeeded());
    server.finish();
}

#[test]
fn errors_are_counted_by_their_kind_and_nothing_is_sent_again() {
    for (then, kind) in [
        (Then::FinBeforeHead, "ClosedBeforeResponse"),
        (Then::ResetBeforeHead, "Reset"),
        (Then::FinMidBody, "Truncated"),
    ] {
        // The first request of each connection is answered: the second one fails on a connection
        // that others would call stale.
        let server = Server::script(respond_then(1, then));
        let report = load(&server, &format!("-c 1 -n 6 {PATIENT}"));
        assert_eq!(
            report.errors_by_kind,
            BTreeMap::from([(kind.to_owned(), 3)])
        );
        assert_eq!((report.requests, report.errors), (3, 3));
        assert_eq!(server.counts().requests, 6);
        assert_eq!(sum(&report, |second| second.errors), 3);
        server.finish();
    }
    let server = Server::script(|peer: &mut Peer| {
        peer.read_request()?;
        peer.answer("nonsense\r\n\r\n")?;
        peer.stall()
    });
    let report = load(&server, &format!("-c 1 -n 2 {PATIENT}"));
    assert_eq!(report.errors_by_kind["MalformedResponse"], 2);
    server.finish();
}

#[test]
fn answer_that_does_not_come_in_time_is_an_error_and_no_latency() {
    let server = Server::script(never_answer());
    let report = load(&server, "-c 2 -n 4 --timeout 20ms");
    assert_eq!(report.errors_by_kind["TotalTimeout"], 4);
    assert_eq!(report.requests, 0);
    assert!(report.distribution.is_empty() && !report.any_succeeded());
    server.finish();
}

/// Answers, but makes one request, the `stalled`th, wait for `stall`.
fn stalls_once(
    stalled: usize,
    stall: Duration,
) -> impl Fn(&mut Peer) -> io::Result<()> + Send + Sync + 'static {
    let seen = AtomicUsize::new(0);
    move |peer| {
        while peer.read_request()?.is_some() {
            if seen.fetch_add(1, Ordering::SeqCst) + 1 == stalled {
                peer.sleep(stall)?;
            }
            peer.answer(OK)?;
        }
        Ok(())
    }
}

#[test]
fn open_loop_counts_latency_from_the_intended_start_so_that_a_stall_shows_in_full() {
    let server = Server::script(stalls_once(100, Duration::from_millis(500)));
    // One starts each 5 ms: those meant to start in the stall wait for 500, 495, 490 ms and so on.
    let report = load(&server, &format!("-c 1 --rate 200 -n 400 {PATIENT}"));
    assert_eq!(
        (report.requests, report.dropped, report.mode),
        (400, 0, "open")
    );
    let at_least = |name: &str, ms: f64| {
        let us = report.latency_us[name];
        assert!(us >= ms * 1e3, "{name} {us} us, at least {ms} ms");
    };
    at_least("max", 500.0);
    // Of 400 the 4 longest, the 20 longest, and the 40 longest; a part in 1000 is rounded.
    at_least("p99", 480.0 * 0.999);
    at_least("p95", 400.0 * 0.999);
    at_least("p90", 300.0 * 0.999);
    // Its last request was not meant to start before this.
    assert!(report.elapsed_s >= 399.0 / 200.0);
    server.finish();
}

#[test]
fn closed_loop_sees_a_stall_once() {
    let server = Server::script(stalls_once(50, Duration::from_millis(300)));
    let report = load(&server, &format!("-c 1 -n 100 {PATIENT}"));
    assert!(report.latency_us["max"] >= 300e3);
    assert_eq!((report.requests, report.mode), (100, "closed"));
    server.finish();
}

#[test]
fn what_exceeds_the_bound_on_those_that_wait_is_dropped_and_said() {
    let server = Server::script(never_answer());
    let report = load(
        &server,
        &format!("-c 1 --rate 1000 --max-waiting 10 -d 200ms {PATIENT}"),
    );
    // One is under way.
    assert_eq!((report.requests, report.unfinished), (0, 11));
    assert_eq!(report.dropped, 200 - 11, "{report}");
    assert_eq!(sum(&report, |second| second.dropped), report.dropped);
    assert!(report.longest_unfinished_s > 0.1);
    let text = report.to_string();
    assert!(
        text.contains(&format!("dropped      {}, as", report.dropped)),
        "{text}"
    );
    assert!(text.contains("unfinished   11 at the end"), "{text}");
    server.finish();
}

#[test]
fn open_loop_without_room_to_wait_still_sends_what_a_connection_is_free_for() {
    let server = Server::script(keep_alive_ok());
    let line = format!(
        "-c 4 --rate 2000 -n 333 --max-waiting 0 -t {} {PATIENT}",
        threads()
    );
    let report = load(&server, &line);
    assert_eq!(report.requests + report.dropped, 333);
    assert_eq!(server.counts().requests as u64, report.requests);
    assert!(report.requests > 0);
    server.finish();
}

#[test]
fn stop_ends_it_early_with_what_was_measured() {
    let server = Server::script(keep_alive_ok());
    let (stop, stopped) = mpsc::channel();
    let plan = plan(&server, &format!("-c 2 -d none {PATIENT}"));
    let report = run(&plan, &stopped, |_| {
        // Later ones are too many.
        let _ = stop.send(());
    });
    let report = report.unwrap();
    assert!(report.requests > 0 && report.elapsed_s >= 1.0, "{report}");
    server.finish();
}

#[test]
fn stop_in_the_warm_up_leaves_nothing_measured() {
    let server = Server::script(keep_alive_ok());
    let (stop, stopped) = mpsc::channel();
    stop.send(()).unwrap();
    let plan = plan(&server, &format!("-c 2 --warmup 1h {PATIENT}"));
    let report = run(&plan, &stopped, |_| {}).unwrap();
    assert_eq!((report.requests, report.unfinished), (0, 0));
    assert_eq!((report.elapsed_s, report.requests_per_s), (0.0, 0.0));
    server.finish();
}

#[test]
fn target_that_cannot_be_reached_is_told_before_anything_is_measured() {
    let refused = refused_address();
    let url = format!("http://{}/", refused.addr());
    let plan = Plan::read(["loadgen", &url]).unwrap();
    let (_stop, stopped) = mpsc::channel();
    let error = run(&plan, &stopped, |_| panic!("nothing runs")).unwrap_err();
    assert!(matches!(error, LoadgenError::Unreachable { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("{url} cannot be reached: ")),
        "{text}"
    );
    assert!(text.contains("refused") && !text.contains('\n'), "{text}");
}

#[test]
fn json_has_the_fields_that_are_documented() {
    let server = Server::script(keep_alive_ok());
    let report = load(&server, &format!("-c 1 -n 100 {PATIENT}"));
    let json = serde_json::to_value(&report).unwrap();
    let keys = |value: &Value| -> Vec<String> {
        let object = value.as_object().unwrap();
        object.keys().cloned().collect()
    };
    let mut expected = [
        "url",
        "method",
        "mode",
        "rate",
        "connections",
        "threads",
        "keep_alive",
        "elapsed_s",
        "requests",
        "requests_per_s",
        "succeeded",
        "bytes_read",
        "bytes_read_per_s",
        "status_classes",
        "statuses",
        "errors",
        "errors_by_kind",
        "dropped",
        "unfinished",
        "longest_unfinished_s",
        "latency_us",
        "connections_opened",
        "seconds",
        "distribution",
    ];
    expected.sort_unstable();
    let mut found = keys(&json);
    found.sort();
    assert_eq!(found, expected);
    assert_eq!(json["statuses"]["200"], 100);
    let latency = &json["latency_us"];
    let names = ["p50", "p75", "p90", "p95", "p99", "p99.9", "p99.99", "max"];
    let values: Vec<_> = names
        .iter()
        .map(|name| latency[name].as_f64().unwrap())
        .collect();
    assert!(values[0] > 0.0 && values.is_sorted(), "{values:?}");
    let points = json["distribution"].as_array().unwrap();
    let of = |name: &str| {
        points
            .iter()
            .map(|point| point[name].as_f64().unwrap())
            .is_sorted()
    };
    assert!(of("percentile") && of("us"));
    assert_eq!(points.last().unwrap()["us"], latency["max"]);
    let second = &json["seconds"][0];
    assert_eq!(second["second"], 1);
    assert!(second["p99_us"].as_f64() >= second["p50_us"].as_f64());
    server.finish();
}

/// The names of the elements that are open, each closed in its order; panics where they are not.
fn check_nesting(page: &str) {
    let mut open = Vec::new();
    let mut rest = page;
    while let Some((_, behind)) = rest.split_once('<') {
        let (tag, after) = behind.split_once('>').expect("a tag ends");
        rest = after;
        let name = tag.split_whitespace().next().unwrap_or_default();
        match name.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "</{name}>"),
            None if name.starts_with('!') || name == "meta" || tag.ends_with('/') => {}
            None => open.push(name),
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn page_loads_nothing_and_has_a_plot_of_the_distribution_and_of_the_course() {
    let server = Server::script(keep_alive_ok());
    let url = format!("http://{}/?a=1&b=%3C", server.addr());
    let line = [
        "loadgen",
        "-c",
        "2",
        "-d",
        "1200ms",
        "--timeout",
        "60s",
        &url,
    ];
    let (_stop, stopped) = mpsc::channel();
    let report = run(&Plan::read(line).unwrap(), &stopped, |_| {}).unwrap();
    let page = report.to_html();
    check_nesting(&page);
    let shown = url.replace('&', "&amp;");
    assert!(page.contains(&shown), "{page}");
    // The target is named, not loaded.
    let page = page.replace(&shown, "");
    for outside in [
        "http:", "https:", "//", "src=", "href=", "url(", "@import", "<script", "<link",
    ] {
        assert!(!page.contains(outside), "{outside}: {page}");
    }
    assert!(page.contains("prefers-color-scheme: dark") && page.contains("name=\"viewport\""));
    for plot in [
        "Latency by percentile",
        "Requests per second",
        "Latency per second",
    ] {
        assert_eq!(page.matches(&format!("aria-label=\"{plot}\"")).count(), 1);
    }
    assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
    server.finish();
}

#[test]
fn page_of_a_run_without_a_response_is_whole_too() {
    let server = Server::script(never_answer());
    let page = load(&server, "-c 1 -n 1 --timeout 20ms").to_html();
    check_nesting(&page);
    assert!(page.contains("TotalTimeout 1") && page.contains("no whole response"));
    assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
    server.finish();
}
