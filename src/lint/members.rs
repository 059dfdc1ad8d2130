//! Whether gangs of a manifest have the members that they ask for.

use std::collections::BTreeMap;

use muster_api::k8s::Pod;
use muster_core::gang::Api;
use serde::Deserialize;
use serde_json::Value;

use super::Finding;
use crate::whatif::{Key, expand};

/// Warnings about groups with fewer members in the manifest than they need, and members
/// without a group.
pub(super) fn check(objects: &[Value]) -> Vec<Finding> {
    let expanded = expand(objects);
    let mut members: BTreeMap<Key, usize> = BTreeMap::new();
    for pod in expanded.pods.iter().filter_map(|pod| Pod::deserialize(pod).ok()) {
        if let Some((api, name)) = Api::of(&pod) {
            *members.entry(Key::group(api, &pod.metadata.namespace, name)).or_default() += 1;
        }
    }
    let mut findings = Vec::new();
    let warn = |object: &Key, field: &str, message: String| Finding {
        error: false,
        object: format!("podgroups {:?}", object.name),
        field: field.to_owned(),
        message,
    };
    let groups: Vec<(Key, (&str, i64))> = expanded
        .others
        .iter()
        .filter(|object| object["kind"] == "PodGroup")
        .filter_map(|object| Some((Key::of(object)?, minimum(object)?)))
        .collect();
    for (key, (field, min)) in &groups {
        let found = members.get(key).copied().unwrap_or(0);
        // A group alone is applied before its members.
        if found > 0 && i64::try_from(found).is_ok_and(|found| found < *min) {
            let message = format!(
                "{min} members are needed and the manifest makes {found}, which wait until the \
                 others exist: make more, or lower the minimum"
            );
            findings.push(warn(key, field, message));
        }
    }
    for (key, found) in &members {
        if !groups.iter().any(|(known, _)| known == key) && !groups.is_empty() {
            let message = format!(
                "{found} pods of the manifest are members of it, and it is not among the groups \
                 of the manifest: is it spelled right?"
            );
            findings.push(warn(key, "", message));
        }
    }
    findings
}

/// What a group needs, and where it says so.
fn minimum(group: &Value) -> Option<(&'static str, i64)> {
    let spec = &group["spec"];
    let gang = spec["schedulingPolicy"]["gang"]["minCount"].as_i64();
    let roles = spec["roles"].as_array().into_iter().flatten();
    let of_roles: i64 = roles.filter_map(|role| role["minMember"].as_i64()).sum();
    let own = spec["minMember"].as_i64().map(|min| ("spec.minMember", min));
    own.or(gang.map(|min| ("spec.schedulingPolicy.gang.minCount", min)))
        .or((of_roles > 0).then_some(("spec.roles", of_roles)))
}
