//! Gangs in numbers.

use serde_json::json;

use super::harness::Harness;
use crate::GangCounts;
use crate::io::Object;
use crate::report::Observation;
use crate::testing::{node, pod, wire};

/// Since when a gang is complete is counted from its last member on, and once.
#[test]
fn a_bound_gang_is_observed_once() {
    let mut h = Harness::new();
    h.node(node("n"));
    let group = json!({"metadata": {"namespace": "default", "name": "g", "uid": "g"},
        "spec": {"minMember": 2}});
    h.object(Object::PodGroup(wire(group)));
    let member = |name: &str| {
        let mut pod = pod(name);
        pod.metadata.namespace = "default".to_owned();
        pod.metadata.labels.insert("muster.dev/pod-group".to_owned(), "g".to_owned());
        pod
    };
    h.pod(member("a"));
    assert!(h.run_binds().is_empty());
    assert_eq!(h.core.gang_counts(), GangCounts { incomplete: 1, ..GangCounts::default() });
    h.sleep(10);
    h.pod(member("b"));
    assert_eq!(h.run_binds().len(), 2);
    h.sleep_millis(500);
    let mut seen = Vec::new();
    for name in ["a", "b"] {
        h.bound(name, "n");
        h.run();
        seen.extend(h.core.take_observations());
    }
    h.pod(member("c"));
    assert_eq!(h.run_binds().len(), 1);
    h.bound("c", "n");
    h.run();
    seen.extend(h.core.take_observations());
    let bound = seen.iter().filter_map(|o| match o {
        Observation::GangBound { members, since_complete_micros } => {
            Some((*members, *since_complete_micros))
        }
        _ => None,
    });
    assert_eq!(bound.collect::<Vec<_>>(), [(2, 500_000)]);
    assert_eq!(h.core.gang_counts(), GangCounts::default());
}
