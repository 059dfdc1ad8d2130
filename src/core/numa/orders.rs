//! Pods that are on their way to a kubelet arrive in any order.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::FxHasher;

use super::{Machine, Memo, Pod, Usage};

/// Most sets of pods that may have come so far; beyond that the answer is no.
const MAX_SETS: usize = 128;
/// Most states in which a set of pods may leave a machine.
const MAX_STATES: usize = 32;

/// The states that are reached; `None` if a pod may be refused on the way.
pub(super) type Reached = Option<Arc<[Usage]>>;
/// Pods by what they ask for, with how many there are; in one order whoever asks. Of pods that are
/// alike it does not matter which comes first.
pub(super) type Kinds = Vec<(Arc<Pod>, u8)>;

/// Every state of a machine after some pods have come, in whatever order they come and whatever
/// device each of them gets; `None` unless a kubelet admits all of them in all of it.
pub fn reached(
    memo: &Memo,
    machine: &Arc<Machine>,
    usage: &Usage,
    pods: &[&Arc<Pod>],
) -> Option<Arc<[Usage]>> {
    let mut kinds: Vec<(u64, Arc<Pod>, u8)> = Vec::new();
    for &pod in pods {
        match kinds.iter_mut().find(|(_, kind, _)| *kind == *pod) {
            Some((.., count)) => *count = count.saturating_add(1),
            None => kinds.push((rank(pod), Arc::clone(pod), 1)),
        }
    }
    kinds.sort_by_key(|(rank, ..)| *rank);
    let sets = kinds.iter().map(|(.., count)| usize::from(*count) + 1);
    if sets.fold(1, usize::saturating_mul) > MAX_SETS {
        return None;
    }
    let kinds: Kinds = kinds.into_iter().map(|(_, kind, count)| (kind, count)).collect();
    after(memo, machine, usage, &kinds)
}

fn rank(pod: &Pod) -> u64 {
    let mut hasher = FxHasher::default();
    pod.hash(&mut hasher);
    hasher.finish()
}

/// One of them comes last, whichever it is.
fn after(memo: &Memo, machine: &Arc<Machine>, usage: &Usage, kinds: &Kinds) -> Reached {
    if kinds.is_empty() {
        return Some(Arc::new([usage.clone()]));
    }
    memo.reached(machine, usage, kinds, || {
        let mut states: Vec<Usage> = Vec::new();
        for (at, (pod, _)) in kinds.iter().enumerate() {
            let mut before = kinds.clone();
            before[at].1 -= 1;
            before.retain(|(_, count)| *count > 0);
            for usage in after(memo, machine, usage, &before)?.iter() {
                let prediction = memo.predict(machine, usage, pod);
                if !prediction.certain() {
                    return None;
                }
                for course in &prediction.admitted {
                    let after = course.usage(machine, usage);
                    if !states.contains(&after) {
                        states.push(after);
                    }
                }
            }
            if states.len() > MAX_STATES {
                return None;
            }
        }
        Some(states.into())
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::numa::tests::{machine, pod};
    use crate::numa::{Policy, predict};

    /// All orders one by one, and every course in each.
    fn every_order(
        machine: &Machine,
        usage: &Usage,
        pods: &[&Arc<Pod>],
    ) -> Option<BTreeSet<String>> {
        if pods.is_empty() {
            return Some(BTreeSet::from([format!("{usage:?}")]));
        }
        let mut ends = BTreeSet::new();
        for at in 0..pods.len() {
            let prediction = predict(machine, usage, pods[at]);
            let rest = [&pods[..at], &pods[at + 1..]].concat();
            if !prediction.certain() {
                return None;
            }
            for course in &prediction.admitted {
                ends.extend(every_order(machine, &course.usage(machine, usage), &rest)?);
            }
        }
        Some(ends)
    }

    #[test]
    fn it_is_every_order_and_every_course() {
        let kinds = [pod(4, 2), pod(8, 4), pod(1, 1), pod(20, 8), pod(12, 0), pod(2, 3)];
        let kinds: Vec<Arc<Pod>> = kinds.into_iter().map(Arc::new).collect();
        let mut seen = [0, 0];
        for policy in [Policy::Restricted, Policy::SingleNumaNode, Policy::BestEffort] {
            let machine = Arc::new(machine(policy));
            let memo = Memo::default();
            for taken in [0, 3, 5] {
                let mut usage = machine.unused();
                usage.taken[0][..taken].fill(true);
                for set in 0..kinds.len().pow(3) {
                    let of = |place: u32| &kinds[set / kinds.len().pow(place) % kinds.len()];
                    let pods = [of(0), of(1), of(2)];
                    let found = reached(&memo, &machine, &usage, &pods);
                    let found = found.map(|states| {
                        states.iter().map(|usage| format!("{usage:?}")).collect::<BTreeSet<_>>()
                    });
                    let expected = every_order(&machine, &usage, &pods);
                    assert_eq!(found, expected, "{policy:?}, {taken} taken: {pods:?}");
                    seen[usize::from(expected.is_some())] += 1;
                }
            }
        }
        assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
    }
}
