//! Random clusters, a model of the API server with faults, and a core under audit.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use muster_api::k8s;
use muster_api::muster::annotations;

use super::gangs::Gangs;
use super::mix::{Act, Mix};
use super::policies::Policies;
use super::reloads::Reloads;
use crate::audit::{Audit, Audited, PointLog, Violation, Witness};
use crate::framework::Profile;
use crate::io::{
    Change, Effect, Eviction, ExtenderCall, Input, Kind, Object, ObjectKey, PodRef, Removal, Reply,
    Request, StatusPatch, Tick, Token, WriteError,
};
use crate::testing::{NodeExt as _, PodExt as _, node, pod, resources};
use crate::{Backoff, Config, Core};

const STEPS: usize = 700;
pub(super) const NODES: u64 = 5;
const PODS: u64 = 24;
/// Ways in which a pod may change.
pub(super) const CHANGES: u64 = 7;

pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick(&mut self, items: &[&'static str]) -> &'static str {
        items[self.below(items.len() as u64) as usize]
    }
}

/// What a budget still allows, and who is counted already.
#[derive(Default)]
struct Budget {
    allowed: i32,
    disrupted: Vec<String>,
}

pub(super) struct Driver {
    pub(super) core: Audited,
    pub(super) now: Tick,
    pub(super) rng: Rng,
    version: u64,
    nodes: BTreeMap<String, k8s::Node>,
    pub(super) pods: BTreeMap<String, k8s::Pod>,
    /// What the watch has yet to show, in order.
    pub(super) watch: VecDeque<Input>,
    binds: Vec<(PodRef, String, u64)>,
    calls: Vec<Token>,
    /// What extenders were asked.
    pub(super) asked: Vec<(Token, PodRef, ExtenderCall)>,
    /// Evictions that were asked for, dry ones among them.
    evictions: Vec<(Token, PodRef, Removal)>,
    /// Budgets over pods by their label `app`.
    budgets: BTreeMap<&'static str, Budget>,
    /// Pods and plugins of which one is at Permit.
    held: Vec<PodRef>,
    found: Vec<Violation>,
    scheduled: usize,
    pub(super) reloads: Reloads,
    pub(super) gangs: Gangs,
    pub(super) policies: Policies,
    mix: Mix,
}

/// Runs a random history and says what was wrong, and how many binds there were.
pub(super) fn run(seed: u64, change: impl FnOnce(&mut Config)) -> (Vec<Violation>, usize) {
    let log = PointLog::default();
    let mut profile = Profile::default_named("muster");
    if seed % 4 != 3 {
        for name in ["First", "Second"] {
            profile = profile.with_plugin(Arc::new(Witness::new(name, seed, &log)), 1);
        }
    }
    let mut config = Config { profiles: vec![profile], seed, ..Config::default() };
    config.backoff = match seed % 7 {
        5 => Backoff { initial_secs: 2, max_secs: 3 },
        6 => Backoff { max_secs: 0, ..Backoff::default() },
        _ => Backoff::default(),
    };
    config.max_in_unschedulable_secs = if seed % 3 == 2 { 20 } else { 300 };
    change(&mut config);
    let reloads = Reloads::new(seed, &config, &log);
    let audit = Audit::new(&config).eager("First").eager("Second");
    let mut core = Core::new(config);
    core.set_trace(seed % 2 == 1);
    let mut driver = Driver {
        core: Audited::with(core, audit, 1).listen(&log),
        now: Tick(1_000_300_000),
        rng: Rng(seed),
        version: 0,
        nodes: BTreeMap::new(),
        pods: BTreeMap::new(),
        watch: VecDeque::new(),
        binds: Vec::new(),
        calls: Vec::new(),
        asked: Vec::new(),
        evictions: Vec::new(),
        budgets: BTreeMap::new(),
        held: Vec::new(),
        found: Vec::new(),
        scheduled: 0,
        reloads,
        gangs: Gangs::new(seed),
        policies: Policies::new(seed),
        mix: Mix::new(seed),
    };
    for i in 0..3 {
        driver.upsert_node(&format!("n{i}"));
    }
    if seed.is_multiple_of(2) {
        for app in ["a", "b"] {
            driver.budgets.insert(app, Budget::default());
            driver.allow_more(app);
        }
    }
    for at in 0..STEPS {
        driver.step();
        driver.gang_step();
        driver.policy_step(at);
        driver.reload(at);
        if !driver.found.is_empty() {
            return (driver.found, driver.scheduled);
        }
    }
    driver.settle();
    (driver.found, driver.scheduled)
}

impl Driver {
    fn step(&mut self) {
        let (pod, node) =
            (format!("p{}", self.rng.below(PODS)), format!("n{}", self.rng.below(NODES)));
        match self.mix.act(&mut self.rng) {
            Act::CreatePod => self.create_pod(&pod),
            Act::DeletePod => self.delete_pod(&pod),
            Act::UpdatePod => self.update_pod(&pod),
            Act::UpsertNode => self.upsert_node(&node),
            Act::DeleteNode => self.delete_node(&node),
            Act::Deliver => self.deliver(3),
            Act::Answer => self.answer(),
            Act::Reply => self.reply(),
            Act::Permit => self.permit(),
            Act::Sleep => self.sleep(),
            Act::Relist => self.relist(),
            Act::AllowMore => {
                let app = self.rng.pick(&["a", "b"]);
                self.allow_more(app);
            }
            Act::Evict => self.evict(),
            Act::EndOne => self.end_one(),
            Act::Extend if !self.asked.is_empty() => self.extend(),
            Act::Extend | Act::Schedule => {
                let _ = self.core.schedule_one(self.now);
            }
        }
        self.look();
    }

    pub(super) fn look(&mut self) {
        for effect in self.core.take_effects() {
            match effect {
                Effect::Bind { pod, node, attempt, .. } => {
                    self.binds.push((pod, node.to_string(), attempt));
                }
                Effect::Call { token, request: Request::Evict { victim, how }, .. } => {
                    self.evictions.push((token, victim, how));
                }
                Effect::Call { token, pod, request: Request::Extender { call, .. }, .. } => {
                    self.asked.push((token, pod, call));
                }
                Effect::Call { token, .. } => self.calls.push(token),
                Effect::PatchStatus(patch) => self.patch(&patch),
                Effect::Event(_) | Effect::Group(_) => {}
            }
        }
        self.held = (self.core.core().going().filter(|g| g.stage == "permit"))
            .map(|g| g.pod.clone())
            .collect();
        self.held.sort();
        self.found.extend(self.core.take_violations());
    }

    fn patch(&mut self, patch: &StatusPatch) {
        let Some(pod) = self.pods.get_mut(&*patch.pod.name) else { return };
        if *pod.metadata.uid != *patch.pod.uid {
            return;
        }
        if let Some(c) = &patch.condition {
            pod.status.conditions.retain(|c| c.kind != "PodScheduled");
            pod.status.conditions.push(k8s::PodCondition {
                kind: "PodScheduled".into(),
                status: if c.status { "True" } else { "False" }.into(),
                reason: c.reason.into(),
                message: c.message.to_string(),
            });
        }
        if let Some(node) = &patch.nominated_node {
            pod.status.nominated_node_name = node.to_string();
        }
        self.publish(&patch.pod.name.clone());
    }

    fn publish(&mut self, name: &str) {
        self.version += 1;
        if let Some(pod) = self.pods.get_mut(name) {
            pod.metadata.resource_version = self.version.to_string();
            self.watch.push_back(Input::Pod(Change::Upsert(Box::new(pod.clone()))));
        }
    }

    // ---- pods ----------------------------------------------------------------

    fn create_pod(&mut self, name: &str) {
        if self.pods.contains_key(name) {
            return;
        }
        let mut looks = self.mix.looks(&mut self.rng);
        let rng = &mut looks;
        let (cpu, memory) = (rng.below(4).to_string(), format!("{}Gi", rng.below(4)));
        let mut requests = vec![("cpu", cpu.as_str()), ("memory", memory.as_str())];
        if rng.one_in(4) {
            requests.push(("example.com/gpu", "1"));
        }
        self.version += 1;
        let mut wire = pod(name)
            .uid(&format!("u{}", self.version))
            .priority(rng.below(3) as i32)
            .req(&requests);
        if rng.one_in(4) {
            wire = wire.host_port(8000 + rng.below(2) as i32, "", rng.pick(&["", "10.0.0.1"]));
        }
        if rng.one_in(5) {
            wire = wire.node_selector("zone", rng.pick(&["a", "b"]));
        }
        if rng.one_in(6) {
            let (operator, host) = (rng.pick(&["In", "NotIn"]), rng.pick(&["n0", "n1", "n4"]));
            wire = wire.node_affinity(serde_json::json!({
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "host", "operator": operator, "values": [host]}]},
                    {"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["3"]}]},
                ]}
            }));
        }
        if rng.one_in(4) {
            wire = wire.tolerate("gpu", "Exists", "", rng.pick(&["", "NoSchedule"]));
        }
        if rng.one_in(8) {
            wire = wire.tolerate("node.kubernetes.io/unschedulable", "Exists", "", "");
        }
        if rng.one_in(6) {
            wire = wire.init(&[("cpu", "3")]).sidecar(&[("cpu", "500m"), ("memory", "1Gi")]);
        }
        if rng.one_in(8) {
            wire = wire.overhead(&[("memory", "100Mi")]);
        }
        if rng.one_in(6) {
            wire = wire.gate("g");
        }
        if rng.one_in(7) {
            wire = wire.scheduler("other");
        }
        wire.metadata.labels.insert("app".into(), rng.pick(&["a", "b", "c"]).into());
        if rng.one_in(10) {
            wire.spec.preemption_policy = Some("Never".into());
        }
        // No draw of its own: histories stay what they were.
        if self.version.is_multiple_of(4) {
            let wait = annotations::CHECKPOINT_BEFORE_EVICTION.to_owned();
            wire.metadata.annotations.insert(wait, (self.version % 9 + 1).to_string());
        }
        self.gangs.join(&mut wire);
        self.policies.own(&mut wire);
        self.pods.insert(name.to_owned(), wire);
        self.publish(name);
    }

    // ---- budgets and evictions -------------------------------------------------

    /// The disruption controller has seen pods go and others come.
    fn allow_more(&mut self, app: &'static str) {
        let more = self.rng.below(2) as i32;
        let Some(budget) = self.budgets.get_mut(app) else { return };
        budget.allowed = (budget.allowed + more).min(3);
        budget.disrupted.clear();
        self.publish_budget(app);
    }

    fn publish_budget(&mut self, app: &'static str) {
        self.version += 1;
        let Some(budget) = self.budgets.get(app) else { return };
        let mut wire = k8s::PodDisruptionBudget::default();
        wire.metadata.namespace = "default".into();
        wire.metadata.name = format!("over-{app}");
        wire.metadata.resource_version = self.version.to_string();
        let selector = wire.spec.selector.insert(k8s::LabelSelector::default());
        selector.match_labels.insert("app".into(), app.into());
        wire.status.disruptions_allowed = budget.allowed;
        let disrupted = budget.disrupted.iter().map(|name| (name.clone(), None));
        wire.status.disrupted_pods = disrupted.collect();
        self.watch.push_back(Input::Object(Box::new(Object::PodDisruptionBudget(wire))));
    }

    /// The server answers an eviction, and perhaps nobody hears it.
    fn evict(&mut self) {
        if self.evictions.is_empty() {
            return;
        }
        let at = self.rng.below(self.evictions.len() as u64) as usize;
        let (token, victim, how) = self.evictions.remove(at);
        let roll = self.rng.below(12);
        let mut eviction = match roll {
            0 => Eviction::Unavailable("not there".into()),
            1 => Eviction::Refused("just spent".into()),
            2 if self.rng.one_in(4) => Eviction::Failed("denied".into()),
            _ => self.serve_eviction(&victim, how),
        };
        if roll == 3 && eviction == Eviction::Accepted {
            eviction = Eviction::Unavailable("lost on the way back".into());
        }
        self.core.apply(self.now, Input::Reply { token, reply: Reply::Evicted(eviction) });
    }

    fn serve_eviction(&mut self, victim: &PodRef, how: Removal) -> Eviction {
        let Some(pod) = self.pods.get(&*victim.name) else { return Eviction::Gone };
        if *pod.metadata.uid != *victim.uid {
            return Eviction::Gone;
        }
        if let Removal::Checkpoint { asked } = how {
            return self.asked_to_save(&victim.name.clone(), asked);
        }
        let app = pod.metadata.labels.get("app").map_or("", String::as_str);
        let guarded = pod.status.phase == "Running" && pod.metadata.deletion_timestamp.is_none();
        let over = self.budgets.iter_mut().find(|(over, _)| guarded && **over == app);
        if let Some((&app, budget)) = over {
            if budget.allowed <= 0 {
                return Eviction::Refused("spent".into());
            }
            if how.removes() {
                budget.allowed -= 1;
                budget.disrupted.push(victim.name.to_string());
                self.publish_budget(app);
            }
        }
        if how.removes()
            && let Some(pod) = self.pods.get_mut(&*victim.name)
        {
            pod.metadata.deletion_timestamp = Some(k8s::Time(0));
            self.publish(&victim.name.clone());
        }
        Eviction::Accepted
    }

    /// The note is on the pod; every other answers at once.
    fn asked_to_save(&mut self, name: &str, asked: Tick) -> Eviction {
        let answers = self.version.is_multiple_of(2);
        let Some(pod) = self.pods.get_mut(name) else { return Eviction::Gone };
        let note = k8s::Time(asked.0).to_string();
        let notes = &mut pod.metadata.annotations;
        if answers {
            notes.insert(annotations::LAST_CHECKPOINT.to_owned(), note.clone());
        }
        notes.insert(annotations::CHECKPOINT_REQUESTED.to_owned(), note);
        self.publish(name);
        Eviction::Accepted
    }

    /// A pod that is going is gone.
    fn end_one(&mut self) {
        let going = |p: &&k8s::Pod| p.metadata.deletion_timestamp.is_some();
        let name = self.pods.values().find(going).map(|p| p.metadata.name.clone());
        if let Some(name) = name {
            self.delete_pod(&name);
        }
    }

    fn delete_pod(&mut self, name: &str) {
        let Some(mut gone) = self.pods.remove(name) else { return };
        match self.rng.below(3) {
            0 => {
                gone.status.phase = self.rng.pick(&["Succeeded", "Failed"]).into();
                self.version += 1;
                gone.metadata.resource_version = self.version.to_string();
                self.watch.extend(self.gangs.end(&gone));
                self.watch.push_back(Input::Pod(Change::Upsert(Box::new(gone))));
            }
            _ => {
                let meta = gone.metadata;
                let uid = if self.rng.one_in(4) { String::new() } else { meta.uid };
                let key = ObjectKey { namespace: meta.namespace, name: meta.name, uid };
                self.watch.push_back(Input::Pod(Change::Delete(key)));
            }
        }
    }

    fn update_pod(&mut self, name: &str) {
        let (roll, cpu) = (self.mix.change(&mut self.rng), self.rng.below(4));
        let other = format!("n{}", self.rng.below(NODES));
        let version = self.version.to_string();
        let Some(wire) = self.pods.get_mut(name) else { return };
        match roll {
            0 | 1 => wire.spec.scheduling_gates.clear(),
            2 => wire.spec.tolerations.push(k8s::Toleration {
                key: "gpu".into(),
                operator: "Exists".into(),
                ..Default::default()
            }),
            3 => wire.metadata.deletion_timestamp = Some(k8s::Time(0)),
            // Somebody else binds it.
            4 if wire.spec.node_name.is_empty() && cpu == 0 => wire.spec.node_name = other,
            // A resize, which only a pod that runs gets granted.
            5 => {
                wire.spec.containers[0].resources.requests =
                    resources(&[("cpu", &cpu.to_string()), ("memory", "1Gi")]);
            }
            _ => {
                wire.metadata.labels.insert("v".into(), version);
            }
        }
        self.publish(name);
    }

    // ---- nodes ---------------------------------------------------------------

    pub(super) fn upsert_node(&mut self, name: &str) {
        let rng = &mut self.rng;
        let fresh = || node(name).label("host", name);
        let mut wire = self.nodes.get(name).cloned().unwrap_or_else(fresh);
        for _ in 0..if self.nodes.contains_key(name) { 1 } else { 4 } {
            wire = match rng.below(7) {
                0 => wire.cpu(&(2 + rng.below(6)).to_string()),
                1 => wire.memory(&format!("{}Gi", 2 + rng.below(6))),
                2 => wire.max_pods(&(1 + rng.below(6)).to_string()),
                3 => wire.label("zone", rng.pick(&["a", "b"])),
                4 => wire.alloc("example.com/gpu", rng.pick(&["0", "1", "3"])),
                5 => wire.edit(|n| n.spec.unschedulable = rng.one_in(2)),
                _ if wire.spec.taints.is_empty() => {
                    wire.taint("gpu", "", rng.pick(&["NoSchedule", "NoExecute"]))
                }
                _ => wire.edit(|n| n.spec.taints.clear()),
            };
        }
        if rng.one_in(3) {
            wire = wire.label("size", rng.pick(&["2", "7", "x"]));
        }
        self.gangs.label(&mut wire);
        self.nodes.insert(name.to_owned(), wire.clone());
        self.watch.push_back(Input::Node(Change::Upsert(Box::new(wire))));
    }

    fn delete_node(&mut self, name: &str) {
        if self.nodes.remove(name).is_some() {
            let key = ObjectKey { name: name.to_owned(), ..ObjectKey::default() };
            self.watch.push_back(Input::Node(Change::Delete(key)));
        }
    }

    // ---- the outside -----------------------------------------------------------

    fn deliver(&mut self, most: usize) {
        for _ in 0..most {
            let Some(input) = self.watch.pop_front() else { return };
            self.core.apply(self.now, input);
            self.look();
        }
    }

    fn relist(&mut self) {
        let kind = if self.rng.one_in(2) { Kind::Pod } else { Kind::Node };
        self.watch.retain(|input| match input {
            Input::Pod(_) => kind != Kind::Pod,
            Input::Node(_) => kind != Kind::Node,
            _ => true,
        });
        self.core.apply(self.now, Input::RelistStarted(kind));
        let inputs: Vec<Input> = match kind {
            Kind::Pod => self
                .pods
                .values()
                .map(|p| Input::Pod(Change::Upsert(Box::new(p.clone()))))
                .collect(),
            _ => {
                let all = self.nodes.values();
                all.map(|n| Input::Node(Change::Upsert(Box::new(n.clone())))).collect()
            }
        };
        for input in inputs {
            self.core.apply(self.now, input);
        }
        self.core.apply(self.now, Input::RelistDone(kind));
    }

    /// The server handles a bind, and perhaps its answer is lost.
    fn answer(&mut self) {
        if self.binds.is_empty() {
            return;
        }
        let at = self.rng.below(self.binds.len() as u64) as usize;
        let (pod, node, attempt) = self.binds.remove(at);
        let roll = self.rng.below(10);
        let mut result = match roll {
            0 => Err(WriteError::Rejected("denied".into())),
            1 => Err(WriteError::Unknown("lost on the way there".into())),
            _ => self.bind(&pod, node),
        };
        if result.is_ok() && roll == 2 {
            result = Err(WriteError::Unknown("lost on the way back".into()));
        }
        self.core.apply(self.now, Input::BindDone { pod, attempt, result });
    }

    /// The server binds a pod, and the watch will show it.
    pub(super) fn bind(&mut self, pod: &PodRef, node: String) -> Result<(), WriteError> {
        match self.pods.get_mut(&*pod.name) {
            Some(p) if *p.metadata.uid != *pod.uid => {
                return Err(WriteError::Conflict("uid".into()));
            }
            Some(p) if !p.spec.node_name.is_empty() => {
                return Err(WriteError::Conflict("bound".into()));
            }
            Some(p) => {
                p.spec.node_name = node;
                p.status.phase = "Running".into();
                p.status.nominated_node_name.clear();
                p.status.conditions.push(k8s::PodCondition {
                    kind: "Ready".into(),
                    status: "True".into(),
                    ..Default::default()
                });
                self.scheduled += 1;
            }
            None => return Err(WriteError::NotFound("gone".into())),
        }
        self.publish(&pod.name.clone());
        Ok(())
    }

    fn reply(&mut self) {
        if self.calls.is_empty() {
            return;
        }
        let at = self.rng.below(self.calls.len() as u64) as usize;
        let token = self.calls.remove(at);
        let failed = self.rng.one_in(4);
        let reply = if failed { Reply::Failed("no".into()) } else { Reply::Done("".into()) };
        self.core.apply(self.now, Input::Reply { token, reply });
    }

    fn permit(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let pod = self.held[self.rng.below(self.held.len() as u64) as usize].clone();
        let verdict = if self.rng.one_in(4) { Err("no".into()) } else { Ok(()) };
        let plugin = self.rng.pick(&["First", "Second"]).into();
        self.core.apply(self.now, Input::Permit { pod, plugin, verdict });
    }

    fn sleep(&mut self) {
        let millis = self.rng.below(3_000) as i64;
        self.now = self.now.after_micros(millis * 1_000);
        self.core.advance(self.now);
    }

    /// Faults stop; all that is under way ends.
    fn settle(&mut self) {
        for _ in 0..40 {
            self.now = self.now.after_secs(7);
            self.core.advance(self.now);
            self.look();
            self.deliver(usize::MAX);
            for _ in 0..200 {
                if self.core.schedule_one(self.now).is_none() {
                    break;
                }
                self.look();
            }
            while !self.binds.is_empty() {
                self.answer();
                self.look();
            }
            while !self.asked.is_empty() {
                self.extend();
                self.look();
            }
            while !self.calls.is_empty() {
                self.reply();
                self.look();
            }
            while !self.evictions.is_empty() {
                self.evict();
                self.look();
            }
            self.end_one();
            self.deliver(usize::MAX);
            if !self.found.is_empty() {
                return;
            }
        }
        self.core.full(self.now);
        self.look();
    }
}
