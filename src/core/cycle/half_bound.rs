//! Gangs of which only a part is bound: since when, and what becomes of the part.
//!
//! Owns the deadline of such a gang and the evictions that release its bound part. Must
//! never let a gang go that was whole before.

use super::Core;
use super::round::Due;
use crate::cluster::{Gang, Standing};
use crate::gang::{GangId, GangSpec};
use crate::io::{Effect, Eviction, Removal, Request, Tick, Token};
use crate::model::{PodId, PodStage};

/// How long after members that could not be evicted they are asked for again.
const RELEASE_AGAIN_SECONDS: i64 = 10;

impl Core {
    /// Notes since when a part of a gang is bound that was never whole.
    pub(super) fn note_half_bound(
        &mut self,
        now: Tick,
        id: GangId,
        gang: &Gang,
        spec: &GangSpec,
        standing: &Standing,
        formed: bool,
    ) {
        let half = !formed && !gang.was_formed && standing.bound > 0;
        match (half, self.rounds.half.get(&id)) {
            (true, None) => {
                self.rounds.half.insert(id, now);
                let at = now.after_secs(spec.timeout_seconds);
                self.rounds.arm(id, Due::HalfBound, spec.release.then_some(at));
            }
            (false, Some(_)) => {
                self.rounds.half.remove(&id);
                self.rounds.arm(id, Due::HalfBound, None);
            }
            _ => {}
        }
    }

    pub(super) fn forget_half_bound(&mut self, id: GangId) {
        self.rounds.half.remove(&id);
        self.rounds.arm(id, Due::HalfBound, None);
    }

    /// The rest of a half-bound gang could not be bound in time: the bound members are
    /// asked to go, so that they hold nothing.
    pub(super) fn release_half_bound(&mut self, now: Tick, id: GangId) {
        let Some(gang) = self.cluster.gang(id).filter(|g| !g.formed && !g.was_formed) else {
            return self.forget_half_bound(id);
        };
        let release = gang.spec.as_ref().is_some_and(|spec| spec.release);
        if !release {
            return;
        }
        let members: Vec<PodId> = gang.members.iter().copied().collect();
        for pod in members {
            let Some(record) = self.cluster.pod(pod) else { continue };
            let bound = matches!(record.stage, PodStage::Bound(_) | PodStage::Away(_));
            if !bound || record.deleting {
                continue;
            }
            let victim = record.key.clone();
            self.next_attempt += 1;
            let token = Token(self.next_attempt);
            self.rounds.releases.insert(token, id);
            let request = Request::Evict { victim: victim.clone(), how: Removal::Evict };
            let plugin = super::RELEASE.into();
            self.effects.push(Effect::Call { token, pod: victim, plugin, request });
        }
        // Until they are seen to go.
        let at = now.after_secs(RELEASE_AGAIN_SECONDS);
        self.rounds.arm(id, Due::HalfBound, Some(at));
    }

    /// The server answered such an eviction; true if it was one.
    pub(super) fn released(&mut self, token: Token, _eviction: &Eviction) -> bool {
        // What was refused is asked for again by the timer.
        self.rounds.releases.remove(&token).is_some()
    }
}
