//! Random machines, kubelet settings, pods and what happens to them, in the form that
//! the oracle reads and in the form that the predictor reads.

mod machines;
mod pods;

use serde::Serialize;

pub(crate) use machines::MachineSpec;
pub(crate) use pods::PodSpec;

use crate::rng::Rng;

/// A machine and what happens on it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Case {
    pub(crate) machine: MachineSpec,
    pub(crate) steps: Vec<Step>,
}

/// One thing that happens.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Step {
    /// A pod arrives.
    Admit(PodSpec),
    /// A pod that was admitted ends: the so-manieth, counted around.
    Remove(usize),
    /// A device falls ill or recovers: resource and device, counted around.
    Flip(usize, usize),
}

pub(crate) fn case(rng: &mut Rng) -> Case {
    let machine = machines::machine(rng);
    let count = rng.between(3, 12);
    let steps = (0..count)
        .map(|number| match rng.below(10) {
            0 => Step::Remove(rng.below(8)),
            1 => Step::Flip(rng.below(4), rng.below(8)),
            _ => Step::Admit(pods::pod(rng, &machine, number)),
        })
        .collect();
    Case { machine, steps }
}
