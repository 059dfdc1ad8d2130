//! What befalls pods from outside: deletions, evictions, gates, binds by others.

use muster_api::muster::{ClusterTopology, SchedulingPolicy};
use muster_core::io::PodRef;

use crate::engine::Engine;
use crate::model::api::PodId;
use crate::model::eviction::DeleteOptions;
use crate::model::objects::round_name;
use crate::scenario::Action;

impl Engine<'_> {
    fn pod_called(&self, full_name: &str) -> Option<PodId> {
        let (namespace, name) = full_name.split_once('/')?;
        self.api.pod_named(namespace, name)
    }

    /// Something of the scenario happens to pods; a pod that is not there any more
    /// is left alone.
    pub(crate) fn befall(&mut self, action: &Action) {
        let now = self.now;
        match action {
            Action::Delete(pod) => {
                if let Some(id) = self.pod_called(pod) {
                    let _ = self.api.delete(now, id, &DeleteOptions::default());
                }
            }
            Action::Evict(pod) => {
                if let Some(id) = self.pod_called(pod) {
                    let refused = self.api.evict(now, id, &DeleteOptions::default()).is_err();
                    self.link.faults.counts.evictions[usize::from(refused)] += 1;
                }
            }
            Action::DeleteGroup(group) => {
                if let Some((namespace, name)) = group.split_once('/') {
                    self.api.delete_group(namespace, name);
                }
            }
            Action::Policy(policy) => self.api.put_policy(now, SchedulingPolicy::clone(policy)),
            Action::DeletePolicy(name) => self.api.delete_policy(name),
            Action::Topology(topology) => {
                self.api.put_topology(now, ClusterTopology::clone(topology));
            }
            Action::DeleteTopology(name) => self.api.delete_topology(name),
            Action::Ungate(workload) => self.ungate(workload),
            Action::Bind { pod, node } => {
                let Some(stored) = self.pod_called(pod).and_then(|id| self.api.pod(id)) else {
                    return;
                };
                let meta = &stored.object.metadata;
                let pod = PodRef {
                    namespace: meta.namespace.as_str().into(),
                    name: meta.name.as_str().into(),
                    uid: meta.uid.as_str().into(),
                };
                let object = std::sync::Arc::clone(&stored.object);
                let bound = self.api.bind(&pod, node, None).is_ok();
                if bound {
                    self.checker.bound_by_others(&object);
                }
                self.link.faults.counts.foreign_binds += u64::from(bound);
            }
            _ => self.link.faults.counts.node_changes += 1,
        }
    }

    fn ungate(&mut self, workload: &str) {
        let all = &self.scenario.workloads;
        let Some(found) = all.iter().find(|w| w.name == workload) else {
            return;
        };
        let gated = |name: &str| (0..found.repeat).any(|r| name.starts_with(&round_name(found, r)));
        let ids: Vec<PodId> = self
            .api
            .pods()
            .filter(|(_, pod)| gated(&pod.object.metadata.name))
            .map(|(id, _)| id)
            .collect();
        for id in ids {
            self.api.update_pod(id, |pod| pod.spec.scheduling_gates.clear());
        }
    }
}
