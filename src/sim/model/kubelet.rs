//! Model kubelets: start the pods that are bound to their node, run and end them.
//!
//! Must never decide where a pod goes, nor change anything but pod status.

use std::collections::BTreeMap;

use muster_core::io::Tick;

use super::api::{Api, Notice, PodId};
use super::objects::is_terminal;
use crate::rng::Rng;
use crate::time::{MILLISECOND, Micros, SECOND};

/// Pulling and starting takes this long, drawn evenly.
const STARTUP: (Micros, Micros) = (500 * MILLISECOND, 3 * SECOND);

/// Something a kubelet does later. An `epoch` of the past means that the pod was
/// lost with its node or deleted since: nothing happens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Timer {
    Start { pod: PodId, epoch: u32 },
    Finish { pod: PodId, epoch: u32 },
}

/// All kubelets of the cluster.
#[derive(Debug)]
pub(crate) struct Kubelets {
    rng: Rng,
    epoch: u32,
    tracked: BTreeMap<PodId, u32>,
}

impl Kubelets {
    pub(crate) fn new(rng: &Rng) -> Self {
        Self { rng: rng.split("kubelet", 0), epoch: 0, tracked: BTreeMap::new() }
    }

    /// A watch tells the kubelets of a change; they answer with what they will do.
    pub(crate) fn observe(&mut self, now: Tick, notice: &Notice, api: &Api) -> Vec<(Tick, Timer)> {
        match notice {
            Notice::Pod { id, object, deleted, .. } => {
                if *deleted || is_terminal(object) {
                    self.tracked.remove(id);
                } else if !object.spec.node_name.is_empty()
                    && !self.tracked.contains_key(id)
                    && api.node(&object.spec.node_name).is_some()
                {
                    return vec![self.admit(now, *id)];
                }
                Vec::new()
            }
            Notice::Node { object, deleted } => {
                let pods = api.pods_on(&object.metadata.name);
                if *deleted {
                    for pod in pods {
                        self.tracked.remove(&pod);
                    }
                    return Vec::new();
                }
                // A node that came back starts what is still bound to it anew.
                pods.into_iter()
                    .filter(|pod| !self.tracked.contains_key(pod))
                    .collect::<Vec<_>>()
                    .into_iter()
                    .map(|pod| self.admit(now, pod))
                    .collect()
            }
        }
    }

    fn admit(&mut self, now: Tick, pod: PodId) -> (Tick, Timer) {
        self.epoch += 1;
        self.tracked.insert(pod, self.epoch);
        let startup = self.rng.split("startup", u64::from(pod.0)).between(STARTUP.0, STARTUP.1);
        (now.after_micros(startup), Timer::Start { pod, epoch: self.epoch })
    }

    /// A timer is due.
    pub(crate) fn fire(&mut self, now: Tick, timer: Timer, api: &mut Api) -> Option<(Tick, Timer)> {
        let (Timer::Start { pod, epoch } | Timer::Finish { pod, epoch }) = timer;
        if self.tracked.get(&pod) != Some(&epoch) {
            return None;
        }
        let stored = api.pod(pod)?;
        // Kubelets hear of a lost node later than the API server does.
        api.node(&stored.object.spec.node_name)?;
        let runtime = stored.facts.runtime;
        match timer {
            Timer::Start { .. } => {
                api.set_phase(now, pod, "Running");
                Some((now.after_micros(runtime?), Timer::Finish { pod, epoch }))
            }
            Timer::Finish { .. } => {
                api.set_phase(now, pod, "Succeeded");
                None
            }
        }
    }
}
