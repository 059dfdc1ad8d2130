//! Profiles: which plugins run, in which order, with which weights.

use std::sync::Arc;

use super::{
    ExtenderSpec, ExtensionPoint, MAX_SCORE, Plugin, PluginArgs, Registration, Registry,
    RegistryError,
};
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
///
/// A plugin is known by its position. Positions of plugins that filter ascend in
/// the order in which they filter; the other points have an order of their own.
#[derive(Clone)]
pub struct Profile {
    scheduler_name: Arc<str>,
    plugins: Vec<Weighted>,
    extenders: Arc<[ExtenderSpec]>,
    points: Points,
    args: Arc<PluginArgs>,
    /// Which reload brought it; the first has 0.
    version: u64,
}

/// Positions of plugins, by extension point, in call order.
type Points = [Vec<usize>; ExtensionPoint::COUNT];

/// What a profile is to be made of: names, in the order of calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileSpec {
    /// `spec.schedulerName` of its pods.
    pub scheduler_name: String,
    /// Every plugin once, with the weight of its score.
    pub plugins: Vec<(String, i64)>,
    /// Who is called at which point, in order. A plugin that is named at a point
    /// it does not have is not called there. What Filter and Score need from
    /// PreFilter and PreScore is prepared in any case.
    pub points: Vec<(ExtensionPoint, Vec<String>)>,
    /// Arguments of the plugins.
    pub args: PluginArgs,
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

    /// A profile from plugin names and weights in call order, each plugin at every
    /// point it has.
    pub fn build<'a>(
        name: &str,
        plugins: impl IntoIterator<Item = (&'a str, i64)>,
        args: &PluginArgs,
        registry: &Registry,
    ) -> Result<Self, RegistryError> {
        let mut profile = Self::empty(name, args);
        for (plugin, weight) in plugins {
            profile = profile.with_plugin(registry.make(plugin, args)?, weight);
        }
        profile.check()?;
        Ok(profile)
    }

    /// The profile that a configuration describes.
    pub fn from_spec(spec: &ProfileSpec, registry: &Registry) -> Result<Self, RegistryError> {
        let mut profile = Self::empty(&spec.scheduler_name, &spec.args);
        for (plugin, weight) in in_filter_order(spec) {
            profile.plugins.push(Weighted::new(registry.make(plugin, &spec.args)?, weight));
        }
        for (point, names) in &spec.points {
            let has = |at: &usize| point.is_of(&*profile.plugins[*at].plugin);
            let positions = names.iter().filter_map(|name| profile.position(name)).filter(has);
            profile.points[*point as usize] = positions.collect();
        }
        profile.prepare_filters();
        profile.check()?;
        Ok(profile)
    }

    fn empty(name: &str, args: &PluginArgs) -> Self {
        Self {
            scheduler_name: name.into(),
            plugins: Vec::new(),
            points: Points::default(),
            args: Arc::new(args.clone()),
            extenders: Arc::default(),
            version: 0,
        }
    }

    /// A filter reads what its own PreFilter prepared: that runs in any case.
    fn prepare_filters(&mut self) {
        for at in self.at(ExtensionPoint::Filter).to_vec() {
            let before = &mut self.points[ExtensionPoint::PreFilter as usize];
            if self.plugins[at].plugin.as_pre_filter().is_some() && !before.contains(&at) {
                before.push(at);
            }
        }
    }

    /// Limits: plugins fit a word, summed scores fit 32 bits.
    fn check(&self) -> Result<(), RegistryError> {
        if self.plugins.len() > MAX_PLUGINS {
            return Err(RegistryError::TooManyPlugins(self.plugins.len(), MAX_PLUGINS));
        }
        let scoring = self.called(ExtensionPoint::Score).map(|(_, p)| p);
        let total =
            scoring.map(|p| p.weight.saturating_mul(MAX_SCORE)).fold(0, i64::saturating_add);
        if total > i64::from(i32::MAX) {
            return Err(RegistryError::Overflow(total));
        }
        Ok(())
    }

    /// Adds a plugin at the end of every point it has.
    #[must_use]
    pub fn with_plugin(mut self, plugin: Arc<dyn Plugin>, weight: i64) -> Self {
        for point in ExtensionPoint::ALL.into_iter().filter(|point| point.is_of(&*plugin)) {
            self.points[point as usize].push(self.plugins.len());
        }
        self.plugins.push(Weighted::new(plugin, weight));
        self
    }

    /// Asks these extenders, in this order but for the ignorable ones: as upstream, those
    /// are asked last.
    #[must_use]
    pub fn with_extenders(mut self, extenders: impl IntoIterator<Item = ExtenderSpec>) -> Self {
        let mut extenders: Vec<_> = extenders.into_iter().collect();
        extenders.sort_by_key(|extender| extender.ignorable);
        self.extenders = extenders.into();
        self
    }

    /// The extenders in the order they are asked.
    #[must_use]
    pub fn extenders(&self) -> &Arc<[ExtenderSpec]> {
        &self.extenders
    }

    /// Pods with this `schedulerName` are ours.
    #[must_use]
    pub fn scheduler_name(&self) -> &Arc<str> {
        &self.scheduler_name
    }

    /// All plugins, by position.
    #[must_use]
    pub fn plugins(&self) -> &[Weighted] {
        &self.plugins
    }

    /// Positions of the plugins that are called at a point, in call order.
    #[must_use]
    pub fn at(&self, point: ExtensionPoint) -> &[usize] {
        &self.points[point as usize]
    }

    /// The plugins that are called at a point with their positions, in call order.
    pub(crate) fn called(
        &self,
        point: ExtensionPoint,
    ) -> impl DoubleEndedIterator<Item = (usize, &Weighted)> {
        self.at(point).iter().map(|&at| (at, &self.plugins[at]))
    }

    /// Whether this plugin has a say at Filter.
    pub(crate) fn filters_by(&self, plugin: &str) -> bool {
        self.called(ExtensionPoint::Filter).any(|(_, p)| p.plugin.name() == plugin)
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
        plugins.filter_map(|p| Some((p.name(), p.as_facet()?.facet(pod)?))).collect()
    }

    /// Which reload brought it; 0 is what the core began with.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn at_version(self, version: u64) -> Self {
        Self { version, ..self }
    }

    /// A plugin whose facets of pods that were read under `before` are not known: it is
    /// new, or has other arguments.
    pub(crate) fn unread_facet(&self, before: &Self) -> Option<&'static str> {
        let known = |name: &str, depends: bool| {
            let same = before.args.custom.get(name) == self.args.custom.get(name);
            before.position(name).is_some() && (same || !depends)
        };
        self.plugins.iter().find_map(|p| {
            let (name, facet) = (p.plugin.name(), p.plugin.as_facet()?);
            (!known(name, facet.depends_on_args())).then_some(name)
        })
    }

    pub(crate) fn position(&self, plugin: &str) -> Option<usize> {
        self.plugins.iter().position(|p| p.plugin.name() == plugin)
    }
}

/// The plugins of a spec such that those that filter ascend in that order; the
/// others stay where they are.
fn in_filter_order(spec: &ProfileSpec) -> Vec<(&str, i64)> {
    let all = || spec.plugins.iter().map(|(name, weight)| (name.as_str(), *weight));
    let filters = spec.points.iter().filter(|(point, _)| *point == ExtensionPoint::Filter);
    let filters: Vec<&str> = filters.flat_map(|(_, names)| names).map(String::as_str).collect();
    let mut next = filters.iter().filter_map(|filter| all().find(|(name, _)| name == filter));
    all()
        .map(|own| if filters.contains(&own.0) { next.next().unwrap_or(own) } else { own })
        .collect()
}

#[cfg(test)]
#[path = "profile_tests.rs"]
mod tests;
