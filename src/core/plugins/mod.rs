//! The in-tree plugins, one file each, at parity with kube-scheduler v1.37.1.
//!
//! Each owns its verdicts, reasons and scores. Must never read anything but the
//! shape, the node and what its own `stamp` covers: results are cached by that.

mod default_binder;
mod default_preemption;
mod external_approval;
mod gpu_links;
mod image_locality;
mod inter_pod_affinity;
pub mod names;
mod node_affinity;
mod node_declared_features;
mod node_name;
mod node_numa_fit;
mod node_ports;
mod node_resources;
mod node_unschedulable;
mod pod_topology_spread;
mod priority_sort;
mod scheduling_gates;
mod taint_toleration;
#[cfg(test)]
mod tests;
mod volumes;

pub use default_binder::DefaultBinder;
pub use default_preemption::{DefaultPreemption, DefaultPreemptionArgs};
pub use external_approval::ExternalApproval;
pub use gpu_links::GpuLinks;
pub use image_locality::ImageLocality;
pub use inter_pod_affinity::{InterPodAffinity, InterPodAffinityArgs};
pub use node_affinity::{NodeAffinity, NodeAffinityArgs};
pub use node_declared_features::NodeDeclaredFeatures;
pub use node_name::NodeName;
pub use node_numa_fit::NodeNumaFit;
pub use node_ports::NodePorts;
pub use node_resources::{
    BalancedAllocation, BalancedAllocationArgs, FitArgs, NodeResourcesFit, ResourceSpec,
    ScoringStrategy, ShapePoint,
};
pub use node_unschedulable::NodeUnschedulable;
pub use pod_topology_spread::{PodTopologySpread, PodTopologySpreadArgs};
pub use priority_sort::PrioritySort;
pub use scheduling_gates::SchedulingGates;
pub use taint_toleration::TaintToleration;
pub use volumes::{
    NodeVolumeLimits, VolumeBinding, VolumeBindingArgs, VolumeRestrictions, VolumeZone,
};
