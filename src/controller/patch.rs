//! The write of a status: a merge patch that names the version it was made from,
//! so that it changes nothing if somebody else has written since.

use bytes::Bytes;
use http::Method;
use serde_json::json;

use super::board::{Key, Write};
use super::forms::group_version;
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
