//! Cures in the pod group: its minimum, its members, where they have to be.

use muster_api::muster::{labels, reason};
use muster_core::gang::Api;
use serde_json::{Value, json};

use super::cure::Finder;
use crate::whatif::{Change, Key, Op};

/// Most members that are made up.
const MAX_NEW: usize = 64;

/// How a pod becomes a member of a group.
pub(super) fn how_to_join(api: Api, key: &Key) -> String {
    match api {
        Api::Muster => format!("members have the label {}: {}", labels::POD_GROUP, key.name),
        Api::Native => format!("members have spec.schedulingGroup.podGroupName: {}", key.name),
        Api::Coscheduling => {
            format!("members have the label scheduling.x-k8s.io/pod-group: {}", key.name)
        }
    }
}

/// Where the minimum stands.
fn minimum(api: Api) -> &'static str {
    match api {
        Api::Native => "/spec/schedulingPolicy/gang/minCount",
        Api::Muster | Api::Coscheduling => "/spec/minMember",
    }
}

/// The group, or members of it, that are not there.
pub(super) fn missing(finder: &mut Finder<'_>) {
    let Some((api, key)) = finder.group() else { return };
    let members = finder.stage.world().members(api, &key.namespace, &key.name).len();
    let Some(group) = finder.stage.world().get(&key) else {
        let spec = match api {
            Api::Native => json!({"schedulingPolicy": {"gang": {"minCount": members}}}),
            Api::Muster | Api::Coscheduling => json!({"minMember": members}),
        };
        let new = json!({"apiVersion": key.api_version, "kind": "PodGroup",
            "metadata": {"name": key.name, "namespace": key.namespace}, "spec": spec});
        let changes: Vec<Change> = Change::create(new).into_iter().collect();
        let what = format!("create the pod group {key} with a minimum of {members}");
        finder.offer("Gang", what, changes, None);
        return;
    };
    if finder.ran.reason != reason::GANG_INCOMPLETE {
        return;
    }
    let min = group.pointer(minimum(api)).and_then(Value::as_u64).unwrap_or(0);
    let lack = usize::try_from(min).unwrap_or(0).saturating_sub(members);
    let Some((pod, _, value)) = finder.subject() else { return };
    if lack == 0 || lack > MAX_NEW {
        return;
    }
    let changes: Vec<Change> = (0..lack).filter_map(|i| alike(pod, value, i)).collect();
    let what = match lack {
        1 => format!("create one more member like {}", pod.name),
        n => format!("create {n} more members like {}", pod.name),
    };
    finder.offer("Gang", what, changes, None);
}

/// Another pod like this one.
fn alike(key: &Key, pod: &Value, number: usize) -> Option<Change> {
    let mut new = pod.clone();
    let name = format!("{}-more-{number}", key.name);
    let meta = new["metadata"].as_object_mut()?;
    meta.insert("uid".to_owned(), format!("new-{name}").into());
    meta.insert("name".to_owned(), name.into());
    meta.remove("resourceVersion");
    new["status"] = json!({"phase": "Pending"});
    Change::create(new)
}

/// A group that asks for less.
pub(super) fn less(finder: &mut Finder<'_>) {
    let Some((api, key)) = finder.group() else { return };
    let Some(group) = finder.stage.world().get(&key) else { return };
    fewer(finder, api, &key, group);
    wider(finder, api, &key, group);
}

/// Fewer members.
fn fewer(finder: &mut Finder<'_>, api: Api, key: &Key, group: &Value) {
    let roles = group["spec"]["roles"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of_roles: Vec<i64> = roles.iter().map(|r| r["minMember"].as_i64().unwrap_or(0)).collect();
    let all: i64 = of_roles.iter().sum();
    let own = group.pointer(minimum(api)).and_then(Value::as_i64);
    let Some(min) = own.or((all > 0).then_some(all)) else { return };
    let ops = |m: i64| -> Vec<Op> {
        let mut ops = Vec::new();
        if own.is_some() {
            ops.push(Op::set(minimum(api), m));
        }
        // The largest role gives way.
        let largest = of_roles.iter().enumerate().max_by_key(|(_, min)| **min);
        if let Some((i, most)) = largest.filter(|_| m < all) {
            let left = most - (all - m);
            if left < 0 {
                return Vec::new();
            }
            ops.push(Op::set(format!("/spec/roles/{i}/minMember"), left));
        }
        ops
    };
    let changes = |m: i64| {
        let ops = ops(m);
        if ops.is_empty() { Vec::new() } else { vec![Change::patch(key, ops)] }
    };
    let Some((m, changes, ran)) = finder.greatest(1, min - 1, changes) else { return };
    let command = (api != Api::Native).then(|| merge(key, &ops(m), roles.is_empty())).flatten();
    let lifts = if finder.ran.reason == reason::GANG_INCOMPLETE { "Gang" } else { "" };
    let what = match min - m {
        1 => format!("one member fewer: a minimum of {m} instead of {min}"),
        n => format!("{n} members fewer: a minimum of {m} instead of {min}"),
    };
    finder.keep(lifts, what, changes, command, &ran);
}

/// A kubectl command for a change of one plain field.
fn merge(key: &Key, ops: &[Op], plain: bool) -> Option<String> {
    let kind = key.api_version.split('/').next()?;
    let op = ops.first().filter(|_| plain && ops.len() == 1)?;
    let step = serde_json::to_string(&[op]).ok()?;
    Some(format!(
        "kubectl patch podgroups.{kind} -n {} {} --type json -p '{step}'",
        key.namespace, key.name
    ))
}

/// A wider level, or none; company in its domain.
fn wider(finder: &mut Finder<'_>, api: Api, key: &Key, group: &Value) {
    if api != Api::Muster {
        if group["spec"]["schedulingConstraints"]["topology"].is_array() {
            let ops = vec![Op::remove("/spec/schedulingConstraints/topology")];
            let what = "without its topology constraint (the group made anew)".to_owned();
            finder.offer("Topology", what, vec![Change::patch(key, ops)], None);
        }
        return;
    }
    // It may be changed only while no member is placed.
    if group["status"]["members"]["scheduled"].as_i64().unwrap_or(0) > 0 {
        return;
    }
    let roles = group["spec"]["roles"].as_array().map_or(0, Vec::len);
    let places = std::iter::once("/spec/topology".to_owned())
        .chain((0..roles).map(|i| format!("/spec/roles/{i}/topology")));
    for at in places {
        let Some(topology) = group.pointer(&at) else { continue };
        let of = match at.strip_prefix("/spec/roles/").and_then(|s| s.split('/').next()) {
            Some(i) => format!(" of role {}", role(group, i)),
            None => String::new(),
        };
        if topology["exclusive"] == true {
            let ops = vec![Op::remove(format!("{at}/exclusive"))];
            let what = format!("share its domain with other gangs{of}: without exclusive");
            let command = merge(key, &ops, true);
            finder.offer("Topology", what, vec![Change::patch(key, ops)], command);
        }
        let Some(required) = topology["required"].as_str() else { continue };
        for level in wider_levels(finder, required) {
            let mut ops = vec![Op::set(format!("{at}/required"), level.as_str())];
            if topology["preferred"] == level.as_str() {
                ops.push(Op::remove(format!("{at}/preferred")));
            }
            let what = format!("be in one {level} instead of one {required}{of}");
            let command = merge(key, &ops, true);
            if finder.offer("Topology", what, vec![Change::patch(key, ops)], command) {
                break;
            }
        }
        let ops = vec![Op::remove(at.clone())];
        let what = format!("be anywhere instead of in one {required}{of}: without topology");
        let command = merge(key, &ops, true);
        finder.offer("Topology", what, vec![Change::patch(key, ops)], command);
    }
}

fn role<'a>(group: &'a Value, at: &str) -> &'a str {
    let i: usize = at.parse().unwrap_or(usize::MAX);
    group["spec"]["roles"][i]["name"].as_str().unwrap_or_default()
}

/// Levels of the same topology that are wider, the narrowest first.
fn wider_levels(finder: &Finder<'_>, required: &str) -> Vec<String> {
    for (_, topology) in finder.stage.world().of_kind("ClusterTopology") {
        let levels = topology["spec"]["levels"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is = |level: &&Value| level["name"] == required || level["nodeLabel"] == required;
        if let Some(at) = levels.iter().position(|level| is(&level)) {
            let wider = levels[..at].iter().rev();
            return wider.filter_map(|l| l["name"].as_str().map(str::to_owned)).collect();
        }
    }
    Vec::new()
}
