//! Streams of pods, gangs and preemptors on model kubelets: none is ever refused.
//!
//! A kubelet here does what the predictor says that a real one does (`tests/kubelet-oracle`
//! holds the two equal), taking pods in any order and any device that chance may give. Agents
//! report late. The scheduler is restarted, pods end, other schedulers bind pods, devices break.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_api::k8s;
use serde_json::json;

use super::super::gang::group;
use super::super::harness::Harness;
use super::model::{Dice, Holding, Kubelet};
use super::{GPU, asks, report_with};
use crate::bugs::Bug;
use crate::io::{Eviction, Object, Tick};
use crate::numa::{Machine, Pod, predict};
use crate::testing::PodExt as _;

const POLICIES: [&str; 3] = ["Restricted", "SingleNumaNode", "BestEffort"];
const STEPS: usize = 120;
/// Within so many seeds a mistake must be found.
const WITHIN: u64 = 200;
const SEEDS: u64 = 60;

struct World {
    h: Harness,
    dice: Dice,
    bug: Option<Bug>,
    kubelets: BTreeMap<String, Kubelet>,
    groups: Vec<Object>,
    next: usize,
    wrong: Vec<String>,
    binds: usize,
    /// What has happened, for whoever wants to know why.
    log: Vec<String>,
    /// Whom the sick kubelet refused, and when, since the scheduler was started.
    refused: Vec<(Tick, Arc<Pod>)>,
}

fn start(bug: Option<Bug>) -> Harness {
    let args = json!({"unknownNodes": "Wait", "waitSeconds": 3600,
        "quarantine": {"refusals": 2, "seconds": 600}});
    super::harness_with(&args, &[], |config| config.bug = bug)
}

fn id_of(gpu: usize) -> String {
    format!("GPU-{gpu}")
}

impl World {
    fn new(seed: u64, bug: Option<Bug>) -> Self {
        let (dice, kubelets) = (Dice(seed), BTreeMap::new());
        let (next, wrong, binds, refused) = (0, Vec::new(), 0, Vec::new());
        let mut world = Self {
            h: start(bug),
            dice,
            bug,
            kubelets,
            groups: Vec::new(),
            log: Vec::new(),
            next,
            wrong,
            binds,
            refused,
        };
        for n in 0..world.dice.below(3) + 1 {
            let name = format!("n{n}");
            let policy = POLICIES[world.dice.below(POLICIES.len())];
            let last = report_with(&name, 1, policy, &[], &[]);
            world.h.node(crate::testing::node(&name));
            world.h.object(last.clone());
            let machine = world.machine(&name);
            let sick = seed % 5 == 4 && n == 0;
            let (broken, holdings, coming) = (Vec::new(), BTreeMap::new(), Vec::new());
            let version = 1;
            let kubelet =
                Kubelet { policy, machine, broken, holdings, coming, version, last, sick };
            world.kubelets.insert(name, kubelet);
        }
        world
    }

    fn machine(&self, node: &str) -> Arc<Machine> {
        let cluster = &self.h.core.cluster;
        let node = cluster.node_by_name(node).expect("a node");
        Arc::clone(cluster.view(node).machine().expect("a report"))
    }

    fn name(&mut self) -> String {
        self.next += 1;
        format!("p{}", self.next)
    }

    fn pod(&mut self) -> k8s::Pod {
        let name = self.name();
        let gpus = [0, 1, 1, 2, 2, 4, 8][self.dice.below(7)];
        let cpus = [1, 2, 4, 8, 12, 20][self.dice.below(6)];
        let mut pod = asks(&name, cpus, gpus).priority(self.dice.below(3) as i32);
        if self.dice.below(5) == 0 {
            pod.status.qos_class = "Burstable".to_owned();
        }
        if self.dice.below(5) == 0 {
            let second = pod.spec.containers[0].clone();
            pod.spec.containers.push(second);
        }
        pod
    }

    fn any_node(&mut self) -> String {
        let at = self.dice.below(self.kubelets.len());
        self.kubelets.keys().nth(at).expect("a node").clone()
    }

    /// Nothing is on its way to the node, and the scheduler has heard of all that is there.
    fn is_quiet(&self, node: &str) -> bool {
        let id = self.h.core.cluster.node_by_name(node).expect("a node");
        let inside = self.h.core.cluster.view(id).inside();
        self.kubelets[node].coming.is_empty() && inside.is_some_and(|i| i.expected.is_empty())
    }

    /// Somebody is expected on the node.
    fn is_spoken_for(&self, node: &str) -> bool {
        let cluster = &self.h.core.cluster;
        cluster.node_by_name(node).is_some_and(|node| !cluster.nominated_on(node).is_empty())
    }

    fn step(&mut self) {
        match self.dice.below(20) {
            0..5 => {
                let pod = self.pod();
                self.h.pod(pod);
            }
            5 => self.gang(),
            6..10 => self.kubelet(),
            10..13 => self.report(),
            13..15 => self.end_one(),
            15 => self.restart(),
            16 => self.stranger(),
            17 => self.flip(),
            _ => {
                let seconds = self.dice.below(29) as i64 + 1;
                self.h.sleep(seconds);
            }
        }
        self.schedule();
    }

    fn gang(&mut self) {
        let members = self.dice.below(3) + 2;
        let name = format!("g{}", self.next);
        let object = group(&name, &json!({"minMember": members}));
        self.h.object(object.clone());
        self.groups.push(object);
        let like = self.pod();
        for _ in 0..members {
            let mut member = like.clone();
            member.metadata.name = self.name();
            member.metadata.uid = format!("uid-{}", member.metadata.name);
            self.h.pod(member.pod_label("muster.dev/pod-group", &name));
        }
    }

    /// A kubelet looks at any of the pods that are bound to it.
    fn kubelet(&mut self) {
        let node = self.any_node();
        self.kubelet_of(&node);
    }

    fn kubelet_of(&mut self, node: &str) {
        let Some(kubelet) = self.kubelets.get_mut(node) else { return };
        if kubelet.coming.is_empty() {
            return;
        }
        let at = self.dice.below(kubelet.coming.len());
        let name = kubelet.coming.swap_remove(at);
        let pod = self.h.last(&name);
        let Some(asked) = crate::model::aligned(&pod) else { return };
        let sick = kubelet.sick;
        let verdict = match sick {
            true => Err("it is sick".to_owned()),
            false => kubelet.admit(&asked, &mut self.dice),
        };
        match verdict {
            Ok(holding) => {
                let Holding { cpus, gpus } = &holding;
                self.log.push(format!("{node} admits {name} ({asked:?}): {cpus:?} {gpus:?}"));
                kubelet.holdings.insert(name, holding);
            }
            Err(why) => {
                if !sick {
                    let log = self.log.iter().filter(|line| line.contains(node)).rev().take(15);
                    let log: Vec<&String> = log.collect();
                    self.wrong.push(format!("{node} refuses {name} ({asked:?}): {why}; {log:#?}"));
                }
                let now = self.h.now;
                if sick {
                    self.refused.push((now, Arc::clone(&asked)));
                    let lately = |(at, pod): &&(Tick, _)| *pod == asked && at.after_secs(600) > now;
                    // Some were on their way already.
                    if self.refused.iter().filter(lately).count() > 10 {
                        self.wrong
                            .push(format!("{node} is sick and is sent one pod after the other"));
                    }
                }
                self.h.edit(&name, |p| {
                    p.status.phase = "Failed".to_owned();
                    p.status.reason = "TopologyAffinityError".to_owned();
                    p.status.start_time = Some(k8s::Time(now.0));
                });
                self.h.forget(&name);
                // Its controller makes another one like it.
                let mut again = pod;
                again.spec.node_name.clear();
                again.metadata.name = self.name();
                again.metadata.uid = format!("uid-{}", again.metadata.name);
                again.metadata.labels.clear();
                if sick {
                    self.h.pod(again);
                }
            }
        }
    }

    /// An agent tells what it sees.
    fn report(&mut self) {
        let node = self.any_node();
        self.report_of(&node);
    }

    fn report_of(&mut self, node: &str) {
        let Some(kubelet) = self.kubelets.get_mut(node) else { return };
        kubelet.version += 1;
        let held: Vec<(String, String, Vec<u32>)> = kubelet
            .holdings
            .iter()
            .filter(|(_, holding)| !holding.cpus.is_empty() || !holding.gpus.is_empty())
            .map(|(name, holding)| {
                let cpus: Vec<String> = holding.cpus.iter().map(|cpu| cpu.to_string()).collect();
                let gpus = holding.gpus.iter().map(|gpu| *gpu as u32).collect();
                (format!("uid-{name}"), cpus.join(","), gpus)
            })
            .collect();
        let held: Vec<(&str, &str, &[u32])> =
            held.iter().map(|(uid, cpus, gpus)| (&**uid, &**cpus, &**gpus)).collect();
        let broken: Vec<u32> = kubelet.broken.iter().map(|gpu| *gpu as u32).collect();
        kubelet.last = report_with(node, kubelet.version, kubelet.policy, &held, &broken);
        self.h.object(kubelet.last.clone());
        self.log.push(format!("{node} reports {held:?}"));
    }

    /// A pod that a kubelet has admitted ends.
    fn end_one(&mut self) {
        let node = self.any_node();
        let Some(kubelet) = self.kubelets.get_mut(&node) else { return };
        // What ends between a bind and the kubelet's look at the pod may change where the kubelet
        // would rather put it: that is nobody's to foresee.
        if kubelet.holdings.is_empty() || !kubelet.coming.is_empty() {
            return;
        }
        let at = self.dice.below(kubelet.holdings.len());
        let name = kubelet.holdings.keys().nth(at).expect("a pod").clone();
        self.gone(&name);
    }

    /// A pod is gone, and with it what it had.
    fn gone(&mut self, name: &str) {
        let node = self.h.last(name).spec.node_name;
        self.log.push(format!("{node} loses {name}"));
        for kubelet in self.kubelets.values_mut() {
            kubelet.holdings.remove(name);
            kubelet.coming.retain(|other| other != name);
        }
        self.h.gone(name);
    }

    /// A victim goes, when whoever is on the way to its node has arrived.
    fn leave(&mut self, victim: &str) {
        let node = self.h.last(victim).spec.node_name;
        while self.kubelets.get(&node).is_some_and(|kubelet| !kubelet.coming.is_empty()) {
            self.kubelet_of(&node);
        }
        if self.h.has(victim) {
            self.gone(victim);
        }
    }

    /// The scheduler ends, and another one is shown what the API server has.
    fn restart(&mut self) {
        // Who came and went unseen before it only the old one knew.
        let nodes: Vec<String> = self.kubelets.keys().cloned().collect();
        for node in nodes {
            self.report_of(&node);
        }
        let mut fresh = start(self.bug);
        fresh.now = self.h.now;
        for (name, kubelet) in &self.kubelets {
            fresh.node(crate::testing::node(name));
            fresh.object(kubelet.last.clone());
        }
        for object in &self.groups {
            fresh.object(object.clone());
        }
        for pod in self.h.known() {
            fresh.pod(pod);
        }
        self.h = fresh;
        self.log.push(format!("restart {:?}", self.kubelets.keys()));
        self.refused.clear();
    }

    /// Another scheduler binds a pod, where that does no harm.
    fn stranger(&mut self) {
        let node = self.any_node();
        let pod = self.pod().scheduler("other").on(&node);
        let Some(asked) = crate::model::aligned(&pod) else { return };
        let kubelet = &self.kubelets[&node];
        let fits = predict(&kubelet.machine, &kubelet.usage(), &asked).certain();
        if fits && !kubelet.sick && self.is_quiet(&node) {
            let name = pod.metadata.name.clone();
            self.h.pod(pod);
            self.kubelets.get_mut(&node).expect("a node").coming.push(name);
        }
    }

    /// A device that nobody has breaks, or is well again; the agent says so at once.
    fn flip(&mut self) {
        let node = self.any_node();
        if !self.is_quiet(&node) {
            return;
        }
        let gpu = self.dice.below(8);
        let Some(kubelet) = self.kubelets.get_mut(&node) else { return };
        if kubelet.holdings.values().any(|holding| holding.gpus.contains(&gpu)) {
            return;
        }
        match kubelet.broken.iter().position(|other| *other == gpu) {
            Some(at) => drop(kubelet.broken.swap_remove(at)),
            None => kubelet.broken.push(gpu),
        }
        let mut machine = Machine::clone(&kubelet.machine);
        for (at, device) in machine.devices[0].devices.iter_mut().enumerate() {
            device.healthy = !kubelet.broken.contains(&at);
        }
        kubelet.machine = Arc::new(machine);
        self.report_of(&node);
    }

    /// The scheduler decides; what it asks for is done.
    fn schedule(&mut self) {
        for _ in 0..50 {
            let mut effects = self.h.run();
            // A victim goes when whoever was placed beside it has arrived.
            effects.sort_by_key(|effect| !effect.starts_with("bind"));
            let mut asked = false;
            for effect in &effects {
                if let Some(bind) = effect.strip_prefix("bind default/") {
                    let (name, node) = bind.split_once(" -> ").expect("a bind");
                    self.h.bound(name, node);
                    self.log.push(format!("{node} gets {name}"));
                    self.kubelets.get_mut(node).expect("a node").coming.push(name.to_owned());
                    (self.binds, asked) = (self.binds + 1, true);
                } else if let Some(victim) =
                    effect.strip_prefix("ask default/").or(effect.strip_prefix("evict default/"))
                {
                    asked = true;
                    let gone = effect.starts_with("evict");
                    self.h.evicted(victim, Eviction::Accepted);
                    if gone && self.h.has(victim) {
                        self.leave(victim);
                    }
                }
            }
            if !asked {
                return;
            }
        }
    }

    /// All that is on its way arrives, and nothing waits that would fit.
    fn settle(&mut self) {
        for _ in 0..20 {
            for _ in 0..20 {
                self.kubelet();
            }
            self.h.sleep(2);
            self.schedule();
        }
        for _ in 0..6 {
            for _ in 0..200 {
                self.kubelet();
            }
            let nodes: Vec<String> = self.kubelets.keys().cloned().collect();
            for node in nodes {
                self.report_of(&node);
            }
            self.h.sleep(700);
            self.schedule();
        }
        for pod in self.h.known() {
            let waits = pod.spec.node_name.is_empty() && pod.metadata.labels.is_empty();
            let Some(asked) = crate::model::aligned(&pod).filter(|_| waits) else { continue };
            for (node, kubelet) in self.kubelets.iter().filter(|(_, kubelet)| !kubelet.sick) {
                let fits = predict(&kubelet.machine, &kubelet.usage(), &asked).certain();
                if fits && self.is_quiet(node) && !self.is_spoken_for(node) {
                    let name = &pod.metadata.name;
                    self.wrong.push(format!("{name} waits, and fits {node}"));
                }
            }
        }
        for (node, kubelet) in &self.kubelets {
            let mut owners = vec![0; 8];
            let all = kubelet.holdings.values().flat_map(|holding| &holding.gpus);
            all.for_each(|gpu| owners[*gpu] += 1);
            if owners.iter().any(|owners| *owners > 1) {
                self.wrong.push(format!("{node}: a device has two owners: {owners:?}"));
            }
        }
    }
}

/// What was wrong, and how many pods were bound.
fn run(seed: u64, bug: Option<Bug>) -> (Vec<String>, usize) {
    let mut world = World::new(seed, bug);
    for _ in 0..STEPS {
        world.step();
    }
    world.settle();
    (world.wrong, world.binds)
}

#[test]
fn no_kubelet_refuses_a_pod() {
    let mut binds = 0;
    for seed in 0..SEEDS {
        let (wrong, bound) = run(seed, None);
        assert!(wrong.is_empty(), "seed {seed}: {wrong:#?}");
        binds += bound;
    }
    assert!(binds > SEEDS as usize * 8, "the streams are too quiet: {binds} binds");
}

#[test]
#[allow(clippy::disallowed_macros, reason = "a table for people, with --nocapture")]
fn every_mistake_with_the_inside_of_nodes_is_found() {
    let mut missed = Vec::new();
    for &bug in Bug::ALIGNED {
        let found = (0..WITHIN).find_map(|seed| {
            let (wrong, _) = run(seed, Some(bug));
            wrong.into_iter().next().map(|why| (seed, why))
        });
        match found {
            Some((seed, why)) => println!("{bug:?}: seed {seed}: {why:.200}"),
            None => missed.push(bug),
        }
    }
    assert_eq!(missed, [], "not found within {WITHIN} seeds");
}

#[test]
fn ids_are_those_of_the_report() {
    // What a kubelet here gives is named as the report names it.
    let report = report_with("n", 1, "Restricted", &[], &[7]);
    let Object::NodeTopology(report) = report else { panic!("a NodeTopology") };
    let ids: Vec<&str> = report.status.devices.iter().map(|device| &*device.id).collect();
    assert_eq!(ids, (0..8).map(id_of).collect::<Vec<_>>());
    assert!(report.status.devices.iter().all(|device| device.resource == GPU));
}
