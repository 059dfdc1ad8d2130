//! How long the writer's thread rests before it reads the next answers.
//!
//! Owns: the length of the rest. Waking up costs more than reading an answer, so with many
//! calls under way some are let gather; how long that takes depends on the server. Must never
//! hold up few calls, or rest so long that the server runs out of calls.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// With more calls than this under way, answers are read in batches.
const FEW: usize = 8;
/// Shortest and longest rest, in microseconds.
const SHORTEST: u64 = 1_000;
const LONGEST: u64 = 10_000;

/// The rest, as long as it takes until between an eighth and a half of the calls under way
/// are answered.
pub(super) struct Rest {
    micros: AtomicU64,
    answers: AtomicUsize,
}

impl Default for Rest {
    fn default() -> Self {
        Self { micros: AtomicU64::new(SHORTEST), answers: AtomicUsize::new(0) }
    }
}

impl Rest {
    /// A call was answered.
    pub(super) fn answered(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
    }

    /// How long to rest now, with so many calls under way.
    pub(super) fn next(&self, calls: usize) -> Option<Duration> {
        let answers = self.answers.swap(0, Ordering::Relaxed);
        if calls <= FEW {
            return None;
        }
        let mut micros = self.micros.load(Ordering::Relaxed);
        if answers * 8 < calls {
            micros = (micros * 2).min(LONGEST);
        } else if answers * 2 > calls {
            micros = (micros / 2).max(SHORTEST);
        }
        self.micros.store(micros, Ordering::Relaxed);
        Some(Duration::from_micros(micros))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_calls_are_not_held_up() {
        let rest = Rest::default();
        assert_eq!(rest.next(0), None);
        assert_eq!(rest.next(FEW), None);
        assert!(rest.next(FEW + 1).is_some());
    }

    #[test]
    fn the_rest_follows_the_server() {
        let rest = Rest::default();
        let with = |answers: usize| {
            (0..answers).for_each(|_| rest.answered());
            rest.next(64).expect("many calls").as_micros()
        };
        // A slow server: longer, up to a limit.
        assert_eq!([with(1), with(7), with(0), with(2), with(3)], [2000, 4000, 8000, 10000, 10000]);
        // Enough gather: as long as before.
        assert_eq!([with(8), with(32)], [10000, 10000]);
        // A fast one: shorter, down to a limit.
        assert_eq!(
            [with(33), with(60), with(60), with(60), with(60)],
            [5000, 2500, 1250, 1000, 1000]
        );
    }
}
