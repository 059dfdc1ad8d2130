//! The same facts as a NodeResourceTopology (`topology.node.k8s.io/v1alpha2`), for schedulers and
//! tools that read that.
//!
//! Owns the translation. What that kind has no place for (ids, links, health) is left out. Must never know more than the
//! NodeTopology does.

use std::collections::BTreeMap;

use muster_api::muster::NodeTopology;
use muster_api::muster::node_topology::{
    DeviceState, DeviceVia, KubeletSettings, NumaNode, NumaState, TopologyPolicy, TopologyScope,
};
use serde_json::{Value, json};

use super::node::Node;
use crate::cpulist::CpuList;

pub const KIND: &str = "NodeResourceTopology";
pub const API_VERSION: &str = "topology.node.k8s.io/v1alpha2";

/// Where the object of a node is.
pub fn path(node: &str) -> String {
    format!("/apis/{API_VERSION}/noderesourcetopologies/{node}")
}

/// The object.
pub fn object(node: &Node, topology: &NodeTopology) -> Value {
    let default = KubeletSettings::default();
    let settings = topology.kubelet.as_ref().unwrap_or(&default);
    let numa = topology.hardware.as_ref().map(|hardware| hardware.numa.as_slice());
    let numa = numa.unwrap_or_default();
    let zones: Vec<Value> = numa.iter().map(|n| zone(n, numa, topology, settings)).collect();
    json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": node.name, "ownerReferences": node.owner()},
        "attributes": attributes(settings),
        "zones": zones,
    })
}

fn attributes(settings: &KubeletSettings) -> Value {
    let manager = &settings.topology_manager;
    let policy = match manager.policy {
        TopologyPolicy::None => "none",
        TopologyPolicy::BestEffort => "best-effort",
        TopologyPolicy::Restricted => "restricted",
        TopologyPolicy::SingleNumaNode => "single-numa-node",
    };
    let scope = match manager.scope {
        TopologyScope::Container => "container",
        TopologyScope::Pod => "pod",
    };
    let max = manager.max_allowable_numa_nodes.unwrap_or(8).to_string();
    json!([
        {"name": "topologyManagerPolicy", "value": policy},
        {"name": "topologyManagerScope", "value": scope},
        {"name": "topologyManagerMaxNUMANodes", "value": max},
    ])
}

fn zone(
    node: &NumaNode,
    all: &[NumaNode],
    topology: &NodeTopology,
    settings: &KubeletSettings,
) -> Value {
    let name = |id: u32| format!("node-{id}");
    let costs = all.iter().zip(&node.distances);
    let costs: Vec<Value> =
        costs.map(|(other, cost)| json!({"name": name(other.id), "value": cost})).collect();
    let state = topology.status.numa.iter().find(|state| state.id == node.id);
    let mut amounts = natives(node, state, settings);
    for device in &topology.status.devices {
        if device.via == DeviceVia::Claim || !device.numa.contains(&node.id) {
            continue;
        }
        let amount = amounts.entry(device.resource.clone()).or_default();
        amount.capacity += 1;
        amount.allocatable += u64::from(device.state != DeviceState::Unhealthy);
        amount.available += u64::from(device.state == DeviceState::Free);
    }
    let resources: Vec<Value> = amounts
        .into_iter()
        .map(|(name, amount)| {
            json!({
                "name": name,
                "capacity": amount.capacity.to_string(),
                "allocatable": amount.allocatable.to_string(),
                "available": amount.available.to_string(),
            })
        })
        .collect();
    let mut zone = json!({"name": name(node.id), "type": "Node", "resources": resources});
    if !costs.is_empty() {
        zone["costs"] = Value::Array(costs);
    }
    zone
}

#[derive(Default)]
struct Amount {
    capacity: u64,
    allocatable: u64,
    available: u64,
}

/// CPUs, memory and hugepages. What no manager gives away by NUMA node counts as available.
fn natives(
    node: &NumaNode,
    state: Option<&NumaState>,
    settings: &KubeletSettings,
) -> BTreeMap<String, Amount> {
    let count = |text: &str| u64::from(text.parse::<CpuList>().unwrap_or_default().count());
    let cpus = count(&node.cpus);
    let reserved = settings.cpu_manager.reserved_cpus.as_deref().unwrap_or_default();
    let reserved: std::collections::BTreeSet<u32> =
        reserved.parse::<CpuList>().unwrap_or_default().iter().collect();
    let own = node.cpus.parse::<CpuList>().unwrap_or_default();
    let usable = own.iter().filter(|cpu| !reserved.contains(cpu)).count() as u64;
    let free = match state {
        Some(state) if settings.cpu_manager.is_static => count(&state.cpus_free),
        _ => usable,
    };
    let mut amounts = BTreeMap::new();
    if cpus > 0 {
        let cpu = Amount { capacity: cpus, allocatable: usable, available: free };
        amounts.insert("cpu".to_owned(), cpu);
    }
    let reserved = |resource: &str| -> u64 {
        let entries = settings.memory_manager.reserved.iter();
        let entries = entries.filter(|r| r.numa == node.id && r.resource == resource);
        entries.map(|r| r.bytes).sum()
    };
    if node.memory_bytes > 0 {
        let allocatable = node.memory_bytes.saturating_sub(reserved("memory"));
        let free = state.and_then(|state| state.memory_free_bytes);
        let available = free.unwrap_or(allocatable);
        let memory = Amount { capacity: node.memory_bytes, allocatable, available };
        amounts.insert("memory".to_owned(), memory);
    }
    for pages in node.hugepages.iter().filter(|pages| pages.count > 0) {
        let name = format!("hugepages-{}", size(pages.page_bytes));
        let capacity = pages.page_bytes.saturating_mul(pages.count);
        let allocatable = capacity.saturating_sub(reserved(&name));
        let free = state.into_iter().flat_map(|state| &state.hugepages_free);
        let free = free.filter(|free| free.page_bytes == pages.page_bytes);
        let available = free.map(|free| free.free_bytes).next().unwrap_or(allocatable);
        amounts.insert(name, Amount { capacity, allocatable, available });
    }
    amounts
}

/// A size of pages as Kubernetes writes it.
fn size(bytes: u64) -> String {
    for (unit, name) in [(1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")] {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return format!("{}{name}", bytes / unit);
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use muster_api::muster::node_topology::{
        CpuManager, Device, Hardware, Hugepages, NodeTopologyStatus, TopologyManager,
    };

    use super::*;

    fn topology() -> NodeTopology {
        let node = |id: u32, cpus: &str| NumaNode {
            id,
            cpus: cpus.to_owned(),
            memory_bytes: 1 << 30,
            hugepages: vec![Hugepages { page_bytes: 2 << 20, count: 4 }],
            distances: vec![10, 21],
            ..NumaNode::default()
        };
        let device = |id: &str, state| Device {
            resource: "nvidia.com/gpu".to_owned(),
            id: id.to_owned(),
            numa: vec![0],
            state,
            ..Device::default()
        };
        let states = [DeviceState::Free, DeviceState::Allocated, DeviceState::Unhealthy];
        NodeTopology {
            hardware: Some(Hardware {
                numa: vec![node(0, "0-3"), node(2, "4-7")],
                ..Hardware::default()
            }),
            kubelet: Some(KubeletSettings {
                topology_manager: TopologyManager {
                    policy: TopologyPolicy::Restricted,
                    ..TopologyManager::default()
                },
                cpu_manager: CpuManager {
                    is_static: true,
                    reserved_cpus: Some("0".to_owned()),
                    ..CpuManager::default()
                },
                ..KubeletSettings::default()
            }),
            status: NodeTopologyStatus {
                numa: vec![NumaState {
                    id: 0,
                    cpus_free: "2-3".to_owned(),
                    ..NumaState::default()
                }],
                devices: states.into_iter().map(|s| device(&format!("{s:?}"), s)).collect(),
                ..NodeTopologyStatus::default()
            },
            ..NodeTopology::default()
        }
    }

    #[test]
    fn a_zone_has_what_its_numa_node_has() {
        let node = Node { name: "n".to_owned(), uid: "u".to_owned(), ..Node::default() };
        let object = object(&node, &topology());
        let words = |zone: &Value| {
            let resources = zone["resources"].as_array().unwrap().iter();
            let words = resources.map(|r| {
                let text = |field: &str| r[field].as_str().unwrap().to_owned();
                let numbers = [text("capacity"), text("allocatable"), text("available")];
                format!("{}={}", text("name"), numbers.join("/"))
            });
            words.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            words(&object["zones"][0]),
            "cpu=4/3/2 hugepages-2Mi=8388608/8388608/8388608 \
             memory=1073741824/1073741824/1073741824 nvidia.com/gpu=3/2/1"
        );
        assert_eq!(object["zones"][1]["name"], "node-2");
        assert_eq!(object["zones"][1]["costs"][1], json!({"name": "node-2", "value": 21}));
        assert_eq!(object["attributes"][0]["value"], "restricted");
        assert_eq!(object["attributes"][2]["value"], "8");
    }

    #[test]
    fn sizes_are_written_as_kubernetes_does() {
        for (bytes, expected) in [(2 << 20, "2Mi"), (1 << 30, "1Gi"), (64 << 10, "64Ki"), (7, "7")]
        {
            assert_eq!(size(bytes), expected);
        }
    }
}
