//! One run over many states: made in batches, asked of both sides at the same
//! time, compared. Owns the order of things; what a state is and what counts as
//! a disagreement come from the test.

use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use muster::explain::explain_objects;
use serde_json::Value;

use crate::binary::say;
use crate::compare::Difference;
use crate::driver::{Oracle, question};
use crate::failures::Failures;
use crate::generate::State;
use crate::rng::Rng;

const BATCH: usize = 250;

/// What one test compares.
pub(crate) struct Run<'a> {
    pub(crate) seed: u64,
    /// Tells the states of this test from those of others with the same seed.
    pub(crate) turn: u32,
    /// The numbers of the states to compare.
    pub(crate) numbers: &'a [usize],
    /// What they are called.
    pub(crate) what: &'a str,
    pub(crate) make: &'a dyn Fn(&mut Rng) -> State,
    pub(crate) judge: &'a dyn Fn(&State, &Value, &Value) -> Vec<Difference>,
}

impl Run<'_> {
    /// Compares all states, shows each with the oracle's answer to `see`, then
    /// `report`s, and only then fails if there was a disagreement.
    pub(crate) fn compare<T>(
        &self,
        mut sight: T,
        see: impl Fn(&mut T, &State, &Value),
        report: impl FnOnce(&T),
    ) -> Result<T> {
        let mut oracle = Oracle::start()?;
        let begin = Instant::now();
        let seed = self.seed.rotate_left(self.turn);
        let mut failures = Failures::default();
        for batch in self.numbers.chunks(BATCH) {
            let made: Vec<State> = batch
                .iter()
                .map(|&number| (self.make)(&mut Rng::new(seed, number as u64)))
                .collect();
            let questions: Vec<Value> =
                batch.iter().zip(&made).map(|(number, state)| question(*number, state)).collect();
            let (theirs, ours) = thread::scope(|scope| {
                let asked = scope.spawn(|| oracle.ask(&questions));
                let ours: Vec<Result<Value>> = made.iter().map(ask_muster).collect();
                (asked.join(), ours)
            });
            let Ok(theirs) = theirs else { bail!("the thread that asks the oracle panicked") };
            for (((number, state), theirs), ours) in batch.iter().zip(made).zip(theirs?).zip(ours) {
                if let Some(error) = theirs["error"].as_str() {
                    bail!("state {number} of seed {} is no question: {error}", self.seed);
                }
                see(&mut sight, &state, &theirs);
                failures.add(*number, &state, self.differences(&state, &ours, &theirs));
            }
        }
        say(&format!(
            "compared {} {} in {:.1} s (seed {})",
            self.numbers.len(),
            self.what,
            begin.elapsed().as_secs_f64(),
            self.seed
        ));
        report(&sight);
        failures.report(self.seed, |state| {
            let theirs = oracle.ask_one(question(0, state))?;
            ensure!(theirs["error"].is_null(), "no question");
            Ok(self.differences(state, &ask_muster(state), &theirs))
        })?;
        Ok(sight)
    }

    fn differences(&self, state: &State, ours: &Result<Value>, theirs: &Value) -> Vec<Difference> {
        match ours {
            Ok(ours) => (self.judge)(state, ours, theirs),
            Err(error) => vec![Difference::failure(error)],
        }
    }
}

fn ask_muster(state: &State) -> Result<Value> {
    let pod = state.pods.first().context("no pod")?;
    explain_objects(&state.objects, pod, Some(&state.config))
}
