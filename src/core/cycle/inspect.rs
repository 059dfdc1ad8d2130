//! What the core believes of waiting pods, for the checker. Reads only.

use super::{Core, plugin_name};
use crate::cycle::binding::Stage;
use crate::io::{PodRef, Tick};
use crate::queue::{EXTENDER, Place};

/// A pod in a queue.
pub(crate) struct Waiting<'a> {
    pub(crate) pod: &'a PodRef,
    /// The queue that lists it.
    pub(crate) queue: &'static str,
    /// Where it believes to be itself.
    pub(crate) place: Place,
    /// Names of the plugins that rejected it.
    pub(crate) rejectors: Vec<&'static str>,
    pub(crate) message: Option<&'a str>,
}

/// A pod that has a node and is not yet bound.
pub(crate) struct Going<'a> {
    pub(crate) pod: &'a PodRef,
    pub(crate) node: &'a str,
    pub(crate) stage: &'static str,
    /// When its timer fires.
    pub(crate) due: Option<Tick>,
    /// Outside calls whose answers it waits for at Permit.
    pub(crate) asks: usize,
}

impl Core {
    /// Every pod that a queue lists, each queue in order, and those whose cycle is parked.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = Waiting<'_>> {
        let asking = self.asking.iter().filter_map(|(id, asking)| {
            Some(Waiting {
                pod: &self.cluster.pod(*id)?.key,
                queue: "asking",
                place: self.queue.entry(*id)?.place,
                rejectors: Vec::new(),
                message: Some(&asking.message),
            })
        });
        let queued = self.queue.listing().filter_map(|(id, queue, entry)| {
            let profile = self.profiles.get(entry.profile)?;
            let rejectors = (0..profile.plugins().len())
                .chain([EXTENDER])
                .filter(|p| entry.rejectors >> p & 1 == 1)
                .map(|p| plugin_name(profile, p))
                .collect();
            Some(Waiting {
                pod: &self.cluster.pod(id)?.key,
                queue,
                place: entry.place,
                rejectors,
                message: entry.message(),
            })
        });
        queued.chain(asking)
    }

    /// Every pod on its way to a node.
    pub(crate) fn going(&self) -> impl Iterator<Item = Going<'_>> {
        self.bindings.iter().filter_map(|(id, binding)| {
            Some(Going {
                pod: &self.cluster.pod(*id)?.key,
                node: &self.cluster.node(binding.node).name,
                stage: match binding.stage {
                    Stage::Permit { .. } => "permit",
                    Stage::Gathered => "gathered",
                    Stage::PreBind { .. } | Stage::Settling { .. } => "prebind",
                    Stage::PreBound => "prebound",
                    Stage::Bind { .. } => "bind",
                    Stage::Rebind => "rebind",
                    Stage::Settle => "settle",
                    Stage::Lent { .. } => "lent",
                    Stage::Shown { .. } => "shown",
                },
                due: binding.timer,
                asks: binding.stage.tokens().len(),
            })
        })
    }

    /// Sizes that have to agree: queue entries, pods in flight, bindings, timers,
    /// outside calls.
    pub(crate) fn sizes(&self) -> (usize, usize, usize, usize, usize) {
        let (entries, in_flight) = self.queue.tracked();
        let plans = self.plans.values().filter(|plan| plan.waits()).count();
        let timers = self.timers.len() - plans;
        (entries, in_flight, self.bindings.len(), timers, self.calls.len())
    }
}
