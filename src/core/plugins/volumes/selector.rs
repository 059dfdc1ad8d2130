//! Label selectors and topology terms, as volumes use them.

use muster_api::k8s;

use crate::model::{label_key_errors, label_value_errors};

/// Checks a label selector; the error is apimachinery's.
pub(super) fn check(selector: &k8s::LabelSelector) -> Result<(), String> {
    for (key, value) in &selector.match_labels {
        check_key(key)?;
        check_values(key, std::slice::from_ref(value))?;
    }
    for r in &selector.match_expressions {
        let (operator, values) = (r.operator.as_str(), r.values.is_empty());
        if !matches!(operator, "In" | "NotIn" | "Exists" | "DoesNotExist") {
            return Err(format!("{operator:?} is not a valid label selector operator"));
        }
        check_key(&r.key)?;
        let listed = matches!(operator, "In" | "NotIn");
        if listed && values {
            return Err("values: Invalid value: []: for 'in', 'notin' operators, values set \
                        can't be empty"
                .to_owned());
        }
        if !listed && !values {
            let values = format!("{:?}", r.values).replace("\", \"", "\",\"");
            return Err(format!(
                "values: Invalid value: {values}: values set must be empty for exists and does \
                 not exist"
            ));
        }
        check_values(&r.key, &r.values)?;
    }
    Ok(())
}

fn check_key(key: &str) -> Result<(), String> {
    let errors = label_key_errors(key);
    if errors.is_empty() {
        return Ok(());
    }
    Err(format!("key: Invalid value: {key:?}: {}", errors.join("; ")))
}

fn check_values(key: &str, values: &[String]) -> Result<(), String> {
    for (i, value) in values.iter().enumerate() {
        let errors = label_value_errors(value);
        if !errors.is_empty() {
            let errors = errors.join("; ");
            return Err(format!("values[{i}][{key}]: Invalid value: {value:?}: {errors}"));
        }
    }
    Ok(())
}

/// Whether labels match a selector that [`check`] found good.
pub(super) fn matches<'a>(
    selector: &k8s::LabelSelector,
    label: impl Fn(&str) -> Option<&'a str>,
) -> bool {
    selector.match_labels.iter().all(|(k, v)| label(k) == Some(v.as_str()))
        && selector.match_expressions.iter().all(|r| {
            let value = label(&r.key);
            let listed = || value.is_some_and(|v| r.values.iter().any(|w| w == v));
            match r.operator.as_str() {
                "In" => listed(),
                "NotIn" => !listed(),
                "Exists" => value.is_some(),
                _ => value.is_none(),
            }
        })
}

/// Whether labels match any of the terms; no terms match everything, an empty
/// term nothing.
pub(super) fn matches_topology<'a>(
    terms: &[k8s::TopologySelectorTerm],
    label: impl Fn(&str) -> Option<&'a str>,
) -> bool {
    let good = |r: &k8s::TopologySelectorRequirement| {
        !r.values.is_empty() && check_key(&r.key).is_ok() && check_values(&r.key, &r.values).is_ok()
    };
    terms.is_empty()
        || terms.iter().map(|t| &t.match_label_expressions).any(|all| {
            !all.is_empty()
                && all.iter().all(good)
                && all
                    .iter()
                    .all(|r| label(&r.key).is_some_and(|v| r.values.iter().any(|w| w == v)))
        })
}
