//! Whether a pod fits a node, worked out anew from the objects.
//!
//! Shares no code with the plugins; slow and plain on purpose.

use muster_api::k8s::{ContainerPort, Node, Pod, Taint, Toleration};

use crate::model::requests::{Amounts, amounts, pod_requests};
use crate::scenario::{GPU, SchedulerSpec};

/// A node and what is on it.
pub(super) struct Room<'a> {
    pub(super) node: &'a Node,
    pub(super) free: Amounts,
    pub(super) ports: Vec<&'a ContainerPort>,
}

impl<'a> Room<'a> {
    pub(super) fn new(node: &'a Node, pods: impl Iterator<Item = &'a Pod>) -> Self {
        let mut room = Self { node, free: amounts(&node.status.allocatable), ports: Vec::new() };
        pods.for_each(|pod| room.take(pod));
        room
    }

    /// One more pod is on it.
    pub(super) fn take(&mut self, pod: &'a Pod) {
        for (name, amount) in pod_requests(&pod.spec) {
            *self.free.entry(name).or_default() -= amount;
        }
        self.ports.extend(host_ports(pod));
    }

    /// Whether the pod fits, by the rules that the scheduler has switched on. Which GPUs kubelets
    /// would give together, and which nodes are avoided, is not known here.
    pub(super) fn fits(&self, pod: &Pod, rules: &SchedulerSpec) -> bool {
        let spec = &pod.spec;
        let by_numa = rules.with.iter().any(|(plugin, _)| plugin == "NodeNumaFit");
        if by_numa && pod_requests(spec).get(GPU).is_some_and(|gpus| *gpus > 0) {
            return false;
        }
        let tolerates = |taint: &Taint| spec.tolerations.iter().any(|t| tolerated(t, taint));
        if rules.has("NodeUnschedulable") && self.node.spec.unschedulable {
            let cordon = Taint {
                key: "node.kubernetes.io/unschedulable".to_owned(),
                effect: "NoSchedule".to_owned(),
                ..Taint::default()
            };
            if !tolerates(&cordon) {
                return false;
            }
        }
        let bars = |taint: &&Taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
        if rules.has("TaintToleration") && !self.node.spec.taints.iter().filter(bars).all(tolerates)
        {
            return false;
        }
        let labels = &self.node.metadata.labels;
        if rules.has("NodeAffinity")
            && !spec.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value))
        {
            return false;
        }
        if rules.has("NodePorts")
            && host_ports(pod).any(|wanted| self.ports.iter().any(|taken| clash(wanted, taken)))
        {
            return false;
        }
        !rules.has("NodeResourcesFit")
            || pod_requests(spec).iter().all(|(name, amount)| {
                *amount == 0 || self.free.get(name).copied().unwrap_or(0) >= *amount
            })
    }
}

fn host_ports(pod: &Pod) -> impl Iterator<Item = &ContainerPort> {
    pod.spec.containers.iter().flat_map(|c| &c.ports).filter(|port| port.host_port > 0)
}

fn clash(a: &ContainerPort, b: &ContainerPort) -> bool {
    let protocol = |p: &ContainerPort| {
        if p.protocol.is_empty() { "TCP".to_owned() } else { p.protocol.clone() }
    };
    let everywhere = |p: &ContainerPort| matches!(p.host_ip.as_str(), "" | "0.0.0.0");
    a.host_port == b.host_port
        && protocol(a) == protocol(b)
        && (everywhere(a) || everywhere(b) || a.host_ip == b.host_ip)
}

fn tolerated(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.is_empty() || toleration.effect == taint.effect;
    let key = toleration.key == taint.key;
    effect
        && match toleration.operator.as_str() {
            "Exists" => key || toleration.key.is_empty(),
            _ => key && toleration.value == taint.value,
        }
}
