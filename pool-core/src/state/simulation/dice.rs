//! Where all chance comes from: the same seed gives the same numbers, for ever.

use std::time::Duration;

/// A generator of the SplitMix64 family: one addition and three mixing steps a number.
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// At least 0 and below `bound`, which is at least 1.
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        (((self.next() >> 32) * u64::from(bound)) >> 32) as u32
    }

    /// From `low` to `high`, both included.
    pub(super) fn from(&mut self, low: u32, high: u32) -> u32 {
        low + self.below(high - low + 1)
    }

    pub(super) fn one_in(&mut self, bound: u32) -> bool {
        self.below(bound) == 0
    }

    /// A place in a table of `len` entries, or `None` if it is empty.
    pub(super) fn place(&mut self, len: usize) -> Option<usize> {
        let bound = u32::try_from(len).unwrap_or(u32::MAX);
        (bound > 0).then(|| self.below(bound) as usize)
    }

    /// A duration of each order of magnitude alike, below 2^`bits` ns.
    pub(super) fn duration(&mut self, bits: u32) -> Duration {
        let magnitude = self.from(10, bits.max(11));
        Duration::from_nanos(1 + self.next() % (1 << magnitude))
    }
}

/// Choices with weights; one of weight 0 is never drawn.
#[derive(Clone, Debug)]
pub(super) struct Choice<T, const N: usize> {
    choices: [(T, u32); N],
    sum: u32,
}

impl<T: Copy, const N: usize> Choice<T, N> {
    /// At least one weight has to be above 0.
    pub(super) fn new(choices: [(T, u32); N]) -> Self {
        let sum = choices.iter().map(|(_, weight)| weight).sum();
        Self { choices, sum }
    }

    pub(super) fn draw(&self, dice: &mut Dice) -> T {
        let mut left = dice.below(self.sum);
        for (choice, weight) in self.choices {
            if left < weight {
                return choice;
            }
            left -= weight;
        }
        self.choices[0].0
    }
}
