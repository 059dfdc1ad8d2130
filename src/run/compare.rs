//! SIGUSR2: is the cache what the API server says?
//!
//! Both are read, and read again a little later: only what differs both times
//! is a difference, the rest was on its way.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::Api;
use kube::api::ListParams;
use muster_api::k8s::{Node, Pod};
use muster_core::CacheView;
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::owner::{Message, Question};
use super::surface::ask;
use crate::shard::NodeSelector;
use crate::watch::{Guarded, PAGE, Watched};

/// Between the two looks.
const PAUSE: Duration = Duration::from_secs(2);
/// Differences named in the log; the rest are counted.
const SHOWN: usize = 100;

/// Names of nodes, and of pods with the node they are on.
#[derive(Debug, Default, PartialEq, Eq)]
struct Facts(BTreeSet<String>);

/// What one side knows and the other does not.
#[derive(Debug, Default, PartialEq, Eq)]
struct Differences {
    /// On the server only.
    missing: BTreeSet<String>,
    /// In the cache only.
    redundant: BTreeSet<String>,
}

impl Differences {
    fn between(server: &Facts, cache: &Facts) -> Self {
        Self { missing: &server.0 - &cache.0, redundant: &cache.0 - &server.0 }
    }

    fn in_both(&self, other: &Self) -> Self {
        Self {
            missing: &self.missing & &other.missing,
            redundant: &self.redundant & &other.redundant,
        }
    }
}

/// Compares and logs the result.
pub(super) async fn run(
    client: &kube::Client,
    nodes: Option<&NodeSelector>,
    mailbox: &mpsc::Sender<Message>,
) {
    match differences(client, nodes, mailbox).await {
        Ok((found, looked_at)) => report(&found, looked_at),
        Err(error) => warn!("the cache cannot be compared with the API server: {error}"),
    }
}

fn report(found: &Differences, looked_at: usize) {
    let count = found.missing.len() + found.redundant.len();
    if count == 0 {
        info!(looked_at, "cache comparer: the cache equals the API server");
        return;
    }
    for what in found.missing.iter().take(SHOWN) {
        warn!("cache comparer: not in the cache: {what}");
    }
    for what in found.redundant.iter().take(SHOWN) {
        warn!("cache comparer: not on the API server: {what}");
    }
    warn!(looked_at, count, "cache comparer: the cache differs from the API server");
}

async fn differences(
    client: &kube::Client,
    nodes: Option<&NodeSelector>,
    mailbox: &mpsc::Sender<Message>,
) -> Result<(Differences, usize), String> {
    let first = look(client, nodes, mailbox).await?;
    tokio::time::sleep(PAUSE).await;
    let second = look(client, nodes, mailbox).await?;
    Ok((first.0.in_both(&second.0), second.1))
}

async fn look(
    client: &kube::Client,
    nodes: Option<&NodeSelector>,
    mailbox: &mpsc::Sender<Message>,
) -> Result<(Differences, usize), String> {
    let server = server(client, nodes).await.map_err(|e| e.to_string())?;
    let cache = cached(&ask(mailbox, Question::Cache).await?);
    Ok((Differences::between(&server, &cache), server.0.len()))
}

fn cached(view: &CacheView) -> Facts {
    let mut facts = Facts::default();
    for node in &view.nodes {
        facts.0.insert(format!("node {}", node.name));
        for pod in &node.pods {
            // Assumed pods are ours to know: the server hears of them later.
            if !view.assumed.contains(pod) {
                facts.0.insert(format!("pod {pod} on {}", node.name));
            }
        }
    }
    facts
}

/// Of pods those on nodes that are looked after: the others take no room.
async fn server(client: &kube::Client, nodes: Option<&NodeSelector>) -> kube::Result<Facts> {
    let (mut facts, mut known) = (Facts::default(), BTreeSet::new());
    list::<Node>(client, nodes, |node| {
        facts.0.insert(format!("node {}", node.metadata.name));
        known.insert(node.metadata.name.clone());
    })
    .await?;
    list::<Pod>(client, None, |pod| {
        let node = &pod.spec.node_name;
        if known.contains(node) {
            let meta = &pod.metadata;
            facts.0.insert(format!("pod {}/{} on {node}", meta.namespace, meta.name));
        }
    })
    .await?;
    Ok(facts)
}

async fn list<T: Watched>(
    client: &kube::Client,
    labels: Option<&NodeSelector>,
    mut each: impl FnMut(&T),
) -> kube::Result<()> {
    let api = Api::<Guarded<T>>::all(client.clone());
    let mut params = ListParams::default().limit(PAGE);
    if let Some(fields) = T::FIELDS {
        params = params.fields(fields);
    }
    if let Some(labels) = labels {
        params = params.labels(labels.as_str());
    }
    loop {
        let page = api.list(&params).await?;
        for guarded in &page.items {
            if let Ok(object) = &guarded.object {
                each(object);
            }
        }
        match page.metadata.continue_ {
            Some(token) if !token.is_empty() => params = params.continue_token(&token),
            _ => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(names: &[&str]) -> Facts {
        Facts(names.iter().map(|n| (*n).to_owned()).collect())
    }

    #[test]
    fn only_what_differs_twice_differs() {
        let first = Differences::between(&facts(&["a", "b", "c"]), &facts(&["c", "d"]));
        let second = Differences::between(&facts(&["a", "b", "c"]), &facts(&["b", "c", "d"]));
        let both = first.in_both(&second);
        assert_eq!(both.missing, facts(&["a"]).0);
        assert_eq!(both.redundant, facts(&["d"]).0);
    }
}
