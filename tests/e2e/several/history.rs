//! Who bound what where, in the order in which the API server wrote it, and which
//! nodes were in which pool meanwhile.
//!
//! Versions of objects are the store's, so those of pods and nodes have one order.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use kube::{Api, Client};
use kube_runtime::watcher::{self, Event, watcher};
use muster::watch::{Guarded, Watched};
use muster_api::k8s::{Node, Pod};
use tokio::task::JoinHandle;

/// A pod appeared on a node.
#[derive(Clone, Debug)]
pub(super) struct Bind {
    pub(super) version: u64,
    pub(super) at: Instant,
    pub(super) pod: String,
    /// Whom the pod names.
    pub(super) scheduler: String,
    pub(super) node: String,
    pub(super) millis: i64,
}

/// A node came, or its labels changed.
#[derive(Clone, Debug)]
pub(super) struct Move {
    pub(super) version: u64,
    pub(super) at: Instant,
    pub(super) node: String,
    pub(super) pool: String,
    /// What it offers.
    pub(super) millis: i64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub(super) binds: Vec<Bind>,
    pub(super) moves: Vec<Move>,
}

/// A bind that asks more of a node than it has left: the kubelet would refuse the pod
/// with OutOfcpu.
#[derive(Clone, Debug)]
pub(super) struct Conflict {
    pub(super) bind: Bind,
    /// How old the oldest bind of others was that this one did not know of. `None`: it
    /// would not even fit beside its own scheduler's pods.
    pub(super) blind: Option<Duration>,
}

/// A bind on a node that is not in its scheduler's pool (any more).
#[derive(Clone, Debug)]
pub(super) struct Stray {
    pub(super) bind: Bind,
    /// How long ago the node had left the pool; `None`: it never was in it.
    pub(super) late: Option<Duration>,
}

impl History {
    /// What nodes offer.
    fn room(&self) -> HashMap<&str, i64> {
        self.moves.iter().map(|m| (m.node.as_str(), m.millis)).collect()
    }

    /// Looks at every node after every bind.
    pub(super) fn conflicts(&self) -> Vec<Conflict> {
        let room = self.room();
        let mut on: BTreeMap<&str, Vec<&Bind>> = BTreeMap::new();
        let mut conflicts = Vec::new();
        for bind in &self.binds {
            let here = on.entry(&bind.node).or_default();
            here.push(bind);
            let room = room.get(bind.node.as_str()).copied().unwrap_or(0);
            let mut taken: i64 = here.iter().map(|b| b.millis).sum();
            if taken <= room {
                continue;
            }
            let mut blind = None;
            for other in here.iter().rev().filter(|b| b.scheduler != bind.scheduler) {
                taken -= other.millis;
                if taken <= room {
                    blind = Some(bind.at.duration_since(other.at));
                    break;
                }
            }
            conflicts.push(Conflict { bind: bind.clone(), blind });
        }
        conflicts
    }

    /// Binds outside the pool of the scheduler, of those that have one.
    pub(super) fn strays(&self, pools: &[(&str, &str)]) -> Vec<Stray> {
        let mut strays = Vec::new();
        for bind in &self.binds {
            let Some((_, pool)) = pools.iter().find(|(name, _)| *name == bind.scheduler) else {
                continue;
            };
            let before =
                self.moves.iter().filter(|m| m.node == bind.node && m.version < bind.version);
            let steps: Vec<&Move> = before.collect();
            if steps.last().is_some_and(|m| m.pool == *pool) {
                continue;
            }
            let was = steps.iter().rposition(|m| m.pool == *pool);
            let left = was.and_then(|at| steps.get(at + 1));
            // The two watches may tell it in another order.
            let late = left.map(|m| bind.at.saturating_duration_since(m.at));
            strays.push(Stray { bind: bind.clone(), late });
        }
        strays
    }

    /// Only what came after this many binds; moves are kept.
    pub(super) fn count(&self, scheduler: &str) -> usize {
        self.binds.iter().filter(|b| b.scheduler == scheduler).count()
    }
}

/// Watches pods and nodes from the side.
pub(super) struct Recorder {
    seen: Arc<Mutex<History>>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Recorder {
    pub(super) fn start(client: &Client) -> Self {
        let seen = Arc::new(Mutex::new(History::default()));
        let pods = tokio::spawn(follow(client.clone(), seen.clone(), note_pod));
        let nodes = tokio::spawn(follow(client.clone(), seen.clone(), note_node));
        Self { seen, tasks: [pods, nodes] }
    }

    /// All so far, in order.
    pub(super) fn history(&self) -> History {
        let mut history = self.seen.lock().unwrap().clone();
        history.binds.sort_by_key(|b| b.version);
        history.moves.sort_by_key(|m| m.version);
        history
    }

    /// Waits until so many pods of a scheduler are bound.
    pub(super) async fn wait(&self, scheduler: &str, pods: usize, limit: Duration) -> Result<()> {
        let begin = Instant::now();
        loop {
            let bound = self.seen.lock().unwrap().count(scheduler);
            if bound >= pods {
                return Ok(());
            }
            ensure!(
                begin.elapsed() < limit,
                "{bound} of {pods} pods of {scheduler} are bound after {limit:?}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn follow<T: Watched>(
    client: Client,
    seen: Arc<Mutex<History>>,
    note: fn(&mut History, &T) -> Result<()>,
) {
    let mut events = pin!(watcher(Api::<Guarded<T>>::all(client), watcher::Config::default()));
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => {
                let object = object.object.expect("a sound object");
                note(&mut seen.lock().unwrap(), &object).expect("an object with a version");
            }
            Ok(_) => {}
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

fn note_pod(history: &mut History, pod: &Pod) -> Result<()> {
    let (name, node) = (&pod.metadata.name, &pod.spec.node_name);
    if node.is_empty() || history.binds.iter().rev().any(|b| b.pod == *name) {
        return Ok(());
    }
    let requests = pod.spec.containers.iter().filter_map(|c| c.resources.requests.get("cpu"));
    history.binds.push(Bind {
        version: pod.metadata.resource_version.parse().context("version")?,
        at: Instant::now(),
        pod: name.clone(),
        scheduler: pod.spec.scheduler_name.clone(),
        node: node.clone(),
        millis: requests.map(|q| q.milli_value()).sum(),
    });
    Ok(())
}

fn note_node(history: &mut History, node: &Node) -> Result<()> {
    let name = &node.metadata.name;
    let pool = node.metadata.labels.get("pool").cloned().unwrap_or_default();
    let last = history.moves.iter().rev().find(|m| m.node == *name);
    if last.is_none_or(|m| m.pool != pool) {
        history.moves.push(Move {
            version: node.metadata.resource_version.parse().context("version")?,
            at: Instant::now(),
            node: name.clone(),
            pool,
            millis: node.status.allocatable.get("cpu").map_or(0, |q| q.milli_value()),
        });
    }
    Ok(())
}

#[test]
fn a_conflict_says_how_old_the_news_was_that_was_missed() {
    let begin = Instant::now();
    let at = |seconds: u64| begin + Duration::from_secs(seconds);
    let bind = |version: u64, scheduler: &str, millis| Bind {
        version,
        at: at(version),
        pod: format!("p{version}"),
        scheduler: scheduler.to_owned(),
        node: "n".to_owned(),
        millis,
    };
    let moved = |version: u64, pool: &str| Move {
        version,
        at: at(version),
        node: "n".to_owned(),
        pool: pool.to_owned(),
        millis: 1000,
    };
    let history = History {
        moves: vec![moved(0, "a"), moved(4, "b")],
        binds: vec![
            bind(1, "a", 400),
            bind(2, "b", 300),
            bind(3, "b", 300),
            bind(6, "a", 200), // 1200: b's 300 of 3 s ago was not known
            bind(7, "a", 500), // 1700, 1100 of them its own
        ],
    };
    let conflicts = history.conflicts();
    let shown: Vec<_> = conflicts.iter().map(|c| (c.bind.version, c.blind)).collect();
    assert_eq!(shown, [(6, Some(Duration::from_secs(3))), (7, None)]);
    let strays = history.strays(&[("a", "a"), ("b", "b")]);
    let shown: Vec<_> = strays.iter().map(|s| (s.bind.version, s.late)).collect();
    let late = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(shown, [(2, None), (3, None), (6, late(2)), (7, late(3))]);
}
