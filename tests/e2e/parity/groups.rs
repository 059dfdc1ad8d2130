//! The groups: who they are, and what must become of them.

use serde_json::{Value, json};

use super::workload::{Fate, GPU, Group, HOST, ZONE};

fn in_pool(pool: &str) -> Value {
    json!({"nodeSelector": {"pool": pool}})
}

/// In a pool, with more to its spec.
fn and(pool: &str, more: Value) -> Value {
    let mut spec = in_pool(pool);
    if let (Some(into), Value::Object(from)) = (spec.as_object_mut(), more) {
        into.extend(from);
    }
    spec
}

fn tolerating(key: &str) -> Value {
    json!({"tolerations": [{"key": key, "operator": "Exists"}]})
}

fn volume(claim: &str) -> Value {
    json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]})
}

/// At most one more than elsewhere; `more` is merged into the constraint.
fn spread(key: &str, app: &str, more: Value) -> Value {
    let mut constraint = json!({
        "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
    });
    if let (Some(into), Value::Object(from)) = (constraint.as_object_mut(), more) {
        into.extend(from);
    }
    json!({"topologySpreadConstraints": [constraint]})
}

/// Beside (`podAffinity`) or away from (`podAntiAffinity`) pods of an app.
fn related(kind: &str, key: &str, app: &str) -> Value {
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}]}}})
}

fn node_terms(term: &Value) -> Value {
    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [term]}}}})
}

fn names(names: &[&str]) -> Value {
    let fields = names
        .iter()
        .map(|name| json!({"key": "metadata.name", "operator": "In", "values": [name]}));
    node_terms(&json!({"matchFields": fields.collect::<Vec<_>>()}))
}

pub(super) fn groups() -> Vec<Group> {
    let group =
        |name, pods, fate, class, requests, spec| Group { name, pods, fate, class, requests, spec };
    let none = || json!({});
    let gpus = |n: &str| json!({GPU: n});
    let runs = |name, pods, class, spec| group(name, pods, Fate::Runs, class, none(), spec);
    let waits = |name, pods, class, spec| group(name, pods, Fate::Waits, class, none(), spec);
    let wants = |name, pods, requests, spec| group(name, pods, Fate::Waits, "", requests, spec);
    let zones = json!({"matchExpressions": [
        {"key": ZONE, "operator": "In", "values": ["z1", "z2"]}]});
    let preferred = json!({"affinity": {"nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 10, "preference": zones}]}}});
    let five = json!({"minDomains": 5});
    let domains = || and("general", spread(ZONE, "domains", five.clone()));
    let gpu_spec = || and("gpu", tolerating("gpu"));
    let port = || and("ports", json!({"hostPort": 8080}));
    let alone = || and("hosts", related("podAntiAffinity", HOST, "hosts"));
    let cordon = "node.kubernetes.io/unschedulable";
    vec![
        // Room for all, many times over.
        runs("plain", 383, "", in_pool("general")),
        runs("plain-high", 60, "high", in_pool("general")),
        runs("plain-low", 60, "lowest", in_pool("general")),
        runs("plain-never", 40, "high-never", in_pool("general")),
        runs("zoned", 100, "", node_terms(&zones)),
        runs("preferring", 60, "", and("general", preferred)),
        runs("dedicated", 60, "", and("dedicated", tolerating("dedicated"))),
        runs("cordoned", 20, "", and("cordoned", tolerating(cordon))),
        runs("spread", 90, "", and("general", spread(ZONE, "spread", none()))),
        runs("buddies", 60, "", and("general", related("podAffinity", ZONE, "buddies"))),
        runs("shared", 20, "", volume("shared")),
        // Room for exactly all, and those that come too late.
        group("gpu", 64, Fate::Runs, "mid", gpus("1"), gpu_spec()),
        group("gpu-over", 20, Fate::Waits, "lowest", gpus("1"), gpu_spec()),
        runs("ports", 40, "mid", port()),
        waits("ports-over", 20, "lowest", port()),
        runs("hosts", 30, "mid", alone()),
        waits("hosts-over", 20, "lowest", alone()),
        // With fewer domains than asked for, each takes one.
        runs("domains", 3, "mid", domains()),
        waits("domains-over", 20, "lowest", domains()),
        // Nowhere.
        waits("no-label", 100, "", json!({"nodeSelector": {"missing": "yes"}})),
        wants("cpu", 100, json!({"cpu": "1000"}), none()),
        wants("cpu-memory", 60, json!({"cpu": "1000", "memory": "1Ti"}), none()),
        wants("storage", 40, json!({"ephemeral-storage": "1Ti"}), none()),
        wants("unknown-resource", 50, json!({"example.com/none": "1"}), none()),
        wants("sixteen", 30, gpus("16"), gpu_spec()),
        waits("untolerated", 50, "", in_pool("gpu")),
        waits("rackless", 30, "", spread("example.com/rack", "rackless", none())),
        waits("friendless", 40, "", related("podAffinity", HOST, "nobody")),
        waits("intruder", 30, "", in_pool("guarded")),
        waits("missing-claim", 40, "", volume("missing-{i}")),
        waits("unbound-claim", 20, "", volume("unbound")),
        waits("late-claim", 20, "", volume("late")),
        waits("far-volume", 20, "", volume("far")),
        waits("single-claim", 10, "lowest", volume("single")),
        waits("nowhere", 30, "", names(&["nowhere"])),
        waits("contradiction", 20, "", names(&["general-000", "general-001"])),
        waits("pinned", 20, "", names(&["cordoned-000"])),
        // What is there has a higher priority, or is not enough.
        wants("full", 20, json!({"cpu": "2"}), in_pool("full")),
        group("full-never", 20, Fate::Waits, "high-never", json!({"cpu": "2"}), in_pool("full")),
        group("half", 20, Fate::Waits, "mid", json!({"cpu": "2"}), in_pool("half")),
        waits("tiny", 20, "", in_pool("tiny")),
        group("gated", 40, Fate::IsGated, "", none(), json!({"schedulingGates": [{"name": "g"}]})),
    ]
}
