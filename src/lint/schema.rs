//! The schema of a definition, as an API server keeps it: types, limits, unknown fields.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::Value;

use super::cel;

/// A kind of Muster's.
pub(super) struct Definition {
    crd: Value,
}

/// All kinds of Muster's.
pub(super) fn definitions() -> Vec<Definition> {
    muster_api::muster::crds().into_iter().map(|crd| Definition { crd }).collect()
}

/// Field and what is wrong with it.
type Wrong = (String, String);

impl Definition {
    /// Whether an object is of this kind.
    pub(super) fn is_of(&self, object: &Value) -> bool {
        let group = object["apiVersion"].as_str().and_then(|version| version.split('/').next());
        let spec = &self.crd["spec"];
        group == spec["group"].as_str() && object["kind"] == spec["names"]["kind"]
    }

    pub(super) fn plural(&self) -> &str {
        self.crd["spec"]["names"]["plural"].as_str().unwrap_or_default()
    }

    /// What is wrong with an object.
    pub(super) fn check(&self, object: &Value) -> Vec<Wrong> {
        let (_, version) =
            object["apiVersion"].as_str().and_then(|v| v.split_once('/')).unwrap_or_default();
        let versions = self.crd["spec"]["versions"].as_array();
        let versions = versions.map(Vec::as_slice).unwrap_or_default();
        let Some(own) = versions.iter().find(|own| own["name"] == version) else {
            let known: Vec<&str> = versions.iter().filter_map(|v| v["name"].as_str()).collect();
            let message =
                format!("Unsupported value: {version:?}: supported versions: {}", known.join(", "));
            return vec![("apiVersion".to_owned(), message)];
        };
        let mut wrong = Vec::new();
        if object["metadata"]["name"].as_str().is_none_or(str::is_empty) {
            let message = "Required value: give the object a name".to_owned();
            wrong.push(("metadata.name".to_owned(), message));
        }
        let mut object = object.clone();
        let schema = &own["schema"]["openAPIV3Schema"];
        complete(schema, &mut object);
        check(schema, &object, "", &mut wrong);
        wrong
    }
}

/// Fills in defaults, as the API server does before anything is checked.
fn complete(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                match map.get_mut(name) {
                    Some(value) => complete(field, value),
                    None if !field["default"].is_null() => {
                        map.insert(name.clone(), field["default"].clone());
                    }
                    None => {}
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|item| complete(&schema["items"], item)),
        _ => {}
    }
}

fn check(schema: &Value, value: &Value, at: &str, wrong: &mut Vec<Wrong>) {
    let before = wrong.len();
    if value.is_null() && (schema["nullable"] == true || at.is_empty()) {
        return;
    }
    let expected = schema["type"].as_str().unwrap_or_default();
    if schema["x-kubernetes-int-or-string"] == true {
        if !value.is_string() && !value.is_i64() {
            say(wrong, at, format!("Invalid value: {value}: must be a number or a string"));
        }
    } else if !is_of_type(value, expected) {
        return say(wrong, at, format!("Invalid value: {value}: must be of type {expected}"));
    }
    match value {
        Value::Object(map) => object(schema, map, at, wrong),
        Value::Array(list) => array(schema, list, at, wrong),
        Value::String(text) => string(schema, text, at, wrong),
        Value::Number(number) => range(schema, number.as_f64().unwrap_or(0.0), at, wrong),
        _ => {}
    }
    if let Some(allowed) = schema["enum"].as_array().filter(|allowed| !allowed.contains(value)) {
        let allowed: Vec<String> = allowed.iter().map(Value::to_string).collect();
        let message =
            format!("Unsupported value: {value}: supported values: {}", allowed.join(", "));
        say(wrong, at, message);
    }
    // As the API server: rules are asked of values that have the right form only.
    if wrong.len() == before {
        for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
            if let Some((field, message)) = cel::broken(rule, value) {
                wrong.push((join(at, field.trim_start_matches('.')), message));
            }
        }
    }
}

fn say(wrong: &mut Vec<Wrong>, at: &str, message: String) {
    wrong.push((at.to_owned(), message));
}

fn join(at: &str, field: &str) -> String {
    match (at, field) {
        ("", field) => field.to_owned(),
        (at, "") => at.to_owned(),
        (at, field) => format!("{at}.{field}"),
    }
}

fn is_of_type(value: &Value, expected: &str) -> bool {
    match expected {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => true,
    }
}

fn object(schema: &Value, map: &serde_json::Map<String, Value>, at: &str, wrong: &mut Vec<Wrong>) {
    for required in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !map.contains_key(required) {
            say(wrong, &join(at, required), "Required value".to_owned());
        }
    }
    let known = schema["properties"].as_object();
    let further = &schema["additionalProperties"];
    let open = schema["x-kubernetes-preserve-unknown-fields"] == true;
    for (name, value) in map {
        let field = join(at, name);
        match known.and_then(|known| known.get(name)) {
            // The API server knows metadata by itself.
            Some(_) if field == "metadata" => {}
            Some(schema) => check(schema, value, &field, wrong),
            None if further.is_object() => check(further, value, &field, wrong),
            None if open || further == true || field == "metadata" => {}
            None => {
                let names = known.into_iter().flat_map(serde_json::Map::keys);
                say(wrong, &field, unknown(name, names.map(String::as_str)));
            }
        }
    }
    if let Some(most) = schema["maxProperties"].as_u64().filter(|most| map.len() as u64 > *most) {
        say(wrong, at, format!("Too many: {}: must have at most {most} entries", map.len()));
    }
}

/// A field that is not there, and what may have been meant.
fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
    let near = |a: &str, b: &str| a.len() > 3 && (b.starts_with(a) || a.starts_with(b));
    let mut meant = known.filter(|k| same(k, name) || near(k, name));
    match meant.next() {
        Some(meant) => format!("unknown field: is {meant} meant?"),
        None => "unknown field".to_owned(),
    }
}

fn array(schema: &Value, list: &[Value], at: &str, wrong: &mut Vec<Wrong>) {
    let length = list.len() as u64;
    if let Some(most) = schema["maxItems"].as_u64().filter(|most| length > *most) {
        say(wrong, at, format!("Too many: {length}: must have at most {most} items"));
    }
    if let Some(least) = schema["minItems"].as_u64().filter(|least| length < *least) {
        say(wrong, at, format!("Invalid value: must have at least {least} items"));
    }
    let keys = schema["x-kubernetes-list-map-keys"].as_array();
    let mut seen = BTreeSet::new();
    for (i, item) in list.iter().enumerate() {
        let here = format!("{at}[{i}]");
        check(&schema["items"], item, &here, wrong);
        let own = match (keys, schema["x-kubernetes-list-type"].as_str()) {
            (Some(keys), _) => {
                let values = keys.iter().filter_map(Value::as_str).map(|k| item[k].to_string());
                Some(values.collect::<Vec<_>>().join(", "))
            }
            (None, Some("set")) => Some(item.to_string()),
            _ => None,
        };
        if let Some(own) = own.filter(|own| !seen.insert(own.clone())) {
            say(wrong, &here, format!("Duplicate value: {own}"));
        }
    }
}

fn string(schema: &Value, text: &str, at: &str, wrong: &mut Vec<Wrong>) {
    let length = text.chars().count() as u64;
    if let Some(most) = schema["maxLength"].as_u64().filter(|most| length > *most) {
        say(wrong, at, format!("Too long: may not be more than {most} characters"));
    }
    if let Some(least) = schema["minLength"].as_u64().filter(|least| length < *least) {
        say(wrong, at, format!("Invalid value: {text:?}: must have at least {least} characters"));
    }
    let Some(pattern) = schema["pattern"].as_str() else { return };
    match Regex::new(pattern) {
        Ok(regex) if regex.is_match(text) => {}
        Ok(_) => say(wrong, at, format!("Invalid value: {text:?}: must match {pattern}")),
        Err(error) => say(wrong, at, format!("the pattern {pattern} is not understood: {error}")),
    }
}

fn range(schema: &Value, number: f64, at: &str, wrong: &mut Vec<Wrong>) {
    if let Some(least) = schema["minimum"].as_f64().filter(|least| number < *least) {
        say(wrong, at, format!("Invalid value: {number}: must be at least {least}"));
    }
    if let Some(most) = schema["maximum"].as_f64().filter(|most| number > *most) {
        say(wrong, at, format!("Invalid value: {number}: must be at most {most}"));
    }
}
