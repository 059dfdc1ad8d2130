//! The control plane itself, on the real servers.

use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, PostParams};

use crate::{ControlPlane, GRACE_SECONDS, RUN_SECONDS, bind, create_nodes, create_pods, node, pod};

const PATIENCE: Duration = Duration::from_secs(60);

fn alive(pid: u32) -> bool {
    // A zombie is gone: its parent may be slow to reap it.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn wait_gone(pids: &[u32]) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while pids.iter().any(|pid| alive(*pid)) {
        ensure!(Instant::now() < deadline, "still alive: {pids:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

async fn wait_pod(api: &Api<Pod>, name: &str, what: impl Fn(Option<&Pod>) -> bool) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let pod = api.get_opt(name).await?;
        if what(pod.as_ref()) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{name} is {pod:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn phase(pod: Option<&Pod>) -> Option<&str> {
    pod?.status.as_ref()?.phase.as_deref()
}

/// Starts, serves, authorises, audits, restarts with its objects, and ends.
#[tokio::test]
async fn serves_authorises_and_restarts() -> Result<()> {
    let cp = ControlPlane::builder().audit_log(true).start()?;
    let admin = cp.admin()?;
    assert_eq!(admin.apiserver_version().await?.git_version, "v1.37.1");
    create_pods(&admin, "default", 1, |_| pod("first", "none", "1", "1Gi")).await?;
    let pods: Api<Pod> = Api::default_namespaced(admin);
    let uid = pods.get("first").await?.metadata.uid;
    assert!(uid.is_some());

    let nobody: Api<Pod> = Api::default_namespaced(cp.client("nobody", &["a", "b"])?);
    match nobody.get("first").await {
        Err(kube::Error::Api(status)) => {
            assert_eq!(status.code, 403);
            assert!(status.message.contains(r#"User "nobody" cannot get"#));
        }
        other => panic!("expected a refusal, got {other:?}"),
    }
    let of_nobody = |e: &serde_json::Value| e["user"]["username"] == "nobody";
    let events = cp.audit_events()?;
    let event = events.iter().find(|e| of_nobody(e)).context("no audit event")?;
    assert_eq!(event["user"]["groups"][0], "a");
    assert_eq!(event["user"]["groups"][1], "b");

    cp.restart_api_server()?;
    assert_eq!(pods.get("first").await?.metadata.uid, uid);

    let pids: Vec<u32> = cp.pids().into_iter().map(|(_, pid)| pid).collect();
    let dir = cp.dir().to_owned();
    assert_eq!(pids.len(), 2);
    assert!(pids.iter().all(|pid| alive(*pid)));
    drop(cp);
    assert!(!pids.iter().any(|pid| alive(*pid)));
    assert!(!dir.exists());
    Ok(())
}

/// kwok makes nodes Ready, runs what is bound, ends it, and removes it after
/// its grace period; a controller runs when asked for.
#[tokio::test]
async fn simulates_nodes_and_pods() -> Result<()> {
    let controllers = ["disruption-controller", "node-lifecycle-controller"];
    let cp = ControlPlane::builder().kwok(true).controllers(&controllers).start()?;
    let admin = cp.admin()?;
    create_nodes(&admin, 3, |i| {
        let mut node = node(&format!("node-{i}"), "8", "32Gi", 110);
        if let Some(status) = &mut node.status {
            status.conditions = None;
        }
        node
    })
    .await?;
    let nodes: Api<Node> = Api::all(admin.clone());
    let deadline = Instant::now() + PATIENCE;
    loop {
        // The taint shows that the controller manager works, too.
        let node = nodes.get("node-2").await?;
        let conditions = node.status.and_then(|s| s.conditions).unwrap_or_default();
        let ready = conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
        let taints = node.spec.and_then(|s| s.taints).unwrap_or_default();
        if ready && taints.is_empty() {
            break;
        }
        ensure!(Instant::now() < deadline, "not ready: {conditions:?} {taints:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    let pods: Api<Pod> = Api::default_namespaced(admin.clone());
    let with = |name: &str, key: Option<(&str, &str)>| {
        let mut pod = pod(name, "none", "1", "1Gi");
        pod.metadata.annotations = key.map(|(k, v)| [(k.to_owned(), v.to_owned())].into());
        pod
    };
    for pod in [
        with("stays", None),
        with("ends", Some((RUN_SECONDS, "2"))),
        with("lingers", Some((GRACE_SECONDS, "4"))),
    ] {
        pods.create(&PostParams::default(), &pod).await?;
    }
    for name in ["stays", "ends", "lingers"] {
        bind(&admin, "default", name, "node-0").await?;
        wait_pod(&pods, name, |p| matches!(phase(p), Some("Running" | "Succeeded"))).await?;
    }
    wait_pod(&pods, "ends", |p| phase(p) == Some("Succeeded")).await?;
    assert_eq!(phase(pods.get_opt("stays").await?.as_ref()), Some("Running"));

    let begin = Instant::now();
    pods.delete("lingers", &DeleteParams::default()).await?;
    pods.delete("stays", &DeleteParams::default()).await?;
    wait_pod(&pods, "stays", |p| p.is_none()).await?;
    let at_once = begin.elapsed();
    wait_pod(&pods, "lingers", |p| p.is_none()).await?;
    // The deletion timestamp has whole seconds.
    assert!(begin.elapsed() >= Duration::from_secs(3), "gone after {:?}", begin.elapsed());
    assert!(at_once < begin.elapsed());
    Ok(())
}

/// Servers end with the test: after a panic, and when the process is killed.
#[test]
fn nothing_outlives_a_panic_or_a_kill() -> Result<()> {
    let mut pids = Vec::new();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let cp = ControlPlane::builder().start()?;
        pids = cp.pids().into_iter().map(|(_, pid)| pid).collect();
        std::panic::panic_any(());
        #[expect(unreachable_code, reason = "names the type")]
        anyhow::Ok(())
    }));
    assert!(outcome.is_err());
    assert_eq!(pids.len(), 2);
    assert!(!pids.iter().any(|pid| alive(*pid)));

    let mut child = Command::new(std::env::current_exe()?)
        .args(["--ignored", "--exact", "--nocapture", "tests::hangs_with_servers"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = BufReader::new(child.stdout.take().context("stdout")?);
    let mut pids: Vec<u32> = Vec::new();
    let mut dir = None;
    for line in stdout.lines() {
        let line = line?;
        if let Some(path) = line.split("dir=").nth(1) {
            dir = Some(path.to_owned());
        }
        if let Some(list) = line.split("pids=").nth(1) {
            pids = list.split(',').filter_map(|pid| pid.parse().ok()).collect();
            break;
        }
    }
    child.kill()?;
    child.wait()?;
    assert_eq!(pids.len(), 2);
    wait_gone(&pids)?;
    // Nobody was left to remove it.
    let dir = dir.context("dir")?;
    assert!(dir.contains("muster-control-plane-") && Path::new(&dir).exists());
    std::fs::remove_dir_all(dir)?;
    Ok(())
}

/// The victim of the test above.
#[test]
#[ignore = "started by nothing_outlives_a_panic_or_a_kill"]
fn hangs_with_servers() -> Result<()> {
    let cp = ControlPlane::builder().start()?;
    let pids: Vec<String> = cp.pids().iter().map(|(_, pid)| pid.to_string()).collect();
    println!("dir={}", cp.dir().display());
    println!("pids={}", pids.join(","));
    std::thread::sleep(Duration::from_secs(600));
    Ok(())
}

/// A process: log, exit code, signals, CPU time and memory.
#[test]
fn watches_a_process() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let log = dir.path().join("log");
    let mut command = Command::new("sh");
    command.args(["-c", r#"trap 'exit 7' TERM; echo "$GREETING"; while :; do :; done"#]);
    command.env("GREETING", "hello");
    let process = crate::spawn(&command, &log)?;
    process.wait_until("burning", PATIENCE, || {
        process.log_tail(100) == "hello\n" && process.cpu_seconds().is_ok_and(|s| s > 0.05)
    })?;
    assert!(process.peak_rss_bytes()? > 100_000);
    process.terminate()?;
    assert_eq!(process.wait_exit(PATIENCE)?, 7);
    assert!(process.cpu_seconds().is_err());

    let process = crate::spawn(&command, &log)?;
    process.kill()?;
    assert_eq!(process.exit_code()?, Some(128 + 9));

    let process = crate::spawn(Command::new("sh").args(["-c", "echo no room >&2; exit 3"]), &log)?;
    let error = process.wait_until("ready", PATIENCE, || false);
    let text = format!("{:#}", error.err().context("it is ready")?);
    assert!(text.contains("code 3") && text.contains("no room"), "{text}");
    Ok(())
}

/// Every tool has a pin that can be read.
#[test]
fn pins() -> Result<()> {
    use crate::Tool::{
        Etcd, Helm, KubeApiserver, KubeControllerManager, KubeScheduler, Kubectl, Kwok,
    };
    let all = [Etcd, KubeApiserver, KubeControllerManager, KubeScheduler, Kwok, Helm, Kubectl];
    let versions = all.map(crate::version).into_iter().collect::<Result<Vec<_>>>()?;
    assert_eq!(
        versions,
        ["v3.7.3", "v1.37.1", "v1.37.1", "v1.37.1", "v0.8.0", "v4.3.1", "v0.37.1"]
    );
    Ok(())
}
