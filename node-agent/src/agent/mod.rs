//! `muster-node-agent run`: keeps the node's objects as the node is.
//!
//! Owns: the tasks, each of which follows one source and keeps the newest of it, and the main loop, which
//! makes the object from all of them and has it written. Must never wait for one source before it speaks of the
//! others, write an object that is not its own, or end because something is missing.

pub mod cli;
pub mod client;
pub mod devices;
pub mod hardware;
mod holders;
pub mod kubelet;
pub mod lease;
pub mod metrics;
pub mod node;
pub mod nrt;
pub mod numa;
pub mod object;
pub mod own;
pub mod pause;
pub mod pods;
pub mod predictions;
pub mod publish;
pub mod serve;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use muster_api::k8s::Time;
use muster_api::muster::NodeTopology;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::info;

use self::metrics::Metrics;
use self::node::Node;
use self::object::{Assembler, Facts, KubeletView};
use self::pods::Pods;
use self::publish::Publisher;
use crate::Sources;
use crate::kubelet::settings::{Files, Found};
use crate::podresources;
use crate::reading::{Finding, MAX_MESSAGE, Reading};

/// Changes that come together within this time are one change.
pub const COALESCE: Duration = Duration::from_millis(250);
/// The first object is made without a source that has not answered after this time.
const FIRST: Duration = Duration::from_secs(5);
/// The main loop comes round at least this often.
const ROUND: Duration = Duration::from_secs(20);

/// How the agent is set.
#[derive(Clone, Debug)]
pub struct Options {
    pub node: String,
    pub sources: Sources,
    pub kubelet_root: PathBuf,
    pub kubelet_files: Files,
    pub kubeconfig: Option<PathBuf>,
    /// The namespace of the Lease.
    pub namespace: String,
    /// Who holds the Lease.
    pub identity: String,
    pub listen: Option<SocketAddr>,
    /// Whether a NodeResourceTopology is written too.
    pub node_resource_topology: bool,
    /// Between two looks at the hardware when the driver says nothing.
    pub poll: Duration,
}

/// The newest of each source.
struct Views {
    hardware: watch::Receiver<Option<Arc<Reading>>>,
    kubelet: watch::Receiver<KubeletView>,
    found: watch::Receiver<Option<Found>>,
    pods: watch::Receiver<Pods>,
    node: watch::Receiver<Option<Node>>,
    own: watch::Receiver<own::Seen>,
}

impl Views {
    /// Waits until one of them is another. Fails if nobody follows a source any more: that is a mistake of this
    /// program, and to begin anew is better than to say for ever what was true once.
    async fn changed(&mut self) -> anyhow::Result<()> {
        let (source, changed) = tokio::select! {
            changed = self.hardware.changed() => ("the hardware", changed),
            changed = self.kubelet.changed() => ("the kubelet", changed),
            changed = self.found.changed() => ("the kubelet's settings", changed),
            changed = self.pods.changed() => ("the pods", changed),
            changed = self.node.changed() => ("the Node", changed),
            changed = self.own.changed() => ("the NodeTopology", changed),
        };
        changed.with_context(|| format!("nobody follows {source} any more"))
    }

    /// Whether every source has said something.
    fn complete(&self) -> bool {
        let kubelet = self.kubelet.borrow();
        (kubelet.reading.is_some() || kubelet.error.is_some()) && self.found.borrow().is_some()
    }
}

/// Runs until the process is told to end.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let metrics = Arc::new(Metrics::new());
    // First of all, so that a wrong root ends the program with its name.
    let hardware = hardware::start(options.sources.clone(), options.poll, Arc::clone(&metrics))?;
    let clients = client::connect(options.kubeconfig.as_deref()).await?;
    if let Some(address) = options.listen {
        let listener = serve::bind(address).await?;
        tokio::spawn(serve::serve(listener, Arc::clone(&metrics)));
    }
    let views = start(&options, &clients, hardware, &metrics);
    let agent = Agent::new(&options, &clients, views, metrics);
    info!(node = options.node, "started");
    tokio::select! {
        ended = agent.run() => ended?,
        () = told_to_end() => info!("ending"),
    }
    Ok(())
}

/// SIGTERM or SIGINT.
async fn told_to_end() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut int)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}

/// Starts one task per source.
fn start(
    options: &Options,
    clients: &client::Clients,
    hardware: watch::Receiver<Option<Arc<Reading>>>,
    metrics: &Arc<Metrics>,
) -> Views {
    let bells = kubelet::Bells::default();
    let (kubelet_sender, kubelet) = watch::channel(KubeletView::default());
    let (found_sender, found) = watch::channel(None);
    let (pods_sender, pods) = watch::channel(Pods::default());
    let (node_sender, node) = watch::channel(None);
    let seen = own::Seen { name: options.node.clone(), ..own::Seen::default() };
    let (own_sender, own) = watch::channel(seen);
    let name = &options.node;
    let socket = options.kubelet_root.join(podresources::SOCKET);
    let file = options.kubelet_files.file.clone();
    let (root, files) = (options.kubelet_root.clone(), options.kubelet_files.clone());
    let (calls, watches) = (&clients.calls, &clients.watches);
    tokio::spawn(kubelet::follow_files(root, file, bells.clone()));
    tokio::spawn(kubelet::follow_holdings(
        socket,
        kubelet_sender,
        bells.clone(),
        Arc::clone(metrics),
    ));
    tokio::spawn(kubelet::follow_settings(
        calls.clone(),
        name.clone(),
        files,
        found_sender,
        bells.clone(),
    ));
    let holdings = Arc::clone(&bells.holdings);
    tokio::spawn(pods::follow(watches.clone(), name.clone(), pods_sender, holdings));
    let look = Arc::clone(&bells.node);
    tokio::spawn(node::follow(calls.clone(), name.clone(), node_sender, look));
    tokio::spawn(own::follow(watches.clone(), name.clone(), own_sender, bells.node));
    tokio::spawn(lease::keep(
        calls.clone(),
        options.namespace.clone(),
        options.identity.clone(),
        node.clone(),
        Arc::clone(metrics),
    ));
    Views { hardware, kubelet, found, pods, node, own }
}

/// The main loop.
struct Agent {
    client: kube::Client,
    views: Views,
    metrics: Arc<Metrics>,
    assembler: Assembler,
    object: Publisher,
    other: Option<Publisher>,
    began: Instant,
    started_at: Time,
    sequence: u64,
    /// What of our object was last taken note of.
    seen: own::Seen,
    /// What was last offered to the writer.
    last: Option<(String, NodeTopology)>,
}

impl Agent {
    fn new(
        options: &Options,
        clients: &client::Clients,
        views: Views,
        metrics: Arc<Metrics>,
    ) -> Self {
        let publisher =
            |kind, path| Publisher::new(clients.calls.clone(), Arc::clone(&metrics), kind, path);
        let other = options.node_resource_topology;
        Self {
            client: clients.calls.clone(),
            object: publisher(NodeTopology::KIND, own::path(&options.node)),
            other: other.then(|| publisher(nrt::KIND, nrt::path(&options.node))),
            metrics,
            views,
            assembler: Assembler::default(),
            began: Instant::now(),
            started_at: now().whole_seconds(),
            sequence: 0,
            seen: own::Seen::default(),
            last: None,
        }
    }

    /// Does not end, unless nobody follows a source any more.
    async fn run(mut self) -> anyhow::Result<()> {
        self.recall().await;
        loop {
            self.metrics.beat();
            self.update();
            let due = [self.object.due(), self.other.as_ref().and_then(Publisher::due)];
            let due = due.into_iter().flatten().min();
            let round = Instant::now() + ROUND;
            tokio::select! {
                changed = self.views.changed() => {
                    changed?;
                    tokio::time::sleep(COALESCE).await;
                }
                () = tokio::time::sleep_until(due.unwrap_or(round).min(round)) => {
                    self.write().await;
                }
            }
        }
    }

    /// What an earlier life has written: devices that were broken, since when conditions hold.
    async fn recall(&mut self) {
        let mut pause = pause::Pause::default();
        let until = Instant::now() + FIRST;
        let path = own::path(&self.views.own.borrow().name);
        while Instant::now() < until {
            match client::get::<NodeTopology>(&self.client, &path).await {
                Ok(object) => {
                    self.object.hold_off();
                    return self.assembler.recall(&object);
                }
                Err(error) if error.code() == Some(404) => return,
                Err(error) => {
                    info!("what was written before cannot be read: {error}");
                    pause.wait().await;
                }
            }
        }
    }

    async fn write(&mut self) {
        let now = Instant::now();
        let is_due = |publisher: &Publisher| publisher.due().is_some_and(|due| due <= now);
        if is_due(&self.object) {
            self.object.write().await;
        }
        if let Some(other) = self.other.as_mut().filter(|other| is_due(other)) {
            other.write().await;
        }
    }

    /// Makes the object from the newest of each source, and has it written if it is another.
    fn update(&mut self) {
        let hardware = self.views.hardware.borrow_and_update().clone();
        let node = self.views.node.borrow_and_update().clone();
        let own = self.views.own.borrow_and_update().clone();
        // News only: a version that was seen before our last write says nothing of that write.
        if own.known && own != self.seen {
            self.object.seen(own.version.as_deref());
            self.seen = own;
        }
        let complete = self.views.complete() || self.began.elapsed() >= FIRST;
        let (Some(hardware), Some(node), true) = (hardware, node, complete) else { return };
        let made = {
            let kubelet = self.views.kubelet.borrow_and_update();
            let found = self.views.found.borrow_and_update();
            let unread = Found::default();
            let pods = self.views.pods.borrow_and_update();
            self.assembler.assemble(
                &Facts {
                    node: &node,
                    hardware: &hardware,
                    kubelet: &kubelet,
                    found: found.as_ref().unwrap_or(&unread),
                    pods: &pods,
                },
                now(),
            )
        };
        self.metrics.object(&made);
        let counts = &self.assembler.predictions;
        self.metrics.predictions(counts.held, counts.missed, counts.invalid);
        if self.last.as_ref().is_some_and(|(uid, last)| *uid == node.uid && *last == made) {
            return;
        }
        self.sequence += 1;
        self.object.want(self.wire(&node, &made));
        if let Some(other) = &mut self.other {
            other.want(nrt::object(&node, &made));
        }
        self.last = Some((node.uid, made));
    }

    /// The object as it is sent.
    fn wire(&self, node: &Node, made: &NodeTopology) -> Value {
        let mut made = made.clone();
        made.status.sequence = self.sequence;
        made.status.started_at = Some(self.started_at);
        made.status.observed_at = Some(now().whole_seconds());
        // A value of this type always has a form: it has no maps with other keys than texts.
        let mut object = serde_json::to_value(&made).unwrap_or_default();
        object["apiVersion"] = json!(own::API_VERSION);
        object["kind"] = json!(NodeTopology::KIND);
        object["metadata"] = json!({"name": node.name, "ownerReferences": node.owner()});
        object
    }
}

fn now() -> Time {
    Time(Timestamp::now().as_microsecond())
}

/// A condition without its times, its message cut to what the object may hold.
fn finding(
    kind: &'static str,
    holds: Option<bool>,
    reason: &'static str,
    message: &str,
) -> Finding {
    let mut end = message.len().min(MAX_MESSAGE);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    Finding { kind, holds, reason, message: message[..end].to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_source_that_nobody_follows_is_no_source() {
        let (kubelet_sender, kubelet) = watch::channel(KubeletView::default());
        let (_found, found) = watch::channel(None);
        let (_pods, pods) = watch::channel(Pods::default());
        let (_node, node) = watch::channel(None);
        let (_own, own) = watch::channel(own::Seen::default());
        let (hardware_sender, hardware) = watch::channel(None);
        let mut views = Views { hardware, kubelet, found, pods, node, own };
        let away = KubeletView { error: Some("away".to_owned()), ..KubeletView::default() };
        kubelet_sender.send(away).unwrap();
        views.changed().await.unwrap();
        drop(hardware_sender);
        let error = views.changed().await.unwrap_err();
        assert!(error.to_string().contains("the hardware"), "{error}");
    }
}
