//! What agents say of nodes: who is tried again, and what is kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use muster_api::muster::node_topology::DeviceState;
use serde_json::{Value, json};

use super::harness::{Harness, check};
use crate::cluster::NodeView;
use crate::framework::{
    Actions, Args, Filter, Plugin, PluginArgs, Profile, Registration, Registry, Resource, State,
    Status,
};
use crate::io::{Input, Kind, Object, ObjectKey};
use crate::model::PodShape;
use crate::report::Observation;
use crate::testing::{SCHEDULER, node, pod, wire};

const NAME: &str = "FreeGpu";
const GPU: &str = "example.com/gpu";

/// Wants a free GPU.
struct FreeGpu(Arc<AtomicI64>);

impl Plugin for FreeGpu {
    fn name(&self) -> &'static str {
        NAME
    }
    fn events(&self) -> Vec<Registration> {
        vec![Registration { resource: Resource::NodeTopology, actions: Actions::ALL }]
    }
    fn is_cacheable(&self) -> bool {
        true
    }
    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }
}

impl Filter for FreeGpu {
    fn filter(&self, _: &State, _: &PodShape, node: NodeView<'_>) -> Result<(), Status> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let topology = node.topology().ok_or_else(|| Status::unschedulable("not reported"))?;
        let mut devices = topology.devices_of(GPU).iter();
        if devices.any(|device| device.state == DeviceState::Free) {
            return Ok(());
        }
        Err(Status::unschedulable("no free GPU"))
    }
}

fn harness() -> (Harness, Arc<AtomicI64>) {
    let asked = Arc::new(AtomicI64::new(0));
    let shared = Arc::clone(&asked);
    let registry =
        Registry::in_tree().plugin(NAME, move |_: &Args<'_>| Ok(FreeGpu(Arc::clone(&shared))));
    let plugins = [("PrioritySort", 0), (NAME, 0), ("DefaultBinder", 0)];
    let profile =
        Profile::build(SCHEDULER, plugins, &PluginArgs::default(), &registry).expect("a profile");
    let mut h = Harness::with(profile);
    for name in ["n1", "n2"] {
        h.node(node(name));
    }
    (h, asked)
}

/// A report of the agent with one device.
fn report(name: &str, version: u32, state: &str) -> Object {
    let object: Value = json!({
        "metadata": {"name": name, "resourceVersion": version.to_string()},
        "status": {"sequence": version, "podSet": {"count": 0},
            "devices": [{"resource": GPU, "id": "a", "state": state}]},
    });
    Object::NodeTopology(wire(object))
}

/// A report of another agent with as many free devices.
fn foreign(name: &str, free: u32) -> Object {
    let amount = free.to_string();
    Object::NodeResourceTopology(wire(json!({
        "metadata": {"name": name},
        "zones": [{"name": "node-0", "type": "Node", "resources":
            [{"name": GPU, "capacity": "1", "allocatable": "1", "available": amount}]}],
    })))
}

fn gone(h: &mut Harness, kind: Kind, name: &str) {
    let key = ObjectKey { name: name.to_owned(), ..ObjectKey::default() };
    h.apply(Input::ObjectGone(kind, key));
}

fn free(h: &Harness, name: &str) -> Option<bool> {
    let cluster = &h.core.cluster;
    let node = cluster.node_by_name(name).expect("a node");
    let topology = cluster.view(node).topology()?;
    Some(topology.devices_of(GPU).iter().any(|device| device.state == DeviceState::Free))
}

#[test]
fn a_report_wakes_whoever_waits_for_it() {
    let (mut h, _) = harness();
    h.pod(pod("a"));
    h.run();
    assert_eq!((h.queue_of("a"), h.attempts("a")), ("unschedulable", 1));
    h.object(report("n2", 1, "Allocated"));
    h.sleep(20);
    h.run();
    assert_eq!((h.queue_of("a"), h.attempts("a")), ("unschedulable", 2));
    // What was kept of n2 is not what it is now.
    h.object(report("n2", 2, "Free"));
    h.sleep(20);
    check(h.run_binds(), "bind default/a -> n2");
}

#[test]
fn what_decisions_do_not_read_wakes_nobody() {
    let (mut h, asked) = harness();
    h.object(report("n1", 1, "Allocated"));
    h.pod(pod("a"));
    h.run();
    let attempts = h.attempts("a");
    asked.store(0, Ordering::Relaxed);
    for version in 2..50 {
        h.object(report("n1", version, "Allocated"));
    }
    h.sleep(20);
    h.run();
    assert_eq!((h.attempts("a"), asked.load(Ordering::Relaxed)), (attempts, 0));
    let report = h.core.cluster.node_topologies().report("n1").expect("a report");
    assert_eq!(report.sequence, 49);
}

#[test]
fn a_report_may_come_before_its_node_and_outlive_it() {
    let (mut h, _) = harness();
    h.object(report("n3", 1, "Free"));
    h.node(node("n3"));
    assert_eq!(free(&h, "n3"), Some(true));
    h.node_gone("n3");
    h.node(node("n4"));
    assert_eq!(free(&h, "n4"), None, "n4 has the row that n3 had");
    h.node(node("n3"));
    assert_eq!(free(&h, "n3"), Some(true));
    gone(&mut h, Kind::NodeTopology, "n3");
    assert_eq!(free(&h, "n3"), None);
}

#[test]
fn a_report_that_contradicts_itself_is_told_of_and_skipped() {
    let (mut h, _) = harness();
    h.object(report("n1", 1, "Free"));
    let wrong = |version: &str| {
        json!({"metadata": {"name": "n1", "resourceVersion": version},
            "hardware": {"links": [{"a": 0, "b": 1}]}})
    };
    h.object(Object::NodeTopology(wire(wrong("2"))));
    assert_eq!(free(&h, "n1"), Some(true), "what was before stays");
    let told = h.core.take_observations();
    let told = told.iter().find_map(|observation| match observation {
        Observation::Malformed { kind, error } => Some((*kind, error.clone())),
        _ => None,
    });
    let (kind, error) = told.expect("a word of it");
    assert_eq!(kind, "NodeTopology");
    assert!(error.contains("NodeTopology n1") && error.contains("hardware.links"), "{error}");
    // A list that shows it so does not end what was known before.
    h.relist(Kind::NodeTopology, |h| h.object(Object::NodeTopology(wire(wrong("3")))));
    assert_eq!(free(&h, "n1"), Some(true));
    h.relist(Kind::NodeTopology, |_| {});
    assert_eq!(free(&h, "n1"), None);
}

#[test]
fn the_agent_knows_better_than_a_resource_topology() {
    let (mut h, _) = harness();
    h.object(foreign("n1", 1));
    assert_eq!(free(&h, "n1"), Some(true));
    h.object(report("n1", 1, "Allocated"));
    assert_eq!(free(&h, "n1"), Some(false));
    h.object(foreign("n1", 1));
    assert_eq!(free(&h, "n1"), Some(false));
    h.relist(Kind::NodeTopology, |_| {});
    assert_eq!(free(&h, "n1"), Some(true), "it is all there is");
    h.object(foreign("n1", 0));
    assert_eq!(free(&h, "n1"), Some(false));
    gone(&mut h, Kind::NodeResourceTopology, "n1");
    assert_eq!(free(&h, "n1"), None);
}
