//! Devices that pods are expected to get, and kubelets that refuse pods.
//!
//! Owns its own reading of reports and refusals. What is expected of a pod is decided when it is
//! given room, so it is held against what was known at that moment: the newest report of the
//! node, and pods that had room there before. Pods between whose decisions news of the node came
//! are not compared: what their agent saw may have changed what is expected of either.

use std::collections::{BTreeMap, BTreeSet};

use muster_api::k8s;
use muster_api::muster::NodeTopology;
use muster_api::muster::annotations::PREDICTED_DEVICES;
use muster_api::muster::node_topology::{Device, DeviceState};

use super::Audit;
use super::world::World;
use crate::io::{Kind, Object, ObjectKey, Tick};
use crate::model::Predicted;

/// Refusals beyond which no more are judged: a core forgets the oldest.
const MOST: usize = 2048;

/// Resource and id.
type Id = (String, String);

/// Who has the devices of a node, as last reported.
struct Report {
    devices: BTreeMap<Id, Holder>,
    /// What is built in and how the kubelet is set, and which devices work.
    machine: String,
    /// The list it was last seen in.
    seen: u64,
}

enum Holder {
    Nobody,
    Pod(String),
    /// It cannot be given away, or somebody has it who is not named.
    Other,
}

/// What was known when a pod was given room.
struct Given {
    node: String,
    /// How much news of nodes there had been.
    news: u64,
    /// Devices there were, and whether nobody had them.
    open: BTreeMap<Id, bool>,
    /// Pods that had room on the node before, by UID.
    before: BTreeSet<String>,
    /// What it is expected to get, once that is known.
    expected: Option<BTreeSet<Id>>,
}

/// From when on a node has to be left alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Care {
    pub(super) refusals: u32,
    pub(super) window_seconds: i64,
    pub(super) avoid_seconds: i64,
}

/// What is known of devices and refusals.
#[derive(Default)]
pub(super) struct Devices {
    reports: BTreeMap<String, Report>,
    /// How much news of each node there was.
    news: BTreeMap<String, u64>,
    /// News of nodes so far.
    all_news: u64,
    /// By UID.
    given: BTreeMap<String, Given>,
    /// UIDs of pods whose refusal was counted.
    counted: BTreeSet<String>,
    /// By node and what was asked for: when pods were refused.
    refused: BTreeMap<(String, String), Vec<Tick>>,
    /// Until when nodes are left alone at least, the first time; later times are not judged.
    avoided: BTreeMap<(String, String), Option<Tick>>,
}

/// What a pod asks for, so that two of which this is equal ask a kubelet for the same.
pub(super) fn asks(pod: &k8s::Pod) -> Option<String> {
    let spec = &pod.spec;
    let containers = spec.containers.iter().chain(&spec.init_containers);
    let lists: Vec<_> = containers.map(|c| (&c.resources, &c.restart_policy)).collect();
    let device = |name: &String| name.contains('/') && !name.contains("kubernetes.io/");
    let any = lists.iter().any(|(list, _)| list.requests.keys().any(device));
    let simple = spec.resources.is_none() && pod.status.resources.is_none();
    (any && simple).then(|| format!("{lists:?} {}", pod.status.qos_class))
}

fn refused_by_kubelet(pod: &k8s::Pod) -> bool {
    let reasons = [
        "TopologyAffinityError",
        "SMTAlignmentError",
        "EmptyPodSharedPoolError",
        "UnexpectedAdmissionError",
    ];
    pod.status.phase == "Failed"
        && !pod.spec.node_name.is_empty()
        && reasons.contains(&pod.status.reason.as_str())
}

impl Devices {
    /// Something became known of a node.
    fn stir(&mut self, node: &str) {
        self.all_news += 1;
        self.news.insert(node.to_owned(), self.all_news);
    }

    /// Another machine may have been reported, or the node be another: it may be tried again.
    fn forgive(&mut self, node: &str) {
        self.refused.retain(|(own, _), _| own != node);
        let avoided = self.avoided.iter_mut().filter(|((own, _), _)| own == node);
        avoided.for_each(|(_, until)| *until = None);
    }

    pub(super) fn upsert(&mut self, object: &Object, seen: u64) {
        let Object::NodeTopology(wire) = object else { return };
        let node = wire.metadata.name.clone();
        self.stir(&node);
        let report = Report::of(wire, seen);
        let same = |old: &Report| old.machine == report.machine;
        if !self.reports.get(&node).is_some_and(same) {
            self.forgive(&node);
        }
        self.reports.insert(node, report);
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) {
        self.stir(&key.name);
        self.forgive(&key.name);
        self.reports.remove(&key.name);
    }

    pub(super) fn relist_done(&mut self, kind: Kind, seen: u64) {
        if kind == Kind::NodeTopology {
            let gone = self.reports.iter().filter(|(_, report)| report.seen < seen);
            let gone: Vec<String> = gone.map(|(node, _)| node.clone()).collect();
            for node in gone {
                self.remove(&ObjectKey { name: node, ..ObjectKey::default() });
            }
        }
    }

    /// A node joined or is gone.
    pub(super) fn node_changed(&mut self, node: &str) {
        self.stir(node);
        self.forgive(node);
    }

    /// A pod has no room any more: what others are expected to get says nothing of it.
    fn lost(&mut self, uid: &str) {
        self.given.remove(uid);
        for given in self.given.values_mut() {
            given.before.remove(uid);
        }
    }

    /// A pod is seen on a node: if it is another bind that put it there, with other devices, that
    /// counts.
    pub(super) fn shown(&mut self, pod: &k8s::Pod) {
        let Some(given) = self.given.get(&pod.metadata.uid) else { return };
        let text = pod.metadata.annotations.get(PREDICTED_DEVICES);
        let shown: Option<BTreeMap<String, BTreeSet<String>>> =
            text.and_then(|text| serde_json::from_str(text).ok());
        let ids = shown.iter().flatten();
        let ids: BTreeSet<Id> = ids
            .flat_map(|(resource, ids)| ids.iter().map(|id| (resource.clone(), id.clone())))
            .collect();
        let other = pod.spec.node_name != given.node || given.expected.as_ref() != Some(&ids);
        if !pod.spec.node_name.is_empty() && other {
            let uid = pod.metadata.uid.clone();
            self.lost(&uid);
        }
    }

    /// A pod has failed.
    pub(super) fn failed(&mut self, now: Tick, pod: &k8s::Pod, care: Option<Care>, known: bool) {
        let (Some(care), true, Some(asks)) = (care, refused_by_kubelet(pod) && known, asks(pod))
        else {
            return;
        };
        let since = pod.status.start_time.map_or(now, |at| Tick(at.0)).min(now);
        let window = care.window_seconds;
        let counted = self.counted.len() > MOST || self.counted.contains(&pod.metadata.uid);
        if since.after_secs(window) <= now || counted {
            return;
        }
        self.counted.insert(pod.metadata.uid.clone());
        let key = (pod.spec.node_name.clone(), asks);
        if self.avoided.contains_key(&key) {
            return;
        }
        let refused = self.refused.entry(key.clone()).or_default();
        refused.retain(|at| at.after_secs(window) > now);
        refused.push(since);
        if refused.len() >= care.refusals as usize {
            let until = now.after_secs(care.avoid_seconds);
            self.avoided.insert(key, Some(until));
        }
    }
}

impl Report {
    fn of(wire: &NodeTopology, seen: u64) -> Self {
        let devices = wire.status.devices.iter().map(|device| {
            let holder = match (&device.pod, device.state) {
                (Some(pod), DeviceState::Free | DeviceState::Allocated) => {
                    pod.uid.clone().map_or(Holder::Other, Holder::Pod)
                }
                (None, DeviceState::Free) => Holder::Nobody,
                _ => Holder::Other,
            };
            ((device.resource.clone(), device.id.clone()), holder)
        });
        let devices = devices.collect();
        let works =
            |device: &Device| matches!(device.state, DeviceState::Free | DeviceState::Allocated);
        let states: Vec<bool> = wire.status.devices.iter().map(works).collect();
        let machine = format!("{:?} {:?} {states:?}", wire.hardware, wire.kubelet);
        Self { devices, machine, seen }
    }
}

impl Audit {
    /// A pod is given room on a node.
    pub(super) fn devices_chosen(&mut self, name: &str, node: &str) {
        let Some(pod) = self.world.pods.get(name) else { return };
        let (uid, asks) = (pod.uid.clone(), pod.asks.clone());
        let known = pod.profile.filter(|_| pod.decided == self.version);
        let cares = known.is_some_and(|p| self.profiles[p].care.is_some());
        if let (true, Some(asks)) = (cares, asks) {
            let until = self.devices.avoided.get(&(node.to_owned(), asks)).copied().flatten();
            if let Some(until) = until.filter(|until| self.clock < *until) {
                let what = format!(
                    "{name} was put on {node}, whose kubelet refused pods like it: it is left \
                     alone until {} s",
                    until.secs()
                );
                self.violation("avoided", what);
            }
        }
        for left in std::mem::take(&mut self.world.left) {
            self.devices.lost(&left);
        }
        let world = &self.world;
        self.devices.given.remove(&uid);
        let Some(report) = self.devices.reports.get(node) else { return };
        // Another process has put it there before: what it got counts, not what is expected.
        let has = |holder: &Holder| matches!(holder, Holder::Pod(own) if *own == uid);
        if report.devices.values().any(has) {
            return;
        }
        let open = |(id, holder): (&Id, &Holder)| (id.clone(), is_open(world, node, holder));
        let open = report.devices.iter().map(open).collect();
        let before = others(world, node, &uid);
        let news = self.devices.news.get(node).copied().unwrap_or(0);
        let given = Given { node: node.to_owned(), news, open, before, expected: None };
        self.devices.given.insert(uid, given);
    }

    /// A pod is bound, with what it is expected to get.
    pub(super) fn devices_bound(&mut self, name: &str, devices: Option<&Predicted>) {
        for left in std::mem::take(&mut self.world.left) {
            self.devices.lost(&left);
        }
        let (Some(pod), Some(devices)) = (self.world.pods.get(name), devices) else { return };
        let (uid, amounts) = (pod.uid.clone(), pod.load.amounts.clone());
        let Some(own) = self.devices.given.get_mut(&uid) else { return };
        let mut wrong = Vec::new();
        let mut expected = BTreeSet::new();
        for (resource, ids) in &devices.devices {
            let asked = amounts.get(&**resource).copied().unwrap_or(0);
            if i64::try_from(ids.len()) != Ok(asked) {
                wrong.push(format!("{} of {resource}, it asks for {asked}", ids.len()));
            }
            for id in ids.iter() {
                let id = (resource.to_string(), id.to_string());
                match own.open.get(&id) {
                    None => wrong.push(format!("{}, which is not there", id.1)),
                    Some(false) => wrong.push(format!("{}, which another has", id.1)),
                    Some(true) => {}
                }
                if !expected.insert(id.clone()) {
                    wrong.push(format!("{} twice", id.1));
                }
            }
        }
        own.expected = Some(expected.clone());
        let (node, news, before) = (own.node.clone(), own.news, own.before.clone());
        for (other, theirs) in &self.devices.given {
            let compared = *other != uid
                && theirs.node == node
                && theirs.news == news
                && (before.contains(other) || theirs.before.contains(&uid));
            let both = theirs.expected.iter().flatten().filter(|id| expected.contains(*id));
            if let Some((_, id)) = both.take(usize::from(compared)).next() {
                wrong.push(format!("{id}, which {other} is expected to get"));
            }
        }
        for what in wrong {
            self.violation("devices", format!("{name} is expected to get {what}"));
        }
    }
}

/// Whether a device can be given away: nobody has it who is on the node.
fn is_open(world: &World, node: &str, holder: &Holder) -> bool {
    match holder {
        // In doubt nothing is said.
        Holder::Nobody | Holder::Other => true,
        Holder::Pod(uid) => {
            !world.pods.values().any(|pod| pod.uid == *uid && pod.node() == Some(node))
        }
    }
}

/// UIDs of pods that have room on a node.
fn others(world: &World, node: &str, uid: &str) -> BTreeSet<String> {
    let here = world.pods.values().filter(|pod| pod.node() == Some(node) && pod.uid != uid);
    here.map(|pod| pod.uid.clone()).collect()
}
