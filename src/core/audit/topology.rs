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
    /// No other gang may be in the domain.
    pub(super) exclusive: bool,
    /// Ranks in a segment, and what is asked of each.
    pub(super) segments: Vec<(u32, Asks)>,
    pub(super) rank_label: String,
}

impl Asks {
    pub(super) fn of(request: Option<&TopologyRequest>) -> Self {
        let Some(request) = request else { return Self::default() };
        let (required, preferred) = (request.required.clone(), request.preferred.clone());
        let segments = request.segments.iter().filter_map(|segment| {
            let size = u32::try_from(segment.size).ok().filter(|size| *size > 0)?;
            let (required, preferred) = (segment.required.clone(), segment.preferred.clone());
            Some((size, Self { required, preferred, ..Self::default() }))
        });
        Self {
            exclusive: request.exclusive && required.is_some(),
            segments: segments.collect(),
            rank_label: request.rank_label().to_owned(),
            required,
            preferred,
            is_label: false,
        }
    }

    /// Whether it says anything of where members go.
    pub(super) fn is_any(&self) -> bool {
        self.required.is_some() || self.preferred.is_some() || !self.segments.is_empty()
    }

    /// The number of the segment that labels say, of so many ranks each.
    fn segment(&self, size: u32, labels: &BTreeMap<String, String>) -> Option<u32> {
        Some(labels.get(&self.rank_label)?.parse::<u32>().ok()? / size)
    }
}

/// What a member is held to, and together with whom, by their labels.
pub(super) type Held<'a> = (&'a Asks, Box<dyn Fn(&BTreeMap<String, String>) -> bool + 'a>);

/// The values of some labels of a node; none if it lacks one.
fn domain(world: &World, keys: &[String], node: &str) -> Option<Vec<String>> {
    let node = world.nodes.get(node)?;
    keys.iter().map(|key| node.label(key).map(str::to_owned)).collect()
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
    /// domain with it are, and no other gang is where one is to be alone.
    pub(super) fn together(&mut self, name: &str, node: &str, what: &str) {
        let Some(pod) = self.world.pods.get(name) else { return };
        let Some(group) = pod.gang.as_deref() else { return };
        let mut wrong = Vec::new();
        let by_policy = self.asked_by_policies(group, what);
        let mut held: Vec<Held<'_>> = self.groups.asks(group, &pod.labels);
        held.extend(by_policy.as_ref().map(|asks| -> Held<'_> { (asks, Box::new(|_| true)) }));
        for (asks, beside) in held {
            wrong.extend(self.apart((name, group), node, asks, &*beside));
            for (size, segment) in &asks.segments {
                let Some(own) = asks.segment(*size, &pod.labels) else { continue };
                let same = |labels: &BTreeMap<String, String>| {
                    beside(labels) && asks.segment(*size, labels) == Some(own)
                };
                wrong.extend(self.apart((name, group), node, segment, &same));
            }
            wrong.extend(self.shared(group, node, asks));
        }
        wrong.extend(self.trespasses(group, node));
        let told = |why: String| format!("{name} {what} {node}: {why}");
        wrong.into_iter().for_each(|why| self.violation("topology", told(why)));
    }

    /// What policies ask of a gang whose group says nothing. What was decided before a policy
    /// changed may still be carried out.
    fn asked_by_policies(&self, group: &str, what: &str) -> Option<Asks> {
        if what != PUT || !self.groups.leaves_topology(group) {
            return None;
        }
        let of_group = |pod: &&Pod| pod.gang.as_deref() == Some(group) && pod.profile.is_some();
        let members: Vec<&Pod> = self.world.pods.values().filter(of_group).collect();
        let labels: Vec<&BTreeMap<String, String>> =
            members.iter().map(|pod| &pod.labels).collect();
        self.policies.asks(&members.first()?.namespace, &labels)
    }

    /// Other members, of those that must be in one domain with this one, are in another.
    fn apart(
        &self,
        (name, group): (&str, &str),
        node: &str,
        asks: &Asks,
        beside: &dyn Fn(&BTreeMap<String, String>) -> bool,
    ) -> Option<String> {
        let keys = self.levels.labels(asks, &self.world)?;
        let Some(own) = domain(&self.world, &keys, node) else {
            return Some(format!("it has not all of {keys:?}"));
        };
        let others = self.world.pods.iter().filter(|(other, pod)| {
            *other != name
                && pod.gang.as_deref() == Some(group)
                && pod.profile.is_some()
                && !pod.deleting
                && beside(&pod.labels)
        });
        let mut others = others.filter_map(|(other, pod)| Some((other, node_of(pod)?)));
        let elsewhere = |(_, place): &(&String, &str)| {
            domain(&self.world, &keys, place).is_some_and(|there| there != own)
        };
        let (other, place) = others.find(elsewhere)?;
        Some(format!("it is in {own:?}, but {other} is on {place}"))
    }

    /// Members of other gangs are in a domain that a gang wants for itself.
    fn shared(&self, group: &str, node: &str, asks: &Asks) -> Option<String> {
        let keys = self.levels.labels(asks, &self.world).filter(|_| asks.exclusive)?;
        let own = domain(&self.world, &keys, node)?;
        let other = self.world.pods.iter().find(|(_, pod)| {
            let gang = pod.gang.as_deref().filter(|gang| *gang != group);
            gang.is_some_and(|gang| !self.groups.go_alone(gang))
                && pod.profile.is_some()
                && node_of(pod).and_then(|node| domain(&self.world, &keys, node)).as_ref()
                    == Some(&own)
        })?;
        Some(format!("{group} wants {own:?} for itself, and {} is there", other.0))
    }

    /// Another gang has a domain for itself that this node is in.
    fn trespasses(&self, group: &str, node: &str) -> Option<String> {
        if self.groups.go_alone(group) {
            return None;
        }
        self.world.pods.iter().find_map(|(other, pod)| {
            let gang =
                pod.gang.as_deref().filter(|gang| *gang != group && pod.profile.is_some())?;
            let place = node_of(pod)?;
            let mut held = self.groups.asks(gang, &pod.labels).into_iter();
            held.find_map(|(asks, _)| {
                let keys = self.levels.labels(asks, &self.world).filter(|_| asks.exclusive)?;
                let own = domain(&self.world, &keys, node)?;
                let there = domain(&self.world, &keys, place)?;
                (own == there).then(|| format!("{other} is there, and {gang} is to be alone"))
            })
        })
    }
}

/// What is said of a member that was given room.
pub(super) const PUT: &str = "was put on";
