//! Watches every pod from the side and remembers who was bound where and when.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::StreamExt;
use kube::{Api, Client};
use kube_runtime::watcher::{self, Event, watcher};
use muster::watch::Guarded;
use muster_api::k8s::Pod;

/// What was seen of one pod.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub(crate) name: String,
    pub(crate) node: String,
}

#[derive(Default)]
struct Seen {
    /// By UID.
    bound: HashMap<String, Bound>,
    /// Pods whose node changed after it was set: must stay empty.
    moved: Vec<String>,
}

/// A watch of all pods that survives restarts of the API server.
pub(crate) struct Observer {
    seen: Arc<Mutex<Seen>>,
    task: tokio::task::JoinHandle<()>,
}

impl Observer {
    pub(crate) fn start(client: Client) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let task = tokio::spawn(follow(client, seen.clone()));
        Self { seen, task }
    }

    /// Pods bound so far whose name begins with `prefix`.
    pub(crate) fn bound(&self, prefix: &str) -> Vec<Bound> {
        let seen = self.seen.lock().unwrap();
        seen.bound.values().filter(|b| b.name.starts_with(prefix)).cloned().collect()
    }

    pub(crate) fn count(&self, prefix: &str) -> usize {
        let seen = self.seen.lock().unwrap();
        seen.bound.values().filter(|b| b.name.starts_with(prefix)).count()
    }

    /// Waits until `n` pods of that prefix are bound.
    pub(crate) async fn wait(&self, prefix: &str, n: usize, timeout: Duration) -> Result<()> {
        let begin = Instant::now();
        while self.count(prefix) < n {
            ensure!(
                begin.elapsed() < timeout,
                "{} of {n} pods {prefix}* are bound after {timeout:?}",
                self.count(prefix)
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Nobody's node ever changed.
    pub(crate) fn check(&self) -> Result<()> {
        let seen = self.seen.lock().unwrap();
        ensure!(seen.moved.is_empty(), "bound twice: {}", seen.moved.join(", "));
        Ok(())
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(client: Client, seen: Arc<Mutex<Seen>>) {
    let api = Api::<Guarded<Pod>>::all(client);
    let mut events = pin!(watcher(api, watcher::Config::default()));
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(pod) | Event::InitApply(pod)) => {
                if let Ok(pod) = pod.object {
                    note(&mut seen.lock().unwrap(), &pod);
                }
            }
            Ok(_) => {}
            // The API server is away: it comes back.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

fn note(seen: &mut Seen, pod: &Pod) {
    let node = &pod.spec.node_name;
    let uid = &pod.metadata.uid;
    match seen.bound.get(uid) {
        Some(before) if before.node != *node => {
            let text = format!("{} from {} to {node}", before.name, before.node);
            seen.moved.push(text);
        }
        Some(_) => {}
        None if node.is_empty() => {}
        None => {
            let bound = Bound { name: pod.metadata.name.clone(), node: node.clone() };
            seen.bound.insert(uid.clone(), bound);
        }
    }
}
