//! A plugin that judges before and while nodes are looked at, as it is told.

use std::sync::{Arc, Mutex};

use super::harness::{Log, take};
use crate::cluster::{Cluster, NodeView};
use crate::framework::{
    Filter, Hint, HintCx, Plugin, PreEnqueue, PreFilter, PreFilterResult, PreScoreResult, Profile,
    Registration, Score, State, Status,
};
use crate::model::{Pod, PodShape};
use crate::testing::SCHEDULER;

/// What it answers.
#[derive(Clone)]
pub(super) struct Mind {
    pub(super) gate: bool,
    /// PreFilter skips, or rejects, or allows these nodes only.
    pub(super) skip: bool,
    pub(super) reject: Option<Status>,
    pub(super) nodes: Option<&'static [&'static str]>,
    /// What Filter says of nodes.
    pub(super) verdicts: Vec<(&'static str, Status)>,
    pub(super) score: Option<Status>,
    pub(super) events: Vec<Registration>,
    pub(super) hint: Hint,
}

impl Default for Mind {
    fn default() -> Self {
        Self {
            gate: false,
            skip: false,
            reject: None,
            nodes: None,
            verdicts: Vec::new(),
            score: None,
            events: Vec::new(),
            hint: Hint::Queue,
        }
    }
}

#[derive(Clone)]
pub(super) struct Choosy {
    name: &'static str,
    log: Log,
    mind: Arc<Mutex<Mind>>,
}

impl Choosy {
    pub(super) fn new(name: &'static str, mind: Mind) -> Self {
        Self { name, log: Log::default(), mind: Arc::new(Mutex::new(mind)) }
    }

    pub(super) fn calls(&self) -> Vec<String> {
        take(&self.log)
    }

    pub(super) fn tell(&self, change: impl FnOnce(&mut Mind)) {
        change(&mut self.mind.lock().unwrap());
    }

    fn saw(&self, point: &str) -> Mind {
        self.log.lock().unwrap().push(point.to_owned());
        self.mind.lock().unwrap().clone()
    }
}

/// The default plugins with these at the end.
pub(super) fn minded(plugins: &[&Choosy]) -> Profile {
    plugins.iter().fold(Profile::default_named(SCHEDULER), |profile, plugin| {
        profile.with_plugin(Arc::new((*plugin).clone()), 1)
    })
}

impl Plugin for Choosy {
    fn name(&self) -> &'static str {
        self.name
    }
    fn events(&self) -> Vec<Registration> {
        self.mind.lock().unwrap().events.clone()
    }
    fn hint(&self, _: &HintCx<'_>) -> Hint {
        self.saw("hint").hint
    }
    fn as_pre_enqueue(&self) -> Option<&dyn PreEnqueue> {
        Some(self)
    }
    fn as_pre_filter(&self) -> Option<&dyn PreFilter> {
        Some(self)
    }
    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }
    fn as_score(&self) -> Option<&dyn Score> {
        Some(self)
    }
}

impl PreEnqueue for Choosy {
    fn pre_enqueue(&self, _: &Pod) -> Result<(), Status> {
        if self.saw("preenqueue").gate {
            return Err(Status::unresolvable(format!("gated by {}", self.name)));
        }
        Ok(())
    }
}

impl PreFilter for Choosy {
    fn pre_filter(&self, _: &PodShape, _: &Cluster) -> PreFilterResult {
        let mind = self.saw("prefilter");
        if mind.skip {
            return PreFilterResult::Skip;
        }
        if let Some(status) = mind.reject {
            return PreFilterResult::Reject(status);
        }
        let nodes = mind.nodes.map(|names| names.iter().map(|n| (*n).into()).collect());
        PreFilterResult::Go { state: None, nodes }
    }
}

impl Filter for Choosy {
    fn filter(&self, _: &State, _: &PodShape, node: NodeView<'_>) -> Result<(), Status> {
        let mind = self.saw("filter");
        let verdict = mind.verdicts.into_iter().find(|(name, _)| **name == *node.info().name);
        verdict.map_or(Ok(()), |(_, status)| Err(status))
    }
}

impl Score for Choosy {
    fn pre_score(&self, _: &PodShape, _: &Cluster) -> PreScoreResult {
        match self.saw("prescore").score {
            Some(status) => PreScoreResult::Fail(status),
            None => PreScoreResult::Skip,
        }
    }
}
