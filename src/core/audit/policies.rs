//! What scheduling policies say of topology and preemption, as the checker reads them.
//!
//! Owns its own reading of policies and of the labels of namespaces. Only policies that are
//! in force for certain are judged by: if two share a priority, or one weighs a plugin that may
//! not exist, nothing is said of any.

use std::collections::BTreeMap;

use muster_api::k8s;
use muster_api::muster::{PreemptionPolicy, SchedulingPolicySpec, TopologyDefault};

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
        let mut governing = self.governing(namespace, members)?.into_iter();
        let (_, spoken) = governing.find(|(_, spec)| spec.topology.is_some())?;
        Some(Asks::of(spoken.topology.as_ref().map(TopologyDefault::request).as_ref()))
    }

    /// The policies that govern pods of a namespace with all these labels, with their names,
    /// the highest priority first; none in doubt.
    fn governing(
        &self,
        namespace: &str,
        members: &[&Labels],
    ) -> Option<Vec<(&String, &SchedulingPolicySpec)>> {
        let mut all: Vec<(&String, &SchedulingPolicySpec)> =
            self.policies.iter().map(|(name, (_, spec))| (name, spec)).collect();
        all.sort_by_key(|(_, spec)| std::cmp::Reverse(spec.priority));
        let tied = all.windows(2).any(|two| two[0].1.priority == two[1].1.priority);
        if tied || all.iter().any(|(_, spec)| is_doubtful(spec)) {
            return None;
        }
        let none = Labels::new();
        let own = self.namespaces.get(namespace).map_or(&none, |(_, labels)| labels);
        all.retain(|(_, spec)| {
            selects(spec.namespace_selector.as_ref(), own)
                && members.iter().all(|labels| selects(spec.pod_selector.as_ref(), labels))
        });
        Some(all)
    }

    /// Whether there is such a policy.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.policies.contains_key(name)
    }

    /// Whether any policy speaks of pace.
    pub(super) fn speak_of_pace(&self) -> bool {
        self.policies.values().any(|(_, spec)| spec.pacing.is_some())
    }

    /// Whether any policy speaks of preemption.
    pub(super) fn speak_of_preemption(&self) -> bool {
        self.policies.values().any(|(_, spec)| spec.preemption.is_some())
    }

    /// Whether any policy lets budgets be broken.
    pub(super) fn may_force(&self) -> bool {
        let forces = |spec: &SchedulingPolicySpec| {
            spec.preemption.as_ref().is_some_and(|own| own.force_above_priority.is_some())
        };
        self.policies.values().any(|(_, spec)| forces(spec))
    }

    /// What is said of preemption of pods with all these labels, and which policy says how
    /// many may be evicted in a minute; nothing in doubt.
    pub(super) fn preemption(
        &self,
        namespace: &str,
        members: &[&Labels],
    ) -> Option<(PreemptionPolicy, String)> {
        let (mut sum, mut rated) = (PreemptionPolicy::default(), String::new());
        for (name, spec) in self.governing(namespace, members)? {
            let Some(own) = &spec.preemption else { continue };
            if sum.victims_per_minute.is_none() && own.victims_per_minute.is_some() {
                rated.clone_from(name);
            }
            sum.mode = sum.mode.or(own.mode);
            sum.victims_per_minute = sum.victims_per_minute.or(own.victims_per_minute);
            sum.delay_seconds = sum.delay_seconds.or(own.delay_seconds);
            sum.min_runtime_seconds = sum.min_runtime_seconds.or(own.min_runtime_seconds);
            sum.min_priority_gap = sum.min_priority_gap.or(own.min_priority_gap);
        }
        Some((sum, rated))
    }
}
