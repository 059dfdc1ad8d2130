//! The status of topologies: what is written, when; and the domains of groups.

use std::collections::BTreeMap;

use muster_api::muster::ClusterTopology;
use proptest::prelude::*;

use super::super::patch;
use super::super::topologies::TopologyWrite;
use super::*;
use crate::topology::{Census, View};

/// A controller without a cluster, and what its writes of topologies said:
/// `seconds name: level/domain nodes free/gpus, …`.
struct Ground {
    f: Fixture,
    told: Vec<String>,
}

impl Ground {
    /// Nodes `a1`, `a2` in rack `a`, `b1` in rack `b`, all in block `x`, with eight GPUs.
    fn new() -> Self {
        let mut new = Self { f: Fixture::new(), told: Vec::new() };
        for (name, rack) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
            new.node(name, "x", rack);
        }
        new.f.state.note_topology(Note::Listing, new.f.now);
        new.f.state.note_topology(Note::Listed, new.f.now);
        new
    }

    fn node(&mut self, name: &str, block: &str, rack: &str) {
        self.f.state.note_node(Note::Changed(&gpu_node(name, block, rack)), self.f.now);
    }

    fn topology(&mut self, name: &str, levels: &[&str]) {
        self.f.version += 1;
        let topology = topology(name, levels, self.f.version);
        self.f.state.note_topology(Note::Changed(&topology), self.f.now);
    }

    fn pod(&mut self, name: &str, node: &str, gpus: u32) {
        self.f.pod(&gpu_pod(name, node, gpus, ""));
    }

    /// Lets time pass; every write succeeds at once.
    fn pass(&mut self, millis: u64) -> Vec<String> {
        let end = self.f.now + Duration::from_millis(millis);
        loop {
            let due = self.f.due();
            for write in due.writes {
                self.f.version += 1;
                let outcome = Outcome::Written(self.f.version.to_string().into());
                self.f.written.push(serde_json::to_string(&write.status.domain).unwrap());
                self.f.state.settled(write, outcome, self.f.now);
            }
            for write in due.topologies {
                self.told.push(words(&write, self.f.now - self.f.begin));
                self.f.version += 1;
                let outcome = Outcome::Written(self.f.version.to_string().into());
                self.f.state.topology_settled(write, outcome, self.f.now);
            }
            match self.f.due_at() {
                Some(at) if at <= end => self.f.now = self.f.now.max(at),
                _ => break,
            }
        }
        self.f.now = end;
        std::mem::take(&mut self.told)
    }
}

fn gpu_node(name: &str, block: &str, rack: &str) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"rack": rack, "block": block}},
        "status": {"allocatable": {"nvidia.com/gpu": "8"}},
    }))
    .unwrap()
}

fn topology(name: &str, levels: &[&str], version: u64) -> ClusterTopology {
    let level = |key: &&str| json!({"name": key, "nodeLabel": key});
    let levels: Vec<_> = levels.iter().map(level).collect();
    serde_json::from_value(json!({
        "metadata": {"name": name, "uid": format!("uid-{name}"), "generation": 1,
            "resourceVersion": version.to_string()},
        "spec": {"levels": levels},
    }))
    .unwrap()
}

fn gpu_pod(name: &str, node: &str, gpus: u32, group: &str) -> Pod {
    let labels = if group.is_empty() { json!({}) } else { json!({"muster.dev/pod-group": group}) };
    serde_json::from_value(json!({
        "metadata": {"namespace": "team", "name": name, "uid": format!("uid-{name}"),
            "creationTimestamp": "2026-11-16T10:00:00Z", "labels": labels},
        "spec": {"nodeName": node, "containers": [{"name": "main", "resources":
            {"requests": {"nvidia.com/gpu": gpus.to_string()}}}]},
        "status": {"phase": "Running"},
    }))
    .unwrap()
}

fn words(write: &TopologyWrite, at: Duration) -> String {
    let domain = |d: &muster_api::muster::DomainStatus| {
        format!("{}/{} {} {}/{}", d.level, d.name, d.nodes, d.free_gpus, d.gpus)
    };
    let domains: Vec<String> = write.status.domains.iter().map(domain).collect();
    let accepted = &write.status.conditions[0];
    assert_eq!((&*accepted.kind, &*accepted.status), ("Accepted", "True"));
    let more = if accepted.message.is_empty() { "" } else { " " };
    format!(
        "{:.1} {}: {}{more}{}",
        at.as_secs_f64(),
        write.name,
        domains.join(", "),
        accepted.message
    )
}

#[test]
fn a_topology_is_counted_at_once_and_then_at_a_pace() {
    let mut g = Ground::new();
    g.pod("p0", "a1", 8);
    g.topology("fabric", &["block", "rack"]);
    let first = "0.1 fabric: block/x 3 16/24, rack/a 2 8/16, rack/b 1 8/8";
    assert_eq!(g.pass(1_000), [first]);
    assert!(g.pass(60_000).is_empty(), "nothing has changed");
    // Counts after a silence are told at once, then ever later; every pod costs a note.
    let mut all = Vec::new();
    for i in 0..300 {
        g.pod(&format!("q{i}"), "b1", 1 + (i * i % 3) as u32 + (i % 2) as u32);
        g.f.pod_gone(&gpu_pod(&format!("q{}", i - 2), "b1", 1, ""));
        all.extend(g.pass(1_000));
    }
    // At 0, 10, 30, 70 s and every minute from then on.
    assert_eq!(all.len(), 4 + 3, "{all:#?}");
    // A rack that appears is told at once.
    g.node("c1", "x", "c");
    let told = g.pass(1_200);
    assert_eq!(told.len(), 1);
    assert!(told[0].ends_with("rack/c 1 8/8"), "{told:?}");
}

#[test]
fn what_pods_and_nodes_do_is_followed() {
    let mut g = Ground::new();
    g.topology("fabric", &["rack"]);
    g.pass(1_000);
    let last = |g: &mut Ground| g.pass(120_000).pop().unwrap_or_default();
    // A pod on a node that is not known yet.
    g.pod("early", "c1", 5);
    assert_eq!(last(&mut g), "");
    g.node("c1", "x", "c");
    assert!(last(&mut g).ends_with("rack/a 2 16/16, rack/b 1 8/8, rack/c 1 3/8"));
    // It moves to another rack; its pod ends.
    g.node("c1", "x", "b");
    assert!(last(&mut g).ends_with("rack/a 2 16/16, rack/b 2 11/16"));
    g.f.pod_gone(&gpu_pod("early", "c1", 5, ""));
    assert!(last(&mut g).ends_with("rack/b 2 16/16"));
    // Somebody else has bound a pod twice over what there is.
    g.pod("greedy", "b1", 20);
    assert!(last(&mut g).ends_with("rack/b 2 8/16"));
    // A list without them: they are gone.
    g.f.state.note_pod(Note::Listing, Side::Live, g.f.now);
    g.f.state.note_pod(Note::Listed, Side::Live, g.f.now);
    g.f.state.note_node(Note::Listing, g.f.now);
    g.node("a1", "x", "a");
    g.f.state.note_node(Note::Listed, g.f.now);
    assert!(last(&mut g).ends_with(": rack/a 1 8/8"));
    assert_eq!(g.f.state.ground_sizes(), (2, 0, 1), "labels, pods and nodes are forgotten");
}

#[test]
fn a_level_of_two_topologies_is_that_of_the_first() {
    let mut g = Ground::new();
    g.topology("b", &["rack"]);
    g.topology("a", &["block", "rack"]);
    let told = g.pass(1_000);
    let b = told.iter().find(|t| t.contains(" b: ")).unwrap();
    assert!(b.ends_with("level rack is also one of a, which comes first"), "{b}");
}

#[test]
fn a_shard_leaves_topologies_to_others() {
    let mut g = Ground::new();
    g.f.state.see_only_a_part();
    g.topology("fabric", &["rack"]);
    assert!(g.pass(10_000).is_empty());
}

#[test]
fn a_write_that_fails_is_repeated_and_one_that_lost_a_race_is_made_anew() {
    let mut g = Ground::new();
    g.topology("fabric", &["rack"]);
    g.f.now += Duration::from_millis(200);
    let mut due = g.f.due();
    let write = due.topologies.pop().unwrap();
    let call = patch::topology(&write);
    assert!(call.path.starts_with("/apis/muster.dev/v1alpha1/clustertopologies/fabric/status?"));
    let body: serde_json::Value = serde_json::from_slice(&call.body).unwrap();
    assert_eq!(body["metadata"], json!({"uid": "uid-fabric", "resourceVersion": "1"}));
    assert!(body["status"]["domainsOmitted"].is_null());
    assert!(g.f.due().topologies.is_empty(), "one at a time");
    g.f.state.topology_settled(write, Outcome::Conflict, g.f.now);
    assert!(g.f.due().topologies.is_empty());
    g.f.now += Duration::from_millis(300);
    let write = g.f.due().topologies.pop().unwrap();
    let failures = g.f.state.topology_settled(write, Outcome::Failed("x".to_owned()), g.f.now);
    assert_eq!(failures, 2);
    assert_eq!(g.pass(10_000).len(), 1);
}

#[test]
fn a_group_says_which_domain_it_got() {
    let mut g = Ground::new();
    g.f.version += 1;
    let group: PodGroup = serde_json::from_value(json!({
        "metadata": {"namespace": "team", "name": "g", "uid": "u", "generation": 1,
            "resourceVersion": g.f.version.to_string()},
        "spec": {"minMember": 1, "topology": {"preferred": "rack"}},
    }))
    .unwrap();
    g.f.state.note_group(Note::Changed(&group), g.f.now);
    g.f.pod(&gpu_pod("m0", "a1", 8, "g"));
    g.pass(1_000);
    // Without a topology, rack is a label.
    let rack = |level: &str, key: &str, value: &str| {
        format!(r#"{{"level":"{level}","key":"{key}","value":"{value}"}}"#)
    };
    assert_eq!(g.f.take().pop().unwrap(), rack("rack", "rack", "a"));
    g.topology("fabric", &["block", "rack"]);
    g.f.pod(&gpu_pod("m1", "a2", 8, "g"));
    g.pass(60_000);
    assert_eq!(g.f.take().pop().unwrap(), rack("rack", "rack", "a"));
    // A member elsewhere: the block is what holds them all.
    g.f.pod(&gpu_pod("m2", "b1", 8, "g"));
    g.pass(60_000);
    assert_eq!(g.f.take().pop().unwrap(), rack("block", "block", "x"));
    g.node("d1", "y", "a");
    g.f.pod(&gpu_pod("m3", "d1", 8, "g"));
    g.pass(60_000);
    assert_eq!(g.f.take().pop().unwrap(), "null");
}

/// What a watch may tell.
#[derive(Clone, Debug)]
enum Told {
    Node(u8, u8, u8),
    NodeGone(u8),
    Pod(u8, u8, u32),
    PodGone(u8),
    Nodes,
    Pods,
    Topology(bool),
}

fn told() -> impl Strategy<Value = Told> {
    prop_oneof![
        6 => (0..6_u8, 0..2_u8, 0..3_u8).prop_map(|(n, block, rack)| Told::Node(n, block, rack)),
        2 => (0..6_u8).prop_map(Told::NodeGone),
        6 => (0..8_u8, 0..7_u8, 0..4_u32).prop_map(|(p, node, gpus)| Told::Pod(p, node, gpus)),
        3 => (0..8_u8).prop_map(Told::PodGone),
        1 => Just(Told::Nodes),
        1 => Just(Told::Pods),
        1 => any::<bool>().prop_map(Told::Topology),
    ]
}

proptest! {
    /// Whatever watches tell, in whatever order, the tree is that of what there is.
    #[test]
    fn a_kept_tree_equals_a_recount(all in proptest::collection::vec(told(), 1..80)) {
        let mut f = Fixture::new();
        let mut nodes: BTreeMap<String, Node> =
            (0..4).map(|i| (format!("n{i}"), node(&format!("n{i}"), false))).collect();
        let mut pods: BTreeMap<String, Pod> = BTreeMap::new();
        let mut levels = vec!["block", "rack"];
        f.state.note_topology(Note::Changed(&topology("t", &levels, 1)), f.now);
        for told in all {
            match told {
                Told::Node(n, block, rack) => {
                    let new = gpu_node(&format!("n{n}"), &format!("b{block}"), &format!("r{rack}"));
                    f.state.note_node(Note::Changed(&new), f.now);
                    nodes.insert(new.metadata.name.clone(), new);
                }
                Told::NodeGone(n) => {
                    if let Some(old) = nodes.remove(&format!("n{n}")) {
                        f.state.note_node(Note::Gone(&old), f.now);
                    }
                }
                Told::Pod(p, n, gpus) => {
                    let at = if n == 6 { String::new() } else { format!("n{n}") };
                    let new = gpu_pod(&format!("p{p}"), &at, gpus, "");
                    f.pod(&new);
                    pods.insert(new.metadata.name.clone(), new);
                }
                Told::PodGone(p) => {
                    if let Some(old) = pods.remove(&format!("p{p}")) {
                        f.pod_gone(&old);
                    }
                }
                // Half of what there was is gone, and only a list shows it.
                Told::Nodes => {
                    nodes = nodes.into_iter().step_by(2).collect();
                    f.state.note_node(Note::Listing, f.now);
                    for node in nodes.values() {
                        f.state.note_node(Note::Changed(node), f.now);
                    }
                    f.state.note_node(Note::Listed, f.now);
                }
                Told::Pods => {
                    pods = pods.into_iter().step_by(2).collect();
                    f.state.note_pod(Note::Listing, Side::Live, f.now);
                    for pod in pods.values() {
                        f.state.note_pod(Note::Changed(pod), Side::Live, f.now);
                    }
                    f.state.note_pod(Note::Listed, Side::Live, f.now);
                }
                Told::Topology(both) => {
                    levels = if both { vec!["block", "rack"] } else { vec!["rack"] };
                    f.state.note_topology(Note::Changed(&topology("t", &levels, 2)), f.now);
                }
            }
            let mut census = Census::default();
            nodes.values().for_each(|node| census.node(node));
            pods.values().for_each(|pod| census.pod(pod));
            let fresh = census.tree(topology("t", &levels, 1).spec.levels);
            let kept = f.state.tree("t").unwrap();
            prop_assert_eq!(View::of("t", kept), View::of("t", &fresh));
        }
    }
}
