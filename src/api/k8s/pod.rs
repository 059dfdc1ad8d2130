//! Pods.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{
    LabelSelector, NodeSelector, ObjectMeta, PreferredSchedulingTerm, ResourceList, Time, Volume,
    nullable,
};

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is asked for.
    #[serde(deserialize_with = "nullable")]
    pub spec: PodSpec,
    /// What is.
    #[serde(deserialize_with = "nullable")]
    pub status: PodStatus,
}

/// The pod spec fields the core reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The node it is bound to; empty while pending.
    #[serde(deserialize_with = "nullable")]
    pub node_name: String,
    /// Which scheduler it asks for.
    #[serde(deserialize_with = "nullable")]
    pub scheduler_name: String,
    /// Priority.
    pub priority: Option<i32>,
    /// The class its priority comes from.
    #[serde(deserialize_with = "nullable")]
    pub priority_class_name: String,
    /// `PreemptLowerPriority` or `Never`.
    pub preemption_policy: Option<String>,
    /// Labels a node must have.
    #[serde(deserialize_with = "nullable")]
    pub node_selector: BTreeMap<String, String>,
    /// Affinity.
    pub affinity: Option<Affinity>,
    /// Tolerations.
    #[serde(deserialize_with = "nullable")]
    pub tolerations: Vec<Toleration>,
    /// Containers.
    #[serde(deserialize_with = "nullable")]
    pub containers: Vec<Container>,
    /// Init containers, sidecars among them.
    #[serde(deserialize_with = "nullable")]
    pub init_containers: Vec<Container>,
    /// Overhead of the runtime class.
    #[serde(deserialize_with = "nullable")]
    pub overhead: ResourceList,
    /// Pod-level resources.
    pub resources: Option<ResourceRequirements>,
    /// Spread constraints.
    #[serde(deserialize_with = "nullable")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// Gates that keep the pod out of scheduling.
    #[serde(deserialize_with = "nullable")]
    pub scheduling_gates: Vec<PodSchedulingGate>,
    /// Native gang membership.
    pub scheduling_group: Option<SchedulingGroup>,
    /// Seconds the pod may be active.
    pub active_deadline_seconds: Option<i64>,
    /// Volumes.
    #[serde(deserialize_with = "nullable")]
    pub volumes: Vec<Volume>,
    /// Uses the node's network.
    #[serde(deserialize_with = "nullable")]
    pub host_network: bool,
    /// Whether the pod shares the node's user namespace; absent is yes.
    pub host_users: Option<bool>,
    /// Containers added for debugging.
    #[serde(deserialize_with = "nullable")]
    pub ephemeral_containers: Vec<EphemeralContainer>,
    /// Seconds between eviction and kill.
    pub termination_grace_period_seconds: Option<i64>,
}

/// Native gang membership.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulingGroup {
    /// The `scheduling.k8s.io` PodGroup.
    pub pod_group_name: Option<String>,
}

/// A scheduling gate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct PodSchedulingGate {
    /// Name of the gate.
    pub name: String,
}

/// Node, pod and pod anti-affinity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// Node affinity.
    pub node_affinity: Option<NodeAffinity>,
    /// Pod affinity.
    pub pod_affinity: Option<PodAffinity>,
    /// Pod anti-affinity.
    pub pod_anti_affinity: Option<PodAffinity>,
}

/// Node affinity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinity {
    /// Terms of which one must match.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<NodeSelector>,
    /// Weighted wishes.
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub preferred: Option<Vec<PreferredSchedulingTerm>>,
}

/// Pod affinity or anti-affinity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinity {
    /// Terms that must all hold.
    #[serde(
        rename = "requiredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "nullable"
    )]
    pub required: Vec<PodAffinityTerm>,
    /// Weighted wishes.
    #[serde(
        rename = "preferredDuringSchedulingIgnoredDuringExecution",
        deserialize_with = "nullable"
    )]
    pub preferred: Vec<WeightedPodAffinityTerm>,
}

/// A term of pod affinity.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinityTerm {
    /// Which pods.
    pub label_selector: Option<LabelSelector>,
    /// In which namespaces.
    #[serde(deserialize_with = "nullable")]
    pub namespaces: Vec<String>,
    /// Same topology value means together.
    pub topology_key: String,
    /// Namespaces by label.
    pub namespace_selector: Option<LabelSelector>,
    /// Keys of the pod's own labels merged into the selector.
    #[serde(deserialize_with = "nullable")]
    pub match_label_keys: Vec<String>,
    /// As `match_label_keys`, negated.
    #[serde(deserialize_with = "nullable")]
    pub mismatch_label_keys: Vec<String>,
}

/// A weighted pod affinity term.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WeightedPodAffinityTerm {
    /// Weight, 1 to 100.
    pub weight: i32,
    /// The term.
    pub pod_affinity_term: PodAffinityTerm,
}

/// A toleration.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    /// Taint key; empty with `Exists` tolerates all.
    #[serde(deserialize_with = "nullable")]
    pub key: String,
    /// `Exists` or `Equal` (default).
    #[serde(deserialize_with = "nullable")]
    pub operator: String,
    /// Taint value for `Equal`.
    #[serde(deserialize_with = "nullable")]
    pub value: String,
    /// Effect; empty matches all.
    #[serde(deserialize_with = "nullable")]
    pub effect: String,
}

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Name.
    pub name: String,
    /// Image.
    #[serde(deserialize_with = "nullable")]
    pub image: String,
    /// Ports.
    #[serde(deserialize_with = "nullable")]
    pub ports: Vec<ContainerPort>,
    /// Resources.
    #[serde(deserialize_with = "nullable")]
    pub resources: ResourceRequirements,
    /// `Always` on an init container makes it a sidecar.
    pub restart_policy: Option<String>,
    /// What to do when it ends.
    #[serde(deserialize_with = "nullable")]
    pub restart_policy_rules: Vec<RestartRule>,
    /// Whether any of its mounts has bind mount options.
    #[serde(rename = "volumeMounts", deserialize_with = "any_bind_mount_options")]
    pub bind_mount_options: bool,
}

/// A container added for debugging.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct EphemeralContainer {
    /// Whether any of its mounts has bind mount options.
    #[serde(rename = "volumeMounts", deserialize_with = "any_bind_mount_options")]
    pub bind_mount_options: bool,
}

/// What to do when a container ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RestartRule {
    /// `Restart` or `RestartAllContainers`.
    #[serde(deserialize_with = "nullable")]
    pub action: String,
}

/// Of a list of mounts only this matters; mounts are many and never kept.
fn any_bind_mount_options<'de, D: serde::Deserializer<'de>>(d: D) -> Result<bool, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Mount {
        #[serde(deserialize_with = "nullable")]
        bind_mount_options: Vec<serde::de::IgnoredAny>,
    }
    let mounts = Option::<Vec<Mount>>::deserialize(d)?.unwrap_or_default();
    Ok(mounts.iter().any(|m| !m.bind_mount_options.is_empty()))
}

/// A container port.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPort {
    /// Port on the host; 0 is none.
    #[serde(deserialize_with = "nullable")]
    pub host_port: i32,
    /// Host address; empty is all.
    #[serde(rename = "hostIP", deserialize_with = "nullable")]
    pub host_ip: String,
    /// Protocol; empty is TCP.
    #[serde(deserialize_with = "nullable")]
    pub protocol: String,
}

/// Requests and limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ResourceRequirements {
    /// Requests.
    #[serde(deserialize_with = "nullable")]
    pub requests: ResourceList,
}

/// A topology spread constraint.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologySpreadConstraint {
    /// Allowed difference.
    pub max_skew: i32,
    /// Node label.
    pub topology_key: String,
    /// `DoNotSchedule` or `ScheduleAnyway`.
    pub when_unsatisfiable: String,
    /// Which pods count.
    pub label_selector: Option<LabelSelector>,
    /// Fewest domains.
    pub min_domains: Option<i32>,
    /// `Honor` or `Ignore`.
    pub node_affinity_policy: Option<String>,
    /// `Honor` or `Ignore`.
    pub node_taints_policy: Option<String>,
    /// Keys of the pod's own labels merged into the selector.
    #[serde(deserialize_with = "nullable")]
    pub match_label_keys: Vec<String>,
}

/// The pod status fields the core reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// Phase.
    #[serde(deserialize_with = "nullable")]
    pub phase: String,
    /// Conditions.
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<PodCondition>,
    /// Why the whole pod is as it is: `UnexpectedAdmissionError`, `Evicted`.
    #[serde(deserialize_with = "nullable")]
    pub reason: String,
    /// The same for people.
    #[serde(deserialize_with = "nullable")]
    pub message: String,
    /// `Guaranteed`, `Burstable` or `BestEffort`; set by the API server when it is made.
    #[serde(deserialize_with = "nullable")]
    pub qos_class: String,
    /// Node the pod is expected on.
    #[serde(deserialize_with = "nullable")]
    pub nominated_node_name: String,
    /// When the kubelet took it.
    pub start_time: Option<Time>,
    /// Pod-level resources as actuated.
    pub resources: Option<ResourceStatus>,
    /// Pod-level resources as allocated.
    pub allocated_resources: Option<ResourceList>,
    /// Status per container.
    #[serde(deserialize_with = "nullable")]
    pub container_statuses: Vec<ContainerStatus>,
    /// Status per init container.
    #[serde(deserialize_with = "nullable")]
    pub init_container_statuses: Vec<ContainerStatus>,
}

/// A pod condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodCondition {
    /// Type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Reason.
    #[serde(deserialize_with = "nullable")]
    pub reason: String,
    /// Message.
    #[serde(deserialize_with = "nullable")]
    pub message: String,
}

/// Status of a container: what it does, and what in-place resize has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// Container name.
    pub name: String,
    /// Resources the node set aside.
    pub allocated_resources: Option<ResourceList>,
    /// Resources in force.
    pub resources: Option<ResourceStatus>,
    /// What it does now.
    #[serde(deserialize_with = "nullable")]
    pub state: ContainerState,
}

/// What a container does, if it does not run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// It has not started, or not started again.
    pub waiting: Option<ContainerReason>,
    /// It has ended.
    pub terminated: Option<ContainerReason>,
}

/// Why a container does not run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerReason {
    /// In one word: `ImagePullBackOff`, `OOMKilled`.
    #[serde(deserialize_with = "nullable")]
    pub reason: String,
    /// For people.
    #[serde(deserialize_with = "nullable")]
    pub message: String,
    /// What it ended with.
    #[serde(deserialize_with = "nullable")]
    pub exit_code: i32,
}

/// Resources in force: here an absent list differs from an empty one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ResourceStatus {
    /// Requests.
    pub requests: Option<ResourceList>,
}
