//! The `scheduler` section: how many processes there are and how they are set up.

use muster_core::framework::{PluginArgs, Registry};
use muster_core::plugins::ScoringStrategy;
use muster_core::{Backoff, Config, Profile};

use super::ScenarioError;
use super::cursor::Cursor;
use super::pods::SCHEDULER_NAME;
use crate::limits::{MAX_LABELS, MAX_REPLICAS};
use crate::time::{Micros, SECOND};

/// The schedulers of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerSpec {
    /// Processes; one leads, the others stand by.
    pub replicas: u8,
    /// Backoff after the first failure, in seconds.
    pub initial_backoff: i64,
    /// Longest backoff, in seconds.
    pub max_backoff: i64,
    /// Seconds after which an unschedulable pod is tried again without an event.
    pub retry_unschedulable: i64,
    /// Default plugins that are left out.
    pub without: Vec<String>,
    /// Plugins beside the default ones, with the weights of their scores.
    pub with: Vec<(String, i64)>,
    /// How NodeResourcesFit scores.
    pub strategy: ScoringStrategy,
    /// Whether preemption may break disruption budgets.
    pub allow_budget_violations: bool,
}

impl Default for SchedulerSpec {
    fn default() -> Self {
        let config = Config::default();
        Self {
            replicas: 1,
            initial_backoff: config.backoff.initial_secs,
            max_backoff: config.backoff.max_secs,
            retry_unschedulable: config.max_in_unschedulable_secs,
            without: Vec::new(),
            with: Vec::new(),
            strategy: ScoringStrategy::default(),
            allow_budget_violations: false,
        }
    }
}

/// What a reload changes; what is not named stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReloadSpec {
    /// Backoff after the first failure, in seconds.
    pub initial_backoff: Option<i64>,
    /// Longest backoff, in seconds.
    pub max_backoff: Option<i64>,
    /// Default plugins that are left out.
    pub without: Option<Vec<String>>,
}

impl ReloadSpec {
    pub(super) fn decode(at: &Cursor<'_>) -> Result<Self, ScenarioError> {
        let fields = at.fields(&["initialBackoff", "maxBackoff", "without"])?;
        let seconds = |name: &str| -> Result<Option<i64>, ScenarioError> {
            let given = fields.get(name).map(|d| d.duration(0).map(|m: Micros| m / SECOND));
            given.transpose()
        };
        let without = fields.get("without").map(|list| left_out(&list)).transpose()?;
        let (initial_backoff, max_backoff) = (seconds("initialBackoff")?, seconds("maxBackoff")?);
        Ok(Self { initial_backoff, max_backoff, without })
    }
}

/// Names of plugins that a scheduler can do without.
fn left_out(list: &Cursor<'_>) -> Result<Vec<String>, ScenarioError> {
    let mut without = Vec::new();
    for plugin in list.list(MAX_LABELS)? {
        let name = plugin.name()?;
        let known = Profile::defaults().iter().any(|(known, _)| *known == name);
        if !known || NEEDED.contains(&name) {
            return Err(plugin.error(format!("{name:?} is no plugin that can be left out")));
        }
        without.push(name.to_owned());
    }
    Ok(without)
}

/// Plugins beside the default ones: name and weight.
fn added(map: &Cursor<'_>) -> Result<Vec<(String, i64)>, ScenarioError> {
    let mut with = Vec::new();
    for (name, weight) in map.map(MAX_LABELS)? {
        let default = Profile::defaults().iter().any(|(known, _)| *known == name);
        if default || !Registry::in_tree().has(name) {
            return Err(weight.error(format!("{name:?} is no plugin that can be added")));
        }
        with.push((name.to_owned(), weight.int(1, 100)?));
    }
    Ok(with)
}

/// What a scheduler cannot do without.
const NEEDED: [&str; 2] = ["PrioritySort", "DefaultBinder"];

impl SchedulerSpec {
    pub(super) fn decode(at: &Cursor<'_>) -> Result<Self, ScenarioError> {
        let fields = at.fields(&[
            "replicas",
            "initialBackoff",
            "maxBackoff",
            "retryUnschedulableAfter",
            "without",
            "with",
            "strategy",
            "allowBudgetViolations",
        ])?;
        let mut spec = Self::default();
        if let Some(replicas) = fields.get("replicas") {
            spec.replicas = u8::try_from(replicas.int(1, MAX_REPLICAS)?).unwrap_or(1);
        }
        let seconds = |name: &str, default: i64| -> Result<i64, ScenarioError> {
            fields.get(name).map_or(Ok(default), |d| d.duration(0).map(|m: Micros| m / SECOND))
        };
        spec.initial_backoff = seconds("initialBackoff", spec.initial_backoff)?;
        spec.max_backoff = seconds("maxBackoff", spec.max_backoff)?;
        spec.retry_unschedulable = seconds("retryUnschedulableAfter", spec.retry_unschedulable)?;
        if let Some(without) = fields.get("without") {
            spec.without = left_out(&without)?;
        }
        if let Some(with) = fields.get("with") {
            spec.with = added(&with)?;
        }
        if let Some(strategy) = fields.get("strategy") {
            spec.strategy = match strategy.text()? {
                "LeastAllocated" => ScoringStrategy::LeastAllocated,
                "MostAllocated" => ScoringStrategy::MostAllocated,
                other => {
                    let rule = "write LeastAllocated or MostAllocated";
                    return Err(strategy.error(format!("{other:?} is not known here; {rule}")));
                }
            };
        }
        if let Some(allow) = fields.get("allowBudgetViolations") {
            spec.allow_budget_violations = allow.bool()?;
        }
        Ok(spec)
    }

    /// The same after a reload.
    #[must_use]
    pub fn reloaded(&self, change: &ReloadSpec) -> Self {
        Self {
            initial_backoff: change.initial_backoff.unwrap_or(self.initial_backoff),
            max_backoff: change.max_backoff.unwrap_or(self.max_backoff),
            without: change.without.clone().unwrap_or_else(|| self.without.clone()),
            ..self.clone()
        }
    }

    /// Whether a default plugin runs.
    #[must_use]
    pub fn has(&self, plugin: &str) -> bool {
        !self.without.iter().any(|w| w == plugin)
    }

    /// The core's configuration.
    #[must_use]
    #[allow(clippy::needless_update, reason = "with seeded bugs there is one field more")]
    pub fn config(&self, seed: u64) -> Config {
        let plugins = Profile::defaults().iter().copied().filter(|(name, _)| self.has(name));
        let plugins =
            plugins.chain(self.with.iter().map(|(name, weight)| (name.as_str(), *weight)));
        let (mut args, registry) = (PluginArgs::default(), Registry::in_tree());
        args.default_preemption.allow_budget_violations = self.allow_budget_violations;
        args.fit.strategy = self.strategy.clone();
        let profile = Profile::build(SCHEDULER_NAME, plugins, &args, &registry)
            .unwrap_or_else(|_| Profile::default_named(SCHEDULER_NAME));
        Config {
            profiles: vec![profile],
            seed,
            backoff: Backoff { initial_secs: self.initial_backoff, max_secs: self.max_backoff },
            max_in_unschedulable_secs: self.retry_unschedulable,
            ..Config::default()
        }
    }
}
