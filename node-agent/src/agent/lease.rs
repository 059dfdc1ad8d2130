//! Liveness by a Lease: whoever reads the object knows whether somebody still looks.
//!
//! Owns one Lease, `muster-node-agent-<node>`. Must never be held up by anything else that the agent
//! does, nor say that it is alive when its main loop is not.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing::warn;

use super::client;
use super::metrics::Metrics;
use super::node::Node;
use super::pause::Pause;

/// Between two renewals.
pub const RENEW: Duration = Duration::from_secs(10);
/// After so long without a renewal nobody is there any more.
pub const DURATION_SECONDS: u32 = 40;
/// What the name begins with; the node's name follows.
pub const PREFIX: &str = "muster-node-agent-";

/// Renews for ever.
pub async fn keep(
    client: kube::Client,
    namespace: String,
    identity: String,
    node: watch::Receiver<Option<Node>>,
    metrics: Arc<Metrics>,
) {
    let mut pause = Pause::default();
    let mut node = node;
    loop {
        let Some(owner) = node.borrow_and_update().clone() else {
            if node.changed().await.is_err() {
                return;
            }
            continue;
        };
        if !metrics.is_alive() {
            tokio::time::sleep(RENEW).await;
            continue;
        }
        let name = format!("{PREFIX}{}", owner.name);
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}");
        let lease = lease(&name, &namespace, &identity, &owner, Timestamp::now());
        let renewed = client::apply(&client, &path, &lease).await;
        metrics.wrote("Lease", renewed.is_ok());
        match renewed {
            Ok(_) => {
                pause.reset();
                tokio::time::sleep(RENEW).await;
            }
            Err(error) => {
                warn!(namespace, name, "the Lease was not renewed: {error}");
                pause.wait().await;
            }
        }
    }
}

fn lease(name: &str, namespace: &str, identity: &str, node: &Node, now: Timestamp) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": node.owner()},
        "spec": {
            "holderIdentity": identity,
            "leaseDurationSeconds": DURATION_SECONDS,
            "renewTime": format!("{now:.6}"),
        },
    })
}
