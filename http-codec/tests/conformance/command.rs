//! The command `conformance`, by its exit status and its output.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::harness::command;

/// Runs the command; returns its exit status, standard output and standard error.
fn run(arguments: &[&PathBuf]) -> (u8, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let arguments = arguments.iter().map(|path| OsString::from(path.as_path()));
    let status = command(arguments, &mut out, &mut err);
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status, text(out), text(err))
}

/// A file of lines for one test.
fn file(name: &str, lines: &[String]) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, lines.join("\n")).expect("a file");
    path
}

/// A request `GET /` with an empty body.
fn case(id: &str) -> Value {
    json!({
        "id": id, "group": "g", "kind": "request", "strictness": "must",
        "input": "R0VUIC8gSFRUUC8xLjENCkhvc3Q6IGENCg0K",
        "expect": {"ok": {
            "method": "GET", "target": "/", "version": "1.1", "headers": [["Host", "a"]],
            "trailers": [], "body": "", "body_framing": "none", "keep_alive": true,
            "consumed": 27, "interim": [],
        }},
    })
}

#[test]
fn cases_that_pass_end_with_0_and_a_table() {
    let path = file(
        "pass.jsonl",
        &[case("a").to_string(), case("b").to_string()],
    );
    let (status, out, err) = run(&[&path]);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    assert_eq!(
        out,
        "group  passed  failed\ng           2       0\n2 passed, 0 failed\n"
    );

    let (status, out, _) = run(&[&path, &path]);
    assert_eq!(status, 0);
    assert!(out.ends_with("\n4 passed, 0 failed\n"), "{out}");
}

#[test]
fn a_case_that_differs_is_named_with_what_was_expected_and_seen() {
    let mut target = case("wrong-target");
    target["expect"]["ok"]["target"] = json!("/other");
    let mut error = case("no-error");
    error["expect"] = json!({"error": "bad-head"});
    let mut saved = error.clone();
    saved["id"] = json!("saved-by-alternative");
    saved["alternatives"] = json!([case("")["expect"]]);
    let lines = [case("good"), target, error, saved].map(|case| case.to_string());
    let (status, out, _) = run(&[&file("differ.jsonl", &lines)]);
    assert_eq!(status, 1, "{out}");
    let named = "wrong-target (Must): target: expected Some(\"/other\"); saw Some(\"/\")\n";
    assert!(out.contains(named), "{out}");
    let named = "no-error (Must): expected error BadHead; saw a request GET /";
    assert!(out.contains(named), "{out}");
    assert!(
        out.ends_with("\n2 passed, 2 failed\n") && !out.contains("saved"),
        "{out}"
    );
}

#[test]
fn a_file_that_cannot_be_used_is_named_with_the_line_and_what_was_expected() {
    let missing = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("missing.jsonl");
    let (status, _, err) = run(&[&missing]);
    assert_eq!(status, 2);
    assert!(err.contains("missing.jsonl: No such file"), "{err}");

    let with = |key: &str, value: Value| {
        let mut case = case("a");
        case[key] = value;
        case.to_string()
    };
    for (line, what) in [
        (String::new(), "EOF while parsing"),
        ("{".to_owned(), "EOF while parsing"),
        (json!({"id": "a"}).to_string(), "missing field `group`"),
        (
            with("kind", json!("answer")),
            "expected `response` or `request`",
        ),
        (with("input", json!("a.b")), "expected base64"),
        (with("splits", json!([2, 1])), "expected ascending places"),
        (with("splits", json!([28])), "within the input"),
        (
            with("expect", json!({})),
            "expected one of `ok` and `error`",
        ),
        (
            with("expect", json!({"error": "odd"})),
            "unknown variant `odd`",
        ),
        (with("request_method", json!("A B")), "expected a token"),
    ] {
        let lines = [case("good").to_string(), line, case("last").to_string()];
        let (status, out, err) = run(&[&file("malformed.jsonl", &lines)]);
        assert_eq!((status, out.as_str()), (2, ""), "{err}");
        assert!(err.contains("malformed.jsonl:2: expected a case"), "{err}");
        assert!(err.contains(what), "{err}");
    }

    let (status, _, err) = run(&[&file("empty.jsonl", &[])]);
    assert_eq!(status, 2);
    assert!(err.contains("it is empty"), "{err}");
}
