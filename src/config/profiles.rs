//! Profiles made ready: defaults, who is called where, and what the core gets.
//!
//! Owns what upstream does between a valid file and a scheduler that runs: default
//! arguments, plugins by extension point, and the refusals that come with them.

use std::collections::BTreeSet;

use muster_core::Profile;
use muster_core::framework::{ExtensionPoint, PluginArgs, ProfileSpec, Registry, RegistryError};

use muster_core::plugins::names;
use serde_json::Value;

use super::args;
use super::catalog::Catalog;
use super::error::FieldError;
use super::plugins::{self, MULTI_POINT};
use super::types::{Called, Configuration, PluginConfig, PluginRef, ProfileConfig};

impl ProfileConfig {
    /// The default plugins under a name; who is called where is not worked out yet.
    pub(super) fn unresolved(name: &str) -> Self {
        Self {
            scheduler_name: name.to_owned(),
            percentage_of_nodes_to_score: None,
            plugins: plugins::merge(None),
            plugin_config: Vec::new(),
            called: Called::new(),
        }
    }

    /// The default plugins under a name.
    #[must_use]
    pub fn default_named(name: &str) -> Self {
        let mut profile = Self::unresolved(name);
        profile.set_default_args();
        let registry = Registry::in_tree();
        let called = plugins::resolve("", &profile, &profile.args(), Catalog::new(&registry));
        profile.finish(called.expect("the default plugins are valid"));
        profile
    }

    /// Arguments for plugins that take some and got none.
    pub(super) fn set_default_args(&mut self) {
        let given: BTreeSet<&str> = self.plugin_config.iter().map(|c| c.name.as_str()).collect();
        let missing = plugins::needed(&self.plugins, true).into_iter();
        let missing = missing.filter(|name| !given.contains(name));
        let defaults: Vec<PluginConfig> = missing
            .filter_map(|name| {
                let args = args::defaults(name)?;
                Some(PluginConfig { name: name.to_owned(), args: Some(args) })
            })
            .collect();
        self.plugin_config.extend(defaults);
    }

    /// Keeps the arguments that somebody reads, in order of names.
    fn finish(&mut self, called: Called) {
        let needed = plugins::needed(&self.plugins, false);
        self.plugin_config.retain(|c| c.args.is_some() && needed.contains(c.name.as_str()));
        self.plugin_config.sort_by(|a, b| a.name.cmp(&b.name));
        self.called = called;
    }

    /// The arguments as the core's plugins take them.
    fn args(&self) -> PluginArgs {
        let mut all = PluginArgs::default();
        for config in &self.plugin_config {
            // What cannot be read was refused before.
            let _ = config.args.as_ref().map(|json| args::to_core(&mut all, &config.name, json));
        }
        all
    }

    /// What the core makes a profile of: the plugins that it has.
    #[must_use]
    pub fn spec(&self, registry: &Registry) -> ProfileSpec {
        let everywhere = self.plugins.get(MULTI_POINT).into_iter().flat_map(|set| &set.enabled);
        let elsewhere = self.called.values().flatten();
        let scores = self.called.get(&ExtensionPoint::Score);
        let weight = |name: &str| {
            let rated = scores.into_iter().flatten().find(|plugin| plugin.name == name);
            rated.and_then(|plugin| plugin.weight).map_or(0, i64::from)
        };
        let mut seen = BTreeSet::new();
        let all = everywhere.chain(elsewhere).map(|plugin| plugin.name.as_str());
        let acting = all.filter(|name| registry.has(name) && seen.insert(*name));
        let plugins: Vec<(String, i64)> =
            acting.map(|name| (name.to_owned(), weight(name))).collect();
        let names = |list: &[PluginRef]| {
            let acting = list.iter().filter(|plugin| registry.has(&plugin.name));
            acting.map(|plugin| plugin.name.clone()).collect()
        };
        let points = self.called.iter().map(|(point, list)| (*point, names(list)));
        ProfileSpec {
            scheduler_name: self.scheduler_name.clone(),
            plugins,
            points: points.collect(),
            args: self.args(),
        }
    }
}

impl Configuration {
    /// The profiles as the core runs them.
    ///
    /// # Errors
    ///
    /// If a plugin cannot be made. A configuration that was read with the same
    /// registry has been tried before.
    pub fn core_profiles(&self, registry: &Registry) -> Result<Vec<Profile>, RegistryError> {
        let specs = self.profiles.iter().map(|profile| profile.spec(registry));
        specs.map(|spec| Profile::from_spec(&spec, registry)).collect()
    }

    /// What a running scheduler cannot change: the fields in which the two differ.
    #[must_use]
    pub fn needs_restart(&self, other: &Self) -> Vec<&'static str> {
        let sorts = |config: &Self| -> Vec<_> {
            let sort = |p: &ProfileConfig| p.called.get(&ExtensionPoint::QueueSort).cloned();
            config.profiles.iter().map(sort).collect()
        };
        let names =
            |config: &Self| -> BTreeSet<String> { config.scheduler_names().into_iter().collect() };
        [
            ("leaderElection", self.leader_election != other.leader_election),
            ("clientConnection", self.client_connection != other.client_connection),
            ("parallelism", self.parallelism != other.parallelism),
            ("profiles[].schedulerName", names(self) != names(other)),
            (
                "profiles[].plugins.queueSort",
                names(self) == names(other) && sorts(self) != sorts(other),
            ),
        ]
        .into_iter()
        .filter_map(|(field, differs)| differs.then_some(field))
        .collect()
    }

    /// What extenders manage alone is not checked by NodeResourcesFit; as upstream,
    /// this takes the place of what its arguments say.
    fn ignore_managed(&mut self) -> Vec<FieldError> {
        let managed = self.extenders.iter().flat_map(|extender| &extender.managed_resources);
        let ignored = managed.filter(|resource| resource.ignored_by_scheduler);
        let ignored: Vec<Value> = ignored.map(|resource| resource.name.clone().into()).collect();
        let mut errors = Vec::new();
        for (i, profile) in self.profiles.iter_mut().enumerate().filter(|_| !ignored.is_empty()) {
            let fit = |config: &&mut PluginConfig| config.name == names::NODE_RESOURCES_FIT;
            match profile.plugin_config.iter_mut().find(fit).map(|config| &mut config.args) {
                Some(Some(Value::Object(args))) => {
                    args.insert("ignoredResources".to_owned(), Value::Array(ignored.clone()));
                }
                _ => {
                    let words = "couldn't build extenders: can't find NodeResourcesFitArgs in \
                                 plugin config";
                    let error = FieldError::said(format!("profiles[{i}].pluginConfig"), words);
                    errors.push(error.remedy("enable NodeResourcesFit"));
                }
            }
        }
        errors
    }

    /// Works out who is called where, and tries to make every plugin.
    pub(super) fn resolve(&mut self, registry: &Registry) -> Vec<FieldError> {
        let (catalog, mut errors) = (Catalog::new(registry), self.ignore_managed());
        for (i, profile) in self.profiles.iter_mut().enumerate() {
            let path = format!("profiles[{i}]");
            errors.extend(unargued(&path, profile));
            match plugins::resolve(&path, profile, &profile.args(), catalog) {
                Ok(called) => profile.finish(called),
                Err(more) => {
                    errors.extend(more);
                    continue;
                }
            }
            if let Err(error) = Profile::from_spec(&profile.spec(registry), registry) {
                let error = FieldError::said(path.clone(), error.to_string());
                errors.push(error.remedy("correct its plugins and pluginConfig"));
            }
            self.warnings.extend(inert(&path, profile, catalog));
        }
        if errors.is_empty() {
            errors.extend(different_sorts(&self.profiles));
        }
        errors
    }
}

/// Upstream gives no default arguments to a plugin that is enabled only for groups
/// of pods, and then refuses it for having none.
fn unargued(path: &str, profile: &ProfileConfig) -> Vec<FieldError> {
    let given = |name: &str| profile.plugin_config.iter().any(|config| config.name == name);
    let needed = plugins::needed(&profile.plugins, false).into_iter();
    let missing = needed.filter(|name| args::has_form(name) && !given(name));
    let error = |name: &str| {
        let words =
            format!("initializing plugin {name:?}: got args of type <nil>, want *{name}Args");
        let error = FieldError::said(format!("{path}.pluginConfig"), words);
        error.remedy("enable it at another point too, or give it arguments")
    };
    missing.map(error).collect()
}

/// There is one queue: all profiles sort it alike, however they say so.
fn different_sorts(profiles: &[ProfileConfig]) -> Option<FieldError> {
    let sort = |profile: &ProfileConfig| {
        let called = profile.called.get(&ExtensionPoint::QueueSort);
        called.and_then(|list| list.first()).map(|plugin| plugin.name.clone()).unwrap_or_default()
    };
    let first = sort(profiles.first()?);
    let (i, other) = profiles.iter().enumerate().find(|(_, p)| sort(p) != first)?;
    let words = format!(
        "different queue sort plugins for profile {:?}: {:?}, first: {first:?}",
        other.scheduler_name,
        sort(other)
    );
    let error = FieldError::said(format!("profiles[{i}].plugins.queueSort"), words);
    Some(error.remedy("enable the same in every profile"))
}

/// What is enabled or disabled and makes no difference here.
fn inert(path: &str, profile: &ProfileConfig, catalog: Catalog<'_>) -> Vec<String> {
    let defaults = plugins::merge(None);
    let usual = plugins::needed(&defaults, false);
    let mut warnings = Vec::new();
    for name in plugins::needed(&profile.plugins, false) {
        if !catalog.acts(name) && !usual.contains(name) {
            warnings.push(format!(
                "{path}.plugins: {name:?} is accepted but does nothing in this version"
            ));
        }
    }
    let has = |point: ExtensionPoint, name: &str| {
        let called = profile.called.get(&point);
        called.is_some_and(|list| list.iter().any(|plugin| plugin.name == name))
    };
    for (point, before) in [
        (ExtensionPoint::Filter, ExtensionPoint::PreFilter),
        (ExtensionPoint::Score, ExtensionPoint::PreScore),
    ] {
        for plugin in profile.called.get(&point).into_iter().flatten() {
            let name = plugin.name.as_str();
            let points = catalog.points(name, &profile.args()).unwrap_or_default();
            if points.contains(&before) && !has(before, name) {
                let (point, key) = (point.name(), before.key());
                warnings.push(format!(
                    "{path}.plugins.{key}: that {name:?} is off here alone has no effect: its \
                     {point} needs what it prepares"
                ));
            }
        }
    }
    warnings
}
