//! Gangs that keep what they have found while there is not enough.
//!
//! Owns which gang that is: one at a time, the first in order, so that no two of them hold
//! what the other waits for. Must never let a member on before the gang is whole.

use std::sync::Arc;

use super::failure::Failure;
use super::round::After;
use super::{Core, Decision, Outcome};
use crate::framework::Profile;
use crate::gang::{GangId, GangSpec};
use crate::io::Tick;
use crate::model::PodId;
use crate::queue::QueueCx;

impl Core {
    /// Whether a gang may keep what it has found: only the first in order does, so that
    /// no two of them hold what the other waits for.
    pub(super) fn may_accumulate(&mut self, now: Tick, id: GangId, spec: &GangSpec) -> bool {
        if !spec.accumulate {
            return false;
        }
        let Some(other) = self.rounds.accumulator.filter(|other| *other != id) else {
            return true;
        };
        let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
        if !self.queue.goes_before(&cx, id, other) {
            return false;
        }
        let failure = Failure::round_preempted();
        self.abort_round(now, other, None, &failure, After::Backoff);
        true
    }

    /// Keeps what was found.
    pub(super) fn accumulate(
        &mut self,
        now: Tick,
        id: GangId,
        spec: &GangSpec,
        profile: &Arc<Profile>,
        members: Vec<PodId>,
        decision: &mut Decision,
    ) {
        decision.outcome = Outcome::Accumulating { members: self.places(&members) };
        if !members.is_empty() || self.has_round(id) {
            self.add_to_round(now, id, spec, profile, members);
            self.rounds.accumulator = Some(id);
        }
    }

    /// What a gang has kept is all it needs now, or will never be.
    pub(super) fn end_accumulation(&mut self, now: Tick, id: GangId, formed: bool) {
        if formed {
            return self.permit_round(now, id);
        }
        let failure = Failure::error("members left while the gang waited for more room".into());
        self.abort_round(now, id, None, &failure, After::Again);
    }
}
