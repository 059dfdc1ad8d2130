//! Asking the kubelet, when there is reason to and now and then.
//!
//! Owns the pace of questions: what pods hold, and how the kubelet is set. Must never ask more often than
//! every [`GAP`], and never wait for one question before the other.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::{Notify, watch};
use tracing::{info, warn};

use super::client;
use super::metrics::Metrics;
use super::object::KubeletView;
use super::pause::Pause;
use crate::kubelet::settings::{Files, Found};
use crate::kubelet::watch::Watch;
use crate::podresources;

/// Questions about holdings are at least this far apart.
pub const GAP: Duration = Duration::from_millis(250);
/// Between two questions when nothing has happened.
pub const POLL: Duration = Duration::from_secs(15);
/// Between two looks at the kubelet's configuration file when nothing has happened.
const SETTINGS: Duration = Duration::from_secs(60);
/// Longest that the way through the API server may take.
const CONFIGZ: Duration = Duration::from_secs(3);

/// What makes us ask.
#[derive(Clone, Default)]
pub struct Bells {
    /// Pods may hold something else.
    pub holdings: Arc<Notify>,
    /// The kubelet may be set otherwise.
    pub settings: Arc<Notify>,
    /// The Node may be another.
    pub node: Arc<Notify>,
}

/// Rings when the kubelet writes one of its files.
pub async fn follow_files(root: PathBuf, config: PathBuf, bells: Bells) {
    let mut pause = Pause::default();
    let mut watch = loop {
        match Watch::new(&root, &config) {
            Ok(watch) => break watch,
            Err(error) => {
                warn!("inotify: {error}; the kubelet is asked every {POLL:?} only");
                pause.wait().await;
            }
        }
    };
    loop {
        let change = watch.changed().await;
        if change.holdings {
            bells.holdings.notify_one();
        }
        if change.settings {
            bells.settings.notify_one();
            bells.node.notify_one();
        }
        tokio::time::sleep(GAP).await;
    }
}

/// Asks what pods hold, for ever.
pub async fn follow_holdings(
    socket: PathBuf,
    view: watch::Sender<KubeletView>,
    bells: Bells,
    metrics: Arc<Metrics>,
) {
    let mut pause = Pause::default();
    loop {
        let answer = podresources::read(&socket).await;
        metrics.read("podresources", answer.is_ok());
        let wait = match answer {
            Ok(reading) => {
                pause.reset();
                let known = view.borrow().reading.as_ref().is_some_and(|known| {
                    known.allocatable.devices.keys().eq(reading.allocatable.devices.keys())
                });
                if !known {
                    // Others are offered: the Node will soon say how many there are.
                    bells.node.notify_one();
                }
                replace(&view, KubeletView { reading: Some(reading), error: None });
                POLL
            }
            Err(error) => {
                let error = error.to_string();
                let known = view.borrow().error.as_ref() == Some(&error);
                if !known {
                    warn!("the kubelet does not say what pods hold: {error}");
                }
                let reading = view.borrow().reading.clone();
                replace(&view, KubeletView { reading, error: Some(error) });
                pause.grow()
            }
        };
        tokio::time::sleep(GAP).await;
        let _ = tokio::time::timeout(wait, bells.holdings.notified()).await;
    }
}

/// Reads the kubelet's settings when it is started or its file is written. The API server is asked at those
/// times only, and again only if it did not answer; the file is looked at now and then.
pub async fn follow_settings(
    client: kube::Client,
    node: String,
    files: Files,
    found: watch::Sender<Option<Found>>,
    bells: Bells,
) {
    let mut ask = true;
    loop {
        if ask {
            match configz(&client, &node).await {
                Ok(read) => {
                    replace(&found, Some(read));
                    bells.settings.notified().await;
                    continue;
                }
                Err(again) => ask = again,
            }
        }
        replace(&found, Some(Found::files(&files, Vec::new())));
        if tokio::time::timeout(SETTINGS, bells.settings.notified()).await.is_ok() {
            ask = true;
        }
    }
}

/// The kubelet's own words. If there are none, whether it is worth asking again soon.
async fn configz(client: &kube::Client, node: &str) -> Result<Found, bool> {
    match may_ask(client, node).await {
        Ok(true) => {}
        // The usual case: it takes a right that is worth withholding.
        Ok(false) => return Err(false),
        Err(error) => {
            info!("whether the kubelet may be asked for its settings is not known: {error}");
            return Err(error.code() != Some(403));
        }
    }
    let path = format!("/api/v1/nodes/{node}/proxy/configz");
    let (again, note) = match tokio::time::timeout(CONFIGZ, client::get_text(client, &path)).await {
        Ok(Ok(body)) => match Found::configz(&body) {
            Ok(found) => return Ok(found),
            Err(note) => (false, note),
        },
        Ok(Err(error)) => (error.code() != Some(403), error.to_string()),
        Err(_) => (true, format!("no answer within {CONFIGZ:?}")),
    };
    // Words of the server differ from one attempt to the next; they are for the log.
    info!("the kubelet's settings are read from its file, not from configz: {note}");
    Err(again)
}

/// Whether this account has the right. Who asks without it leaves a refusal in the audit log, on every node at
/// every start, and people are called for less.
async fn may_ask(client: &kube::Client, node: &str) -> Result<bool, client::Error> {
    let question = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {
            "verb": "get", "resource": "nodes", "subresource": "proxy", "name": node,
        }},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answer = client::ask(client, path, &question).await?;
    Ok(answer["status"]["allowed"] == true)
}

/// Puts `value` in place, and wakes whoever looks only if it is another.
fn replace<T: PartialEq>(place: &watch::Sender<T>, value: T) {
    place.send_if_modified(|old| {
        let differs = *old != value;
        *old = value;
        differs
    });
}
