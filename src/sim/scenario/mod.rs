//! Scenario files: what a person writes to ask "what would happen".
//!
//! Owns the format. A scenario is strict: a field that is not known, a number out
//! of range or a name that does not exist is an error that says where, what and
//! what to write instead. Must never depend on how the model or the report work.
//!
//! ```yaml
//! name: tiny                 # shown in the report
//! seed: 1                    # chance; --seed overrides it
//! until: 2h                  # optional; else until nothing more can happen
//! nodes:
//!   - name: gpu-{i}          # {i}, {i/N} and {i%N} are the index within the group
//!     count: 4
//!     zone: zone-a           # short for the label topology.kubernetes.io/zone
//!     labels: {rack: "r{i/2}"}
//!     taints: [{key: gpu, effect: NoSchedule}]
//!     allocatable: {cpu: 96, memory: 1Ti, nvidia.com/gpu: 8}
//!     machine: hgx           # an agent reports what the node is inside; GPUs have ids
//! workloads:
//!   - name: train
//!     kind: Job              # or Pod
//!     at: 30s                # when it is submitted
//!     every: 5m              # and again, `repeat` times in all
//!     repeat: 3
//!     parallelism: 2         # Job; replicas for Pod
//!     completions: 4         # Job
//!     runtime: {min: 5m, max: 20m}
//!     startup: {min: 10s, max: 3m}   # images are pulled; else half a second to three
//!     priority: 100
//!     checkpoint: {wait: 2m, takes: 40s}  # saves its work before it is pushed out
//!     requests: {cpu: 8, memory: 64Gi, nvidia.com/gpu: 1}
//!     tolerations: [{key: gpu, operator: Exists}]
//!     podGroup: {minMember: 2}   # its pods start together or not at all
//!   - name: urgent
//!     kind: Pod
//!     priority: 1000         # makes room for itself, unless preemptionPolicy: Never
//!     requests: {cpu: 8}
//! budgets:
//!   - {name: keep-one, matchLabels: {app: train}, minAvailable: 1}
//! priorityClasses:           # for pod templates with a priorityClassName
//!   - {name: high, value: 1000}
//! events:
//!   - {at: 10m, cordon: gpu-0}
//! ```

mod budgets;
mod classes;
mod cursor;
mod events;
mod faults;
mod groups;
mod machine;
mod nodes;
mod pods;
mod policies;
mod scheduler;
mod template;
mod tree;
mod workloads;
mod write;

use std::fmt;

pub use events::{Action, ClusterEvent, NodeChange};
pub use faults::{BLOWS, Blow, Fault, FaultPlan};
pub use groups::GroupSpec;
pub use machine::{GPU, Machine};
pub use nodes::NodeGroup;
pub(crate) use pods::SCHEDULER_NAME;
pub use scheduler::{ReloadSpec, SchedulerSpec};
pub use template::Template;
pub use workloads::{Checkpoint, Runtime, Shape, Workload};

use muster_api::k8s::PriorityClass;

use crate::limits::{
    MAX_BUDGETS, MAX_CLASSES, MAX_EVENTS, MAX_NODE_GROUPS, MAX_NODES, MAX_PODS, MAX_WORKLOADS,
};
use crate::model::budget::Budget;
use crate::model::objects::group_name;
use crate::time::{Micros, SECOND};
use cursor::Cursor;
use tree::Tree;

/// What is to be simulated.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Title of the report.
    pub name: String,
    /// Seed of all chance.
    pub seed: u64,
    /// When to stop; else when nothing more can happen.
    pub until: Option<Micros>,
    /// The nodes there are at the beginning.
    pub nodes: Vec<NodeGroup>,
    /// What is submitted.
    pub workloads: Vec<Workload>,
    /// What happens to the cluster, in order of time.
    pub events: Vec<ClusterEvent>,
    /// The schedulers.
    pub scheduler: SchedulerSpec,
    /// PodDisruptionBudgets, there from the beginning.
    pub budgets: Vec<Budget>,
    /// PriorityClasses, there from the beginning.
    pub classes: Vec<PriorityClass>,
    /// What goes wrong.
    pub faults: FaultPlan,
}

/// Why a scenario was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ScenarioError {
    /// The file, as the user named it.
    pub origin: String,
    /// Line, from 1; 0 if it concerns the whole file.
    pub line: u64,
    /// Column, from 1.
    pub column: u64,
    /// The field, e.g. `workloads[2].requests`; empty if it concerns the whole file.
    pub path: String,
    /// What is wrong and what to write instead.
    pub message: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        write!(f, ": {}", self.message)
    }
}

impl Scenario {
    /// Reads a scenario; `origin` names the file in errors.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong.
    pub fn parse(text: &str, origin: &str) -> Result<Self, ScenarioError> {
        let tree = Tree::parse(text, origin)?;
        let root = Cursor::root(&tree, origin);
        let fields = root.fields(&[
            "name",
            "seed",
            "until",
            "nodes",
            "workloads",
            "events",
            "scheduler",
            "budgets",
            "priorityClasses",
            "faults",
        ])?;
        let name = match fields.get("name") {
            Some(name) => name.name()?.to_owned(),
            None => stem(origin).to_owned(),
        };
        let seed = fields.get("seed").map_or(Ok(0), |s| s.int(0, i64::MAX))?;
        let until = fields.get("until").map(|u| u.duration(SECOND)).transpose()?;

        let nodes_at = fields.need("nodes", "list at least one group of nodes")?;
        let mut nodes = Vec::new();
        for group in nodes_at.list(MAX_NODE_GROUPS)? {
            nodes.push(NodeGroup::decode(&group)?);
        }
        let workloads_at = fields.need("workloads", "list at least one workload")?;
        let mut workloads = Vec::new();
        for workload in workloads_at.list(MAX_WORKLOADS)? {
            workloads.push(Workload::decode(&workload)?);
        }
        workloads::check_names(&workloads, &workloads_at)?;
        let mut classes = Vec::new();
        if let Some(list) = fields.get("priorityClasses") {
            for class in list.list(MAX_CLASSES)? {
                classes.push(classes::decode(&class)?);
            }
        }
        classes::check_names(&classes, &workloads, &workloads_at)?;
        let events = match fields.get("events") {
            Some(events) => events::decode(&events, &nodes, MAX_EVENTS)?,
            None => Vec::new(),
        };
        let scheduler = match fields.get("scheduler") {
            Some(scheduler) => SchedulerSpec::decode(&scheduler)?,
            None => SchedulerSpec::default(),
        };
        let mut all_budgets = Vec::new();
        if let Some(list) = fields.get("budgets") {
            for budget in list.list(MAX_BUDGETS)? {
                all_budgets.push(budgets::decode(&budget)?);
            }
        }
        let faults = match fields.get("faults") {
            Some(faults) => FaultPlan::decode(&faults, scheduler.replicas)?,
            None => FaultPlan::default(),
        };
        let scenario = Self {
            name,
            seed: seed.unsigned_abs(),
            until,
            nodes,
            workloads,
            events,
            scheduler,
            budgets: all_budgets,
            classes,
            faults,
        };
        nodes::check_names(&scenario, &nodes_at)?;
        if scenario.node_count() > MAX_NODES {
            return Err(nodes_at.error(format!(
                "{} nodes in all; at most {MAX_NODES} are allowed",
                scenario.node_count()
            )));
        }
        if scenario.pod_count() > MAX_PODS {
            return Err(workloads_at.error(format!(
                "{} pods in all; at most {MAX_PODS} are allowed",
                scenario.pod_count()
            )));
        }
        Ok(scenario)
    }

    /// Nodes over the whole run.
    #[must_use]
    pub fn node_count(&self) -> u64 {
        let added = self.events.iter().filter_map(|event| match &event.action {
            Action::Add(group) => Some(group),
            _ => None,
        });
        self.nodes.iter().chain(added).map(|group| u64::from(group.count)).sum()
    }

    /// Whether any pod names a pod group.
    pub(crate) fn names_groups(&self) -> bool {
        let named = |w: &Workload| group_name(&w.template).is_some();
        self.workloads.iter().any(|w| w.pod_group.is_some() || named(w))
    }

    /// Whether there is ever a scheduling policy.
    pub(crate) fn has_policies(&self) -> bool {
        self.events.iter().any(|event| matches!(event.action, Action::Policy(_)))
    }

    /// Whether any node has an agent.
    pub(crate) fn has_machines(&self) -> bool {
        let added = self.events.iter().filter_map(|event| match &event.action {
            Action::Add(group) => Some(group),
            _ => None,
        });
        self.nodes.iter().chain(added).any(|group| group.machine.is_some())
    }

    /// Whether there is ever a cluster topology.
    pub(crate) fn has_topologies(&self) -> bool {
        self.events.iter().any(|event| matches!(event.action, Action::Topology(_)))
    }

    /// Pods over the whole run, if none is lost.
    #[must_use]
    pub fn pod_count(&self) -> u64 {
        self.workloads.iter().map(Workload::pod_count).sum()
    }
}

/// `examples/simulate/quickstart.yaml` → `quickstart`.
fn stem(origin: &str) -> &str {
    let file = origin.rsplit(['/', '\\']).next().unwrap_or(origin);
    file.rsplit_once('.').map_or(file, |(stem, _)| stem)
}
