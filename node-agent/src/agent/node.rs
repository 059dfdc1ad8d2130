//! The Node object that we speak for.
//!
//! Owns: its UID (what we write is owned by it), the kubelet's version, and how many devices it
//! counts. Must never write to it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_api::k8s::Quantity;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tracing::warn;

use super::client;
use super::pause::Pause;

/// Between two looks when nothing has happened: thousands of agents ask one API server.
const POLL: Duration = Duration::from_secs(300);
/// After something has happened, a second look: the kubelet reports its devices every ten seconds.
const AFTER: Duration = Duration::from_secs(15);
/// Most resources of a node that are kept.
const MAX_RESOURCES: usize = 256;

/// What is known of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    pub uid: String,
    pub kubelet_version: String,
    /// Devices by resource, broken ones included.
    pub capacity: BTreeMap<String, u64>,
}

impl Node {
    /// The owner of all that we write.
    pub fn owner(&self) -> Value {
        json!([{"apiVersion": "v1", "kind": "Node", "name": self.name, "uid": self.uid}])
    }
}

/// The fields of a Node that are read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Wire {
    metadata: Meta,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Meta {
    name: String,
    uid: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    capacity: BTreeMap<String, Value>,
    node_info: NodeInfo,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeInfo {
    kubelet_version: String,
}

impl From<Wire> for Node {
    fn from(wire: Wire) -> Self {
        let count = |amount: &Value| {
            let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
            u64::try_from(Quantity::parse(&text).ok()?.value()).ok()
        };
        let capacity = wire.status.capacity.iter();
        // Those of device plugins have a domain.
        let capacity = capacity.filter(|(resource, _)| resource.contains('/'));
        let capacity = capacity.filter_map(|(resource, n)| Some((resource.clone(), count(n)?)));
        Self {
            name: wire.metadata.name,
            uid: wire.metadata.uid,
            kubelet_version: wire.status.node_info.kubelet_version,
            capacity: capacity.take(MAX_RESOURCES).collect(),
        }
    }
}

/// Reads the node now, when `look` says so, and now and then.
pub async fn follow(
    client: kube::Client,
    name: String,
    node: watch::Sender<Option<Node>>,
    look: Arc<Notify>,
) {
    let path = format!("/api/v1/nodes/{name}");
    let mut pause = Pause::default();
    let mut wait = AFTER;
    loop {
        match client::get::<Wire>(&client, &path).await {
            Ok(wire) => {
                pause.reset();
                let seen = Some(Node::from(wire));
                node.send_if_modified(|node| {
                    let differs = *node != seen;
                    *node = seen;
                    differs
                });
                let rung = tokio::time::timeout(wait, look.notified()).await.is_ok();
                wait = if rung { AFTER } else { POLL };
            }
            Err(error) => {
                warn!(node = name, "the Node cannot be read, so nothing is written: {error}");
                pause.wait().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_devices_are_counted() {
        let wire: Wire = serde_json::from_value(json!({
            "metadata": {"name": "n", "uid": "u"},
            "status": {
                "capacity": {"cpu": "8", "nvidia.com/gpu": "4", "x.y/z": 2, "bad/one": "many"},
                "nodeInfo": {"kubeletVersion": "v1.37.1"},
            },
        }))
        .unwrap();
        let node = Node::from(wire);
        assert_eq!(node.kubelet_version, "v1.37.1");
        let capacity: Vec<_> = node.capacity.iter().map(|(k, v)| (k.as_str(), *v)).collect();
        assert_eq!(capacity, [("nvidia.com/gpu", 4), ("x.y/z", 2)]);
    }
}
