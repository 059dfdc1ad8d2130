//! A copy of the scheduler's state on which changes are tried out.
//!
//! Everything that has a place is put on it once; each try forks that, so a try costs what it
//! changes. Whoever else waits takes no part, but for those that are expected on a node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_api::k8s::Pod;
use muster_api::muster::annotations;
use muster_core::gang::{Api, GangKey};
use muster_core::io::{
    Change as Wire, Effect, Eviction, Input, Kind, ObjectKey, PodRef, Reply, Request, Tick,
};
use muster_core::{CacheView, Config, Core, Decision, Explanation, Outcome, Profile, QueueView};
use serde_json::Value;

use super::world::{Item, ended};
use super::{Change, Key, What, World};
use crate::explain::{Decoded, Document, decode};

/// Attempts of one try: beyond is no end in sight.
const MAX_ATTEMPTS: usize = 50_000;

/// What came of a try.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// Who found a node, and which.
    pub placed: BTreeMap<Key, String>,
    /// The gang that was asked about has room for its minimum.
    pub gathered: bool,
    /// Who would have to leave for it.
    pub victims: BTreeSet<Key>,
    /// What is said of whom was asked about, if it waits.
    pub message: String,
    /// The same in one word, of a gang.
    pub reason: &'static str,
    /// Every node, if that was asked for.
    pub explanation: Option<Explanation>,
}

/// The copy.
pub struct Stage<'w> {
    world: &'w World,
    base: Core,
    now: Tick,
    schedulers: BTreeSet<Arc<str>>,
    /// Those that wait and are expected on a node.
    expected: Vec<&'w Key>,
}

impl<'w> Stage<'w> {
    /// Puts on it whatever has a place.
    #[must_use]
    pub fn new(world: &'w World, profiles: Vec<Profile>) -> Self {
        let schedulers = profiles.iter().map(|p| Arc::clone(p.scheduler_name())).collect();
        let now = Tick(world.now().0);
        let base = Core::new(Config { profiles, ..Config::default() });
        let mut stage = Self { world, base, now, schedulers, expected: Vec::new() };
        for (key, Item { decoded, .. }) in &world.items {
            match decoded {
                Decoded::Pod(pod) if stage.waits(pod) => {
                    if !pod.status.nominated_node_name.is_empty() {
                        stage.expected.push(key);
                    }
                }
                decoded => {
                    let input = input_of(decoded);
                    input.into_iter().for_each(|input| stage.base.apply(now, input));
                }
            }
        }
        stage.base.settle(now);
        stage.base.take_effects();
        stage
    }

    /// What it was made of.
    #[must_use]
    pub fn world(&self) -> &'w World {
        self.world
    }

    /// Names of the schedulers that it stands for.
    pub fn schedulers(&self) -> impl Iterator<Item = &str> {
        self.schedulers.iter().map(|name| &**name)
    }

    /// Whether a pod asks for one of them.
    #[must_use]
    pub fn is_ours(&self, pod: &Pod) -> bool {
        self.schedulers.contains(pod.spec.scheduler_name.as_str())
    }

    /// Whether a pod has no node yet, and may still get one.
    #[must_use]
    pub fn waits(&self, pod: &Pod) -> bool {
        pod.spec.node_name.is_empty() && !ended(pod)
    }

    /// Nodes with what is taken of them.
    #[must_use]
    pub fn room(&self) -> CacheView {
        self.base.cache_view()
    }

    /// The queue as it would be with everybody in it, before any attempt.
    #[must_use]
    pub fn queue(&self) -> QueueView {
        let Some(mut core) = self.base.fork() else {
            return QueueView::default();
        };
        for (_, pod) in self.world.pods().filter(|(_, pod)| self.waits(pod)) {
            core.apply(self.now, Input::Pod(Wire::Upsert(Box::new(pod.clone()))));
        }
        core.settle(self.now);
        core.queue_view()
    }

    /// Tries pods together after changes; the first is the one that is asked about. `detail`:
    /// says of every node why not. `None`: a change does not fit.
    #[must_use]
    pub fn try_out(&self, changes: &[Change], pods: &[Key], detail: bool) -> Option<Ran> {
        let mut core = self.base.fork()?;
        let (of_pods, others): (Vec<&Change>, Vec<&Change>) =
            changes.iter().partition(|c| c.of.kind == "Pod" && pods.contains(&c.of));
        let mut waiting: BTreeMap<Key, Pod> = BTreeMap::new();
        for key in self.expected.iter().copied().filter(|key| !pods.contains(key)) {
            waiting.insert(key.clone(), self.world.pod(key)?.clone());
        }
        for change in others {
            self.change(&mut core, change, &mut waiting)?;
        }
        for key in pods {
            let mut own = of_pods.iter().filter(|change| change.of == *key);
            let pod = match own.next() {
                None => self.world.pod(key)?.clone(),
                Some(change) => pod_of(change.applied_to(self.world.get(key))?)?,
            };
            waiting.insert(key.clone(), pod);
        }
        for pod in waiting.values() {
            core.apply(self.now, Input::Pod(Wire::Upsert(Box::new(pod.clone()))));
        }
        let subject = pods.first()?;
        let gang = waiting.get(subject).and_then(gang_of);
        let run = Run { core, now: self.now, subject, gang, waiting, detail };
        Some(run.finish())
    }

    /// Puts a change into force.
    fn change(
        &self,
        core: &mut Core,
        change: &Change,
        waiting: &mut BTreeMap<Key, Pod>,
    ) -> Option<()> {
        let before = self.world.items.get(&change.of);
        if let What::Delete(_) = change.what {
            waiting.remove(&change.of);
            core.apply(self.now, gone(&change.of, &before?.decoded)?);
            return Some(());
        }
        let after = change.applied_to(before.map(|item| &item.value))?;
        match decode(&Document::of((0, after))).ok()? {
            Decoded::Pod(pod) if self.waits(&pod) => drop(waiting.insert(change.of.clone(), *pod)),
            decoded => core.apply(self.now, input_of(&decoded)?),
        }
        Some(())
    }
}

fn pod_of(value: Value) -> Option<Pod> {
    match decode(&Document::of((0, value))).ok()? {
        Decoded::Pod(pod) => Some(*pod),
        _ => None,
    }
}

/// What the core is told of an object.
fn input_of(decoded: &Decoded) -> Option<Input> {
    Some(match decoded {
        Decoded::Node(node) => Input::Node(Wire::Upsert(node.clone())),
        Decoded::Pod(pod) if ended(pod) => {
            let kind = match Api::of(pod)?.0 {
                Api::Muster => Kind::EndedMember,
                Api::Native => Kind::EndedNative,
                Api::Coscheduling => Kind::EndedCoscheduled,
            };
            Input::Ended(kind, Wire::Upsert(pod.clone()))
        }
        Decoded::Pod(pod) => {
            let mut pod = pod.clone();
            // Who would go is asked, not when: nobody is waited for.
            pod.metadata.annotations.remove(annotations::CHECKPOINT_BEFORE_EVICTION);
            Input::Pod(Wire::Upsert(pod))
        }
        Decoded::Object(object) => Input::Object(object.clone()),
        Decoded::Unread(_) => return None,
    })
}

fn gone(key: &Key, decoded: &Decoded) -> Option<Input> {
    let Key { namespace, name, .. } = key.clone();
    let of = |uid: &str| ObjectKey { namespace, name, uid: uid.to_owned() };
    Some(match decoded {
        Decoded::Node(node) => Input::Node(Wire::Delete(of(&node.metadata.uid))),
        Decoded::Pod(pod) => Input::Pod(Wire::Delete(of(&pod.metadata.uid))),
        Decoded::Object(object) => Input::ObjectGone(object.kind(), of(&object.metadata().uid)),
        Decoded::Unread(_) => return None,
    })
}

fn gang_of(pod: &Pod) -> Option<GangKey> {
    let (api, name) = Api::of(pod)?;
    Some(GangKey { api, namespace: pod.metadata.namespace.as_str().into(), name: name.into() })
}

fn key_of(pod: &PodRef) -> Key {
    Key::pod(&pod.namespace, &pod.name)
}

/// A core with whoever is asked about, until nothing more happens.
struct Run<'a> {
    core: Core,
    now: Tick,
    subject: &'a Key,
    gang: Option<GangKey>,
    waiting: BTreeMap<Key, Pod>,
    detail: bool,
}

impl Run<'_> {
    fn finish(mut self) -> Ran {
        let mut ran = Ran::default();
        for _ in 0..MAX_ATTEMPTS {
            if let Some(decision) = self.core.schedule_one(self.now) {
                self.note(&decision, &mut ran);
            } else {
                let effects = self.core.take_effects();
                if !self.answer(effects, &mut ran) {
                    break;
                }
            }
        }
        if self.detail && ran.explanation.is_none() {
            ran.explanation = self.explain(self.subject);
        }
        if ran.message.is_empty() && !ran.placed.contains_key(self.subject) {
            let view = self.core.queue_view();
            let own = view.pods.into_iter().find(|p| p.pod == self.subject.to_string());
            ran.message = own.map(|p| p.message).unwrap_or_default();
        }
        ran
    }

    fn explain(&self, pod: &Key) -> Option<Explanation> {
        let question = self.core.question(&pod.namespace, &pod.name)?;
        Some(question.explain())
    }

    /// What became of an attempt.
    fn note(&mut self, decision: &Decision, ran: &mut Ran) {
        let pod = key_of(&decision.pod);
        let own = match &decision.gang {
            Some(gang) => self.gang.as_ref() == Some(gang),
            None => pod == *self.subject,
        };
        match &decision.outcome {
            Outcome::Scheduled { node } | Outcome::WaitingOnPermit { node } => {
                ran.placed.insert(pod, node.to_string());
            }
            Outcome::Gathered { members } => {
                ran.gathered |= own;
                let placed = members.iter().map(|(pod, node)| (key_of(pod), node.to_string()));
                ran.placed.extend(placed);
            }
            // The first answer is the one that holds now: what follows is after others left.
            _ if own && ran.message.is_empty() => {
                decision.message.as_deref().unwrap_or_default().clone_into(&mut ran.message);
                if self.detail {
                    let about = if decision.gang.is_some() { &pod } else { self.subject };
                    ran.explanation = self.explain(about);
                }
            }
            _ => {}
        }
    }

    /// Answers what the core wants done as if all went well; false if it wants nothing.
    fn answer(&mut self, effects: Vec<Effect>, ran: &mut Ran) -> bool {
        let mut answered = false;
        for effect in effects {
            match effect {
                Effect::Bind { pod, node, attempt, devices } => {
                    let bound = self.waiting.remove(&key_of(&pod));
                    self.core.apply(self.now, Input::BindDone { pod, attempt, result: Ok(()) });
                    if let Some(mut wire) = bound {
                        wire.spec.node_name = node.to_string();
                        if let Some(set) = devices {
                            let key = annotations::PREDICTED_DEVICES.to_owned();
                            wire.metadata.annotations.insert(key, set.text());
                        }
                        self.core.apply(self.now, Input::Pod(Wire::Upsert(Box::new(wire))));
                    }
                    answered = true;
                }
                Effect::Group(says) if Some(&says.gang) == self.gang.as_ref() => {
                    if ran.reason.is_empty() {
                        ran.reason = says.reason;
                    }
                    if ran.message.is_empty() && !says.reason.is_empty() {
                        ran.message = says.message.to_string();
                    }
                }
                Effect::Call { token, request, .. } => {
                    let reply = match request {
                        Request::Evict { victim, how } => {
                            if how.removes() {
                                ran.victims.insert(key_of(&victim));
                                self.leave(&victim);
                            }
                            Reply::Evicted(Eviction::Accepted)
                        }
                        _ => Reply::Failed("nothing outside is asked here".into()),
                    };
                    self.core.apply(self.now, Input::Reply { token, reply });
                    answered = true;
                }
                _ => {}
            }
        }
        answered
    }

    /// A victim is gone at once.
    fn leave(&mut self, victim: &PodRef) {
        let key = ObjectKey {
            namespace: victim.namespace.to_string(),
            name: victim.name.to_string(),
            uid: victim.uid.to_string(),
        };
        self.core.apply(self.now, Input::Pod(Wire::Delete(key)));
    }
}
