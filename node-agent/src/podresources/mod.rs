//! What the kubelet says that pods hold, and what they may get.
//!
//! Owns: the client of the podresources API and its answers in our own words. Must never trust an
//! answer's size, ids or order, never panic over one, and never ask twice for one reading: the
//! kubelet's rate limit is shared with everybody on the node.

pub mod grpc;
pub mod proto;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::cpulist::{self, CpuList};
use grpc::Connection;
pub use grpc::Error;

/// Where the socket is, below the kubelet's directory.
pub const SOCKET: &str = "pod-resources/kubelet.sock";
/// Most pods that are taken from an answer: a kubelet has 110 unless told otherwise.
pub const MAX_PODS: usize = 2048;
/// Most devices that are taken from an answer.
pub const MAX_DEVICES: usize = 4096;
/// Longest name of a resource or device that is taken.
pub const MAX_NAME: usize = 512;

const LIST: &str = "/v1.PodResourcesLister/List";
const ALLOCATABLE: &str = "/v1.PodResourcesLister/GetAllocatableResources";

/// Both answers of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    pub holdings: Holdings,
    pub allocatable: Allocatable,
}

/// Asks the kubelet at `socket`. A connection of its own for each reading: a re-created socket needs
/// no further thought, and nothing is held in between.
pub async fn read(socket: &Path) -> Result<Reading, Error> {
    let mut connection = Connection::open(socket).await?;
    let list = connection.call(LIST, &proto::Empty {}).await?;
    let holdings = Holdings::read(&list);
    drop::<proto::ListResponse>(list);
    let allocatable = connection.call(ALLOCATABLE, &proto::Empty {}).await?;
    Ok(Reading { holdings, allocatable: Allocatable::read(&allocatable) })
}

/// What pods hold exclusively.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// By namespace and name. Pods that hold nothing are left out.
    pub pods: BTreeMap<(String, String), PodHolding>,
    /// Whether something was left out because there was too much of it.
    pub cut: bool,
}

/// What one pod holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodHolding {
    pub containers: BTreeMap<String, Holding>,
    /// What the pod holds as a whole.
    pub shared: Holding,
}

/// What one container, or a pod as a whole, holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    pub devices: Devices,
    pub cpus: CpuList,
    pub memory: Vec<Memory>,
    pub claims: Vec<ClaimDevice>,
}

/// NUMA nodes of devices, by resource and id; empty means that the device plugin named none.
pub type Devices = BTreeMap<(String, String), BTreeSet<u32>>;

/// Memory or hugepages out of a group of NUMA nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// `memory`, `hugepages-2Mi`, …
    pub kind: String,
    pub bytes: u64,
    pub nodes: BTreeSet<u32>,
}

/// A device that a resource claim brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimDevice {
    pub driver: String,
    pub pool: String,
    pub device: String,
}

/// What pods may get, given away or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocatable {
    /// Healthy devices.
    pub devices: Devices,
    /// Empty without a CPU manager.
    pub cpus: CpuList,
    /// Empty without a memory manager.
    pub memory: Vec<Memory>,
    /// Whether something was left out because there was too much of it.
    pub cut: bool,
}

impl Holdings {
    pub fn read(list: &proto::ListResponse) -> Self {
        let mut read = Self { cut: list.pod_resources.len() > MAX_PODS, ..Self::default() };
        let mut left = MAX_DEVICES;
        for pod in list.pod_resources.iter().take(MAX_PODS) {
            let mut holding = PodHolding {
                shared: Holding {
                    cpus: cpus(&pod.cpu_ids),
                    memory: memory(&pod.memory),
                    ..Holding::default()
                },
                ..PodHolding::default()
            };
            for container in &pod.containers {
                let held = Holding {
                    devices: devices(&container.devices, &mut left, &mut read.cut),
                    cpus: cpus(&container.cpu_ids),
                    memory: memory(&container.memory),
                    claims: claims(&container.dynamic_resources, &mut left, &mut read.cut),
                };
                if held != Holding::default() {
                    holding.containers.insert(container.name.clone(), held);
                }
            }
            if holding != PodHolding::default() {
                read.pods.insert((pod.namespace.clone(), pod.name.clone()), holding);
            }
        }
        read
    }

    /// All that is held, container by container: namespace, pod, container (empty for the pod
    /// as a whole) and what it holds.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, &str, &Holding)> {
        self.pods.iter().flat_map(|((namespace, name), pod)| {
            let whole = std::iter::once((namespace.as_str(), name.as_str(), "", &pod.shared));
            whole.chain(pod.containers.iter().map(move |(container, holding)| {
                (namespace.as_str(), name.as_str(), container.as_str(), holding)
            }))
        })
    }

    /// Every CPU that somebody holds exclusively.
    pub fn cpus(&self) -> CpuList {
        self.iter().flat_map(|(_, _, _, holding)| holding.cpus.iter()).collect()
    }
}

impl Allocatable {
    pub fn read(answer: &proto::AllocatableResponse) -> Self {
        let mut cut = false;
        let devices = devices(&answer.devices, &mut MAX_DEVICES.clone(), &mut cut);
        Self { devices, cpus: cpus(&answer.cpu_ids), memory: memory(&answer.memory), cut }
    }
}

fn devices(entries: &[proto::ContainerDevices], left: &mut usize, cut: &mut bool) -> Devices {
    let mut devices = Devices::new();
    for entry in entries {
        let nodes = nodes(entry.topology.as_ref());
        for id in &entry.device_ids {
            if *left == 0 || id.len() > MAX_NAME || entry.resource_name.len() > MAX_NAME {
                *cut = true;
                continue;
            }
            let key = (entry.resource_name.clone(), id.clone());
            let known = devices.entry(key).or_insert_with(|| {
                *left -= 1;
                BTreeSet::new()
            });
            known.extend(&nodes);
        }
    }
    devices
}

fn claims(
    entries: &[proto::DynamicResource],
    left: &mut usize,
    cut: &mut bool,
) -> Vec<ClaimDevice> {
    let mut devices = Vec::new();
    for device in entries.iter().flat_map(|claim| &claim.claim_resources) {
        if *left == 0 {
            *cut = true;
            break;
        }
        *left -= 1;
        devices.push(ClaimDevice {
            driver: device.driver_name.clone(),
            pool: device.pool_name.clone(),
            device: device.device_name.clone(),
        });
    }
    devices
}

/// Ids that no machine has are left out.
fn cpus(ids: &[i64]) -> CpuList {
    ids.iter().filter_map(|&id| u32::try_from(id).ok()).collect()
}

fn nodes(topology: Option<&proto::TopologyInfo>) -> BTreeSet<u32> {
    let nodes = topology.map(|topology| topology.nodes.as_slice()).unwrap_or_default();
    let known = nodes.iter().filter_map(|node| u32::try_from(node.id).ok());
    known.filter(|&id| id <= cpulist::MAX_ID).collect()
}

fn memory(entries: &[proto::ContainerMemory]) -> Vec<Memory> {
    let entries = entries.iter().take(MAX_DEVICES);
    entries
        .map(|entry| Memory {
            kind: entry.memory_type.chars().take(MAX_NAME).collect(),
            bytes: entry.size,
            nodes: nodes(entry.topology.as_ref()),
        })
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn topology() -> impl Strategy<Value = Option<proto::TopologyInfo>> {
        let node = prop_oneof![0..4_i64, any::<i64>()].prop_map(|id| proto::NumaNode { id });
        let nodes = prop::collection::vec(node, 0..3);
        prop::option::of(nodes.prop_map(|nodes| proto::TopologyInfo { nodes }))
    }

    fn device_entries() -> impl Strategy<Value = Vec<proto::ContainerDevices>> {
        let id = "(GPU|MIG)-[0-3]";
        let entry = ("(nvidia.com/gpu|x.y/nic)", prop::collection::vec(id, 0..3), topology());
        let entry = entry.prop_map(|(resource_name, device_ids, topology)| {
            proto::ContainerDevices { resource_name, device_ids, topology }
        });
        prop::collection::vec(entry, 0..4)
    }

    pub(crate) fn list() -> impl Strategy<Value = proto::ListResponse> {
        let id = prop_oneof![0..8_i64, any::<i64>()];
        let cpu_ids = prop::collection::vec(id, 0..4);
        let block = (any::<u64>(), topology()).prop_map(|(size, topology)| {
            proto::ContainerMemory { memory_type: "memory".to_owned(), size, topology }
        });
        let memory = prop::collection::vec(block, 0..2);
        let container = ("[ab]", device_entries(), cpu_ids, memory).prop_map(
            |(name, devices, cpu_ids, memory)| proto::ContainerResources {
                name,
                devices,
                cpu_ids,
                memory,
                dynamic_resources: Vec::new(),
            },
        );
        let pod =
            ("[pq]", prop::collection::vec(container, 0..3)).prop_map(|(name, containers)| {
                proto::PodResources {
                    name,
                    namespace: "default".to_owned(),
                    containers,
                    cpu_ids: Vec::new(),
                    memory: Vec::new(),
                }
            });
        prop::collection::vec(pod, 0..4)
            .prop_map(|pod_resources| proto::ListResponse { pod_resources })
    }

    fn gpu(id: &str, node: Option<i64>) -> proto::ContainerDevices {
        proto::ContainerDevices {
            resource_name: "nvidia.com/gpu".to_owned(),
            device_ids: vec![id.to_owned()],
            topology: node.map(|id| proto::TopologyInfo { nodes: vec![proto::NumaNode { id }] }),
        }
    }

    #[test]
    fn entries_of_one_device_are_one_device() {
        let read = Allocatable::read(&proto::AllocatableResponse {
            devices: vec![gpu("a", Some(1)), gpu("a", Some(0)), gpu("b", None), gpu("c", Some(-1))],
            cpu_ids: vec![3, 2, -1, i64::MAX],
            memory: Vec::new(),
        });
        let found: Vec<_> =
            read.devices.iter().map(|((_, id), nodes)| (id.as_str(), nodes.len())).collect();
        assert_eq!(found, [("a", 2), ("b", 0), ("c", 0)]);
        assert_eq!(read.cpus.to_string(), "2-3");
        assert!(!read.cut);
    }

    #[test]
    fn too_much_is_cut_and_said() {
        let ids = (0..=MAX_DEVICES).map(|i| i.to_string()).collect();
        let entry = proto::ContainerDevices { device_ids: ids, ..gpu("a", None) };
        let read = Allocatable::read(&proto::AllocatableResponse {
            devices: vec![entry],
            ..proto::AllocatableResponse::default()
        });
        assert_eq!((read.devices.len(), read.cut), (MAX_DEVICES, true));
    }

    #[test]
    fn pods_that_hold_nothing_are_left_out() {
        let pod = |name: &str, devices| proto::PodResources {
            name: name.to_owned(),
            namespace: "default".to_owned(),
            containers: vec![proto::ContainerResources {
                name: "main".to_owned(),
                devices,
                ..proto::ContainerResources::default()
            }],
            ..proto::PodResources::default()
        };
        let list = proto::ListResponse {
            pod_resources: vec![pod("idle", Vec::new()), pod("busy", vec![gpu("a", Some(0))])],
        };
        let read = Holdings::read(&list);
        assert_eq!(read.pods.keys().map(|(_, name)| name.as_str()).collect::<Vec<_>>(), ["busy"]);
    }

    proptest! {
        #[test]
        fn any_list_is_read_within_its_limits(list in list()) {
            let read = Holdings::read(&list);
            prop_assert!(read.pods.len() <= list.pod_resources.len());
            prop_assert!(!read.cut);
            prop_assert!(read.iter().all(|(_, _, _, holding)| holding.cpus.iter().all(|id| id <= cpulist::MAX_ID)));
        }
    }
}
