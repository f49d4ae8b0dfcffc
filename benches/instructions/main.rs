//! How many instructions does an operation take, exactly?
//!
//! ```text
//! cargo bench -p pinpool-benches --bench instructions               # beside the figures kept
//! cargo bench -p pinpool-benches --bench instructions -- --check    # fails if one has grown
//! cargo bench -p pinpool-benches --bench instructions -- --save     # keeps them
//! ```
//!
//! Each case runs in a process of its own under callgrind (valgrind and objdump have to be
//! installed), which counts every instruction that is executed between the first and the last of
//! its operations. Which of them lock the bus and which enter the kernel, the disassembly of the
//! program and its libraries tells. Valgrind hides the kernel's clock page, so that a reading of the
//! clock counts as a system call. The figures repeat to a few instructions; they depend on the
//! compiler. Names of cases may be given to run only those.

mod callgrind;
mod cases;
mod figures;

use std::path::Path;
use std::process::{Command, ExitCode};

use figures::{Figures, Kept};
use pinpool_benches::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Asks this program to run a case instead of measuring it.
const RUN: &str = "PINPOOL_CASE";

/// How much more than the figure kept is no growth: 3 %.
const TOLERANCE: f64 = 1.03;

const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.txt");

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(RUN) {
        let case = cases::ALL.iter().find(|case| case.name == name);
        let case = case.expect("a case of that name");
        println!("{}", case.run(case.operations));
        return ExitCode::SUCCESS;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let given = |flag: &str| arguments.iter().any(|argument| argument == flag);
    if !pinpool_benches::measures() {
        for case in cases::ALL {
            case.run(1);
        }
        return ExitCode::SUCCESS;
    }
    let named = |name: &str| {
        let mut names = arguments.iter().filter(|name| !name.starts_with('-'));
        names.clone().next().is_none() || names.any(|wanted| wanted == name)
    };
    let kept = Kept::read(Path::new(KEPT));
    let mut measured = Kept::default();
    let mut grown = false;
    println!("{}", Figures::HEADER);
    for case in cases::ALL.iter().filter(|case| named(case.name)) {
        let figures = measure(case);
        let before = kept.get(case.name);
        println!("{}", figures.row(case.name, before));
        grown |= before.is_some_and(|before| figures.exceed(before, TOLERANCE));
        measured.insert(case.name, figures);
    }
    if given("--save") {
        kept.updated_by(measured).write(Path::new(KEPT));
    }
    if given("--check") && grown {
        eprintln!("a figure has grown by more than 3 %, or there is a new atomic or allocation");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn measure(case: &cases::Case) -> Figures {
    let program = std::env::current_exe().expect("this program is a file");
    let profile = std::env::temp_dir().join(format!("pinpool-callgrind-{}", std::process::id()));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet", "--collect-atstart=no"])
        .args(["--dump-instr=yes", "--compress-pos=no"])
        .arg(format!("--toggle-collect=*{}*", cases::COUNTED))
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(program)
        .env(RUN, case.name)
        .output()
        .expect("valgrind is installed");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{}: {told}{}",
        case.name,
        String::from_utf8_lossy(&output.stderr)
    );
    let allocations: u64 = told.trim().parse().expect("a count of allocations");
    let text = std::fs::read_to_string(&profile).expect("callgrind has written its profile");
    // One that stays behind is a temporary file.
    let _ = std::fs::remove_file(&profile);
    let profile = callgrind::parse(&text);
    let operations = f64::from(case.operations);
    let per_operation = |count: u64| count as f64 / operations;
    Figures {
        instructions: per_operation(profile.total()),
        locked: per_operation(profile.executed(callgrind::Kind::Locked)),
        syscalls: per_operation(profile.executed(callgrind::Kind::Syscall)),
        allocations: per_operation(allocations),
    }
}
