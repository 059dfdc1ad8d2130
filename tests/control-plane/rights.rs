//! What an identity may do by its roles, held against what it did by the audit log.
//!
//! Owns the arithmetic of RBAC rules and audit events. Must never ask a server.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

/// One right: a verb on a resource, in a namespace or everywhere, on a name or on all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// API group; empty for the core.
    pub group: String,
    /// Plural, with its subresource after a slash.
    pub resource: String,
    /// The verb.
    pub verb: String,
    /// Where, if not everywhere.
    pub namespace: Option<String>,
    /// On which object, if not on all.
    pub name: Option<String>,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, resource, verb, .. } = self;
        let dot = if group.is_empty() { "" } else { "." };
        write!(f, "{verb} {resource}{dot}{group}")?;
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in {namespace}"),
            None => Ok(()),
        }
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn strings(value: &Value) -> Vec<String> {
    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Rights that roles and bindings among these objects give to a service account.
pub fn rights(objects: &[Value], namespace: &str, account: &str) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for binding in objects {
        let kind = text(binding, "/kind");
        let subjects = binding["subjects"].as_array().map(Vec::as_slice).unwrap_or_default();
        let named = |s: &Value| {
            text(s, "/kind") == "ServiceAccount"
                && text(s, "/name") == account
                && text(s, "/namespace") == namespace
        };
        if !subjects.iter().any(named) {
            continue;
        }
        let place =
            (kind == "RoleBinding").then(|| text(binding, "/metadata/namespace").to_owned());
        let role = objects.iter().find(|role| {
            text(role, "/kind") == text(binding, "/roleRef/kind")
                && text(role, "/metadata/name") == text(binding, "/roleRef/name")
        });
        for rule in role.and_then(|role| role["rules"].as_array()).into_iter().flatten() {
            add(&mut rights, rule, place.as_ref());
        }
    }
    rights
}

fn add(rights: &mut BTreeSet<Right>, rule: &Value, namespace: Option<&String>) {
    let mut names: Vec<Option<String>> =
        strings(&rule["resourceNames"]).into_iter().map(Some).collect();
    if names.is_empty() {
        names.push(None);
    }
    for group in strings(&rule["apiGroups"]) {
        for resource in strings(&rule["resources"]) {
            for verb in strings(&rule["verbs"]) {
                for name in &names {
                    rights.insert(Right {
                        group: group.clone(),
                        resource: resource.clone(),
                        verb: verb.clone(),
                        namespace: namespace.cloned(),
                        name: name.clone(),
                    });
                }
            }
        }
    }
}

/// What a user asked for.
#[derive(Debug, Default)]
pub struct Asked {
    /// Requests that were allowed.
    pub allowed: BTreeSet<Right>,
    /// Requests that were not, in words.
    pub forbidden: BTreeSet<String>,
}

/// What a user asked for, by the audit log.
pub fn asked(events: &[Value], user: &str) -> Asked {
    let mut asked = Asked::default();
    for event in events.iter().filter(|event| text(event, "/user/username") == user) {
        if text(event, "/annotations/authorization.k8s.io~1decision") == "forbid" {
            let (verb, uri) = (text(event, "/verb"), text(event, "/requestURI"));
            asked.forbidden.insert(format!("{verb} {uri}"));
            continue;
        }
        let object = &event["objectRef"];
        if object.is_null() {
            continue;
        }
        let mut resource = text(object, "/resource").to_owned();
        if !text(object, "/subresource").is_empty() {
            resource = format!("{resource}/{}", text(object, "/subresource"));
        }
        let some = |pointer: &str| Some(text(object, pointer).to_owned()).filter(|s| !s.is_empty());
        let mut right = Right {
            group: text(object, "/apiGroup").to_owned(),
            resource,
            verb: text(event, "/verb").to_owned(),
            namespace: some("/namespace"),
            name: some("/name"),
        };
        // A name in a field selector counts as a name of the request.
        if right.name.is_none() {
            right.name = selected(text(event, "/requestURI"));
        }
        // To apply what does not exist takes the right to create it.
        let made = event.pointer("/responseStatus/code").and_then(Value::as_i64) == Some(201);
        if right.verb == "patch" && made {
            asked.allowed.insert(Right { verb: "create".to_owned(), ..right.clone() });
        }
        asked.allowed.insert(right);
    }
    asked
}

fn selected(uri: &str) -> Option<String> {
    let (_, rest) = uri.split_once("metadata.name%3D")?;
    Some(rest.split(['&', '%']).next().unwrap_or_default().to_owned())
}

/// Rights that no request has needed.
pub fn unused(rights: &BTreeSet<Right>, asked: &Asked) -> Vec<String> {
    let needed = |right: &Right| {
        asked.allowed.iter().any(|request| {
            let within = |of: &Option<String>, is: &Option<String>| of.is_none() || of == is;
            request.verb == right.verb
                && request.group == right.group
                && request.resource == right.resource
                && within(&right.namespace, &request.namespace)
                && within(&right.name, &request.name)
        })
    };
    rights.iter().filter(|right| !needed(right)).map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn objects() -> Vec<Value> {
        let subjects = json!([{"kind": "ServiceAccount", "name": "a", "namespace": "n"}]);
        vec![
            json!({"kind": "Role", "metadata": {"name": "r", "namespace": "n"}, "rules": [
                {"apiGroups": ["g"], "resources": ["leases"], "resourceNames": ["l"],
                 "verbs": ["get", "watch"]},
                {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch", "create"]}]}),
            json!({"kind": "RoleBinding", "metadata": {"name": "r", "namespace": "n"},
                   "roleRef": {"kind": "Role", "name": "r"}, "subjects": subjects}),
        ]
    }

    fn event(verb: &str, uri: &str, object: &Value, code: u16, decision: &str) -> Value {
        json!({"user": {"username": "u"}, "verb": verb, "requestURI": uri, "objectRef": object,
               "responseStatus": {"code": code},
               "annotations": {"authorization.k8s.io/decision": decision}})
    }

    #[test]
    fn what_is_not_asked_for_is_unused_and_what_is_refused_is_told() {
        let rights = rights(&objects(), "n", "a");
        let all: Vec<String> = rights.iter().map(ToString::to_string).collect();
        assert_eq!(
            all,
            [
                "create pods/status in n",
                "patch pods/status in n",
                "get leases.g l in n",
                "watch leases.g l in n"
            ]
        );
        let lease = json!({"apiGroup": "g", "resource": "leases", "namespace": "n"});
        let status =
            json!({"resource": "pods", "subresource": "status", "namespace": "n", "name": "p"});
        let events = [
            event("watch", "/x?fieldSelector=metadata.name%3Dl&w=1", &lease, 200, "allow"),
            event("patch", "/p", &status, 201, "allow"),
            event("list", "/secrets", &json!({"resource": "secrets"}), 403, "forbid"),
        ];
        let asked = asked(&events, "u");
        assert_eq!(unused(&rights, &asked), ["get leases.g l in n"]);
        assert_eq!(asked.forbidden.into_iter().collect::<Vec<_>>(), ["list /secrets"]);
    }
}
