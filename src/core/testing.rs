//! Builders for tests: nodes, pods and a small cluster to put them in.
//!
//! `node("n1").label("zone", "a").taint("gpu", "", "NoSchedule")` is a
//! [`k8s::Node`] as the watch would decode it; `pod("p").req(&[("cpu", "1")])` is a
//! [`k8s::Pod`]. There is no `build()`: each step takes and returns the object.

pub(crate) mod random;

use std::sync::Arc;

use muster_api::k8s;
use serde_json::{Value, json};

use crate::cluster::{Cluster, NodeChange, NodeId};
use crate::framework::ProfileId;
use crate::io::{PodRef, Tick};
use crate::model::{Pod, PodId, PodShape, PodStage};

/// The scheduler name that [`pod`] asks for.
pub(crate) const SCHEDULER: &str = "muster";

/// A node with 4 cpu, 8Gi of memory and room for 110 pods.
pub(crate) fn node(name: &str) -> k8s::Node {
    let mut node = k8s::Node::default();
    node.metadata.name = name.to_owned();
    node.metadata.uid = format!("uid-{name}");
    node.alloc("cpu", "4").alloc("memory", "8Gi").alloc("pods", "110")
}

/// A pending pod of scheduler [`SCHEDULER`] in namespace `default`, with no
/// container yet: `req`, `container` and `with_container` add some.
pub(crate) fn pod(name: &str) -> k8s::Pod {
    let mut pod = k8s::Pod::default();
    pod.metadata.name = name.to_owned();
    pod.metadata.namespace = "default".to_owned();
    pod.metadata.uid = format!("uid-{name}");
    pod.metadata.creation_timestamp = Some(k8s::Time(0));
    pod.spec.scheduler_name = SCHEDULER.to_owned();
    pod
}

/// A quantity.
pub(crate) fn quantity(text: &str) -> k8s::Quantity {
    k8s::Quantity::parse(text).expect("a quantity")
}

/// A resource list.
pub(crate) fn resources(list: &[(&str, &str)]) -> k8s::ResourceList {
    list.iter().map(|(name, text)| ((*name).to_owned(), quantity(text))).collect()
}

/// Any wire type from JSON.
pub(crate) fn wire<T: serde::de::DeserializeOwned>(json: Value) -> T {
    serde_json::from_value(json).expect("a valid object")
}

/// Steps that build a node.
pub(crate) trait NodeExt: Sized {
    fn edit(self, change: impl FnOnce(&mut k8s::Node)) -> k8s::Node;

    fn label(self, key: &str, value: &str) -> k8s::Node {
        self.edit(|n| {
            n.metadata.labels.insert(key.to_owned(), value.to_owned());
        })
    }
    fn taint(self, key: &str, value: &str, effect: &str) -> k8s::Node {
        let (key, value, effect) = (key.to_owned(), value.to_owned(), effect.to_owned());
        self.edit(|n| n.spec.taints.push(k8s::Taint { key, value, effect }))
    }
    fn unschedulable(self) -> k8s::Node {
        self.edit(|n| n.spec.unschedulable = true)
    }
    /// Sets one allocatable resource.
    fn alloc(self, resource: &str, text: &str) -> k8s::Node {
        self.edit(|n| {
            n.status.allocatable.insert(resource.to_owned(), quantity(text));
        })
    }
    fn cpu(self, text: &str) -> k8s::Node {
        self.alloc("cpu", text)
    }
    fn memory(self, text: &str) -> k8s::Node {
        self.alloc("memory", text)
    }
    fn max_pods(self, text: &str) -> k8s::Node {
        self.alloc("pods", text)
    }
    /// Forgets every allocatable resource.
    fn no_alloc(self) -> k8s::Node {
        self.edit(|n| n.status.allocatable.clear())
    }
    /// An image with one name.
    fn image(self, name: &str, size_bytes: i64) -> k8s::Node {
        let image = k8s::ContainerImage { names: vec![name.to_owned()], size_bytes };
        self.edit(|n| n.status.images.push(image))
    }
    fn version(self, resource_version: &str) -> k8s::Node {
        self.edit(|n| n.metadata.resource_version = resource_version.to_owned())
    }
}

impl NodeExt for k8s::Node {
    fn edit(mut self, change: impl FnOnce(&mut k8s::Node)) -> k8s::Node {
        change(&mut self);
        self
    }
}

/// Steps that build a pod.
pub(crate) trait PodExt: Sized {
    fn edit(self, change: impl FnOnce(&mut k8s::Pod)) -> k8s::Pod;

    /// Adds a container (`c0`, `c1`, …) with these requests.
    fn req(self, requests: &[(&str, &str)]) -> k8s::Pod {
        let requests = resources(requests);
        self.edit(|p| {
            let name = format!("c{}", p.spec.containers.len());
            let resources = k8s::ResourceRequirements { requests };
            p.spec.containers.push(k8s::Container { name, resources, ..Default::default() });
        })
    }
    /// Adds a container with an image and no requests.
    fn container(self, image: &str) -> k8s::Pod {
        let container = k8s::Container { image: image.to_owned(), ..Default::default() };
        self.edit(|p| p.spec.containers.push(container))
    }
    /// Adds a container from JSON.
    fn with_container(self, container: Value) -> k8s::Pod {
        self.edit(|p| p.spec.containers.push(wire(container)))
    }
    /// Adds an init container (`i0`, `i1`, …) with these requests.
    fn init(self, requests: &[(&str, &str)]) -> k8s::Pod {
        self.init_container(requests, None)
    }
    /// Adds a sidecar (`i0`, `i1`, …) with these requests.
    fn sidecar(self, requests: &[(&str, &str)]) -> k8s::Pod {
        self.init_container(requests, Some("Always"))
    }
    fn init_container(self, requests: &[(&str, &str)], restart: Option<&str>) -> k8s::Pod {
        let resources = k8s::ResourceRequirements { requests: resources(requests) };
        self.edit(|p| {
            p.spec.init_containers.push(k8s::Container {
                name: format!("i{}", p.spec.init_containers.len()),
                resources,
                restart_policy: restart.map(str::to_owned),
                ..Default::default()
            });
        })
    }
    fn overhead(self, list: &[(&str, &str)]) -> k8s::Pod {
        self.edit(|p| p.spec.overhead = resources(list))
    }
    /// Pod-level requests.
    fn pod_level(self, list: &[(&str, &str)]) -> k8s::Pod {
        let resources = k8s::ResourceRequirements { requests: resources(list) };
        self.edit(|p| p.spec.resources = Some(resources))
    }
    /// Replaces the status.
    fn status(self, status: Value) -> k8s::Pod {
        self.edit(|p| p.status = wire(status))
    }
    /// Adds a container with one host port; empty protocol and address are the
    /// defaults.
    fn host_port(self, port: i32, protocol: &str, ip: &str) -> k8s::Pod {
        self.with_container(json!({
            "name": "port",
            "ports": [{"hostPort": port, "protocol": protocol, "hostIP": ip}],
        }))
    }
    fn node_selector(self, key: &str, value: &str) -> k8s::Pod {
        self.edit(|p| {
            p.spec.node_selector.insert(key.to_owned(), value.to_owned());
        })
    }
    /// `affinity.nodeAffinity` from JSON.
    fn node_affinity(self, affinity: Value) -> k8s::Pod {
        self.edit(|p| p.spec.affinity.get_or_insert_default().node_affinity = Some(wire(affinity)))
    }
    fn tolerate(self, key: &str, operator: &str, value: &str, effect: &str) -> k8s::Pod {
        let toleration = k8s::Toleration {
            key: key.to_owned(),
            operator: operator.to_owned(),
            value: value.to_owned(),
            effect: effect.to_owned(),
        };
        self.edit(|p| p.spec.tolerations.push(toleration))
    }
    fn priority(self, priority: i32) -> k8s::Pod {
        self.edit(|p| p.spec.priority = Some(priority))
    }
    fn gate(self, name: &str) -> k8s::Pod {
        let gate = k8s::PodSchedulingGate { name: name.to_owned() };
        self.edit(|p| p.spec.scheduling_gates.push(gate))
    }
    /// Binds it.
    fn on(self, node: &str) -> k8s::Pod {
        self.edit(|p| p.spec.node_name = node.to_owned())
    }
    fn scheduler(self, name: &str) -> k8s::Pod {
        self.edit(|p| p.spec.scheduler_name = name.to_owned())
    }
    fn pod_label(self, key: &str, value: &str) -> k8s::Pod {
        self.edit(|p| {
            p.metadata.labels.insert(key.to_owned(), value.to_owned());
        })
    }
    fn phase(self, phase: &str) -> k8s::Pod {
        self.edit(|p| p.status.phase = phase.to_owned())
    }
    fn deleting(self) -> k8s::Pod {
        self.edit(|p| p.metadata.deletion_timestamp = Some(k8s::Time(0)))
    }
    fn uid(self, uid: &str) -> k8s::Pod {
        self.edit(|p| p.metadata.uid = uid.to_owned())
    }
    fn pod_version(self, resource_version: &str) -> k8s::Pod {
        self.edit(|p| p.metadata.resource_version = resource_version.to_owned())
    }
    /// Creation time in microseconds.
    fn created(self, micros: i64) -> k8s::Pod {
        self.edit(|p| p.metadata.creation_timestamp = Some(k8s::Time(micros)))
    }
}

impl PodExt for k8s::Pod {
    fn edit(mut self, change: impl FnOnce(&mut k8s::Pod)) -> k8s::Pod {
        change(&mut self);
        self
    }
}

/// A cluster of these nodes.
pub(crate) fn cluster(nodes: impl IntoIterator<Item = k8s::Node>) -> Cluster {
    let mut cluster = Cluster::default();
    nodes.into_iter().for_each(|n| {
        cluster.add(&n);
    });
    cluster
}

/// What tests do to a cluster without a core around it.
pub(crate) trait ClusterExt {
    fn add(&mut self, node: &k8s::Node) -> NodeChange;
    /// The shape of a pod under the first profile.
    fn shape_of(&mut self, pod: &k8s::Pod) -> PodShape;
    /// Adds a pod; on its node, known or not, if it names one.
    fn add_wire_pod(&mut self, pod: &k8s::Pod) -> PodId;
    /// The id of a node that exists.
    fn id(&self, node: &str) -> NodeId;
}

impl ClusterExt for Cluster {
    fn add(&mut self, node: &k8s::Node) -> NodeChange {
        self.upsert_node(node, 0)
    }

    fn shape_of(&mut self, pod: &k8s::Pod) -> PodShape {
        self.compile(pod, Some(ProfileId(0)))
    }

    fn add_wire_pod(&mut self, wire: &k8s::Pod) -> PodId {
        let pending = wire.clone().on("");
        let shape = self.shape_of(&pending);
        let shape = self.intern_shape(shape);
        let mut pod = model_pod(wire, shape);
        pod.group = self.join_group(wire, pod.ours);
        let pod = self.add_pod(pod);
        if !wire.spec.node_name.is_empty() {
            self.put(pod, &wire.spec.node_name);
        }
        pod
    }

    fn id(&self, node: &str) -> NodeId {
        self.node_by_name(node).expect("the node exists")
    }
}

/// The pod as the core keeps it, pending.
pub(crate) fn model_pod(wire: &k8s::Pod, shape: crate::model::ShapeId) -> Pod {
    let meta = &wire.metadata;
    Pod {
        key: PodRef {
            namespace: meta.namespace.as_str().into(),
            name: meta.name.as_str().into(),
            uid: meta.uid.as_str().into(),
        },
        shape,
        scheduler_name: Arc::from(wire.spec.scheduler_name.as_str()),
        ours: wire.spec.scheduler_name == SCHEDULER,
        stage: PodStage::Pending,
        priority: wire.spec.priority.unwrap_or(0),
        may_preempt: true,
        nominated: None,
        nominated_shown: "".into(),
        kept: false,
        nominated_told: None,
        started: wire.status.start_time.map(|t| Tick(t.0)),
        checkpoint: None,
        checkpoint_wait: None,
        checkpoint_asked: None,
        disrupted: false,
        resource_version: meta.resource_version.as_str().into(),
        generation: meta.generation,
        deleting: meta.deletion_timestamp.is_some(),
        gates: wire.spec.scheduling_gates.iter().map(|g| g.name.as_str().into()).collect(),
        condition: None,
        shown: None,
        conditions: Box::default(),
        created: Tick(meta.creation_timestamp.map_or(0, |t| t.0)),
        seen: 0,
        group: crate::cluster::GroupId::default(),
        gang: None,
        owner: crate::cluster::Owner::of(meta),
        class: None,
        running: false,
        starting: false,
        placed: crate::io::Tick::default(),
        crew: None,
        settled: u64::MAX,
        bound: None,
        predicted: None,
    }
}
