//! What is to be placed, and on what.

use anyhow::{Result, bail};
use kube::Client;
use muster_api::muster::labels;
use muster_control_plane::{create_nodes, create_objects, node};
use serde_json::{Value, json};

use crate::{preemption, topology};

/// Racks per block, another one.
const BLOCK: usize = 16;
const ZONES: usize = 10;
const GANG: usize = 16;
const BLOCK_GANG: usize = 256;
const BIG_GANG: usize = 1_000;
/// How many of those there are, at most.
const BIG_GANGS: usize = 3;
/// The schedulerName of those pods that may use Muster's own kinds.
pub(crate) const OWN_NAME: &str = "muster";
const GPU: &str = "nvidia.com/gpu";
pub(crate) const BLOCK_LABEL: &str = "topology.kubernetes.io/block";
pub(crate) const RACK_LABEL: &str = "topology.kubernetes.io/rack";
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
pub(crate) const HOST_LABEL: &str = "kubernetes.io/hostname";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Workload {
    /// CPU and memory only.
    Plain,
    /// One GPU per pod.
    Gpu,
    /// Even over zones and hosts.
    Spread,
    /// Twenty sets, no two pods of a set on one host.
    AntiAffinity,
    /// Native gangs of 16; members of gangs take the eight GPUs of a node.
    Gangs,
    /// Three native gangs of 1,000.
    BigGangs,
    /// Gangs of 16, each in one rack.
    GangsRack,
    /// Gangs of 256, each in one block.
    GangsBlock,
    /// Every node full of pods of lower priority, three of which must go per pod.
    Preemption,
}

impl Workload {
    pub(crate) const ALL: [Self; 9] = [
        Self::Plain,
        Self::Gpu,
        Self::Spread,
        Self::AntiAffinity,
        Self::Gangs,
        Self::BigGangs,
        Self::GangsRack,
        Self::GangsBlock,
        Self::Preemption,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Gpu => "gpu",
            Self::Spread => "spread",
            Self::AntiAffinity => "anti-affinity",
            Self::Gangs => "gangs-16",
            Self::BigGangs => "gangs-1000",
            Self::GangsRack => "gangs-16-rack",
            Self::GangsBlock => "gangs-256-block",
            Self::Preemption => "preemption",
        }
    }

    /// The level that a gang must be in one domain of, and its node label.
    pub(crate) fn level(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::GangsRack => Some(("rack", RACK_LABEL)),
            Self::GangsBlock => Some(("block", BLOCK_LABEL)),
            _ => None,
        }
    }

    /// By name; none means all.
    pub(crate) fn choose(names: &[String]) -> Result<Vec<Self>> {
        match names {
            [] => return Ok(Self::ALL.to_vec()),
            [one] if one == "all" => return Ok(Self::ALL.to_vec()),
            _ => {}
        }
        names
            .iter()
            .map(|name| match Self::ALL.into_iter().find(|w| w.name() == name) {
                Some(workload) => Ok(workload),
                None => {
                    bail!("no workload {name}; there are {}", Self::ALL.map(Self::name).join(", "))
                }
            })
            .collect()
    }

    fn is_gang(self) -> bool {
        self.gang_size() > 0
    }

    /// Members of each gang; 0 if there are none.
    fn gang_size(self) -> usize {
        match self {
            Self::Gangs | Self::GangsRack => GANG,
            Self::BigGangs => BIG_GANG,
            Self::GangsBlock => BLOCK_GANG,
            _ => 0,
        }
    }

    /// Feature gates of the API server and of kube-scheduler.
    pub(crate) fn feature_gates(self) -> &'static [&'static str] {
        match self {
            Self::Gangs | Self::BigGangs => &["GenericWorkload=true"],
            Self::GangsRack | Self::GangsBlock => {
                &["GenericWorkload=true", "TopologyAwareWorkloadScheduling=true"]
            }
            _ => &[],
        }
    }

    pub(crate) fn runtime_config(self) -> &'static [&'static str] {
        if self.is_gang() { &["scheduling.k8s.io/v1beta1=true"] } else { &[] }
    }

    /// Whether somebody who binds without thinking could do it.
    pub(crate) fn has_floor(self) -> bool {
        self != Self::Preemption && self.level().is_none()
    }

    /// Whole gangs only; of pods that preempt, no more than there are nodes.
    pub(crate) fn pods(self, wanted: usize, nodes: usize) -> usize {
        match self {
            Self::Gangs | Self::GangsRack => wanted / GANG * GANG,
            Self::GangsBlock => (wanted / BLOCK_GANG).max(1) * BLOCK_GANG,
            Self::BigGangs => (wanted / BIG_GANG).clamp(1, BIG_GANGS) * BIG_GANG,
            Self::Preemption => wanted.min(nodes).min(preemption::PREEMPTORS),
            _ => wanted,
        }
    }

    /// Creates the nodes, `rack` of them in each rack, the groups and the pods.
    pub(crate) async fn create(
        self,
        client: &Client,
        nodes: usize,
        pods: usize,
        rack: usize,
        scheduler_name: &str,
    ) -> Result<()> {
        if self == Self::Preemption {
            preemption::prepare(client).await?;
        }
        let cpus = if self == Self::Preemption { "4" } else { "32" };
        create_nodes(client, nodes, |i| {
            let mut node = node(&format!("node-{i:05}"), cpus, "256Gi", 110);
            let labels = node.metadata.labels.get_or_insert_default();
            labels.insert(ZONE_LABEL.to_owned(), format!("zone-{}", i % ZONES));
            labels.insert(RACK_LABEL.to_owned(), format!("rack-{}", i / rack));
            labels.insert(BLOCK_LABEL.to_owned(), format!("block-{}", i / rack / BLOCK));
            let status = node.status.get_or_insert_default();
            for list in [&mut status.capacity, &mut status.allocatable] {
                if self == Self::Gpu || self.is_gang() {
                    list.get_or_insert_default().insert(
                        GPU.to_owned(),
                        k8s_openapi::apimachinery::pkg::api::resource::Quantity("8".to_owned()),
                    );
                }
            }
            node
        })
        .await?;
        // Muster's own kinds where they can say more than those of Kubernetes do.
        let own = scheduler_name == OWN_NAME && self.level().is_some();
        if self.is_gang() {
            let mut path = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups";
            if own {
                topology::prepare(client).await?;
                path = topology::OWN_GROUPS;
            }
            let groups = pods / self.gang_size();
            create_objects(client, path, "groups", groups, |i| self.group(i, own)).await?;
        }
        if self == Self::Preemption {
            preemption::fill(client, nodes).await?;
        }
        let path = "/api/v1/namespaces/default/pods";
        create_objects(client, path, "pods", pods, |i| self.pod(i, scheduler_name, own)).await
    }

    fn group(self, i: usize, own: bool) -> Value {
        if own && let Some((level, _)) = self.level() {
            return topology::own_group(&format!("gang-{i}"), self.gang_size(), level);
        }
        let mut group = json!({
            "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup",
            "metadata": {"name": format!("gang-{i}")},
            "spec": {"schedulingPolicy": {"gang": {"minCount": self.gang_size()}}},
        });
        if let Some((_, label)) = self.level() {
            group["spec"]["schedulingConstraints"] = json!({"topology": [{"key": label}]});
        }
        group
    }

    fn pod(self, i: usize, scheduler_name: &str, own: bool) -> Value {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("pod-{i:05}"), "labels": {"app": "bench"}},
            "spec": {
                "schedulerName": scheduler_name,
                "automountServiceAccountToken": false,
                "containers": [{
                    "name": "main", "image": "example.invalid/none",
                    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
                }],
            },
        });
        let spec = &mut pod["spec"];
        match self {
            Self::Plain => {}
            Self::Gpu => spec["containers"][0]["resources"]["limits"] = json!({GPU: "1"}),
            Self::Spread => {
                spec["topologySpreadConstraints"] = [ZONE_LABEL, HOST_LABEL]
                    .map(|key| {
                        json!({
                            "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
                            "labelSelector": {"matchLabels": {"app": "bench"}},
                        })
                    })
                    .into();
            }
            Self::AntiAffinity => {
                let set = format!("set-{}", i % 20);
                spec["affinity"]["podAntiAffinity"] = json!({
                    "requiredDuringSchedulingIgnoredDuringExecution": [{
                        "topologyKey": HOST_LABEL,
                        "labelSelector": {"matchLabels": {"set": set}},
                    }],
                });
                pod["metadata"]["labels"]["set"] = set.into();
            }
            Self::Preemption => {
                spec["priorityClassName"] = "high".into();
                spec["containers"][0]["resources"]["requests"]["cpu"] = "3".into();
            }
            Self::Gangs | Self::BigGangs | Self::GangsRack | Self::GangsBlock => {
                let gang = format!("gang-{}", i / self.gang_size());
                spec["containers"][0]["resources"]["limits"] = json!({GPU: "8"});
                pod["metadata"]["labels"]["gang"] = gang.as_str().into();
                if own {
                    pod["metadata"]["labels"][labels::POD_GROUP] = gang.into();
                } else {
                    pod["spec"]["schedulingGroup"] = json!({"podGroupName": gang});
                }
            }
        }
        pod
    }
}
