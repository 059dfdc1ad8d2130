//! Which plugins there are, at which points, and which of them are on.
//!
//! Owns kube-scheduler v1.37's table of plugins and its defaults. A plugin that is
//! not in the table is whatever the registry says.

use std::sync::Arc;

use muster_core::framework::ExtensionPoint::{
    self, Bind, Filter, Permit, PlacementGenerate, PlacementScore, PodGroupPostFilter, PostFilter,
    PreBind, PreEnqueue, PreFilter, PreScore, QueueSort, Reserve, Score,
};
use muster_core::framework::{Plugin, PluginArgs, Registry, RegistryError};

use super::decode::alike;
use super::types::{PluginRef, PluginSet};

/// kube-scheduler's plugins and where they are called.
const UPSTREAM: [(&str, &[ExtensionPoint]); 24] = [
    ("SchedulingGates", &[PreEnqueue]),
    ("PrioritySort", &[QueueSort]),
    ("NodeName", &[PreFilter, Filter]),
    ("NodeUnschedulable", &[PreFilter, Filter]),
    ("TaintToleration", &[PreFilter, Filter, PreScore, Score]),
    ("NodeAffinity", &[PreFilter, Filter, PreScore, Score]),
    ("NodePorts", &[PreFilter, Filter]),
    ("NodeResourcesFit", &[PreFilter, Filter, PreScore, Score, PlacementScore]),
    ("VolumeRestrictions", &[PreFilter, Filter]),
    ("NodeVolumeLimits", &[PreFilter, Filter]),
    ("VolumeBinding", &[PreFilter, Filter, PreScore, Score, Reserve, PreBind]),
    ("VolumeZone", &[PreFilter, Filter]),
    ("PodTopologySpread", &[PreFilter, Filter, PreScore, Score]),
    ("InterPodAffinity", &[PreFilter, Filter, PreScore, Score]),
    (
        "DynamicResources",
        &[PreEnqueue, PreFilter, Filter, PostFilter, PodGroupPostFilter, Score, Reserve, PreBind],
    ),
    ("DefaultPreemption", &[PreEnqueue, PostFilter, PodGroupPostFilter]),
    ("NodeResourcesBalancedAllocation", &[PreScore, Score]),
    ("ImageLocality", &[Score]),
    ("DefaultBinder", &[Bind]),
    ("NodeDeclaredFeatures", &[PreFilter, Filter]),
    ("GangScheduling", &[PreEnqueue, Permit]),
    ("DeferredPodScheduling", &[PreFilter, Filter, Permit]),
    ("TopologyPlacementGenerator", &[PlacementGenerate]),
    ("PodGroupPodsCount", &[PlacementScore]),
];

/// Weights of the default plugins, in order; none is zero.
const DEFAULTS: [(&str, Option<i32>); 20] = [
    ("SchedulingGates", None),
    ("PrioritySort", None),
    ("NodeName", None),
    ("NodeUnschedulable", None),
    ("TaintToleration", Some(3)),
    ("NodeAffinity", Some(2)),
    ("NodePorts", None),
    ("NodeResourcesFit", Some(1)),
    ("VolumeRestrictions", None),
    ("NodeVolumeLimits", None),
    ("VolumeBinding", None),
    ("VolumeZone", None),
    ("PodTopologySpread", Some(2)),
    ("InterPodAffinity", Some(2)),
    ("DynamicResources", Some(2)),
    ("DefaultPreemption", None),
    ("NodeResourcesBalancedAllocation", Some(1)),
    ("ImageLocality", Some(1)),
    ("DefaultBinder", None),
    ("NodeDeclaredFeatures", None),
];

/// What is on at `multiPoint` if nothing is said.
pub(super) fn default_plugins() -> PluginSet {
    let plugin = |(name, weight): (&str, Option<i32>)| PluginRef { name: name.to_owned(), weight };
    PluginSet { enabled: DEFAULTS.into_iter().map(plugin).collect(), disabled: Vec::new() }
}

/// kube-scheduler's plugins and those of a registry.
#[derive(Clone, Copy)]
pub(super) struct Catalog<'a> {
    registry: &'a Registry,
}

impl<'a> Catalog<'a> {
    pub(super) fn new(registry: &'a Registry) -> Self {
        Self { registry }
    }

    /// Whether there is such a plugin, be it that it does nothing here.
    pub(super) fn knows(&self, plugin: &str) -> bool {
        upstream(plugin).is_some() || self.acts(plugin)
    }

    /// Whether the core has such a plugin.
    pub(super) fn acts(&self, plugin: &str) -> bool {
        self.registry.has(plugin)
    }

    /// The plugin that is probably meant.
    pub(super) fn near(&self, slip: &str) -> Option<&str> {
        let mut names = self.registry.names().chain(UPSTREAM.iter().map(|(name, _)| *name));
        names.find(|name| alike(name, slip))
    }

    /// Where a known plugin is called. One that kube-scheduler does not have is made
    /// to find out.
    pub(super) fn points(
        &self,
        plugin: &str,
        args: &PluginArgs,
    ) -> Result<Vec<ExtensionPoint>, RegistryError> {
        if let Some(points) = upstream(plugin) {
            return Ok(points.to_vec());
        }
        let made: Arc<dyn Plugin> = self.registry.make(plugin, args)?;
        Ok(ExtensionPoint::ALL.into_iter().filter(|point| point.is_of(&*made)).collect())
    }
}

fn upstream(plugin: &str) -> Option<&'static [ExtensionPoint]> {
    UPSTREAM.iter().find(|(name, _)| *name == plugin).map(|(_, points)| *points)
}
