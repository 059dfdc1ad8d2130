//! Gangs that push out gangs, with the real disruption controller.
//!
//! Gangs of low priority fill all nodes; half of them have budgets, some have more members
//! than they need. Gangs of three higher priorities arrive in any order, half of them with
//! budgets too. As many run as can, and of them the most important; no budget is ever exceeded
//! as the API shows it, and every gang is whole or gone.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use muster_control_plane::{ControlPlane, create_objects};
use serde_json::{Value, json};

use super::{LABEL, PODS, end, form, is_bound, make, members};
use crate::healthy::Healthy;
use crate::pod_group::install;
use crate::support::{Cluster, eventually};

/// Members of every gang, and CPUs of every node.
const SIZE: usize = 4;
/// For all preemptions, on a slow machine.
const LIMIT: Duration = Duration::from_secs(300);
/// Nothing has moved for so long: nothing will.
const CALM: Duration = Duration::from_secs(12);

/// Classes of gangs that push out others, the most important first.
const CLASSES: [(&str, i32); 3] = [("highest", 3_000), ("higher", 2_000), ("high", 1_000)];

/// A gang that pushes out others.
struct High {
    name: String,
    /// Its class, by position.
    class: usize,
    has_budget: bool,
}

impl High {
    /// The gangs of a run in the order in which they come: drawn by a seed.
    fn draw(run: usize, many: usize) -> Vec<Self> {
        let one = |number: usize| {
            let class = (run * 5 + number * 7 + number / 2) % CLASSES.len();
            Self { name: format!("high-{number:03}"), class, has_budget: number % 2 == 1 }
        };
        (0..many).map(one).collect()
    }
}

/// A gang of low priority.
struct Low {
    name: String,
    /// How many it needs.
    min: usize,
    /// How many must stay, by its budget.
    stay: Option<usize>,
}

impl Low {
    /// The world of a run: drawn by a seed.
    fn draw(run: usize, number: usize) -> Self {
        let dice = (run * 7 + number * 5 + number / 3) % 12;
        let min = if dice.is_multiple_of(3) { SIZE - 1 } else { SIZE };
        let stay = (number % 2 == 1).then_some([SIZE, SIZE - 1, 0][dice % 3]);
        Self { name: format!("low-{number:03}"), min, stay }
    }

    /// How much room it can be made to give.
    fn gives(&self) -> usize {
        let allowed = SIZE - self.stay.unwrap_or(0);
        if allowed == SIZE { SIZE } else { allowed.min(SIZE - self.min) }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gangs_push_out_gangs_and_break_no_budget() -> Result<()> {
    for run in 0..form(1, 10) {
        play(run).await.with_context(|| format!("run {run}"))?;
    }
    Ok(())
}

async fn play(run: usize) -> Result<()> {
    let (few, many) = (form(8, 100), form(6, 100));
    let builder = ControlPlane::builder().controllers(&["disruption-controller"]);
    let cluster = Cluster::start(builder.kwok(true)).await?;
    install(&cluster).await?;
    for (class, value) in CLASSES {
        cluster.priority_class(class, value, "PreemptLowerPriority").await?;
    }
    cluster.nodes(few).await?;
    let muster = cluster.muster("muster", &["--leader-elect=false", "-v", "2"])?;
    let lows: Vec<Low> = (0..few).map(|number| Low::draw(run, number)).collect();
    let played = async {
        fill(&cluster, &lows).await.context("low gangs")?;
        let minima = lows.iter().filter_map(|low| Some((low.name.clone(), low.stay?)));
        let healthy = Healthy::watch(&cluster.admin, minima.collect());
        let highs = High::draw(run, many);
        for high in &highs {
            if high.has_budget {
                // All may go; but one after the other, as the controller counts them.
                budget(&cluster, &high.name, 0).await?;
            }
            gang(&cluster, &high.name, SIZE, CLASSES[high.class].0).await?;
        }
        let can = (lows.iter().map(Low::gives).sum::<usize>() / SIZE).min(many);
        settled(&cluster, &highs, can).await?;
        healthy.check()?;
        for low in &lows {
            let bound = members(&cluster, &low.name).await?.iter().filter(|p| is_bound(p)).count();
            let whole = bound == 0 || bound >= low.min;
            ensure!(whole, "{}: {bound} of {} are left", low.name, low.min);
        }
        cluster.say(&format!("{can} of {many} gangs run, {} pods went", healthy.went()));
        cluster.check_room().await
    };
    played.await.with_context(|| muster.log_tail(8_000))?;
    end(&muster)
}

/// Creates a gang with its pods.
async fn gang(cluster: &Cluster, name: &str, min: usize, class: &str) -> Result<()> {
    make(cluster, name, &json!({"minMember": min})).await?;
    create_objects(&cluster.admin, PODS, "pods", SIZE, |i| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("{name}-{i}"), "labels": {"app": name, LABEL: name}},
            "spec": {
                "schedulerName": "muster", "priorityClassName": class,
                "automountServiceAccountToken": false,
                "containers": [{"name": "main", "image": "example.invalid/none",
                    "resources": {"requests": {"cpu": "1", "memory": "16Mi"}}}],
            },
        })
    })
    .await
}

/// All nodes are full of gangs, and all budgets counted.
async fn fill(cluster: &Cluster, lows: &[Low]) -> Result<()> {
    for low in lows {
        gang(cluster, &low.name, low.min, "").await?;
        if let Some(stay) = low.stay {
            budget(cluster, &low.name, stay).await?;
        }
    }
    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(cluster.admin.clone());
    eventually("full and healthy", LIMIT, || async {
        let pods: Vec<Value> = cluster.list(PODS).await?;
        let list = budgets.list(&kube::api::ListParams::default()).await?;
        let mut all = list.items.iter().map(|b| b.status.as_ref().map_or(0, |s| s.current_healthy));
        let whole = i32::try_from(SIZE)?;
        Ok(pods.len() == lows.len() * SIZE
            && pods.iter().all(is_bound)
            && all.all(|healthy| healthy == whole))
    })
    .await?;
    cluster.say("all nodes are full of gangs");
    Ok(())
}

async fn budget(cluster: &Cluster, gang: &str, stay: usize) -> Result<()> {
    cluster
        .create(&json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": gang, "namespace": "default"},
            "spec": {"minAvailable": stay, "selector": {"matchLabels": {"app": gang}}},
        }))
        .await
}

/// So many gangs run, the most important; the others wait whole, or are gone, and nothing moves
/// any more.
async fn settled(cluster: &Cluster, highs: &[High], can: usize) -> Result<()> {
    let mut best: Vec<usize> = highs.iter().map(|high| high.class).collect();
    best.sort_unstable();
    best.truncate(can);
    let last = std::sync::Mutex::new((String::new(), std::time::Instant::now()));
    let waited = eventually("settled", LIMIT, || async {
        let pods: Vec<Value> = cluster.list(PODS).await?;
        let mut bound: BTreeMap<&str, usize> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| is_bound(pod)) {
            *bound
                .entry(pod["metadata"]["labels"]["app"].as_str().unwrap_or_default())
                .or_default() += 1;
        }
        let going = pods.iter().filter(|p| !p["metadata"]["deletionTimestamp"].is_null()).count();
        let members = |high: &&High| bound.get(high.name.as_str()).copied().unwrap_or(0);
        let whole = highs.iter().filter(|high| members(high) == SIZE);
        let mut classes: Vec<usize> = whole.map(|high| high.class).collect();
        classes.sort_unstable();
        let (run, part) =
            (classes.len(), highs.iter().any(|high| (1..SIZE).contains(&members(&high))));
        ensure!(run <= can, "{run} run where {can} can");
        let now = format!("{classes:?} of {best:?} run, {going} leave; {} pods", pods.len());
        let mut last = last.lock().unwrap();
        if last.0 != now {
            *last = (now, std::time::Instant::now());
        }
        Ok(classes == best && going == 0 && !part && last.1.elapsed() > CALM)
    })
    .await;
    let last = last.lock().unwrap().0.clone();
    let words: Vec<String> = match waited {
        Ok(()) => Vec::new(),
        Err(_) => {
            let pods: Vec<Value> = cluster.list(PODS).await?;
            let waits = pods.iter().filter(|pod| !is_bound(pod));
            waits
                .map(|pod| format!("{}: {}", pod["metadata"]["name"], super::scheduled(pod)))
                .collect()
        }
    };
    waited.with_context(|| format!("{last}\n{}", words.join("\n")))
}
