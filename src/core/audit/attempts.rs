//! How often a pod failed, and how long it has to stay away.
//!
//! From outside one cannot always tell a rejection that names no plugin (counted
//! as an error) from one that does: all histories that fit what was seen are kept,
//! and a wrong is one under each of them.

use crate::Backoff;
use crate::io::Tick;

/// Counts beyond this make no difference to any sensible backoff.
const MOST: u32 = 24;

/// One history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Guess {
    rejections: u32,
    errors: u32,
    /// The last failure named no plugin: never tried early.
    is_error: bool,
}

/// What the checker saw a failure as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Something broke.
    Error,
    /// Rejected; perhaps by nobody in particular, which counts as an error.
    Rejected,
}

/// The failures of one pod.
#[derive(Clone, Debug, Default)]
pub(super) struct Attempts {
    since: Option<Tick>,
    guesses: Vec<Guess>,
}

/// When a pod may be back, under one history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Term {
    /// The last second of its backoff.
    pub(super) until: i64,
    pub(super) is_error: bool,
}

/// The count beyond which all are alike, so that few guesses remain.
fn most(backoff: Backoff) -> u32 {
    let mut most = 1;
    while most < MOST && backoff.initial_secs << (most - 1) < backoff.max_secs {
        most += 1;
    }
    most
}

impl Attempts {
    /// When it failed last.
    pub(super) fn since(&self) -> Option<Tick> {
        self.since
    }

    pub(super) fn failed(&mut self, now: Tick, failure: Failure, backoff: Backoff) {
        let most = most(backoff);
        let old = std::mem::take(&mut self.guesses);
        let old = if old.is_empty() {
            vec![Guess { rejections: 0, errors: 0, is_error: false }]
        } else {
            old
        };
        for guess in old {
            let errors = (guess.errors + 1).min(most);
            self.guesses.push(Guess { errors, is_error: true, ..guess });
            if failure == Failure::Rejected {
                let rejections = (guess.rejections + 1).min(most);
                self.guesses.push(Guess { rejections, errors: 0, is_error: false });
            }
        }
        self.guesses.sort_unstable();
        self.guesses.dedup();
        self.since = Some(now);
    }

    /// The bounds of the backoff have changed: counts that were alike under the old ones
    /// may be told apart under the new ones.
    pub(super) fn rebound(&mut self, before: Backoff, after: Backoff) {
        let (before, after) = (most(before), most(after));
        let perhaps = |count: u32| count..=if count < before { count } else { count.max(after) };
        let guesses = self.guesses.iter().flat_map(|guess| {
            perhaps(guess.rejections).flat_map(move |rejections| {
                perhaps(guess.errors).map(move |errors| Guess { rejections, errors, ..*guess })
            })
        });
        self.guesses = guesses.collect();
        self.guesses.sort_unstable();
        self.guesses.dedup();
    }

    /// Until when the pod has to stay away, under each history: `initial` doubled
    /// with every failure, at most the bound, to the end of that second.
    pub(super) fn terms(&self, backoff: Backoff) -> Vec<Term> {
        let Some(since) = self.since.filter(|_| backoff.max_secs > 0) else {
            return Vec::new();
        };
        let term = |guess: &Guess| {
            let count = if guess.errors > 0 { guess.errors } else { guess.rejections };
            let mut seconds = backoff.initial_secs;
            for _ in 1..count {
                seconds = (seconds * 2).min(backoff.max_secs);
            }
            let end = since.0 + seconds.min(backoff.max_secs) * 1_000_000;
            Term { until: end.div_euclid(1_000_000), is_error: guess.is_error }
        };
        self.guesses.iter().map(term).collect()
    }
}
