//! The targets on stable Rust, without a fuzzer: the corpus and mutations of it, the same ones in
//! every run.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

use http_codec_fuzz::TARGETS;

/// Mutations of each entry of the corpus: some ten seconds in release.
const MUTATIONS: usize = 400;

/// Bytes at which grammars turn.
const LURES: [&[u8]; 12] = [
    b"\r\n",
    b"\r\n\r\n",
    b"\n",
    b"\r",
    b" ",
    b"\t",
    b":",
    b";",
    b",",
    b"0",
    b"\0",
    b"\xff",
];

// One test, as the targets count the allocations of the whole process.
#[test]
fn no_target_fails_on_the_corpus_or_near_it() {
    let corpus = corpus();
    assert!(corpus.len() > 100, "the corpus is not whole");
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut runs = 0;
    for entry in &corpus {
        run_all(entry);
        for _ in 0..MUTATIONS {
            run_all(&mutate(entry, &corpus, &mut random));
        }
        runs += (1 + MUTATIONS) * TARGETS.len();
    }
    println!("{runs} runs of {} entries", corpus.len());
}

fn corpus() -> Vec<Vec<u8>> {
    let mut entries = Vec::new();
    for (name, _) in TARGETS {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("corpus")
            .join(name);
        let files = fs::read_dir(&directory).expect("a corpus");
        let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
        paths.sort();
        assert!(!paths.is_empty(), "{name} has no corpus");
        entries.extend(paths.iter().map(|path| fs::read(path).expect("a file")));
    }
    entries
}

fn run_all(bytes: &[u8]) {
    for (name, target) in TARGETS {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(bytes))) {
            eprintln!("{name} fails on b\"{}\"", bytes.escape_ascii());
            resume_unwind(panic);
        }
    }
}

/// A few changes at random.
fn mutate(entry: &[u8], corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = entry.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len() + 1);
        match random.below(6) {
            0 => bytes.truncate(at),
            1 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            // The choices stand at the front, where a place at random seldom falls.
            3 => {
                if let Some(choice) = bytes.get_mut(random.below(9)) {
                    *choice = random.byte();
                }
            }
            4 => {
                let other = &corpus[random.below(corpus.len())];
                bytes.truncate(at);
                bytes.extend_from_slice(&other[random.below(other.len() + 1)..]);
            }
            _ => {
                let lure = LURES[random.below(LURES.len())];
                bytes.splice(at..at, lure.iter().copied());
            }
        }
    }
    bytes
}

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits") % bound
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).expect("a byte")
    }
}
