//! Who is where: on which nodes the members of a gang are, and the pods of a controller.
//!
//! Owns these counts, kept with every placement, so that nobody walks over pods to learn
//! them. Must never decide anything.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::{Cluster, NodeId};
use crate::gang::GangId;
use crate::hash::{IdMap, TextMap};
use crate::model::PodId;

/// Pods of one controller: a dense index, reused when the last of them is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CrewId(u32);

/// Nodes, and how many pods are on each.
type Nodes = BTreeMap<NodeId, u32>;

#[derive(Clone, Debug, Default)]
struct Crew {
    uid: Box<str>,
    pods: u32,
    nodes: Nodes,
}

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub(super) struct Sites {
    gangs: IdMap<GangId, Nodes>,
    on: IdMap<NodeId, SmallVec<[GangId; 2]>>,
    crews: Vec<Crew>,
    by_uid: TextMap<Box<str>, CrewId>,
    free: Vec<CrewId>,
}

/// Counts one more, or one less; true if the node came or went.
fn count(nodes: &mut Nodes, node: NodeId, add: bool) -> bool {
    let pods = nodes.entry(node).or_default();
    *pods = if add { *pods + 1 } else { pods.saturating_sub(1) };
    let (first, last) = (add && *pods == 1, *pods == 0);
    if last {
        nodes.remove(&node);
    }
    first || last
}

impl Sites {
    fn count_gang(&mut self, gang: GangId, node: NodeId, add: bool) {
        let nodes = self.gangs.entry(gang).or_default();
        if !count(nodes, node, add) {
            return;
        }
        if nodes.is_empty() {
            self.gangs.remove(&gang);
        }
        let on = self.on.entry(node).or_default();
        match on.binary_search(&gang) {
            Ok(at) if !add => drop(on.remove(at)),
            Err(at) if add => on.insert(at, gang),
            _ => {}
        }
        if on.is_empty() {
            self.on.remove(&node);
        }
    }

    fn join(&mut self, uid: &str) -> CrewId {
        let id = self.by_uid.get(uid).copied().unwrap_or_else(|| {
            let id = self.free.pop().unwrap_or_else(|| {
                self.crews.push(Crew::default());
                CrewId(u32::try_from(self.crews.len() - 1).expect("fewer than 2^32 controllers"))
            });
            self.crews[id.0 as usize].uid = uid.into();
            self.by_uid.insert(uid.into(), id);
            id
        });
        self.crews[id.0 as usize].pods += 1;
        id
    }

    fn leave(&mut self, id: CrewId) {
        let crew = &mut self.crews[id.0 as usize];
        crew.pods -= 1;
        if crew.pods == 0 {
            let crew = std::mem::take(crew);
            self.by_uid.remove(&crew.uid);
            self.free.push(id);
        }
    }
}

impl Cluster {
    /// Counts a pod that has come to a node, or left it.
    pub(super) fn count_site(&mut self, pod: PodId, node: NodeId, add: bool) {
        let Some((gang, crew)) = self.pod(pod).map(|p| (p.gang, p.crew)) else {
            return;
        };
        if gang.is_none() && crew.is_none() {
            return;
        }
        let sites = Arc::make_mut(&mut self.sites);
        if let Some(gang) = gang {
            sites.count_gang(gang, node, add);
        }
        if let Some(crew) = crew {
            count(&mut sites.crews[crew.0 as usize].nodes, node, add);
        }
    }

    /// A pod is in another gang from now on.
    pub(super) fn move_site(&mut self, pod: PodId, before: Option<GangId>, after: Option<GangId>) {
        let Some(node) = self.pod(pod).and_then(|p| p.stage.node()) else {
            return;
        };
        let sites = Arc::make_mut(&mut self.sites);
        if let Some(before) = before {
            sites.count_gang(before, node, false);
        }
        if let Some(after) = after {
            sites.count_gang(after, node, true);
        }
    }

    /// Notes which controller a pod has, by UID.
    pub(crate) fn set_crew(&mut self, pod: PodId, controller: Option<&str>) {
        let Some(record) = self.pod(pod) else {
            return;
        };
        let (before, node) = (record.crew, record.stage.node());
        let known = before.map(|crew| &*self.sites.crews[crew.0 as usize].uid);
        if known == controller {
            return;
        }
        let sites = Arc::make_mut(&mut self.sites);
        let after = controller.map(|uid| sites.join(uid));
        for (crew, add) in [(before, false), (after, true)] {
            let Some(crew) = crew else { continue };
            if let Some(node) = node {
                count(&mut sites.crews[crew.0 as usize].nodes, node, add);
            }
        }
        if let Some(before) = before {
            sites.leave(before);
        }
        if let Some(record) = self.pod_mut(pod) {
            record.crew = after;
        }
    }

    /// The UID of a pod's controller.
    pub(super) fn controller_of(&self, pod: PodId) -> Option<&str> {
        let crew = self.pod(pod)?.crew?;
        Some(&self.sites.crews[crew.0 as usize].uid)
    }

    /// Nodes on which members of a gang are, or have room; those that are being deleted too.
    pub(crate) fn nodes_of_gang(&self, gang: GangId) -> impl Iterator<Item = NodeId> + '_ {
        self.sites.gangs.get(&gang).into_iter().flatten().map(|(node, _)| *node)
    }

    /// Gangs that have members on a node, in order.
    pub(crate) fn gangs_on(&self, node: NodeId) -> &[GangId] {
        self.sites.on.get(&node).map_or(&[], |gangs| gangs)
    }

    /// Nodes on which pods of a pod's controller are, and how many.
    pub(crate) fn nodes_of_siblings(&self, pod: PodId) -> impl Iterator<Item = (NodeId, u32)> + '_ {
        let crew = self.pod(pod).and_then(|p| p.crew);
        let nodes = crew.map(|crew| &self.sites.crews[crew.0 as usize].nodes);
        nodes.into_iter().flatten().map(|(node, pods)| (*node, *pods))
    }
}
