//! What sizes of sets have been asked for of late.

use super::SIZES;

/// Time is looked at in steps of so many seconds; at the end of each the past counts less.
const STEP_SECONDS: i64 = 300;
/// So much less: a sixteenth, so that what was asked for counts half after an hour.
const FADES: u64 = 16;
/// Counts are kept in parts of a GPU.
const UNIT: u64 = 1 << 10;
/// Beyond so many GPUs of a size more of them say nothing new.
const MOST: u64 = UNIT << 20;
/// As many GPUs of each size are taken to have been asked for before anything was.
const TO_BEGIN_WITH: u64 = UNIT * 16;
/// Shares are of so many.
const WHOLE: u64 = 16;

/// By how much the loss of sets of each size counts: shares of 16, or a little less.
pub type Shares = [u32; 3];

/// How many GPUs were asked for in sets of two, four and eight. The shares change only at the
/// end of a step, and in coarse parts, so that what was worked out with them holds for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    asked: [u64; 3],
    shares: Shares,
    /// The step in which it was last asked.
    step: i64,
}

impl Default for Demand {
    fn default() -> Self {
        let mut demand = Self { asked: [0; 3], shares: [0; 3], step: 0 };
        demand.weigh();
        demand
    }
}

impl Demand {
    /// A pod asks for so many GPUs at a time, in seconds.
    pub fn note(&mut self, seconds: i64, gpus: usize) {
        self.settle(seconds);
        // A set of three damages as one of two: what counts is the largest size in it.
        if let Some(at) = SIZES.iter().rposition(|size| *size <= gpus) {
            let more = UNIT.saturating_mul(gpus as u64);
            self.asked[at] = self.asked[at].saturating_add(more).min(MOST);
        }
    }

    /// Lets time pass; true if shares are other than before.
    pub fn settle(&mut self, seconds: i64) -> bool {
        let step = seconds.div_euclid(STEP_SECONDS);
        if step <= self.step {
            return false;
        }
        // After 256 steps nothing is left.
        for _ in 0..(step - self.step).min(256) {
            for asked in &mut self.asked {
                *asked -= asked.div_ceil(FADES);
            }
        }
        self.step = step;
        let before = self.shares;
        self.weigh();
        before != self.shares
    }

    fn weigh(&mut self) {
        let counts = self.asked.map(|asked| asked + TO_BEGIN_WITH);
        let sum: u64 = counts.iter().sum();
        self.shares = counts.map(|count| ((count * WHOLE + sum / 2) / sum) as u32);
    }

    /// How much each size counts now.
    #[must_use]
    pub fn shares(&self) -> Shares {
        self.shares
    }
}
