//! The write of a status: a merge patch that names the version it was made from,
//! so that it changes nothing if somebody else has written since.

use bytes::Bytes;
use http::Method;
use muster_api::muster::{self, ClusterTopology};
use serde_json::{Value, json};

use super::board::{Key, Write};
use super::forms::group_version;
use super::topologies::TopologyWrite;
use crate::client::Call;

/// The call that writes a status.
pub(super) fn call(write: &Write) -> Call {
    let Key { api, namespace, name } = &write.key;
    let (group, version) = group_version(*api);
    let body = json!({
        "metadata": {"uid": write.uid, "resourceVersion": write.version},
        "status": write.form.patch(),
    });
    Call {
        method: Method::PATCH,
        path: format!(
            "/apis/{group}/{version}/namespaces/{namespace}/podgroups/{name}/status\
             ?fieldManager=muster-controller"
        ),
        content_type: "application/merge-patch+json",
        body: Bytes::from(body.to_string()),
    }
}

/// What the status of a topology may have, and must lose if it has it no more.
const OPTIONAL: [&str; 3] = ["levels", "domains", "domainsOmitted"];

/// The call that writes the status of a topology.
pub(super) fn topology(write: &TopologyWrite) -> Call {
    // Types of strings, numbers and lists cannot fail to be written.
    let mut status = serde_json::to_value(&write.status).unwrap_or_default();
    if let Some(fields) = status.as_object_mut() {
        for name in OPTIONAL {
            fields.entry(name).or_insert(Value::Null);
        }
    }
    let body = json!({
        "metadata": {"uid": write.uid, "resourceVersion": write.version},
        "status": status,
    });
    let (group, version, plural) = (muster::GROUP, muster::VERSION, ClusterTopology::PLURAL);
    Call {
        method: Method::PATCH,
        path: format!(
            "/apis/{group}/{version}/{plural}/{}/status?fieldManager=muster-controller",
            write.name
        ),
        content_type: "application/merge-patch+json",
        body: Bytes::from(body.to_string()),
    }
}
