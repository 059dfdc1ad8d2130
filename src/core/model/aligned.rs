//! What the kubelet's managers read of a pod.

use std::sync::Arc;

use muster_api::k8s::{self, Quantity, ResourceList};

use super::is_extended_resource;
use crate::numa::{Container, Pod, WholePod};

/// What a pod asks of the managers; `None` if no kubelet would align anything for it.
pub(crate) fn aligned(wire: &k8s::Pod) -> Option<Arc<Pod>> {
    // The API server sets it when the pod is made.
    let guaranteed = wire.status.qos_class == "Guaranteed";
    let mut all = wire.spec.init_containers.iter().chain(&wire.spec.containers);
    let some = |(name, n): (&String, &Quantity)| n.value() > 0 && is_extended_resource(name);
    let asks = |c: &k8s::Container| c.resources.requests.iter().any(some);
    (guaranteed || all.any(asks)).then(|| Arc::new(read(wire, guaranteed)))
}

fn read(wire: &k8s::Pod, guaranteed: bool) -> Pod {
    let whole = wire.spec.resources.as_ref().map(|resources| &resources.requests);
    let whole = whole.filter(|list| list.keys().any(|name| name == "cpu" || is_memory(name)));
    Pod {
        guaranteed,
        whole: whole.map(|list| WholePod {
            cpus: cpus(list),
            memory: memory(list).filter(|(_, bytes)| *bytes > 0).collect(),
        }),
        init: wire.spec.init_containers.iter().map(container).collect(),
        containers: wire.spec.containers.iter().map(container).collect(),
    }
}

fn container(wire: &k8s::Container) -> Container {
    let requests = &wire.resources.requests;
    let count = |quantity: &Quantity| u32::try_from(quantity.value()).unwrap_or(u32::MAX);
    let devices = requests.iter().filter(|(name, _)| is_extended_resource(name));
    Container {
        sidecar: wire.restart_policy.as_deref() == Some("Always"),
        cpus: cpus(requests),
        // Only read of pods with resources of their own, which are not judged where it matters.
        equal: true,
        memory: memory(requests).collect(),
        devices: devices.map(|(name, n)| (Arc::from(name.as_str()), count(n))).collect(),
    }
}

fn cpus(list: &ResourceList) -> u32 {
    let Some(quantity) = list.get("cpu") else { return 0 };
    let whole = quantity.value().saturating_mul(1000) == quantity.milli_value();
    if whole { u32::try_from(quantity.value()).unwrap_or(0) } else { 0 }
}

fn memory(list: &ResourceList) -> impl Iterator<Item = (Arc<str>, u64)> {
    let bytes = |quantity: &Quantity| u64::try_from(quantity.value()).unwrap_or(0);
    let memory = list.iter().filter(|(name, _)| is_memory(name));
    memory.map(move |(name, quantity)| (Arc::from(name.as_str()), bytes(quantity)))
}

fn is_memory(name: &str) -> bool {
    name == "memory" || name.starts_with("hugepages-")
}
