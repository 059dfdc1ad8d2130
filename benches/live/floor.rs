//! The floor: what binding costs if nobody thinks.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use futures::{StreamExt, TryStreamExt, stream};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde::Deserialize;
use serde_json::json;

#[derive(Args)]
pub(crate) struct Floor {
    #[arg(long)]
    kubeconfig: PathBuf,
    /// Pods in flight.
    #[arg(long, default_value_t = 64)]
    concurrency: usize,
}

#[derive(Deserialize)]
struct List {
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    uid: String,
}

impl Floor {
    /// Binds every pending pod, node after node, and then waits to be killed:
    /// its CPU time can be read only while it lives.
    pub(crate) async fn run(&self) -> Result<()> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig)?;
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        let client = Client::try_from(config)?;
        let nodes = list(&client, "/api/v1/nodes").await?;
        let pods = list(&client, "/api/v1/pods?fieldSelector=spec.nodeName%3D").await?;
        let pairs = pods.iter().zip(nodes.iter().cycle());
        stream::iter(pairs)
            .map(|(pod, node)| place(&client, pod, &node.name))
            .buffer_unordered(self.concurrency)
            .try_collect::<Vec<()>>()
            .await?;
        println!("bound {} pods", pods.len());
        std::future::pending().await
    }
}

async fn list(client: &Client, path: &str) -> Result<Vec<Metadata>> {
    let request = http::Request::get(path).body(Vec::new())?;
    let list: List = client.request(request).await.with_context(|| format!("list {path}"))?;
    Ok(list.items.into_iter().map(|item| item.metadata).collect())
}

/// One bind and one Event, as a scheduler writes them.
async fn place(client: &Client, pod: &Metadata, node: &str) -> Result<()> {
    muster_control_plane::bind(client, "default", &pod.name, node).await?;
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": format!("{}.floor", pod.name), "namespace": "default"},
        "eventTime": format!("{:.6}", jiff::Timestamp::now()),
        "reportingController": "floor", "reportingInstance": "floor",
        "action": "Binding", "reason": "Scheduled", "type": "Normal",
        "regarding": {
            "apiVersion": "v1", "kind": "Pod",
            "namespace": "default", "name": pod.name, "uid": pod.uid,
        },
        "note": format!("Successfully assigned default/{} to {node}", pod.name),
    });
    let request = http::Request::post("/apis/events.k8s.io/v1/namespaces/default/events")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(serde_json::to_vec(&event)?)?;
    let answer = client.request_text(request).await;
    answer.with_context(|| format!("write the event of {}", pod.name))?;
    Ok(())
}
