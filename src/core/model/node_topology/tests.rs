//! Objects and what is made of them.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::testing::wire;

/// A node with two NUMA nodes, of which the second has number 8, and four GPUs.
fn object() -> Value {
    let gpu = |i: u32, numa: u32, switch: &str| {
        json!({
            "uuid": format!("GPU-{i}"), "pci": format!("0000:0{i}:00.0"), "numa": numa,
            "switch": switch, "minor": i, "memoryBytes": 80, "nvlinks": {"total": 18, "active": 17},
            "fabric": {"clusterUuid": "c0ffee", "clique": 7, "state": "Completed"},
        })
    };
    json!({
        "metadata": {"name": "n"},
        "hardware": {
            "hash": "fnv1a:1",
            "numa": [
                {"id": 0, "socket": 0, "cpus": "0-3,8-11", "cores": ["0,8", "1,9", "2,10", "3,11"],
                 "memoryBytes": 1000, "hugepages": [{"pageBytes": 2, "count": 50}],
                 "distances": [10, 21]},
                {"id": 8, "socket": 1, "cpus": "4-7,12-15", "cores": ["4,12", "5,13", "6,14", "7,15"],
                 "memoryBytes": 1000, "distances": [21, 10]},
            ],
            "gpus": [
                gpu(0, 0, "0000:a0:00.0"), gpu(1, 0, "0000:a0:00.0"),
                gpu(2, 8, "0000:b0:00.0"), gpu(3, 8, "0000:c0:00.0"),
            ],
            "links": [
                {"a": 0, "b": 1, "path": "PIX", "nvlinks": 18, "via": "Switch", "megabytesPerSecond": 370_800},
                {"a": 1, "b": 3, "path": "SYS", "megabytesPerSecond": 12_000},
            ],
            "nics": [{"name": "mlx5_0", "pci": "0000:0e:00.0", "numa": 8, "switch": "0000:c0:00.0",
                "rdma": true, "state": "Active", "gigabitsPerSecond": 400,
                "gpuPaths": ["SYS", "SYS", "NODE", "PIX"]}],
            "domain": {"clique": "c0ffee.7"},
        },
        "kubelet": {
            "confidence": "File", "version": "v1.36.2-gke.7",
            "topologyManager": {"policy": "Restricted", "scope": "Pod"},
            "cpuManager": {"static": true, "options": ["full-pcpus-only"], "reservedCpus": "0,8"},
            "memoryManager": {"static": true, "reserved": [
                {"numa": 8, "resource": "hugepages-2Mi", "bytes": 4},
                {"numa": 0, "resource": "memory", "bytes": 100},
            ]},
        },
        "status": {
            "sequence": 5, "observedAt": "2026-01-01T00:00:00Z",
            "podSet": {"hash": "h", "count": 2},
            "numa": [
                {"id": 0, "cpusFree": "2-3,10-11", "memoryFreeBytes": 600,
                 "memoryAllocatableBytes": 900, "memoryGroup": [0, 8], "memoryAssignments": 1,
                 "hugepagesFree": [{"pageBytes": 2, "freeBytes": 60, "allocatableBytes": 100}]},
                {"id": 8, "cpusFree": "4-7,12-15", "memoryFreeBytes": 1000,
                 "memoryAllocatableBytes": 1000},
            ],
            "devices": [
                {"resource": "nvidia.com/gpu", "id": "GPU-2", "numa": [8], "state": "Unhealthy"},
                {"resource": "nvidia.com/gpu", "id": "GPU-0::1", "numa": [0], "state": "Allocated",
                 "pod": {"namespace": "team", "name": "p", "uid": "uid-p"}, "container": "main"},
                {"resource": "example.com/nic", "id": "x", "state": "Free"},
                {"resource": "nvidia.com/gpu", "id": "GPU-3", "numa": [8], "state": "Allocated",
                 "pod": {"namespace": "team", "name": "q", "uid": "uid-a"}, "container": "main"},
            ],
            "pods": [{"namespace": "team", "name": "p", "uid": "uid-p", "cpus": "1,9", "memory": [
                {"resource": "memory", "numa": [0, 8], "bytes": 300},
                {"resource": "hugepages-2Mi", "numa": [0], "bytes": 40},
            ]}],
            "gpus": [{"health": "Healthy", "activity": "Busy", "processes": 2}, {"health": "Degraded"}],
        },
    })
}

fn compile(object: Value) -> Result<NodeTopology, String> {
    NodeTopology::compile(&wire(object), None)
}

#[test]
fn numa_nodes_are_named_by_position() {
    let topology = compile(object()).unwrap();
    let hardware = &topology.hardware;
    assert_eq!((hardware.position(0), hardware.position(8)), (Some(0), Some(1)));
    assert_eq!((hardware.position(1), hardware.all()), (None, 0b11));
    assert_eq!((hardware.threads_per_core, hardware.core_of(9), hardware.core_of(99)), (2, 1, 99));
    assert_eq!(hardware.numa[0].hugepages, [(2, 100)]);
    assert_eq!(topology.free[0].cpus.to_string(), "2-3,10-11");
    assert_eq!(topology.free[0].memory, Some(Room { allocatable: 900, free: 600 }));
    assert_eq!(topology.free[0].hugepages, [(2, Room { allocatable: 100, free: 60 })]);
    assert_eq!((topology.free[0].group, topology.free[1].group), (0b11, 0));
}

#[test]
fn devices_know_their_gpu_numa_node_and_pod() {
    let topology = compile(object()).unwrap();
    let show = |device: &Device| {
        let pod = device.pod.map(|at| &*topology.pods[usize::from(at)].uid);
        format!("{} {:b} {:?} {:?} {:?}", device.id, device.numa, device.state, device.gpu, pod)
    };
    let gpus: Vec<String> = topology.devices_of("nvidia.com/gpu").iter().map(show).collect();
    assert_eq!(
        gpus,
        [
            r#"GPU-0::1 1 Allocated Some(0) Some("uid-p")"#,
            r#"GPU-2 10 Unhealthy Some(2) None"#,
            r#"GPU-3 10 Allocated Some(3) Some("uid-a")"#,
        ]
    );
    assert_eq!(topology.devices_of("example.com/nic").len(), 1);
    assert_eq!(topology.devices_of("nvidia.com").len(), 0);
    let pod = topology.pod("uid-p").unwrap();
    assert_eq!(pod.cpus.to_string(), "1,9");
    let blocks: Vec<_> = pod.memory.iter().map(|m| (m.page_bytes, m.numa, m.bytes)).collect();
    assert_eq!(blocks, [(0, 0b11, 300), (2 << 20, 0b1, 40)]);
    // Known by its device alone.
    assert!(topology.pod("uid-a").is_some() && topology.pod("uid-z").is_none());
}

#[test]
fn gpus_have_links_switches_and_a_domain() {
    let topology = compile(object()).unwrap();
    let hardware = &topology.hardware;
    for (a, b) in [(0, 1), (1, 0)] {
        let link = hardware.link(a, b);
        assert_eq!((link.path, link.nvlinks), (PciPath::PIX, 18));
        assert_eq!(link.megabytes_per_second, 370_800);
    }
    assert_eq!(hardware.link(0, 9), GpuLink::default());
    let switches: Vec<_> = hardware.gpus.iter().map(|gpu| gpu.switch).collect();
    assert_eq!(switches, [Some(0), Some(0), Some(1), Some(2)]);
    let nic = &hardware.nics[0];
    assert_eq!((nic.switch, nic.numa, nic.active), (Some(2), Some(1), true));
    assert_eq!(hardware.gpus[0].clique.as_deref(), Some("c0ffee.7"));
    assert_eq!(hardware.nvlink_domain.as_deref(), Some("c0ffee.7"));
    assert_eq!(hardware.gpus[0].nvlinks, (18, 17));
    let health: Vec<_> = topology.gpus.iter().map(|gpu| (gpu.health, gpu.in_use)).collect();
    let unknown = (GpuHealth::Unknown, false);
    let expected = [(GpuHealth::Healthy, true), (GpuHealth::Degraded, false), unknown, unknown];
    assert_eq!(health, expected);
}

#[test]
fn the_kubelet_is_read() {
    let topology = compile(object()).unwrap();
    let kubelet = topology.kubelet.as_ref().unwrap();
    assert_eq!((kubelet.version, kubelet.max_numa_nodes), ((1, 36), 8));
    assert_eq!((kubelet.policy, kubelet.scope), (TopologyPolicy::Restricted, TopologyScope::Pod));
    assert_eq!(kubelet.reserved_memory, [(0, 0, 100), (1, 2 << 20, 4)]);
    assert_eq!(kubelet.reserved_cpus.to_string(), "0,8");
    for (text, expected) in [("v1.36.2", (1, 36)), ("1.4+", (1, 4)), ("", (0, 0)), ("v1", (0, 0))] {
        assert_eq!(compile::version(text), expected, "{text:?}");
    }
}

#[test]
fn what_no_decision_reads_makes_no_difference() {
    let before = compile(object()).unwrap();
    let mut next = object();
    next["status"]["sequence"] = json!(6);
    next["status"]["observedAt"] = json!("2026-01-02T00:00:00Z");
    next["status"]["gpus"][0]["processes"] = json!(3);
    next["status"]["gpus"][1]["reasons"] = json!(["NvlinksDown:17/18"]);
    let after = NodeTopology::compile(&wire(next.clone()), Some(&before)).unwrap();
    assert_eq!(after, before);
    assert!(Arc::ptr_eq(&after.hardware, &before.hardware));
    assert!(Arc::ptr_eq(after.kubelet.as_ref().unwrap(), before.kubelet.as_ref().unwrap()));
    next["status"]["gpus"][0]["health"] = json!("Lost");
    assert_ne!(NodeTopology::compile(&wire(next), Some(&before)).unwrap(), before);
}

#[test]
fn a_contradiction_is_named() {
    let check = |path: &str, value: Value, expected: &str| {
        let mut object = object();
        *object.pointer_mut(path).expect(path) = value;
        let error = compile(object).unwrap_err();
        assert!(error.contains(expected), "{path}: {error}");
    };
    check("/hardware/numa/1/id", json!(0), "hardware.numa: is not sorted by id, or has one twice");
    check("/hardware/numa/0/cpus", json!("0-"), "hardware.numa 0: cpus: \"0-\"");
    check("/hardware/links/0/b", json!(4), "there is no pair of GPUs 0 and 4");
    check("/kubelet/cpuManager/reservedCpus", json!("x"), "kubelet.cpuManager.reservedCpus");
    check("/status/numa/0/cpusFree", json!("1,,2"), "status.numa 0: cpusFree");
    check("/status/pods/0/memory/0/resource", json!("cpu"), "status.pods.memory: \"cpu\"");
}

#[test]
fn nothing_is_known_of_an_empty_object() {
    let topology = compile(json!({})).unwrap();
    assert_eq!(topology, NodeTopology::default());
    assert!(!topology.allocations_known && topology.kubelet.is_none());
}

fn foreign(object: Value) -> Result<NodeTopology, String> {
    NodeTopology::compile_foreign(&wire(object))
}

/// What node-feature-discovery writes for a node with two NUMA nodes.
fn resource_topology() -> Value {
    let resource = |name: &str, amounts: [&str; 3]| {
        let [capacity, allocatable, available] = amounts;
        json!({"name": name, "capacity": capacity, "allocatable": allocatable,
            "available": available})
    };
    let zone = |id: u32, gpus: [&str; 3]| {
        json!({"name": format!("node-{id}"), "type": "Node",
            "costs": [{"name": "node-0", "value": 10 + id}, {"name": "node-1", "value": 11 - id}],
            "resources": [resource("cpu", ["8", "6", "4"]), resource("memory", ["1Ki", "1000", "500"]),
                resource("hugepages-2Mi", ["8", "8", "4"]), resource("example.com/gpu", gpus)]})
    };
    json!({
        "metadata": {"name": "n"},
        "attributes": [{"name": "topologyManagerPolicy", "value": "single-numa-node"},
            {"name": "topologyManagerScope", "value": "pod"}],
        "zones": [zone(1, ["2", "2", "2"]), zone(0, ["4", "3", "1"]),
            {"name": "socket-0", "type": "Socket"}],
    })
}

#[test]
fn counts_of_another_agent_become_devices_and_cpus() {
    let topology = foreign(resource_topology()).unwrap();
    let numa = &topology.hardware.numa;
    assert_eq!((numa[0].cpus.to_string(), numa[1].cpus.to_string()), ("0-7".into(), "8-15".into()));
    assert_eq!(topology.free[1].cpus.to_string(), "8-11");
    assert_eq!(topology.free[0].memory, Some(Room { allocatable: 1000, free: 500 }));
    assert_eq!((numa[0].memory_bytes, numa[0].distances.as_slice()), (1024, &[10, 11][..]));
    let states = |mask: NumaMask| {
        let devices = topology.devices_of("example.com/gpu").iter();
        devices.filter(move |d| d.numa == mask).map(|d| d.state).collect::<Vec<_>>()
    };
    use DeviceState::{Allocated, Free, Unhealthy};
    assert_eq!(states(0b01), [Free, Allocated, Allocated, Unhealthy]);
    assert_eq!(states(0b10), [Free, Free]);
    let kubelet = topology.kubelet.as_ref().unwrap();
    assert_eq!(
        (kubelet.policy, kubelet.scope),
        (TopologyPolicy::SingleNumaNode, TopologyScope::Pod)
    );
    assert!(kubelet.static_cpus && kubelet.static_memory);
}

#[test]
fn policies_of_another_agent_are_understood_in_both_forms() {
    use TopologyPolicy::{BestEffort, None as NoPolicy, Restricted, SingleNumaNode};
    use TopologyScope::{Container, Pod};
    let old = [
        ("SingleNUMANode", Some((SingleNumaNode, Container))),
        ("SingleNUMANodePodLevel", Some((SingleNumaNode, Pod))),
        ("RestrictedContainerLevel", Some((Restricted, Container))),
        ("BestEffortPodLevel", Some((BestEffort, Pod))),
        ("None", Some((NoPolicy, Container))),
        ("Wrong", None),
    ];
    for (text, expected) in old {
        let topology = foreign(json!({"topologyPolicies": [text]})).unwrap();
        let kubelet = topology.kubelet.as_ref().map(|kubelet| (kubelet.policy, kubelet.scope));
        assert_eq!(kubelet, expected, "{text}");
    }
    assert!(foreign(json!({})).unwrap().kubelet.is_none());
}

#[test]
fn what_another_agent_contradicts_is_named() {
    let zone = |name: &str| json!({"name": name, "type": "Node"});
    let many = json!([{"name": "gpu", "capacity": "2000", "allocatable": "0", "available": "0"}]);
    let many = json!({"name": "node-0", "type": "Node", "resources": many});
    let cases = [
        (json!([zone("numa0")]), "\"numa0\" is not the name of a NUMA node"),
        (json!([zone("node-1"), zone("node-1")]), "node-1 is there twice"),
        (json!([many]), "more than 1024 devices"),
    ];
    for (zones, expected) in cases {
        let error = foreign(json!({"zones": zones})).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

/// Small numbers, so that they meet.
fn numbers() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(0..5_u32, 0..5)
}

proptest! {
    /// Whatever the schema lets pass is compiled or refused.
    #[test]
    fn no_object_causes_a_panic(
        ids in numbers(), gpus in numbers(), pairs in prop::collection::vec((0..6_u32, 0..6_u32), 0..6),
        devices in numbers(), cpus in "[0-9,-]{0,9}", quantity in "[0-9]{1,20}(Ki|Ei|m)?",
    ) {
        let numa: Vec<Value> = ids.iter()
            .map(|id| json!({"id": id, "cpus": cpus, "cores": [cpus], "memoryBytes": 1}))
            .collect();
        let gpu = |i: &u32| json!({"uuid": format!("GPU-{i}"), "numa": i, "switch": format!("{i}")});
        let device = |i: &u32| json!({"resource": "gpu", "id": format!("GPU-{i}"), "numa": [i],
            "pod": {"uid": format!("{i}")}});
        let links: Vec<Value> = pairs.iter().map(|(a, b)| json!({"a": a, "b": b})).collect();
        let _ = compile(json!({
            "hardware": {"numa": numa, "gpus": gpus.iter().map(gpu).collect::<Vec<_>>(), "links": links},
            "status": {
                "numa": ids.iter().map(|id| json!({"id": id, "cpusFree": cpus})).collect::<Vec<_>>(),
                "devices": devices.iter().map(device).collect::<Vec<_>>(),
                "gpus": [{}, {}, {}],
            },
        }));
        let resource = |name: &str| json!({"name": name, "capacity": quantity,
            "allocatable": quantity, "available": quantity});
        let zone = |id: &u32| json!({"name": format!("node-{id}"), "type": "Node",
            "resources": [resource("cpu"), resource("memory"), resource("gpu")]});
        let _ = foreign(json!({"zones": ids.iter().map(zone).collect::<Vec<_>>()}));
    }
}
