//! The configuration is reloaded time and again under a stream of pods: none is lost,
//! none is bound twice, each is decided by one version. What cannot be taken up is
//! refused, and the scheduler goes on as it was.

mod plugin;
mod refused;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use muster::run::{Message, Question, Scheduler};
use muster_control_plane::{ControlPlane, create_nodes, node};
use muster_core::QueuedPod;
use muster_core::io::Input;
use serde_json::json;
use tokio::sync::oneshot;

use crate::extender::server::{Answer, Server, pass};
use crate::observer::Observer;
use crate::support::{Cluster, SOON, counted, end, eventually};
use plugin::{Book, Call, NAME, registry};

/// Between two looks at the file.
const LOOK: Duration = Duration::from_millis(10);
const RELOADS: u64 = 200;
/// Pods created before each reload, and after the last one.
const EACH: usize = 2;
const LAST: usize = 30;
const SCHEDULER: &str = "reloaded";
/// How long an extender takes: reloads come meanwhile.
const THINKS: Duration = Duration::from_millis(80);

/// A directory in which a configuration file changes as a mounted ConfigMap does: by one
/// link that is swapped.
struct Mounted {
    dir: tempfile::TempDir,
    file: PathBuf,
    swaps: std::cell::Cell<u64>,
}

impl Mounted {
    fn new(text: &str) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let file = dir.path().join("config.yaml");
        std::os::unix::fs::symlink("..data/config.yaml", &file)?;
        let mounted = Self { dir, file, swaps: std::cell::Cell::new(0) };
        mounted.write(text)?;
        Ok(mounted)
    }

    fn write(&self, text: &str) -> Result<()> {
        self.swaps.set(self.swaps.get() + 1);
        let root = self.dir.path();
        let name = format!("..{}", self.swaps.get());
        std::fs::create_dir(root.join(&name))?;
        std::fs::write(root.join(&name).join("config.yaml"), text)?;
        std::os::unix::fs::symlink(&name, root.join("..tmp"))?;
        std::fs::rename(root.join("..tmp"), root.join("..data"))?;
        Ok(())
    }

    /// The file is gone.
    fn clear(&self) -> Result<()> {
        Ok(std::fs::remove_file(self.dir.path().join("..data"))?)
    }
}

/// What the file says in a version. In every third there is an extender, a new one each
/// time; in every second plugins have other positions.
fn version_text(version: u64, extender: &str) -> String {
    let without = if version % 2 == 1 { "[{name: NodeName}, {name: ImageLocality}]" } else { "[]" };
    let extenders = if asks(version) {
        json!([{
            "urlPrefix": extender, "filterVerb": verb(version), "weight": version,
            "nodeCacheCapable": true, "httpTimeout": "30s",
        }])
    } else {
        json!([])
    };
    format!(
        "apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {{leaderElect: false}}
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: {backoff}
extenders: {extenders}
profiles:
- schedulerName: {SCHEDULER}
  plugins:
    multiPoint: {{enabled: [{{name: {NAME}}}], disabled: {without}}}
  pluginConfig: [{{name: {NAME}, args: {{version: {version}}}}}]
",
        backoff = 1 + version % 2,
    )
}

fn asks(version: u64) -> bool {
    version.is_multiple_of(3)
}

fn verb(version: u64) -> String {
    format!("filter-{version}")
}

fn in_force(scheduler: &Scheduler) -> u64 {
    counted(scheduler.metrics(), "muster_config_version") as u64
}

async fn reloaded(scheduler: &Scheduler, version: u64) -> Result<()> {
    let done = eventually("reloaded", SOON, || async { Ok(in_force(scheduler) >= version) }).await;
    done.with_context(|| format!("version {version}"))
}

/// Gives their word to pods that wait at Permit since before the version in force.
async fn allow(scheduler: &Scheduler, book: &Book, version: u64) -> Result<()> {
    let mut all = std::mem::take(&mut *book.held.lock());
    let later = all.iter().filter(|(_, held)| *held >= version).cloned().collect::<Vec<_>>();
    book.held.lock().extend(later);
    all.retain(|(_, held)| *held < version);
    for (pod, _) in all {
        let input = Input::Permit { pod, plugin: NAME.into(), verdict: Ok(()) };
        scheduler.mailbox().send(Message::Input(input)).await.context("the core has ended")?;
    }
    Ok(())
}

/// Who waits, where, why, and what was last called for it.
async fn waiting(scheduler: &Scheduler, book: &Book) -> Result<Vec<String>> {
    let (answer, heard) = oneshot::channel();
    scheduler.mailbox().send(Message::Ask(Question::Queue(answer))).await.context("ended")?;
    let calls = book.calls.lock().clone();
    let says = |pod: &QueuedPod| {
        let own = pod.pod.rsplit('/').next().and_then(|name| calls.get(name));
        let last: Vec<_> = own.into_iter().flatten().rev().take(12).collect();
        format!("{pod:?}: {last:?}")
    };
    Ok(heard.await?.pods.iter().map(says).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloads_under_a_stream_of_pods_lose_none_and_each_is_decided_by_one_version() -> Result<()>
{
    let cluster = Cluster::start(ControlPlane::builder()).await?;
    create_nodes(&cluster.admin, 6, |i| node(&format!("node-{i}"), "64", "256Gi", 110)).await?;
    let observer = Observer::start(cluster.admin.clone());
    let late = |_: &str, _: &str, question: &_| Answer::Late(THINKS, Box::new(pass(question)));
    let server = Server::start("127.0.0.1:0", None, cluster.admin.clone(), late).await?;
    let url = format!("http://{}", server.address);
    let book = Arc::new(Book::default());
    let file = Mounted::new(&version_text(0, &url))?;
    let scheduler = cluster.following(&file.file, &registry(&book), LOOK).await?;
    for version in 1..=RELOADS {
        cluster.pods_quietly(&format!("v{version}"), EACH, SCHEDULER, version).await?;
        file.write(&version_text(version, &url))?;
        reloaded(&scheduler, version).await?;
        allow(&scheduler, &book, version).await?;
        if version.is_multiple_of(50) {
            cluster.say(&format!("{version} reloads, {} pods are bound", observer.count("v")));
        }
    }
    cluster.pods_quietly("last", LAST, SCHEDULER, 0).await?;
    let created = RELOADS as usize * EACH + LAST;
    let all = eventually("all bound", SOON, || async {
        allow(&scheduler, &book, u64::MAX).await?;
        Ok(observer.count("") == created)
    });
    if let Err(error) = all.await {
        let waiting = waiting(&scheduler, &book).await?;
        return Err(error.context(format!("{} of {created}: {waiting:?}", observer.count(""))));
    }
    // The core hears of its last binds a moment later.
    let told = || book.calls.lock().values().filter(|calls| ends_well(calls)).count();
    eventually("told of every bind", SOON, || async { Ok(told() == created) }).await?;
    observer.check()?;
    cluster.check_room().await?;
    check(&cluster, &book, &server)?;
    let busy = counted(scheduler.metrics(), "muster_config_reloads_total{result=\"busy\"}");
    cluster.say(&format!("{busy} reloads had to wait for attempts under way"));
    let applied = counted(scheduler.metrics(), "muster_config_reloads_total{result=\"applied\"}");
    ensure!(applied == RELOADS as f64, "{applied} applied");
    refused::all(&cluster, &scheduler, &file, &url).await?;
    end(scheduler).await?;
    refused::standby(&cluster).await.context("a standby")?;
    cluster.say("done");
    Ok(())
}

fn ends_well(calls: &[Call]) -> bool {
    calls.last().is_some_and(|call| call.point == "postbind")
}

/// The attempts of a pod: each begins with PreFilter.
fn attempts(calls: &[Call]) -> Vec<&[Call]> {
    let begins: Vec<usize> =
        (0..calls.len()).filter(|at| calls[*at].point == "begin").chain([calls.len()]).collect();
    begins.windows(2).map(|pair| &calls[pair[0]..pair[1]]).collect()
}

/// Every attempt has one version at all its points, every pod is bound by one attempt, and
/// all of this was put to the test.
fn check(cluster: &Cluster, book: &Book, server: &Server) -> Result<()> {
    let calls = book.calls.lock();
    let (mut deciding, mut straddling, mut moved, mut asked) = (BTreeSet::new(), 0, 0, 0);
    for (pod, calls) in &*calls {
        let attempts = attempts(calls);
        ensure!(calls.first().is_some_and(|c| c.point == "begin"), "{pod}: {calls:?}");
        for attempt in &attempts {
            let version = attempt[0].version;
            ensure!(attempt.iter().all(|c| c.version == version), "{pod}: {attempt:?}");
        }
        let binds = calls.iter().filter(|c| c.point == "postbind").count();
        ensure!(binds == 1 && ends_well(calls), "{pod}: {binds} binds: {calls:?}");
        let versions: BTreeSet<u64> = attempts.iter().map(|a| a[0].version).collect();
        moved += usize::from(versions.len() > 1);
        let last = calls[calls.len() - 1];
        straddling += usize::from(last.newest > last.version);
        deciding.insert(last.version);
        if pod.starts_with("last") {
            ensure!(last.version == RELOADS, "{pod} was decided by {}", last.version);
        }
        if asks(last.version) {
            asked += 1;
            let questions = server.asked(&verb(last.version), pod).len();
            ensure!(questions > 0, "{pod}: the extender of {} was not asked", last.version);
        }
    }
    let deciding = deciding.len();
    cluster.say(&format!(
        "{} pods decided by {deciding} versions: {straddling} under way over a reload, {moved} \
         tried by more than one version, {asked} with an extender",
        calls.len()
    ));
    ensure!(deciding >= 50 && straddling >= 20 && moved >= 20 && asked >= 10, "too quiet");
    Ok(())
}
