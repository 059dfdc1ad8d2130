//! Plugins by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::{Args, Plugin};
use crate::plugins::{self, names};

/// Typed arguments of the plugins that take some.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PluginArgs {
    /// NodeResourcesFit.
    pub fit: plugins::FitArgs,
    /// NodeResourcesBalancedAllocation.
    pub balanced: plugins::BalancedAllocationArgs,
    /// NodeAffinity.
    pub node_affinity: plugins::NodeAffinityArgs,
    /// PodTopologySpread.
    pub pod_topology_spread: plugins::PodTopologySpreadArgs,
    /// InterPodAffinity.
    pub inter_pod_affinity: plugins::InterPodAffinityArgs,
    /// DefaultPreemption.
    pub default_preemption: plugins::DefaultPreemptionArgs,
    /// VolumeBinding.
    pub volume_binding: plugins::VolumeBindingArgs,
    /// Every other plugin, by name: as written.
    pub custom: BTreeMap<String, Value>,
}

impl PluginArgs {
    /// The arguments of a plugin that reads them itself.
    #[must_use]
    pub fn of(&self, plugin: &'static str) -> Args<'_> {
        Args::new(plugin, self.custom.get(plugin))
    }
}

/// Makes a plugin.
pub type Factory = Arc<dyn Fn(&PluginArgs) -> Result<Arc<dyn Plugin>, RegistryError> + Send + Sync>;

/// Why a plugin cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// No such name.
    #[error("plugin {0:?} is not registered: known plugins are {1}")]
    Unknown(String, String),
    /// Too many in one profile.
    #[error("a profile has {0} plugins: at most {1} are possible")]
    TooManyPlugins(usize, usize),
    /// Weights too large.
    #[error(
        "total score of Score plugins could overflow: the sum of weights times 100 is {0}, \
         lower the weights to stay below 2147483647"
    )]
    Overflow(i64),
    /// It has another name than the one it is registered under.
    #[error("plugin {1:?} is registered as {0:?}: register it under its own name")]
    Misnamed(String, &'static str),
    /// Its arguments are wrong.
    #[error("{plugin}: {field}: {problem}")]
    Args {
        /// The plugin.
        plugin: &'static str,
        /// The field.
        field: String,
        /// What is wrong and what would be right.
        problem: String,
    },
}

/// Plugins by name. Users add their own with [`Registry::with`].
#[derive(Clone)]
pub struct Registry {
    factories: BTreeMap<String, Factory>,
}

impl Registry {
    /// Everything that ships with Muster.
    #[must_use]
    pub fn in_tree() -> Self {
        let mut registry = Self { factories: BTreeMap::new() };
        registry.add_simple(names::SCHEDULING_GATES, || Arc::new(plugins::SchedulingGates));
        registry.add_simple(names::PRIORITY_SORT, || Arc::new(plugins::PrioritySort));
        registry.add_simple(names::NODE_NAME, || Arc::new(plugins::NodeName));
        registry.add_simple(names::NODE_UNSCHEDULABLE, || Arc::new(plugins::NodeUnschedulable));
        registry.add_simple(names::TAINT_TOLERATION, || Arc::new(plugins::TaintToleration));
        registry.add_simple(names::NODE_PORTS, || Arc::new(plugins::NodePorts));
        registry.add_simple(names::IMAGE_LOCALITY, || Arc::new(plugins::ImageLocality));
        registry.add_simple(names::DEFAULT_BINDER, || Arc::new(plugins::DefaultBinder));
        registry.add_simple(names::VOLUME_RESTRICTIONS, || Arc::new(plugins::VolumeRestrictions));
        registry.add_simple(names::NODE_VOLUME_LIMITS, || Arc::new(plugins::NodeVolumeLimits));
        registry.add_simple(names::VOLUME_ZONE, || Arc::new(plugins::VolumeZone));
        registry
            .add_simple(names::NODE_DECLARED_FEATURES, || Arc::new(plugins::NodeDeclaredFeatures));
        registry
            .plugin(names::NODE_NUMA_FIT, plugins::NodeNumaFit::new)
            .plugin(names::GPU_LINKS, plugins::GpuLinks::new)
            .plugin(names::EXTERNAL_APPROVAL, plugins::ExternalApproval::new)
            .with(
                names::DEFAULT_PREEMPTION,
                Arc::new(|a| Ok(Arc::new(plugins::DefaultPreemption::new(&a.default_preemption)?))),
            )
            .with(
                names::VOLUME_BINDING,
                Arc::new(|a| Ok(Arc::new(plugins::VolumeBinding::new(&a.volume_binding)?))),
            )
            .with(
                names::NODE_AFFINITY,
                Arc::new(|a| Ok(Arc::new(plugins::NodeAffinity::new(&a.node_affinity)?))),
            )
            .with(
                names::NODE_RESOURCES_FIT,
                Arc::new(|a| Ok(Arc::new(plugins::NodeResourcesFit::new(&a.fit)?))),
            )
            .with(
                names::POD_TOPOLOGY_SPREAD,
                Arc::new(|a| {
                    Ok(Arc::new(plugins::PodTopologySpread::new(&a.pod_topology_spread)?))
                }),
            )
            .with(
                names::INTER_POD_AFFINITY,
                Arc::new(|a| Ok(Arc::new(plugins::InterPodAffinity::new(&a.inter_pod_affinity)?))),
            )
            .with(
                names::NODE_RESOURCES_BALANCED_ALLOCATION,
                Arc::new(|a| Ok(Arc::new(plugins::BalancedAllocation::new(&a.balanced)?))),
            )
    }

    /// Adds a plugin that is made from its arguments as written. A plugin of that
    /// name that is there already is replaced.
    #[must_use]
    pub fn plugin<P: Plugin + 'static>(
        self,
        name: &'static str,
        make: impl Fn(&Args<'_>) -> Result<P, RegistryError> + Send + Sync + 'static,
    ) -> Self {
        self.with(name, Arc::new(move |args| Ok(Arc::new(make(&args.of(name))?))))
    }

    /// Adds a plugin.
    #[must_use]
    pub fn with(mut self, name: &str, factory: Factory) -> Self {
        self.factories.insert(name.to_owned(), factory);
        self
    }

    fn add_simple(&mut self, name: &str, make: fn() -> Arc<dyn Plugin>) {
        self.factories.insert(name.to_owned(), Arc::new(move |_| Ok(make())));
    }

    /// The names of all plugins, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.factories.keys().map(String::as_str)
    }

    /// Whether there is a plugin of that name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.factories.contains_key(name)
    }

    /// Makes the plugin of that name.
    pub fn make(&self, name: &str, args: &PluginArgs) -> Result<Arc<dyn Plugin>, RegistryError> {
        let Some(factory) = self.factories.get(name) else {
            let known = self.factories.keys().cloned().collect::<Vec<_>>().join(", ");
            return Err(RegistryError::Unknown(name.to_owned(), known));
        };
        let plugin = factory(args)?;
        if plugin.name() != name {
            return Err(RegistryError::Misnamed(name.to_owned(), plugin.name()));
        }
        Ok(plugin)
    }
}
