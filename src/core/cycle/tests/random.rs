//! Random sequences of inputs, watched by a checker that shares no code with the
//! core: it believes only what it sent in and what came out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_api::k8s;

use super::probe::{Probe, Script, profile};
use crate::Config;
use crate::audit::Audited;
use crate::framework::{Actions, Code, Registration, Resource, Status};
use crate::io::{
    Change, Effect, Eviction, Input, Kind, ObjectKey, PodRef, Reply, Request, Tick, Token,
    WriteError,
};
use crate::model::PodId;
use crate::queue::{Queue, QueueCx};
use crate::testing::{NodeExt as _, PodExt as _, node, pod};

const SEEDS: u64 = 60;
const OPS: usize = 400;

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn pick<T: Clone>(&mut self, items: impl IntoIterator<Item = T>) -> Option<T> {
        let items: Vec<T> = items.into_iter().collect();
        (!items.is_empty()).then(|| items[self.below(items.len() as u64) as usize].clone())
    }
}

/// What the API server and the checker know of one pod.
#[derive(Clone)]
struct Known {
    wire: k8s::Pod,
    cpu: u64,
    ours: bool,
    /// Bound in the API, though the core may not have seen it yet.
    bound: Option<String>,
    /// The core has seen it bound.
    seen_bound: bool,
    /// The core was told that its bind succeeded.
    told: bool,
}

struct World {
    core: Audited,
    now: Tick,
    rng: Rng,
    version: u64,
    uid: u64,
    nodes: BTreeMap<String, u64>,
    pods: BTreeMap<String, Known>,
    /// Rooms the core holds: by pod, from its bind effect to its failure or end.
    holds: BTreeMap<String, String>,
    outstanding: BTreeMap<String, (PodRef, u64, String)>,
    /// What was asked and not answered; of evictions the victim, and whether in earnest.
    calls: BTreeMap<Token, Option<(PodRef, bool)>>,
    /// Pods that the server has agreed to evict and that are not gone yet.
    going: BTreeSet<String>,
    /// At Permit or PreBind.
    waiting: BTreeSet<String>,
    /// In a queue proper.
    pending: BTreeSet<String>,
    /// Held back by us, as a preemption would.
    held: BTreeSet<String>,
    slow: Probe,
    pressed: bool,
    log: Vec<String>,
}

impl World {
    /// In a pressed world pods are held, called and told to wait for what is sure to
    /// come. The auditor cannot know of that, so there it is silent.
    fn new(seed: u64, pressed: bool) -> Self {
        // Every third world has Permit plugins that wait, every fourth one a
        // PreBind plugin that parks.
        let wait = seed.is_multiple_of(3).then_some(5);
        let park = seed.is_multiple_of(4).then_some("work");
        let events = vec![Registration { resource: Resource::Node, actions: Actions::ALL }];
        let slow = Probe::new("Slow", Script { wait, park, events, ..Script::default() });
        let slower = wait.map(|_| 9);
        let slower = Probe::new("Slower", Script { wait: slower, ..Script::default() });
        let profiles = vec![profile(&[&slow, &slower])];
        let config = Config { profiles, seed, ..Config::default() };
        Self {
            core: if pressed {
                Audited::unchecked(crate::Core::new(config))
            } else {
                Audited::new(config, 1)
            },
            now: Tick(1_000_000_000),
            rng: Rng(seed),
            version: 0,
            uid: 0,
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            holds: BTreeMap::new(),
            outstanding: BTreeMap::new(),
            calls: BTreeMap::new(),
            going: BTreeSet::new(),
            waiting: BTreeSet::new(),
            pending: BTreeSet::new(),
            held: BTreeSet::new(),
            slow,
            pressed,
            log: Vec::new(),
        }
    }

    fn send(&mut self, name: &str) {
        self.version += 1;
        let version = self.version.to_string();
        let known = self.pods.get_mut(name).expect("a known pod");
        known.wire.metadata.resource_version = version;
        if let Some(node) = known.bound.clone() {
            known.wire.spec.node_name = node;
            known.seen_bound = true;
        }
        let wire = known.wire.clone();
        if known.seen_bound {
            self.holds.remove(name);
            self.outstanding.remove(name);
            self.held.remove(name);
        }
        self.core.apply(self.now, Input::Pod(Change::Upsert(Box::new(wire))));
    }

    fn add_pod(&mut self, name: &str, gated: bool) {
        let (cpu, priority) = (1 + self.rng.below(4), self.rng.below(3) as i32);
        let ours = self.rng.below(6) > 0;
        self.uid += 1;
        let mut wire = pod(name).uid(&format!("u{}", self.uid)).priority(priority);
        wire = wire.req(&[("cpu", &cpu.to_string())]);
        if gated {
            wire = wire.gate("g");
        }
        if !ours {
            wire = wire.scheduler("other");
        }
        if self.pressed {
            // Nobody but us holds a pod then.
            wire.spec.preemption_policy = Some("Never".into());
        }
        self.forget(name);
        let known = Known { wire, cpu, ours, bound: None, seen_bound: false, told: false };
        self.pods.insert(name.to_owned(), known);
        self.send(name);
    }

    fn forget(&mut self, name: &str) {
        self.holds.remove(name);
        self.outstanding.remove(name);
        self.pods.remove(name);
        self.held.remove(name);
        self.going.remove(name);
    }

    /// Calls on the queue as preemption does.
    fn queue(&mut self, name: &str, act: impl FnOnce(&mut Queue, &QueueCx<'_>, PodId)) {
        let core = self.core.core_mut();
        let id = core.by_key.get(format!("default/{name}").as_str()).copied();
        let cx = QueueCx { profiles: &core.profiles, cluster: &core.cluster, now: self.now };
        if let Some(id) = id {
            act(&mut core.queue, &cx, id);
        }
    }

    fn hold(&mut self, name: &str) {
        if !self.held.remove(name) {
            self.held.insert(name.to_owned());
            return self.queue(name, |queue, _, pod| queue.hold(pod, "held".into()));
        }
        self.queue(name, Queue::unhold);
    }

    fn delete_pod(&mut self, name: &str) {
        let meta = self.pods[name].wire.metadata.clone();
        self.forget(name);
        let key = ObjectKey { namespace: meta.namespace, name: meta.name, uid: meta.uid };
        self.core.apply(self.now, Input::Pod(Change::Delete(key)));
    }

    fn op(&mut self) {
        let (name, node_name) =
            (format!("p{}", self.rng.below(24)), format!("n{}", self.rng.below(5)));
        let known = self.pods.contains_key(&name);
        match self.rng.below(29) {
            0..=5 => {
                let gated = self.rng.below(5) == 0;
                self.add_pod(&name, gated);
            }
            6 if known => self.delete_pod(&name),
            7 | 8 => {
                let cpu = 2 + self.rng.below(8);
                let mut wire = node(&node_name).cpu(&cpu.to_string());
                if self.rng.below(6) == 0 {
                    wire = wire.unschedulable();
                }
                self.nodes.insert(node_name, cpu);
                self.core.apply(self.now, Input::Node(Change::Upsert(Box::new(wire))));
            }
            9 if self.rng.below(2) == 0 => {
                self.nodes.remove(&node_name);
                let key = ObjectKey { name: node_name, ..ObjectKey::default() };
                self.core.apply(self.now, Input::Node(Change::Delete(key)));
            }
            10 | 11 if known => self.update(&name),
            12 if known && self.rng.below(3) == 0 => {
                // Bound by somebody else, perhaps while we hold a room for it.
                let k = self.pods.get_mut(&name).expect("known");
                if k.bound.is_none() {
                    k.bound = Some(node_name);
                    k.told = true;
                }
                self.send(&name);
            }
            13..=16 => self.answer(),
            17 => {
                let millis = self.rng.below(4_000) as i64;
                self.now = self.now.after_micros(millis * 1_000);
                self.core.advance(self.now);
            }
            18 if self.rng.below(8) == 0 => self.relist(),
            19 => self.reply(),
            20 if known && self.rng.below(4) == 0 => {
                let k = self.pods.get_mut(&name).expect("known");
                k.wire.metadata.deletion_timestamp = Some(k8s::Time(0));
                if self.waiting.contains(&name) {
                    self.holds.remove(&name);
                }
                self.send(&name);
            }
            21 => {
                if let Some(name) = self.rng.pick(self.waiting.clone()) {
                    self.permit(&name);
                }
            }
            22 if self.pressed => {
                if let Some(name) = self.rng.pick(self.pending.union(&self.waiting).cloned()) {
                    self.hold(&name);
                }
            }
            23 if known && self.pressed => self.queue(&name, Queue::activate_now),
            24 if self.pressed && self.rng.below(3) == 0 => {
                let status = Status::new(Code::Pending, "soon");
                let status = (self.rng.below(3) == 0).then_some(status);
                self.slow.tell(|script| script.reserve = status);
            }
            25 => self.gone(),
            _ => {
                let _ = self.core.schedule_one(self.now);
            }
        }
    }

    fn permit(&mut self, name: &str) {
        let Some(known) = self.pods.get(name) else { return };
        let pod = PodRef {
            namespace: "default".into(),
            name: name.into(),
            uid: known.wire.metadata.uid.as_str().into(),
        };
        let verdict = if self.rng.below(3) == 0 { Err("no".into()) } else { Ok(()) };
        let plugin = if self.rng.below(2) == 0 { "Slow" } else { "Slower" };
        self.core.apply(self.now, Input::Permit { pod, plugin: plugin.into(), verdict });
    }

    fn reply(&mut self) {
        let Some(token) = self.rng.pick(self.calls.keys().copied()) else {
            return;
        };
        let failed = self.rng.below(4) == 0;
        self.answer_call(token, failed);
    }

    fn answer_call(&mut self, token: Token, failed: bool) {
        let Some(call) = self.calls.remove(&token) else {
            return;
        };
        let Some((victim, earnest)) = call else {
            let reply = if failed { Reply::Failed("no".into()) } else { Reply::Done("".into()) };
            return self.core.apply(self.now, Input::Reply { token, reply });
        };
        let name = victim.name.to_string();
        let there = self.pods.get(&name).is_some_and(|k| *k.wire.metadata.uid == *victim.uid);
        let eviction = match self.rng.below(3) {
            _ if !there => Eviction::Gone,
            0 if failed => Eviction::Refused("a budget".into()),
            1 if failed => Eviction::Unavailable("busy".into()),
            2 if failed => Eviction::Failed("forbidden".into()),
            _ => Eviction::Accepted,
        };
        let goes = earnest && eviction == Eviction::Accepted;
        self.core.apply(self.now, Input::Reply { token, reply: Reply::Evicted(eviction) });
        if goes {
            self.check();
            self.going.insert(name);
        }
    }

    /// What was evicted comes to its end.
    fn gone(&mut self) {
        if let Some(name) = self.rng.pick(self.going.clone()) {
            self.delete_pod(&name);
        }
    }

    fn update(&mut self, name: &str) {
        let (roll, cpu) = (self.rng.below(5), 1 + self.rng.below(4));
        let pending = self.pending.contains(name);
        let k = self.pods.get_mut(name).expect("known");
        match roll {
            0 => k.wire.spec.scheduling_gates.clear(),
            // Once it has a node others have ranked it, and the API server keeps it fixed.
            1 if pending => k.wire.spec.priority = Some(9),
            // Only while it holds no room that the checker could not know of.
            3 if pending => {
                k.cpu = cpu;
                k.wire.spec.containers.clear();
                k.wire = k.wire.clone().req(&[("cpu", &cpu.to_string())]);
            }
            2 => {
                let toleration = k8s::Toleration { key: "x".into(), ..Default::default() };
                k.wire.spec.tolerations.push(toleration);
            }
            _ => {
                k.wire.metadata.labels.insert("v".into(), self.version.to_string());
            }
        }
        self.send(name);
    }

    /// One outstanding bind gets some answer; what it did to the API is seen later.
    fn answer(&mut self) {
        let Some(name) = self.rng.pick(self.outstanding.keys().cloned()) else {
            return;
        };
        let (pod, attempt, node) = self.outstanding.remove(&name).expect("outstanding");
        let roll = self.rng.below(10);
        let known = self.pods.get_mut(&name).expect("outstanding pods exist");
        let result = match roll {
            _ if known.bound.is_some() => Err(WriteError::Conflict("already bound".into())),
            0 => Err(WriteError::Rejected("denied".into())),
            1 => Err(WriteError::Unknown("lost on the way there".into())),
            2 => {
                known.bound = Some(node);
                Err(WriteError::Unknown("lost on the way back".into()))
            }
            3 => Err(WriteError::Conflict("odd".into())),
            _ => {
                known.bound = Some(node);
                known.told = true;
                Ok(())
            }
        };
        self.core.apply(self.now, Input::BindDone { pod, attempt, result });
        if self.rng.below(2) == 0 && self.pods[&name].bound.is_some() {
            self.check();
            self.send(&name);
        }
    }

    fn relist(&mut self) {
        self.core.apply(self.now, Input::RelistStarted(Kind::Pod));
        let lost = self.rng.pick(self.pods.keys().cloned());
        lost.iter().for_each(|name| self.forget(name));
        let names: Vec<String> = self.pods.keys().cloned().collect();
        names.iter().for_each(|name| self.send(name));
        self.core.apply(self.now, Input::RelistDone(Kind::Pod));
    }

    fn used(&self, node: &str, except: &str) -> u64 {
        let on = |(name, k): (&String, &Known)| {
            let at = if k.seen_bound { k.bound.as_ref() } else { self.holds.get(name) };
            (name != except && at.is_some_and(|n| n == node)).then_some(k.cpu)
        };
        self.pods.iter().filter_map(on).sum()
    }

    fn effect(&mut self, effect: &Effect) {
        let pod = match effect {
            Effect::Bind { pod, .. } | Effect::Call { pod, .. } => pod,
            Effect::PatchStatus(p) => &p.pod,
            // Of victims, which may be strangers, and gone.
            Effect::Event(e) if e.reason == "Preempted" => return,
            Effect::Group(_) => return,
            Effect::Event(e) => &e.pod,
        };
        let name = pod.name.to_string();
        let known = self.pods.get(&name).expect("effects are about pods that exist").clone();
        assert!(known.ours, "an effect on a stranger's pod: {effect:?}");
        assert_eq!(*known.wire.metadata.uid, *pod.uid, "an effect on an older pod: {effect:?}");
        match effect {
            Effect::Bind { pod, node, attempt, .. } => {
                let (node, old) = (node.to_string(), self.holds.get(&name).cloned());
                assert!(!known.seen_bound, "{name} is bound already");
                if old.as_ref() != Some(&node) {
                    assert_eq!(old, None, "{name} moved without giving its room back");
                    // What waited at Permit may have been overrun from outside meanwhile.
                    let fresh = !self.waiting.contains(&name);
                    if let Some(room) = self.nodes.get(&node).filter(|_| fresh) {
                        let used = self.used(&node, &name);
                        assert!(used + known.cpu <= *room, "{node} overcommitted by {name}");
                    }
                }
                self.holds.insert(name.clone(), node.clone());
                let before = self.outstanding.insert(name, (pod.clone(), *attempt, node));
                assert!(before.is_none(), "two binds under way: {effect:?}");
            }
            Effect::Event(e) if e.reason == "FailedScheduling" => {
                self.holds.remove(&name);
            }
            Effect::Call { token, request, .. } => {
                let victim = match request {
                    Request::Evict { victim, how } => Some((victim.clone(), how.removes())),
                    _ => None,
                };
                self.calls.insert(*token, victim);
            }
            _ => {}
        }
    }

    fn check(&mut self) {
        for effect in self.core.take_effects() {
            self.log.push(format!("{effect:?}"));
            self.effect(&effect);
        }
        assert_eq!(self.core.take_violations(), [], "{:#?}", self.log.last());
        self.core.core_mut().take_observations();
        let queue = self.core.core().queue_view();
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        self.waiting.clear();
        self.pending.clear();
        let (mut at_permit, mut parked) = (0, 0);
        for waiting in &queue.pods {
            *places.entry(waiting.pod.clone()).or_default() += 1;
            let name = waiting.pod["default/".len()..].to_owned();
            at_permit += usize::from(waiting.queue == "permit");
            parked += usize::from(waiting.queue == "prebind");
            match waiting.queue {
                "permit" | "prebind" => self.waiting.insert(name),
                "binding" => false,
                _ => self.pending.insert(name),
            };
        }
        let cache = self.core.core().cache_view();
        for (name, known) in &self.pods {
            let held = self.held.contains(name);
            let shut =
                queue.pods.iter().any(|p| p.pod == format!("default/{name}") && p.queue == "gated");
            let waits = self.pending.contains(name);
            assert!(!held || !waits || shut, "{name} is held and in a queue: {queue:?}");
            let in_queues = places.remove(&format!("default/{name}")).unwrap_or(0);
            let done = known.seen_bound || known.told || !known.ours;
            let deleting = known.wire.metadata.deletion_timestamp.is_some();
            let expected = if deleting { in_queues.min(1) } else { usize::from(!done) };
            assert_eq!(in_queues, expected, "{name} is lost or in two places: {queue:?}");
            if known.told && !known.seen_bound {
                assert!(cache.assumed.contains(&format!("default/{name}")), "{name} lost its room");
            }
        }
        assert!(places.is_empty(), "ghosts in the queue: {places:?}");
        for n in &cache.nodes {
            let seen = self
                .pods
                .iter()
                .filter(|(_, k)| k.seen_bound && k.bound.as_deref() == Some(n.name.as_str()));
            for (name, _) in seen {
                assert!(n.pods.contains(&format!("default/{name}")), "{name} not on {}", n.name);
            }
        }
        let (entries, in_flight) = self.core.core().queue.tracked();
        assert_eq!(entries, queue.pods.len(), "entries without a place");
        assert!(in_flight <= at_permit, "pods left in flight");
        assert_eq!(self.core.core().calls.len(), parked, "calls of pods that are not parked");
        let core = self.core.core();
        assert!(core.timers.len() <= core.bindings.len() + core.plans.len(), "timers left behind");
    }

    /// Faults stop, room is plenty: all that may run does.
    fn settle(&mut self) {
        self.slow.tell(|script| script.reserve = None);
        for name in self.held.clone() {
            self.hold(&name);
        }
        for i in 0..5 {
            let wire = node(&format!("n{i}")).cpu("1000");
            self.nodes.insert(format!("n{i}"), 1000);
            self.core.apply(self.now, Input::Node(Change::Upsert(Box::new(wire))));
        }
        for _ in 0..120 {
            self.now = self.now.after_secs(10);
            self.core.advance(self.now);
            for tries in 0.. {
                assert!(tries < 1_000, "livelock");
                if self.core.schedule_one(self.now).is_none() {
                    break;
                }
                self.check();
            }
            self.check();
            for name in self.waiting.clone() {
                let uid: Arc<str> = self.pods[&name].wire.metadata.uid.as_str().into();
                for plugin in ["Slow", "Slower"] {
                    let (name, uid) = (name.as_str().into(), Arc::clone(&uid));
                    let pod = PodRef { namespace: "default".into(), name, uid };
                    let input = Input::Permit { pod, plugin: plugin.into(), verdict: Ok(()) };
                    self.core.apply(self.now, input);
                }
            }
            self.check();
            for token in self.calls.keys().copied().collect::<Vec<_>>() {
                self.answer_call(token, false);
            }
            self.check();
            for name in self.going.clone() {
                self.delete_pod(&name);
            }
            self.check();
            for (name, (pod, attempt, node)) in std::mem::take(&mut self.outstanding) {
                let known = self.pods.get_mut(&name).expect("known");
                let result = match &known.bound {
                    Some(_) => Err(WriteError::Conflict("already bound".into())),
                    None => {
                        (known.bound, known.told) = (Some(node), true);
                        Ok(())
                    }
                };
                self.core.apply(self.now, Input::BindDone { pod, attempt, result });
            }
            self.check();
            let unseen = self.pods.iter().filter(|(_, k)| k.bound.is_some() && !k.seen_bound);
            let unseen: Vec<String> = unseen.map(|(name, _)| name.clone()).collect();
            unseen.iter().for_each(|name| self.send(name));
            self.check();
        }
        for (name, k) in &self.pods {
            let may_run = k.ours
                && k.wire.spec.scheduling_gates.is_empty()
                && k.wire.metadata.deletion_timestamp.is_none();
            assert!(
                !may_run || k.seen_bound,
                "{name} never ran: {:?}",
                self.core.core().queue_view()
            );
        }
        assert_eq!((self.core.core().timers.len(), self.core.core().bindings.len()), (0, 0));
    }
}

fn world(seed: u64, pressed: bool) -> Vec<String> {
    let mut world = World::new(seed, pressed);
    for _ in 0..OPS {
        world.op();
        world.check();
    }
    world.settle();
    world.log
}

#[test]
fn no_pod_is_lost_and_no_node_overcommitted_whatever_happens() {
    no_world_loses_a_pod(false);
}

#[test]
fn no_pod_is_lost_that_is_held_called_or_waits_for_what_is_sure_to_come() {
    no_world_loses_a_pod(true);
}

fn no_world_loses_a_pod(pressed: bool) {
    let scheduled = |seed| world(seed, pressed).iter().filter(|e| e.contains("Scheduled")).count();
    let scheduled: usize = (0..SEEDS).map(scheduled).sum();
    assert!(scheduled > SEEDS as usize * 10, "the worlds are too quiet: {scheduled}");
}

#[test]
fn the_same_inputs_give_the_same_effects() {
    for seed in 0..6 {
        let pressed = seed % 2 == 1;
        let (first, second) = (world(seed, pressed), world(seed, pressed));
        assert!(!first.is_empty());
        assert_eq!(first, second);
    }
}
