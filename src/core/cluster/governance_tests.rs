//! Whom policies govern, kept change by change, equals a walk over all pods.

use std::collections::BTreeMap;

use muster_api::k8s;
use muster_api::muster::SchedulingPolicy;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::Cluster;
use crate::io::Object;
use crate::model::{LabelSet, PodId};
use crate::policy::{Policy, judge};
use crate::testing::{ClusterExt, PodExt, pod, wire};

const TEAMS: [&str; 3] = ["", "ml", "web"];

#[derive(Clone, Debug)]
enum Op {
    Add(usize, &'static str, bool),
    Relabel(usize, &'static str),
    Drop(usize),
    Namespace(usize, &'static str),
    Policy(usize, i32, Value, Value),
    Remove(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let selector = |key: &'static str| {
        select(vec![
            Value::Null,
            json!({"matchLabels": {key: "ml"}}),
            json!({"matchExpressions": [{"key": key, "operator": "DoesNotExist"}]}),
            json!({"matchExpressions": [{"key": key, "operator": "NotIn", "values": ["web"]}]}),
        ])
    };
    let team = || select(TEAMS.to_vec());
    prop_oneof![
        4 => (0..2usize, team(), any::<bool>()).prop_map(|(n, team, ours)| Op::Add(n, team, ours)),
        2 => (0..9usize, team()).prop_map(|(i, team)| Op::Relabel(i, team)),
        1 => (0..9usize).prop_map(Op::Drop),
        2 => (0..2usize, team()).prop_map(|(n, team)| Op::Namespace(n, team)),
        3 => (0..3usize, 0..3, selector("team"), selector("app"))
            .prop_map(|(i, priority, namespaces, pods)| Op::Policy(i, priority, namespaces, pods)),
        1 => (0..3usize).prop_map(Op::Remove),
    ]
}

fn labels(key: &str, team: &str) -> BTreeMap<String, String> {
    let some = (!team.is_empty()).then(|| (key.to_owned(), team.to_owned()));
    some.into_iter().collect()
}

/// What is, kept simply.
#[derive(Default)]
struct World {
    pods: Vec<(PodId, k8s::Pod)>,
    namespaces: BTreeMap<String, LabelSet>,
    policies: BTreeMap<String, SchedulingPolicy>,
}

impl World {
    fn apply(&mut self, cluster: &mut Cluster, op: Op) {
        match op {
            Op::Add(n, team, ours) => {
                let mut wire = pod("p").scheduler(if ours { "muster" } else { "x" });
                wire.metadata.namespace = format!("ns{n}");
                wire.metadata.labels = labels("app", team);
                self.pods.push((cluster.add_wire_pod(&wire), wire));
            }
            Op::Relabel(i, team) if !self.pods.is_empty() => {
                let at = i % self.pods.len();
                self.pods[at].1.metadata.labels = labels("app", team);
                cluster.regroup(self.pods[at].0, &self.pods[at].1);
            }
            Op::Drop(i) if !self.pods.is_empty() => {
                let (id, _) = self.pods.swap_remove(i % self.pods.len());
                cluster.drop_pod(id);
            }
            Op::Namespace(n, team) => {
                let (name, labels) = (format!("ns{n}"), labels("team", team));
                self.namespaces.insert(name.clone(), LabelSet::of(&labels));
                let meta = json!({"name": name, "labels": labels});
                cluster.set_related(&Object::Namespace(wire(json!({"metadata": meta}))), 0);
            }
            Op::Policy(i, priority, namespaces, pods) => {
                let name = format!("policy{i}");
                let mut spec = json!({"priority": priority});
                for (field, value) in [("namespaceSelector", namespaces), ("podSelector", pods)] {
                    if !value.is_null() {
                        spec[field] = value;
                    }
                }
                let policy: SchedulingPolicy =
                    wire(json!({"metadata": {"name": name, "uid": name}, "spec": spec}));
                cluster.set_scheduling_policy(&policy, 0);
                self.policies.insert(name, policy);
            }
            Op::Remove(i) => {
                cluster.remove_scheduling_policy(&format!("policy{i}"));
                self.policies.remove(&format!("policy{i}"));
            }
            Op::Relabel(..) | Op::Drop(_) => {}
        }
    }

    /// Names of the policies that govern a pod, by a look at all.
    fn governing(&self, pod: &k8s::Pod) -> Vec<String> {
        let all: Vec<_> = self.policies.values().map(|p| Policy::of(p).into()).collect();
        let nothing = LabelSet::default();
        let namespace = self.namespaces.get(&pod.metadata.namespace).unwrap_or(&nothing);
        let own = LabelSet::of(&pod.metadata.labels);
        let in_force = judge(all.iter(), None).in_force.into_iter();
        let governs = |p: &Policy| p.namespaces.matches(namespace) && p.pods.matches(&own);
        in_force.filter(|p| governs(p)).map(|p| p.name.to_string()).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn whom_policies_govern_is_what_a_walk_over_all_pods_finds(ops in vec(op(), 1..40)) {
        let (mut cluster, mut world) = (Cluster::default(), World::default());
        for op in ops {
            world.apply(&mut cluster, op);
            let mut counts: BTreeMap<String, u64> = BTreeMap::new();
            for (id, wire) in &world.pods {
                let group = cluster.pod(*id).expect("it is there").group;
                let named = |list: Vec<crate::report::PolicyInForce>| -> Vec<String> {
                    list.into_iter().map(|p| p.name).collect()
                };
                let expected = world.governing(wire);
                prop_assert_eq!(&named(cluster.policies_on(group)), &expected);
                prop_assert_eq!(&named(cluster.policies_for(wire)), &expected);
                if wire.spec.scheduler_name == "muster" {
                    expected.into_iter().for_each(|name| *counts.entry(name).or_default() += 1);
                }
            }
            for view in cluster.policy_views() {
                prop_assert_eq!(view.governed, counts.get(&*view.name).copied().unwrap_or(0));
            }
        }
    }
}
