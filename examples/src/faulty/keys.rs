//! Counters by keys that clients choose, so that their number has to be bounded.

use std::collections::{HashMap, VecDeque};

/// So many keys are remembered; a new one beyond them takes the place of the oldest.
const KEYS: usize = 1024;

/// How often each key was seen.
#[derive(Debug, Default)]
pub(super) struct Keys {
    seen: HashMap<String, u64>,
    /// From the oldest on, each key once.
    order: VecDeque<String>,
}

impl Keys {
    /// Counts `key` and tells how often it was seen before.
    pub(super) fn count(&mut self, key: &str) -> u64 {
        if let Some(seen) = self.seen.get_mut(key) {
            let before = *seen;
            *seen += 1;
            return before;
        }
        if self.order.len() == KEYS
            && let Some(oldest) = self.order.pop_front()
        {
            self.seen.remove(&oldest);
        }
        self.order.push_back(key.to_owned());
        self.seen.insert(key.to_owned(), 1);
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_counts_for_itself() {
        let mut keys = Keys::default();
        assert_eq!(
            [keys.count("a"), keys.count("b"), keys.count("a")],
            [0, 0, 1]
        );
    }

    #[test]
    fn beyond_the_bound_the_oldest_key_is_forgotten() {
        let mut keys = Keys::default();
        for n in 0..=KEYS {
            assert_eq!(keys.count(&n.to_string()), 0);
        }
        assert_eq!((keys.seen.len(), keys.order.len()), (KEYS, KEYS));
        assert_eq!(keys.count("1"), 1, "the oldest that is left");
        assert_eq!(keys.count("0"), 0, "forgotten, and new again");
        assert_eq!(keys.count("1"), 0, "forgotten for it");
    }
}
