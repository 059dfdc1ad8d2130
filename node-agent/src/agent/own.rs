//! Our own object on the API server, as others leave it.
//!
//! Owns the watch of its metadata: if somebody deletes or changes it, it is written again. Must never
//! read what is in it.

use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt;
use kube::api::{Api, ApiResource, DynamicObject, PartialObjectMeta};
use kube_runtime::watcher::{self, Event, watcher};
use muster_api::muster::{GROUP, NodeTopology, VERSION};
use tokio::sync::{Notify, watch};
use tracing::warn;

use super::pause::Pause;
use super::pods::is_gone;

/// Group and version of the kind.
pub const API_VERSION: &str = "muster.dev/v1alpha1";

/// What the API server has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub name: String,
    /// Whether anything was seen at all.
    pub known: bool,
    /// The object's version; None if there is none.
    pub version: Option<String>,
}

/// Where the object of a node is.
pub fn path(node: &str) -> String {
    format!("/apis/{API_VERSION}/{}/{node}", NodeTopology::PLURAL)
}

/// Follows the object for ever. `node` is told when it is deleted: its Node may be gone too, or be
/// another one of the same name.
pub async fn follow(
    client: kube::Client,
    name: String,
    seen: watch::Sender<Seen>,
    node: Arc<Notify>,
) {
    let resource = ApiResource {
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        api_version: API_VERSION.to_owned(),
        kind: NodeTopology::KIND.to_owned(),
        plural: NodeTopology::PLURAL.to_owned(),
    };
    let mut pause = Pause::default();
    let note = |version: Option<String>| {
        seen.send_if_modified(|seen| {
            let now = Seen { name: seen.name.clone(), known: true, version };
            let differs = *seen != now;
            *seen = now;
            differs
        });
    };
    loop {
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let api = Api::<PartialObjectMeta<DynamicObject>>::all_with(client.clone(), &resource);
        let mut events = pin!(watcher(api, config));
        let mut listed = None;
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listed = None,
                Ok(Event::InitApply(object)) => listed = object.metadata.resource_version,
                Ok(Event::InitDone) => {
                    pause.reset();
                    note(listed.take());
                }
                Ok(Event::Apply(object)) => note(object.metadata.resource_version),
                Ok(Event::Delete(_)) => {
                    note(None);
                    node.notify_one();
                }
                Err(error) => {
                    warn!("the watch of this node's NodeTopology was interrupted: {error}");
                    pause.wait().await;
                    if is_gone(&error) {
                        break;
                    }
                }
            }
        }
    }
}
