//! Gangs as the cluster knows them: what they ask for, and who is in them.
//!
//! Owns membership. A gang is known as soon as a pod names it or its group is seen, and
//! forgotten when neither is there. Shared between forks gang by gang. Must never decide
//! when a gang is tried.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_api::k8s;

use super::Cluster;
use crate::bugs::bug;
use crate::gang::{Api, Count, GangId, GangKey, GangSpec};
use crate::hash::TextMap;
use crate::io::{Kind, Object};
use crate::model::{LabelSet, Pod, PodId, PodStage};
use crate::policy::GangTerms;

/// Members that have ended and are remembered, per gang.
const MAX_ENDED: usize = 20_000;

/// A gang.
#[derive(Clone, Debug)]
pub struct Gang {
    /// Which.
    pub key: GangKey,
    /// What it asks for; none while its group is not known.
    pub spec: Option<Arc<GangSpec>>,
    /// Pods of ours in it that have not ended.
    pub members: BTreeSet<PodId>,
    /// Its minimum is bound or on its way: further members go alone.
    pub formed: bool,
    /// It was formed before.
    pub was_formed: bool,
    /// What policies say of it; its spec has it where its group leaves it out.
    pub terms: GangTerms,
    /// Members that have succeeded, by UID, with their labels.
    succeeded: BTreeMap<Box<str>, (u64, Arc<LabelSet>)>,
    seen: u64,
}

impl Gang {
    /// Whether a member is known to have succeeded.
    pub(crate) fn has_ended(&self, uid: &str) -> bool {
        self.succeeded.contains_key(uid)
    }
}

/// All gangs.
#[derive(Clone, Default)]
pub(crate) struct Gangs {
    slots: Vec<Option<Arc<Gang>>>,
    free: Vec<GangId>,
    /// Where a member that has ended well is counted, by UID.
    ended: TextMap<Box<str>, GangId>,
    by_key: TextMap<GangKey, GangId>,
    /// Those that want a domain for themselves.
    exclusive: BTreeSet<GangId>,
}

impl Gangs {
    fn get(&self, id: GangId) -> Option<&Arc<Gang>> {
        self.slots.get(id.0 as usize)?.as_ref()
    }

    fn get_mut(&mut self, id: GangId) -> Option<&mut Gang> {
        self.slots.get_mut(id.0 as usize)?.as_mut().map(Arc::make_mut)
    }

    fn claim(&mut self, key: GangKey) -> GangId {
        if let Some(id) = self.by_key.get(&key) {
            return *id;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            GangId(u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 gangs"))
        });
        self.by_key.insert(key.clone(), id);
        self.slots[id.0 as usize] = Some(Arc::new(Gang {
            key,
            spec: None,
            members: BTreeSet::new(),
            formed: false,
            was_formed: false,
            terms: GangTerms::default(),
            succeeded: BTreeMap::new(),
            seen: 0,
        }));
        id
    }
}

/// How the members of a gang stand, against what it asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Bound, on their way to be, or ended well.
    pub held: Count,
    /// Of those, without the ones on their way: nothing can keep them from being bound.
    pub settled: Count,
    /// Of those, bound and not ended.
    pub bound: usize,
    /// Of those, on their way.
    pub going: usize,
    /// Waiting, and nothing but the gang holds them.
    pub ready: Count,
    /// Waiting, and held back by something else; or alone, and not yet sure to be bound.
    pub gated: usize,
}

fn key_of(api: Api, namespace: &str, name: &str) -> GangKey {
    GangKey { api, namespace: namespace.into(), name: name.into() }
}

impl Cluster {
    /// A gang.
    #[must_use]
    pub fn gang(&self, id: GangId) -> Option<&Arc<Gang>> {
        self.gangs.get(id)
    }

    pub(crate) fn gang_mut(&mut self, id: GangId) -> Option<&mut Gang> {
        Arc::make_mut(&mut self.gangs).get_mut(id)
    }

    /// Gangs that ask where their members are, relative to each other.
    pub(crate) fn gangs_with_topology(&self) -> Vec<GangId> {
        let asks = |gang: &Arc<Gang>| gang.spec.as_ref().is_some_and(|spec| spec.has_topology());
        self.gangs().filter(|(_, gang)| asks(gang)).map(|(id, _)| id).collect()
    }

    /// Gangs that want a domain for themselves, in order of numbers.
    pub(crate) fn exclusive_gangs(&self) -> impl Iterator<Item = GangId> + '_ {
        self.gangs.exclusive.iter().copied()
    }

    /// Every gang, in order of numbers.
    pub(crate) fn gangs(&self) -> impl Iterator<Item = (GangId, &Arc<Gang>)> {
        let slots = self.gangs.slots.iter().zip(0..);
        slots.filter_map(|(gang, i)| Some((GangId(i), gang.as_ref()?)))
    }

    /// The gang of that name.
    #[must_use]
    pub fn gang_named(&self, key: &GangKey) -> Option<GangId> {
        self.gangs.by_key.get(key).copied()
    }

    /// The gang of a pod group.
    pub(crate) fn gang_of(&self, kind: Kind, namespace: &str, name: &str) -> Option<GangId> {
        self.gang_named(&key_of(Api::of_kind(kind)?, namespace, name))
    }

    /// The gang that a pod goes with, if it may not go alone.
    pub(crate) fn bound_to_gang(&self, pod: PodId) -> Option<GangId> {
        let id = self.pod(pod)?.gang?;
        self.gang(id).filter(|gang| !gang.formed).map(|_| id)
    }

    /// Notes which gang a pod of ours is in. Returns the gangs that it left and joined.
    pub(crate) fn regang(
        &mut self,
        pod: PodId,
        wire: Option<&k8s::Pod>,
    ) -> (Option<GangId>, Option<GangId>) {
        let before = self.pod(pod).and_then(|p| p.gang);
        let named = wire.and_then(|wire| Some((Api::of(wire)?, wire)));
        let key = named.map(|((api, name), wire)| key_of(api, &wire.metadata.namespace, name));
        if let (Some(id), Some(key)) = (before, &key)
            && self.gang(id).is_some_and(|gang| gang.key == *key)
        {
            return (None, None);
        }
        if before.is_none() && key.is_none() {
            return (None, None);
        }
        let gangs = Arc::make_mut(&mut self.gangs);
        if let Some(gang) = before.and_then(|id| gangs.get_mut(id)) {
            gang.members.remove(&pod);
        }
        let after = key.map(|key| gangs.claim(key));
        if let Some(gang) = after.and_then(|id| gangs.get_mut(id)) {
            gang.members.insert(pod);
        }
        if let Some(record) = self.pod_mut(pod) {
            record.gang = after;
        }
        self.move_site(pod, before, after);
        (before, after)
    }

    /// Takes in a pod group; the gang if anything that counts has changed.
    pub(crate) fn set_gang(&mut self, object: &Object, seen: u64) -> Option<GangId> {
        let (api, meta) = (Api::of_kind(object.kind())?, object.metadata());
        let mut spec = GangSpec::of(object)?;
        if bug!(self.bugs, GangRoleIgnored) {
            spec.roles.clear();
        }
        let gangs = Arc::make_mut(&mut self.gangs);
        let id = gangs.claim(key_of(api, &meta.namespace, &meta.name));
        let gang = gangs.get_mut(id)?;
        gang.seen = seen;
        spec = spec.under(&gang.terms);
        let same = gang.spec.as_ref().is_some_and(|before| spec.asks_as(before));
        let another = gang.spec.as_ref().is_some_and(|before| before.uid != spec.uid);
        gang.was_formed = spec.was_bound || gang.was_formed && !another;
        let exclusive = spec.is_exclusive();
        if !same {
            gang.spec = Some(Arc::new(spec));
        }
        if exclusive {
            gangs.exclusive.insert(id);
        } else {
            gangs.exclusive.remove(&id);
        }
        (!same).then_some(id)
    }

    /// A pod group is gone; the gang if it was known.
    pub(crate) fn unset_gang(&mut self, api: Api, namespace: &str, name: &str) -> Option<GangId> {
        let id = self.gang_named(&key_of(api, namespace, name))?;
        let gangs = Arc::make_mut(&mut self.gangs);
        gangs.exclusive.remove(&id);
        let gang = gangs.get_mut(id)?;
        gang.was_formed = false;
        gang.spec.take().map(|_| id)
    }

    /// Pod groups of an API last seen before relist `seen`.
    pub(crate) fn stale_gangs(&self, api: Api, seen: u64) -> Vec<GangKey> {
        let all = self.gangs.slots.iter().flatten();
        let stale = all.filter(|g| g.key.api == api && g.spec.is_some() && g.seen < seen);
        stale.map(|gang| gang.key.clone()).collect()
    }

    /// A member has ended well, or is no more; the gang if that is news.
    pub(crate) fn member_ended(
        &mut self,
        wire: &k8s::Pod,
        succeeded: bool,
        seen: u64,
    ) -> Option<GangId> {
        let (api, name) = Api::of(wire)?;
        let key = key_of(api, &wire.metadata.namespace, name);
        let uid = wire.metadata.uid.as_str();
        if !succeeded {
            return self.ended_gone(uid);
        }
        let gangs = Arc::make_mut(&mut self.gangs);
        let id = gangs.claim(key);
        let gang = gangs.get_mut(id)?;
        if gang.succeeded.len() >= MAX_ENDED && !gang.succeeded.contains_key(uid) {
            return None;
        }
        let labels = Arc::new(LabelSet::of(&wire.metadata.labels));
        let news = gang.succeeded.insert(uid.into(), (seen, labels)).is_none();
        gangs.ended.insert(uid.into(), id);
        news.then_some(id)
    }

    /// Whether a pod of this UID is a member that has ended well.
    pub(crate) fn has_succeeded(&self, uid: &str) -> bool {
        self.gangs.ended.contains_key(uid)
    }

    /// A member that had ended is no more; the gang if it was counted.
    pub(crate) fn ended_gone(&mut self, uid: &str) -> Option<GangId> {
        if !self.gangs.ended.contains_key(uid) {
            return None;
        }
        let gangs = Arc::make_mut(&mut self.gangs);
        let id = gangs.ended.remove(uid)?;
        gangs.get_mut(id)?.succeeded.remove(uid).map(|_| id)
    }

    /// Forgets ended members of an API's gangs that were last seen before relist `seen`;
    /// the gangs.
    pub(crate) fn sweep_ended(&mut self, api: Api, seen: u64) -> Vec<GangId> {
        let gangs = self.gangs.slots.iter().flatten().filter(|gang| gang.key.api == api);
        let ended = gangs.flat_map(|gang| &gang.succeeded);
        let stale: Vec<Box<str>> =
            ended.filter(|(_, (at, _))| *at < seen).map(|(uid, _)| uid.clone()).collect();
        let mut changed: Vec<GangId> =
            stale.iter().filter_map(|uid| self.ended_gone(uid)).collect();
        changed.dedup();
        changed
    }

    /// Forgets a gang of which nothing is left.
    pub(crate) fn reap_gang(&mut self, id: GangId) -> bool {
        let nothing = |g: &Gang| g.spec.is_none() && g.members.is_empty() && g.succeeded.is_empty();
        if !self.gang(id).is_some_and(|gang| nothing(gang)) {
            return false;
        }
        let gangs = Arc::make_mut(&mut self.gangs);
        if let Some(gang) = gangs.slots[id.0 as usize].take() {
            gangs.by_key.remove(&gang.key);
            gangs.free.push(id);
        }
        true
    }

    /// The role of a member.
    pub(crate) fn role_of(&self, spec: &GangSpec, pod: PodId) -> Option<usize> {
        if spec.roles.is_empty() {
            return None;
        }
        spec.role_of(&self.kin.group(self.pod(pod)?.group).labels)
    }

    /// The rank that a member's label says; none if it is no number from 0.
    pub(crate) fn rank_of(&self, pod: PodId, label: &str) -> Option<u32> {
        self.kin.group(self.pod(pod)?.group).labels.get(label)?.parse().ok()
    }

    /// How the members of a gang stand. `is_ready` says of a waiting one whether nothing
    /// but the gang holds it, `may_fail` of one that has room whether a plugin may still
    /// refuse it by itself.
    pub(crate) fn standing(
        &self,
        gang: &Gang,
        spec: &GangSpec,
        is_ready: impl Fn(PodId) -> bool,
        may_fail: impl Fn(PodId) -> bool,
    ) -> Standing {
        let (held, ready) = (Count::none(spec), Count::none(spec));
        let settled = Count::none(spec);
        let mut standing = Standing { held, settled, ready, ..Standing::default() };
        for (_, labels) in gang.succeeded.values() {
            standing.held.add(spec.role_of(labels));
            standing.settled.add(spec.role_of(labels));
        }
        for &id in &gang.members {
            let counts = |p: &&Pod| !p.deleting || bug!(self.bugs, GangCountsDeleting);
            let Some(pod) = self.pod(id).filter(counts) else {
                continue;
            };
            // It has ended, and this watch has not heard of it yet.
            if gang.has_ended(&pod.key.uid) {
                continue;
            }
            match pod.stage {
                PodStage::Pending if is_ready(id) => standing.ready.add(self.role_of(spec, id)),
                PodStage::Pending => standing.gated += 1,
                PodStage::Assumed(_) if may_fail(id) => standing.gated += 1,
                stage => {
                    let role = self.role_of(spec, id);
                    standing.held.add(role);
                    let going = matches!(stage, PodStage::Assumed(_));
                    if !going {
                        standing.settled.add(role);
                    }
                    standing.going += usize::from(going);
                    standing.bound += usize::from(!going);
                }
            }
        }
        standing
    }
}
