//! Known admissions: two NUMA nodes with 16 CPUs, 4 GPUs and 64 GiB each.

use std::sync::Arc;

use super::*;

const GIB: u64 = 1 << 30;
const GPU: &str = "nvidia.com/gpu";
const NIC: &str = "example.com/nic";

pub(super) fn machine(policy: Policy) -> Machine {
    let cpu =
        |id: u16| Cpu { id, core: id, socket: id / 16, numa: u8::from(id >= 16), uncore: id / 16 };
    let cpus: Vec<Cpu> = (0..32).map(cpu).collect();
    let gpu = |n: u8| Device {
        id: format!("gpu-{n}").into(),
        numa: Some(Mask::one(n / 4)),
        healthy: true,
    };
    let node = |id: u8| NumaNode {
        id,
        distances: if id == 0 { vec![10, 21] } else { vec![21, 10] },
        memory: vec![("memory".into(), 64 * GIB)],
    };
    Machine {
        settings: Settings { policy, cpu: Some(CpuOptions::default()), ..Settings::default() },
        nodes: vec![node(0), node(1)],
        cpus: CpuLayout::new(&cpus),
        reserved: CpuSet::default(),
        devices: vec![
            DeviceResource {
                name: GPU.into(),
                devices: (0..8).map(gpu).collect(),
                plugin_chooses: true,
            },
            DeviceResource {
                name: NIC.into(),
                devices: vec![Device { id: "n".into(), numa: Some(Mask(1)), healthy: true }],
                plugin_chooses: false,
            },
        ],
    }
}

pub(super) fn pod(cpus: u32, gpus: u32) -> Pod {
    let devices = if gpus > 0 { vec![(GPU.into(), gpus)] } else { Vec::new() };
    let memory = vec![("memory".into(), GIB)];
    let container = Container { cpus, memory, devices, equal: true, sidecar: false };
    Pod { guaranteed: true, containers: vec![container], ..Pod::default() }
}

/// The verdict in short: the NUMA nodes of CPUs and memory, or the kubelet's reason.
fn verdict(machine: &Machine, usage: &Usage, pod: &Pod) -> String {
    let prediction = predict(machine, usage, pod);
    assert!(!prediction.incomplete);
    match (prediction.admitted.as_slice(), prediction.refused.as_slice()) {
        ([], [refusal]) => refusal.cause.reason().as_str().to_owned(),
        ([..], []) => {
            let given = &prediction.admitted[0].given[0];
            let on = machine.cpus.per_numa(&given.cpus).filter(|(_, n)| *n > 0);
            let gpus = given.devices.iter().filter(|(name, _)| &**name == GPU);
            let gpus = gpus.flat_map(|(_, kinds)| kinds.iter().filter_map(|(numa, _)| *numa));
            let cpus: Mask = on.map(|(id, _)| id).collect();
            format!("cpus {cpus} gpus {}", gpus.fold(Mask::EMPTY, Mask::or))
        }
        (admitted, refused) => panic!("{admitted:?} {refused:?}"),
    }
}

#[test]
fn known_admissions() {
    const NO: &str = "TopologyAffinityError";
    // What is asked for, what is in use, and the verdict of single-numa-node, restricted
    // and best-effort.
    type Change = fn(&mut Machine, &mut Usage, &mut Pod);
    let nothing: Change = |_, _, _| {};
    let cases: [(&str, Pod, Change, [&str; 3]); 8] = [
        ("4 GPUs, 8 CPUs", pod(8, 4), nothing, ["cpus {0} gpus {0}"; 3]),
        (
            "4 GPUs, 8 CPUs; two GPUs free per node",
            pod(8, 4),
            |_, usage, _| {
                for gpu in [0, 1, 4, 5] {
                    usage.taken[0][gpu] = true;
                }
            },
            // Both nodes are chosen; of them CPUs are taken packed.
            [NO, NO, "cpus {0} gpus {0,1}"],
        ),
        ("8 GPUs, 8 CPUs", pod(8, 8), nothing, [NO, NO, "cpus {0} gpus {0,1}"]),
        (
            "8 GPUs, 20 CPUs",
            pod(20, 8),
            nothing,
            [NO, "cpus {0,1} gpus {0,1}", "cpus {0,1} gpus {0,1}"],
        ),
        (
            "8 GPUs, Burstable",
            pod(8, 8),
            |_, _, pod| pod.guaranteed = false,
            [NO, "cpus {} gpus {0,1}", "cpus {} gpus {0,1}"],
        ),
        ("8 GPUs, 7.5 CPUs", pod(0, 8), nothing, [NO, "cpus {} gpus {0,1}", "cpus {} gpus {0,1}"]),
        (
            "4 GPUs, 8 CPUs; a GPU is unhealthy",
            pod(8, 4),
            |machine, _, _| machine.devices[0].devices[0].healthy = false,
            ["cpus {1} gpus {1}"; 3],
        ),
        (
            "8 CPUs, GPUs that say nothing of where they are",
            pod(8, 0),
            |machine, _, pod| {
                for gpu in &mut machine.devices[0].devices {
                    gpu.numa = None;
                }
                pod.containers[0].devices.push((GPU.into(), 4));
            },
            ["cpus {0} gpus {}"; 3],
        ),
    ];
    let policies = [Policy::SingleNumaNode, Policy::Restricted, Policy::BestEffort];
    for (name, asked, change, expected) in cases {
        for (policy, expected) in policies.into_iter().zip(expected) {
            let (mut machine, mut pod) = (machine(policy), asked.clone());
            let mut usage = machine.unused();
            change(&mut machine, &mut usage, &mut pod);
            assert_eq!(verdict(&machine, &usage, &pod), expected, "{name}, {policy:?}");
        }
    }
}

#[test]
fn older_kubelets_look_for_devices_on_every_node() {
    // One NIC on node 0 and 20 CPUs: from 1.36 on the NIC's node is all there is to say of it.
    for (device_nodes_only, expected) in [(true, 16), (false, 10)] {
        let mut machine = machine(Policy::BestEffort);
        machine.settings.device_nodes_only = device_nodes_only;
        machine.settings.cpu = Some(CpuOptions { across_numa: true, ..CpuOptions::default() });
        let mut pod = pod(20, 0);
        pod.containers[0].devices.push((NIC.into(), 1));
        let prediction = predict(&machine, &machine.unused(), &pod);
        assert!(prediction.certain());
        // The choice {0} takes what node 0 has, the choice {0,1} half from each.
        let cpus = &prediction.admitted[0].given[0].cpus;
        let on: Vec<(u8, usize)> = machine.cpus.per_numa(cpus).collect();
        assert_eq!(on, [(0, expected), (1, 20 - expected)], "{device_nodes_only}");
        for policy in [Policy::Restricted, Policy::SingleNumaNode] {
            machine.settings.policy = policy;
            assert!(predict(&machine, &machine.unused(), &pod).admitted.is_empty());
        }
    }
}

#[test]
fn memory_of_one_node_is_not_joined_with_others() {
    // A pod has memory of node 0 alone; 120 GiB would need both nodes. The Memory Manager then
    // has no hint at all, which the Topology Manager takes for "any": it is single-numa-node
    // only that refuses, for the CPUs' sake.
    for (policy, expected) in [
        (Policy::SingleNumaNode, Reason::TopologyAffinity),
        (Policy::Restricted, Reason::UnexpectedAdmission),
        (Policy::BestEffort, Reason::UnexpectedAdmission),
    ] {
        let mut machine = machine(policy);
        machine.settings.memory = true;
        let mut usage = machine.unused();
        usage.memory[0] = NodeMemory { free: vec![63 * GIB], blocks: 1, group: Mask(1) };
        let mut pod = pod(20, 8);
        pod.containers[0].memory = vec![("memory".into(), 120 * GIB)];
        let found = predict(&machine, &usage, &pod);
        assert_eq!(found.refused[0].cause.reason(), expected, "{policy:?}");
        assert!(found.admitted.is_empty());
    }
}

#[test]
fn a_refusal_says_what_clashes() {
    type Change = fn(&mut Machine, &mut Usage);
    let cases: [(&str, Policy, Pod, Change); 6] = [
        (
            "cpu prefers 1 NUMA node, 8 nvidia.com/gpu need 2",
            Policy::Restricted,
            pod(8, 8),
            |_, _| {},
        ),
        (
            "8 nvidia.com/gpu need 2 NUMA nodes, this kubelet allows 1",
            Policy::SingleNumaNode,
            pod(8, 8),
            |_, _| {},
        ),
        (
            "20 CPUs need 2 NUMA nodes, this kubelet allows 1",
            Policy::SingleNumaNode,
            pod(20, 0),
            |_, _| {},
        ),
        (
            "4 nvidia.com/gpu would fit on 1 NUMA node of an empty machine, but no NUMA node has them free",
            Policy::Restricted,
            pod(8, 4),
            |_, usage| {
                for gpu in [0, 1, 4, 5] {
                    usage.taken[0][gpu] = true;
                }
            },
        ),
        ("4 nvidia.com/gpu asked for, 3 free", Policy::Restricted, pod(8, 4), |_, usage| {
            usage.taken[0][..5].fill(true);
        }),
        (
            "no NUMA node has 4 nvidia.com/gpu and 8 CPUs free together",
            Policy::Restricted,
            pod(8, 4),
            |_, usage| {
                usage.taken[0][..4].fill(true);
                usage.shared = (0..20).collect();
            },
        ),
    ];
    for (expected, policy, pod, change) in cases {
        let mut machine = machine(policy);
        let mut usage = machine.unused();
        change(&mut machine, &mut usage);
        let found = predict(&machine, &usage, &pod);
        let clash = found.refused[0].clash.as_ref().expect("a clash");
        assert_eq!(clash.to_string(), expected);
    }
}

#[test]
fn a_remedy_is_what_an_empty_machine_admits() {
    type Change = fn(&mut Machine, &mut Pod);
    let cases: [(&str, Policy, Pod, Change); 9] = [
        ("ask for at least 17 CPUs", Policy::Restricted, pod(8, 8), |_, _| {}),
        // No number of CPUs is on one NUMA node with eight GPUs.
        ("ask for at most 4 nvidia.com/gpu", Policy::SingleNumaNode, pod(8, 8), |_, _| {}),
        ("ask for at most 16 CPUs", Policy::SingleNumaNode, pod(20, 0), |_, _| {}),
        ("ask for at most 16 CPUs", Policy::Restricted, pod(20, 4), |_, _| {}),
        // 17 is not a number of whole cores.
        ("ask for at least 18 CPUs", Policy::Restricted, pod(8, 8), |machine, _| {
            machine.cpus = CpuLayout::new(&pairs());
            machine.settings.cpu =
                Some(CpuOptions { full_cores_only: true, ..CpuOptions::default() });
        }),
        ("ask for at least 8 CPUs", Policy::Restricted, pod(7, 4), |machine, _| {
            machine.cpus = CpuLayout::new(&pairs());
            machine.settings.cpu =
                Some(CpuOptions { full_cores_only: true, ..CpuOptions::default() });
        }),
        // The kubelet keeps 31 of 32 CPUs for the system: no more can be had.
        (
            "ask for a number of CPUs that is not whole",
            Policy::Restricted,
            pod(1, 8),
            |machine, _| {
                machine.reserved = (0..31).collect();
            },
        ),
        ("ask for at least 65537 MiB of memory", Policy::Restricted, pod(20, 8), |machine, _| {
            machine.settings.memory = true;
        }),
        // Each container by itself would do; the first has to give in.
        (
            "ask for at least 9 CPUs in container 1 of 2",
            Policy::Restricted,
            pod(8, 4),
            |machine, pod| {
                machine.settings.scope = Scope::Pod;
                pod.containers.push(pod.containers[0].clone());
            },
        ),
    ];
    for (expected, policy, mut pod, change) in cases {
        let mut machine = machine(policy);
        change(&mut machine, &mut pod);
        let (machine, pod, memo) = (Arc::new(machine), Arc::new(pod), Memo::default());
        let found = predict(&machine, &machine.unused(), &pod);
        let remedy = remedy(&memo, &machine, &pod, &found.refused[0]).map(|r| r.to_string());
        assert_eq!(remedy.as_deref(), Some(expected), "{:?}", found.refused);
    }
}

/// 32 CPUs, two on each core.
fn pairs() -> Vec<Cpu> {
    let cpu = |id: u16| Cpu {
        id,
        core: id / 2 * 2,
        socket: id / 16,
        numa: u8::from(id >= 16),
        uncore: id / 16,
    };
    (0..32).map(cpu).collect()
}

#[test]
fn chance_among_devices_is_followed_both_ways() {
    // Two GPUs, one near both nodes: whichever the first container gets, the second gets
    // the other, which may not be where its CPUs are.
    let mut machine = machine(Policy::SingleNumaNode);
    let near = |n: u8, mask: u64| Device {
        id: format!("gpu-{n}").into(),
        numa: Some(Mask(mask)),
        healthy: true,
    };
    machine.devices[0].devices = vec![near(0, 0b01), near(1, 0b11)];
    let mut usage = machine.unused();
    // Node 0 has CPUs for one container only.
    usage.shared = (8..32).collect();
    let mut pod = pod(8, 1);
    pod.containers.push(pod.containers[0].clone());
    let found = predict(&machine, &usage, &pod);
    assert_eq!(found.admitted.len(), 1, "the first got GPU 0");
    assert_eq!(found.refused.len(), 1, "the first got GPU 1, and GPU 0 has no CPUs beside it");
    assert!(!found.certain());
}

#[test]
fn what_an_init_container_had_is_used_again() {
    let mut machine = machine(Policy::SingleNumaNode);
    machine.settings.memory = true;
    let mut pod = pod(16, 4);
    pod.init.push(pod.containers[0].clone());
    let found = predict(&machine, &machine.unused(), &pod);
    assert!(found.certain());
    assert_eq!(found.admitted[0].given[0], found.admitted[0].given[1]);
    assert_eq!(found.admitted[0].memory[0].free, [63 * GIB]);
    // A sidecar keeps what it has: the other container goes to the other node.
    pod.init[0].sidecar = true;
    let found = predict(&machine, &machine.unused(), &pod);
    assert_eq!(found.admitted[0].given[0].memory, Some(Mask(1)));
    assert_eq!(found.admitted[0].given[1].memory, Some(Mask(2)));
}

#[test]
fn too_many_numa_nodes_are_not_judged() {
    let mut machine = machine(Policy::None);
    machine.nodes = (0..36).map(|id| NumaNode { id, ..NumaNode::default() }).collect();
    let found = predict(&machine, &machine.unused(), &pod(1, 0));
    assert!(found.incomplete && found.admitted.is_empty() && found.refused.is_empty());
}
