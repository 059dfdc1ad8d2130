//! Pods that are on their way to a kubelet arrive in any order.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Machine, Memo, Pod, Usage};

/// Most predictions for one question; beyond that the answer is no.
const MAX_PREDICTIONS: usize = 256;

/// Every state of a machine after some pods have come, in whatever order they come and whatever
/// device each of them gets; `None` unless a kubelet admits all of them in all of it.
pub fn reached(
    memo: &Memo,
    machine: &Arc<Machine>,
    usage: &Usage,
    pods: &[&Arc<Pod>],
) -> Option<Vec<Usage>> {
    // Of pods that are alike it does not matter which comes first.
    let mut kinds: Vec<(&Arc<Pod>, u8)> = Vec::new();
    for &pod in pods {
        match kinds.iter_mut().find(|(kind, _)| **kind == *pod) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => kinds.push((pod, 1)),
        }
    }
    let mut left = MAX_PREDICTIONS;
    // How many of each kind are still to come, and every state that leads to: different orders
    // mostly meet in the same ones.
    let mut states: BTreeMap<Vec<u8>, Vec<Usage>> = BTreeMap::new();
    states.insert(kinds.iter().map(|(_, count)| *count).collect(), vec![usage.clone()]);
    // Whoever has more to come is greater: nothing is reached from a smaller one.
    while let Some((rest, usages)) = states.pop_last() {
        if rest.iter().all(|count| *count == 0) {
            return Some(usages);
        }
        for (at, (pod, _)) in kinds.iter().enumerate().filter(|(at, _)| rest[*at] > 0) {
            let mut next = rest.clone();
            next[at] -= 1;
            for usage in &usages {
                left = left.checked_sub(1)?;
                let prediction = memo.predict(machine, usage, pod);
                if !prediction.certain() {
                    return None;
                }
                let reached = states.entry(next.clone()).or_default();
                for course in &prediction.admitted {
                    let after = course.usage(machine, usage);
                    if !reached.contains(&after) {
                        reached.push(after);
                    }
                }
            }
        }
    }
    None
}

/// The state after some pods have come in this order, if each is admitted. Where chance
/// decides, the first course is taken.
pub fn after(
    memo: &Memo,
    machine: &Arc<Machine>,
    usage: &Usage,
    pods: &[&Arc<Pod>],
) -> Option<Usage> {
    let mut usage = usage.clone();
    for pod in pods {
        usage = memo.predict(machine, &usage, pod).admitted.first()?.usage(machine, &usage);
    }
    Some(usage)
}
