//! Gangs whose members must be near each other, and labels that change under them.
//!
//! Owns which groups ask for it, by the label that every drawn node has. Draws by chances of
//! its own: gangs stay what they were but for that.

use std::collections::BTreeMap;

use muster_api::muster::TopologyRequest;

use super::draw::{Draw, half};
use crate::scenario::{Action, ClusterEvent, NodeChange, NodeGroup, Workload};
use crate::time::{MILLISECOND, SECOND};

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
