//! A plugin with every extension point that writes down each call.
//!
//! Owns what it does for which pod: the name of the pod, which is also the value
//! of its node selector `case` (points that see only the shape read it there), is
//! the script. Must never call out or wait, like any plugin.

use std::sync::Arc;

use muster_core::cluster::{Cluster, NodeView};
use muster_core::framework::{
    Actions, Bind, Code, Filter, Normalize, Permit, PermitResult, Placed, Plugin, PostBind,
    PostFilter, PostFilterResult, PreBind, PreEnqueue, PreFilter, PreFilterResult, PreScoreResult,
    QueueSort, Registration, Reserve, Resource, Room, Score, SortKey, State, Status, Step,
};
use muster_core::io::{ObjectKey, ObjectPatch, PodRef, Request, Tick};
use muster_core::model::{Pod, PodId, PodShape};

use super::book::Book;

pub(super) const FIRST: &str = "First";
pub(super) const SECOND: &str = "Second";

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
    /// Whoever it turned away is tried again when its labels change, and not before.
    fn events(&self) -> Vec<Registration> {
        vec![Registration { resource: Resource::TargetPod, actions: Actions::UPDATE_POD_LABEL }]
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
    fn as_post_filter(&self) -> Option<&dyn PostFilter> {
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
            "narrowed" | "victim" | "makes-room" => {
                let nodes = Some(vec!["node-2".into(), "nowhere".into()]);
                PreFilterResult::Go { state: Some(Box::new(self.name)), nodes }
            }
            _ => PreFilterResult::Go { state: Some(Box::new(self.name)), nodes: None },
        }
    }

    fn add_pod(&self, _: &mut State, shape: &PodShape, pod: &Pod, node: NodeView<'_>) {
        self.note_other("add_pod", shape, pod, node);
    }

    fn remove_pod(&self, _: &mut State, shape: &PodShape, pod: &Pod, node: NodeView<'_>) {
        self.note_other("remove_pod", shape, pod, node);
    }
}

impl Probe {
    /// Another pod is thought on a node, or away from it.
    fn note_other(&self, point: &'static str, shape: &PodShape, pod: &Pod, node: NodeView<'_>) {
        let what = format!("{} {}", pod.key.name, node.info().name);
        self.book.note(self.name, point, case(shape), &what);
    }
}

impl PostFilter for Probe {
    /// The first has no help for anybody; the second evicts for one pod.
    fn post_filter(&self, room: &mut dyn Room) -> PostFilterResult {
        let name = Arc::clone(&room.pod().key.name);
        self.book.note(self.name, "post_filter", &name, "");
        let (status, victims) = match (&*name, self.is_second()) {
            ("helpless", _) => {
                (Status::unschedulable(format!("{} cannot help", self.name)), Vec::new())
            }
            ("makes-room", true) => Self::make_room(room),
            _ => (Status { code: Code::Unschedulable, reasons: Vec::new() }, Vec::new()),
        };
        let nominate = (status.code == Code::Success).then(|| "node-2".into());
        PostFilterResult { status, nominate, victims, by_force: false }
    }
}

impl Probe {
    /// The pod named `victim` goes, if that helps and nothing less does.
    fn make_room(room: &mut dyn Room) -> (Status, Vec<PodId>) {
        let [node] = room.potential()[..] else {
            return (Status::error("only node-2 can be helped"), Vec::new());
        };
        let cluster = room.cluster();
        let named = |pod: &&PodId| cluster.pod(**pod).is_some_and(|p| &*p.key.name == "victim");
        let victims: Vec<PodId> = cluster.node(node).pods.iter().filter(named).copied().collect();
        if room.fits_without(node, &[]) || !room.fits_without(node, &victims) {
            return (Status::error("no use"), Vec::new());
        }
        (Status::new(Code::Success, "the victim goes"), victims)
    }
}

impl Filter for Probe {
    /// The first refuses `node-0`, the second all if the case says so.
    fn filter(&self, state: &State, shape: &PodShape, node: NodeView<'_>) -> Result<(), Status> {
        self.book.note(self.name, "filter", case(shape), &node.info().name);
        let state = state.as_ref().and_then(|s| s.downcast_ref::<&str>());
        if state != Some(&self.name) {
            return Err(Status::error("the state is another plugin's"));
        }
        if self.is_second() {
            return match case(shape) {
                "unfit" => Err(Status::unresolvable("unfit")),
                "helpless" => Err(Status::unschedulable("helpless")),
                _ => Ok(()),
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
            ("permit-refused" | "permit-deleted", false) | ("permit-waits", _) => {
                PermitResult::Wait { seconds: 600 }
            }
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
        let version = self.book.version(claim);
        let patch = ObjectPatch::SelectNode {
            claim: ObjectKey {
                namespace: "default".to_owned(),
                name: claim.to_owned(),
                uid: String::new(),
            },
            version: version.into(),
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
