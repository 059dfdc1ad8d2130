//! The discrete-event engine: takes what is due, lets it happen, one at a time.
//!
//! Owns virtual time. Everything between the schedulers and the rest goes through
//! [`Link`]; everything the API server accepts is seen by the record and by the
//! checker before anyone else. No wall clock, no threads, no chance but the seed's.

use muster_core::io::{Effect, Tick};

use crate::agenda::{Agenda, Event};
use crate::check::Checker;
use crate::limits::{MAX_STEPS, MAX_WARNINGS};
use crate::link::{Hop, Latency, Link, Replica, Watcher};
use crate::model::api::{Api, Notice};
use crate::model::cluster::{Cluster, ORPHAN_QUARANTINE};
use crate::model::jobs::Jobs;
use crate::model::kubelet::Kubelets;
use crate::outcome::{Ended, Outcome, Progress, Unsettled};
use crate::record::Record;
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::scheduler::{Brain, Process, Wish};
use crate::time::{EPOCH, MINUTE, Micros, since_epoch};

/// When nothing has moved for so long and only retries are left, the run is over:
/// longer than the scheduler leaves a pod untried.
const QUIET: Micros = 6 * MINUTE;
/// Progress is reported every so many events.
const PROGRESS_STEPS: u64 = 256;

/// One run.
pub(crate) struct Engine<'a> {
    scenario: &'a Scenario,
    seed: u64,
    pub(crate) now: Tick,
    moved: Tick,
    pub(crate) agenda: Agenda,
    pub(crate) link: Link,
    pub(crate) api: Api,
    kubelets: Kubelets,
    jobs: Jobs,
    cluster: Cluster,
    processes: Vec<Process>,
    pub(crate) record: Record,
    checker: Checker,
    progress: Progress,
    attempts: u64,
    pub(crate) refused: u64,
    warnings: Vec<String>,
}

impl<'a> Engine<'a> {
    /// A cluster with its nodes, schedulers that have just listed it, and all that
    /// the scenario will do on the agenda.
    pub(crate) fn new(scenario: &'a Scenario, seed: u64, brains: Vec<Box<dyn Brain>>) -> Self {
        let rng = Rng::new(seed);
        let finite = scenario.workloads.iter().filter(|w| w.runtime.is_some());
        let mut engine = Self {
            scenario,
            seed,
            now: EPOCH,
            moved: EPOCH,
            agenda: Agenda::default(),
            link: Link::new(&rng, Latency::default()),
            api: Api::default(),
            kubelets: Kubelets::new(&rng),
            jobs: Jobs::new(&rng),
            cluster: Cluster::default(),
            processes: brains.into_iter().map(|brain| Process::new(brain, EPOCH)).collect(),
            record: Record::new(scenario),
            checker: Checker::default(),
            progress: Progress {
                pods: scenario.pod_count(),
                finite: finite.map(crate::scenario::Workload::pod_count).sum(),
                ..Progress::default()
            },
            attempts: 0,
            refused: 0,
            warnings: Vec::new(),
        };
        for group in &scenario.nodes {
            Cluster::add(engine.now, group, &mut engine.api);
        }
        for notice in engine.api.take_notices() {
            engine.see(&notice);
        }
        for replica in engine.replicas() {
            engine.list(replica);
        }
        for (index, workload) in (0u32..).zip(&scenario.workloads) {
            for round in 0..workload.repeat {
                let at = EPOCH.after_micros(workload.at + workload.every * i64::from(round));
                engine.agenda.push(at, Event::Submit { workload: index, round });
            }
        }
        for (index, event) in scenario.events.iter().enumerate() {
            engine.agenda.push(EPOCH.after_micros(event.at), Event::Cluster(index));
        }
        engine
    }

    pub(crate) fn replicas(&self) -> impl Iterator<Item = Replica> + use<> {
        (0..self.processes.len()).filter_map(|i| u8::try_from(i).ok()).map(Replica)
    }

    /// Runs to the end.
    pub(crate) fn run(
        mut self,
        until: Option<Micros>,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Outcome, Unsettled> {
        let limit = until.map(|micros| EPOCH.after_micros(micros));
        let mut steps = 0u64;
        let ended = loop {
            let Some(next) = self.agenda.next() else {
                break Ended::Quiet;
            };
            if limit.is_some_and(|limit| next > limit) {
                break Ended::Until;
            }
            if !self.agenda.moving() && next > self.moved.after_micros(QUIET) {
                break Ended::Quiet;
            }
            let Some((at, event)) = self.agenda.pop() else {
                break Ended::Quiet;
            };
            self.now = at;
            self.step(event);
            steps += 1;
            if steps == MAX_STEPS {
                return Err(Unsettled(since_epoch(self.now)));
            }
            if steps.is_multiple_of(PROGRESS_STEPS) {
                self.progress.time = since_epoch(self.now);
                progress(&self.progress);
            }
        };
        let end = match (ended, limit) {
            (Ended::Until, Some(limit)) => limit,
            _ => self.moved,
        };
        self.progress.time = since_epoch(end);
        progress(&self.progress);
        Ok(Outcome {
            seed: self.seed,
            end,
            ended,
            attempts: self.attempts,
            refused: self.refused,
            record: self.record,
            verdict: self.checker.into_verdict(),
            warnings: self.warnings,
        })
    }

    fn step(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Hear(replica, input) => {
                let wish = self.processes[usize::from(replica.0)].hear(now, input);
                self.settle(replica, wish);
            }
            Event::Timer(replica) => {
                let wish = self.processes[usize::from(replica.0)].timer(now);
                self.settle(replica, wish);
            }
            Event::Cycle(replica) => {
                let (attempt, wish) = self.processes[usize::from(replica.0)].cycle(now);
                if let Some(attempt) = attempt {
                    self.attempts += 1;
                    if let Some(id) = self.api.find(&attempt.pod) {
                        self.record.attempted(id);
                    }
                }
                self.settle(replica, wish);
            }
            Event::Call(replica, effect) => self.serve(replica, effect),
            Event::Notify(Watcher::Controllers, notice) => {
                self.jobs.observe(now, &notice, &self.scenario.workloads, &mut self.api);
            }
            Event::Notify(_, notice) => {
                for (at, timer) in self.kubelets.observe(now, &notice, &self.api) {
                    self.agenda.push(at, Event::Kubelet(timer));
                }
            }
            Event::Kubelet(timer) => {
                if let Some((at, timer)) = self.kubelets.fire(now, timer, &mut self.api) {
                    self.agenda.push(at, Event::Kubelet(timer));
                }
            }
            Event::Submit { workload, round } => {
                let scenario = self.scenario;
                let submitted = (workload, &scenario.workloads[workload as usize]);
                self.jobs.submit(now, submitted, round, &mut self.api);
            }
            Event::Cluster(index) => {
                let action = &self.scenario.events[index].action;
                for node in self.cluster.act(now, action, &mut self.api) {
                    self.agenda.push(now.after_micros(ORPHAN_QUARANTINE), Event::Orphans(node));
                }
            }
            Event::Orphans(node) => Cluster::collect_orphans(&node, &mut self.api),
        }
        for notice in self.api.take_notices() {
            self.see(&notice);
            self.publish(&notice);
        }
    }

    /// After a scheduler was woken: its next wake-up, and what it wants done.
    fn settle(&mut self, replica: Replica, wish: Option<Wish>) {
        match wish {
            Some(Wish::Cycle(at)) => self.agenda.push(at, Event::Cycle(replica)),
            Some(Wish::Timer(at)) => self.agenda.push(at, Event::Timer(replica)),
            None => {}
        }
        let process = &mut self.processes[usize::from(replica.0)];
        let complaints = process.take_complaints();
        let effects = process.take_effects();
        for complaint in complaints {
            self.warn(format!("the scheduler could not read {complaint}"));
        }
        for effect in effects {
            if let Effect::Event(_) = effect {
                continue; // read by people only, and the condition says the same
            }
            if let Some(at) = self.link.arrival(Hop::Call(replica), self.now) {
                self.agenda.push(at, Event::Call(replica, effect));
            }
        }
    }

    pub(crate) fn warn(&mut self, warning: String) {
        if self.warnings.len() < MAX_WARNINGS && !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// The record and the checker see every write at once.
    fn see(&mut self, notice: &Notice) {
        self.checker.observe(self.now, notice);
        let (bound, ended) = match notice {
            Notice::Pod { id, .. } => self.standing(id.index()),
            Notice::Node { .. } => (false, false),
        };
        if self.record.observe(self.now, notice) {
            self.moved = self.now;
        }
        if let Notice::Pod { id, .. } = notice {
            let (bound_now, ended_now) = self.standing(id.index());
            self.progress.bound += u64::from(bound_now && !bound);
            self.progress.ended += u64::from(ended_now && !ended);
        }
    }

    fn standing(&self, pod: usize) -> (bool, bool) {
        let pod = self.record.pods.get(pod);
        (pod.is_some_and(|p| p.bound.is_some()), pod.is_some_and(|p| p.ended.is_some()))
    }
}
