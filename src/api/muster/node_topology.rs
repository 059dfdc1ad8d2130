//! `NodeTopology`: what a node is inside, as its agent reports it.
//!
//! One object per node, named as the node. It has no status subresource: one apply
//! of the agent writes it whole. `hardware` changes rarely and carries a hash over
//! itself, `kubelet` changes when the kubelet is restarted, `status` changes with
//! the pods of the node and carries a sequence number.
//!
//! Must never hold what depends on who reads it: free devices are those that the
//! kubelet counts as free, whatever a scheduler plans.

mod hardware;
mod kubelet;
mod state;

use serde::{Deserialize, Serialize};

pub use hardware::{
    CpuCache, Fabric, FabricHealth, FabricState, Gpu, GpuLink, Hardware, Hugepages, LinkVia,
    MAX_COUNT, MAX_CPU_LIST, MAX_DISTANCE, MAX_GPUS, MAX_MIG_DEVICES, MAX_NICS, MAX_NUMA_NODES,
    MAX_SWITCHES, Mig, MigDevice, MigPlacement, MigProfile, Nic, NumaKind, NumaNode, NumaSource,
    NvLinks, NvlinkDomain, PciPath, PciSwitch, PortState, Source,
};
pub use kubelet::{
    Confidence, CpuManager, KubeletSettings, MemoryManager, ReservedMemory, TopologyManager,
    TopologyPolicy, TopologyScope,
};
pub use state::{
    Activity, Device, DeviceState, DeviceVia, FreeHugepages, GpuHealth, GpuState, HeldMemory,
    MAX_DEVICES, MAX_HELD_BLOCKS, MAX_HOLDERS, NodeTopologyStatus, NumaState, PodHolding, PodRef,
    PodSet, Predictions, Recovery,
};

use crate::k8s::{ObjectMeta, nullable};

/// Types of conditions of a `NodeTopology`.
pub mod node_condition {
    /// The files of the kernel were read; else the message names what is missing.
    pub const HARDWARE_READ: &str = "HardwareRead";
    /// NVIDIA's management library answers, or there is no GPU that needs it.
    pub const NVML_AVAILABLE: &str = "NvmlAvailable";
    /// Every GPU on the bus is reported by its driver and none is lost or unhealthy.
    pub const GPUS_HEALTHY: &str = "GpusHealthy";
    /// Every GPU with NVLink is whole on its fabric: as many links as its neighbours,
    /// and registered where there is a fabric manager.
    pub const FABRIC_READY: &str = "FabricReady";
    /// The kubelet's pod resources API answers.
    pub const POD_RESOURCES_AVAILABLE: &str = "PodResourcesAvailable";
    /// The kubelet's settings were read from the kubelet or its file.
    pub const KUBELET_CONFIG_KNOWN: &str = "KubeletConfigKnown";
    /// Predicted placements were what the kubelet did.
    pub const PREDICTIONS_HOLD: &str = "PredictionsHold";
}

/// What a node is inside.
///
/// Serialised without metadata: whoever writes it adds `apiVersion`, `kind` and the
/// metadata of an apply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeTopology {
    /// Metadata; the name is the node's.
    #[serde(skip_serializing)]
    pub metadata: ObjectMeta,
    /// What is built in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Hardware>,
    /// How the kubelet is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<KubeletSettings>,
    /// What is in use, and what is wrong.
    #[serde(deserialize_with = "nullable")]
    pub status: NodeTopologyStatus,
}

impl NodeTopology {
    /// The kind's name.
    pub const KIND: &'static str = "NodeTopology";
    /// The kind's name in paths.
    pub const PLURAL: &'static str = "nodetopologies";
}

/// A short name of some bytes that is the same on every machine: FNV-1a with 128
/// bits. It tells whether a thing has changed; it is no protection against someone
/// who wants two things to look alike.
#[must_use]
pub fn digest(bytes: &[u8]) -> String {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let mix = |hash: u128, byte: &u8| (hash ^ u128::from(*byte)).wrapping_mul(PRIME);
    format!("fnv1a:{:032x}", bytes.iter().fold(OFFSET, mix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_the_published_one() {
        // Test vectors of the FNV reference code, fnv1a 128.
        for (text, expected) in [
            ("", "fnv1a:6c62272e07bb014262b821756295c58d"),
            ("a", "fnv1a:d228cb696f1a8caf78912b704e4a8964"),
            ("foobar", "fnv1a:343e1662793c64bf6f0d3597ba446f18"),
        ] {
            assert_eq!(digest(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn the_hash_covers_everything_but_itself() {
        let gpu = Gpu { uuid: Some("GPU-1".to_owned()), ..Gpu::default() };
        let plain = Hardware { gpus: vec![gpu], ..Hardware::default() };
        let sealed = plain.clone().sealed();
        assert_ne!(sealed.hash, "");
        assert_eq!(sealed.clone().sealed(), sealed, "sealing twice changes nothing");
        let mut other = sealed.clone();
        other.gpus[0].memory_bytes = 1;
        assert_ne!(other.sealed().hash, sealed.hash);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let topology = NodeTopology {
            hardware: Some(Hardware::default().sealed()),
            kubelet: Some(KubeletSettings::default()),
            ..NodeTopology::default()
        };
        let json = serde_json::to_string(&topology).unwrap();
        assert_eq!(serde_json::from_str::<NodeTopology>(&json).unwrap(), topology);
        let empty: NodeTopology = serde_json::from_str(r#"{"status": null}"#).unwrap();
        assert_eq!(empty, NodeTopology::default());
    }
}
