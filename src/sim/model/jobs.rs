//! Workload controllers: create the pods of what a user submits, replace lost ones.
//!
//! Must never touch a pod after creating it, but for ended ones whose name is needed.

use std::collections::BTreeMap;

use muster_core::io::Tick;

use super::api::{Api, Facts, Notice, PodId};
use super::objects::{self, is_terminal};
use crate::limits::MAX_REPLACEMENTS;
use crate::rng::Rng;
use crate::scenario::{Shape, Workload};

/// One submitted job.
#[derive(Clone, Copy, Debug)]
struct Job {
    workload: u32,
    round: u32,
    next: u32,
    active: u32,
    succeeded: u32,
}

/// All workload controllers.
#[derive(Debug)]
pub(crate) struct Jobs {
    rng: Rng,
    jobs: Vec<Job>,
    /// The job and the index within it.
    owner: BTreeMap<PodId, (usize, u32)>,
    replacements: u64,
}

impl Jobs {
    pub(crate) fn new(rng: &Rng) -> Self {
        Self {
            rng: rng.split("jobs", 0),
            jobs: Vec::new(),
            owner: BTreeMap::new(),
            replacements: 0,
        }
    }

    /// A user submits round `round` of a workload.
    pub(crate) fn submit(
        &mut self,
        now: Tick,
        (index, workload): (u32, &Workload),
        round: u32,
        api: &mut Api,
    ) {
        match workload.shape {
            Shape::Pods { replicas } => {
                for i in 0..replicas {
                    self.create(now, (index, workload), round, i, api);
                }
            }
            Shape::Job { .. } => {
                self.jobs.push(Job { workload: index, round, next: 0, active: 0, succeeded: 0 });
                self.sync(now, self.jobs.len() - 1, workload, api);
            }
            Shape::Set { replicas, .. } => {
                let next = replicas;
                self.jobs.push(Job { workload: index, round, next, active: 0, succeeded: 0 });
                for i in 0..replicas {
                    let pod = self.create(now, (index, workload), round, i, api);
                    self.owner.insert(pod, (self.jobs.len() - 1, i));
                }
            }
        }
    }

    fn create(
        &self,
        now: Tick,
        (index, workload): (u32, &Workload),
        round: u32,
        i: u32,
        api: &mut Api,
    ) -> PodId {
        let runtime = workload.runtime.map(|range| {
            let stream = format!("{}/{}/{round}", workload.namespace, workload.name);
            self.rng.split(&stream, u64::from(i)).between(range.min, range.max)
        });
        let startup = workload.startup.map(|range| (range.min, range.max));
        let saves = workload.checkpoint.and_then(|checkpoint| checkpoint.takes);
        let facts = Facts { workload: index, round, runtime, startup, saves };
        api.create_pod(now, objects::pod(workload, round, i), facts)
    }

    /// Creates what is missing: never more than `parallelism` at a time.
    fn sync(&mut self, now: Tick, job: usize, workload: &Workload, api: &mut Api) {
        let Shape::Job { parallelism, completions } = workload.shape else {
            return;
        };
        loop {
            let Job { workload: index, round, next, active, succeeded } = self.jobs[job];
            let wanted = parallelism.min(completions.saturating_sub(succeeded));
            let replacement = next >= completions;
            if active >= wanted || (replacement && self.replacements >= MAX_REPLACEMENTS) {
                return;
            }
            self.replacements += u64::from(replacement);
            let pod = self.create(now, (index, workload), round, next, api);
            self.owner.insert(pod, (job, next));
            self.jobs[job].next += 1;
            self.jobs[job].active += 1;
        }
    }

    /// A watch tells the controllers of a change.
    pub(crate) fn observe(
        &mut self,
        now: Tick,
        notice: &Notice,
        workloads: &[Workload],
        api: &mut Api,
    ) {
        let Notice::Pod { id, object, deleted, .. } = notice else {
            return;
        };
        if !*deleted && !is_terminal(object) {
            return;
        }
        let Some(&(job, index)) = self.owner.get(id) else {
            return;
        };
        let workload = &workloads[self.jobs[job].workload as usize];
        if let Shape::Set { stable_names, .. } = workload.shape {
            if stable_names && !*deleted {
                return api.delete_pod(*id); // its name is needed
            }
            self.owner.remove(id);
            return self.replace(now, job, (index, stable_names), workload, api);
        }
        self.owner.remove(id);
        self.jobs[job].active -= 1;
        if object.status.phase == "Succeeded" {
            self.jobs[job].succeeded += 1;
        }
        self.sync(now, job, workload, api);
    }

    /// A pod of a set is gone: another takes its place.
    fn replace(
        &mut self,
        now: Tick,
        job: usize,
        (index, stable_names): (u32, bool),
        workload: &Workload,
        api: &mut Api,
    ) {
        if self.replacements >= MAX_REPLACEMENTS {
            return;
        }
        self.replacements += 1;
        let Job { workload: of, round, next, .. } = self.jobs[job];
        let index = if stable_names { index } else { next };
        self.jobs[job].next += u32::from(!stable_names);
        let pod = self.create(now, (of, workload), round, index, api);
        self.owner.insert(pod, (job, index));
    }
}
