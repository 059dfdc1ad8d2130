//! Gangs whose members must be near each other, and labels that change under them.
//!
//! Owns which groups ask for it, by the label that every drawn node has or by the name of a
//! level, which topologies there are, and what policies say of it. Draws by chances of its own:
//! gangs stay what they were but for that.

use std::collections::BTreeMap;

use muster_api::muster::{
    ClusterTopology, Segment, TopologyDefault, TopologyLevel, TopologyRequest,
};

use super::draw::{Draw, half};
use crate::scenario::{Action, ClusterEvent, NodeChange, NodeGroup, Workload};
use crate::time::{MILLISECOND, Micros, SECOND};

/// The label that every drawn node has.
const LABEL: &str = "half";
/// Gangs that ask for nearness, in a hundred.
const GANGS: i64 = 50;

/// Has some gangs ask for one half of the nodes, and moves nodes from half to half.
pub(super) fn draw(
    draw: &mut Draw,
    nodes: &[NodeGroup],
    workloads: &mut [Workload],
    events: &mut Vec<ClusterEvent>,
) {
    let names: Vec<String> = nodes.iter().flat_map(NodeGroup::names).collect();
    // A node that is away at the time cannot change.
    let removed = |name: &&str| {
        events.iter().any(|event| match &event.action {
            Action::Remove(gone) => gone.iter().any(|gone| gone == name),
            _ => false,
        })
    };
    let names: Vec<&str> = names.iter().map(String::as_str).filter(|name| !removed(name)).collect();
    for workload in workloads {
        let Some(group) = workload.pod_group.as_mut().filter(|_| draw.chance(GANGS)) else {
            continue;
        };
        let (label, required) = (Some(LABEL.to_owned()), draw.chance(75));
        group.spec.topology = Some(match required {
            true => TopologyRequest { required: label, ..TopologyRequest::default() },
            false => TopologyRequest { preferred: label, ..TopologyRequest::default() },
        });
        if names.is_empty() || !draw.chance(80) {
            continue;
        }
        let (most, within) = draw.one(&[(4, 15 * SECOND), (12, 30 * SECOND), (24, 5 * SECOND)]);
        for _ in 0..draw.pick(1, most) {
            let at = workload.at + group.after + draw.time(MILLISECOND, within);
            let node = draw.one(&names).to_owned();
            let labels = match draw.chance(15) {
                true => BTreeMap::new(),
                false => BTreeMap::from([(LABEL.to_owned(), half(draw))]),
            };
            let change = NodeChange { node, labels: Some(labels), ..NodeChange::default() };
            events.push(ClusterEvent { at, action: Action::Change(change) });
        }
    }
}

/// A level that only topologies define.
const LEVEL: &str = "side";

/// Has some gangs ask for a level by its name, for a domain of their own or for segments, and
/// has topologies and what policies say of them change under way.
pub(super) fn draw_more(
    draw: &mut Draw,
    span: Micros,
    workloads: &mut [Workload],
    events: &mut Vec<ClusterEvent>,
) {
    let mut named = false;
    for workload in workloads {
        let Some(group) = workload.pod_group.as_mut() else { continue };
        let Some(topology) = &mut group.spec.topology else { continue };
        if draw.chance(30) {
            named = true;
            for level in [&mut topology.required, &mut topology.preferred] {
                level.iter_mut().for_each(|level| LEVEL.clone_into(level));
            }
        }
        topology.exclusive = topology.required.is_some() && draw.chance(35);
        if draw.chance(30) {
            let size = i32::try_from(draw.pick(1, 3)).unwrap_or(1);
            let level = Some(LABEL.to_owned());
            let segment = Segment { size, ..Segment::default() };
            topology.segments = vec![match draw.chance(75) {
                true => Segment { required: level, ..segment },
                false => Segment { preferred: level, ..segment },
            }];
        }
        // Segments of a gang that may be in two domains are what is of interest.
        if !topology.segments.is_empty() && draw.chance(70) {
            (topology.required, topology.preferred, topology.exclusive) = (None, None, false);
        }
    }
    if named {
        topologies(draw, span, events);
    }
    for event in events {
        if let Action::Policy(policy) = &mut event.action
            && draw.chance(50)
        {
            let label = Some(LABEL.to_owned());
            policy.spec.topology = Some(match draw.chance(60) {
                true => TopologyDefault { required: label, preferred: None },
                false => TopologyDefault { required: None, preferred: label },
            });
        }
    }
}

/// A topology is there from the beginning, and changes or goes.
fn topologies(draw: &mut Draw, span: Micros, events: &mut Vec<ClusterEvent>) {
    let level =
        |name: &str, key: &str| TopologyLevel { name: name.to_owned(), node_label: key.to_owned() };
    let host = "kubernetes.io/hostname";
    for change in 0..draw.pick(1, 6) {
        let at = if change == 0 { 0 } else { draw.time(0, span + SECOND) };
        let mut topology = ClusterTopology::default();
        "net".clone_into(&mut topology.metadata.name);
        topology.spec.levels = match draw.pick(0, 5) {
            0 => vec![level(LEVEL, host)],
            1 => vec![level("outer", LABEL), level(LEVEL, host)],
            _ => vec![level(LEVEL, LABEL), level("host", host)],
        };
        let action = match change > 0 && draw.chance(15) {
            true => Action::DeleteTopology("net".to_owned()),
            false => Action::Topology(Box::new(topology)),
        };
        events.push(ClusterEvent { at, action });
    }
}
