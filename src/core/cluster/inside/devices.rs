//! Which device is whose.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::bugs::bug;
use crate::cluster::{Cluster, NodeId, NodeView};
use crate::model::node_topology::{Device, DeviceState, DeviceVia, Source};
use crate::model::{NodeTopology, PodId, Predicted};

/// Who has a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Nobody, and it can be given away.
    Free,
    /// Nobody, and it cannot.
    Broken,
    /// A container, as the agent saw.
    Taken,
    /// A pod on the node that the agent has not seen yet: so it was predicted.
    Predicted(PodId),
}

/// The devices of a node.
pub struct NodeDevices<'a> {
    /// What was reported.
    pub topology: &'a NodeTopology,
    /// Who has each of [`NodeTopology::devices`], in its order.
    pub holders: SmallVec<[Holder; 16]>,
    /// Devices that pods on their way will have of which it is not known which they are:
    /// resource and number.
    pub open: SmallVec<[(Arc<str>, u32); 2]>,
}

impl NodeDevices<'_> {
    /// Devices of a resource that are free.
    pub fn free<'s>(&'s self, resource: &'s str) -> impl Iterator<Item = &'s Device> + 's {
        let devices = self.topology.devices.iter().zip(&self.holders);
        let free = devices.filter(|(device, holder)| {
            **holder == Holder::Free
                && device.via == DeviceVia::DevicePlugin
                && *device.resource == *resource
        });
        free.map(|(device, _)| device)
    }

    /// How many devices of a resource will be somebody's without it being known which.
    #[must_use]
    pub fn open(&self, resource: &str) -> u32 {
        let open = self.open.iter().filter(|(name, _)| **name == *resource);
        open.map(|(_, count)| *count).sum()
    }

    /// Gives a pod the devices that were predicted for it, as far as nobody else has them.
    fn predict(&mut self, pod: PodId, asked: &crate::numa::Pod, predicted: Option<&Predicted>) {
        let mut names: SmallVec<[&Arc<str>; 4]> =
            asked.all().flat_map(|c| c.devices.iter().map(|(name, _)| name)).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let of = |c: &crate::numa::Container| {
                let asked = c.devices.iter().find(|(own, _)| own == name);
                asked.map_or(0, |(_, count)| u64::from(*count))
            };
            let mut left = u32::try_from(asked.peak(of)).unwrap_or(u32::MAX);
            let list = predicted.and_then(|p| p.devices.iter().find(|(own, _)| own == name));
            for id in list.iter().flat_map(|(_, ids)| ids.iter()) {
                let at = self.topology.devices.binary_search_by(|device| {
                    (&*device.resource, &*device.id).cmp(&(&**name, &**id))
                });
                let Ok(at) = at else { continue };
                if self.holders[at] == Holder::Free && left > 0 {
                    self.holders[at] = Holder::Predicted(pod);
                    left -= 1;
                }
            }
            if left > 0 && !self.topology.devices_of(name).is_empty() {
                self.open.push((Arc::clone(name), left));
            }
        }
    }
}

impl<'a> NodeView<'a> {
    /// The devices of the node and who has each; `None` if no agent of Muster's says it.
    #[must_use]
    pub fn devices(self) -> Option<NodeDevices<'a>> {
        let known = self.cluster().insides.known(self.id())?;
        let topology = &*known.topology;
        if !topology.allocations_known || topology.source != Source::Agent {
            return None;
        }
        let (seen, expected) = self.reconcile(known);
        let holder = |device: &Device| {
            let held = match device.pod {
                Some(pod) => seen.get(usize::from(pod)).copied().unwrap_or(true),
                None => device.state == DeviceState::Allocated,
            };
            match device.state {
                _ if held && !bug!(self.cluster().bugs, HoldersIgnored) => Holder::Taken,
                DeviceState::Free | DeviceState::Allocated => Holder::Free,
                _ => Holder::Broken,
            }
        };
        let holders = topology.devices.iter().map(holder).collect();
        let mut devices = NodeDevices { topology, holders, open: SmallVec::new() };
        if bug!(self.cluster().bugs, PredictionsIgnored) {
            return Some(devices);
        }
        for (id, asks) in expected {
            let predicted = self.cluster().pod(id).and_then(|pod| pod.predicted.as_deref());
            devices.predict(id, asks, predicted);
        }
        Some(devices)
    }
}

impl Cluster {
    /// Notes which devices a pod on a node is expected to get: news of that node. It is kept
    /// while the pod is off the node for a trial, and forgotten when it leaves.
    pub fn predict(&mut self, pod: PodId, set: Option<Arc<Predicted>>) {
        let Some(record) = self.pod_mut(pod) else { return };
        if record.predicted == set {
            return;
        }
        record.predicted = set;
        if let Some(node) = record.stage.node() {
            self.journal.push(node);
        }
    }

    /// A pod has left its node for good.
    pub(crate) fn forget_devices(&mut self, pod: PodId, node: NodeId) {
        self.note_unseen(pod, node);
        if let Some(record) = self.pod_mut(pod) {
            (record.bound, record.predicted) = (None, None);
        }
    }
}
