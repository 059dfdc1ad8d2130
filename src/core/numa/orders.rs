//! Pods that are on their way to a kubelet arrive in any order.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Machine, Memo, Pod, Usage};

/// Most predictions for one question; beyond that the answer is no.
const MAX_PREDICTIONS: usize = 256;

/// Whether a kubelet admits all of some pods, in whatever order they come and whatever
/// device each of them gets.
pub fn all_admitted(memo: &Memo, machine: &Arc<Machine>, usage: &Usage, pods: &[&Arc<Pod>]) -> bool {
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
        let to_come = rest.iter().map(|count| usize::from(*count)).sum::<usize>();
        for (at, (pod, _)) in kinds.iter().enumerate().filter(|(at, _)| rest[*at] > 0) {
            for usage in &usages {
                let Some(fewer) = left.checked_sub(1) else { return false };
                left = fewer;
                let prediction = memo.predict(machine, usage, pod);
                if !prediction.certain() {
                    return false;
                }
                if to_come == 1 {
                    continue;
                }
                let mut next = rest.clone();
                next[at] -= 1;
                let reached = states.entry(next).or_default();
                for course in &prediction.admitted {
                    let after = course.usage(machine, usage);
                    if !reached.contains(&after) {
                        reached.push(after);
                    }
                }
            }
        }
    }
    true
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
