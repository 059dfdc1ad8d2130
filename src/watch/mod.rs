//! Watches: the API server's objects as [`Input`]s for the core.
//!
//! Pod groups, and what their status depends on, are told to the controller's
//! [`Board`] as well, and first: what the core says of a group is then of one that the
//! board knows.
//!
//! Owns: which kinds are watched, how they are decoded (only the fields the
//! core reads; a malformed object is skipped, logged and counted) and how a
//! watch recovers from 410s and cut streams. Must never judge an object, keep
//! a copy of it, or hold back one kind because of another.

mod guard;
mod kinds;
mod probe;
mod stream;
#[cfg(test)]
mod tests;

pub use guard::{Guarded, Outline};
pub use kinds::{EndedCoscheduled, EndedMember, EndedNative, POD_FIELDS, RefusedPod, Watched};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use muster_api::k8s::{
    CSIDriver, CSINode, CSIStorageCapacity, CoschedulingPodGroup, Namespace, NativePodGroup, Node,
    NodeResourceTopology, PersistentVolume, PersistentVolumeClaim, Pod, PodDisruptionBudget,
    PriorityClass, ReplicaSet, ReplicationController, Service, StatefulSet, StorageClass,
    VolumeAttachment,
};
use muster_api::muster::{ClusterTopology, NodeTopology, PodGroup, SchedulingPolicy};
use muster_core::io::{Input, Kind};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinSet;
use tracing::error;

use crate::controller::{Api, Board};
use crate::metrics::Metrics;
use crate::run::{Message, Shutdown};
use crate::shard::NodeSelector;

/// Objects listed per request: bounds the memory of a list, here and there.
pub const PAGE: u32 = 500;

/// How long the first connection may take before the watches open theirs.
const FIRST: Duration = Duration::from_secs(5);

/// How long changes may gather before they are read.
pub const REST: Duration = Duration::from_millis(4);

/// Where a watch puts what it finds.
#[derive(Clone)]
struct Sink {
    inputs: mpsc::Sender<Message>,
    metrics: Metrics,
    pace: Arc<Pace>,
    board: Arc<Board>,
    /// Which nodes are watched; `None`: all.
    nodes: Option<Arc<str>>,
}

impl Sink {
    /// The label selector that a kind is watched with: nodes by the shard's.
    fn labels<T: Watched>(&self) -> Option<String> {
        let nodes = self.nodes.as_deref().filter(|_| T::KIND == Kind::Node);
        nodes.or(T::LABELS).map(str::to_owned)
    }
}

/// Starts the watches' thread. The receiver hears when it has ended: after
/// `shutdown`, or by a panic. Nodes outside the shard are not watched; pods that kubelets
/// refuse are, from when `refusals` is told.
pub fn start(
    config: kube::Config,
    nodes: Option<&NodeSelector>,
    inputs: mpsc::Sender<Message>,
    board: Arc<Board>,
    metrics: Metrics,
    shutdown: Shutdown,
    refusals: Arc<Notify>,
) -> std::io::Result<oneshot::Receiver<()>> {
    let pace = Arc::new(Pace::default());
    let nodes = nodes.map(|nodes| nodes.as_str().into());
    let sink = Sink { inputs, metrics, pace: pace.clone(), board, nodes };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(move || pace.rest())
        .build()?;
    let (alive, ended) = oneshot::channel();
    std::thread::Builder::new().name("watch".to_owned()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                () = follow_all(&config, &sink, &refusals) => {}
                () = shutdown.wait() => {}
            }
        });
        drop(alive);
    })?;
    Ok(ended)
}

/// Follows every kind. Ends only if one of them does. All APIs but nodes and
/// pods are optional: probed first, watched where served.
async fn follow_all(config: &kube::Config, sink: &Sink, refusals: &Arc<Notify>) {
    // The client's tasks belong to this runtime.
    let client = match crate::client::watching(config) {
        Ok(client) => client,
        Err(error) => {
            error!("{error}");
            return;
        }
    };
    // Alone, so that it is the only handshake if one connection does for all kinds.
    let _ = tokio::time::timeout(FIRST, client.apiserver_version()).await;
    let mut kinds = JoinSet::new();
    kinds.spawn(stream::follow::<Node>(client.clone(), sink.clone()));
    kinds.spawn(stream::follow::<Pod>(client.clone(), sink.clone()));
    kinds.spawn(probe::follow_optional::<Namespace>(client.clone(), sink.clone()));
    kinds.spawn(probe::follow_optional::<Service>(client.clone(), sink.clone()));
    kinds.spawn(probe::follow_optional::<ReplicationController>(client.clone(), sink.clone()));
    kinds.spawn(probe::follow_optional::<ReplicaSet>(client.clone(), sink.clone()));
    kinds.spawn(probe::follow_optional::<StatefulSet>(client.clone(), sink.clone()));
    kinds.spawn(probe::follow_optional::<PersistentVolume>(client.clone(), sink.clone()));
    kinds.spawn(probe::follow_optional::<PersistentVolumeClaim>(client.clone(), sink.clone()));
    kinds.spawn(probe::follow_optional::<StorageClass>(client.clone(), sink.clone()));
    kinds.spawn(probe::follow_optional::<CSINode>(client.clone(), sink.clone()));
    kinds.spawn(probe::follow_optional::<CSIDriver>(client.clone(), sink.clone()));
    kinds.spawn(probe::follow_optional::<CSIStorageCapacity>(client.clone(), sink.clone()));
    kinds.spawn(probe::follow_optional::<VolumeAttachment>(client.clone(), sink.clone()));
    kinds.spawn(probe::follow_optional::<PodDisruptionBudget>(client.clone(), sink.clone()));
    kinds.spawn(probe::follow_optional::<PriorityClass>(client.clone(), sink.clone()));
    kinds.spawn(probe::follow_optional::<ClusterTopology>(client.clone(), sink.clone()));
    kinds.spawn(probe::follow_optional::<NodeTopology>(client.clone(), sink.clone()));
    kinds.spawn(probe::follow_optional::<NodeResourceTopology>(client.clone(), sink.clone()));
    kinds.spawn(probe::follow_optional::<SchedulingPolicy>(client.clone(), sink.clone()));
    kinds.spawn(probe::follow_optional::<PodGroup>(client.clone(), sink.clone()));
    kinds.spawn(probe::follow_optional::<NativePodGroup>(client.clone(), sink.clone()));
    kinds.spawn(probe::follow_optional::<CoschedulingPodGroup>(client.clone(), sink.clone()));
    kinds.spawn(follow_ended::<EndedMember>(client.clone(), sink.clone(), Api::Muster));
    kinds.spawn(follow_ended::<EndedNative>(client.clone(), sink.clone(), Api::Native));
    kinds.spawn(follow_ended::<EndedCoscheduled>(client.clone(), sink.clone(), Api::Coscheduling));
    let (sink, refusals) = (sink.clone(), Arc::clone(refusals));
    kinds.spawn(async move {
        refusals.notified().await;
        stream::follow::<RefusedPod>(client, sink).await;
    });
    if let Some(Err(ended)) = kinds.join_next().await
        && ended.is_panic()
    {
        std::panic::resume_unwind(ended.into_panic());
    }
}

/// Members that have ended matter only where there are pod groups; the probe of these
/// tells that there are none.
async fn follow_ended<T: Watched>(client: kube::Client, sink: Sink, api: Api) {
    sink.board.served(api).await;
    stream::follow::<T>(client, sink).await;
}

/// How often the watches' thread wakes up.
///
/// The server sends each change by itself, and waking up costs more than
/// decoding one. So after a turn that found changes the thread rests a little
/// before it looks again; the first change after a silence is seen at once.
#[derive(Default)]
struct Pace {
    busy: AtomicBool,
}

impl Pace {
    /// Changes have arrived.
    fn busy(&self) {
        self.busy.store(true, Ordering::Relaxed);
    }

    /// Called when there is nothing to do but to wait for the server.
    fn rest(&self) {
        if self.busy.swap(false, Ordering::Relaxed) {
            std::thread::sleep(REST);
        }
    }
}

/// A batch on its way to the core's owner.
type Batch = Vec<Input>;
