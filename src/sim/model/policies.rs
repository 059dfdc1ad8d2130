//! Disruption budgets, priority classes, scheduling policies and topologies in the store.
//!
//! Owns their versions, and what they change at once: the disruption controller's
//! status, and the priority that a pod gets at admission. Both are there from the
//! beginning and stay; scheduling policies and topologies come and go.

use std::sync::Arc;

use muster_api::k8s::{ObjectMeta, Pod, PriorityClass};
use muster_api::muster::{ClusterTopology, NodeTopology, SchedulingPolicy};
use muster_core::io::{Kind, Object, Tick};

use super::api::{Api, Notice, timestamp};
use super::budget::{Budget, StoredBudget};

impl Api {
    pub(crate) fn add_budget(&mut self, spec: Budget) {
        self.budgets.push(StoredBudget { spec, ..StoredBudget::default() });
        self.tell_budget(self.budgets.len() - 1);
    }

    pub(crate) fn budgets(&self) -> &[StoredBudget] {
        &self.budgets
    }

    /// A budget was written: a new version, and every watch hears of it.
    pub(super) fn tell_budget(&mut self, index: usize) {
        let version = self.next_revision();
        let object = Object::PodDisruptionBudget(self.budgets[index].object(index, version));
        self.tell(Notice::Object { object: Arc::new(object), deleted: false, broken: false });
    }

    /// All objects of such a kind.
    pub(crate) fn objects(&self, kind: Kind) -> impl Iterator<Item = Arc<Object>> + '_ {
        let version = self.revision().to_string();
        let budgets = self.budgets.iter().enumerate().map(move |(index, budget)| {
            Arc::new(Object::PodDisruptionBudget(budget.object(index, version.clone())))
        });
        let others = self.classes.iter().cloned().chain(self.group_objects());
        let policies = self.policies.values();
        let policies = policies.map(|p| Arc::new(Object::SchedulingPolicy(p.clone())));
        let topologies = self.topologies.values();
        let topologies = topologies.map(|t| Arc::new(Object::ClusterTopology(t.clone())));
        let others = others.chain(policies).chain(topologies).chain(self.reports.values().cloned());
        budgets.chain(others).filter(move |object| object.kind() == kind)
    }

    /// The disruption controller looks at every budget.
    pub(crate) fn reconcile_budgets(&mut self, now: Tick) {
        for index in 0..self.budgets.len() {
            let mut budget = std::mem::take(&mut self.budgets[index]);
            let before = budget.status.clone();
            budget.reconcile(now, self.pods().map(|(_, stored)| &*stored.object), None);
            let changed = budget.status != before;
            self.budgets[index] = budget;
            if changed {
                self.tell_budget(index);
            }
        }
    }

    pub(crate) fn add_class(&mut self, mut class: PriorityClass) {
        class.metadata.resource_version = self.next_revision();
        let object = Arc::new(Object::PriorityClass(class));
        self.classes.push(Arc::clone(&object));
        self.tell(Notice::Object { object, deleted: false, broken: false });
    }

    /// Whether any policy speaks of preemption.
    pub(crate) fn preemption_is_restrained(&self) -> bool {
        self.policies.values().any(|policy| policy.spec.preemption.is_some())
    }

    /// Somebody creates a scheduling policy, or changes it.
    pub(crate) fn put_policy(&mut self, now: Tick, mut policy: SchedulingPolicy) {
        let name = policy.metadata.name.clone();
        let before = self.policies.get(&name).map(|before| before.metadata.clone());
        policy.metadata = self.written(now, before.as_ref().unwrap_or(&policy.metadata));
        self.policies.insert(name, policy.clone());
        let object = Arc::new(Object::SchedulingPolicy(policy));
        self.tell(Notice::Object { object, deleted: false, broken: false });
    }

    /// Metadata after a write of the spec.
    fn written(&mut self, now: Tick, before: &ObjectMeta) -> ObjectMeta {
        let (mut meta, version) = (before.clone(), self.next_revision());
        if meta.uid.is_empty() {
            meta.uid = format!("policy-{version}");
            meta.creation_timestamp = Some(timestamp(now));
        }
        meta.generation = Some(meta.generation.unwrap_or(0) + 1);
        meta.resource_version = version;
        meta
    }

    /// Somebody creates a topology, or changes it.
    pub(crate) fn put_topology(&mut self, now: Tick, mut topology: ClusterTopology) {
        let name = topology.metadata.name.clone();
        let before = self.topologies.get(&name).map(|before| before.metadata.clone());
        topology.metadata = self.written(now, before.as_ref().unwrap_or(&topology.metadata));
        self.topologies.insert(name, topology.clone());
        let object = Arc::new(Object::ClusterTopology(topology));
        self.tell(Notice::Object { object, deleted: false, broken: false });
    }

    /// An agent says what a node is inside.
    pub(crate) fn put_report(&mut self, mut report: NodeTopology) {
        report.metadata.resource_version = self.next_revision();
        let name = report.metadata.name.clone();
        let object = Arc::new(Object::NodeTopology(report));
        self.reports.insert(name, Arc::clone(&object));
        self.tell(Notice::Object { object, deleted: false, broken: false });
    }

    /// A node is gone, and with it what was said of it.
    pub(crate) fn delete_report(&mut self, node: &str) {
        let Some(object) = self.reports.remove(node) else { return };
        if let Object::NodeTopology(report) = &*object {
            let mut report = report.clone();
            report.metadata.resource_version = self.next_revision();
            let object = Arc::new(Object::NodeTopology(report));
            self.tell(Notice::Object { object, deleted: true, broken: false });
        }
    }

    /// Somebody deletes a topology.
    pub(crate) fn delete_topology(&mut self, name: &str) {
        let Some(mut topology) = self.topologies.remove(name) else {
            return;
        };
        topology.metadata.resource_version = self.next_revision();
        let object = Arc::new(Object::ClusterTopology(topology));
        self.tell(Notice::Object { object, deleted: true, broken: false });
    }

    /// The labels that nodes in one domain of a level share; none if nobody knows the level.
    pub(crate) fn level<'a>(&'a self, name: &'a str) -> Option<Vec<&'a str>> {
        let found = self.topologies.values().find_map(|topology| {
            let levels = &topology.spec.levels;
            let at = levels.iter().position(|level| level.name == name)?;
            Some(levels[..=at].iter().map(|level| level.node_label.as_str()).collect())
        });
        let labelled = || self.nodes().any(|node| node.metadata.labels.contains_key(name));
        found.or_else(|| (name.contains('/') || labelled()).then(|| vec![name]))
    }

    /// Whether a policy speaks of topology.
    pub(crate) fn policies_speak_of_topology(&self) -> bool {
        self.policies.values().any(|policy| policy.spec.topology.is_some())
    }

    /// Somebody deletes a scheduling policy.
    pub(crate) fn delete_policy(&mut self, name: &str) {
        let Some(mut policy) = self.policies.remove(name) else {
            return;
        };
        policy.metadata.resource_version = self.next_revision();
        let object = Arc::new(Object::SchedulingPolicy(policy));
        self.tell(Notice::Object { object, deleted: true, broken: false });
    }

    /// Writes such an object anew, as it is.
    pub(super) fn touch_object(&mut self, object: &Object) {
        let meta = object.metadata();
        if let Object::PriorityClass(class) = object {
            let mut class = class.clone();
            class.metadata.resource_version = self.next_revision();
            let object = Arc::new(Object::PriorityClass(class));
            return self.tell(Notice::Object { object, deleted: false, broken: false });
        }
        if let Object::PodGroup(_) = object {
            return self.touch_group(meta);
        }
        if let Object::SchedulingPolicy(_) = object {
            let version = self.next_revision();
            let Some(policy) = self.policies.get_mut(&meta.name) else {
                return;
            };
            policy.metadata.resource_version = version;
            let object = Arc::new(Object::SchedulingPolicy(policy.clone()));
            return self.tell(Notice::Object { object, deleted: false, broken: false });
        }
        if let Object::NodeTopology(_) = object {
            if let Some(Object::NodeTopology(own)) = self.reports.get(&meta.name).map(|own| &**own)
            {
                let own = own.clone();
                self.put_report(own);
            }
            return;
        }
        if let Object::ClusterTopology(_) = object {
            let version = self.next_revision();
            let Some(topology) = self.topologies.get_mut(&meta.name) else {
                return;
            };
            topology.metadata.resource_version = version;
            let object = Arc::new(Object::ClusterTopology(topology.clone()));
            return self.tell(Notice::Object { object, deleted: false, broken: false });
        }
        let same =
            |b: &StoredBudget| (&b.spec.namespace, &b.spec.name) == (&meta.namespace, &meta.name);
        if let Some(index) = self.budgets.iter().position(same) {
            self.tell_budget(index);
        }
    }

    /// Admission: a pod that names a class gets its priority and policy.
    pub(super) fn admit(&self, pod: &mut Pod) {
        let spec = &mut pod.spec;
        let named = self.classes.iter().find_map(|object| match &**object {
            Object::PriorityClass(class) if class.metadata.name == spec.priority_class_name => {
                Some(class)
            }
            _ => None,
        });
        if let Some(class) = named {
            spec.priority = Some(class.value);
            if spec.preemption_policy.is_none() {
                spec.preemption_policy.clone_from(&class.preemption_policy);
            }
        }
    }
}
