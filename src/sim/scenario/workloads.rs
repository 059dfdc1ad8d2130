//! The `workloads` section.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_api::k8s::Pod;
use muster_api::muster::MAX_CHECKPOINT_SECONDS;

use super::ScenarioError;
use super::cursor::{Cursor, Fields};
use super::groups::GroupSpec;
use super::nodes::check_dns;
use super::pods::decode_template;
use crate::limits::{MAX_DURATION, MAX_PODS};
use crate::time::{MILLISECOND, Micros, SECOND};

/// Pods that are submitted together, once or again and again.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// What is submitted.
    pub shape: Shape,
    /// When it is first submitted.
    pub at: Micros,
    /// How long until it is submitted again.
    pub every: Micros,
    /// How often it is submitted in all.
    pub repeat: u32,
    /// How long a pod runs; `None` is for ever.
    pub runtime: Option<Runtime>,
    /// How long it takes until a pod that is bound runs: pulling, mostly; `None`: a moment.
    pub startup: Option<Runtime>,
    /// Its pods want to save their work before they are pushed out.
    pub checkpoint: Option<Checkpoint>,
    /// The pod group that is created with it, and whose members its pods are.
    pub pod_group: Option<GroupSpec>,
    /// What its pods look like; only name, UID and owner are still missing.
    pub template: Arc<Pod>,
}

/// What a workload submits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Bare pods: a lost one stays lost.
    Pods {
        /// How many.
        replicas: u32,
    },
    /// A job: lost pods are replaced until enough have succeeded.
    Job {
        /// How many at a time.
        parallelism: u32,
        /// How many must succeed.
        completions: u32,
    },
    /// A set: pods that are lost or end are replaced, for ever.
    Set {
        /// How many.
        replicas: u32,
        /// A replacement has the name of the pod it replaces (StatefulSet).
        stable_names: bool,
    },
}

/// How a pod saves its work when it is asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// How long it wants to be waited for.
    pub wait: Micros,
    /// How long it takes; `None` never says that it has.
    pub takes: Option<Micros>,
}

/// How long a pod runs, or takes to start: drawn evenly from this range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// At least.
    pub min: Micros,
    /// At most.
    pub max: Micros,
}

impl Shape {
    /// As a scenario names it.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Pods { .. } => "Pod",
            Self::Job { .. } => "Job",
            Self::Set { stable_names: true, .. } => "StatefulSet",
            Self::Set { .. } => "ReplicaSet",
        }
    }
}

impl Workload {
    /// Pods over the whole run, if none is lost.
    #[must_use]
    pub fn pod_count(&self) -> u64 {
        let each = match self.shape {
            Shape::Pods { replicas } | Shape::Set { replicas, .. } => replicas,
            Shape::Job { completions, .. } => completions,
        };
        u64::from(each) * u64::from(self.repeat)
    }

    pub(super) fn decode(at: &Cursor<'_>) -> Result<Self, ScenarioError> {
        let fields = at.fields(&[
            "name",
            "namespace",
            "kind",
            "at",
            "every",
            "repeat",
            "replicas",
            "parallelism",
            "completions",
            "runtime",
            "priority",
            "preemptionPolicy",
            "labels",
            "requests",
            "nodeSelector",
            "tolerations",
            "podTemplate",
            "podGroup",
            "checkpoint",
            "startup",
        ])?;
        let name_at = fields.need("name", "e.g. train")?;
        let name = name_at.name()?.to_owned();
        check_dns(&name_at, &name)?;
        let namespace = match fields.get("namespace") {
            Some(namespace) => {
                let text = namespace.name()?;
                check_dns(&namespace, text)?;
                text.to_owned()
            }
            None => "default".to_owned(),
        };
        let shape = decode_shape(&fields)?;
        let (every, repeat) = decode_repeat(&fields)?;
        let runtime = fields.get("runtime").map(|r| decode_runtime(&r)).transpose()?;
        let startup = fields.get("startup").map(|s| decode_runtime(&s)).transpose()?;
        if runtime.is_none() && matches!(shape, Shape::Job { .. }) {
            fields.need(
                "runtime",
                "how long each pod of the job runs, e.g. 10m or {min: 5m, max: 1h}",
            )?;
        }
        let checkpoint = fields.get("checkpoint").map(|c| decode_checkpoint(&c)).transpose()?;
        let template = Arc::new(decode_template(&fields, &namespace)?);
        let at = fields.get("at").map_or(Ok(0), |a| a.duration(0))?;
        let group = fields.get("podGroup");
        let pod_group =
            group.map(|group| GroupSpec::decode(&group, &name, repeat, &template)).transpose()?;
        Ok(Self {
            name,
            namespace,
            shape,
            at,
            every,
            repeat,
            runtime,
            startup,
            checkpoint,
            pod_group,
            template,
        })
    }
}

fn decode_shape(fields: &Fields<'_>) -> Result<Shape, ScenarioError> {
    let count = |name: &str| -> Result<Option<u32>, ScenarioError> {
        let Some(count) = fields.get(name) else {
            return Ok(None);
        };
        Ok(u32::try_from(count.int(1, MAX_PODS as i64)?).ok())
    };
    let misplaced = |name: &str, remedy: &str| match fields.get(name) {
        Some(field) => Err(field.error(remedy)),
        None => Ok(()),
    };
    let kind_at = fields.need("kind", "Pod (bare pods), Job, ReplicaSet or StatefulSet")?;
    match kind_at.text()? {
        "Pod" => {
            misplaced("parallelism", "only a Job has it; for pods write replicas")?;
            misplaced("completions", "only a Job has it; for pods write replicas")?;
            Ok(Shape::Pods { replicas: count("replicas")?.unwrap_or(1) })
        }
        "Job" => {
            misplaced(
                "replicas",
                "only kind Pod has it; for a Job write parallelism and completions",
            )?;
            let parallelism = count("parallelism")?.unwrap_or(1);
            let completions = count("completions")?.unwrap_or(parallelism);
            Ok(Shape::Job { parallelism, completions })
        }
        set @ ("ReplicaSet" | "StatefulSet") => {
            misplaced("parallelism", "only a Job has it; for a set write replicas")?;
            misplaced("completions", "only a Job has it; for a set write replicas")?;
            let replicas = count("replicas")?.unwrap_or(1);
            Ok(Shape::Set { replicas, stable_names: set == "StatefulSet" })
        }
        other => {
            Err(kind_at.error(format!("{other:?}; write Pod, Job, ReplicaSet or StatefulSet")))
        }
    }
}

fn decode_repeat(fields: &Fields<'_>) -> Result<(Micros, u32), ScenarioError> {
    let every = fields.get("every").map(|e| e.duration(MILLISECOND)).transpose()?;
    let repeat = fields.get("repeat").map(|r| r.int(1, MAX_PODS as i64)).transpose()?;
    match (every, repeat) {
        (None, None) => Ok((0, 1)),
        (Some(every), Some(repeat)) => {
            if every.checked_mul(repeat).is_none_or(|end| end > MAX_DURATION) {
                return Err(fields
                    .need("repeat", "")?
                    .error("the last one would come after more than a year"));
            }
            Ok((every, u32::try_from(repeat).unwrap_or(u32::MAX)))
        }
        (Some(_), None) => Err(fields.need("every", "")?.error("say how often in all with repeat")),
        (None, Some(_)) => Err(fields.need("repeat", "")?.error("say how far apart with every")),
    }
}

fn decode_runtime(at: &Cursor<'_>) -> Result<Runtime, ScenarioError> {
    if let super::tree::Value::Map(_) = at.tree.value {
        let fields = at.fields(&["min", "max"])?;
        let min = fields.need("min", "the shortest run time, e.g. 5m")?.duration(MILLISECOND)?;
        let max_at = fields.need("max", "the longest run time, e.g. 1h")?;
        let max = max_at.duration(MILLISECOND)?;
        if max < min {
            return Err(max_at.error("must not be less than min"));
        }
        return Ok(Runtime { min, max });
    }
    let exact = at.duration(MILLISECOND)?;
    Ok(Runtime { min: exact, max: exact })
}

fn decode_checkpoint(at: &Cursor<'_>) -> Result<Checkpoint, ScenarioError> {
    let fields = at.fields(&["wait", "takes"])?;
    let wait_at = fields.need("wait", "how long pods want to be waited for, e.g. 1m")?;
    let wait = wait_at.duration(SECOND)?;
    if wait % SECOND != 0 || wait > MAX_CHECKPOINT_SECONDS * SECOND {
        let most = MAX_CHECKPOINT_SECONDS;
        return Err(wait_at.error(format!("must be whole seconds, {most}s at most")));
    }
    let takes = fields.get("takes").map(|t| t.duration(0)).transpose()?;
    Ok(Checkpoint { wait, takes })
}

/// Pods of different workloads never have the same name.
pub(super) fn check_names(all: &[Workload], at: &Cursor<'_>) -> Result<(), ScenarioError> {
    let mut names = BTreeSet::new();
    for workload in all {
        if !names.insert((workload.namespace.as_str(), workload.name.as_str())) {
            return Err(
                at.error(format!("two workloads are named {:?}; rename one", workload.name))
            );
        }
    }
    for workload in all {
        // Pods are called <workload>-<number> or <workload>-<number>-<number>.
        let mut prefix = workload.name.as_str();
        while let Some((rest, number)) = prefix.rsplit_once('-') {
            if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
                break;
            }
            if names.contains(&(workload.namespace.as_str(), rest)) {
                return Err(at.error(format!(
                    "the pods of {rest:?} could be named as those of {:?}; rename one",
                    workload.name
                )));
            }
            prefix = rest;
        }
    }
    Ok(())
}
