//! How the kubelet of a node is set, as far as it decides which pods it admits.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::hardware::{MAX_COUNT, MAX_CPU_LIST, MAX_NUMA_NODES};
use crate::k8s::nullable;
use crate::muster::schema::names;

names! {
    /// How sure the settings are.
    Confidence {
        /// From what is seen of its decisions, the rest being defaults.
        #[default]
        Inferred,
        /// From its configuration file; flags may override it.
        File,
        /// From the kubelet itself, `/configz`.
        Configz,
    }
}

names! {
    /// The policy of the Topology Manager.
    TopologyPolicy {
        /// Nothing is aligned.
        #[default]
        None,
        /// Aligned if it can be.
        BestEffort,
        /// Refused if not aligned as well as an empty node could.
        Restricted,
        /// Refused if not on one NUMA node.
        SingleNumaNode,
    }
}

names! {
    /// What the Topology Manager aligns as one.
    TopologyScope {
        /// Each container by itself.
        #[default]
        Container,
        /// The pod as a whole.
        Pod,
    }
}

/// How the kubelet is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct KubeletSettings {
    /// How sure this is. Configz: the kubelet said it. File: from its configuration file, which
    /// flags may override. Inferred: from what is seen of its decisions, the rest being
    /// defaults.
    pub confidence: Confidence,
    /// The kubelet's version, as in v1.36.2.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64), regex(pattern = "^[ -~]*$"))]
    pub version: String,
    /// The Topology Manager.
    pub topology_manager: TopologyManager,
    /// The CPU Manager.
    pub cpu_manager: CpuManager,
    /// The Memory Manager.
    pub memory_manager: MemoryManager,
    /// Feature gates that were set, as in PodLevelResourceManagers=true.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 128),
        inner(length(max = 128), regex(pattern = "^[A-Za-z0-9]+=(true|false)$")),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub feature_gates: Vec<String>,
}

/// The Topology Manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyManager {
    /// None: nothing is aligned. BestEffort: aligned if it can be. Restricted: refused if not
    /// aligned as well as an empty node could. SingleNumaNode: refused if not on one NUMA
    /// node.
    pub policy: TopologyPolicy,
    /// Container: each container is aligned by itself. Pod: the pod as a whole.
    pub scope: TopologyScope,
    /// The option prefer-closest-numa-nodes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub prefer_closest_numa_nodes: bool,
    /// The option max-allowable-numa-nodes; 8 if not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1024))]
    pub max_allowable_numa_nodes: Option<u32>,
}

/// The CPU Manager.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CpuManager {
    /// Whether CPUs are given to containers alone: the policy static.
    #[serde(rename = "static")]
    pub is_static: bool,
    /// Options of the policy that are on, as in full-pcpus-only.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        inner(length(max = 64), regex(pattern = "^[a-z0-9-]*$")),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub options: Vec<String>,
    /// CPUs that are kept for the system, as in 0-1, if they are named.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_CPU_LIST), regex(pattern = "^[0-9,-]*$"))]
    pub reserved_cpus: Option<String>,
    /// What is kept for the system if no CPUs are named, in thousandths of a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100_000_000))]
    pub reserved_milli_cpus: Option<u32>,
}

/// The Memory Manager.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MemoryManager {
    /// Whether memory is given by NUMA node: the policy Static.
    #[serde(rename = "static")]
    pub is_static: bool,
    /// Memory that is kept for the system.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_NUMA_NODES * 8), extend("x-kubernetes-list-type" = "atomic"))]
    pub reserved: Vec<ReservedMemory>,
}

/// Memory of a NUMA node that is kept for the system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReservedMemory {
    /// The NUMA node.
    #[schemars(range(max = 1_048_575))]
    pub numa: u32,
    /// The resource: memory, or hugepages of a size.
    #[schemars(length(max = 63), regex(pattern = "^[A-Za-z0-9-]*$"))]
    pub resource: String,
    /// How much.
    #[schemars(range(max = MAX_COUNT))]
    pub bytes: u64,
}
