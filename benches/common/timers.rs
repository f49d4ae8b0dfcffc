//! A timing wheel full of timers.

use crate::Timestamp;
use crate::state::wheel::{TimerId, Wheel};

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The wheel of a pool, with timers that wait and one that is set and cancelled among them.
#[derive(Debug)]
pub struct FullWheel {
    wheel: Wheel<u32>,
    timer: TimerId,
}

impl FullWheel {
    /// `pending` timers, spread over an hour.
    #[must_use]
    pub fn new(pending: u32) -> Self {
        let mut wheel = Wheel::new();
        for number in 0..pending {
            let timer = wheel.insert(number);
            wheel.schedule(timer, deadline(number));
        }
        let timer = wheel.insert(pending);
        Self { wheel, timer }
    }

    /// Sets the timer and cancels it.
    #[inline]
    pub fn schedule_and_cancel(&mut self, deadline: Timestamp) {
        self.wheel.schedule(self.timer, deadline);
        self.wheel.cancel(self.timer);
    }
}

/// One of the deadlines within the next hour; those of neighbouring numbers lie far apart.
#[must_use]
pub fn deadline(number: u32) -> Timestamp {
    const HOUR: u64 = 3600 * NANOS_PER_SECOND;
    Timestamp::from_nanos(u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) % HOUR)
}
