//! What happened, by revision: the memory from which lists and watches are served.
//!
//! Owns order per kind, lists as of an older revision, and compaction. Must never
//! be asked for the present: that is the store's.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_api::k8s::{Node, Pod};
use muster_core::io::{Kind, Object};

use super::api::{Notice, PodId};
use super::errors::ApiError;
use super::objects::is_ended_member;

/// The kinds that a scheduler may watch in a simulation.
pub(crate) const WATCHED: [Kind; 9] = [
    Kind::Node,
    Kind::Pod,
    Kind::PodDisruptionBudget,
    Kind::PriorityClass,
    Kind::PodGroup,
    Kind::EndedMember,
    Kind::SchedulingPolicy,
    Kind::ClusterTopology,
    Kind::NodeTopology,
];

/// The kinds that it does watch: pod groups, their members that have ended, policies and
/// topologies only if they are served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    pub(crate) groups: bool,
    pub(crate) policies: bool,
    pub(crate) topologies: bool,
    pub(crate) reports: bool,
}

impl Served {
    pub(crate) fn kinds(self) -> impl Iterator<Item = Kind> {
        WATCHED.into_iter().filter(move |kind| match kind {
            Kind::PodGroup | Kind::EndedMember => self.groups,
            Kind::SchedulingPolicy => self.policies,
            Kind::ClusterTopology => self.topologies,
            Kind::NodeTopology => self.reports,
            _ => true,
        })
    }
}

/// The kind in whose memory a stream is found: ended members are pods.
fn stored(kind: Kind) -> Kind {
    if kind == Kind::EndedMember { Kind::Pod } else { kind }
}

/// The position of a kind among the watched ones.
pub(crate) fn slot(kind: Kind) -> usize {
    WATCHED.iter().position(|watched| *watched == kind).unwrap_or(0)
}

/// Accepted writes of one kind.
#[derive(Debug, Default)]
struct History {
    events: Vec<(u64, Notice)>,
    /// Versions before this one are gone.
    oldest: u64,
}

/// Accepted writes of all kinds.
#[derive(Debug, Default)]
pub(crate) struct Log {
    kinds: [History; WATCHED.len()],
}

/// Objects of one kind at one revision, in order of name or creation.
#[derive(Clone, Debug)]
pub(crate) enum Listing {
    Nodes(Vec<(Arc<Node>, bool)>),
    Pods(Vec<(Arc<Pod>, bool)>),
    Objects(Vec<(Arc<Object>, bool)>),
}

impl Log {
    pub(crate) fn push(&mut self, revision: u64, notice: &Notice) {
        self.kinds[slot(notice.kind())].events.push((revision, notice.clone()));
    }

    /// A version cannot be decoded by whoever reads it.
    pub(crate) fn break_version(&mut self, kind: Kind, revision: u64) {
        let events = &mut self.kinds[slot(kind)].events;
        if let Ok(index) = events.binary_search_by_key(&revision, |(at, _)| *at) {
            events[index].1.set_broken();
        }
    }

    /// Forgets what happened before `revision`.
    pub(crate) fn compact(&mut self, revision: u64) {
        for history in &mut self.kinds {
            history.oldest = history.oldest.max(revision);
        }
    }

    /// The oldest revision of which a list can be served.
    pub(crate) fn oldest(&self, kind: Kind) -> u64 {
        self.kinds[slot(stored(kind))].oldest
    }

    /// What a watch from `revision` shows, or 410.
    pub(crate) fn since(&self, kind: Kind, revision: u64) -> Result<&[(u64, Notice)], ApiError> {
        let History { events, oldest } = &self.kinds[slot(stored(kind))];
        if revision < *oldest {
            return Err(ApiError::expired(revision, *oldest));
        }
        let from = events.partition_point(|(at, _)| *at <= revision);
        Ok(&events[from..])
    }

    /// The latest revision at or before `revision` whose list can be served.
    pub(crate) fn list(&self, kind: Kind, revision: u64) -> Listing {
        let events = self.kinds[slot(stored(kind))].events.iter();
        let mut nodes: BTreeMap<&str, (Arc<Node>, bool)> = BTreeMap::new();
        let mut pods: BTreeMap<PodId, (Arc<Pod>, bool)> = BTreeMap::new();
        let mut objects: BTreeMap<(&str, &str), (Arc<Object>, bool)> = BTreeMap::new();
        for (_, notice) in events.take_while(|(at, _)| *at <= revision) {
            match notice {
                Notice::Node { object, deleted: true, .. } => {
                    nodes.remove(object.metadata.name.as_str());
                }
                Notice::Node { object, broken, .. } => {
                    nodes.insert(&object.metadata.name, (object.clone(), *broken));
                }
                Notice::Pod { id, deleted: true, .. } => {
                    pods.remove(id);
                }
                Notice::Pod { id, object, broken, .. } => {
                    pods.insert(*id, (object.clone(), *broken));
                }
                Notice::Object { object, deleted: true, .. } => {
                    let meta = object.metadata();
                    objects.remove(&(meta.namespace.as_str(), meta.name.as_str()));
                }
                Notice::Object { object, broken, .. } => {
                    let meta = object.metadata();
                    objects.insert((&meta.namespace, &meta.name), (object.clone(), *broken));
                }
            }
        }
        match kind {
            Kind::Node => Listing::Nodes(nodes.into_values().collect()),
            Kind::Pod => Listing::Pods(pods.into_values().collect()),
            Kind::EndedMember => {
                let ended = pods.into_values().filter(|(pod, _)| is_ended_member(pod));
                Listing::Pods(ended.collect())
            }
            _ => Listing::Objects(objects.into_values().collect()),
        }
    }
}
