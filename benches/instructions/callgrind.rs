//! What callgrind has counted, by instruction.

use std::collections::HashMap;
use std::process::Command;

/// An instruction that the warm path must not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An atomic read-modify-write.
    Locked,
    /// A system call.
    Syscall,
}

/// How often each instruction of each program or library was executed.
#[derive(Debug, Default)]
pub(crate) struct Profile {
    objects: HashMap<String, HashMap<u64, u64>>,
}

/// Reads a profile that was written with `--dump-instr=yes --compress-pos=no`.
///
/// # Panics
///
/// If it is not such a profile, or its lines do not add up to its total.
pub(crate) fn parse(text: &str) -> Profile {
    let mut profile = Profile::default();
    let mut names: HashMap<&str, &str> = HashMap::new();
    let mut object = "";
    let mut is_call = false;
    let mut total = None;
    for line in text.lines() {
        if let Some(named) = line.strip_prefix("ob=") {
            // "(1) /path" the first time, "(1)" from then on.
            let (id, name) = named.split_once(' ').unwrap_or((named, ""));
            if !name.is_empty() {
                names.insert(id, name);
            }
            object = names.get(id).copied().unwrap_or("");
        } else if let Some(named) = line.strip_prefix("cob=") {
            if let Some((id, name)) = named.split_once(' ') {
                names.insert(id, name);
            }
        } else if let Some(sum) = line.strip_prefix("totals: ") {
            total = sum.trim().parse::<u64>().ok();
        } else if line.starts_with("calls=") {
            // The next line has what the callee has cost, which its own lines say too.
            is_call = true;
        } else if let Some(address) = line.strip_prefix("0x")
            && !std::mem::take(&mut is_call)
        {
            let mut fields = address.split(' ');
            let address = fields.next().and_then(|f| u64::from_str_radix(f, 16).ok());
            let count = fields.next_back().and_then(|f| f.parse::<u64>().ok());
            let (Some(address), Some(count)) = (address, count) else {
                panic!("not a line of costs: {line}");
            };
            let object = profile.objects.entry(object.to_owned()).or_default();
            *object.entry(address).or_default() += count;
        }
    }
    assert_eq!(total, Some(profile.total()), "the lines do not add up");
    assert_ne!(total, Some(0), "nothing was counted");
    profile
}

impl Profile {
    /// All instructions executed.
    pub(crate) fn total(&self) -> u64 {
        self.objects.values().flat_map(HashMap::values).sum()
    }

    /// How many of them were of `kind`.
    pub(crate) fn executed(&self, kind: Kind) -> u64 {
        let mut sum = 0;
        for (object, counts) in &self.objects {
            // The kernel's page has no file, and valgrind hides it.
            if std::fs::exists(object).unwrap_or(false) {
                let found = addresses(object, kind);
                sum += found.iter().filter_map(|at| counts.get(at)).sum::<u64>();
            }
        }
        sum
    }
}

/// Where an object has instructions of a kind.
fn addresses(object: &str, kind: Kind) -> Vec<u64> {
    let output = Command::new("objdump")
        .args(["--disassemble", "--no-show-raw-insn", object])
        .output()
        .expect("objdump is installed");
    assert!(output.status.success(), "objdump fails on {object}");
    let text = String::from_utf8_lossy(&output.stdout);
    let instructions = text.lines().filter_map(|line| line.split_once(":\t"));
    let wanted = instructions.filter(|(_, instruction)| is_of(kind, instruction));
    let addresses = wanted.filter_map(|(at, _)| u64::from_str_radix(at.trim(), 16).ok());
    addresses.collect()
}

fn is_of(kind: Kind, instruction: &str) -> bool {
    match kind {
        // An exchange with memory locks without saying so.
        Kind::Locked => {
            instruction.starts_with("lock ")
                || (instruction.starts_with("xchg ") && instruction.contains('('))
        }
        Kind::Syscall => instruction.trim_end() == "syscall",
    }
}
