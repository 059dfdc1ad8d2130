//! The discrete-event engine: takes what is due, lets it happen, one at a time.
//!
//! Owns virtual time. Everything between the schedulers and the rest goes through
//! [`Link`]; everything the API server accepts is seen by the record and by the
//! checker before anyone else. No wall clock, no threads, no chance but the seed's.

use muster_core::io::{Effect, Input, Removal, Request, Tick};

use crate::agenda::{Agenda, Event};
use crate::check::{Checker, Finding};
use crate::digest::Digest;
use crate::faults::Faults;
use crate::lease::{Identity, Lease};
use crate::limits::{MAX_FAULTY_STEPS, MAX_STEPS, MAX_WARNINGS};
use crate::link::{Latency, Link, Replica, Watcher};
use crate::model::api::{Api, Notice};
use crate::model::cluster::{Cluster, ORPHAN_QUARANTINE, UNREACHABLE};
use crate::model::jobs::Jobs;
use crate::model::kubelet::{Kubelets, Timer};
use crate::model::log::Served;
use crate::model::objects;
use crate::outcome::{Ended, Outcome, Progress, Unsettled};
use crate::record::Record;
use crate::rng::Rng;
use crate::scenario::{Action, Fault, NodeGroup, Scenario, SchedulerSpec};
use crate::scheduler::{Complaint, Maker, Process, Wish};
use crate::time::{EPOCH, MINUTE, Micros, SECOND, since_epoch};

/// When nothing has moved for so long and only retries are left, the run is over:
/// longer than the scheduler leaves a pod untried.
const QUIET: Micros = 6 * MINUTE;
/// After faults the wait is shorter: a pod that fits must have been tried by then,
/// whether or not it would be tried again much later.
const QUIET_AFTER_FAULTS: Micros = 75 * SECOND;
/// Progress is reported every so many events.
const PROGRESS_STEPS: u64 = 256;

/// One run.
pub(crate) struct Engine<'a> {
    pub(crate) scenario: &'a Scenario,
    seed: u64,
    pub(crate) now: Tick,
    pub(crate) moved: Tick,
    /// When something last happened that was more than a retry.
    stirred: Tick,
    pub(crate) agenda: Agenda,
    pub(crate) link: Link,
    pub(crate) api: Api,
    kubelets: Kubelets,
    jobs: Jobs,
    cluster: Cluster,
    /// The scheduler processes; none where one was killed and is not back yet.
    pub(crate) processes: Vec<Option<Process>>,
    /// The kinds that they watch: pod groups only where there are any.
    pub(crate) watched: Served,
    pub(crate) starts: Vec<u32>,
    pub(crate) maker: Maker<'a>,
    /// How schedulers are set up now.
    pub(crate) rules: SchedulerSpec,
    /// Who leads, if that can change.
    pub(crate) lease: Option<Lease>,
    /// Objects whose last version cannot be decoded.
    pub(crate) broken: Vec<Notice>,
    pub(crate) record: Record,
    pub(crate) checker: Checker,
    progress: Progress,
    attempts: u64,
    steps: u64,
    /// Events after which the world is said not to settle.
    pub(crate) most_steps: u64,
    digest: Digest,
    pub(crate) refused: u64,
    warnings: Vec<String>,
}

impl<'a> Engine<'a> {
    /// A cluster with its nodes, schedulers that have just listed it, and all that
    /// the scenario will do on the agenda.
    pub(crate) fn new(scenario: &'a Scenario, seed: u64, maker: Maker<'a>) -> Self {
        let rng = Rng::new(seed);
        let finite = scenario.workloads.iter().filter(|w| w.runtime.is_some());
        let plan = &scenario.faults;
        let replicas = usize::from(scenario.scheduler.replicas.max(1));
        let elects = replicas > 1 || plan.kills();
        let faults = Faults::new(&rng, plan);
        let mut engine = Self {
            scenario,
            seed,
            now: EPOCH,
            moved: EPOCH,
            stirred: EPOCH,
            agenda: Agenda::default(),
            link: Link::new(&rng, Latency::default(), faults),
            api: if plan.is_empty() { Api::default() } else { Api::with_history() },
            kubelets: Kubelets::new(&rng),
            jobs: Jobs::new(&rng),
            cluster: Cluster::default(),
            processes: (0..replicas).map(|_| None).collect(),
            watched: Served {
                groups: scenario.names_groups(),
                policies: scenario.has_policies(),
                topologies: scenario.has_topologies(),
                reports: scenario.has_machines(),
            },
            starts: vec![0; replicas],
            maker,
            rules: scenario.scheduler.clone(),
            lease: elects.then(Lease::default),
            broken: Vec::new(),
            record: Record::new(scenario),
            checker: Checker::new(scenario),
            progress: Progress {
                pods: scenario.pod_count(),
                finite: finite.map(crate::scenario::Workload::pod_count).sum(),
                ..Progress::default()
            },
            attempts: 0,
            steps: 0,
            most_steps: if plan.is_empty() { MAX_STEPS } else { MAX_FAULTY_STEPS },
            digest: Digest::default(),
            refused: 0,
            warnings: Vec::new(),
        };
        for class in &scenario.classes {
            engine.api.add_class(class.clone());
        }
        for budget in &scenario.budgets {
            engine.api.add_budget(budget.clone());
        }
        for group in &scenario.nodes {
            Cluster::add(engine.now, group, &mut engine.api);
            engine.equip(group);
        }
        engine.report();
        for notice in engine.api.take_notices() {
            engine.see(&notice);
        }
        for replica in (0..replicas).filter_map(|i| u8::try_from(i).ok()) {
            engine.start(Replica(replica));
        }
        engine.plan();
        engine
    }

    /// Puts on the agenda what the scenario says.
    fn plan(&mut self) {
        let scenario = self.scenario;
        for (index, workload) in (0u32..).zip(&scenario.workloads) {
            for round in 0..workload.repeat {
                let at = EPOCH.after_micros(workload.at + workload.every * i64::from(round));
                self.agenda.push(at, Event::Submit { workload: index, round });
                let late = workload.pod_group.as_ref().map_or(0, |group| group.after);
                if late > 0 {
                    let at = at.after_micros(late);
                    self.agenda.push(at, Event::Group { workload: index, round });
                }
            }
        }
        for (index, event) in scenario.events.iter().enumerate() {
            self.agenda.push(EPOCH.after_micros(event.at), Event::Cluster(index));
        }
        if !scenario.faults.is_empty() {
            for (index, (at, _)) in scenario.faults.blows.iter().enumerate() {
                self.agenda.push(EPOCH.after_micros(*at), Event::Blow(index));
            }
            self.agenda.push(self.link.faults.end(), Event::Mend);
        }
    }

    /// The process of that identity, if it still lives.
    pub(crate) fn process(&mut self, who: Identity) -> Option<&mut Process> {
        self.processes[usize::from(who.0.0)].as_mut().filter(|process| process.me == who)
    }

    /// Runs to the end.
    pub(crate) fn run(
        mut self,
        until: Option<Micros>,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Outcome, Unsettled> {
        let limit = until.map(|micros| EPOCH.after_micros(micros));
        let faulty = !self.scenario.faults.is_empty();
        let quiet = if faulty { QUIET_AFTER_FAULTS } else { QUIET };
        let ended = loop {
            let Some(next) = self.agenda.next() else {
                break Ended::Quiet;
            };
            if limit.is_some_and(|limit| next > limit) {
                break Ended::Until;
            }
            let last = if faulty { self.stirred } else { self.moved };
            if !self.agenda.moving() && next > last.after_micros(quiet) {
                break Ended::Quiet;
            }
            let Some((at, event)) = self.agenda.pop() else {
                break Ended::Quiet;
            };
            self.now = at;
            if event.stirs() {
                self.stirred = at;
            }
            self.step(event);
            self.steps += 1;
            if self.steps == self.most_steps {
                let reached = since_epoch(self.now);
                return Err(Unsettled { steps: self.most_steps, reached });
            }
            if self.steps.is_multiple_of(PROGRESS_STEPS) {
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
        if ended == Ended::Quiet {
            self.judge_rest();
        }
        Ok(Outcome {
            steps: self.steps,
            digest: self.digest.value(),
            faults: self.link.faults.counts,
            gpus: self.kubelets.machines.counts,
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
        if let Some(who) = event.process() {
            match self.process(who) {
                None => return,
                Some(Process { frozen: Some(inbox), .. }) => return inbox.push(event),
                Some(_) => {}
            }
        }
        match event {
            Event::Stream(who, kind, generation, item) => self.deliver(who, kind, generation, item),
            Event::Reconnect(who, kind) => self.reconnect(who, kind),
            Event::Hear(who, input) => self.tell(who, input),
            Event::Call(who, serial, call, manner) => self.serve(who, serial, &call, manner),
            Event::Answer(who, serial, result) => self.answered(who, serial, result),
            Event::Again(who, serial) => self.send(who, serial),
            Event::Lease(who) => self.look_at_lease(who),
            Event::Reload(who) => self.look_at_configuration(who),
            Event::Start(replica) => self.start(replica),
            Event::Thaw(who) => {
                // What arrived meanwhile is handled now, in order.
                let inbox = self.process(who).and_then(|process| process.frozen.take());
                inbox.into_iter().flatten().for_each(|event| self.step(event));
            }
            Event::Blow(index) => self.blow(self.scenario.faults.blows[index].1),
            Event::Mend => self.mend(),
            Event::Timer(who) => {
                let wish = self.process(who).and_then(|process| process.timer(now));
                self.settle(who, wish);
            }
            Event::Cycle(who) => self.cycle(who),
            Event::Notify(Watcher::Controllers, notice) => {
                self.jobs.observe(now, &notice, &self.scenario.workloads, &mut self.api);
                self.api.reconcile_budgets(now);
                self.api.reconcile_groups(now);
            }
            Event::Notify(_, notice) => {
                let timers = self.kubelets.observe(now, &notice, &self.api);
                self.set(timers);
            }
            Event::Kubelet(timer) => {
                let faults = &mut self.link.faults;
                let next = self.kubelets.fire(now, timer, &mut self.api, faults);
                self.set(next);
            }
            Event::Submit { workload, round } => {
                let scenario = self.scenario;
                let submitted = (workload, &scenario.workloads[workload as usize]);
                if submitted.1.pod_group.as_ref().is_some_and(|group| group.after == 0) {
                    self.api.add_group(now, objects::pod_group(submitted.1, round));
                }
                self.jobs.submit(now, submitted, round, &mut self.api);
            }
            Event::Group { workload, round } => {
                let workload = &self.scenario.workloads[workload as usize];
                self.api.add_group(now, objects::pod_group(workload, round));
            }
            Event::Cluster(index) => self.act(&self.scenario.events[index].action),
            Event::Orphans(node) => Cluster::collect_orphans(&node, &mut self.api),
            Event::TaintEviction(node) => {
                Cluster::evict_unreachable(now, &node, &mut self.api);
            }
        }
        self.report();
        for mut notice in self.api.take_notices() {
            self.stirred = now;
            let kind = notice.kind();
            if self.link.faults.strikes(now, Fault::Malformed) {
                notice.set_broken();
                if let Some(log) = self.api.log_mut() {
                    log.break_version(kind, notice.revision());
                }
                self.broken.push(notice.clone());
            }
            self.see(&notice);
            self.publish(&notice);
        }
    }

    /// Nodes join whose agents say what they are inside.
    fn equip(&mut self, group: &NodeGroup) {
        if let Some(machine) = group.machine {
            group.names().for_each(|name| self.kubelets.machines.join(&name, machine));
        }
    }

    /// Agents write what has changed.
    fn report(&mut self) {
        for report in self.kubelets.machines.take_reports(self.now) {
            if self.api.node(&report.metadata.name).is_some() {
                self.api.put_report(report);
            }
        }
    }

    fn set(&mut self, timers: impl IntoIterator<Item = (Tick, Timer)>) {
        for (at, timer) in timers {
            self.agenda.push(at, Event::Kubelet(timer));
        }
    }

    /// Something of the scenario happens.
    fn act(&mut self, action: &Action) {
        let now = self.now;
        for node in self.cluster.act(now, action, &mut self.api) {
            self.agenda.push(now.after_micros(ORPHAN_QUARANTINE), Event::Orphans(node));
        }
        match action {
            Action::Add(group) => self.equip(group),
            Action::Remove(names) => names.iter().for_each(|name| self.api.delete_report(name)),
            Action::Restore(names) => self.kubelets.machines.restore(names),
            _ => {}
        }
        match action {
            Action::NotReady(names) => {
                for name in names {
                    self.kubelets.silence(name);
                    let at = now.after_micros(UNREACHABLE);
                    self.agenda.push(at, Event::TaintEviction(name.clone()));
                }
            }
            Action::Ready(names) => {
                for name in names {
                    let timers = self.kubelets.wake(now, name);
                    self.set(timers);
                }
            }
            Action::Reload(change) => self.reconfigure(change),
            _ => self.befall(action),
        }
    }

    fn cycle(&mut self, who: Identity) {
        let now = self.now;
        let Some((attempt, wish)) = self.process(who).map(|process| process.cycle(now)) else {
            return;
        };
        if let Some(attempt) = attempt {
            self.attempts += 1;
            let members = attempt.gang.map(|gang| self.api.waiting_members(&gang));
            let one = || self.api.find(&attempt.pod).into_iter().collect();
            for id in members.unwrap_or_else(one) {
                self.record.attempted(id);
            }
        }
        self.settle(who, wish);
    }

    /// A scheduler is told something.
    pub(crate) fn tell(&mut self, who: Identity, input: Input) {
        let now = self.now;
        let wish = self.process(who).and_then(|process| process.hear(now, input));
        self.settle(who, wish);
    }

    /// After a scheduler was woken: its next wake-up, and what it wants done.
    pub(crate) fn settle(&mut self, who: Identity, wish: Option<Wish>) {
        match wish {
            Some(Wish::Cycle(at)) => self.agenda.push(at, Event::Cycle(who)),
            Some(Wish::Timer(at)) => self.agenda.push(at, Event::Timer(who)),
            None => {}
        }
        let now = self.now;
        let Some(process) = self.process(who) else {
            return;
        };
        let complaints = process.take_complaints();
        let effects = process.take_effects();
        for complaint in complaints {
            match complaint {
                Complaint::Malformed(what) => {
                    self.warn(format!("the scheduler could not read {what}"));
                }
                Complaint::Panic(what) => {
                    self.checker.found(now, &Finding { invariant: "panic", what });
                }
            }
        }
        for effect in effects {
            if let Effect::Event(_) = effect {
                continue; // read by people only, and the condition says the same
            }
            self.digest_effect(&effect);
            if let Effect::Group(_) = effect {
                continue; // for the controller that writes the status of groups
            }
            self.submit(who, effect);
            if self.link.faults.strikes(now, Fault::KillBetweenEffects) {
                let back = self.link.faults.comeback();
                return self.kill(who, back);
            }
        }
    }

    fn digest_effect(&mut self, effect: &Effect) {
        self.digest.number(self.now.0.unsigned_abs());
        match effect {
            Effect::Bind { pod, node, attempt, devices } => {
                self.digest.text(&pod.uid);
                self.digest.text(node);
                self.digest.number(*attempt);
                if let Some(devices) = devices {
                    self.digest.text(&devices.text());
                }
            }
            Effect::PatchStatus(patch) => {
                self.digest.text(&patch.pod.uid);
                self.digest.text(patch.condition.as_ref().map_or("", |c| &c.message));
                self.digest.text(patch.nominated_node.as_deref().unwrap_or("-"));
            }
            Effect::Call { request: Request::Evict { victim, how }, pod, .. } => {
                self.digest.text(&pod.uid);
                self.digest.text(&victim.uid);
                self.digest.number(match how {
                    Removal::DryRun => 1,
                    Removal::Evict | Removal::Delete => 0,
                    Removal::Checkpoint { asked } => asked.0.unsigned_abs(),
                });
            }
            Effect::Group(says) => {
                self.digest.text(&says.gang.to_string());
                self.digest.text(says.reason);
                self.digest.text(&says.message);
                self.digest.number(u64::from(says.gave_up));
            }
            Effect::Event(_) | Effect::Call { .. } => {}
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
        self.digest.number(notice.revision());
        self.digest.number(self.now.0.unsigned_abs());
        let (bound, ended) = match notice {
            Notice::Pod { id, .. } => self.standing(id.index()),
            Notice::Node { .. } | Notice::Object { .. } => (false, false),
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
