//! Gangs: what has become of them, and whether they can be tried.
//!
//! Owns the way from members that exist to a gang in the queue: counting, whether it is
//! formed, and what is said meanwhile. The attempt is `seat`'s, what comes after it `round`'s.
//! Must never take room.

use std::sync::Arc;

use muster_api::muster::reason;

use super::restraint::Seeker;
use super::{Core, Outcome};
use crate::cluster::{Gang, Standing};
use crate::gang::{GangId, GangSpec};
use crate::io::Tick;
use crate::model::PodId;
use crate::queue::{QueueCx, Rank};
use crate::report::{GangView, Observation};

impl Core {
    /// Looks at all gangs of which anything has changed.
    pub(super) fn settle_gangs(&mut self, now: Tick) {
        if std::mem::take(&mut self.topology_news) {
            self.topology_changed(now);
        }
        if std::mem::take(&mut self.fence_news) {
            self.open_fences(now);
        }
        self.mend_rounds(now);
        loop {
            let changed = self.queue.take_changed_gangs();
            if changed.is_empty() {
                return;
            }
            for (gang, stir) in changed {
                self.settle_gang(now, gang, stir.news);
            }
        }
    }

    fn settle_gang(&mut self, now: Tick, id: GangId, news: bool) {
        if self.cluster.reap_gang(id) || self.cluster.gang(id).is_none() {
            self.queue.forget_gang(id);
            self.drop_hold(now, id);
            self.seeks_no_more(Seeker::Gang(id));
            return self.forget_words(id);
        }
        let governed = self.govern_gang(id);
        if governed {
            // Members that go alone may be free to go elsewhere now.
            self.call_members(now, id);
        }
        let news = governed || news;
        // Until it is over the round has the say.
        if self.has_whole_round(id) {
            return;
        }
        let Some(gang) = self.cluster.gang(id).map(Arc::clone) else {
            return;
        };
        self.mind_hold(now, id);
        let Some(spec) = gang.spec.as_ref().map(Arc::clone) else {
            self.pause_hold(now, id);
            self.set_formed(now, id, &gang, false);
            self.queue.idle_gang(id, false);
            let text = format!("waiting for pod group {} to exist", gang.key);
            return self.say(now, id, reason::GANG_INCOMPLETE, text);
        };
        let mut standing = self.standing(id, &gang, &spec);
        let formed = spec.alone || standing.held.suffices(&spec);
        let could = standing.held.plus(&standing.ready);
        let keeps = spec.accumulate && could.suffices(&spec);
        if self.has_round(id) && (formed || !keeps) {
            return self.end_accumulation(now, id, formed);
        }
        self.set_formed(now, id, &gang, formed);
        if gang.formed != formed {
            // Members that went alone are with their gang again, or the other way round.
            standing = self.standing(id, &gang, &spec);
        }
        // On their way is not there: a bind may still fail.
        if !gang.was_formed
            && standing.settled.suffices(&spec)
            && let Some(gang) = self.cluster.gang_mut(id)
        {
            gang.was_formed = true;
        }
        self.note_half_bound(now, id, &gang, &spec, &standing, formed);
        if formed || !could.suffices(&spec) {
            self.end_keep(now, id);
        }
        if formed {
            self.end_hold(now, id);
        } else if !could.suffices(&spec) {
            self.pause_hold(now, id);
        }
        if formed {
            self.seeks_no_more(Seeker::Gang(id));
            self.queue.idle_gang(id, standing.going == 0);
            if standing.going == 0
                && let Some(since) = self.queue.take_complete(id)
            {
                let (members, since_complete_micros) = (standing.held.all, now.0 - since.0);
                self.observations.push(Observation::GangBound { members, since_complete_micros });
            }
            if spec.has_topology() {
                if news {
                    self.call_members(now, id);
                }
                let domains = self.domains_of(id, &spec);
                self.set_domains(id, domains);
            }
            return self.say(now, id, "", String::new());
        }
        if !could.suffices(&spec) {
            self.queue.idle_gang(id, false);
            let mut text = could.share(&spec, "exist");
            if standing.gated > 0 {
                text += &format!("; {} more are held back themselves", standing.gated);
            }
            return self.say(now, id, reason::GANG_INCOMPLETE, text);
        }
        match self.profile_of_gang(id) {
            Ok(profile) => {
                let rank = self.rank_gang(id, &spec, &standing);
                let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
                self.queue.offer_gang(&cx, id, (profile, rank), news);
                self.say_again(now, id);
            }
            Err(text) => {
                self.queue.idle_gang(id, false);
                self.say(now, id, reason::REJECTED, text);
            }
        }
    }

    /// Whether as many members have room as the gang asks for.
    pub(super) fn quorum_holds(&self, id: GangId) -> bool {
        let gang = self.cluster.gang(id);
        let spec = gang.and_then(|gang| Some((gang, gang.spec.as_ref()?)));
        spec.is_some_and(|(gang, spec)| {
            spec.alone || self.standing(id, gang, spec).held.suffices(spec)
        })
    }

    /// How the members of a gang stand.
    pub(super) fn standing(&self, id: GangId, gang: &Gang, spec: &GangSpec) -> Standing {
        let ready = |pod: PodId| self.queue.is_gathered(id, pod);
        let alone = |pod: PodId| {
            self.unsent(pod) && self.bindings.get(&pod).is_some_and(|b| b.round.is_none())
        };
        self.cluster.standing(gang, spec, ready, alone)
    }

    /// Members of a gang that is formed go alone; of one that is not, together.
    fn set_formed(&mut self, now: Tick, id: GangId, gang: &Gang, formed: bool) {
        if gang.formed == formed {
            return;
        }
        if let Some(gang) = self.cluster.gang_mut(id) {
            gang.formed = formed;
        }
        // Who waits for an extender's answer has not gone yet.
        let asks = |pod: &&PodId| !formed && self.asking.contains_key(*pod);
        let asking: Vec<PodId> = gang.members.iter().filter(asks).copied().collect();
        asking.iter().for_each(|pod| self.stop_asking(*pod));
        if !formed {
            gang.members.iter().for_each(|pod| self.plan_for_one_ends(now, id, *pod));
        }
        let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
        if formed {
            self.queue.disband(&cx, id);
        } else {
            self.queue.come_back(&cx, asking.into_iter());
            self.queue.gather(&cx, gang.members.iter().copied());
        }
    }

    /// The profile of all members, or why there is none.
    fn profile_of_gang(&self, id: GangId) -> Result<usize, String> {
        let entries = self.queue.gathered(id).filter_map(|pod| Some((pod, self.queue.entry(pod)?)));
        let mut profiles = entries.map(|(pod, entry)| (entry.profile, pod));
        let Some((first, _)) = profiles.next() else {
            return Err("no member waits".to_owned());
        };
        match profiles.find(|(profile, _)| *profile != first) {
            None => Ok(first),
            Some((other, pod)) => {
                let name = |at: usize| self.profiles[at].scheduler_name();
                let member = self.cluster.pod(pod).map(|p| p.key.to_string()).unwrap_or_default();
                Err(format!(
                    "members name different schedulers: {member} asks for {}, others for {}",
                    name(other),
                    name(first)
                ))
            }
        }
    }

    fn rank_gang(&self, id: GangId, spec: &GangSpec, standing: &Standing) -> Rank {
        let class = spec.class.as_ref().and_then(|name| self.cluster.policies().class(name));
        let members = || self.queue.gathered(id).filter_map(|pod| self.cluster.pod(pod));
        let priority = spec.priority.or_else(|| class.map(|class| class.value));
        let priority = priority.or_else(|| members().map(|p| p.priority).max()).unwrap_or(0);
        // Whoever has begun, or lost members, is whole before others begin; members that
        // have ended well are a beginning too.
        let urgent = standing.settled.all > 0;
        Rank { urgent, priority, created: spec.created }
    }

    /// A member is not on its way any more, or has become another: its gang is looked at.
    pub(super) fn gang_stirred(&mut self, pod: PodId, news: bool) {
        if let Some(gang) = self.cluster.pod(pod).and_then(|p| p.gang) {
            self.queue.gang_changed(gang, news);
        }
    }

    /// How the gang of a pod stands.
    pub(super) fn gang_view(&self, pod: PodId) -> Option<GangView> {
        let id = self.cluster.pod(pod)?.gang?;
        let gang = self.cluster.gang(id)?;
        let mut view = GangView { group: gang.key.to_string(), ..GangView::default() };
        if let Some(spec) = &gang.spec {
            let standing = self.standing(id, gang, spec);
            (view.needs, view.have) = (spec.min, standing.held.all);
            view.wait = standing.ready.all;
        }
        view.message = self.said(id).to_string();
        view.domains = self.tried(id);
        view.preemption = self.looked.get(&id).cloned();
        Some(view)
    }

    /// The same, after a try that leaves no trace: for what-if questions.
    pub(super) fn try_gang_of(
        &mut self,
        now: Tick,
        namespace: &str,
        name: &str,
    ) -> Option<GangView> {
        self.settle_gangs(now);
        let pod = *self.by_key.get(super::ingest::key_text(namespace, name).as_str())?;
        let mut view = self.gang_view(pod)?;
        let tried = self
            .cluster
            .bound_to_gang(pod)
            .filter(|id| self.queue.gang(*id).is_some_and(crate::queue::GangEntry::is_active));
        let Some(id) = tried else {
            return Some(view);
        };
        let decision = self.attempt_gang(now, id)?;
        view.message = decision.message.map(|text| text.to_string()).unwrap_or_default();
        view.domains = self.tried(id);
        view.preemption = self.looked.get(&id).cloned();
        if let Outcome::Gathered { members } = decision.outcome {
            self.drop_round(id);
            let mut seated: Vec<PodId> = Vec::with_capacity(members.len());
            for (member, node) in members.iter().rev() {
                view.placed.insert(member.to_string(), node.to_string());
                let Some(pod) = self.find(member) else { continue };
                self.unreserve(pod);
                seated.push(pod);
            }
            let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
            self.queue.come_back(&cx, seated.into_iter());
        }
        Some(view)
    }
}
