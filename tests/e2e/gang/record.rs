//! What a watcher sees of gangs: who was bound when, and how long a part was alone.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::StreamExt;
use kube::{Api, Client};
use kube_runtime::watcher::{self, Event, watcher};
use muster::watch::Guarded;
use muster_api::k8s::Pod;

use super::{LABEL, window};

/// One gang, by the watcher's clock.
#[derive(Clone, Debug, Default)]
pub(super) struct Gang {
    /// When each member was seen bound first, by UID; those that are gone too.
    bound: BTreeMap<String, Instant>,
    /// Members that are bound now.
    now: usize,
    succeeded: usize,
}

impl Gang {
    /// From the first bind to the one that made the minimum.
    fn span(&self, min: usize) -> Option<Duration> {
        let mut times: Vec<Instant> = self.bound.values().copied().collect();
        times.sort_unstable();
        Some(*times.get(min.checked_sub(1)?)? - *times.first()?)
    }

    /// When members were bound, after the first of them.
    fn tell(&self) -> String {
        let first = self.bound.values().min().copied();
        let mut times: Vec<Duration> =
            self.bound.values().filter_map(|at| Some(*at - first?)).collect();
        times.sort_unstable();
        format!("{times:?}")
    }
}

#[derive(Default)]
struct Seen {
    gangs: HashMap<String, Gang>,
    /// Gang, node and whether it has succeeded, by UID.
    pods: HashMap<String, (String, String, bool)>,
    /// Pods whose node changed after it was set: must stay empty.
    moved: Vec<String>,
}

/// A watch of all pods that remembers gangs.
pub(super) struct Record {
    seen: Arc<Mutex<Seen>>,
    task: tokio::task::JoinHandle<()>,
}

impl Record {
    pub(super) fn start(client: Client) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let task = tokio::spawn(follow(client, seen.clone()));
        Self { seen, task }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    fn gang(&self, name: &str) -> Gang {
        self.seen().gangs.get(name).cloned().unwrap_or_default()
    }

    /// Members that are bound now, or have ended well.
    pub(super) fn bound(&self, gang: &str) -> usize {
        self.gang(gang).now
    }

    /// Members that have ended well.
    pub(super) fn succeeded(&self, gang: &str) -> usize {
        self.gang(gang).succeeded
    }

    /// From the first bind to the one that made the minimum.
    pub(super) fn span(&self, gang: &str, min: usize) -> Option<Duration> {
        self.gang(gang).span(min)
    }

    /// Pods of gangs bound so far.
    pub(super) fn total(&self) -> usize {
        self.seen().gangs.values().map(|gang| gang.bound.len()).sum()
    }

    /// Gangs of which some members were bound and fewer than these, and how many.
    pub(super) fn partial(&self, min: usize) -> BTreeMap<String, usize> {
        let seen = self.seen();
        let parts = seen.gangs.iter().filter(|(_, g)| (1..min).contains(&g.bound.len()));
        parts.map(|(name, gang)| (name.clone(), gang.bound.len())).collect()
    }

    /// Waits until it is so.
    pub(super) async fn wait(
        &self,
        what: &str,
        timeout: Duration,
        ready: impl Fn(&Self) -> bool,
    ) -> Result<()> {
        let begin = Instant::now();
        while !ready(self) {
            ensure!(begin.elapsed() < timeout, "not {what} after {timeout:?}: {}", self.tell());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Waits until so many members of a gang are bound.
    pub(super) async fn wait_bound(&self, gang: &str, n: usize, timeout: Duration) -> Result<()> {
        self.wait(&format!("{n} of {gang} bound"), timeout, |r| r.bound(gang) >= n).await
    }

    fn tell(&self) -> String {
        let seen = self.seen();
        let each = seen.gangs.iter().map(|(name, gang)| {
            format!("{name} {} bound, {} now, {} ended", gang.bound.len(), gang.now, gang.succeeded)
        });
        let mut each: Vec<String> = each.collect();
        each.sort_unstable();
        each.join("; ")
    }

    /// Nobody's node ever changed; no gang with this minimum was bound in part for longer
    /// than `limit` (its window without one). The longest time.
    pub(super) fn check(
        &self,
        prefix: &str,
        min: usize,
        limit: Option<Duration>,
    ) -> Result<Duration> {
        let seen = self.seen();
        ensure!(seen.moved.is_empty(), "bound twice: {}", seen.moved.join(", "));
        let (limit, mut longest) = (limit.unwrap_or_else(|| window(min)), Duration::ZERO);
        for (name, gang) in seen.gangs.iter().filter(|(name, _)| name.starts_with(prefix)) {
            if gang.bound.is_empty() {
                continue;
            }
            let Some(span) = gang.span(min) else {
                anyhow::bail!("{name}: {} of {min} were bound, and no more", gang.bound.len());
            };
            ensure!(span <= limit, "{name} was bound in part for {span:?}: {}", gang.tell());
            if span > window(min) {
                eprintln!("{name} was bound in part for {span:?}: {}", gang.tell());
            }
            longest = longest.max(span);
        }
        Ok(longest)
    }
}

impl Drop for Record {
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
                    seen.lock().unwrap().note(&pod);
                }
            }
            Ok(Event::Delete(pod)) => {
                if let Ok(pod) = pod.object {
                    seen.lock().unwrap().gone(&pod);
                }
            }
            Ok(_) => {}
            // The API server is away: it comes back.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

impl Seen {
    fn note(&mut self, pod: &Pod) {
        let Some(name) = pod.metadata.labels.get(LABEL) else { return };
        let (uid, node) = (&pod.metadata.uid, &pod.spec.node_name);
        let gang = self.gangs.entry(name.clone()).or_default();
        if node.is_empty() {
            return;
        }
        let succeeded = pod.status.phase == "Succeeded";
        match self.pods.get_mut(uid) {
            Some((_, before, ended)) => {
                if before != node {
                    let text = format!("{} from {before} to {node}", pod.metadata.name);
                    self.moved.push(text);
                }
                gang.succeeded += usize::from(succeeded && !*ended);
                *ended |= succeeded;
            }
            None => {
                gang.bound.insert(uid.clone(), Instant::now());
                gang.now += 1;
                gang.succeeded += usize::from(succeeded);
                self.pods.insert(uid.clone(), (name.clone(), node.clone(), succeeded));
            }
        }
    }

    fn gone(&mut self, pod: &Pod) {
        if let Some((name, _, _)) = self.pods.remove(&pod.metadata.uid)
            && let Some(gang) = self.gangs.get_mut(&name)
        {
            gang.now -= 1;
        }
    }
}
