//! The object that is written, made from all that is known.
//!
//! Owns: what goes where, the memory of devices, predictions, and since when conditions hold. Must
//! never read a clock or the world: it is told both, so that the same facts make the same object.

use std::collections::{BTreeMap, BTreeSet};

use muster_api::k8s::Time;
use muster_api::muster::node_topology::{Hardware, NodeTopologyStatus, PodSet, node_condition};
use muster_api::muster::{Condition, MAX_CONDITIONS, NodeTopology};

use super::devices::Memory;
use super::holders::holders;
use super::node::Node;
use super::numa;
use super::pods::Pods;
use super::predictions::Predictions;
use crate::kubelet::settings::Found;
use crate::podresources;
use crate::reading::{Finding, Reading};

/// What the kubelet said last, and whether it answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KubeletView {
    /// The last good answer; kept while the kubelet is away.
    pub reading: Option<podresources::Reading>,
    /// Why there is no newer one.
    pub error: Option<String>,
}

/// All that is known at one moment.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    pub node: &'a Node,
    pub hardware: &'a Reading,
    pub kubelet: &'a KubeletView,
    pub found: &'a Found,
    pub pods: &'a Pods,
}

/// Makes objects, and remembers what must be remembered from one to the next.
#[derive(Debug, Default)]
pub struct Assembler {
    memory: Memory,
    pub predictions: Predictions,
    /// Status of conditions, and since when.
    since: BTreeMap<String, (String, Time)>,
}

impl Assembler {
    /// Takes over from an earlier life what it wrote.
    pub fn recall(&mut self, object: &NodeTopology) {
        self.memory.recall(&object.status.devices);
        for condition in object.status.conditions.iter().take(MAX_CONDITIONS) {
            let since = (condition.status.clone(), condition.last_transition_time);
            self.since.insert(condition.kind.clone(), since);
        }
    }

    /// The object, without metadata, sequence and the times of its writing.
    pub fn assemble(&mut self, facts: &Facts, now: Time) -> NodeTopology {
        let empty = podresources::Reading::default();
        let reading = facts.kubelet.reading.as_ref();
        let held = reading.unwrap_or(&empty);
        self.memory.forget_mig(mig(&facts.hardware.hardware).as_ref());
        let (devices, devices_cut) = self.memory.devices(held, facts.pods, &facts.node.capacity);
        let (pods, pods_cut) = holders(&held.holdings, facts.pods);
        self.predictions.judge(facts.pods, &held.holdings);
        let evidence = reading.map(|reading| &reading.allocatable);
        let (settings, notes) = facts.found.settings(&facts.node.kubelet_version, evidence);

        let mut findings = facts.hardware.findings.clone();
        findings.push(pod_resources(facts.kubelet, devices_cut || pods_cut));
        findings.push(config_known(facts.found, &notes));
        findings.push(self.predictions.finding());
        let holders = held.holdings.pods.keys();
        let uids = holders.filter_map(|(namespace, name)| facts.pods.uid(namespace, name));
        let status = NodeTopologyStatus {
            pod_set: reading.map(|_| PodSet::of(uids)),
            conditions: self.conditions(&findings, now),
            numa: reading
                .map(|reading| numa::states(&facts.hardware.hardware, reading))
                .unwrap_or_default(),
            devices,
            pods,
            gpus: facts.hardware.gpus.clone(),
            predictions: self.predictions.status(),
            ..NodeTopologyStatus::default()
        };
        NodeTopology {
            hardware: Some(facts.hardware.hardware.clone()),
            kubelet: Some(settings),
            status,
            ..NodeTopology::default()
        }
    }

    fn conditions(&mut self, findings: &[Finding], now: Time) -> Vec<Condition> {
        let condition = |finding: &Finding| {
            let status = finding.status().to_owned();
            let known = self.since.get(finding.kind).filter(|(before, _)| *before == status);
            let since = known.map_or(now.whole_seconds(), |(_, since)| *since);
            self.since.insert(finding.kind.to_owned(), (status.clone(), since));
            Condition {
                kind: finding.kind.to_owned(),
                status,
                observed_generation: None,
                last_transition_time: since,
                reason: finding.reason.to_owned(),
                message: finding.message.clone(),
            }
        };
        findings.iter().take(MAX_CONDITIONS).map(condition).collect()
    }
}

/// The MIG devices that the driver has; None if it does not answer.
fn mig(hardware: &Hardware) -> Option<BTreeSet<&str>> {
    hardware.source.nvml.as_ref()?;
    let devices = hardware.gpus.iter().filter_map(|gpu| gpu.mig.as_ref());
    Some(devices.flat_map(|mig| &mig.devices).map(|device| device.uuid.as_str()).collect())
}

fn pod_resources(view: &KubeletView, cut: bool) -> Finding {
    let kind = node_condition::POD_RESOURCES_AVAILABLE;
    let stale = if view.reading.is_some() { "; devices are as last seen" } else { "" };
    match &view.error {
        Some(error) => super::finding(kind, Some(false), "NoAnswer", &format!("{error}{stale}")),
        None if cut => {
            super::finding(kind, Some(true), "Cut", "more devices or pods than the object may list")
        }
        None => super::finding(kind, Some(true), "Answers", ""),
    }
}

fn config_known(found: &Found, notes: &[String]) -> Finding {
    let reason = match (found.is_known(), notes.is_empty()) {
        (true, true) => "Read",
        (true, false) => "ReadWithNotes",
        (false, _) => "Inferred",
    };
    let message = notes.join("; ");
    super::finding(node_condition::KUBELET_CONFIG_KNOWN, Some(found.is_known()), reason, &message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::podresources::{Allocatable, Holding, Holdings, PodHolding};

    fn facts<'a>(
        node: &'a Node,
        hardware: &'a Reading,
        kubelet: &'a KubeletView,
        found: &'a Found,
        pods: &'a Pods,
    ) -> Facts<'a> {
        Facts { node, hardware, kubelet, found, pods }
    }

    fn view() -> KubeletView {
        let cpus: crate::cpulist::CpuList = "2".parse().unwrap();
        let holding = Holding { cpus, ..Holding::default() };
        let pod = PodHolding {
            containers: [("main".to_owned(), holding)].into(),
            ..PodHolding::default()
        };
        let reading = podresources::Reading {
            holdings: Holdings {
                pods: [(("team".to_owned(), "p".to_owned()), pod)].into(),
                cut: false,
            },
            allocatable: Allocatable { cpus: "1-7".parse().unwrap(), ..Allocatable::default() },
        };
        KubeletView { reading: Some(reading), error: None }
    }

    #[test]
    fn conditions_keep_their_time_until_they_turn() {
        let (node, hardware, found, pods) =
            (Node::default(), Reading::default(), Found::default(), Pods::default());
        let mut assembler = Assembler::default();
        let kind = node_condition::POD_RESOURCES_AVAILABLE;
        let mut at = |view: &KubeletView, second: i64| {
            let facts = facts(&node, &hardware, view, &found, &pods);
            let object = assembler.assemble(&facts, Time(second * 1_000_000 + 5));
            let condition = object.status.condition(kind).unwrap().clone();
            (condition.status, condition.last_transition_time.0 / 1_000_000)
        };
        let away = KubeletView { error: Some("away".to_owned()), ..view() };
        assert_eq!(at(&view(), 1), ("True".to_owned(), 1));
        assert_eq!(at(&view(), 2), ("True".to_owned(), 1));
        assert_eq!(at(&away, 3), ("False".to_owned(), 3));
        assert_eq!(at(&away, 4), ("False".to_owned(), 3));
        assert_eq!(at(&view(), 5), ("True".to_owned(), 5));
    }

    #[test]
    fn an_earlier_lifes_conditions_keep_their_time() {
        let (node, hardware, found, pods) =
            (Node::default(), Reading::default(), Found::default(), Pods::default());
        let view = view();
        let facts = facts(&node, &hardware, &view, &found, &pods);
        let object = Assembler::default().assemble(&facts, Time(7_000_000));
        let mut again = Assembler::default();
        again.recall(&object);
        assert_eq!(again.assemble(&facts, Time(9_000_000)), object);
    }

    #[test]
    fn the_pod_set_is_of_uids_of_pods_that_hold_something() {
        let (node, hardware, found) = (Node::default(), Reading::default(), Found::default());
        let view = view();
        let mut pods = Pods::default();
        pods.insert("team", "p", "uid-1", None);
        pods.insert("team", "idle", "uid-2", None);
        let set = |pods: &Pods| {
            let facts = facts(&node, &hardware, &view, &found, pods);
            Assembler::default().assemble(&facts, Time(0)).status.pod_set
        };
        assert_eq!(set(&pods), Some(PodSet::of(["uid-1"])));
        // The same name, another pod.
        pods.insert("team", "p", "uid-3", None);
        assert_eq!(set(&pods), Some(PodSet::of(["uid-3"])));
    }

    #[test]
    fn a_kubelet_that_is_away_leaves_what_was_seen() {
        let (node, hardware, found, pods) =
            (Node::default(), Reading::default(), Found::default(), Pods::default());
        let mut assembler = Assembler::default();
        let never = KubeletView { reading: None, error: Some("no socket".to_owned()) };
        let object = assembler.assemble(&facts(&node, &hardware, &never, &found, &pods), Time(0));
        assert_eq!(object.status.pod_set, None);
        let message = |object: &NodeTopology| {
            let kind = node_condition::POD_RESOURCES_AVAILABLE;
            object.status.condition(kind).unwrap().message.clone()
        };
        assert_eq!(message(&object), "no socket");
        let away = KubeletView { error: Some("gone".to_owned()), ..view() };
        let object = assembler.assemble(&facts(&node, &hardware, &away, &found, &pods), Time(0));
        assert_eq!(message(&object), "gone; devices are as last seen");
        assert!(object.status.pod_set.is_some());
    }
}
