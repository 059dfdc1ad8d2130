//! From `plugins` as written to who is called where.
//!
//! Owns kube-scheduler's rules of merging with the defaults and of spreading
//! `multiPoint` over the extension points.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::framework::{ExtensionPoint, PluginArgs};

use super::catalog::{self, Catalog};
use super::error::FieldError;
use super::types::{Called, PluginRef, PluginSet, Plugins, ProfileConfig};

/// The key for all points at once.
pub(super) const MULTI_POINT: &str = "multiPoint";
/// All plugins, in a list of disabled ones.
const ALL: &str = "*";
/// Where upstream looks for plugins that need default arguments: everywhere but
/// here.
const NO_DEFAULT_ARGS: &str = "podGroupPostFilter";

/// What is written, on top of the defaults: every point is there.
pub(super) fn merge(written: Option<&Plugins>) -> Plugins {
    let mut defaults = BTreeMap::from([(MULTI_POINT, catalog::default_plugins())]);
    let keys = ExtensionPoint::ALL.map(ExtensionPoint::key).into_iter().chain([MULTI_POINT]);
    let merged = keys.map(|key| {
        let default = defaults.remove(key).unwrap_or_default();
        let custom = written.and_then(|written| written.get(key));
        (key, custom.map_or_else(|| default.clone(), |custom| merge_set(&default, custom)))
    });
    merged.collect()
}

/// A plugin that is written stands where the default one stood; others follow.
fn merge_set(default: &PluginSet, custom: &PluginSet) -> PluginSet {
    let disabled: BTreeSet<&str> = custom.disabled.iter().map(|p| p.name.as_str()).collect();
    // Of plugins written twice, the last one replaces; the others are appended and
    // found to be there twice later.
    let replacement = |name: &str| custom.enabled.iter().rposition(|p| p.name == name);
    let mut replaced = BTreeSet::new();
    let mut enabled = Vec::new();
    if !disabled.contains(ALL) {
        for plugin in default.enabled.iter().filter(|p| !disabled.contains(p.name.as_str())) {
            enabled.push(match replacement(&plugin.name) {
                Some(at) => {
                    replaced.insert(at);
                    custom.enabled[at].clone()
                }
                None => plugin.clone(),
            });
        }
    }
    let others = custom.enabled.iter().enumerate().filter(|(at, _)| !replaced.contains(at));
    enabled.extend(others.map(|(_, plugin)| plugin.clone()));
    let bare = |p: &PluginRef| PluginRef { name: p.name.clone(), weight: None };
    PluginSet { enabled, disabled: custom.disabled.iter().map(bare).collect() }
}

/// Plugins that are enabled at some point. `defaulted`: those that get default
/// arguments.
pub(super) fn needed(plugins: &Plugins, defaulted: bool) -> BTreeSet<&str> {
    let sets = plugins.iter().filter(|(key, _)| !defaulted || **key != NO_DEFAULT_ARGS);
    sets.flat_map(|(_, set)| &set.enabled).map(|plugin| plugin.name.as_str()).collect()
}

/// Who is called where, with weights where scores are weighed.
pub(super) fn resolve(
    path: &str,
    profile: &ProfileConfig,
    args: &PluginArgs,
    catalog: Catalog<'_>,
) -> Result<Called, Vec<FieldError>> {
    let mut resolver = Resolver {
        path: format!("{path}.plugins"),
        plugins: &profile.plugins,
        points: BTreeMap::new(),
        errors: Vec::new(),
    };
    resolver.know(args, catalog);
    if resolver.errors.is_empty() {
        let called = resolver.call();
        resolver.complete(&profile.scheduler_name, &called);
        if resolver.errors.is_empty() {
            return Ok(called);
        }
    }
    Err(resolver.errors)
}

struct Resolver<'a> {
    path: String,
    plugins: &'a Plugins,
    points: BTreeMap<&'a str, Vec<ExtensionPoint>>,
    errors: Vec<FieldError>,
}

impl<'a> Resolver<'a> {
    fn set(&self, key: &str) -> &'a PluginSet {
        static NONE: PluginSet = PluginSet { enabled: Vec::new(), disabled: Vec::new() };
        self.plugins.get(key).unwrap_or(&NONE)
    }

    fn say(&mut self, key: &str, words: String, remedy: impl Into<String>) {
        let error = FieldError::said(format!("{}.{key}", self.path), words);
        self.errors.push(error.remedy(remedy));
    }

    /// Finds out where each plugin is called, if there is such a plugin.
    fn know(&mut self, args: &PluginArgs, catalog: Catalog<'_>) {
        let points = ExtensionPoint::ALL.into_iter().map(|point| (point.key(), point));
        // Upstream finds at its first point that a plugin of all points is missing.
        for (key, point) in points.chain([(MULTI_POINT, ExtensionPoint::PreFilter)]) {
            for plugin in &self.set(key).enabled {
                let name = plugin.name.as_str();
                if self.points.contains_key(name) {
                    continue;
                }
                if !catalog.knows(name) {
                    let words = format!("{}Plugin {name:?} does not exist", point.name());
                    let remedy = match catalog.near(name) {
                        Some(near) => format!("did you mean {near:?}?"),
                        None => "remove it, or run a program that registers it".to_owned(),
                    };
                    self.say(key, words, remedy);
                    continue;
                }
                match catalog.points(name, args) {
                    Ok(points) => drop(self.points.insert(name, points)),
                    Err(error) => {
                        let words = format!("initializing plugin {name:?}: {error}");
                        self.say(key, words, "correct its arguments in pluginConfig");
                    }
                }
            }
        }
    }

    fn has(&self, plugin: &str, point: ExtensionPoint) -> bool {
        self.points.get(plugin).is_some_and(|points| points.contains(&point))
    }

    fn call(&mut self) -> Called {
        let mut called = Called::new();
        for point in ExtensionPoint::ALL {
            let names = self.names_at(point);
            let weighed = matches!(point, ExtensionPoint::Score | ExtensionPoint::PlacementScore);
            let weights = if weighed { self.weights(point) } else { BTreeMap::new() };
            let plugin = |name: &str| PluginRef {
                name: name.to_owned(),
                weight: weights.get(name).copied(),
            };
            called.insert(point, names.into_iter().map(plugin).collect());
        }
        called
    }

    /// Overridden plugins of all points in the order of the point itself, then those
    /// of all points, then the point's own.
    fn names_at(&mut self, point: ExtensionPoint) -> Vec<&'a str> {
        let (set, key) = (self.set(point.key()), point.key());
        let mut own: Vec<&str> = Vec::new();
        for plugin in &set.enabled {
            let name = plugin.name.as_str();
            let kind = format!("{}Plugin", point.name());
            if !self.has(name, point) {
                let words = format!("plugin {name:?} does not extend {kind} plugin");
                self.say(key, words, "remove it here");
            } else if own.contains(&name) {
                let words = format!("plugin {name:?} already registered as {kind:?}");
                self.say(key, words, "name it once");
            } else {
                own.push(name);
            }
        }
        let disabled = |name: &str| set.disabled.iter().any(|plugin| plugin.name == name);
        if disabled(ALL) {
            return own;
        }
        let (mut everywhere, mut overridden) = (Vec::new(), Vec::new());
        for plugin in &self.set(MULTI_POINT).enabled {
            let name = plugin.name.as_str();
            if !self.has(name, point) || disabled(name) {
                continue;
            }
            if own.contains(&name) {
                overridden.push(name);
            } else if everywhere.contains(&name) {
                let words =
                    format!("plugin {name:?} already registered as \"{}Plugin\"", point.name());
                if !self.errors.iter().any(|error| error.path.ends_with(MULTI_POINT)) {
                    self.say(MULTI_POINT, words, "name it once");
                }
            } else {
                everywhere.push(name);
            }
        }
        let (first, last): (Vec<&str>, _) =
            own.into_iter().partition(|name| overridden.contains(name));
        first.into_iter().chain(everywhere).chain(last).collect()
    }

    /// Weights of scores: a point's own before those of all points; zero is one.
    fn weights(&mut self, point: ExtensionPoint) -> BTreeMap<&'a str, i32> {
        let mut weights = BTreeMap::new();
        let mut total: i64 = 0;
        for key in [point.key(), MULTI_POINT] {
            for plugin in &self.set(key).enabled {
                let name = plugin.name.as_str();
                if !self.has(name, point) || weights.contains_key(name) {
                    continue;
                }
                let weight = plugin.weight.filter(|weight| *weight != 0).unwrap_or(1);
                weights.insert(name, weight);
                total = total.saturating_add(i64::from(weight).saturating_mul(100));
                if weight < 0 || total > i64::from(i32::MAX) {
                    let words = "total score of Score plugins could overflow".to_owned();
                    let remedy = "weights are above zero and their sum times 100 stays below \
                                  2147483647";
                    self.say(key, words, format!("plugin {name:?} has weight {weight}: {remedy}"));
                    return weights;
                }
            }
        }
        weights
    }

    /// What every profile needs.
    fn complete(&mut self, name: &str, called: &Called) {
        let count = |point: ExtensionPoint| called.get(&point).map_or(0, Vec::len);
        let sorts = count(ExtensionPoint::QueueSort);
        if sorts != 1 {
            let words = format!(
                "only one queue sort plugin required for profile with scheduler name {name:?}, \
                 but got {sorts}"
            );
            self.say("queueSort", words, "enable exactly one, for example PrioritySort");
        }
        if count(ExtensionPoint::Bind) == 0 {
            let words = format!(
                "at least one bind plugin is needed for profile with scheduler name {name:?}"
            );
            self.say("bind", words, "enable DefaultBinder");
        }
        if count(ExtensionPoint::PlacementGenerate) > 1 {
            let words = format!(
                "at most one placement generate plugin is allowed for profile with scheduler \
                 name {name:?}"
            );
            self.say("placementGenerate", words, "keep one");
        }
    }
}
