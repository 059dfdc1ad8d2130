//! Every extension point, in the order and with the consequences that a plugin
//! may rely on, on a real API server.
//!
//! The scheduler runs in this process with a profile of two plugins of the test's
//! own (see [`probe`]) around the fitting and the binder that ship with it.

mod book;
mod cases;
mod probe;

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use muster::config::Configuration;
use muster::run::{Message, Scheduler};
use muster_api::k8s::{Node, PersistentVolumeClaim, Pod, annotations};
use muster_control_plane::{ControlPlane, create_nodes, node};
use muster_core::Profile;
use muster_core::framework::{Plugin, PluginArgs, Registry};
use muster_core::io::{Input, PodRef};
use serde_json::{Value, json};

use crate::support::{Cluster, SOON, eventually};
use book::Book;
use probe::{FIRST, Probe, SECOND};

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
/// What a failed attempt leaves of Reserve: all of it given back, in reverse.
const GIVEN_BACK: [&str; 4] =
    ["First.reserve", "Second.reserve", "Second.unreserve", "First.unreserve"];

struct Stage {
    cluster: Cluster,
    book: Arc<Book>,
    scheduler: Scheduler,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugins_of_ones_own_are_called_at_every_extension_point() -> Result<()> {
    let cluster = Cluster::start(ControlPlane::builder()).await?;
    create_nodes(&cluster.admin, 3, |i| node(&format!("node-{i}"), "8", "16Gi", 110)).await?;
    cluster.priority_class("high", 1_000, "PreemptLowerPriority").await?;
    let book = Arc::new(Book::default());
    for name in ["prebind-parks", "prebind-stale", "prebind-waits-in-vain"] {
        let claim = new_claim(&cluster, name).await?;
        // A version that the claim never had is as good as one it has left behind.
        let version = if name == "prebind-stale" { "1" } else { &claim.metadata.resource_version };
        book.set_version(name, version);
    }
    // These wait before the scheduler starts: their order is QueueSort's.
    for name in ["order-a", "order-c", "order-b"] {
        new_pod(&cluster, name).await?;
    }
    let scheduler = start(&cluster, &book).await?;
    let mut stage = Stage { cluster, book, scheduler };
    let played = stage.play().await;
    stage.scheduler.end().await;
    played?;
    stage.cluster.say("done");
    Ok(())
}

/// The scheduler with the two plugins first in its profile.
async fn start(cluster: &Cluster, book: &Arc<Book>) -> Result<Scheduler> {
    let mut registry = Registry::in_tree();
    for name in [FIRST, SECOND] {
        let book = Arc::clone(book);
        let make = move |_: &PluginArgs| {
            let plugin: Arc<dyn Plugin> = Arc::new(Probe { name, book: Arc::clone(&book) });
            Ok(plugin)
        };
        registry = registry.with(name, Arc::new(make));
    }
    let plugins = [(FIRST, 1), (SECOND, 1), ("NodeResourcesFit", 1), ("DefaultBinder", 0)];
    let profile = Profile::build("probed", plugins, &PluginArgs::default(), &registry)?;
    cluster.in_process(Configuration::default(), profile).await
}

async fn new_claim(cluster: &Cluster, name: &str) -> Result<PersistentVolumeClaim> {
    cluster
        .create(&json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "none",
                     "resources": {"requests": {"storage": "1Gi"}}},
        }))
        .await?;
    let claims: Vec<PersistentVolumeClaim> = cluster.list(CLAIMS).await?;
    claims.into_iter().find(|c| c.metadata.name == name).context("no claim")
}

async fn new_pod(cluster: &Cluster, name: &str) -> Result<()> {
    // Two that do not fit one node together.
    let is_large = matches!(name, "victim" | "makes-room");
    let cpu = if is_large { "5" } else { "100m" };
    let class = if name == "makes-room" { "high" } else { "" };
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulerName": "probed", "nodeSelector": {"case": name}, "priorityClassName": class,
            "containers": [{"name": "main", "image": "i",
                "resources": {"requests": {"cpu": cpu}}}],
        },
    });
    cluster.create(&pod).await
}

impl Stage {
    async fn play(&self) -> Result<()> {
        self.order_is_queue_sorts().await.context("QueueSort")?;
        self.all_points_in_order().await.context("a pod that nobody holds back")?;
        self.nodes_are_judged().await.context("PreFilter and Filter")?;
        self.gates_hold().await.context("PreEnqueue")?;
        self.reserve_is_undone().await.context("Reserve")?;
        self.permit_decides().await.context("Permit")?;
        self.pre_bind_prepares().await.context("PreBind")?;
        self.binders_take_turns().await.context("Bind")?;
        self.room_is_made().await.context("PostFilter")?;
        let nodes: Vec<Node> = self.cluster.list("/api/v1/nodes").await?;
        ensure!(nodes.len() == 3, "{} nodes", nodes.len());
        self.cluster.check_room().await
    }

    async fn create(&self, name: &str) -> Result<()> {
        new_pod(&self.cluster, name).await
    }

    /// Waits until the pod is bound and says where.
    async fn bound(&self, name: &str) -> Result<String> {
        let find = || async { anyhow::Ok(self.cluster.get_pod(name).await?.spec.node_name) };
        let bound = eventually("bound", SOON, || async { Ok(!find().await?.is_empty()) }).await;
        bound.with_context(|| format!("{name}: {:?}", self.book.calls(name)))?;
        find().await
    }

    /// Waits until an event says exactly this of the pod.
    async fn told(&self, name: &str, note: &str) -> Result<()> {
        let path = format!(
            "/apis/events.k8s.io/v1/namespaces/default/events?fieldSelector=regarding.name%3D{name}"
        );
        let told = eventually("told", SOON, || async {
            let events: Vec<Value> = self.cluster.list(&path).await?;
            Ok(events.iter().any(|e| e["reason"] == "FailedScheduling" && e["note"] == note))
        });
        told.await.with_context(|| format!("{name}: {note}: {:?}", self.book.calls(name)))
    }

    /// Waits until the pod's condition says exactly this.
    async fn condition(&self, name: &str, reason: &str, message: &str) -> Result<()> {
        let said = eventually("in the condition", SOON, || async {
            let pod: Pod = self.cluster.get_pod(name).await?;
            Ok(pod.status.conditions.iter().any(|c| {
                c.kind == "PodScheduled"
                    && c.status == "False"
                    && c.reason == reason
                    && c.message == message
            }))
        });
        said.await.with_context(|| format!("{name}: {message}: {:?}", self.book.calls(name)))?;
        ensure!(self.cluster.get_pod(name).await?.spec.node_name.is_empty(), "{name} is bound");
        Ok(())
    }

    async fn called(&self, name: &str, what: &str, point: &str) -> Result<()> {
        let called = eventually(what, SOON, || async {
            Ok(self.book.points(name, &[point]).iter().any(|call| call == what))
        });
        called.await.with_context(|| format!("{name}: {:?}", self.book.calls(name)))
    }

    /// Waits until the API shows where the pod is expected.
    async fn expected(&self, name: &str, node: &str) -> Result<()> {
        let shown = eventually("expected on the node", SOON, || async {
            let path = format!("/api/v1/namespaces/default/pods/{name}");
            let request = http::Request::get(path).body(Vec::new())?;
            let pod: Value = self.cluster.admin.request(request).await?;
            Ok(pod["status"]["nominatedNodeName"].as_str().unwrap_or_default() == node)
        });
        shown.await.with_context(|| format!("{name} on {node:?}: {:?}", self.book.calls(name)))
    }

    fn check(&self, name: &str, points: &[&str], expected: &[&str]) -> Result<()> {
        let calls = self.book.points(name, points);
        ensure!(calls == expected, "{name}: {calls:?} instead of {expected:?}");
        Ok(())
    }

    /// The first attempt gave back what it took, each once and in reverse order.
    async fn given_back(&self, name: &str) -> Result<()> {
        self.called(name, "First.unreserve", "unreserve").await?;
        let calls = self.book.points(name, &["reserve", "unreserve"]);
        ensure!(calls.starts_with(&GIVEN_BACK.map(str::to_owned)), "{name}: {calls:?}");
        Ok(())
    }

    /// Tells the core what the outside has decided.
    async fn verdict(&self, name: &str, plugin: &str, verdict: Result<(), &str>) -> Result<()> {
        let uid = self.cluster.get_pod(name).await?.metadata.uid;
        let pod = PodRef { namespace: "default".into(), name: name.into(), uid: uid.into() };
        let verdict = verdict.map_err(Into::into);
        let input = Input::Permit { pod, plugin: plugin.into(), verdict };
        self.scheduler.mailbox().send(Message::Input(input)).await.context("the core has ended")
    }
}
