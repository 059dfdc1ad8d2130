//! A scenario as a file that reads as the same scenario.
//!
//! Every item is one line of JSON, which is YAML. Of pods, what the swarm draws is
//! written: it is for cases found by machine, not for files that people wrote.

use std::fmt::Write;

use muster_api::k8s::{Pod, PriorityClass, ResourceList, Taint};
use muster_api::muster::Role;
use muster_core::plugins::ScoringStrategy;
use serde_json::{Map, Value, json};

use super::{Action, Blow, ClusterEvent, Fault, GroupSpec, NodeGroup, Scenario, Shape, Workload};
use crate::model::budget::{Amount, Budget};
use crate::time::{MILLISECOND, Micros};

/// Exact to the millisecond.
fn duration(micros: Micros) -> String {
    match micros / MILLISECOND {
        0 => "0".to_owned(),
        millis => format!("{millis}ms"),
    }
}

fn resources(list: &ResourceList) -> Value {
    list.iter().map(|(name, quantity)| (name.clone(), json!(quantity.to_string()))).collect()
}

fn taints(list: &[Taint]) -> Value {
    list.iter().map(|t| json!({"key": t.key, "value": t.value, "effect": t.effect})).collect()
}

fn node(group: &NodeGroup) -> Value {
    let labels: Map<String, Value> =
        group.labels.iter().map(|(key, value)| (key.clone(), json!(value.text()))).collect();
    let mut node = json!({
        "name": group.name.text(),
        "count": group.count,
        "labels": labels,
        "taints": taints(&group.taints),
        "allocatable": resources(&group.allocatable),
        "unschedulable": group.unschedulable,
    });
    if let Some(machine) = group.machine {
        node["machine"] = json!(machine.name());
    }
    node
}

fn pod_spec(pod: &Pod) -> Value {
    let spec = &pod.spec;
    let containers: Vec<Value> = spec
        .containers
        .iter()
        .map(|c| {
            let port = |p: &muster_api::k8s::ContainerPort| {
                json!({"hostPort": p.host_port, "hostIP": p.host_ip, "protocol": p.protocol})
            };
            let ports: Vec<Value> = c.ports.iter().map(port).collect();
            let requests = resources(&c.resources.requests);
            json!({"name": c.name, "ports": ports, "resources": {"requests": requests}})
        })
        .collect();
    let toleration = |t: &muster_api::k8s::Toleration| json!({"key": t.key, "operator": t.operator, "value": t.value, "effect": t.effect});
    let gates: Vec<Value> = spec.scheduling_gates.iter().map(|g| json!({"name": g.name})).collect();
    let mut written = json!({
        "schedulerName": spec.scheduler_name,
        "priority": spec.priority.unwrap_or(0),
        "nodeSelector": spec.node_selector,
        "tolerations": spec.tolerations.iter().map(toleration).collect::<Vec<_>>(),
        "schedulingGates": gates,
        "containers": containers,
    });
    if let Some(grace) = spec.termination_grace_period_seconds {
        written["terminationGracePeriodSeconds"] = json!(grace);
    }
    if let Some(policy) = &spec.preemption_policy {
        written["preemptionPolicy"] = json!(policy);
    }
    if !spec.priority_class_name.is_empty() {
        written["priorityClassName"] = json!(spec.priority_class_name);
        written.as_object_mut().map(|fields| fields.remove("priority"));
    }
    written
}

fn workload(workload: &Workload) -> Value {
    let mut written = json!({
        "name": workload.name,
        "namespace": workload.namespace,
        "kind": workload.shape.kind(),
        "at": duration(workload.at),
        "podTemplate": {
            "metadata": {"labels": workload.template.metadata.labels},
            "spec": pod_spec(&workload.template),
        },
    });
    match workload.shape {
        Shape::Pods { replicas } | Shape::Set { replicas, .. } => {
            written["replicas"] = json!(replicas);
        }
        Shape::Job { parallelism, completions } => {
            written["parallelism"] = json!(parallelism);
            written["completions"] = json!(completions);
        }
    }
    if workload.repeat > 1 {
        written["every"] = json!(duration(workload.every));
        written["repeat"] = json!(workload.repeat);
    }
    if let Some(runtime) = workload.runtime {
        written["runtime"] = json!({"min": duration(runtime.min), "max": duration(runtime.max)});
    }
    if let Some(startup) = workload.startup {
        written["startup"] = json!({"min": duration(startup.min), "max": duration(startup.max)});
    }
    if let Some(checkpoint) = &workload.checkpoint {
        written["checkpoint"] = json!({"wait": duration(checkpoint.wait)});
        if let Some(takes) = checkpoint.takes {
            written["checkpoint"]["takes"] = json!(duration(takes));
        }
    }
    if let Some(group) = &workload.pod_group {
        written["podGroup"] = pod_group(group);
    }
    written
}

fn pod_group(group: &GroupSpec) -> Value {
    let spec = &group.spec;
    let mut written = json!({});
    if let Some(least) = spec.min_member {
        written["minMember"] = json!(least);
    }
    if !spec.roles.is_empty() {
        let role = |r: &Role| json!({"name": r.name, "minMember": r.min_member, "matchLabels": r.selector.match_labels});
        written["roles"] = spec.roles.iter().map(role).collect();
    }
    if let Some(timeout) = spec.schedule_timeout_seconds {
        written["scheduleTimeoutSeconds"] = json!(timeout);
    }
    if let Some(when) = spec.when_half_bound {
        written["whenHalfBound"] = json!(when.as_str());
    }
    if let Some(topology) = &spec.topology {
        written["topology"] = json!(topology);
    }
    if group.after > 0 {
        written["after"] = json!(duration(group.after));
    }
    written
}

fn event(event: &ClusterEvent) -> Value {
    let (name, value) = match &event.action {
        Action::Cordon(names) => ("cordon", json!(names)),
        Action::Uncordon(names) => ("uncordon", json!(names)),
        Action::Remove(names) => ("remove", json!(names)),
        Action::Restore(names) => ("add", json!(names)),
        Action::Add(group) => ("add", node(group)),
        Action::NotReady(names) => ("notReady", json!(names)),
        Action::Ready(names) => ("ready", json!(names)),
        Action::Change(change) => {
            let mut written = json!({"node": change.node});
            if let Some(labels) = &change.labels {
                written["labels"] = json!(labels);
            }
            if let Some(list) = &change.taints {
                written["taints"] = taints(list);
            }
            if let Some(list) = &change.allocatable {
                written["allocatable"] = resources(list);
            }
            ("change", written)
        }
        Action::Delete(pod) => ("delete", json!(pod)),
        Action::Evict(pod) => ("evict", json!(pod)),
        Action::DeleteGroup(group) => ("deleteGroup", json!(group)),
        Action::Policy(policy) => {
            ("policy", json!({"name": policy.metadata.name, "spec": policy.spec}))
        }
        Action::DeletePolicy(name) => ("deletePolicy", json!(name)),
        Action::Topology(topology) => {
            ("topology", json!({"name": topology.metadata.name, "spec": topology.spec}))
        }
        Action::DeleteTopology(name) => ("deleteTopology", json!(name)),
        Action::Ungate(workload) => ("ungate", json!(workload)),
        Action::Bind { pod, node } => ("bind", json!({"pod": pod, "node": node})),
        Action::Reload(change) => {
            let mut written = json!({});
            if let Some(initial) = change.initial_backoff {
                written["initialBackoff"] = json!(seconds(initial));
            }
            if let Some(most) = change.max_backoff {
                written["maxBackoff"] = json!(seconds(most));
            }
            if let Some(without) = &change.without {
                written["without"] = json!(without);
            }
            ("reload", written)
        }
    };
    json!({"at": duration(event.at), name: value})
}

fn seconds(n: i64) -> String {
    if n == 0 { "0".to_owned() } else { format!("{n}s") }
}

fn budget(budget: &Budget) -> Value {
    let amount = |amount: Amount| match amount {
        Amount::Count(count) => json!(count),
        Amount::Percent(percent) => json!(format!("{percent}%")),
    };
    let mut written = json!({
        "name": budget.name,
        "namespace": budget.namespace,
        "matchLabels": budget.match_labels,
    });
    if let Some(least) = budget.min_available {
        written["minAvailable"] = amount(least);
    }
    if let Some(most) = budget.max_unavailable {
        written["maxUnavailable"] = amount(most);
    }
    if budget.always_allow_unhealthy {
        written["unhealthyPodEvictionPolicy"] = json!("AlwaysAllow");
    }
    written
}

fn class(class: &PriorityClass) -> Value {
    let mut written = json!({"name": class.metadata.name, "value": class.value});
    if let Some(policy) = &class.preemption_policy {
        written["preemptionPolicy"] = json!(policy);
    }
    written
}

fn blow((at, blow): &(Micros, Blow)) -> Value {
    let mut written = json!({"at": duration(*at)});
    let (what, more) = match *blow {
        Blow::Kill { replica, back } => (json!(replica), Some(("back", back))),
        Blow::Freeze { replica, span } => (json!(replica), Some(("for", span))),
        Blow::RestartServer { span } => (json!(duration(span)), None),
        Blow::ClockJump { replica, by } => (json!(replica), Some(("by", by))),
        Blow::Compact { replica } => (json!(replica), None),
    };
    written[blow.name()] = what;
    if let Some((name, time)) = more {
        written[name] = json!(duration(time));
    }
    written
}

impl Scenario {
    /// The scenario as a file.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "name: {}\nseed: {}", self.name, self.seed);
        if let Some(until) = self.until {
            let _ = writeln!(text, "until: {}", duration(until));
        }
        let s = &self.scheduler;
        let mut scheduler = json!({
            "replicas": s.replicas,
            "initialBackoff": seconds(s.initial_backoff),
            "maxBackoff": seconds(s.max_backoff),
            "retryUnschedulableAfter": seconds(s.retry_unschedulable),
            "without": s.without,
        });
        if !s.with.is_empty() {
            scheduler["with"] = s.with.iter().map(|(name, w)| (name.clone(), json!(w))).collect();
        }
        if s.strategy == ScoringStrategy::MostAllocated {
            scheduler["strategy"] = json!("MostAllocated");
        }
        if s.allow_budget_violations {
            scheduler["allowBudgetViolations"] = json!(true);
        }
        let _ = writeln!(text, "scheduler: {scheduler}");
        let mut section = |name: &str, items: Vec<Value>| {
            if !items.is_empty() {
                let _ = writeln!(text, "{name}:");
                for item in items {
                    let _ = writeln!(text, "  - {item}");
                }
            }
        };
        section("nodes", self.nodes.iter().map(node).collect());
        section("workloads", self.workloads.iter().map(workload).collect());
        section("events", self.events.iter().map(event).collect());
        section("priorityClasses", self.classes.iter().map(class).collect());
        section("budgets", self.budgets.iter().map(budget).collect());
        if !self.faults.is_empty() {
            let rates: Map<String, Value> = Fault::ALL
                .iter()
                .filter(|fault| self.faults.rate(**fault) > 0)
                .map(|fault| (fault.name().to_owned(), json!(self.faults.rate(*fault))))
                .collect();
            let _ = writeln!(text, "faults:\n  until: {}", duration(self.faults.until));
            let _ = writeln!(text, "  perMille: {}", Value::Object(rates));
            let blows: Vec<Value> = self.faults.blows.iter().map(blow).collect();
            let _ = writeln!(text, "  events: {}", Value::Array(blows));
        }
        text
    }
}
