//! Files of `kubescheduler.config.k8s.io/v1beta3`, read as v1.
//!
//! Fields, defaults and arguments are those of v1. What v1 has no more is left out,
//! and said.

use serde_json::Value;

use super::API_VERSION;

/// The version.
pub(super) const V1BETA3: &str = "kubescheduler.config.k8s.io/v1beta3";

/// Plugins that v1 does not have, and what does their work.
const REMOVED: [(&str, &str); 5] = [
    ("SelectorSpread", "PodTopologySpread"),
    ("AzureDiskLimits", "NodeVolumeLimits"),
    ("CinderLimits", "NodeVolumeLimits"),
    ("EBSLimits", "NodeVolumeLimits"),
    ("GCEPDLimits", "NodeVolumeLimits"),
];

/// The document as one of v1, and what the user has to know.
pub(super) fn convert(document: &mut Value) -> Vec<String> {
    let mut warnings = vec![format!(
        "apiVersion: {V1BETA3} was removed in Kubernetes 1.29; the file is read as {API_VERSION}: \
         change the version"
    )];
    document["apiVersion"] = API_VERSION.into();
    let Some(profiles) = document.get_mut("profiles").and_then(Value::as_array_mut) else {
        return warnings;
    };
    for (i, profile) in profiles.iter_mut().enumerate() {
        let sets = profile.get_mut("plugins").and_then(Value::as_object_mut);
        for (point, set) in sets.into_iter().flatten() {
            let path = format!("profiles[{i}].plugins.{point}.enabled");
            remove(set.get_mut("enabled"), &path, &mut warnings);
        }
        let configs = profile.get_mut("pluginConfig");
        remove(configs, &format!("profiles[{i}].pluginConfig"), &mut warnings);
        let configs = profile.get_mut("pluginConfig").and_then(Value::as_array_mut);
        for config in configs.into_iter().flatten() {
            let args = config.get_mut("args").and_then(Value::as_object_mut);
            if let Some(version) = args.and_then(|args| args.get_mut("apiVersion"))
                && version == V1BETA3
            {
                *version = API_VERSION.into();
            }
        }
    }
    warnings
}

fn remove(list: Option<&mut Value>, path: &str, warnings: &mut Vec<String>) {
    let Some(list) = list.and_then(Value::as_array_mut) else {
        return;
    };
    list.retain(|item| {
        let name = item.get("name").and_then(Value::as_str).unwrap_or_default();
        let removed = REMOVED.iter().find(|(removed, _)| *removed == name);
        if let Some((_, instead)) = removed {
            warnings.push(format!("{path}: {name:?} was removed: {instead} does its work"));
        }
        removed.is_none()
    });
}
