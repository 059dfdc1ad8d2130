//! The board: pod groups, their members and lost nodes, as the watches see them.
//!
//! Watches note on it under a short lock; the controller takes from it what is
//! due. Nothing waits in a queue: what the board holds is bounded by what exists
//! in the cluster.

use std::fmt;
use std::sync::Arc;

use muster_api::k8s::{CoschedulingPodGroup, NativePodGroup, Node, Pod, Time};
use muster_api::muster::{ClusterTopology, PodGroup, PodGroupStatus};
use muster_core::gang::Api;
use muster_core::gang::status::Says;
use muster_core::io::GroupSays;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Note;
use super::forms::{Form, Seen};
use super::roll::Side;
use super::state::State;
use super::topologies::TopologyWrite;

/// Namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(super) api: Api,
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
}

impl Key {
    pub(super) fn of(api: Api, namespace: &str, name: &str) -> Self {
        Self { api, namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A status to be written.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) key: Key,
    pub(super) uid: Box<str>,
    pub(super) version: Box<str>,
    pub(super) status: PodGroupStatus,
    /// The same as the group's API has it.
    pub(super) form: Form,
    /// Since when there was something to write.
    pub(super) since: Instant,
    /// Whether more than counts has changed.
    pub(super) substance: bool,
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is there, as this version.
    Written(Box<str>),
    /// Somebody has changed the group since we saw it.
    Conflict,
    /// The group is gone.
    Gone,
    /// We may not write.
    NotLeading,
    /// Anything else.
    Failed(String),
}

impl Outcome {
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Written(_) => "written",
            Self::Conflict => "conflict",
            Self::Gone => "gone",
            Self::NotLeading => "not_leading",
            Self::Failed(_) => "error",
        }
    }
}

/// What is to be done now, and when to look again.
#[derive(Debug, Default)]
pub(super) struct Due {
    pub(super) writes: Vec<Write>,
    pub(super) topologies: Vec<TopologyWrite>,
    pub(super) wake: Option<Instant>,
}

/// What the controller knows. Watches hold clones of an `Arc`.
#[derive(Debug, Default)]
pub struct Board {
    state: Mutex<State>,
    changed: Notify,
    served: [Notify; Api::COUNT],
}

impl Board {
    /// A board for the schedulers of these names: of the groups of other APIs only
    /// those with a pod of theirs are written to.
    #[must_use]
    pub fn new(schedulers: Vec<Arc<str>>) -> Self {
        Self { state: Mutex::new(State::new(schedulers)), ..Self::default() }
    }

    /// The same, where only a part of the cluster's nodes is seen: the status of topologies
    /// is left to somebody who sees all of them.
    #[must_use]
    pub fn seeing_a_part(self) -> Self {
        self.state.lock().see_only_a_part();
        self
    }

    /// A watch speaks of pod groups.
    pub fn note_group(&self, note: Note<&PodGroup>) {
        self.note(Api::Muster, note.map(Seen::muster));
    }

    /// A watch speaks of Kubernetes' own pod groups.
    pub fn note_native(&self, note: Note<&NativePodGroup>) {
        self.note(Api::Native, note.map(Seen::native));
    }

    /// A watch speaks of pod groups of scheduler-plugins.
    pub fn note_coscheduling(&self, note: Note<&CoschedulingPodGroup>) {
        self.note(Api::Coscheduling, note.map(Seen::coscheduling));
    }

    fn note(&self, api: Api, note: Note<Seen<'_>>) {
        if matches!(note, Note::Listing) {
            self.served[api as usize].notify_one();
        }
        self.with(|state| state.note(api, note, Instant::now()));
    }

    /// The watch of pods that have not ended speaks.
    pub fn note_pod(&self, note: Note<&Pod>) {
        self.with(|state| state.note_pod(note, Side::Live, Instant::now()));
    }

    /// The watch of members of this API's groups that have ended speaks.
    pub fn note_ended(&self, api: Api, note: Note<&Pod>) {
        self.with(|state| state.note_member(note, Side::Ended, api, Instant::now()));
    }

    /// The watch of nodes speaks.
    pub fn note_node(&self, note: Note<&Node>) {
        let mut lost = false;
        self.with(|state| lost = state.note_node(note, Instant::now()));
        if lost {
            self.changed.notify_one();
        }
    }

    /// A watch speaks of topologies.
    pub fn note_topology(&self, note: Note<&ClusterTopology>) {
        self.with(|state| state.note_topology(note, Instant::now()));
    }

    /// The scheduler speaks of a group.
    pub fn say(&self, said: GroupSays) {
        let GroupSays { gang, reason, message, domain, role_domains, .. } = said;
        let says = Says { reason: reason.into(), message, domain, role_domains };
        let key = Key::of(gang.api, &gang.namespace, &gang.name);
        self.with(|state| state.say(&key, says, Instant::now()));
    }

    /// Returns when groups of this API are served.
    pub(crate) async fn served(&self, api: Api) {
        self.served[api as usize].notified().await;
    }

    /// Returns when there may be something to do earlier than was said.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// What is to be written, at most `room` of it.
    pub(super) fn due(&self, now: Instant, time: Time, room: usize) -> Due {
        self.state.lock().due(now, time, room)
    }

    /// What became of a write; returns how often it has failed in a row.
    pub(super) fn settled(&self, write: Write, outcome: Outcome, now: Instant) -> u32 {
        self.state.lock().settled(write, outcome, now)
    }

    /// The same of a topology's status.
    pub(super) fn topology_settled(
        &self,
        write: TopologyWrite,
        outcome: Outcome,
        now: Instant,
    ) -> u32 {
        self.state.lock().topology_settled(write, outcome, now)
    }

    /// Every group and topology is looked at again.
    pub(super) fn look_at_all(&self, now: Instant) {
        self.state.lock().look_at_all(now);
    }

    /// Changes the state, and wakes the controller if it sleeps too long for it.
    fn with(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        let first = state.first();
        change(&mut state);
        let earlier = state.first().is_some_and(|new| first.is_none_or(|old| new < old));
        drop(state);
        if earlier {
            self.changed.notify_one();
        }
    }
}
