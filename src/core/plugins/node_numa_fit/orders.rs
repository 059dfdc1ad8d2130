//! Pods that are on their way to a kubelet arrive in any order.

use crate::numa::{Machine, Pod, Usage, predict};

/// Most predictions for one pod on one node; beyond that it waits.
const MAX_PREDICTIONS: usize = 128;

/// Whether a kubelet admits all of some pods, in whatever order they come and whatever
/// device each of them gets.
pub(super) fn all_admitted(machine: &Machine, usage: &Usage, pods: &[&Pod]) -> bool {
    let mut left = MAX_PREDICTIONS;
    every_order(machine, usage, pods, &mut left)
}

fn every_order(machine: &Machine, usage: &Usage, pods: &[&Pod], left: &mut usize) -> bool {
    for (at, pod) in pods.iter().enumerate() {
        // Of pods that are alike it does not matter which comes first.
        if pods[..at].contains(pod) {
            continue;
        }
        let Some(fewer) = left.checked_sub(1) else { return false };
        *left = fewer;
        let prediction = predict(machine, usage, pod);
        if !prediction.certain() {
            return false;
        }
        let others: Vec<&Pod> = pods[..at].iter().chain(&pods[at + 1..]).copied().collect();
        if others.is_empty() {
            continue;
        }
        for course in &prediction.admitted {
            if !every_order(machine, &course.usage(machine, usage), &others, left) {
                return false;
            }
        }
    }
    true
}
