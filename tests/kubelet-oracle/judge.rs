//! Plays a case on the kubelet and holds each admission against the prediction.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use muster_core::numa::{self, Cause, Course, Prediction};

use crate::driver::{Answer, Kubelet, KubeletState};
use crate::generate::{Case, MachineSpec, PodSpec, Step};

/// Choices of hints that the kubelet goes through one by one: more take it seconds.
const MOST_CHOICES: u64 = 1_000_000;

/// What was seen in a run.
#[derive(Default)]
pub(crate) struct Seen {
    /// Pods that were judged.
    pub(crate) pods: usize,
    /// Pods for which chance decides.
    pub(crate) depends: usize,
    /// Pods for which not every course was followed.
    pub(crate) incomplete: usize,
    /// Pods that the kubelet cannot decide: it would not end, or take very long.
    pub(crate) passed_over: usize,
    /// Verdicts under each policy and scope.
    pub(crate) verdicts: BTreeMap<String, usize>,
}

impl Seen {
    pub(crate) fn add(&mut self, other: Self) {
        self.pods += other.pods;
        self.depends += other.depends;
        self.incomplete += other.incomplete;
        self.passed_over += other.passed_over;
        for (verdict, count) in other.verdicts {
            *self.verdicts.entry(verdict).or_default() += count;
        }
    }
}

/// The first disagreement in a case, if there is one.
pub(crate) fn judge(kubelet: &mut Kubelet, case: &Case, seen: &mut Seen) -> Result<Option<String>> {
    let mut machine = case.machine.clone();
    let mut state = kubelet.open(&machine)?;
    let unused = machine.model().unused();
    let found = usage(&machine, &state)?;
    if found != unused {
        return Ok(Some(format!("the empty machine: {found:?} is not {unused:?}")));
    }
    let mut alive: Vec<&str> = Vec::new();
    for (number, step) in case.steps.iter().enumerate() {
        match step {
            Step::Remove(which) => {
                if !alive.is_empty() {
                    let which = which % alive.len();
                    state = kubelet.remove(alive.remove(which))?;
                }
            }
            Step::Flip(resource, device) => {
                let resources = machine.devices.len().max(1);
                if let Some(found) = machine.devices.get_mut(resource % resources) {
                    let count = found.devices.len();
                    let device = &mut found.devices[device % count];
                    device.healthy = !device.healthy;
                    state = kubelet.report(found)?;
                }
            }
            Step::Admit(pod) => {
                let model = machine.model();
                let prediction = numa::predict(&model, &usage(&machine, &state)?, &pod.model());
                if endless(&prediction) || too_many(&model, pod) {
                    seen.passed_over += 1;
                    continue;
                }
                let answer = kubelet.admit(&pod.object())?;
                note(seen, &machine, &prediction, &answer);
                if let Some(text) = disagreement(&machine, pod, &prediction, &answer)? {
                    return Ok(Some(format!("step {number}, {}: {text}", pod.uid)));
                }
                if answer.admitted {
                    alive.push(&pod.uid);
                }
                state = answer.state.context("no state")?;
            }
        }
    }
    Ok(None)
}

fn endless(prediction: &Prediction) -> bool {
    prediction.refused.iter().any(|refusal| refusal.cause == Cause::Endless)
}

/// The kubelet tries every combination of one hint per resource.
fn too_many(machine: &numa::Machine, pod: &PodSpec) -> bool {
    let all = 1_u64 << machine.nodes.len();
    let choices = |resources: &mut dyn Iterator<Item = &&'static str>| {
        resources.fold(1_u64, |choices, name| {
            let masks = machine.devices.iter().find(|devices| &*devices.name == *name).map_or(
                all,
                |devices| {
                    let near = devices.devices.iter().filter_map(|device| device.numa);
                    let near = near.fold(0, |near, mask| near | mask.0);
                    1 << near.count_ones().min(8)
                },
            );
            choices.saturating_mul(masks)
        })
    };
    let mut names: Vec<&&'static str> = pod
        .init
        .iter()
        .chain(&pod.containers)
        .flat_map(|container| container.resources.requests.keys())
        .collect();
    names.sort_unstable();
    names.dedup();
    machine.settings.policy != numa::Policy::None && choices(&mut names.into_iter()) > MOST_CHOICES
}

fn note(seen: &mut Seen, machine: &MachineSpec, prediction: &Prediction, answer: &Answer) {
    seen.pods += 1;
    seen.incomplete += usize::from(prediction.incomplete);
    let depends = !prediction.admitted.is_empty() && !prediction.refused.is_empty();
    seen.depends += usize::from(depends);
    // Numbers are left out, so that the same words count as one.
    let words: String = answer.message.chars().filter(|c| !c.is_ascii_digit()).collect();
    let verdict = if answer.admitted { "admitted" } else { &answer.reason };
    for key in
        [format!("{verdict} {words}"), format!("{} {} {verdict}", machine.policy, machine.scope)]
    {
        *seen.verdicts.entry(key).or_default() += 1;
    }
}

/// What the kubelet did that was not predicted.
fn disagreement(
    machine: &MachineSpec,
    pod: &PodSpec,
    prediction: &Prediction,
    answer: &Answer,
) -> Result<Option<String>> {
    if prediction.incomplete {
        return Ok(None);
    }
    if !answer.admitted {
        let expected = prediction.refused.iter().any(|refusal| {
            let same = refusal.cause.reason().as_str() == answer.reason;
            // Of several resources that are used up the kubelet names any.
            let any = matches!(refusal.cause, Cause::EmptyPool { .. });
            same && (any || refusal.cause.message() == answer.message)
        });
        let text =
            format!("refused: {}: {}; predicted: {prediction:?}", answer.reason, answer.message);
        return Ok((!expected).then_some(text));
    }
    let state = answer.state.as_ref().context("no state")?;
    let now = usage(machine, state)?;
    let free = free(machine, &now);
    let matches = |course: &&Course| {
        // Reserved CPUs are never given on purpose; with an uneven number of threads per core
        // one may go with its core, and whether it is then shared is of no consequence.
        let shared = course.shared.union(&machine.model().reserved);
        shared == now.shared && course.memory == now.memory && course.free == free
    };
    let Some(course) = prediction.admitted.iter().find(matches) else {
        let given = &state.given[&pod.uid];
        return Ok(Some(format!(
            "admitted with {given:?}, then {now:?}, {free:?}; predicted: {prediction:?}"
        )));
    };
    // Where devices leave no choice, it is known who has what.
    if prediction.admitted.len() > 1 {
        return Ok(None);
    }
    for (name, expected) in pod.names().zip(&course.given) {
        let given = &state.given[&pod.uid][&name];
        let cpus: numa::CpuSet = given.cpus.iter().copied().collect();
        let memory: numa::Mask = given.memory.iter().copied().collect();
        if cpus != expected.cpus || memory != expected.memory.unwrap_or_default() {
            return Ok(Some(format!("{name} has {given:?}; predicted: {expected:?}")));
        }
    }
    Ok(None)
}

/// What is in use, as the predictor reads it.
fn usage(machine: &MachineSpec, state: &KubeletState) -> Result<numa::Usage> {
    let model = machine.model();
    let mut usage = model.unused();
    if machine.cpu_policy == "static" {
        usage.shared = state.shared.iter().flatten().copied().collect();
        usage.shared = usage.shared.union(&model.reserved);
    }
    if machine.memory_policy == "Static" {
        let nodes = state.memory.as_deref().context("no memory state")?;
        for (node, memory) in model.nodes.iter().zip(&mut usage.memory) {
            let found = nodes.iter().find(|found| found.id == node.id).context("no such node")?;
            for (name, bytes) in &node.memory {
                let reported = found.allocatable.get(&**name).copied();
                ensure!(reported == Some(*bytes), "allocatable {name}: {reported:?}, {bytes}");
            }
            memory.free = node.memory.iter().map(|(name, _)| found.free[&**name]).collect();
            memory.blocks = found.blocks;
            memory.group = found.group.iter().copied().collect();
        }
    }
    for (resource, taken) in machine.devices.iter().zip(&mut usage.taken) {
        let ids = state.taken.get(resource.resource);
        for (device, taken) in resource.devices.iter().zip(taken) {
            *taken = ids.is_some_and(|ids| ids.contains(&device.id));
        }
    }
    Ok(usage)
}

/// Free healthy devices per kind, in the order in which kinds occur.
fn free(machine: &MachineSpec, usage: &numa::Usage) -> Vec<Vec<(Option<numa::Mask>, u32)>> {
    let model = machine.model();
    let of = |(resource, taken): (&numa::DeviceResource, &Vec<bool>)| {
        let mut kinds: Vec<(Option<numa::Mask>, u32)> = Vec::new();
        for (device, taken) in resource.devices.iter().zip(taken) {
            let free = u32::from(device.healthy && !taken);
            match kinds.iter_mut().find(|(numa, _)| *numa == device.numa) {
                Some((_, count)) => *count += free,
                None => kinds.push((device.numa, free)),
            }
        }
        kinds
    };
    model.devices.iter().zip(&usage.taken).map(of).collect()
}
