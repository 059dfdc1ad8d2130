//! One pod as the checker knows it: what it was told, what it saw happen.

use std::collections::BTreeMap;

use muster_api::k8s;
use muster_api::muster::{MAX_CHECKPOINT_SECONDS, annotations};

use super::attempts::Attempts;
use super::fit::{Load, Wants};
use super::requests;
use crate::io::Tick;

/// Tries of a bind whose answers never come, after which the room may be given up.
pub(super) const MOST_UNKNOWNS: u32 = 60;

/// Where a pod is, by what went in and came out.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// Without a node.
    Pending,
    /// Has room on a node, not yet seen bound.
    Reserved { node: String, stage: Stage },
    /// Seen bound.
    Bound { node: String },
}

/// How far a reserved pod has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Permit plugins hold it; `allowed` once one of them may have been told to go on.
    Permit { allowed: bool },
    /// It waits for the rest of its gang.
    Gathered,
    /// On its way to a bind.
    Going,
    /// The bind was asked for.
    Sent { attempt: u64 },
    /// The bind's answer never came.
    Unknown { since: Tick },
    /// The server said conflict.
    Conflict { since: Tick },
    /// The server refused.
    Refused,
    /// The server agreed.
    Agreed,
    /// An extender was asked to bind it.
    Lent,
}

/// A PodScheduled condition: status, reason, message.
pub(super) type Condition = (bool, String, String);

/// What is known of a pod that may be scheduled by us, or takes room.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) labels: BTreeMap<String, String>,
    /// The group it names.
    pub(super) gang: Option<String>,
    /// The profile, by position, if it asks for one of ours.
    pub(super) profile: Option<usize>,
    version: String,
    pub(super) priority: i32,
    /// The priority is its own, and no class's.
    pub(super) has_rank: bool,
    /// Its own policy forbids it to push others out.
    pub(super) preempts_never: bool,
    /// When its kubelet took it, in seconds.
    pub(super) started: Option<i64>,
    /// It runs, and has work to lose.
    pub(super) runs: bool,
    /// For how many seconds it wants to be waited for to save its work before it goes.
    pub(super) saves: Option<i64>,
    /// When it was asked to, as last seen and as last asked for.
    pub(super) asked_to_save: [Option<Tick>; 2],
    /// When it last said that it has.
    pub(super) saved: Option<Tick>,
    /// It runs and is ready: budgets count it.
    ready: bool,
    /// Where it is expected, as last seen and as last asked for.
    expected: [Option<String>; 2],
    pub(super) gated: bool,
    pub(super) deleting: bool,
    pub(super) wants: Wants,
    /// What it asks a kubelet for, devices among it.
    pub(super) asks: Option<String>,
    pub(super) seen: u64,
    pub(super) place: Place,
    /// What it takes where it is.
    pub(super) load: Load,
    /// What it would take, as last seen.
    pub(super) idle_load: Load,
    /// Something wants it tried at once, whatever it backs off from.
    pub(super) called: bool,
    /// The version under which it was last tried.
    pub(super) decided: u64,
    /// It was taken from the queue at least once.
    pub(super) tried: bool,
    /// Its cycle waits for an extender.
    pub(super) asking: bool,
    /// Permit holds it while it waits for its gang, as last looked at.
    pub(super) held: bool,
    /// What had stirred the cluster when it was last taken from the queue.
    pub(super) stirs: u64,
    /// When it was first seen, and as which.
    pub(super) first: Tick,
    pub(super) arrival: u64,
    pub(super) attempts: Attempts,
    pub(super) condition: Option<Condition>,
    /// Why it was last not scheduled.
    pub(super) message: Option<String>,
    /// A condition that has to be written.
    pub(super) owes: Option<String>,
    /// Popped while being deleted: no longer in any queue.
    pub(super) dropped: bool,
    /// Its cycle panicked.
    pub(super) quarantined: bool,
    /// A node on which an earlier bind may have put it, and how often nothing
    /// came back.
    pub(super) perhaps: Option<(String, u32)>,
}

impl Pod {
    pub(super) fn new(wire: &k8s::Pod, profile: Option<usize>, now: Tick, arrival: u64) -> Self {
        let mut pod = Self {
            uid: wire.metadata.uid.clone(),
            namespace: wire.metadata.namespace.clone(),
            labels: BTreeMap::new(),
            gang: None,
            profile,
            version: String::new(),
            priority: 0,
            has_rank: false,
            preempts_never: false,
            started: None,
            runs: false,
            saves: None,
            asked_to_save: [None, None],
            saved: None,
            ready: false,
            expected: [None, None],
            gated: false,
            deleting: false,
            wants: Wants::default(),
            asks: None,
            seen: 0,
            place: Place::Pending,
            load: Load::default(),
            idle_load: Load::default(),
            called: false,
            decided: 0,
            tried: false,
            asking: false,
            held: false,
            stirs: 0,
            first: now,
            arrival,
            attempts: Attempts::default(),
            condition: None,
            message: None,
            owes: None,
            dropped: false,
            quarantined: false,
            perhaps: None,
        };
        pod.read(wire);
        pod
    }

    /// Whether the version is one already taken in.
    pub(super) fn is_old_news(&self, wire: &k8s::Pod) -> bool {
        !self.version.is_empty() && self.version == wire.metadata.resource_version
    }

    /// Takes over what the wire says, apart from where it is.
    pub(super) fn read(&mut self, wire: &k8s::Pod) {
        self.version.clone_from(&wire.metadata.resource_version);
        self.labels.clone_from(&wire.metadata.labels);
        self.gang = super::gangs::group_of(wire);
        self.priority = wire.spec.priority.unwrap_or(0);
        self.has_rank = wire.spec.priority.is_some();
        self.preempts_never = wire.spec.preemption_policy.as_deref() == Some("Never");
        self.started = wire.status.start_time.map(|time| Tick(time.0).secs());
        self.runs = wire.status.phase == "Running";
        let note = |name: &str| wire.metadata.annotations.get(name);
        let time = |name: &str| Some(Tick(k8s::Time::parse(note(name)?).ok()?.0));
        self.saves = note(annotations::CHECKPOINT_BEFORE_EVICTION)
            .and_then(|wait| wait.parse::<i64>().ok())
            .filter(|wait| *wait > 0);
        self.asked_to_save[0] = time(annotations::CHECKPOINT_REQUESTED);
        self.saved = time(annotations::LAST_CHECKPOINT);
        self.ready = wire.status.phase == "Running"
            && wire.status.conditions.iter().any(|c| c.kind == "Ready" && c.status == "True");
        self.expected[0] = Some(wire.status.nominated_node_name.clone());
        self.gated = !wire.spec.scheduling_gates.is_empty();
        self.deleting = wire.metadata.deletion_timestamp.is_some();
        self.wants = Wants::of(wire);
        self.asks = super::devices::asks(wire);
        self.idle_load =
            Load { amounts: requests::occupied(wire), ports: requests::ports(&wire.spec) };
        let condition = wire.status.conditions.iter().find(|c| c.kind == "PodScheduled");
        self.condition =
            condition.map(|c| (c.status == "True", c.reason.clone(), c.message.clone()));
        self.owes = None;
    }

    /// Whether it may go without being asked to save its work first: it has been, and has done
    /// so or has had its time.
    pub(super) fn may_lose_work(&self, now: Tick) -> bool {
        let Some(wait) = self.saves.filter(|_| self.runs && !self.deleting) else {
            return true;
        };
        let wait = wait.min(MAX_CHECKPOINT_SECONDS);
        let [seen, told] = self.asked_to_save;
        let late = |asked: Tick| asked <= now && now >= asked.after_secs(wait);
        // What was asked twice may be answered once.
        let answers = self.asked_to_save.iter().flatten().any(|asked| self.saved >= Some(*asked));
        answers || told.or(seen).is_some_and(late)
    }

    /// The core asks for it to be expected on a node, or on none.
    pub(super) fn expect(&mut self, node: &str) {
        self.expected[1] = Some(node.to_owned());
    }

    /// Whether the core may expect it on the node.
    pub(super) fn is_expected_on(&self, node: &str) -> bool {
        self.expected.iter().flatten().any(|expected| expected == node)
    }

    /// Whether the core last asked for it to be expected on the node.
    pub(super) fn was_told(&self, node: &str) -> bool {
        self.expected[1].as_deref() == Some(node)
    }

    /// Whether budgets guard it for certain, if it is that incarnation.
    pub(super) fn is_guarded(&self, uid: &str) -> bool {
        self.uid == uid && self.ready && !self.deleting
    }

    pub(super) fn node(&self) -> Option<&str> {
        match &self.place {
            Place::Pending => None,
            Place::Reserved { node, .. } | Place::Bound { node } => Some(node),
        }
    }

    pub(super) fn stage(&self) -> Option<Stage> {
        match &self.place {
            Place::Reserved { stage, .. } => Some(*stage),
            Place::Pending | Place::Bound { .. } => None,
        }
    }

    pub(super) fn set_stage(&mut self, next: Stage) {
        if let Place::Reserved { stage, .. } = &mut self.place {
            *stage = next;
        }
    }

    /// Waits in a queue, for all we know.
    pub(super) fn waits(&self) -> bool {
        self.profile.is_some() && matches!(self.place, Place::Pending) && !self.dropped
    }

    /// In the active queue for certain: never tried, nothing holds it.
    pub(super) fn is_fresh(&self) -> bool {
        self.waits() && !self.gated && !self.tried && self.gang.is_none()
    }

    /// The order of the active queue: priority, time of entry, arrival.
    pub(super) fn rank(&self) -> (i64, Tick, u64) {
        (-i64::from(self.priority), self.attempts.since().unwrap_or(self.first), self.arrival)
    }

    /// Whether giving up the room now forgets a bind that may have happened.
    pub(super) fn unsettled(&self) -> bool {
        match self.stage() {
            Some(Stage::Sent { .. }) => true,
            Some(Stage::Unknown { .. } | Stage::Conflict { .. }) => {
                self.perhaps.as_ref().is_some_and(|(_, n)| *n <= MOST_UNKNOWNS)
            }
            _ => false,
        }
    }

    /// Whether an earlier bind may have put it on another node than `node`.
    pub(super) fn perhaps_elsewhere(&self, node: &str) -> bool {
        self.perhaps.as_ref().is_some_and(|(other, n)| other != node && *n <= MOST_UNKNOWNS)
    }
}
