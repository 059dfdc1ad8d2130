//! A machine whose kubelet admits by the kubelet's own managers, and tells an agent of it.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};
use muster_machines::{Machine, cpus};
use muster_node_agent::podresources::proto;
use serde_json::{Value, json};

use crate::driver;
use crate::kubelet::topology;
use crate::support::{Cluster, GPU, Node};

/// How a kubelet is set.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) policy: &'static str,
    pub(crate) scope: &'static str,
}

/// A machine, its kubelet and its agent.
pub(crate) struct Host {
    pub(crate) node: Node,
    pub(crate) settings: Settings,
    managers: driver::Kubelet,
    /// NUMA nodes of GPUs by UUID.
    gpus: BTreeMap<String, i64>,
}

impl Host {
    pub(crate) async fn start(
        cluster: &Cluster,
        machine: &str,
        settings: Settings,
    ) -> Result<Self> {
        let mut node = Node::new(cluster, machine).await?;
        let Settings { policy, scope } = settings;
        let config = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
             topologyManagerPolicy: {policy}\ntopologyManagerScope: {scope}\n\
             cpuManagerPolicy: static\nreservedSystemCPUs: 0-1\nmemoryManagerPolicy: Static\n\
             reservedMemory:\n- {{numaNode: 0, limits: {{memory: 1Gi}}}}\n"
        );
        fs::write(node.dir().join("kubelet/config.yaml"), config)?;
        let mut managers = driver::Kubelet::start(false)?;
        managers.open(&spec(&node.machine, settings))?;
        let gpus = node.machine.reported().map(|gpu| (gpu.uuid(), i64::from(gpu.numa))).collect();
        node.start(cluster, &["--poll", "1"])?;
        Ok(Self { node, settings, managers, gpus })
    }

    /// The kubelet looks at a pod; why it refuses it, if it does. What the pod gets the agent
    /// can read.
    pub(crate) fn admit(&mut self, pod: &Value) -> Result<Option<String>> {
        let answer = self.managers.admit(pod)?;
        if !answer.admitted {
            return Ok(Some(format!("{}: {}", answer.reason, answer.message)));
        }
        let state = answer.state.context("no state")?;
        let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let given = state.given.get(text("/metadata/uid")).context("the pod has nothing")?;
        let containers = pod["spec"]["containers"].as_array().context("containers")?;
        let containers = containers.iter().map(|container| {
            let name = container["name"].as_str().unwrap_or_default();
            self.resources(container, given.get(name).context("a container has nothing")?)
        });
        self.node.kubelet.hold(proto::PodResources {
            name: text("/metadata/name").to_owned(),
            namespace: text("/metadata/namespace").to_owned(),
            containers: containers.collect::<Result<_>>()?,
            ..proto::PodResources::default()
        })?;
        Ok(None)
    }

    /// What a container has, as the kubelet tells agents.
    fn resources(
        &self,
        container: &Value,
        given: &driver::Given,
    ) -> Result<proto::ContainerResources> {
        let devices = given.devices.iter().flat_map(|(resource, ids)| {
            ids.iter().map(|id| proto::ContainerDevices {
                resource_name: resource.clone(),
                device_ids: vec![id.clone()],
                topology: topology(&self.gpus.get(id).copied().into_iter().collect::<Vec<_>>()),
            })
        });
        let mut memory = Vec::new();
        if !given.memory.is_empty() {
            let asked = container["resources"]["requests"]["memory"].as_str().context("memory")?;
            let size = muster_api::k8s::Quantity::parse(asked).map_err(anyhow::Error::msg)?.value();
            let numa: Vec<i64> = given.memory.iter().map(|id| i64::from(*id)).collect();
            memory.push(proto::ContainerMemory {
                memory_type: "memory".to_owned(),
                size: u64::try_from(size)?,
                topology: topology(&numa),
            });
        }
        Ok(proto::ContainerResources {
            name: container["name"].as_str().unwrap_or_default().to_owned(),
            devices: devices.collect(),
            cpu_ids: given.cpus.iter().map(|cpu| i64::from(*cpu)).collect(),
            memory,
            ..proto::ContainerResources::default()
        })
    }

    /// A pod has ended.
    pub(crate) fn remove(&mut self, pod: &Value) -> Result<()> {
        let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        self.managers.remove(text("/metadata/uid"))?;
        self.node.kubelet.release(text("/metadata/namespace"), text("/metadata/name"))
    }

    /// What a Node says that can be had of it.
    pub(crate) fn allocatable(&self) -> Value {
        let machine = &self.node.machine;
        let memory: u64 = machine.numa.iter().map(|numa| numa.memory).sum();
        json!({
            "cpu": (machine.cpu_count() - 2).to_string(), "memory": format!("{}Gi", memory - 1),
            "pods": "110", GPU: machine.reported().count().to_string(),
        })
    }
}

/// The machine as the kubelet's managers are told of it: what `support` has the fake kubelet say.
fn spec(machine: &Machine, settings: Settings) -> Value {
    let cores_of = machine.cpu_count() / machine.threads_per_core.max(1);
    let nodes: Vec<Value> = machine
        .numa
        .iter()
        .enumerate()
        .map(|(at, numa)| {
            let own = cpus(&numa.cpus);
            let cores: Vec<Value> = own
                .iter()
                .filter(|cpu| **cpu < cores_of)
                .map(|core| {
                    let threads: Vec<&u32> =
                        own.iter().filter(|cpu| **cpu % cores_of == *core).collect();
                    json!({"core_id": core, "thread_ids": threads, "socket_id": numa.socket})
                })
                .collect();
            let reserved = if numa.id == 0 { json!({"memory": 1_u64 << 30}) } else { json!({}) };
            json!({"id": numa.id, "distances": machine.distances.get(at),
                "memory": numa.memory << 30, "hugepages": [], "reserved": reserved, "cores": cores})
        })
        .collect();
    let gpus: Vec<Value> = machine
        .reported()
        .map(|gpu| json!({"id": gpu.uuid(), "numa": [gpu.numa], "healthy": true}))
        .collect();
    json!({
        "policy": settings.policy, "scope": settings.scope, "policyOptions": {},
        "cpuPolicy": "static", "cpuOptions": {}, "memoryPolicy": "Static", "nodes": nodes,
        "reservedCpus": [0, 1], "reservedCount": 0,
        "devices": [{"resource": GPU, "chooses": false, "devices": gpus}],
    })
}
