//! Pods that are on their way to a kubelet arrive in any order, and pods that are gone may have
//! been there yet when some of them did.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::FxHasher;

use super::{CpuSet, Machine, Mask, Memo, Pod, Usage};

/// Most sets of events that may have come to pass so far; beyond that the answer is no.
const MAX_SETS: usize = 128;
/// Most states in which a set of events may leave a machine.
const MAX_STATES: usize = 32;

/// What comes to pass on a machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Events<'a> {
    /// Pods that are on their way.
    pub coming: &'a [&'a Arc<Pod>],
    /// Pods that are gone, which some of those that are on their way may have met.
    pub leaving: &'a [Arc<Holding>],
    /// A pod that is not on its way yet: it meets nobody who is gone.
    pub new: Option<&'a Arc<Pod>>,
}

/// What a pod has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Holding {
    /// CPUs.
    pub cpus: CpuSet,
    /// Healthy devices: the position of the resource, NUMA nodes, and how many.
    pub devices: Vec<(usize, Option<Mask>, usize)>,
    /// Blocks of memory of one NUMA node each: positions of the node and of the resource, bytes.
    pub memory: Vec<(usize, usize, u64)>,
}

impl Holding {
    /// The state of a machine when it is given back. Of devices alike the first stay taken.
    fn given_back(&self, machine: &Machine, usage: &Usage) -> Usage {
        let mut usage = usage.clone();
        usage.shared = usage.shared.union(&self.cpus);
        for (resource, numa, count) in &self.devices {
            let devices = machine.devices.get(*resource).map(|r| r.devices.as_slice());
            let taken = usage.taken.get_mut(*resource).map(Vec::as_mut_slice);
            let all = devices.unwrap_or_default().iter().zip(taken.unwrap_or_default());
            let own =
                all.filter(|(device, taken)| device.numa == *numa && device.healthy && **taken);
            for (_, taken) in own.collect::<Vec<_>>().into_iter().rev().take(*count) {
                *taken = false;
            }
        }
        for (node, resource, bytes) in &self.memory {
            let Some(memory) = usage.memory.get_mut(*node) else { continue };
            if let Some(free) = memory.free.get_mut(*resource) {
                *free += bytes;
            }
            memory.blocks = memory.blocks.saturating_sub(1);
            if memory.blocks == 0 {
                memory.group = Mask::one(machine.nodes[*node].id);
            }
        }
        usage
    }
}

/// The states that are reached; `None` if a pod may be refused on the way.
pub(super) type Reached = Option<Arc<[Usage]>>;
/// Events with how many there are of each, in one order whoever asks. Of pods that are alike it does
/// not matter which comes first.
pub(super) type Kinds = Vec<(Event, u8)>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Event {
    Comes(Arc<Pod>),
    /// After all that leave.
    ComesLate(Arc<Pod>),
    Leaves(Arc<Holding>),
}

/// Every state of a machine after all of some events, in whatever order they come to pass and
/// whatever device each pod gets; `None` unless a kubelet admits all pods in all of it.
pub fn reached(
    memo: &Memo,
    machine: &Arc<Machine>,
    usage: &Usage,
    events: &Events<'_>,
) -> Option<Arc<[Usage]>> {
    let mut kinds: Vec<(u64, Event, u8)> = Vec::new();
    let coming = events.coming.iter().map(|pod| Event::Comes(Arc::clone(pod)));
    let leaving = events.leaving.iter().map(|holding| Event::Leaves(Arc::clone(holding)));
    let new = events.new.map(|pod| match events.leaving {
        [] => Event::Comes(Arc::clone(pod)),
        _ => Event::ComesLate(Arc::clone(pod)),
    });
    for event in coming.chain(leaving).chain(new) {
        match kinds.iter_mut().find(|(_, kind, _)| *kind == event) {
            Some((.., count)) => *count = count.saturating_add(1),
            None => kinds.push((rank(&event), event, 1)),
        }
    }
    kinds.sort_by_key(|(rank, ..)| *rank);
    let sets = kinds.iter().map(|(.., count)| usize::from(*count) + 1);
    if sets.fold(1, usize::saturating_mul) > MAX_SETS {
        return None;
    }
    let kinds: Kinds = kinds.into_iter().map(|(_, kind, count)| (kind, count)).collect();
    all(memo, machine, usage, &kinds)
}

/// The state of a machine after some pods have come in this order; `None` if one of them is
/// refused. Where chance decides, the first course is taken.
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

fn rank(event: &Event) -> u64 {
    let mut hasher = FxHasher::default();
    event.hash(&mut hasher);
    hasher.finish()
}

/// One of them comes last, whichever it is.
fn all(memo: &Memo, machine: &Arc<Machine>, usage: &Usage, kinds: &Kinds) -> Reached {
    if kinds.is_empty() {
        return Some(Arc::new([usage.clone()]));
    }
    memo.reached(machine, usage, kinds, || {
        let late = kinds.iter().any(|(event, _)| matches!(event, Event::ComesLate(_)));
        let mut states: Vec<Usage> = Vec::new();
        let mut add = |state: Usage| {
            if !states.contains(&state) {
                states.push(state);
            }
            states.len() <= MAX_STATES
        };
        for (at, (event, _)) in kinds.iter().enumerate() {
            if late && matches!(event, Event::Leaves(_)) {
                continue;
            }
            let mut before = kinds.clone();
            before[at].1 -= 1;
            before.retain(|(_, count)| *count > 0);
            for usage in all(memo, machine, usage, &before)?.iter() {
                let fits = match event {
                    Event::Leaves(holding) => add(holding.given_back(machine, usage)),
                    Event::Comes(pod) | Event::ComesLate(pod) => {
                        let prediction = memo.predict(machine, usage, pod);
                        let mut courses = prediction.admitted.iter();
                        prediction.certain() && courses.all(|c| add(c.usage(machine, usage)))
                    }
                };
                if !fits {
                    return None;
                }
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
                    let events = Events { coming: &pods, ..Events::default() };
                    let found = reached(&memo, &machine, &usage, &events);
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

    #[test]
    fn who_is_gone_may_have_been_met() {
        // Somebody had all CPUs of node 0, and another one has two GPUs of node 1.
        let machine = Arc::new(machine(Policy::Restricted));
        let memo = Memo::default();
        let mut usage = machine.unused();
        usage.shared = (16..32).collect();
        usage.taken[0][4..6].fill(true);
        let gone = Holding { cpus: (0..16).collect(), ..Holding::default() };
        let (two, four) = (Arc::new(pod(4, 2)), Arc::new(pod(4, 4)));
        let ends = |events: &Events<'_>| {
            let states = reached(&memo, &machine, &usage, events)?;
            let node = |usage: &Usage| usage.taken[0][..2].iter().filter(|taken| **taken).count();
            let mut nodes: Vec<usize> = states.iter().map(node).collect();
            nodes.sort_unstable();
            Some(nodes)
        };
        let leaving = [Arc::new(gone)];
        let met = Events { coming: &[&two], leaving: &leaving, new: None };
        assert_eq!(ends(&met), Some(vec![0, 2]), "it met the other, or it did not");
        // Whoever comes now meets nobody: after `two` on node 1 there is a place, else there is none.
        assert_eq!(ends(&Events { new: Some(&four), ..met }), None);
        let late = Events { coming: &[], leaving: &leaving, new: Some(&four) };
        assert_eq!(ends(&late), Some(vec![2]));
        assert_eq!(ends(&Events { coming: &[&four], leaving: &leaving, new: None }), None);
    }
}
