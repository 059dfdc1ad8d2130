//! Full nodes for the wire, kept by a watch of their own.
//!
//! Only while an extender is configured that is not `nodeCacheCapable`: it is sent
//! whole nodes. The text of each node is kept as the server sent it, less
//! `managedFields`. Must never reach the core: it has its own, pruned, picture.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Resource};
use kube_runtime::watcher::{self, Event, watcher};
use parking_lot::Mutex;
use serde::de::Deserializer;
use serde::{Deserialize, de};
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::warn;

use super::pods::{FullPods, trimmed};
use crate::client::{self, ClientError};
use crate::shard::NodeSelector;

/// Pause after a watch was interrupted.
const PAUSE: Duration = Duration::from_secs(1);
/// Nodes that the watch does not show yet and that are read one by one, at most: the
/// rest is left out of the question.
const MOST_READS: usize = 32;
/// Items of a page of the list.
const PAGE: u32 = 500;

type Store = BTreeMap<Arc<str>, Arc<RawValue>>;

/// See the module's text.
pub(super) struct FullNodes {
    nodes: Arc<Mutex<Store>>,
    listed: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

impl Drop for FullNodes {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FullNodes {
    /// Starts to follow nodes, those of the shard if there is one.
    pub(super) fn follow(
        config: &kube::Config,
        shard: Option<&NodeSelector>,
        runtime: &Handle,
    ) -> Result<Self, ClientError> {
        // The client's own tasks belong to the same thread.
        let _guard = runtime.enter();
        let client = client::watching(config)?;
        let nodes = Arc::<Mutex<Store>>::default();
        let (done, listed) = watch::channel(false);
        let labels = shard.map(ToString::to_string);
        let task = runtime.spawn(follow(client, labels, Arc::clone(&nodes), done));
        Ok(Self { nodes, listed, task })
    }

    /// Whole nodes of these names, in order; those that are gone are left out.
    pub(super) async fn get(
        &self,
        names: &[Arc<str>],
        reads: &FullPods,
        until: Instant,
    ) -> Result<Vec<Arc<RawValue>>, String> {
        let mut listed = self.listed.clone();
        let wait = async { listed.wait_for(|listed| *listed).await.is_ok() };
        if !tokio::time::timeout_at(until, wait).await.unwrap_or(false) {
            return Err("nodes are not listed yet for an extender".to_owned());
        }
        let mut found: Vec<Option<Arc<RawValue>>> = {
            let store = self.nodes.lock();
            names.iter().map(|name| store.get(name).cloned()).collect()
        };
        let missing = found.iter_mut().zip(names).filter(|(node, _)| node.is_none());
        for (slot, name) in missing.take(MOST_READS) {
            *slot = reads.node(name, until).await?;
        }
        Ok(found.into_iter().flatten().collect())
    }
}

async fn follow(
    client: kube::Client,
    label_selector: Option<String>,
    nodes: Arc<Mutex<Store>>,
    listed: watch::Sender<bool>,
) {
    loop {
        let config = watcher::Config {
            page_size: Some(PAGE),
            label_selector: label_selector.clone(),
            ..watcher::Config::default()
        };
        let mut events = pin!(watcher(Api::<FullNode>::all(client.clone()), config));
        let mut fresh = Store::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => fresh.clear(),
                Ok(Event::InitApply(node)) => drop(fresh.insert(node.name, node.text)),
                Ok(Event::InitDone) => {
                    *nodes.lock() = std::mem::take(&mut fresh);
                    listed.send_replace(true);
                }
                Ok(Event::Apply(node)) => drop(nodes.lock().insert(node.name, node.text)),
                Ok(Event::Delete(node)) => drop(nodes.lock().remove(&node.name)),
                Err(error) => {
                    warn!("watch of full nodes interrupted, trying again in {PAUSE:?}: {error}");
                    tokio::time::sleep(PAUSE).await;
                    // Listed anew: kube's watcher would ask for an old version again.
                    break;
                }
            }
        }
    }
}

/// A node as the server sent it.
#[derive(Clone, Debug)]
struct FullNode {
    name: Arc<str>,
    text: Arc<RawValue>,
    meta: ObjectMeta,
}

impl<'de> Deserialize<'de> for FullNode {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Outline {
            metadata: Id,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Id {
            #[serde(default)]
            name: Arc<str>,
            #[serde(default)]
            resource_version: String,
        }
        let raw = <&'de RawValue>::deserialize(d).map_err(de::Error::custom)?;
        let id: Outline = serde_json::from_str(raw.get()).map_err(de::Error::custom)?;
        let (text, _) = trimmed(raw.get().as_bytes()).map_err(de::Error::custom)?;
        let Id { name, resource_version } = id.metadata;
        let meta = ObjectMeta { resource_version: Some(resource_version), ..ObjectMeta::default() };
        Ok(Self { name, text, meta })
    }
}

impl Resource for FullNode {
    type DynamicType = ();
    type Scope = kube::core::ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Node".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "nodes".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}
