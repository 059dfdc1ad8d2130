//! The devices that the kubelet knows, those among them that it has stopped to offer.
//!
//! Owns the memory of ids: the kubelet lists healthy devices only, and whoever predicts it must know
//! the others too. Must never remember more than [`MAX_REMEMBERED`], nor an id that is known to be
//! gone for good.

use std::collections::{BTreeMap, BTreeSet};

use muster_api::muster::node_topology::{Device, DeviceState, DeviceVia, MAX_DEVICES, PodRef};

use super::pods::Pods;
use crate::podresources::Reading;

/// Most ids that are remembered, over all resources.
pub const MAX_REMEMBERED: usize = MAX_DEVICES;
/// Longest resource and id that the object can hold.
const MAX_RESOURCE: usize = 316;
const MAX_ID: usize = 320;

type Key = (String, String);

/// Ids that were seen healthy, and their NUMA nodes.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    seen: BTreeMap<Key, BTreeSet<u32>>,
}

impl Memory {
    /// Takes over what an earlier life of the agent wrote.
    pub fn recall(&mut self, devices: &[Device]) {
        for device in devices.iter().filter(|d| d.via == DeviceVia::DevicePlugin) {
            if self.seen.len() < MAX_REMEMBERED {
                let key = (device.resource.clone(), device.id.clone());
                self.seen.insert(key, device.numa.iter().copied().collect());
            }
        }
    }

    /// Notes what is offered now.
    fn note(&mut self, reading: &Reading) {
        for (key, nodes) in &reading.allocatable.devices {
            if self.seen.len() < MAX_REMEMBERED || self.seen.contains_key(key) {
                self.seen.insert(key.clone(), nodes.clone());
            }
        }
    }

    /// Forgets ids of which more are remembered as broken than the node has: they were replaced
    /// (MIG made anew, a plugin with other names). `capacity` is the node's, broken ones included.
    fn forget(&mut self, reading: &Reading, capacity: &BTreeMap<String, u64>) {
        let offered = &reading.allocatable.devices;
        let held: BTreeSet<&Key> =
            reading.holdings.iter().flat_map(|(_, _, _, holding)| holding.devices.keys()).collect();
        for (resource, &capacity) in capacity {
            let of = |key: &&Key| key.0 == *resource;
            let healthy = offered.keys().filter(of).count() as u64;
            let room = capacity.saturating_sub(healthy);
            let broken = self.seen.keys().filter(of).filter(|key| !offered.contains_key(*key));
            // Those that a pod still has are there for certain.
            let (kept, mut doubtful): (Vec<_>, Vec<_>) =
                broken.cloned().partition(|key| held.contains(key));
            if (kept.len() + doubtful.len()) as u64 > room {
                // Which of them are gone is not known unless all are: else all stay.
                if kept.len() as u64 >= room {
                    doubtful.drain(..).for_each(|key| drop(self.seen.remove(&key)));
                }
            }
        }
    }

    /// Forgets MIG devices that the driver does not have any more. `mig` is all that it has, if
    /// it answers; time-sliced replicas are named after their device (`MIG-…::2`).
    pub fn forget_mig(&mut self, mig: Option<&BTreeSet<&str>>) {
        let Some(mig) = mig else { return };
        let device = |id: &str| id.split("::").next().is_some_and(|id| mig.contains(id));
        self.seen.retain(|(_, id), _| !id.starts_with("MIG-") || device(id));
    }

    /// `status.devices`: by resource and id. The second part is whether some were left out.
    pub fn devices(
        &mut self,
        reading: &Reading,
        pods: &Pods,
        capacity: &BTreeMap<String, u64>,
    ) -> (Vec<Device>, bool) {
        self.note(reading);
        self.forget(reading, capacity);
        let mut devices: BTreeMap<Key, Device> = BTreeMap::new();
        for ((resource, id), nodes) in &self.seen {
            let offered = reading.allocatable.devices.contains_key(&(resource.clone(), id.clone()));
            let device = Device {
                resource: resource.clone(),
                id: id.clone(),
                numa: nodes.iter().copied().collect(),
                state: if offered { DeviceState::Free } else { DeviceState::Unhealthy },
                ..Device::default()
            };
            devices.insert((resource.clone(), id.clone()), device);
        }
        for (namespace, name, container, holding) in reading.holdings.iter() {
            let pod = PodRef {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                uid: pods.uid(namespace, name).map(str::to_owned),
            };
            let owner = |device: &mut Device| {
                device.pod = Some(pod.clone());
                device.container = Some(container.to_owned()).filter(|c| !c.is_empty());
            };
            for ((resource, id), nodes) in &holding.devices {
                let key = (resource.clone(), id.clone());
                let device = devices.entry(key).or_insert_with(|| Device {
                    resource: resource.clone(),
                    id: id.clone(),
                    numa: nodes.iter().copied().collect(),
                    // Held and not offered: broken since before we came.
                    state: DeviceState::Unhealthy,
                    ..Device::default()
                });
                if device.state == DeviceState::Free {
                    device.state = DeviceState::Allocated;
                }
                owner(device);
            }
            for claim in &holding.claims {
                let id = format!("{}/{}", claim.pool, claim.device);
                let mut device = Device {
                    resource: claim.driver.clone(),
                    id: id.clone(),
                    state: DeviceState::Allocated,
                    via: DeviceVia::Claim,
                    ..Device::default()
                };
                owner(&mut device);
                devices.insert((claim.driver.clone(), id), device);
            }
        }
        let all = devices.len();
        let fits = |d: &Device| d.resource.len() <= MAX_RESOURCE && d.id.len() <= MAX_ID;
        let devices: Vec<_> = devices.into_values().filter(fits).take(MAX_DEVICES).collect();
        let unknown = |key: &Key| !self.seen.contains_key(key);
        let cut = devices.len() < all
            || reading.allocatable.cut
            || reading.holdings.cut
            || reading.allocatable.devices.keys().any(unknown);
        (devices, cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::podresources::{Allocatable, ClaimDevice, Holding, Holdings, PodHolding};

    const GPU: &str = "nvidia.com/gpu";

    /// Offered ids, and ids that pod `team/p` has.
    fn reading(offered: &[&str], held: &[&str]) -> Reading {
        let key = |id: &&str| ((GPU).to_owned(), (*id).to_owned());
        let devices = |ids: &[&str]| ids.iter().map(|id| (key(id), BTreeSet::from([0]))).collect();
        let holding = Holding { devices: devices(held), ..Holding::default() };
        let mut holdings = Holdings::default();
        if !held.is_empty() {
            let pod = PodHolding {
                containers: [("main".to_owned(), holding)].into(),
                shared: Holding::default(),
            };
            holdings.pods.insert(("team".to_owned(), "p".to_owned()), pod);
        }
        let allocatable = Allocatable { devices: devices(offered), ..Allocatable::default() };
        Reading { holdings, allocatable }
    }

    fn show(memory: &mut Memory, reading: &Reading, capacity: &[(&str, u64)]) -> String {
        let capacity = capacity.iter().map(|(r, n)| ((*r).to_owned(), *n)).collect();
        let mut pods = Pods::default();
        pods.insert("team", "p", "uid-p", None);
        let (devices, _) = memory.devices(reading, &pods, &capacity);
        let words = devices.iter().map(|d| {
            let pod = d.pod.as_ref().map_or(String::new(), |pod| {
                format!("@{}:{}", pod.name, pod.uid.as_deref().unwrap_or("?"))
            });
            format!("{}={:?}{pod}", d.id, d.state)
        });
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_is_no_longer_offered_is_remembered_as_unhealthy() {
        let mut memory = Memory::default();
        let shown = show(&mut memory, &reading(&["a", "b"], &["b"]), &[]);
        assert_eq!(shown, "a=Free b=Allocated@p:uid-p");
        let shown = show(&mut memory, &reading(&["b"], &["b"]), &[(GPU, 2)]);
        assert_eq!(shown, "a=Unhealthy b=Allocated@p:uid-p");
        let shown = show(&mut memory, &reading(&["a", "b"], &[]), &[(GPU, 2)]);
        assert_eq!(shown, "a=Free b=Free");
        // A pod keeps a device that went bad.
        let shown = show(&mut memory, &reading(&["a"], &["b"]), &[(GPU, 2)]);
        assert_eq!(shown, "a=Free b=Unhealthy@p:uid-p");
    }

    #[test]
    fn ids_that_were_replaced_are_forgotten() {
        let mut memory = Memory::default();
        show(&mut memory, &reading(&["old-1", "old-2"], &[]), &[(GPU, 2)]);
        // The node has two, and both are healthy: the old ones are gone.
        let shown = show(&mut memory, &reading(&["new-1", "new-2"], &[]), &[(GPU, 2)]);
        assert_eq!(shown, "new-1=Free new-2=Free");
        // One of two ids is gone and one is broken: which one cannot be told.
        show(&mut memory, &reading(&["x"], &[]), &[(GPU, 3)]);
        let shown = show(&mut memory, &reading(&["x"], &[]), &[(GPU, 2)]);
        assert_eq!(shown, "new-1=Unhealthy new-2=Unhealthy x=Free");
    }

    #[test]
    fn mig_devices_that_the_driver_has_not_are_forgotten() {
        let mut memory = Memory::default();
        show(&mut memory, &reading(&["MIG-1", "MIG-2::0", "MIG-3", "GPU-1"], &[]), &[]);
        memory.forget_mig(None);
        memory.forget_mig(Some(&["MIG-1", "MIG-2"].into()));
        let shown = show(&mut memory, &reading(&[], &[]), &[]);
        assert_eq!(shown, "GPU-1=Unhealthy MIG-1=Unhealthy MIG-2::0=Unhealthy");
    }

    #[test]
    fn an_earlier_life_is_recalled() {
        let mut memory = Memory::default();
        let capacity = BTreeMap::from([(GPU.to_owned(), 2)]);
        let (devices, _) = memory.devices(&reading(&["a", "b"], &[]), &Pods::default(), &capacity);
        let mut again = Memory::default();
        again.recall(&devices);
        assert_eq!(show(&mut again, &reading(&["b"], &[]), &[(GPU, 2)]), "a=Unhealthy b=Free");
    }

    #[test]
    fn devices_of_claims_are_named_by_pool_and_device() {
        let mut reading = reading(&[], &["x"]);
        let pod = reading.holdings.pods.values_mut().next().unwrap();
        let holding = pod.containers.get_mut("main").unwrap();
        holding.devices.clear();
        holding.claims.push(ClaimDevice {
            driver: "gpu.nvidia.com".to_owned(),
            pool: "node-1".to_owned(),
            device: "gpu-0".to_owned(),
        });
        let shown = show(&mut Memory::default(), &reading, &[]);
        assert_eq!(shown, "node-1/gpu-0=Allocated@p:uid-p");
    }

    #[test]
    fn no_more_is_listed_than_the_object_may_hold() {
        let ids: Vec<String> = (0..=MAX_DEVICES).map(|i| format!("{i:05}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let mut memory = Memory::default();
        let (devices, cut) =
            memory.devices(&reading(&ids, &[]), &Pods::default(), &BTreeMap::new());
        assert_eq!((devices.len(), cut), (MAX_DEVICES, true));
        assert_eq!(memory.seen.len(), MAX_REMEMBERED);
    }
}
