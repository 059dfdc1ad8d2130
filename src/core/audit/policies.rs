//! What scheduling policies say of topology, as the checker reads them.
//!
//! Owns its own reading of policies and of the labels of namespaces. Only policies that are
//! in force for certain are judged by: if two share a priority, or one weighs a plugin that may
//! not exist, nothing is said of any.

use std::collections::BTreeMap;

use muster_api::k8s;
use muster_api::muster::{SchedulingPolicySpec, TopologyDefault};

use super::topology::Asks;
use crate::io::{Kind, Object, ObjectKey};

type Labels = BTreeMap<String, String>;

/// Policies, and the labels of namespaces, with the list they were last seen in.
#[derive(Default)]
pub(super) struct Policies {
    policies: BTreeMap<String, (u64, SchedulingPolicySpec)>,
    namespaces: BTreeMap<String, (u64, Labels)>,
}

fn selects(selector: Option<&k8s::LabelSelector>, labels: &Labels) -> bool {
    selector.is_none_or(|selector| {
        selector.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
    })
}

/// Whether it may not be in force, or select others than we think.
fn is_doubtful(spec: &SchedulingPolicySpec) -> bool {
    let odd = |selector: &Option<k8s::LabelSelector>| {
        selector.as_ref().is_some_and(|selector| !selector.match_expressions.is_empty())
    };
    let topology = spec.topology.as_ref();
    let senseless = topology.is_some_and(|t| t.required == t.preferred);
    !spec.score_weights.is_empty()
        || odd(&spec.namespace_selector)
        || odd(&spec.pod_selector)
        || senseless
}

impl Policies {
    pub(super) fn upsert(&mut self, object: &Object, seen: u64) {
        match object {
            Object::SchedulingPolicy(policy) => {
                let name = policy.metadata.name.clone();
                self.policies.insert(name, (seen, policy.spec.clone()));
            }
            Object::Namespace(namespace) => {
                let meta = &namespace.metadata;
                self.namespaces.insert(meta.name.clone(), (seen, meta.labels.clone()));
            }
            _ => {}
        }
    }

    pub(super) fn remove(&mut self, kind: Kind, key: &ObjectKey) {
        match kind {
            Kind::SchedulingPolicy => drop(self.policies.remove(&key.name)),
            Kind::Namespace => drop(self.namespaces.remove(&key.name)),
            _ => {}
        }
    }

    pub(super) fn relist_done(&mut self, kind: Kind, seen: u64) {
        match kind {
            Kind::SchedulingPolicy => self.policies.retain(|_, (at, _)| *at >= seen),
            Kind::Namespace => self.namespaces.retain(|_, (at, _)| *at >= seen),
            _ => {}
        }
    }

    /// Whether any speaks of topology.
    pub(super) fn speak_of_topology(&self) -> bool {
        self.policies.values().any(|(_, spec)| spec.topology.is_some())
    }

    /// Whether any policy says where pods are to be.
    pub(super) fn have_topology(&self) -> bool {
        self.policies.values().any(|(_, spec)| spec.topology.is_some())
    }

    /// What is asked of a gang of a namespace whose members have these labels, if its group
    /// says nothing; nothing in doubt.
    pub(super) fn asks(&self, namespace: &str, members: &[&Labels]) -> Option<Asks> {
        let mut all: Vec<&SchedulingPolicySpec> =
            self.policies.values().map(|(_, spec)| spec).collect();
        all.sort_by_key(|spec| std::cmp::Reverse(spec.priority));
        let tied = all.windows(2).any(|two| two[0].priority == two[1].priority);
        if tied || all.iter().any(|spec| is_doubtful(spec)) {
            return None;
        }
        let none = Labels::new();
        let own = self.namespaces.get(namespace).map_or(&none, |(_, labels)| labels);
        let governs = |spec: &&&SchedulingPolicySpec| {
            selects(spec.namespace_selector.as_ref(), own)
                && members.iter().all(|labels| selects(spec.pod_selector.as_ref(), labels))
        };
        let spoken = all.iter().filter(|spec| spec.topology.is_some()).find(governs)?;
        Some(Asks::of(spoken.topology.as_ref().map(TopologyDefault::request).as_ref()))
    }
}
