//! Collects disagreements and reports the smallest state of each kind.

use std::collections::BTreeMap;

use anyhow::Result;

use crate::compare::Difference;
use crate::driver::question;
use crate::generate::State;
use crate::shrink::shrink;

/// Kinds of disagreement to shrink and print; more would not be read.
const SHOWN: usize = 4;

/// States on which the two sides disagree.
#[derive(Default)]
pub(crate) struct Failures {
    states: usize,
    /// The first state of each kind of disagreement, and how many there are.
    by_kind: BTreeMap<String, (usize, usize, State)>,
}

impl Failures {
    pub(crate) fn add(&mut self, number: usize, state: &State, found: Vec<Difference>) {
        self.states += usize::from(!found.is_empty());
        let mut kinds: Vec<String> = found.into_iter().map(|d| d.kind).collect();
        kinds.sort();
        kinds.dedup();
        for kind in kinds {
            let entry = self.by_kind.entry(kind).or_insert_with(|| (0, number, state.clone()));
            entry.0 += 1;
        }
    }

    /// Fails with the smallest states that still show each kind.
    pub(crate) fn report(
        &self,
        seed: u64,
        mut ask: impl FnMut(&State) -> Result<Vec<Difference>>,
    ) -> Result<()> {
        if self.states == 0 {
            return Ok(());
        }
        let mut text = format!("{} states disagree (MUSTER_ORACLE_SEED={seed})\n", self.states);
        for (kind, (count, number, _)) in &self.by_kind {
            text += &format!("  {count:6} states: {kind}, first in MUSTER_ORACLE_ONLY={number}\n");
        }
        // A message follows from the verdicts and a total from the scores.
        let derived = ["message", "total", "feasibleNodes", "evaluatedNodes"];
        let mut kinds: Vec<&String> = self.by_kind.keys().collect();
        kinds.sort_by_key(|kind| derived.contains(&kind.as_str()));
        for kind in kinds.into_iter().take(SHOWN) {
            let (_, number, state) = &self.by_kind[kind];
            let small = shrink(state, |candidate| {
                ask(candidate).is_ok_and(|found| found.iter().any(|d| &d.kind == kind))
            });
            text += &format!("\n{kind}, from state {number}:\n");
            for difference in ask(&small)?.iter().take(8) {
                text += &format!("  {}\n", difference.text);
            }
            text += &format!("{:#}\n", question(*number, &small));
        }
        panic!("{text}")
    }
}
