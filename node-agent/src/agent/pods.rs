//! The pods of this node: who they are, and what was predicted for them.
//!
//! Owns the watch of their metadata. Must never ask for pods of other nodes, nor for more of a pod
//! than its metadata; pods that have ended are left out by the API server.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PartialObjectMeta};
use kube_runtime::watcher::{self, Event, watcher};
use muster_api::muster::annotations::PREDICTED_DEVICES;
use tokio::sync::{Notify, watch};
use tracing::warn;

use super::pause::Pause;

/// Longest prediction that is read.
pub const MAX_PREDICTION: usize = 16 << 10;
/// Most pods that are kept: far more than a kubelet takes.
pub const MAX_PODS: usize = 4096;
/// Objects of a page of the list.
const PAGE: u32 = 250;

/// Pods by namespace and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pods(BTreeMap<(String, String), Known>);

/// What is kept of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    uid: String,
    predicted: Option<String>,
}

impl Pods {
    /// The UID of a pod, if it is known.
    pub fn uid(&self, namespace: &str, name: &str) -> Option<&str> {
        let key = (namespace.to_owned(), name.to_owned());
        self.0.get(&key).map(|pod| pod.uid.as_str())
    }

    /// Pods with a prediction: namespace, name, UID and the prediction as written.
    pub fn predictions(&self) -> impl Iterator<Item = (&str, &str, &str, &str)> {
        self.0.iter().filter_map(|((namespace, name), pod)| {
            Some((namespace.as_str(), name.as_str(), pod.uid.as_str(), pod.predicted.as_deref()?))
        })
    }

    pub fn has_uid(&self, uid: &str) -> bool {
        self.0.values().any(|pod| pod.uid == uid)
    }

    /// Adds or changes a pod; says whether anything is other than before.
    pub fn insert(
        &mut self,
        namespace: &str,
        name: &str,
        uid: &str,
        predicted: Option<&str>,
    ) -> bool {
        let key = (namespace.to_owned(), name.to_owned());
        if self.0.len() >= MAX_PODS && !self.0.contains_key(&key) {
            return false;
        }
        // One that is too long stays a prediction: one that cannot be read.
        let predicted = predicted.map(|text| text.chars().take(MAX_PREDICTION).collect());
        let pod = Known { uid: uid.to_owned(), predicted };
        self.0.insert(key, pod.clone()).as_ref() != Some(&pod)
    }

    fn note(&mut self, pod: &PartialObjectMeta<Pod>) -> bool {
        let meta = &pod.metadata;
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let predicted = meta.annotations.as_ref().and_then(|all| all.get(PREDICTED_DEVICES));
        let (namespace, name) = (text(&meta.namespace), text(&meta.name));
        self.insert(&namespace, &name, &text(&meta.uid), predicted.map(String::as_str))
    }

    /// A pod is gone, unless another one has its name by now.
    fn remove(&mut self, pod: &PartialObjectMeta<Pod>) -> bool {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let key = (text(&pod.metadata.namespace), text(&pod.metadata.name));
        let same =
            self.0.get(&key).is_some_and(|kept| Some(&kept.uid) == pod.metadata.uid.as_ref());
        same && self.0.remove(&key).is_some()
    }
}

/// Follows the pods of `node` for ever. `kubelet` is told when one comes or goes, because then it
/// may have given or taken something.
pub async fn follow(
    client: kube::Client,
    node: String,
    pods: watch::Sender<Pods>,
    kubelet: Arc<Notify>,
) {
    let mut pause = Pause::default();
    loop {
        let fields = format!("spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed");
        let config = watcher::Config {
            field_selector: Some(fields),
            page_size: Some(PAGE),
            ..watcher::Config::default()
        };
        let mut events = pin!(watcher(Api::<PartialObjectMeta<Pod>>::all(client.clone()), config));
        let mut listed = Pods::default();
        while let Some(event) = events.next().await {
            let changed = match event {
                Ok(Event::Init) => {
                    listed = Pods::default();
                    false
                }
                Ok(Event::InitApply(pod)) => {
                    listed.note(&pod);
                    false
                }
                Ok(Event::InitDone) => {
                    pause.reset();
                    let listed = std::mem::take(&mut listed);
                    let changed = move |pods: &mut Pods| {
                        let differs = *pods != listed;
                        *pods = listed;
                        differs
                    };
                    pods.send_if_modified(changed)
                }
                Ok(Event::Apply(pod)) => pods.send_if_modified(|pods| pods.note(&pod)),
                Ok(Event::Delete(pod)) => pods.send_if_modified(|pods| pods.remove(&pod)),
                Err(error) => {
                    warn!("the watch of this node's pods was interrupted: {error}");
                    pause.wait().await;
                    if is_gone(&error) {
                        // kube's watcher would ask for the same version again.
                        break;
                    }
                    false
                }
            };
            if changed {
                kubelet.notify_one();
            }
        }
    }
}

/// Whether the version that a watch was to begin at is no longer there.
pub(super) fn is_gone(error: &watcher::Error) -> bool {
    let code = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status.code,
        _ => return false,
    };
    code == http::StatusCode::GONE.as_u16()
}
