//! Cures in the pods themselves: what they ask for and where they may go.

use std::collections::{BTreeMap, BTreeSet};

use muster_api::k8s::Taint;
use serde_json::{Value, json};

use super::cure::Finder;
use super::{node, room};
use crate::whatif::{Change, Op};

/// Most other values of a label, taints or amounts that are tried.
const MAX_OTHERS: usize = 4;

/// Without scheduling gates.
pub(super) fn gates(finder: &mut Finder<'_>) {
    let gated =
        |pod: &Value| pod["spec"]["schedulingGates"].as_array().is_some_and(|g| !g.is_empty());
    let changes = finder.for_all(|pod| match gated(pod) {
        true => vec![Op::remove("/spec/schedulingGates")],
        false => Vec::new(),
    });
    let what = "remove its scheduling gates: whoever set them has to, or give up".to_owned();
    finder.offer("SchedulingGates", what, changes, None);
}

/// Without one of the constraints on where it may go.
pub(super) fn constraints(finder: &mut Finder<'_>) {
    if finder.says("NodeAffinity") {
        selectors(finder);
    }
    if finder.says("TaintToleration") {
        tolerations(finder);
    }
    if finder.says("PodTopologySpread") {
        spread(finder);
    }
    if finder.says("InterPodAffinity") {
        other_pods(finder);
    }
    if finder.says("NodePorts") {
        ports(finder);
    }
    // Whichever of them looks for the claim first.
    if ["VolumeBinding", "VolumeRestrictions", "NodeVolumeLimits"].iter().any(|p| finder.says(p)) {
        claims(finder);
    }
}

/// Another value of a label that it asks for, or without it.
fn selectors(finder: &mut Finder<'_>) {
    let Some((_, pod, _)) = finder.subject() else { return };
    let (selector, each) = (pod.spec.node_selector.clone(), finder.each());
    for (label, value) in &selector {
        let path = format!("/spec/nodeSelector/{}", crate::whatif::step(label));
        let has = |pod: &Value| pod["spec"]["nodeSelector"][label.as_str()].is_string();
        let mut others: BTreeMap<&str, usize> = BTreeMap::new();
        for node in finder.stage.world().nodes() {
            if let Some(other) = node.metadata.labels.get(label).filter(|other| *other != value) {
                *others.entry(other).or_default() += 1;
            }
        }
        let mut others: Vec<(&str, usize)> = others.into_iter().collect();
        others.sort_by_key(|(_, nodes)| std::cmp::Reverse(*nodes));
        for (other, nodes) in others.into_iter().take(MAX_OTHERS) {
            let changes = finder.for_all(|pod| match has(pod) {
                true => vec![Op::set(path.as_str(), other)],
                false => Vec::new(),
            });
            let what = format!(
                "ask for nodeSelector {label}={other} (a label of {nodes} nodes) instead of \
                 {label}={value}{each}"
            );
            finder.offer("NodeAffinity", what, changes, None);
        }
        let changes = finder.for_all(|pod| match has(pod) {
            true => vec![Op::remove(path.as_str())],
            false => Vec::new(),
        });
        let what = format!("without nodeSelector {label}={value}{each}");
        finder.offer("NodeAffinity", what, changes, None);
    }
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let changes =
        finder.for_all(|pod| match pod["spec"]["affinity"]["nodeAffinity"][required].is_object() {
            true => vec![Op::remove(format!("/spec/affinity/nodeAffinity/{required}"))],
            false => Vec::new(),
        });
    let what = format!("without the node affinity that it requires{each}");
    finder.offer("NodeAffinity", what, changes, None);
}

/// With one more toleration.
fn tolerations(finder: &mut Finder<'_>) {
    let hard = |taint: &&Taint| taint.effect != "PreferNoSchedule" && !node::is_lifecycle(taint);
    let nodes = finder.stage.world().nodes();
    let taints: BTreeSet<&Taint> = nodes.flat_map(|n| n.spec.taints.iter()).filter(hard).collect();
    let each = finder.each();
    for taint in taints.into_iter().take(MAX_OTHERS) {
        let toleration = match taint.value.as_str() {
            "" => json!({"key": taint.key, "operator": "Exists", "effect": taint.effect}),
            value => json!({"key": taint.key, "operator": "Equal", "value": value,
                "effect": taint.effect}),
        };
        let changes = finder.for_all(|pod| {
            let mut all = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
            all.push(toleration.clone());
            vec![Op::set("/spec/tolerations", all)]
        });
        let equals = if taint.value.is_empty() { "" } else { "=" };
        let what = format!(
            "tolerate the taint {}{equals}{}:{}{each}",
            taint.key, taint.value, taint.effect
        );
        finder.offer("TaintToleration", what, changes, None);
    }
}

/// With a constraint on spreading that is a wish.
fn spread(finder: &mut Finder<'_>) {
    let Some((_, pod, _)) = finder.subject() else { return };
    let each = finder.each();
    for (i, constraint) in pod.spec.topology_spread_constraints.iter().enumerate() {
        if constraint.when_unsatisfiable != "DoNotSchedule" {
            continue;
        }
        let path = format!("/spec/topologySpreadConstraints/{i}/whenUnsatisfiable");
        let changes = finder.for_all(|pod| match pod.pointer(&path).is_some() {
            true => vec![Op::set(path.as_str(), "ScheduleAnyway")],
            false => Vec::new(),
        });
        let what = format!(
            "spread over {} with whenUnsatisfiable: ScheduleAnyway{each}",
            constraint.topology_key
        );
        finder.offer("PodTopologySpread", what, changes, None);
    }
}

/// Without a term about other pods.
fn other_pods(finder: &mut Finder<'_>) {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let each = finder.each();
    for (field, name) in [("podAntiAffinity", "anti-affinity"), ("podAffinity", "affinity")] {
        let Some((_, _, value)) = finder.subject() else { return };
        let terms = value["spec"]["affinity"][field][required].as_array();
        let terms = terms.map(Vec::as_slice).unwrap_or_default();
        for (i, term) in terms.iter().enumerate() {
            let path = format!("/spec/affinity/{field}/{required}/{i}");
            let changes = finder.for_all(|pod| match pod.pointer(&path).is_some() {
                true => vec![Op::remove(path.as_str())],
                false => Vec::new(),
            });
            let key = term["topologyKey"].as_str().unwrap_or_default();
            let what = format!("without its required pod {name} over {key}{each}");
            finder.offer("InterPodAffinity", what, changes, None);
        }
    }
}

/// Without ports of the host.
fn ports(finder: &mut Finder<'_>) {
    let changes = finder.for_all(|pod| {
        let mut ops = Vec::new();
        let containers = pod["spec"]["containers"].as_array().map(Vec::as_slice);
        for (i, container) in containers.unwrap_or_default().iter().enumerate() {
            let ports = container["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
            for (j, port) in ports.iter().enumerate() {
                if port["hostPort"].is_number() {
                    ops.push(Op::remove(format!("/spec/containers/{i}/ports/{j}/hostPort")));
                }
            }
        }
        ops
    });
    let what = format!("without hostPort{}", finder.each());
    finder.offer("NodePorts", what, changes, None);
}

/// With the claims that are missing.
fn claims(finder: &mut Finder<'_>) {
    let Some((key, pod, _)) = finder.subject() else { return };
    let world = finder.stage.world();
    let class = |value: &Value| value["metadata"]["name"].as_str().map(str::to_owned);
    let default = "storageclass.kubernetes.io/is-default-class";
    let mut classes: Vec<&Value> = world.of_kind("StorageClass").map(|(_, v)| v).collect();
    classes.sort_by_key(|v| v["metadata"]["annotations"][default] != "true");
    let Some(class) = classes.first().and_then(|value| class(value)) else { return };
    let known: BTreeSet<String> = world
        .of_kind("PersistentVolumeClaim")
        .filter(|(claim, _)| claim.namespace == key.namespace)
        .map(|(claim, _)| claim.name.clone())
        .collect();
    let names = pod.spec.volumes.iter().filter_map(|v| v.persistent_volume_claim.as_ref());
    let missing: Vec<String> =
        names.map(|claim| claim.claim_name.clone()).filter(|name| !known.contains(name)).collect();
    let create = |name: &String| {
        Change::create(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": key.namespace, "uid": format!("new-{name}")},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
                "resources": {"requests": {"storage": "1Gi"}}}, "status": {"phase": "Pending"}}))
    };
    let changes: Vec<Change> = missing.iter().filter_map(create).collect();
    let what = format!(
        "create the PersistentVolumeClaim {} (tried with class {class}, 1Gi)",
        missing.join(", ")
    );
    finder.offer("VolumeBinding", what, changes, None);
}

/// Less of what there is too little of.
pub(super) fn less(finder: &mut Finder<'_>) {
    for resource in room::insufficient(finder.reasons()) {
        let Some((_, pod, _)) = finder.subject() else { return };
        let Some(asked) = room::asked(pod, &resource).filter(|asked| *asked > 0) else { continue };
        let amounts = room::amounts(finder.stage, &resource, asked, finder.pods.len());
        let least = |amount: i64| {
            finder.for_all(|pod| ask(pod, &resource, asked - amount).unwrap_or_default())
        };
        let changes: Vec<Vec<Change>> = amounts.iter().map(|amount| least(*amount)).collect();
        let last = i64::try_from(amounts.len()).unwrap_or(i64::MAX) - 1;
        // Amounts go up: the greatest that works is the least to give up.
        let at = |i: i64| usize::try_from(i).ok();
        let found = finder
            .greatest(0, last, |i| at(i).and_then(|i| changes.get(i)).cloned().unwrap_or_default());
        let Some((i, changes, ran)) = found else { continue };
        let amount = at(i).map_or(0, |i| amounts[i]);
        let what = format!(
            "ask for {} {resource} instead of {}{}",
            room::quantity(&resource, amount),
            room::quantity(&resource, asked),
            finder.each()
        );
        finder.keep("NodeResourcesFit", what, changes, None, &ran);
    }
}

/// Takes so much from the container that asks for the most.
fn ask(pod: &Value, resource: &str, less: i64) -> Option<Vec<Op>> {
    let containers = pod["spec"]["containers"].as_array()?;
    let of = |container: &Value, list: &str| {
        let value = &container["resources"][list][resource];
        room::parse(resource, value)
    };
    let all = containers.iter().enumerate();
    let (i, most) = all
        .filter_map(|(i, c)| Some((i, of(c, "requests").or_else(|| of(c, "limits"))?)))
        .max_by_key(|(i, most)| (*most, std::cmp::Reverse(*i)))?;
    let left = (most - less).max(0);
    if left == 0 && resource.contains('/') {
        return None;
    }
    let amount = room::quantity(resource, left);
    let path = |list: &str| {
        format!("/spec/containers/{i}/resources/{list}/{}", crate::whatif::step(resource))
    };
    let mut ops = Vec::new();
    for list in ["requests", "limits"] {
        let whole = resource.contains('/');
        let has = !containers[i]["resources"][list][resource].is_null();
        // Of what is not shared, requests and limits are one.
        if has && (list == "requests" || whole) {
            ops.push(Op::set(path(list), amount.as_str()));
        }
    }
    if ops.is_empty() { None } else { Some(ops) }
}
