//! The HTTP/1.1 cases of `data/http1-conformance.jsonl`: each whole, at the splits it suggests, byte
//! by byte, and cut in two everywhere. `must` and `should` cases have one right answer or list the
//! others; `choice` cases list what else is safe.

mod command;
mod harness;

use std::fmt::Write as _;

use harness::corpus;
use http_codec::Limits;

#[test]
fn every_case_gives_its_result_or_a_listed_alternative_however_it_is_split() {
    let cases = corpus();
    assert!(cases.len() > 400, "the corpus is not whole");
    let mut failures = String::new();
    for case in &cases {
        if let Err(why) = case.judge() {
            let _ = writeln!(failures, "{}: {why}", case.id);
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
}

/// The cases stand at the edges of the grammar; bytes changed at random lead across them.
#[test]
fn no_mutation_of_a_case_depends_on_how_it_is_split() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |bound: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random >> 33).expect("31 bits") % bound.max(1)
    };
    // Nearly every message meets them.
    let tight = Limits::default()
        .with_max_head_bytes(60)
        .with_max_fields(2)
        .with_max_target_bytes(8)
        .with_max_chunk_line_bytes(6)
        .with_max_trailer_bytes(12)
        .with_max_interim(1)
        .with_max_body_bytes(Some(6));
    /// Mutations of each case.
    const ROUNDS: usize = 20;
    const LURES: &[u8] = b"\r\n\r\n\n\r :;,09afF\0\x7f\xff";
    for case in corpus() {
        for round in 0..ROUNDS {
            let limits = if round % 2 == 1 { tight } else { case.limits() };
            let mut input = case.input.clone();
            for _ in 0..=below(3) {
                let at = below(input.len() + 1);
                let lure = LURES[below(LURES.len())];
                match below(4) {
                    0 => input.insert(at, lure),
                    1 if at < input.len() => input[at] = lure,
                    2 if at < input.len() => drop(input.remove(at)),
                    _ => input.truncate(at.max(input.len() / 2)),
                }
            }
            let whole = case.run(&input, &[], &limits);
            let (a, b) = (below(input.len()), below(input.len()));
            for cuts in [vec![a.min(b), a.max(b)], (0..input.len()).collect()] {
                let text = input.escape_ascii();
                assert_eq!(
                    case.run(&input, &cuts, &limits),
                    whole,
                    "{} cut {cuts:?}: {text}",
                    case.id
                );
            }
        }
    }
}

#[test]
fn replies_are_those_the_cases_suggest() {
    let mut failures = String::new();
    for case in corpus() {
        let Some(reply) = case.expect.reply else {
            continue;
        };
        let outcome = case.run(&case.input, &[], &case.limits());
        if let Err((_, seen)) = outcome
            && case.expect.difference(&outcome).is_none()
            && seen != reply
        {
            let _ = writeln!(failures, "{}: reply {seen}, suggested {reply}", case.id);
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
}

#[test]
fn support_table_names_cases_that_exist() {
    let cases = corpus();
    let exists = |name: &str| match name.strip_suffix('*') {
        Some(prefix) => cases.iter().any(|case| case.id.starts_with(prefix)),
        None => cases.iter().any(|case| case.id == name),
    };
    let table = include_str!("../../../docs/HTTP-SUPPORT.md");
    let checks = table.lines().filter_map(|line| {
        let row = line.strip_prefix('|')?.strip_suffix('|')?;
        row.rsplit('|').next()
    });
    // Every second piece stands between backticks; names of tests and files have no hyphen.
    let quoted = checks.flat_map(|checks| checks.split('`').skip(1).step_by(2));
    let names: Vec<_> = quoted
        .filter(|name| name.contains('-') && !name.contains('.'))
        .collect();
    assert!(names.len() > 100, "{names:?}");
    for name in names {
        assert!(exists(name), "{name}");
    }
}
