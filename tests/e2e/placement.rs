//! Five thousand pods on five hundred nodes.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use muster_api::k8s::Pod;
use muster_control_plane::{ControlPlane, create_nodes, create_pods, node, pod};
use serde_json::Value;

use crate::observer::Observer;
use crate::support::{Cluster, SOON, USER, eventually};

const NODES: usize = 500;
const PODS: usize = 5_000;

/// Bound exactly once, nothing overcommitted, others untouched; what does not
/// fit says why and is placed when room comes; the cache is the API server's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_five_thousand_pods() -> Result<()> {
    let cluster = Cluster::start(ControlPlane::builder().kwok(true).audit_log(true)).await?;
    cluster.nodes(NODES).await?;
    // 13 pods fill a node's CPU: there is room for 6,500.
    cluster.pods("work", PODS, "muster", "300m").await?;
    cluster.pods("foreign", 20, "other", "100m").await?;
    let observer = Observer::start(cluster.admin.clone());
    let muster = cluster.muster("muster", &["-v", "2"])?;
    let begin = Instant::now();
    let all = observer.wait("work", PODS, Duration::from_secs(120)).await;
    all.with_context(|| muster.log_tail(4_000))?;
    let cpu = muster.cpu_seconds()?;
    cluster.say(&format!(
        "{PODS} pods bound in {:.1} s with {cpu:.1} CPU s, peak {} MiB",
        begin.elapsed().as_secs_f64(),
        muster.peak_rss_bytes()? >> 20
    ));
    cluster.check_room().await?;
    foreign_pods_are_untouched(&cluster).await?;
    unschedulable_pods_say_why(&cluster, &observer).await?;
    odd_objects_do_not_stop_it(&cluster, &observer).await?;
    the_cache_is_right(&cluster, &muster).await?;
    observer.check()?;
    muster.terminate()?;
    ensure!(muster.wait_exit(SOON)? == 0, "exit code after SIGTERM");
    one_bind_each(&cluster)?;
    cluster.say("done");
    Ok(())
}

async fn foreign_pods_are_untouched(cluster: &Cluster) -> Result<()> {
    let pods: Vec<Pod> = cluster.list("/api/v1/namespaces/default/pods").await?;
    let foreign: Vec<_> = pods.iter().filter(|p| p.spec.scheduler_name == "other").collect();
    ensure!(foreign.len() == 20, "{} foreign pods", foreign.len());
    for pod in foreign {
        ensure!(
            pod.spec.node_name.is_empty() && pod.status.conditions.is_empty(),
            "touched: {pod:?}"
        );
    }
    Ok(())
}

async fn unschedulable_pods_say_why(cluster: &Cluster, observer: &Observer) -> Result<()> {
    let expected = format!("0/{NODES} nodes are available: {NODES} Insufficient cpu.");
    cluster.pods("huge", 1, "muster", "64").await?;
    let said = eventually("told why", SOON, || async {
        let pod = cluster.get_pod("huge-0000").await?;
        let conditions = &pod.status.conditions;
        Ok(conditions.iter().any(|c| {
            c.kind == "PodScheduled"
                && c.status == "False"
                && c.reason == "Unschedulable"
                && c.message.starts_with(&expected)
        }))
    });
    said.await?;
    cluster.say("an unschedulable pod has its condition");
    let events: Api<Event> = Api::default_namespaced(cluster.admin.clone());
    let of_pod = ListParams::default().fields("regarding.name=huge-0000");
    eventually("recorded as an event", SOON, || async {
        let found = events.list(&of_pod).await?.items;
        Ok(found.iter().any(|e| {
            e.reason.as_deref() == Some("FailedScheduling")
                && e.type_.as_deref() == Some("Warning")
                && e.action.as_deref() == Some("Scheduling")
                && e.reporting_controller.as_deref() == Some("muster")
                && e.note.as_deref().is_some_and(|n| n.starts_with(&expected))
        }))
    })
    .await?;
    cluster.say("and its event");
    create_nodes(&cluster.admin, 1, |_| node("big", "64", "64Gi", 110)).await?;
    observer.wait("huge", 1, SOON).await?;
    ensure!(observer.bound("huge")[0].node == "big");
    let note = "Successfully assigned default/huge-0000 to big";
    eventually("recorded as scheduled", SOON, || async {
        let found = events.list(&of_pod).await?.items;
        Ok(found.iter().any(|e| e.note.as_deref() == Some(note)))
    })
    .await?;
    cluster.say("an unschedulable pod said why and was placed");
    Ok(())
}

/// Objects that the API accepts and that no sane user writes.
async fn odd_objects_do_not_stop_it(cluster: &Cluster, observer: &Observer) -> Result<()> {
    create_nodes(&cluster.admin, 1, |_| {
        let mut node = node("odd", "0", "0", 0);
        node.status = None;
        node
    })
    .await?;
    create_pods(&cluster.admin, "default", 1, |_| {
        let mut odd = pod("gated-0000", "muster", "100m", "1Mi");
        if let Some(spec) = &mut odd.spec {
            spec.scheduling_gates = Some(vec![Default::default()]);
            spec.scheduling_gates.as_mut().unwrap()[0].name = "example.com/wait".to_owned();
        }
        odd
    })
    .await?;
    create_pods(&cluster.admin, "default", 1, |_| {
        let mut odd = pod("odd-0000", "muster", "0.0001", "1.5e3");
        odd.metadata.labels = Some((0..200).map(|i| (format!("l{i}"), "x".repeat(63))).collect());
        odd
    })
    .await?;
    observer.wait("odd", 1, SOON).await?;
    ensure!(observer.count("gated") == 0, "a gated pod was bound");
    Ok(())
}

/// SIGUSR2 compares the cache with the API server.
async fn the_cache_is_right(
    cluster: &Cluster,
    muster: &muster_control_plane::Process,
) -> Result<()> {
    muster.user_signal()?;
    eventually("compared", SOON, || async {
        let log = muster.log_tail(200_000);
        ensure!(!log.contains("the cache differs"), "{}", muster.log_tail(4_000));
        Ok(log.contains("the cache equals the API server"))
    })
    .await?;
    cluster.say("the cache equals the API server");
    Ok(())
}

/// The audit log has exactly one successful bind per pod, by us.
fn one_bind_each(cluster: &Cluster) -> Result<()> {
    let mut binds: HashMap<String, usize> = HashMap::new();
    for event in cluster.cp.audit_events()? {
        let text = |path: &str| event.pointer(path).and_then(Value::as_str).unwrap_or("");
        let code = event.pointer("/responseStatus/code").and_then(Value::as_u64);
        let is_bind = text("/objectRef/subresource") == "binding";
        if is_bind && code.is_some_and(|c| c < 300) {
            ensure!(text("/user/username") == USER, "bound by another: {event}");
            *binds.entry(text("/objectRef/name").to_owned()).or_default() += 1;
        }
    }
    let twice: Vec<_> = binds.iter().filter(|(_, n)| **n != 1).collect();
    ensure!(twice.is_empty(), "bound more than once: {twice:?}");
    // The work, the huge one and the odd one.
    ensure!(binds.len() == PODS + 2, "{} pods were bound", binds.len());
    Ok(())
}
