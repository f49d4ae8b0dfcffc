//! Which fault a request of the mix meets: by the seed and its number, and nothing else.

use super::answer::MALFORMED;
use super::plan::{Afterwards, Part, Place, Plan, Refused, RetryAfter, Then};

/// A fault by name, and its plan, given how long it waits.
type Fault = (&'static str, fn(u64) -> Plan);

const HEALTHY: &str = "healthy";

#[rustfmt::skip]
static FAULTS: [Fault; 18] = [
    ("status-429", |_| status(429, Some(RetryAfter::Seconds(1)))),
    ("status-500", |_| status(500, None)),
    ("status-503", |_| status(503, Some(RetryAfter::Date(1)))),
    ("stall-before-head", |ms| Plan::Cut { at: Place::BeforeHead, then: Then::Stall(ms) }),
    ("stall-mid-body", |ms| Plan::Cut { at: Place::MidBody, then: Then::Stall(ms) }),
    ("close-before-head", |_| Plan::Cut { at: Place::BeforeHead, then: Then::Close }),
    ("close-mid-head", |_| Plan::Cut { at: Place::MidHead, then: Then::Close }),
    ("close-after-head", |_| Plan::Cut { at: Place::AfterHead, then: Then::Close }),
    ("close-mid-body", |_| Plan::Cut { at: Place::MidBody, then: Then::Close }),
    ("close-mid-chunk", |_| Plan::Cut { at: Place::MidChunk, then: Then::Close }),
    ("close-after", |_| Plan::After { ms: 0, then: Afterwards::Close }),
    ("reset-before-head", |_| Plan::Cut { at: Place::BeforeHead, then: Then::Reset }),
    ("reset-mid-body", |_| Plan::Cut { at: Place::MidBody, then: Then::Reset }),
    ("reset-after", |_| Plan::After { ms: 0, then: Afterwards::Reset }),
    ("stray", |_| Plan::After { ms: 0, then: Afterwards::Stray(12) }),
    ("drip-body", |ms| Plan::Drip { part: Part::Body, ms: ms / 10, bytes: 10 }),
    ("interim-103", |_| Plan::Interim { status: 103, count: 1 }),
    ("malformed", |_| Plan::Malformed(MALFORMED[0].1)),
];

fn status(status: u16, retry_after: Option<RetryAfter>) -> Plan {
    Plan::Status(Refused {
        status,
        retry_after,
    })
}

/// The names of what [`pick`] picks, in the order of their numbers.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    std::iter::once(HEALTHY).chain(FAULTS.iter().map(|(name, _)| *name))
}

/// What the `n`-th request with `seed` meets, by its number in [`names`]. Of a hundred requests
/// about `faults` meet a fault, which waits for `ms` where it waits.
pub(super) fn pick(seed: u64, n: u64, faults: u64, ms: u64) -> (usize, Plan) {
    let bits = spread(spread(seed).wrapping_add(n));
    if bits % 100 >= faults {
        return (0, Plan::Bytes(10));
    }
    let number = usize::try_from((bits >> 32) % FAULTS.len() as u64).unwrap_or_default();
    (number + 1, FAULTS[number].1(ms))
}

/// The finalizer of splitmix64, which spreads neighbours over all of the range (Steele, Lea and
/// Flood, 2014).
fn spread(seed: u64) -> u64 {
    let mut bits = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(seed: u64, faults: u64) -> Vec<usize> {
        (0..1000).map(|n| pick(seed, n, faults, 0).0).collect()
    }

    #[test]
    fn seed_and_number_decide() {
        assert_eq!(numbers(7, 50), numbers(7, 50));
        for other in [0, 6, 8, u64::MAX] {
            assert_ne!(numbers(7, 50), numbers(other, 50));
        }
        // A later version of the program is to show what this one showed.
        assert_eq!(numbers(7, 100)[..8], [14, 6, 18, 15, 14, 10, 16, 5]);
    }

    #[test]
    fn share_of_faults_is_as_asked_and_every_fault_comes() {
        for faults in [0, 1, 50, 99, 100] {
            let healthy = numbers(1, faults).iter().filter(|n| **n == 0).count();
            let expected = 1000 - 10 * usize::try_from(faults).unwrap();
            assert!(healthy.abs_diff(expected) < 60, "{healthy} at {faults}");
        }
        let mut seen = numbers(1, 100);
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), FAULTS.len());
        assert_eq!(names().count(), FAULTS.len() + 1);
    }
}
