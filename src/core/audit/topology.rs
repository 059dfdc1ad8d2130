//! Members that must be in one domain are, when they are seated and when they are bound.
//!
//! Owns its own reading of levels and labels. What a group asks for is judged as of the
//! inputs seen. Members on nodes that are not known, or lack a label, are not judged by;
//! nor is a level that nobody defines.

use std::collections::BTreeMap;

use muster_api::muster::TopologyRequest;

use super::Audit;
use super::pods::{Place, Pod};
use super::world::World;
use crate::io::{Kind, Object, ObjectKey};

/// Levels by topology, widest first: name and label; and the list they were last seen in.
#[derive(Default)]
pub(super) struct Levels(BTreeMap<String, (u64, Vec<(String, String)>)>);

impl Levels {
    pub(super) fn upsert(&mut self, object: &Object, seen: u64) {
        if let Object::ClusterTopology(topology) = object {
            let levels = topology.spec.levels.iter();
            let levels = levels.map(|l| (l.name.clone(), l.node_label.clone())).collect();
            self.0.insert(topology.metadata.name.clone(), (seen, levels));
        }
    }

    pub(super) fn remove(&mut self, kind: Kind, key: &ObjectKey) {
        if kind == Kind::ClusterTopology {
            self.0.remove(&key.name);
        }
    }

    pub(super) fn relist_done(&mut self, kind: Kind, seen: u64) {
        if kind == Kind::ClusterTopology {
            self.0.retain(|_, (at, _)| *at >= seen);
        }
    }

    /// The labels that nodes in one domain of a level share; none if nobody knows the level.
    fn labels(&self, asks: &Asks, world: &World) -> Option<Vec<String>> {
        let required = asks.required.as_ref()?;
        let label = || Some(vec![required.clone()]);
        if asks.is_label {
            return label();
        }
        let at = |levels: &[(String, String)], name: &str| levels.iter().position(|l| l.0 == name);
        let all = || self.0.values().map(|(_, levels)| levels.as_slice());
        let mut with_both = all().filter(|levels| {
            asks.preferred.as_ref().is_some_and(|name| at(levels, name).is_some())
                && at(levels, required).is_some()
        });
        let found =
            with_both.next().or_else(|| all().find(|levels| at(levels, required).is_some()));
        if let Some(levels) = found {
            let down_to = at(levels, required)?;
            return Some(levels[..=down_to].iter().map(|(_, key)| key.clone()).collect());
        }
        let known = || world.nodes.values().any(|node| node.label(required).is_some());
        if required.contains('/') || known() { label() } else { None }
    }
}

/// What a group, or a role of it, asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asks {
    pub(super) required: Option<String>,
    pub(super) preferred: Option<String>,
    /// It names a label, and no level.
    pub(super) is_label: bool,
}

impl Asks {
    pub(super) fn of(request: Option<&TopologyRequest>) -> Self {
        let (required, preferred) =
            request.map(|r| (r.required.clone(), r.preferred.clone())).unwrap_or_default();
        Self { required, preferred, is_label: false }
    }

    /// Whether it says anything of where members go.
    pub(super) fn is_any(&self) -> bool {
        self.required.is_some() || self.preferred.is_some()
    }
}

/// The node on which a pod has room or is bound.
fn node_of(pod: &Pod) -> Option<&str> {
    match &pod.place {
        Place::Pending => None,
        Place::Reserved { node, .. } | Place::Bound { node } => Some(node),
    }
}

impl Audit {
    /// A member has room on a node, or is about to be bound there: those that must be in one
    /// domain with it are.
    pub(super) fn together(&mut self, name: &str, node: &str, what: &str) {
        let Some(pod) = self.world.pods.get(name) else { return };
        let Some(group) = pod.gang.as_deref() else { return };
        let mut wrong = Vec::new();
        for (asks, beside) in self.groups.asks(group, &pod.labels) {
            let Some(keys) = self.levels.labels(asks, &self.world) else { continue };
            let domain = |node: &str| -> Option<Vec<String>> {
                let node = self.world.nodes.get(node)?;
                keys.iter().map(|key| node.label(key).map(str::to_owned)).collect()
            };
            let Some(own) = domain(node) else {
                wrong.push(format!("{name} {what} {node}, which has not all of {keys:?}"));
                continue;
            };
            let others = self.world.pods.iter().filter(|(other, pod)| {
                *other != name
                    && pod.gang.as_deref() == Some(group)
                    && pod.profile.is_some()
                    && !pod.deleting
                    && beside(&pod.labels)
            });
            for (other, place) in others.filter_map(|(other, pod)| Some((other, node_of(pod)?))) {
                if domain(place).is_some_and(|there| there != own) {
                    wrong
                        .push(format!("{name} {what} {node} ({own:?}), but {other} is on {place}"));
                    break;
                }
            }
        }
        wrong.into_iter().for_each(|what| self.violation("topology", what));
    }
}
