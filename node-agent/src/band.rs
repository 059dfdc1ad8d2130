//! Whether a GPU is at work, told so coarsely that it changes seldom.
//!
//! Owns the two thresholds and the time between them: work is seen at once, rest only after
//! a while, so that the pauses between the steps of a training run change nothing.

use std::time::{Duration, Instant};

use muster_api::muster::node_topology::Activity;

/// From here on a GPU is at work, in percent.
const BUSY: u32 = 10;
/// Up to here it rests, in percent.
const IDLE: u32 = 3;
/// How long it must rest to count as idle.
const QUIET: Duration = Duration::from_secs(120);

/// What is remembered of one GPU.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Band {
    activity: Activity,
    quiet_since: Option<Instant>,
}

impl Band {
    /// Takes a reading, and says what the GPU does.
    pub(crate) fn update(&mut self, percent: Option<u32>, now: Instant) -> Activity {
        match percent {
            None => *self = Self::default(),
            Some(BUSY..) => *self = Self { activity: Activity::Busy, quiet_since: None },
            Some(0..=IDLE) => {
                let since = *self.quiet_since.get_or_insert(now);
                // What was never seen at work needs no time to rest.
                if self.activity != Activity::Busy || now.duration_since(since) >= QUIET {
                    self.activity = Activity::Idle;
                }
            }
            // Between the two nothing changes.
            Some(_) => {
                self.quiet_since = None;
                if self.activity == Activity::Unknown {
                    self.activity = Activity::Idle;
                }
            }
        }
        self.activity
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Activity::{Busy, Idle, Unknown};

    #[test]
    fn work_is_seen_at_once_and_rest_after_a_while() {
        // Second, percent, what it does.
        let steps = [
            (0, Some(0), Idle),
            (1, Some(9), Idle),
            (2, Some(10), Busy),
            (3, Some(0), Busy),
            (100, Some(3), Busy),
            (101, Some(5), Busy), // the rest begins anew
            (102, Some(0), Busy),
            (221, Some(0), Busy),
            (222, Some(0), Idle),
            (223, None, Unknown),
            (224, Some(100), Busy),
        ];
        let start = Instant::now();
        let mut band = Band::default();
        for (second, percent, expected) in steps {
            let now = start + Duration::from_secs(second);
            assert_eq!(band.update(percent, now), expected, "at {second} s");
        }
    }
}
