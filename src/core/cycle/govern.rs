//! Scheduling policies while the scheduler runs.
//!
//! Owns what a change of them means for whoever waits: pods take their new shape when they
//! are tried next, gangs are looked at again. Nobody is tried because of it: policies
//! weigh nodes that fit, and no more of them do.

use std::collections::BTreeSet;

use super::Core;
use super::round::Due;
use crate::framework::{ExtensionPoint, Profile};
use crate::gang::{GangId, GangKey};
use crate::io::Tick;
use crate::report::PolicyReport;

/// Names of the plugins that score in any of these profiles.
pub(super) fn score_plugins<'a>(
    profiles: impl Iterator<Item = &'a Profile>,
) -> BTreeSet<&'static str> {
    let called = profiles.flat_map(|profile| profile.called(ExtensionPoint::Score));
    called.map(|(_, weighted)| weighted.plugin.name()).collect()
}

impl Core {
    /// Policies, or what they may say, have changed.
    pub(super) fn scheduling_policies_changed(&mut self, now: Tick) {
        let gangs: Vec<GangId> = self.cluster.gangs().map(|(id, _)| id).collect();
        gangs.into_iter().for_each(|gang| self.governed_otherwise(now, gang));
        self.protections_changed(now);
    }

    /// A gang may be governed otherwise. Members that go alone may go elsewhere if it was a
    /// policy that held them together.
    fn governed_otherwise(&mut self, now: Tick, id: GangId) {
        self.queue.gang_changed(id, false);
        if self.cluster.gang(id).is_some_and(|gang| gang.terms.topology.is_some()) {
            self.call_members(now, id);
        }
    }

    /// A namespace has other labels, and somebody goes by them.
    pub(super) fn namespace_changed(&mut self, now: Tick, name: &str) {
        let within = self.cluster.gangs().filter(|(_, gang)| *gang.key.namespace == *name);
        let gangs: Vec<GangId> = within.map(|(id, _)| id).collect();
        gangs.into_iter().for_each(|gang| self.governed_otherwise(now, gang));
        self.protections_changed(now);
    }

    /// Has a gang obey the policies that govern it now; true if that changes anything. A
    /// half-bound one has the deadline that it would have had from the beginning.
    pub(super) fn govern_gang(&mut self, id: GangId) -> bool {
        if !self.cluster.govern_gang(id) {
            return false;
        }
        let spec = self.cluster.gang(id).and_then(|gang| gang.spec.as_ref());
        if let (Some(spec), Some(since)) = (spec, self.rounds.half.get(&id)) {
            let at = since.after_secs(spec.timeout_seconds);
            let due = spec.release.then_some(at);
            self.rounds.arm(id, Due::HalfBound, due);
        }
        true
    }

    /// Grows whenever something else is said of a policy; counts aside.
    #[must_use]
    pub fn policies_generation(&self) -> u64 {
        self.cluster.policies_generation()
    }

    /// What is said of policies, and what they say of gangs, for whoever writes it.
    #[must_use]
    pub fn policy_report(&self) -> PolicyReport {
        let starts = self.cluster.gangs().filter_map(|(_, gang)| {
            let key: &GangKey = &gang.key;
            Some((key.clone(), gang.terms.start_seconds?))
        });
        PolicyReport { policies: self.cluster.policy_views(), starts: starts.collect() }
    }
}
