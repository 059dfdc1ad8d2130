//! What is said of gangs: on every member that waits, and in the group's status.
//!
//! Owns when something is said. A change of class is said at once; other words of the same
//! class at most every few seconds per gang, because a gang of a thousand has a thousand
//! conditions. Must never decide anything.

use std::sync::Arc;

use muster_api::muster::{Domain, reason};

use super::Core;
use super::round::Due;
use crate::gang::GangId;
use crate::io::{Condition, Effect, EventRecord, GroupSays, Tick};
use crate::model::PodId;
use crate::report::{DomainView, truncate_note};

/// Something is broken.
pub(super) const BROKEN: &str = "SchedulerError";
/// How long other words of the same class have to wait.
const PAUSE_SECONDS: i64 = 5;
/// Members for which they have to wait a second longer: each has a condition.
const MEMBERS_A_SECOND: usize = 50;

/// The domain of a gang, and those of its roles.
type Domains = (Option<Domain>, Vec<(String, Domain)>);

/// What is said of a gang.
#[derive(Default)]
pub(super) struct Words {
    reason: &'static str,
    message: Arc<str>,
    /// Where the gang and its roles are.
    domains: Domains,
    /// What domains had room for when none had enough.
    tried: Vec<DomainView>,
    /// What was last said, and when.
    told: Option<(&'static str, Arc<str>)>,
    told_domains: Domains,
    told_at: Option<Tick>,
}

impl Core {
    /// Says something of a gang, now or soon.
    pub(super) fn say(&mut self, now: Tick, id: GangId, reason: &'static str, message: String) {
        let words = self.words.entry(id).or_default();
        words.reason = reason;
        if *words.message != *message {
            words.message = message.into();
        }
        self.say_again(now, id);
    }

    /// Notes where a gang is; it is said with the next words.
    pub(super) fn set_domains(&mut self, id: GangId, domains: Domains) {
        self.words.entry(id).or_default().domains = domains;
    }

    /// Notes what domains have room for; nothing if that is no longer of interest.
    pub(super) fn set_tried(&mut self, id: GangId, tried: Vec<DomainView>) {
        if !tried.is_empty() || self.words.contains_key(&id) {
            self.words.entry(id).or_default().tried = tried;
        }
    }

    /// What domains had room for when none had enough.
    pub(super) fn tried(&self, id: GangId) -> Vec<DomainView> {
        self.words.get(&id).map(|words| words.tried.clone()).unwrap_or_default()
    }

    /// Says that a gang has given back what it had.
    pub(super) fn say_gave_up(&mut self, now: Tick, id: GangId, reason: &'static str, text: &str) {
        let Some(gang) = self.cluster.gang(id).map(|gang| gang.key.clone()) else {
            return;
        };
        let message: Arc<str> = text.into();
        let words = self.words.entry(id).or_default();
        (words.domains, words.told_domains) = <_>::default();
        let (domain, role_domains) = <_>::default();
        let (text, gave_up) = (Arc::clone(&message), true);
        let says = GroupSays { gang, reason, message: text, gave_up, domain, role_domains };
        self.effects.push(Effect::Group(says));
        (words.reason, words.message) = (reason, Arc::clone(&message));
        (words.told, words.told_at) = (Some((reason, message)), Some(now));
        self.say_now(now, id);
    }

    /// Says what there is to say to whoever has not heard it, if it is time.
    pub(super) fn say_again(&mut self, now: Tick, id: GangId) {
        let Some(words) = self.words.get(&id) else {
            return;
        };
        let same_class = words.told.as_ref().is_some_and(|(told, _)| *told == words.reason);
        let same = words.domains == words.told_domains
            && words.told.as_ref().is_some_and(|(_, text)| same_class && *text == words.message);
        let more = self.queue.gathered(id).count() / MEMBERS_A_SECOND;
        let pause = PAUSE_SECONDS.saturating_add(i64::try_from(more).unwrap_or(0));
        let pause = words.told_at.map(|at| at.after_secs(pause)).filter(|at| *at > now);
        match pause.filter(|_| same_class && !same) {
            Some(at) => self.rounds.arm(id, Due::Words, Some(at)),
            None => self.say_now(now, id),
        }
    }

    /// Says what there is to say.
    pub(super) fn say_now(&mut self, now: Tick, id: GangId) {
        self.rounds.arm(id, Due::Words, None);
        let (Some(words), Some(gang)) = (self.words.get_mut(&id), self.cluster.gang(id)) else {
            return;
        };
        let (reason, message) = (words.reason, Arc::clone(&words.message));
        let said = (reason, Arc::clone(&message));
        let moved = words.domains != words.told_domains;
        let news = words.told.as_ref() != Some(&said);
        let silent = words.told.is_none() && reason.is_empty() && !moved;
        let key = gang.key.clone();
        if (news || moved) && !silent {
            words.told = Some(said);
            words.told_at = Some(now);
            words.told_domains.clone_from(&words.domains);
            let (message, gave_up) = (Arc::clone(&message), false);
            let (gang, (domain, role_domains)) = (key, words.domains.clone());
            let says = GroupSays { gang, reason, message, gave_up, domain, role_domains };
            self.effects.push(Effect::Group(says));
        }
        if reason.is_empty() {
            return;
        }
        let pods = self.addressees(id);
        if let Some(first) = pods.first().filter(|_| news) {
            self.group_event(*first, reason, &message);
        }
        for pod in pods {
            self.queue.word_member(pod, &message);
            let generation = self.cluster.pod(pod).and_then(|p| p.generation);
            let condition = Condition {
                status: false,
                reason: pod_reason(reason),
                message: Arc::clone(&message),
                observed_generation: generation,
            };
            if self.says_already(pod, &condition) {
                self.keep_condition(pod, condition);
                self.patch_nomination(pod);
            } else {
                self.write_condition(now, pod, condition);
            }
        }
    }

    /// What is said of a gang.
    pub(super) fn said(&self, id: GangId) -> Arc<str> {
        self.words.get(&id).map(|words| Arc::clone(&words.message)).unwrap_or_default()
    }

    /// Members that wait, at the gang or at its barriers.
    fn addressees(&self, id: GangId) -> Vec<PodId> {
        let mut pods: Vec<PodId> = self.queue.gathered(id).collect();
        if let Some(gang) = self.cluster.gang(id).filter(|_| self.has_round(id)) {
            pods.extend(gang.members.iter().filter(|pod| self.round_of(**pod) == Some(id)));
        }
        pods.sort_unstable();
        pods
    }

    /// One event per change, about the first member.
    fn group_event(&mut self, pod: PodId, reason: &'static str, message: &Arc<str>) {
        let (Some(record), Some(entry)) = (self.cluster.pod(pod), self.queue.entry(pod)) else {
            return;
        };
        let failed = [reason::UNSCHEDULABLE, BROKEN].contains(&reason);
        self.effects.push(Effect::Event(EventRecord {
            pod: record.key.clone(),
            related: None,
            warning: failed,
            reason: if failed { "FailedScheduling" } else { reason },
            action: "Scheduling",
            note: truncate_note(message),
            reporting_controller: Arc::clone(self.profiles[entry.profile].scheduler_name()),
        }));
    }

    /// The gang is no more.
    pub(super) fn forget_words(&mut self, id: GangId) {
        self.words.remove(&id);
        self.fenced.remove(&id);
        self.rounds.arm(id, Due::Words, None);
        self.forget_half_bound(id);
        self.rounds.arm(id, Due::Starving, None);
        self.rounds.arm(id, Due::Keep, None);
        if self.keep.as_ref().is_some_and(|keep| keep.is_for(id)) {
            self.keep = None;
            self.cluster.set_kept_seconds(0);
        }
    }
}

/// The reason in the PodScheduled condition: what autoscalers act upon is
/// `Unschedulable`, and nothing else is.
fn pod_reason(reason: &'static str) -> &'static str {
    match reason {
        reason::WAITING_FOR_PERMIT => "WaitingOnPermit",
        reason::SCHEDULE_TIMEOUT | reason::REJECTED => "Unschedulable",
        other => other,
    }
}
