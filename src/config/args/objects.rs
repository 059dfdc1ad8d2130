//! Kubernetes objects within arguments: read strictly, kept as Go writes them.

use serde_json::{Map, Value, json};

use super::super::decode::Object;
use super::{put, put_list};

/// `addedAffinity`.
pub(super) fn node_affinity(mut file: Object<'_>) -> Value {
    let mut fields = Map::new();
    if let Some(mut required) = file.object("requiredDuringSchedulingIgnoredDuringExecution") {
        // No list is null, an empty one is empty: as Go writes them.
        let terms = required.has("nodeSelectorTerms").then(|| {
            let terms = required.objects("nodeSelectorTerms").into_iter().map(selector_term);
            terms.collect::<Value>()
        });
        let _ = required.any("nodeSelectorTerms");
        let required = json!({"nodeSelectorTerms": terms});
        put(&mut fields, "requiredDuringSchedulingIgnoredDuringExecution", required);
    }
    let preferred = |mut file: Object<'_>| {
        let term = file.object("preference").map_or_else(|| json!({}), selector_term);
        json!({"weight": file.i32("weight").unwrap_or(0), "preference": term})
    };
    let key = "preferredDuringSchedulingIgnoredDuringExecution";
    put_list(&mut fields, key, file.objects(key).into_iter().map(preferred).collect());
    Value::Object(fields)
}

fn selector_term(mut file: Object<'_>) -> Value {
    let mut fields = Map::new();
    for key in ["matchExpressions", "matchFields"] {
        put_list(&mut fields, key, file.objects(key).into_iter().map(requirement).collect());
    }
    Value::Object(fields)
}

fn requirement(mut file: Object<'_>) -> Value {
    let mut fields = Map::new();
    for key in ["key", "operator"] {
        put(&mut fields, key, file.string(key).unwrap_or_default());
    }
    put_list(&mut fields, "values", file.strings("values"));
    Value::Object(fields)
}

/// One of `defaultConstraints`.
pub(super) fn spread_constraint(mut file: Object<'_>) -> Value {
    let mut fields = Map::new();
    put(&mut fields, "maxSkew", file.i32("maxSkew").unwrap_or(0));
    for key in ["topologyKey", "whenUnsatisfiable"] {
        put(&mut fields, key, file.string(key).unwrap_or_default());
    }
    if let Some(selector) = file.object("labelSelector") {
        put(&mut fields, "labelSelector", label_selector(selector));
    }
    if let Some(domains) = file.i32("minDomains") {
        put(&mut fields, "minDomains", domains);
    }
    for key in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
        if let Some(policy) = file.string(key) {
            put(&mut fields, key, policy);
        }
    }
    put_list(&mut fields, "matchLabelKeys", file.strings("matchLabelKeys"));
    Value::Object(fields)
}

fn label_selector(mut file: Object<'_>) -> Value {
    let mut fields = Map::new();
    if let Some(labels) = file.any("matchLabels") {
        put(&mut fields, "matchLabels", labels.clone());
    }
    let key = "matchExpressions";
    put_list(&mut fields, key, file.objects(key).into_iter().map(requirement).collect());
    Value::Object(fields)
}
