//! The compact view of what is scheduled: interned names, requests, selectors,
//! ports, and the shape that indistinguishable pods share.
//!
//! Owns the translation from wire objects to what plugins read. Must never hold
//! cluster state, or keep a wire object alive longer than its translation.

mod aligned;
mod features;
mod intern;
mod labels;
mod migration;
pub mod node_topology;
mod pod;
mod ports;
mod predicted;
mod related;
mod requests;
mod selector;
mod taint;
#[cfg(test)]
mod tests;
mod validate;
mod volumes;

pub use features::Features;
pub use intern::{Interner, Sym};
pub use labels::{LabelSet, Selector};
pub use migration::{BuiltIn, Migrated, Provisioner, migrate};
pub use node_topology::NodeTopology;
pub use pod::{
    DeviceIds, Pod, PodId, PodShape, PodStage, Predicted, ShapeId, compile_pod,
    normalized_image_name,
};
pub use ports::HostPort;
pub use related::{AffinityTerm, PodTerms, Related, Scope, SpreadConstraint, TermId, TermKind};
pub use requests::{PodRequests, ResId, ResourceTable, Resources, is_scalar_resource};
pub use selector::{NodeMatcher, NodeTerm, NodeTerms};
pub use taint::{Effect as TaintEffect, Taint, tolerates};
pub use volumes::{Disk, PodVolume, PodVolumes};

pub(crate) use aligned::aligned;
pub(crate) use requests::{amount_of, is_extended_resource};
pub(crate) use selector::{aggregate, is_empty_term};
pub use validate::{label_key_errors, label_value_errors};

pub(crate) use validate::is_qualified_name;
