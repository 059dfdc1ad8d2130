//! The write of a status: a merge patch that names the version it was made from,
//! so that it changes nothing if somebody else has written since.

use bytes::Bytes;
use http::Method;
use muster_api::muster::{GROUP, PodGroup, PodGroupStatus, VERSION};
use serde_json::{Value, json};

use super::board::Key;
use crate::client::Call;

/// What a status may have, and must lose if it has it no more.
const OPTIONAL: [&str; 8] = [
    "message",
    "roles",
    "domain",
    "conditions",
    "scheduleStartTime",
    "scheduledTime",
    "startTime",
    "completionTime",
];

/// The call that writes a status.
pub(super) fn call(key: &Key, uid: &str, version: &str, status: &PodGroupStatus) -> Call {
    let (namespace, name) = (&key.namespace, &key.name);
    let plural = PodGroup::PLURAL;
    Call {
        method: Method::PATCH,
        path: format!(
            "/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{plural}/{name}/status\
             ?fieldManager=muster-controller"
        ),
        content_type: "application/merge-patch+json",
        body: Bytes::from(body(uid, version, status).to_string()),
    }
}

fn body(uid: &str, version: &str, status: &PodGroupStatus) -> Value {
    // Types of strings, numbers and lists cannot fail to be written.
    let mut status = serde_json::to_value(status).unwrap_or_default();
    if let Some(fields) = status.as_object_mut() {
        for name in OPTIONAL {
            fields.entry(name).or_insert(Value::Null);
        }
    }
    json!({"metadata": {"uid": uid, "resourceVersion": version}, "status": status})
}

/// The version that a write has made.
pub(super) fn version_in(body: &[u8]) -> Box<str> {
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Written {
        metadata: Meta,
    }
    #[derive(Default, serde::Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Meta {
        resource_version: Box<str>,
    }
    serde_json::from_slice::<Written>(body).unwrap_or_default().metadata.resource_version
}

#[cfg(test)]
mod tests {
    use muster_api::muster::Phase;

    use super::*;

    #[test]
    fn what_a_status_has_no_more_is_taken_away() {
        let status = PodGroupStatus { phase: Some(Phase::Pending), ..PodGroupStatus::default() };
        assert_eq!(
            body("u", "7", &status),
            json!({
                "metadata": {"uid": "u", "resourceVersion": "7"},
                "status": {
                    "phase": "Pending", "message": null, "roles": null, "domain": null,
                    "conditions": null, "scheduleStartTime": null, "scheduledTime": null,
                    "startTime": null, "completionTime": null,
                },
            })
        );
    }
}
