//! A plugin with every extension point that writes down each call.
//!
//! Owns what it does for which pod: the name of the pod, which is also the value
//! of its node selector `case` (points that see only the shape read it there), is
//! the script. Must never call out or wait, like any plugin.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use muster_core::cluster::{Cluster, NodeView};
use muster_core::framework::{
    Bind, Filter, Normalize, Permit, PermitResult, Placed, Plugin, PostBind, PreBind, PreEnqueue,
    PreFilter, PreFilterResult, PreScoreResult, QueueSort, Reserve, Score, SortKey, State, Status,
    Step,
};
use muster_core::io::{ObjectKey, ObjectPatch, PodRef, Request, Tick};
use muster_core::model::{Pod, PodShape};

pub(super) const FIRST: &str = "First";
pub(super) const SECOND: &str = "Second";

/// One call of one extension point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) plugin: &'static str,
    pub(super) point: &'static str,
    pub(super) case: String,
    pub(super) node: String,
}

/// What both plugins and the test share.
#[derive(Default)]
pub(super) struct Book {
    calls: Mutex<Vec<Call>>,
    /// Doors that the test has opened.
    open: Mutex<BTreeSet<String>>,
    /// Versions of claims, by name.
    versions: Mutex<BTreeMap<String, String>>,
}

impl Book {
    fn note(&self, plugin: &'static str, point: &'static str, case: &str, node: &str) {
        let call = Call { plugin, point, case: case.to_owned(), node: node.to_owned() };
        self.calls.lock().unwrap().push(call);
    }

    /// The calls for one pod, in order.
    pub(super) fn calls(&self, case: &str) -> Vec<Call> {
        self.calls.lock().unwrap().iter().filter(|c| c.case == case).cloned().collect()
    }

    /// `Plugin.point` of each call for one pod that is of these points.
    pub(super) fn points(&self, case: &str, points: &[&str]) -> Vec<String> {
        let calls = self.calls(case).into_iter().filter(|c| points.contains(&c.point));
        calls.map(|c| format!("{}.{}", c.plugin, c.point)).collect()
    }

    /// The pods in the order in which this point of the first plugin met them.
    pub(super) fn order(&self, point: &str) -> Vec<String> {
        let calls = self.calls.lock().unwrap();
        let met = calls.iter().filter(|c| c.plugin == FIRST && c.point == point);
        met.map(|c| c.case.clone()).collect()
    }

    pub(super) fn open(&self, door: &str) {
        self.open.lock().unwrap().insert(door.to_owned());
    }

    fn is_open(&self, door: &str) -> bool {
        self.open.lock().unwrap().contains(door)
    }

    pub(super) fn set_version(&self, claim: &str, version: &str) {
        self.versions.lock().unwrap().insert(claim.to_owned(), version.to_owned());
    }

    /// Whether this is the first attempt to get that far.
    fn is_first(&self, plugin: &str, point: &str, case: &str) -> bool {
        let calls = self.calls(case);
        calls.iter().filter(|c| c.plugin == plugin && c.point == point).count() <= 1
    }
}

pub(super) struct Probe {
    pub(super) name: &'static str,
    pub(super) book: Arc<Book>,
}

fn case(shape: &PodShape) -> &str {
    shape.node_selector.get("case").map_or("", String::as_str)
}

impl Probe {
    fn note(&self, point: &'static str, placed: &Placed<'_>) {
        self.book.note(self.name, point, &placed.pod.key.name, &placed.node.info().name);
    }

    fn is_second(&self) -> bool {
        self.name == SECOND
    }
}

impl Plugin for Probe {
    fn name(&self) -> &'static str {
        self.name
    }
    fn as_pre_enqueue(&self) -> Option<&dyn PreEnqueue> {
        Some(self)
    }
    fn as_queue_sort(&self) -> Option<&dyn QueueSort> {
        Some(self)
    }
    fn as_pre_filter(&self) -> Option<&dyn PreFilter> {
        Some(self)
    }
    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }
    fn as_score(&self) -> Option<&dyn Score> {
        Some(self)
    }
    fn as_reserve(&self) -> Option<&dyn Reserve> {
        Some(self)
    }
    fn as_permit(&self) -> Option<&dyn Permit> {
        Some(self)
    }
    fn as_pre_bind(&self) -> Option<&dyn PreBind> {
        Some(self)
    }
    fn as_bind(&self) -> Option<&dyn Bind> {
        Some(self)
    }
    fn as_post_bind(&self) -> Option<&dyn PostBind> {
        Some(self)
    }
}

impl PreEnqueue for Probe {
    fn pre_enqueue(&self, pod: &Pod) -> Result<(), Status> {
        self.book.note(self.name, "pre_enqueue", &pod.key.name, "");
        if &*pod.key.name == "gated" && self.is_second() && !self.book.is_open("gate") {
            return Err(Status::unresolvable("the gate is closed"));
        }
        Ok(())
    }
}

impl QueueSort for Probe {
    /// By the last letter of the name, backwards.
    fn key(&self, pod: &Pod, _: Tick) -> SortKey {
        self.book.note(self.name, "key", &pod.key.name, "");
        let last = pod.key.name.bytes().last().unwrap_or_default();
        [-i64::from(last), 0, 0]
    }
}

impl PreFilter for Probe {
    fn pre_filter(&self, shape: &PodShape, _: &Cluster) -> PreFilterResult {
        self.book.note(self.name, "pre_filter", case(shape), "");
        match case(shape) {
            "skipping" => PreFilterResult::Skip,
            "barred" if self.is_second() => {
                PreFilterResult::Reject(Status::unresolvable("barred by the second"))
            }
            "narrowed" => {
                let nodes = Some(vec!["node-2".into(), "nowhere".into()]);
                PreFilterResult::Go { state: None, nodes }
            }
            _ => PreFilterResult::Go { state: Some(Box::new(self.name)), nodes: None },
        }
    }
}

impl Filter for Probe {
    /// The first refuses `node-0`, the second all if the case says so.
    fn filter(&self, state: &State, shape: &PodShape, node: NodeView<'_>) -> Result<(), Status> {
        self.book.note(self.name, "filter", case(shape), &node.info().name);
        let state = state.as_ref().and_then(|s| s.downcast_ref::<&str>());
        if case(shape) != "narrowed" && state != Some(&self.name) {
            return Err(Status::error("the state is another plugin's"));
        }
        if self.is_second() {
            return if case(shape) == "unfit" {
                Err(Status::unresolvable("unfit"))
            } else {
                Ok(())
            };
        }
        if &*node.info().name == "node-0" { Err(Status::unresolvable("reserved")) } else { Ok(()) }
    }
}

/// The lowest raw score is the best.
fn upside_down(raw: i64, min: i64, max: i64) -> i64 {
    if max == min { 0 } else { 100 * (max - raw) / (max - min) }
}

impl Score for Probe {
    fn pre_score(&self, shape: &PodShape, _: &Cluster) -> PreScoreResult {
        self.book.note(self.name, "pre_score", case(shape), "");
        if self.is_second() { PreScoreResult::Skip } else { PreScoreResult::Go(None) }
    }

    fn score(&self, _: &State, shape: &PodShape, node: NodeView<'_>) -> i64 {
        self.book.note(self.name, "score", case(shape), &node.info().name);
        match &*node.info().name {
            "node-0" => 3,
            "node-1" => 5,
            _ => 90,
        }
    }

    fn normalize(&self) -> Normalize {
        Normalize::ByExtremes(upside_down)
    }
}

impl Reserve for Probe {
    fn reserve(&self, placed: &Placed<'_>) -> Result<(), Status> {
        self.note("reserve", placed);
        let case = &*placed.pod.key.name;
        match case {
            "reserve-rejects" if self.is_second() => Err(Status::unschedulable("no seat")),
            "reserve-fails" if self.is_second() && self.book.is_first(SECOND, "reserve", case) => {
                Err(Status::error("the book is lost"))
            }
            _ => Ok(()),
        }
    }

    fn unreserve(&self, placed: &Placed<'_>) {
        self.note("unreserve", placed);
    }
}

impl Permit for Probe {
    fn permit(&self, placed: &Placed<'_>) -> PermitResult {
        self.note("permit", placed);
        match (&*placed.pod.key.name, self.is_second()) {
            ("permit-rejects", true) => PermitResult::Reject(Status::unschedulable("not you")),
            ("permit-times-out", false) => PermitResult::Wait { seconds: 1 },
            ("permit-refused" | "permit-deleted", false) => PermitResult::Wait { seconds: 600 },
            ("permit-waits", _) => PermitResult::Wait { seconds: 600 },
            _ => PermitResult::Allow,
        }
    }
}

impl PreBind for Probe {
    fn pre_bind(&self, placed: &Placed<'_>) -> Step {
        self.note("pre_bind", placed);
        let case = &*placed.pod.key.name;
        let first = self.book.is_first(self.name, "pre_bind", case);
        match (case, self.is_second()) {
            ("prebind-fails", true) if first => Step::Fail(Status::error("no disk")),
            ("prebind-rejects", true) if first => Step::Fail(Status::unschedulable("no room")),
            ("prebind-parks", false) => self.park(case, placed),
            ("prebind-stale" | "prebind-waits-in-vain", false) if first => self.park(case, placed),
            _ => Step::Done,
        }
    }

    fn resume(&self, pod: &PodRef, answer: Result<&str, &str>) -> Result<(), Status> {
        self.book.note(self.name, "resume", &pod.name, "");
        answer.map(drop).map_err(|_| Status::error("the claim has changed"))
    }

    fn settled(&self, placed: &Placed<'_>) -> Result<bool, Status> {
        self.note("settled", placed);
        Ok(self.book.is_open(&placed.pod.key.name))
    }

    fn patience(&self) -> (i64, Status) {
        (PATIENCE, Status::error("waited in vain"))
    }
}

/// Seconds that the probe waits for what it has written to come about.
const PATIENCE: i64 = 4;

impl Probe {
    /// Asks for the claim of the same name to be made for the node.
    fn park(&self, claim: &str, placed: &Placed<'_>) -> Step {
        let version = self.book.versions.lock().unwrap().get(claim).cloned();
        let patch = ObjectPatch::SelectNode {
            claim: ObjectKey {
                namespace: "default".to_owned(),
                name: claim.to_owned(),
                uid: String::new(),
            },
            version: version.unwrap_or_default().into(),
            node: Arc::clone(&placed.node.info().name),
        };
        Step::Park { request: Request::Write([patch].into()) }
    }
}

impl Bind for Probe {
    /// The first leaves it to the second, the second to others if the case says so.
    fn handles(&self, placed: &Placed<'_>) -> bool {
        self.note("bind", placed);
        self.is_second() && &*placed.pod.key.name != "bind-skipped"
    }
}

impl PostBind for Probe {
    fn post_bind(&self, placed: &Placed<'_>) {
        self.note("post_bind", placed);
    }
}
