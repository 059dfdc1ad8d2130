//! Profiles: which plugins run, in which order, with which weights.

use std::sync::Arc;

use super::MAX_SCORE;
use super::{Plugin, PluginArgs, Registration, Registry, RegistryError};
use crate::plugins::names;
use crate::queue::MAX_PLUGINS;

/// A profile: a dense index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProfileId(pub u16);

/// A plugin with the weight of its score.
#[derive(Clone)]
pub struct Weighted {
    /// The plugin.
    pub plugin: Arc<dyn Plugin>,
    /// Weight; 0 counts as 1, as upstream.
    pub weight: i64,
    /// What it registered for, asked once.
    pub(crate) events: Arc<[Registration]>,
    /// Whether what it says may be kept.
    pub(crate) cacheable: bool,
}

impl Weighted {
    fn new(plugin: Arc<dyn Plugin>, weight: i64) -> Self {
        let (events, cacheable) = (plugin.events().into(), plugin.is_cacheable());
        Self { plugin, weight: weight.max(1), events, cacheable }
    }
}

/// An immutable set of plugins under a scheduler name.
#[derive(Clone)]
pub struct Profile {
    scheduler_name: Arc<str>,
    plugins: Vec<Weighted>,
    args: Arc<PluginArgs>,
}

/// The default plugins in call order, with weights.
const DEFAULTS: &[(&str, i64)] = &[
    (names::SCHEDULING_GATES, 0),
    (names::PRIORITY_SORT, 0),
    (names::NODE_NAME, 0),
    (names::NODE_UNSCHEDULABLE, 0),
    (names::TAINT_TOLERATION, 3),
    (names::NODE_AFFINITY, 2),
    (names::NODE_PORTS, 0),
    (names::NODE_RESOURCES_FIT, 1),
    (names::VOLUME_RESTRICTIONS, 0),
    (names::NODE_VOLUME_LIMITS, 0),
    (names::VOLUME_BINDING, 0),
    (names::VOLUME_ZONE, 0),
    (names::POD_TOPOLOGY_SPREAD, 2),
    (names::INTER_POD_AFFINITY, 2),
    (names::DEFAULT_PREEMPTION, 0),
    (names::NODE_RESOURCES_BALANCED_ALLOCATION, 1),
    (names::IMAGE_LOCALITY, 1),
    (names::DEFAULT_BINDER, 0),
    (names::NODE_DECLARED_FEATURES, 0),
];

impl Profile {
    /// Names and weights of the default plugins, in call order.
    #[must_use]
    pub fn defaults() -> &'static [(&'static str, i64)] {
        DEFAULTS
    }

    /// The default plugins under a scheduler name.
    #[must_use]
    pub fn default_named(name: &str) -> Self {
        Self::build(name, DEFAULTS.iter().copied(), &PluginArgs::default(), &Registry::in_tree())
            .expect("the default profile is valid")
    }

    /// A profile from plugin names and weights in call order.
    pub fn build<'a>(
        name: &str,
        plugins: impl IntoIterator<Item = (&'a str, i64)>,
        args: &PluginArgs,
        registry: &Registry,
    ) -> Result<Self, RegistryError> {
        let plugins = plugins
            .into_iter()
            .map(|(plugin, weight)| Ok(Weighted::new(registry.make(plugin, args)?, weight)))
            .collect::<Result<Vec<_>, _>>()?;
        let args = Arc::new(args.clone());
        let profile = Self { scheduler_name: name.into(), plugins, args };
        profile.check()?;
        Ok(profile)
    }

    /// Limits: plugins fit a word, summed scores fit 32 bits.
    fn check(&self) -> Result<(), RegistryError> {
        if self.plugins.len() > MAX_PLUGINS {
            return Err(RegistryError::TooManyPlugins(self.plugins.len(), MAX_PLUGINS));
        }
        let scoring = self.plugins.iter().filter(|p| p.plugin.as_score().is_some());
        let total =
            scoring.map(|p| p.weight.saturating_mul(MAX_SCORE)).fold(0, i64::saturating_add);
        if total > i64::from(i32::MAX) {
            return Err(RegistryError::Overflow(total));
        }
        Ok(())
    }

    /// Adds a plugin at the end.
    #[must_use]
    pub fn with_plugin(mut self, plugin: Arc<dyn Plugin>, weight: i64) -> Self {
        self.plugins.push(Weighted::new(plugin, weight));
        self
    }

    /// Pods with this `schedulerName` are ours.
    #[must_use]
    pub fn scheduler_name(&self) -> &Arc<str> {
        &self.scheduler_name
    }

    /// All plugins in call order.
    #[must_use]
    pub fn plugins(&self) -> &[Weighted] {
        &self.plugins
    }

    /// The arguments that its plugins were made with.
    #[must_use]
    pub fn args(&self) -> &PluginArgs {
        &self.args
    }

    /// Whether verdicts and scores may be kept from one pod to the next.
    pub(crate) fn is_cacheable(&self) -> bool {
        self.plugins.iter().all(|p| p.cacheable)
    }

    /// What plugins read of a pod beside its shape.
    pub(crate) fn facets(&self, pod: &muster_api::k8s::Pod) -> Box<[(&'static str, Box<str>)]> {
        let plugins = self.plugins.iter().map(|p| &p.plugin);
        plugins.filter_map(|p| Some((p.name(), p.facet(pod)?))).collect()
    }

    pub(crate) fn position(&self, plugin: &str) -> Option<usize> {
        self.plugins.iter().position(|p| p.plugin.name() == plugin)
    }
}
