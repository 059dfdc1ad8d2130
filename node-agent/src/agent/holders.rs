//! The pods that have something to themselves: `status.pods`.
//!
//! Owns what is said of them beside devices, which name their pods. A scheduler that has placed a pod
//! looks here for its UID: from then on what is free already counts it.

use std::collections::BTreeMap;

use muster_api::muster::node_topology::{HeldMemory, MAX_HELD_BLOCKS, MAX_HOLDERS, PodHolding};

use super::pods::Pods;
use crate::cpulist::CpuList;
use crate::podresources::{self, Holdings};

/// Pods by namespace and name. Containers are not told apart. The second part is whether something
/// was left out.
pub(super) fn holders(holdings: &Holdings, pods: &Pods) -> (Vec<PodHolding>, bool) {
    let mut cut = holdings.pods.len() > MAX_HOLDERS;
    let holders = holdings.pods.iter().take(MAX_HOLDERS).map(|((namespace, name), pod)| {
        let (cpus, memory) = sum(pod);
        cut |= memory.len() > MAX_HELD_BLOCKS;
        PodHolding {
            namespace: namespace.clone(),
            name: name.clone(),
            uid: pods.uid(namespace, name).map(str::to_owned),
            cpus: cpus.to_string(),
            memory: memory.into_iter().take(MAX_HELD_BLOCKS).collect(),
        }
    });
    let holders = holders.collect();
    (holders, cut)
}

/// What all containers and the pod as a whole have, blocks of one kind and origin as one.
fn sum(pod: &podresources::PodHolding) -> (CpuList, Vec<HeldMemory>) {
    let parts = || pod.containers.values().chain([&pod.shared]);
    let cpus = parts().flat_map(|part| part.cpus.iter()).collect();
    let mut memory: BTreeMap<(&str, Vec<u32>), u64> = BTreeMap::new();
    for block in parts().flat_map(|part| &part.memory) {
        let key = (block.kind.as_str(), block.nodes.iter().copied().collect());
        let bytes = memory.entry(key).or_default();
        *bytes = bytes.saturating_add(block.bytes);
    }
    let memory = memory.into_iter().map(|((resource, numa), bytes)| HeldMemory {
        resource: resource.to_owned(),
        numa,
        bytes,
    });
    (cpus, memory.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::podresources::{Holding, Memory};

    fn holding(cpus: &str, memory: &[(&str, u64, &[u32])]) -> Holding {
        let block = |(kind, bytes, nodes): &(&str, u64, &[u32])| Memory {
            kind: (*kind).to_owned(),
            bytes: *bytes,
            nodes: nodes.iter().copied().collect(),
        };
        let memory = memory.iter().map(block).collect();
        Holding { cpus: cpus.parse().unwrap(), memory, ..Holding::default() }
    }

    #[test]
    fn containers_of_a_pod_are_one() {
        let pod = podresources::PodHolding {
            containers: [
                ("a".to_owned(), holding("4-5", &[("memory", 10, &[0]), ("memory", 5, &[0, 1])])),
                ("b".to_owned(), holding("2", &[("memory", 20, &[0])])),
            ]
            .into(),
            shared: holding("3", &[("hugepages-2Mi", 2 << 20, &[1])]),
        };
        let holdings =
            Holdings { pods: [(("team".to_owned(), "p".to_owned()), pod)].into(), cut: false };
        let mut pods = Pods::default();
        let show = |pods: &Pods| {
            let (holders, cut) = holders(&holdings, pods);
            assert!(!cut);
            let [pod] = <[_; 1]>::try_from(holders).unwrap();
            let memory =
                pod.memory.iter().map(|m| format!("{} {:?} {}", m.resource, m.numa, m.bytes));
            (pod.uid, pod.cpus, memory.collect::<Vec<_>>().join(", "))
        };
        let memory = "hugepages-2Mi [1] 2097152, memory [0] 30, memory [0, 1] 5";
        assert_eq!(show(&pods), (None, "2-5".to_owned(), memory.to_owned()));
        pods.insert("team", "p", "uid-p", None);
        assert_eq!(show(&pods).0.as_deref(), Some("uid-p"));
    }

    #[test]
    fn no_more_is_listed_than_the_object_may_hold() {
        let blocks: Vec<(&str, u64, Vec<u32>)> =
            (0..=MAX_HELD_BLOCKS as u32).map(|node| ("memory", 1, vec![node])).collect();
        let blocks: Vec<(&str, u64, &[u32])> =
            blocks.iter().map(|(kind, bytes, nodes)| (*kind, *bytes, nodes.as_slice())).collect();
        let pod = |shared| podresources::PodHolding { shared, ..Default::default() };
        let key = |i: usize| ("team".to_owned(), format!("{i:04}"));
        let greedy = Holdings { pods: [(key(0), pod(holding("", &blocks)))].into(), cut: false };
        let (one, cut) = holders(&greedy, &Pods::default());
        assert_eq!((one[0].memory.len(), cut), (MAX_HELD_BLOCKS, true));
        let many = (0..=MAX_HOLDERS).map(|i| (key(i), pod(holding("1", &[])))).collect();
        let (many, cut) = holders(&Holdings { pods: many, cut: false }, &Pods::default());
        assert_eq!((many.len(), cut), (MAX_HOLDERS, true));
    }
}
