//! Watches pods and budgets from the side, and remembers any moment at which an app
//! had fewer healthy pods than it must.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{Api, Client};
use kube_runtime::watcher::{self, Event, watcher};
use serde_json::Value;
use tokio::task::JoinHandle;

#[derive(Default)]
struct Seen {
    /// How many of an app must stay healthy.
    minima: BTreeMap<String, usize>,
    /// Healthy pods by name: app and node.
    healthy: BTreeMap<String, (String, String)>,
    /// Pods that were healthy and went: name and node.
    went: BTreeMap<String, String>,
    wrong: Vec<String>,
    /// Whether the first list is complete.
    listed: bool,
}

pub(crate) struct Healthy {
    seen: Arc<Mutex<Seen>>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Healthy {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// The value of a pod's label `app`.
pub(crate) fn app_of(pod: &Value) -> &str {
    pod.pointer("/metadata/labels/app").and_then(Value::as_str).unwrap_or_default()
}

impl Healthy {
    /// Begins to watch; every app must have its minimum by now.
    pub(crate) fn watch(client: &Client, minima: BTreeMap<String, usize>) -> Self {
        let seen = Arc::new(Mutex::new(Seen { minima, ..Seen::default() }));
        let pods = tokio::spawn(follow_pods(client.clone(), seen.clone()));
        let budgets = tokio::spawn(follow_budgets(client.clone(), seen.clone()));
        Self { seen, tasks: [pods, budgets] }
    }

    pub(crate) fn set_minimum(&self, app: &str, least: usize) {
        self.seen.lock().unwrap().minima.insert(app.to_owned(), least);
    }

    pub(crate) fn minima(&self) -> BTreeMap<String, usize> {
        self.seen.lock().unwrap().minima.clone()
    }

    /// How many pods that were healthy went.
    pub(crate) fn went(&self) -> usize {
        self.seen.lock().unwrap().went.len()
    }

    /// Their names.
    pub(crate) fn names(&self) -> Vec<String> {
        self.seen.lock().unwrap().went.keys().cloned().collect()
    }

    pub(crate) fn went_by_node(&self) -> BTreeMap<String, usize> {
        let mut nodes = BTreeMap::new();
        for node in self.seen.lock().unwrap().went.values() {
            *nodes.entry(node.clone()).or_default() += 1;
        }
        nodes
    }

    /// No budget was ever exceeded.
    pub(crate) fn check(&self) -> Result<()> {
        let seen = self.seen.lock().unwrap();
        ensure!(seen.listed, "nothing was watched");
        ensure!(seen.wrong.is_empty(), "budgets were exceeded: {}", seen.wrong.join("; "));
        Ok(())
    }
}

impl Seen {
    /// A pod is now this; `gone`: it is no more.
    fn pod(&mut self, pod: &Pod, gone: bool) {
        let metadata = &pod.metadata;
        let name = metadata.name.clone().unwrap_or_default();
        let app = metadata.labels.as_ref().and_then(|l| l.get("app")).cloned().unwrap_or_default();
        if !self.minima.contains_key(&app) {
            return;
        }
        let status = pod.status.as_ref();
        let ready = status
            .and_then(|s| s.conditions.as_ref())
            .is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True"));
        let node = pod.spec.as_ref().and_then(|s| s.node_name.clone()).unwrap_or_default();
        if ready && !gone && metadata.deletion_timestamp.is_none() {
            self.healthy.insert(name, (app, node));
            return;
        }
        if self.healthy.remove(&name).is_some() {
            self.went.insert(name, node);
            self.count(&app);
        }
    }

    fn count(&mut self, app: &str) {
        let least = self.minima.get(app).copied().unwrap_or_default();
        let now = self.healthy.values().filter(|(own, _)| own == app).count();
        if self.listed && now < least {
            self.wrong.push(format!("{app} has {now} healthy pods of {least}"));
        }
    }

    fn budget(&mut self, budget: &PodDisruptionBudget) {
        let Some(status) = &budget.status else { return };
        // What was counted for an older budget says nothing.
        let counted = status.observed_generation == budget.metadata.generation;
        if counted && status.current_healthy < status.desired_healthy {
            self.wrong.push(format!(
                "budget {:?} has {} healthy pods of {}",
                budget.metadata.name, status.current_healthy, status.desired_healthy
            ));
        }
    }
}

async fn follow_pods(client: Client, seen: Arc<Mutex<Seen>>) {
    let mut events =
        pin!(watcher(Api::<Pod>::default_namespaced(client), watcher::Config::default()));
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(pod) | Event::InitApply(pod)) => seen.lock().unwrap().pod(&pod, false),
            Ok(Event::Delete(pod)) => seen.lock().unwrap().pod(&pod, true),
            Ok(Event::InitDone) => {
                let mut seen = seen.lock().unwrap();
                seen.listed = true;
                let apps: Vec<String> = seen.minima.keys().cloned().collect();
                apps.iter().for_each(|app| seen.count(app));
            }
            Ok(Event::Init) => {}
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn follow_budgets(client: Client, seen: Arc<Mutex<Seen>>) {
    let api = Api::<PodDisruptionBudget>::default_namespaced(client);
    let mut events = pin!(watcher(api, watcher::Config::default()));
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(budget) | Event::InitApply(budget)) => {
                seen.lock().unwrap().budget(&budget);
            }
            Ok(_) => {}
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}
