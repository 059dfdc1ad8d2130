//! Model kubelets: admit the pods that are bound to their node, start, run and end them.
//!
//! Must never decide where a pod goes, nor change anything but pod status; a pod
//! whose deletion was asked for is ended, and only then gone.

use std::collections::{BTreeMap, BTreeSet};

use muster_api::k8s::{Node, Pod};
use muster_api::muster::annotations::{CHECKPOINT_REQUESTED, LAST_CHECKPOINT};
use muster_core::io::Tick;

use super::api::{Api, Facts, Notice, PodId, timestamp};
use super::machines::Machines;
use super::objects::{is_terminal, time_on};
use super::requests::{Amounts, amounts, pod_requests};
use crate::faults::Faults;
use crate::rng::Rng;
use crate::scenario::{Fault, GPU};
use crate::time::{MILLISECOND, Micros, SECOND};

/// Pulling and starting takes this long, drawn evenly.
const STARTUP: (Micros, Micros) = (500 * MILLISECOND, 3 * SECOND);
/// Ending takes this long, or as long as the grace, if that is shorter.
const SHUTDOWN: (Micros, Micros) = (100 * MILLISECOND, 10 * SECOND);

/// Something a kubelet does later. An `epoch` of the past means that the pod was
/// lost with its node or deleted since: nothing happens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Timer {
    Start { pod: PodId, epoch: u32 },
    Finish { pod: PodId, epoch: u32 },
    Fail { pod: PodId, epoch: u32 },
    Kill { pod: PodId, epoch: u32 },
    Save { pod: PodId, epoch: u32 },
}

impl Timer {
    const fn of(self) -> (PodId, u32) {
        let (Self::Start { pod, epoch }
        | Self::Finish { pod, epoch }
        | Self::Fail { pod, epoch }
        | Self::Kill { pod, epoch }
        | Self::Save { pod, epoch }) = self;
        (pod, epoch)
    }
}

/// All kubelets of the cluster.
#[derive(Debug)]
pub(crate) struct Kubelets {
    rng: Rng,
    epoch: u32,
    tracked: BTreeMap<PodId, u32>,
    /// Admitted pods; they hold what they ask for.
    admitted: BTreeSet<PodId>,
    ending: BTreeSet<PodId>,
    /// Pods that were asked to save their work, and when.
    asked: BTreeMap<PodId, i64>,
    /// Nodes whose kubelet is silent, and what it will do when it is back.
    silent: BTreeMap<String, Vec<Timer>>,
    /// GPUs, and who has them.
    pub(crate) machines: Machines,
}

impl Kubelets {
    pub(crate) fn new(rng: &Rng) -> Self {
        Self {
            rng: rng.split("kubelet", 0),
            epoch: 0,
            tracked: BTreeMap::new(),
            admitted: BTreeSet::new(),
            ending: BTreeSet::new(),
            asked: BTreeMap::new(),
            silent: BTreeMap::new(),
            machines: Machines::new(rng),
        }
    }

    /// The kubelet of a node does nothing any more.
    pub(crate) fn silence(&mut self, node: &str) {
        self.silent.entry(node.to_owned()).or_default();
    }

    /// The kubelet of a node is back; what it has missed is due now.
    pub(crate) fn wake(&mut self, now: Tick, node: &str) -> Vec<(Tick, Timer)> {
        let held = self.silent.remove(node).unwrap_or_default();
        held.into_iter().map(|timer| (now, timer)).collect()
    }

    fn forget(&mut self, pod: PodId) {
        self.tracked.remove(&pod);
        self.admitted.remove(&pod);
        self.ending.remove(&pod);
        self.asked.remove(&pod);
        self.machines.release(pod);
    }

    /// A watch tells the kubelets of a change; they answer with what they will do.
    pub(crate) fn observe(&mut self, now: Tick, notice: &Notice, api: &Api) -> Vec<(Tick, Timer)> {
        match notice {
            Notice::Pod { id, facts, object, deleted, .. } => {
                if *deleted || is_terminal(object) {
                    self.forget(*id);
                    return Vec::new();
                }
                let here = &object.spec.node_name;
                if here.is_empty() || api.node(here).is_none() {
                    return Vec::new();
                }
                let mut timers = Vec::new();
                if !self.tracked.contains_key(id) {
                    timers.push(self.track(now, *id, facts));
                }
                timers.extend(self.save(now, *id, facts.saves, object));
                timers.extend(self.end(now, *id, object));
                timers
            }
            Notice::Node { object, deleted, .. } => {
                let pods = api.pods_on(&object.metadata.name);
                if *deleted {
                    for pod in pods {
                        self.forget(pod);
                    }
                    return Vec::new();
                }
                // A node that came back starts what is still bound to it anew.
                let new: Vec<_> =
                    pods.into_iter().filter(|pod| !self.tracked.contains_key(pod)).collect();
                let start = |id: &PodId| Some(self.track(now, *id, &api.pod(*id)?.facts));
                let mut timers: Vec<_> = new.iter().filter_map(start).collect();
                for id in new {
                    if let Some(stored) = api.pod(id) {
                        timers.extend(self.end(now, id, &stored.object));
                    }
                }
                timers
            }
            Notice::Object { .. } => Vec::new(),
        }
    }

    fn track(&mut self, now: Tick, pod: PodId, facts: &Facts) -> (Tick, Timer) {
        self.epoch += 1;
        self.tracked.insert(pod, self.epoch);
        let (least, most) = facts.startup.unwrap_or(STARTUP);
        let startup = self.rng.split("startup", u64::from(pod.0)).between(least, most);
        (now.after_micros(startup), Timer::Start { pod, epoch: self.epoch })
    }

    /// The pod was asked to save its work: some do, and say so.
    fn save(
        &mut self,
        now: Tick,
        pod: PodId,
        takes: Option<Micros>,
        object: &Pod,
    ) -> Option<(Tick, Timer)> {
        let asked = time_on(object, CHECKPOINT_REQUESTED)?;
        let epoch = *self.tracked.get(&pod)?;
        let known = self.asked.insert(pod, asked);
        let new = known.is_none_or(|known| known < asked);
        Some((now.after_micros(takes.filter(|_| new)?), Timer::Save { pod, epoch }))
    }

    /// The pod's deletion was asked for: it is ended within its grace.
    fn end(&mut self, now: Tick, pod: PodId, object: &Pod) -> Option<(Tick, Timer)> {
        let due = object.metadata.deletion_timestamp?;
        let epoch = *self.tracked.get(&pod)?;
        if !self.ending.insert(pod) {
            return None;
        }
        let took = self.rng.split("shutdown", u64::from(pod.0)).between(SHUTDOWN.0, SHUTDOWN.1);
        let at = now.after_micros(took).min(Tick(due.0).max(now));
        Some((at, Timer::Kill { pod, epoch }))
    }

    /// A timer is due.
    pub(crate) fn fire(
        &mut self,
        now: Tick,
        timer: Timer,
        api: &mut Api,
        faults: &mut Faults,
    ) -> Option<(Tick, Timer)> {
        let (pod, epoch) = timer.of();
        if self.tracked.get(&pod) != Some(&epoch) {
            return None;
        }
        let stored = api.pod(pod)?;
        // Kubelets hear of a lost node later than the API server does.
        let node = api.node(&stored.object.spec.node_name)?;
        if let Some(held) = self.silent.get_mut(&node.metadata.name) {
            held.push(timer);
            return None;
        }
        let runtime = stored.facts.runtime;
        match timer {
            Timer::Start { .. } => {
                let misfit = !self.fits(&stored.object, node, api);
                faults.counts.misfits += u64::from(misfit);
                let gpus = pod_requests(&stored.object.spec).get(GPU).copied().unwrap_or(0);
                let gpus = usize::try_from(gpus).unwrap_or(0);
                let name = &node.metadata.name;
                if misfit || faults.strikes(now, Fault::KubeletRefuses) {
                    // As if a device plugin had failed; else OutOfcpu and its like.
                    let devices = !misfit && gpus > 0 && self.machines.has(name);
                    let reason = if devices { "UnexpectedAdmissionError" } else { "" };
                    api.refuse(now, pod, reason);
                    return None;
                }
                if let Err(reason) = self.machines.admit(name, pod, &stored.object, gpus) {
                    api.refuse(now, pod, reason);
                    return None;
                }
                self.admitted.insert(pod);
                api.set_phase(now, pod, "Running");
                if faults.strikes(now, Fault::PodFails) {
                    let after = faults.failing_after();
                    return Some((now.after_micros(after), Timer::Fail { pod, epoch }));
                }
                Some((now.after_micros(runtime?), Timer::Finish { pod, epoch }))
            }
            Timer::Save { .. } => {
                api.note(pod, LAST_CHECKPOINT, timestamp(now).to_string());
                None
            }
            Timer::Finish { .. } => {
                api.set_phase(now, pod, "Succeeded");
                None
            }
            Timer::Fail { .. } => {
                api.set_phase(now, pod, "Failed");
                None
            }
            Timer::Kill { .. } => {
                api.delete_pod(pod);
                None
            }
        }
    }

    /// Admission: whether a pod fits beside what was admitted to the node before.
    fn fits(&self, pod: &Pod, node: &Node, api: &Api) -> bool {
        let mut free: Amounts = amounts(&node.status.allocatable);
        let others = api.pods_on(&node.metadata.name).into_iter();
        for id in others.filter(|id| self.admitted.contains(id)) {
            let Some(other) = api.pod(id) else { continue };
            for (name, amount) in pod_requests(&other.object.spec) {
                *free.entry(name).or_default() -= amount;
            }
        }
        pod_requests(&pod.spec)
            .iter()
            .all(|(name, amount)| *amount == 0 || free.get(name).copied().unwrap_or(0) >= *amount)
    }
}
