//! The operations on the simulator's API server.

use std::collections::BTreeSet;

use muster_api::k8s::{Container, Pod, PodSchedulingGate};
use muster_core::io::{Condition, PodRef, StatusPatch};
use muster_sim::model::budget::{Amount, Budget};
use muster_sim::model::errors::ApiError;
use muster_sim::model::eviction::DeleteOptions;
use muster_sim::model::server::{Server, WatchEvent};

use super::{Answer, Op, Shown, Uid, Version, alike, budget_line};

pub(super) struct Simulated {
    server: Server,
    namespace: &'static str,
    budgets: Vec<&'static str>,
}

impl Simulated {
    pub(super) fn new(namespace: &'static str) -> Self {
        Self { server: Server::new(), namespace, budgets: Vec::new() }
    }

    fn uid(&self, pod: &str, uid: Uid) -> Option<String> {
        match uid {
            Uid::Any => None,
            Uid::Right => self.server.pod(self.namespace, pod).ok().map(|p| p.metadata.uid),
            Uid::Wrong => Some("another".to_owned()),
        }
    }

    fn pod_ref(&self, pod: &str, uid: Uid) -> PodRef {
        PodRef {
            namespace: self.namespace.into(),
            name: pod.into(),
            uid: self.uid(pod, uid).unwrap_or_default().into(),
        }
    }

    fn options(
        &self,
        pod: &str,
        uid: Uid,
        version: Version,
        grace_seconds: Option<i64>,
        dry_run: bool,
    ) -> DeleteOptions {
        let current = self.server.pod(self.namespace, pod).ok();
        let resource_version = match version {
            Version::Any => None,
            Version::Current => current.map(|p| p.metadata.resource_version),
            Version::Old => Some("0".to_owned()),
        };
        DeleteOptions { grace_seconds, uid: self.uid(pod, uid), resource_version, dry_run }
    }

    fn apply(&mut self, op: &Op) -> Result<(), ApiError> {
        let namespace = self.namespace;
        match *op {
            Op::Create { pod, app, gated } => {
                self.server.create_pod(new_pod(namespace, pod, app, gated))
            }
            Op::Phase { pod, phase: "Unready" } => self.server.set_unready(namespace, pod),
            Op::Phase { pod, phase } => self.server.set_phase(namespace, pod, phase),
            Op::Bind { pod, node, uid } => {
                let uid = self.uid(pod, uid);
                self.server.bind(namespace, pod, uid.as_deref(), node)
            }
            Op::Condition { pod, uid, message } => self.server.patch_status(&StatusPatch {
                pod: self.pod_ref(pod, uid),
                condition: Some(Condition {
                    status: false,
                    reason: "Unschedulable",
                    message: message.into(),
                    observed_generation: None,
                }),
                shown: None,
                nominated_node: None,
            }),
            Op::Delete { pod, uid, version, grace, dry_run } => {
                let options = self.options(pod, uid, version, grace, dry_run);
                self.server.delete_pod(namespace, pod, &options)
            }
            Op::Evict { pod, uid, grace, dry_run } => {
                let options = self.options(pod, uid, Version::Any, grace, dry_run);
                self.server.evict(namespace, pod, &options)
            }
            Op::Budget { name, app, min_available, always } => {
                self.budgets.push(name);
                self.server.create_budget(Budget {
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                    match_labels: [("app".to_owned(), app.to_owned())].into(),
                    min_available: Some(Amount::Count(min_available)),
                    max_unavailable: None,
                    always_allow_unhealthy: always,
                });
                Ok(())
            }
        }
    }

    /// Does it and says what the server said.
    pub(super) fn run(&mut self, op: &Op) -> Answer {
        let pods = self.pods();
        let result = self.apply(op);
        self.server.reconcile_budgets();
        let Err(error) = result else {
            return Answer::default();
        };
        let versions: Vec<String> =
            pods.iter().map(|p| format!("({})", p.metadata.resource_version)).collect();
        let mut identifiers: Vec<&str> = pods.iter().map(|p| p.metadata.uid.as_str()).collect();
        identifiers.extend(versions.iter().map(String::as_str));
        identifiers.push("(0)");
        Answer {
            code: error.code,
            reason: error.reason.to_owned(),
            cause: error.cause.unwrap_or_default().to_owned(),
            message: alike(&error.message, &identifiers),
        }
    }

    fn pods(&self) -> Vec<Pod> {
        self.server.list_pods(None).unwrap_or_default()
    }

    pub(super) fn state(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.pods().iter().map(pod_line).collect();
        lines.extend(self.budgets.iter().filter_map(|name| {
            let status = self.server.budget(self.namespace, name)?;
            Some(budget_line(
                name,
                status.disruptions_allowed,
                status.current_healthy,
                status.desired_healthy,
                status.expected_pods,
            ))
        }));
        lines.sort();
        lines
    }

    pub(super) fn watched(&self) -> Vec<String> {
        let mut known = BTreeSet::new();
        let events = self.server.watch_pods(0).unwrap_or_default();
        let lines = events.iter().map(|event| match event {
            WatchEvent::Deleted(pod) => format!("DELETED {}", pod_line(pod)),
            WatchEvent::Applied(pod) if known.insert(pod.metadata.uid.clone()) => {
                format!("ADDED {}", pod_line(pod))
            }
            WatchEvent::Applied(pod) => format!("MODIFIED {}", pod_line(pod)),
        });
        lines.collect()
    }

    /// As after a restart: only the present is known.
    pub(super) fn forget(&mut self) {
        self.server.compact();
    }

    pub(super) fn watch_from_start(&self) -> (u16, String) {
        match self.server.watch_pods(0) {
            Ok(_) => (200, String::new()),
            Err(error) => (error.code, error.reason.to_owned()),
        }
    }
}

fn new_pod(namespace: &str, name: &str, app: &str, gated: bool) -> Pod {
    let mut pod = Pod::default();
    namespace.clone_into(&mut pod.metadata.namespace);
    name.clone_into(&mut pod.metadata.name);
    pod.metadata.labels.insert("app".to_owned(), app.to_owned());
    "nobody".clone_into(&mut pod.spec.scheduler_name);
    pod.spec.containers.push(Container::default());
    if gated {
        pod.spec.scheduling_gates.push(PodSchedulingGate { name: "wait".to_owned() });
    }
    "Pending".clone_into(&mut pod.status.phase);
    pod
}

fn pod_line(pod: &Pod) -> String {
    let conditions = pod.status.conditions.iter();
    Shown {
        name: &pod.metadata.name,
        node: &pod.spec.node_name,
        phase: &pod.status.phase,
        terminating: pod.metadata.deletion_timestamp.is_some(),
        conditions: conditions
            .map(|c| (c.kind.as_str(), c.status.as_str(), c.reason.as_str()))
            .collect(),
    }
    .line()
}
