//! Wrong histories, at least one per check: each is called wrong, by its name.

use std::sync::Arc;

use muster_api::k8s;

use crate::audit::{Audit, Point, PointCall};
use crate::gang::{Api, GangKey};
use crate::io::{
    Change, Condition, Effect, EventRecord, Input, Kind, Object, ObjectKey, PodRef, StatusPatch,
    Tick, Token, WriteError,
};
use crate::testing::{NodeExt as _, PodExt as _, node, pod, wire};
use crate::{Config, Core, Decision, Outcome};

/// A checker and a core that need not hear the same.
pub(super) struct History {
    audit: Audit,
    core: Core,
    now: Tick,
    version: u64,
}

impl History {
    pub(super) fn new() -> Self {
        let config = Config::default();
        let (audit, core) = (Audit::new(&config), Core::new(config));
        Self { audit, core, now: Tick(100_000_000), version: 0 }
    }

    /// Only the checker hears it.
    pub(super) fn input(&mut self, input: &Input) -> &mut Self {
        self.audit.input(self.now, input);
        self
    }

    /// Both hear it.
    fn both(&mut self, input: Input) -> &mut Self {
        self.input(&input);
        self.core.apply(self.now, input);
        for effect in self.core.take_effects() {
            self.audit.effect(self.now, &effect);
        }
        self
    }

    pub(super) fn node(&mut self, wire: k8s::Node) -> &mut Self {
        self.input(&upsert_node(wire))
    }

    pub(super) fn pod(&mut self, wire: k8s::Pod) -> &mut Self {
        self.version += 1;
        let version = self.version.to_string();
        self.input(&upsert_pod(wire.pod_version(&version)))
    }

    pub(super) fn sleep(&mut self, seconds: i64) -> &mut Self {
        self.now = self.now.after_secs(seconds);
        self
    }

    fn decide(&mut self, name: &str, outcome: Outcome, message: &str) -> &mut Self {
        self.decide_for(None, name, outcome, message)
    }

    fn decide_for(
        &mut self,
        gang: Option<GangKey>,
        name: &str,
        outcome: Outcome,
        message: &str,
    ) -> &mut Self {
        let decision = Decision {
            pod: key(name),
            version: 0,
            profile: "muster".into(),
            outcome,
            message: Some(message.into()),
            evaluated: 0,
            feasible: 0,
            gang,
            explanation: None,
        };
        self.audit.decision(self.now, &decision);
        self
    }

    /// Members of the group `g` are given room on a node, to be bound together.
    fn seat(&mut self, members: &[&str], node: &str) -> &mut Self {
        let api = Api::Muster;
        let gang = GangKey { api, namespace: "default".into(), name: "g".into() };
        let seated = members.iter().map(|name| (key(name), node.into())).collect();
        self.decide_for(Some(gang), members[0], Outcome::Gathered { members: seated }, "")
    }

    fn rounds(&mut self) -> &mut Self {
        self.audit.rounds_are_whole();
        self
    }

    pub(super) fn choose(&mut self, name: &str, node: &str) -> &mut Self {
        self.decide(name, Outcome::Scheduled { node: node.into() }, "")
    }

    /// An attempt that failed, told as it should be.
    pub(super) fn fail(&mut self, name: &str, outcome: Outcome) -> &mut Self {
        self.decide(name, outcome, "because").event(name, "FailedScheduling", "because");
        self.patch(name, "because")
    }

    pub(super) fn effect(&mut self, effect: &Effect) -> &mut Self {
        self.audit.effect(self.now, effect);
        self
    }

    fn bind(&mut self, name: &str, node: &str, attempt: u64) -> &mut Self {
        self.effect(&Effect::Bind { pod: key(name), node: node.into(), attempt, devices: None })
    }

    fn event(&mut self, name: &str, reason: &'static str, note: &str) -> &mut Self {
        self.effect(&Effect::Event(EventRecord {
            pod: key(name),
            related: None,
            warning: true,
            reason,
            action: "Scheduling",
            note: note.into(),
            reporting_controller: "muster".into(),
        }))
    }

    fn patch(&mut self, name: &str, message: &str) -> &mut Self {
        self.effect(&Effect::PatchStatus(StatusPatch {
            pod: key(name),
            condition: Some(Condition {
                status: false,
                reason: "Unschedulable",
                message: message.into(),
                observed_generation: None,
            }),
            shown: None,
            nominated_node: None,
        }))
    }

    fn answer(&mut self, name: &str, attempt: u64, result: Result<(), WriteError>) -> &mut Self {
        self.input(&Input::BindDone { pod: key(name), attempt, result })
    }

    fn call(&mut self, plugin: &'static str, point: Point) -> &mut Self {
        self.audit.called(&PointCall { pod: "uid-p".into(), plugin, point });
        self
    }

    fn full(&mut self) -> &mut Self {
        self.audit.full(self.now, &self.core);
        self
    }

    /// What is called wrong, each name once.
    #[track_caller]
    pub(super) fn expect(&mut self, expected: &[&str]) {
        let violations = self.audit.take_violations();
        let mut names: Vec<&str> = violations.iter().map(|v| v.invariant).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names, expected, "{violations:#?}");
    }
}

pub(super) fn key(name: &str) -> PodRef {
    PodRef { namespace: "default".into(), name: name.into(), uid: format!("uid-{name}").into() }
}

fn upsert_node(wire: k8s::Node) -> Input {
    Input::Node(Change::Upsert(Box::new(wire)))
}

fn upsert_pod(wire: k8s::Pod) -> Input {
    Input::Pod(Change::Upsert(Box::new(wire)))
}

pub(super) fn delete_pod(name: &str) -> Input {
    let key =
        ObjectKey { namespace: "default".into(), name: name.into(), uid: format!("uid-{name}") };
    Input::Pod(Change::Delete(key))
}

/// Puts `wire` on `there`, beside nothing else.
#[track_caller]
fn placed(there: k8s::Node, wire: k8s::Pod, expected: &[&str]) {
    History::new().node(there).pod(wire).choose("p", "n").expect(expected);
}

#[test]
fn s1_a_pod_goes_only_where_it_may() {
    let cpu = |amount: &str| pod("p").req(&[("cpu", amount)]);
    placed(node("n"), cpu("4"), &[]);
    placed(node("n"), cpu("4001m"), &["S1"]);
    placed(node("n"), pod("p").req(&[("example.com/gpu", "1")]), &["S1"]);
    placed(node("n"), cpu("1").init(&[("cpu", "5")]), &["S1"]);
    // 3 + 2 of a sidecar; 2 + 3 beside the sidecar before it.
    placed(node("n"), cpu("3").sidecar(&[("cpu", "2")]), &["S1"]);
    placed(node("n"), cpu("1").sidecar(&[("cpu", "2")]).init(&[("cpu", "3")]), &["S1"]);
    placed(node("n"), cpu("1").init(&[("cpu", "3")]).sidecar(&[("cpu", "2")]), &[]);
    placed(node("n"), cpu("4").overhead(&[("cpu", "1m")]), &["S1"]);
    placed(node("n"), cpu("1").pod_level(&[("cpu", "5")]), &["S1"]);
    placed(node("n"), cpu("9").pod_level(&[("cpu", "4")]), &[]);
    placed(node("n").max_pods("0"), pod("p"), &["S1"]);
    placed(node("n").unschedulable(), pod("p"), &["S1"]);
    let tolerant = pod("p").tolerate("node.kubernetes.io/unschedulable", "Exists", "", "");
    placed(node("n").unschedulable(), tolerant, &[]);
    placed(node("n").taint("k", "v", "NoExecute"), pod("p"), &["S1"]);
    placed(node("n").taint("k", "v", "PreferNoSchedule"), pod("p"), &[]);
    placed(node("n").taint("k", "v", "NoSchedule"), pod("p").tolerate("k", "", "v", ""), &[]);
    placed(node("n").taint("k", "v", "NoSchedule"), pod("p").tolerate("k", "", "w", ""), &["S1"]);
    placed(node("n").label("a", "1"), pod("p").node_selector("a", "1"), &[]);
    placed(node("n").label("a", "2"), pod("p").node_selector("a", "1"), &["S1"]);
    placed(node("other"), pod("p"), &["S1"]);
}

#[test]
fn s1_affinity_is_read_as_the_api_means_it() {
    let wants = |operator: &str, values: &[&str]| {
        pod("p").node_affinity(serde_json::json!({
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "size", "operator": operator, "values": values}]},
            ]}
        }))
    };
    let five = || node("n").label("size", "5");
    for (operator, values, fits) in [
        ("In", &["5", "6"][..], true),
        ("In", &["6"], false),
        ("NotIn", &["5"], false),
        ("NotIn", &["6"], true),
        ("Exists", &[], true),
        ("DoesNotExist", &[], false),
        ("Gt", &["4"], true),
        ("Gt", &["5"], false),
        ("Lt", &["6"], true),
        ("Lt", &["5"], false),
        // In doubt nothing is said.
        ("Like", &["6"], true),
        ("Exists", &["x"], true),
    ] {
        placed(five(), wants(operator, values), if fits { &[] } else { &["S1"] });
    }
}

#[test]
fn s1_room_and_ports_are_taken_until_they_are_free() {
    let mut h = History::new();
    let wants = |name: &str| pod(name).req(&[("cpu", "3")]).host_port(80, "", "");
    h.node(node("n").cpu("9")).pod(wants("a")).pod(wants("b")).choose("a", "n").expect(&[]);
    h.choose("b", "n").expect(&["S1"]);
    let mut h = History::new();
    let wants = |name: &str| pod(name).req(&[("cpu", "3")]);
    h.node(node("n")).pod(wants("a").on("n")).pod(wants("b")).choose("b", "n").expect(&["S1"]);
    let mut h = History::new();
    h.node(node("n")).pod(wants("a").on("n")).pod(wants("b")).input(&delete_pod("a"));
    h.choose("b", "n").expect(&[]);
    // A resize that was granted counts, whatever the spec says.
    let grown = wants("a").on("n").status(serde_json::json!({"containerStatuses": [
        {"name": "c0", "allocatedResources": {"cpu": "4"}},
    ]}));
    let mut h = History::new();
    h.node(node("n")).pod(grown).pod(pod("b").req(&[("cpu", "1")])).choose("b", "n");
    h.expect(&["S1"]);
}

#[test]
fn s3_a_pod_is_bound_once() {
    let start = || {
        let mut h = History::new();
        h.node(node("n")).node(node("m")).pod(pod("p"));
        h
    };
    start().bind("p", "n", 1).expect(&["S1"]);
    start().choose("p", "n").bind("p", "n", 1).expect(&[]);
    start().choose("p", "n").bind("p", "m", 1).expect(&["S1"]);
    start().choose("p", "n").bind("p", "n", 1).bind("p", "n", 2).expect(&["S3"]);
    start().choose("p", "n").pod(pod("p").on("n")).bind("p", "n", 1).expect(&["S3"]);
    let lost = || Err(WriteError::Unknown("lost".into()));
    start().choose("p", "n").bind("p", "n", 1).answer("p", 1, lost()).bind("p", "n", 2).expect(&[]);
    start()
        .choose("p", "n")
        .bind("p", "n", 2)
        .answer("p", 2, lost())
        .bind("p", "n", 1)
        .expect(&["S3"]);
    // Given up in doubt, and once more to another node.
    let mut h = start();
    h.choose("p", "n").bind("p", "n", 1).answer("p", 1, lost());
    h.event("p", "FailedScheduling", "x").patch("p", "x").expect(&["S3"]);
    h.sleep(60).choose("p", "m").bind("p", "m", 2).expect(&["S3"]);
    // Refused for certain: it may go elsewhere.
    let mut h = start();
    let refused = Err(WriteError::Rejected("no".into()));
    h.choose("p", "n").bind("p", "n", 1).answer("p", 1, refused);
    h.event("p", "FailedScheduling", "x").patch("p", "x");
    h.sleep(60).choose("p", "m").bind("p", "m", 2).expect(&[]);
}

#[test]
fn s2_nobody_waits_to_be_bound_with_a_member_that_is_gone() {
    let member = |name: &str| pod(name).pod_label("muster.dev/pod-group", "g");
    let seated = || {
        let meta = serde_json::json!({"namespace": "default", "name": "g"});
        let group = wire(serde_json::json!({"metadata": meta, "spec": {"minMember": 1}}));
        let mut h = History::new();
        h.node(node("n")).input(&Input::Object(Box::new(Object::PodGroup(group))));
        h.pod(member("a")).pod(member("b")).seat(&["a", "b"], "n");
        h
    };
    seated().rounds().expect(&[]);
    seated().input(&delete_pod("b")).rounds().expect(&["S2"]);
    seated().input(&delete_pod("b")).pod(member("b").uid("another")).rounds().expect(&["S2"]);
    seated().pod(member("b").on("n")).rounds().expect(&[]);
    seated().input(&delete_pod("a")).input(&delete_pod("b")).rounds().expect(&[]);
    seated().bind("a", "n", 1).bind("b", "n", 2).input(&delete_pod("b")).rounds().expect(&[]);
}

#[test]
fn members_that_must_be_in_one_domain_are_there_when_seated_and_when_bound() {
    let member = |name: &str| pod(name).pod_label("muster.dev/pod-group", "g");
    let rack = |name: &str, rack: &str| node(name).label("example.com/rack", rack);
    let start = |level: &str| {
        let meta = serde_json::json!({"namespace": "default", "name": "g"});
        let spec = serde_json::json!({"minMember": 1, "topology": {"required": level}});
        let group = wire(serde_json::json!({"metadata": meta, "spec": spec}));
        let levels = serde_json::json!({"metadata": {"name": "net"}, "spec": {"levels": [
            {"name": "block", "nodeLabel": "example.com/block"},
            {"name": "rack", "nodeLabel": "example.com/rack"},
        ]}});
        let mut h = History::new();
        h.node(rack("n", "a")).node(rack("m", "a")).node(rack("o", "b")).node(node("p"));
        h.input(&Input::Object(Box::new(Object::PodGroup(group))));
        h.input(&Input::Object(Box::new(Object::ClusterTopology(wire(levels)))));
        h.pod(member("a")).pod(member("b"));
        h
    };
    let label = "example.com/rack";
    start(label).seat(&["a"], "n").seat(&["b"], "m").expect(&[]);
    start(label).seat(&["a"], "n").seat(&["b"], "o").expect(&["topology"]);
    start(label).seat(&["a"], "p").expect(&["topology"]);
    start(label).seat(&["a", "b"], "n").node(node("n")).bind("a", "n", 1).expect(&["topology"]);
    start(label).seat(&["a"], "n").pod(member("b").on("o")).bind("a", "n", 1).expect(&["topology"]);
    // Of the level these nodes lack a wider one; a level that nobody knows is not judged.
    start("rack").seat(&["a"], "n").expect(&["topology"]);
    start("rakc").seat(&["a"], "n").seat(&["b"], "o").expect(&[]);
}

#[test]
fn segments_are_together_and_nobody_enters_a_domain_that_is_held() {
    let rack = |name: &str, rack: &str| node(name).label("example.com/rack", rack);
    let member = |name: &str, group: &str, rank: &str| {
        let index = "batch.kubernetes.io/job-completion-index";
        pod(name).pod_label("muster.dev/pod-group", group).pod_label(index, rank)
    };
    let start = |topology: serde_json::Value| {
        let group = |name: &str, spec: serde_json::Value| {
            let meta = serde_json::json!({"namespace": "default", "name": name});
            let group = wire(serde_json::json!({"metadata": meta, "spec": spec}));
            Input::Object(Box::new(Object::PodGroup(group)))
        };
        let mut h = History::new();
        h.node(rack("n", "a")).node(rack("m", "a")).node(rack("o", "b"));
        h.input(&group("g", serde_json::json!({"minMember": 1, "topology": topology})));
        h.input(&group("h", serde_json::json!({"minMember": 1})));
        h.pod(member("a", "g", "0")).pod(member("b", "g", "1")).pod(member("c", "g", "2"));
        h
    };
    let label = "example.com/rack";
    let two = || serde_json::json!({"segments": [{"size": 2, "required": label}]});
    start(two()).seat(&["a", "b"], "n").seat(&["c"], "o").expect(&[]);
    start(two()).seat(&["a"], "n").seat(&["b"], "m").expect(&[]);
    start(two()).seat(&["a"], "n").seat(&["b"], "o").expect(&["topology"]);
    let alone = || serde_json::json!({"required": label, "exclusive": true});
    let other = |place: &str| member("x", "h", "0").on(place);
    start(alone()).pod(other("o")).seat(&["a"], "n").expect(&[]);
    start(alone()).pod(other("m")).seat(&["a"], "n").expect(&["topology"]);
    start(alone()).pod(pod("x").on("m")).seat(&["a"], "n").expect(&[]);
    // The other way round: the gang of the first is alone there.
    let mut h = start(two());
    let held = || member("x", "h", "0").on("n");
    let meta = serde_json::json!({"namespace": "default", "name": "h"});
    let group = wire(serde_json::json!({"metadata": meta, "spec": {
        "minMember": 1, "topology": alone(),
    }}));
    h.input(&Input::Object(Box::new(Object::PodGroup(group)))).pod(held());
    h.seat(&["a"], "o").expect(&[]);
    h.seat(&["c"], "m").expect(&["topology"]);
}

#[test]
fn s6_only_our_pods_that_are_there_and_may_go() {
    let tried = |wire: k8s::Pod| {
        let mut h = History::new();
        h.node(node("n")).pod(wire).choose("p", "n");
        h
    };
    tried(pod("p").scheduler("other").on("n")).expect(&["S6"]);
    tried(pod("p").scheduler("other")).expect(&["S6"]);
    tried(pod("p").gate("g")).expect(&["S6"]);
    tried(pod("p").deleting()).expect(&["S6"]);
    tried(pod("p").on("n")).expect(&["S6"]);
    tried(pod("p").uid("another")).expect(&["S6"]);
    tried(pod("p").phase("Succeeded")).expect(&["S6"]);
    tried(pod("p")).choose("p", "n").expect(&["S6"]);
    History::new()
        .node(node("n"))
        .pod(pod("p"))
        .input(&delete_pod("p"))
        .bind("p", "n", 1)
        .expect(&["S6"]);
    let foreign = pod("p").scheduler("other").on("n");
    History::new().pod(foreign).event("p", "Scheduled", "x").expect(&["S6"]);
    let mut h = History::new();
    h.pod(pod("p")).input(&Input::RelistStarted(Kind::Pod)).input(&Input::RelistDone(Kind::Pod));
    h.choose("p", "n").expect(&["S6"]);
}

#[test]
fn o1_a_failure_is_explained() {
    let mut h = History::new();
    h.pod(pod("p")).decide("p", Outcome::Unschedulable, "").expect(&["O1"]);
    // Said in an event, but not in the condition by the next step.
    let mut h = History::new();
    h.pod(pod("p")).decide("p", Outcome::Unschedulable, "x").event("p", "FailedScheduling", "x");
    h.node(node("n")).expect(&["O1"]);
    History::new().pod(pod("p")).fail("p", Outcome::Unschedulable).node(node("n")).expect(&[]);
    History::new().pod(pod("p")).event("p", "Scheduled", "").expect(&["O1"]);
}

#[test]
fn pods_come_in_order_and_back_off() {
    let two = |first: k8s::Pod, second: k8s::Pod| {
        let mut h = History::new();
        h.node(node("n")).pod(first).pod(second);
        h
    };
    two(pod("a"), pod("b")).choose("a", "n").choose("b", "n").expect(&[]);
    two(pod("a"), pod("b")).choose("b", "n").expect(&["order"]);
    two(pod("a"), pod("b").priority(1)).choose("b", "n").expect(&[]);
    two(pod("a"), pod("b").priority(1)).choose("a", "n").expect(&["order"]);
    two(pod("a").gate("g"), pod("b")).choose("b", "n").expect(&[]);
    // 100 s + 1 s: back from the second 102 on; earlier only if nothing else is
    // ready, and never after an error.
    let full = || {
        let mut h = History::new();
        h.node(node("n").cpu("0")).pod(pod("p").req(&[("cpu", "1")]));
        h
    };
    full().fail("p", Outcome::Unschedulable).sleep(1).fail("p", Outcome::Unschedulable).expect(&[]);
    let mut h = full();
    h.fail("p", Outcome::Unschedulable).pod(pod("q")).sleep(1);
    h.fail("p", Outcome::Unschedulable).expect(&["backoff"]);
    full().fail("p", Outcome::Error).sleep(1).fail("p", Outcome::Error).expect(&["backoff"]);
    full().fail("p", Outcome::Error).sleep(2).fail("p", Outcome::Error).expect(&[]);
    let mut h = full();
    h.fail("p", Outcome::Error).sleep(2).fail("p", Outcome::Error).sleep(2);
    h.fail("p", Outcome::Error).expect(&["backoff"]);
}

#[test]
fn nobody_is_turned_away_from_a_node_that_fits() {
    let mut h = History::new();
    h.node(node("n")).pod(pod("p")).fail("p", Outcome::Unschedulable).expect(&["L1"]);
    let mut h = History::new();
    h.node(node("n")).pod(pod("p").req(&[("cpu", "5")])).fail("p", Outcome::Unschedulable);
    h.expect(&[]);
}

#[test]
fn a_binding_takes_its_steps_in_order() {
    let start = || {
        let mut h = History::new();
        h.node(node("n")).pod(pod("p"));
        h
    };
    let waits = || Outcome::WaitingOnPermit { node: "n".into() };
    let call =
        || Effect::Call { token: Token(1), pod: key("p"), plugin: "x".into(), request: "y".into() };
    let allow = || Input::Permit { pod: key("p"), plugin: Arc::from("x"), verdict: Ok(()) };
    start().decide("p", waits(), "").bind("p", "n", 1).expect(&["S3"]);
    start().decide("p", waits(), "").input(&allow()).bind("p", "n", 1).expect(&[]);
    start().effect(&call()).expect(&["binding"]);
    start().decide("p", waits(), "").effect(&call()).expect(&["binding"]);
    start().choose("p", "n").effect(&call()).bind("p", "n", 1).expect(&[]);
    start().decide("p", Outcome::Skipped, "").expect(&["queue"]);
}

#[test]
fn reserve_and_unreserve_are_paired_in_reverse() {
    use Point::{PostBind, Reserve, ReserveFailed, Unreserve};
    let mut h = History::new();
    h.call("a", Reserve).call("b", Reserve).call("b", Unreserve).call("a", Unreserve).expect(&[]);
    h.call("a", Reserve).call("b", Reserve).call("a", Unreserve).expect(&["reserve"]);
    let mut h = History::new();
    h.call("a", Reserve).call("a", Unreserve).call("a", Unreserve).expect(&["reserve"]);
    let mut h = History::new();
    h.call("a", Reserve).call("a", Reserve).expect(&["reserve"]);
    let mut h = History::new();
    h.call("a", Reserve).call("b", ReserveFailed).call("b", Unreserve).call("a", Unreserve);
    h.call("a", Reserve).call("a", PostBind).expect(&[]);
    // Held for a pod that has no node.
    let mut h = History::new();
    h.call("a", Reserve).full().expect(&["reserve"]);
}

#[test]
fn the_cache_is_what_was_fed_in() {
    let mut h = History::new();
    h.both(upsert_node(node("n"))).full().expect(&[]);
    h.node(node("m")).full().expect(&["cache"]);
    let mut h = History::new();
    h.both(upsert_node(node("n"))).node(node("n").cpu("5")).full().expect(&["cache"]);
    let bound = || pod("p").req(&[("cpu", "1")]).on("n");
    let mut h = History::new();
    h.both(upsert_node(node("n"))).both(upsert_pod(bound())).full().expect(&[]);
    h.input(&delete_pod("p")).full().expect(&["cache"]);
    let mut h = History::new();
    h.both(upsert_node(node("n"))).both(upsert_pod(bound().pod_version("1")));
    h.input(&upsert_pod(pod("p").req(&[("cpu", "2")]).on("n").pod_version("2")));
    h.full().expect(&["cache"]);
    // Reserved here, but not there.
    let mut h = History::new();
    h.both(upsert_node(node("n"))).both(upsert_pod(pod("p"))).choose("p", "n");
    h.bind("p", "n", 1).full().expect(&["O1", "cache", "queue"]);
}

#[test]
fn every_waiting_pod_is_in_one_place() {
    let mut h = History::new();
    h.both(upsert_pod(pod("p"))).full().expect(&[]);
    h.pod(pod("q")).full().expect(&["queue"]);
    let mut h = History::new();
    h.both(upsert_pod(pod("p"))).input(&delete_pod("p")).full().expect(&["queue"]);
    let mut h = History::new();
    h.both(upsert_pod(pod("p").pod_version("1")));
    h.input(&upsert_pod(pod("p").gate("g").pod_version("2"))).full().expect(&["S6"]);
    let mut h = History::new();
    h.both(upsert_pod(pod("p").gate("g").pod_version("1")));
    h.input(&upsert_pod(pod("p").pod_version("2"))).full().expect(&["queue"]);
    // A failure that the core knows nothing of: it is neither kept nor explained.
    let mut h = History::new();
    h.both(upsert_pod(pod("p"))).fail("p", Outcome::Error).full().expect(&["O1", "backoff"]);
}

#[test]
fn violations_are_bounded() {
    let mut h = History::new();
    for _ in 0..1000 {
        h.choose("p", "n");
    }
    let violations = h.audit.take_violations();
    assert_eq!(violations.len(), super::super::MAX_VIOLATIONS + 1);
    assert_eq!(violations.last().map(|v| v.invariant), Some("more"));
    assert_eq!(h.audit.take_violations(), []);
}
