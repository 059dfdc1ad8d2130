//! Drives a [`Core`] through inputs, effects and time, and shows effects as text.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use muster_api::k8s;

use crate::framework::Profile;
use crate::io::{
    Change, Effect, Eviction, ExtenderCall, ExtenderReply, Input, Kind, Object, ObjectKey, PodRef,
    Removal, Reply, Request, Tick, Token, WriteError,
};
use crate::testing::SCHEDULER;
use crate::{Config, Core};

/// Epoch of every test: a whole second.
const START: i64 = 1_000;
/// More attempts than any test needs without time passing: beyond is a livelock.
const MOST_ATTEMPTS: usize = 1_000;

pub(super) struct Harness {
    pub(super) core: Core,
    pub(super) now: Tick,
    version: u64,
    /// Last wire form of each pod.
    pods: BTreeMap<String, k8s::Pod>,
    binds: BTreeMap<String, (PodRef, u64)>,
    conditions: BTreeMap<String, (bool, String, String)>,
    calls: BTreeMap<String, Token>,
    evictions: BTreeMap<String, Token>,
    nominated: BTreeMap<String, String>,
}

impl Harness {
    pub(super) fn new() -> Self {
        Self::with(Profile::default_named(SCHEDULER))
    }

    pub(super) fn with(profile: Profile) -> Self {
        Self::of(Config { profiles: vec![profile], ..Config::default() })
    }

    pub(super) fn of(config: Config) -> Self {
        Self {
            core: Core::new(config),
            now: Tick::default().after_secs(START),
            version: 0,
            pods: BTreeMap::new(),
            binds: BTreeMap::new(),
            conditions: BTreeMap::new(),
            calls: BTreeMap::new(),
            evictions: BTreeMap::new(),
            nominated: BTreeMap::new(),
        }
    }

    pub(super) fn apply(&mut self, input: Input) {
        self.core.apply(self.now, input);
    }

    pub(super) fn node(&mut self, node: k8s::Node) {
        self.apply(Input::Node(Change::Upsert(Box::new(node))));
    }

    pub(super) fn node_gone(&mut self, name: &str) {
        let key = ObjectKey { name: name.to_owned(), ..ObjectKey::default() };
        self.apply(Input::Node(Change::Delete(key)));
    }

    /// Adds or updates a pod, with a new resourceVersion.
    pub(super) fn pod(&mut self, mut pod: k8s::Pod) {
        self.version += 1;
        pod.metadata.resource_version = self.version.to_string();
        self.pods.insert(pod.metadata.name.clone(), pod.clone());
        self.apply(Input::Pod(Change::Upsert(Box::new(pod))));
    }

    /// A pod as last sent.
    pub(super) fn last(&self, name: &str) -> k8s::Pod {
        self.pods.get(name).expect("a known pod").clone()
    }

    /// Changes a pod as last sent.
    pub(super) fn edit(&mut self, name: &str, change: impl FnOnce(&mut k8s::Pod)) {
        let mut pod = self.pods.get(name).expect("a known pod").clone();
        change(&mut pod);
        self.pod(pod);
    }

    /// The watch shows the condition that was last asked for.
    pub(super) fn seen(&mut self, name: &str) {
        let (status, reason, message) = self.conditions[name].clone();
        self.edit(name, |p| {
            p.status.conditions = vec![k8s::PodCondition {
                kind: "PodScheduled".into(),
                status: if status { "True" } else { "False" }.into(),
                reason,
                message,
            }];
        });
    }

    pub(super) fn gone(&mut self, name: &str) {
        let pod = self.pods.remove(name).expect("a known pod");
        let key = ObjectKey {
            namespace: pod.metadata.namespace,
            name: pod.metadata.name,
            uid: pod.metadata.uid,
        };
        self.apply(Input::Pod(Change::Delete(key)));
    }

    /// Whether a pod was sent and is not gone.
    pub(super) fn has(&self, name: &str) -> bool {
        self.pods.contains_key(name)
    }

    /// A pod has ended: it is still there, and no pod for anybody.
    pub(super) fn forget(&mut self, name: &str) {
        self.pods.remove(name);
    }

    /// Pods as last sent.
    pub(super) fn known(&self) -> Vec<k8s::Pod> {
        self.pods.values().cloned().collect()
    }

    pub(super) fn relist(&mut self, kind: Kind, items: impl FnOnce(&mut Self)) {
        self.apply(Input::RelistStarted(kind));
        items(self);
        self.apply(Input::RelistDone(kind));
    }

    /// Lets time pass in steps of at most a second, as a driver would.
    pub(super) fn sleep_millis(&mut self, millis: i64) {
        let until = self.now.after_micros(millis * 1_000);
        while self.now < until {
            self.now = self.now.after_secs(1).min(until);
            self.core.advance(self.now);
        }
    }

    pub(super) fn sleep(&mut self, seconds: i64) {
        self.sleep_millis(seconds * 1_000);
    }

    /// Attempts until nothing is ready; effects as text.
    pub(super) fn run(&mut self) -> Vec<String> {
        for _ in 0..MOST_ATTEMPTS {
            if self.core.schedule_one(self.now).is_none() {
                return self.effects();
            }
        }
        panic!("livelock: {:?}", self.core.queue_view());
    }

    /// As `run`, bind effects only.
    pub(super) fn run_binds(&mut self) -> Vec<String> {
        self.run().into_iter().filter(|e| e.starts_with("bind")).collect()
    }

    pub(super) fn effects(&mut self) -> Vec<String> {
        let effects = self.core.take_effects();
        effects.iter().filter_map(|e| self.text(e)).collect()
    }

    /// Nominations are not shown: see `nominated`.
    fn text(&mut self, effect: &Effect) -> Option<String> {
        let text = match effect {
            Effect::Bind { pod, node, attempt, devices } => {
                self.binds.insert(pod.name.to_string(), (pod.clone(), *attempt));
                let devices = devices.as_ref().map(|set| format!(" {}", set.text()));
                format!("bind {pod} -> {node}{}", devices.unwrap_or_default())
            }
            Effect::Group(says) => {
                let gave_up = if says.gave_up { " (gave up)" } else { "" };
                format!("group {} {}: {}{gave_up}", says.gang, says.reason, says.message)
            }
            Effect::Event(e) => {
                let kind = if e.warning { "Warning" } else { "Normal" };
                format!("{kind} {} {}: {}", e.pod, e.reason, e.note)
            }
            Effect::PatchStatus(patch) => {
                if let Some(node) = &patch.nominated_node {
                    self.nominated.insert(patch.pod.name.to_string(), node.to_string());
                }
                let c = patch.condition.as_ref()?;
                let said = (c.status, c.reason.to_owned(), c.message.to_string());
                self.conditions.insert(patch.pod.name.to_string(), said);
                format!("status {} {} {}: {}", patch.pod, c.status, c.reason, c.message)
            }
            Effect::Call { token, request: Request::Evict { victim, how }, .. } => {
                let what = match how {
                    Removal::Checkpoint { .. } => "checkpoint",
                    Removal::DryRun => "ask",
                    Removal::Evict => "evict",
                    Removal::Delete => "delete",
                };
                self.evictions.insert(victim.name.to_string(), *token);
                format!("{what} {victim}")
            }
            Effect::Call { token, pod, plugin, request } => {
                self.calls.insert(pod.name.to_string(), *token);
                match request {
                    Request::Post(post) => format!("post {pod} to {}: {}", post.url, post.body),
                    Request::Text(request) => format!("call {pod} {plugin}: {request}"),
                    Request::Extender { call, .. } => {
                        format!("{plugin} {}", extender_call(pod, call))
                    }
                    request => format!("call {pod} {plugin}: {request:?}"),
                }
            }
        };
        Some(text)
    }

    /// Answers the pod's last bind.
    pub(super) fn answer(&mut self, name: &str, result: Result<(), WriteError>) {
        let (pod, attempt) = self.binds.get(name).expect("a bind was asked for").clone();
        self.apply(Input::BindDone { pod, attempt, result });
    }

    /// The pod's last bind: whom and which attempt.
    pub(super) fn last_bind(&self, name: &str) -> (PodRef, u64) {
        self.binds.get(name).expect("a bind was asked for").clone()
    }

    /// The bind succeeded and the watch shows it.
    pub(super) fn bound(&mut self, name: &str, node: &str) {
        self.answer(name, Ok(()));
        self.edit(name, |p| node.clone_into(&mut p.spec.node_name));
    }

    pub(super) fn reply(&mut self, name: &str, reply: Reply) {
        let token = *self.calls.get(name).expect("a call was asked for");
        self.apply(Input::Reply { token, reply });
    }

    /// The extender answers the pod's last call, and cycles go on; effects as text.
    pub(super) fn extender(&mut self, name: &str, reply: ExtenderReply) -> Vec<String> {
        self.reply(name, Reply::Extender(reply));
        self.run()
    }

    /// The server answers the last eviction of a victim, or its dry run.
    pub(super) fn evicted(&mut self, victim: &str, eviction: Eviction) {
        let token = *self.evictions.get(victim).expect("an eviction was asked for");
        self.apply(Input::Reply { token, reply: Reply::Evicted(eviction) });
    }

    /// The node last written as the one the pod is expected on.
    pub(super) fn nominated(&self, name: &str) -> Option<&str> {
        self.nominated.get(name).map(String::as_str)
    }

    pub(super) fn object(&mut self, object: Object) {
        self.apply(Input::Object(Box::new(object)));
    }

    pub(super) fn permit(&mut self, name: &str, plugin: &str, verdict: Result<(), &str>) {
        let uid = &self.pods.get(name).expect("a known pod").metadata.uid;
        let pod =
            PodRef { namespace: "default".into(), name: name.into(), uid: uid.as_str().into() };
        let verdict = verdict.map_err(Arc::from);
        self.apply(Input::Permit { pod, plugin: plugin.into(), verdict });
    }

    /// Which queue holds the pod; `none` if no queue does.
    pub(super) fn queue_of(&self, name: &str) -> &'static str {
        let key = format!("default/{name}");
        let view = self.core.queue_view();
        let mut found = view.pods.iter().filter(|p| p.pod == key).map(|p| p.queue);
        let queue = found.next().unwrap_or("none");
        assert_eq!(found.next(), None, "{name} is in two queues");
        queue
    }

    pub(super) fn attempts(&self, name: &str) -> u32 {
        let key = format!("default/{name}");
        let view = self.core.queue_view();
        view.pods.iter().find(|p| p.pod == key).map_or(0, |p| p.attempts)
    }

    /// `node: pod, pod` for every node, in order.
    pub(super) fn cache(&self) -> Vec<String> {
        let view = self.core.cache_view();
        view.nodes.iter().map(|n| format!("{}: {}", n.name, n.pods.join(", "))).collect()
    }

    /// Nothing is left behind once no pod of ours waits.
    pub(super) fn assert_idle(&self) {
        assert_eq!(self.core.timers.len(), 0, "timers");
        assert_eq!(self.core.bindings.len(), 0, "bindings");
        assert_eq!(self.core.calls.len(), 0, "calls");
        assert_eq!(self.core.asking.len() + self.core.asked.len(), 0, "parked cycles");
        assert_eq!(self.core.queue.tracked(), (0, 0), "queue entries, pods in flight");
        assert_eq!(self.core.next_deadline(), None);
    }
}

fn extender_call(pod: &PodRef, call: &ExtenderCall) -> String {
    let name = &pod.name;
    match call {
        ExtenderCall::Filter { nodes, .. } => format!("filters {} for {name}", nodes.join(" ")),
        ExtenderCall::Prioritize { extenders, nodes } => {
            let of = extenders.len();
            format!("prioritizes {} for {name} ({of} asked)", nodes.join(" "))
        }
        ExtenderCall::Preempt { candidates, .. } => {
            let each = candidates.iter().map(|c| {
                let pods: Vec<&str> = c.pods.iter().map(|p| &*p.name).collect();
                format!("{}={}/{}", c.node, pods.join("+"), c.violations)
            });
            format!("preempts {} for {name}", each.collect::<Vec<_>>().join(" "))
        }
        ExtenderCall::Bind { node, .. } => format!("binds {name} to {node}"),
    }
}

/// Compares effects with lines of text.
#[track_caller]
pub(super) fn check<S: AsRef<str>>(actual: impl AsRef<[S]>, expect: &str) {
    let actual: Vec<&str> = actual.as_ref().iter().map(AsRef::as_ref).collect();
    let expect: Vec<&str> = expect.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    assert_eq!(actual, expect);
}

/// Calls that test plugins saw, in order.
pub(super) type Log = Arc<Mutex<Vec<String>>>;

pub(super) fn take(log: &Log) -> Vec<String> {
    std::mem::take(&mut *log.lock().unwrap())
}
