//! Crashes and restarts, of ours and of the API server.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, Patch, PatchParams};
use muster_control_plane::{ControlPlane, Process};
use serde_json::json;

use crate::observer::Observer;
use crate::support::{Cluster, SOON, eventually};

/// Lease duration plus retry period plus what a slow machine adds.
const TAKEOVER: Duration = Duration::from_secs(20);
/// A released lease is taken at once.
const HANDOVER: Duration = Duration::from_secs(2);

/// SIGKILL in the middle of the work, a standby that takes over after a crash
/// and after an orderly end, and an API server that goes away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn survives_crashes_of_itself_and_of_the_api_server() -> Result<()> {
    let cluster = Cluster::start(ControlPlane::builder()).await?;
    cluster.nodes(500).await?;
    let observer = Observer::start(cluster.admin.clone());
    let second = killed_in_the_middle(&cluster, &observer).await?;
    let third = standby_takes_over(&cluster, &observer, &second).await?;
    let fourth = lease_is_handed_over(&cluster, &observer, &third).await?;
    let fifth = api_server_restarts(&cluster, &observer, &fourth).await?;
    observer.check()?;
    cluster.check_room().await?;
    fifth.terminate()?;
    ensure!(fifth.wait_exit(SOON)? == 0, "exit code after SIGTERM");
    lease_is_taken_away(&cluster).await?;
    cluster.say("done");
    Ok(())
}

async fn killed_in_the_middle(cluster: &Cluster, observer: &Observer) -> Result<Process> {
    cluster.pods("first", 5_000, "muster", "200m").await?;
    let first = cluster.muster("muster-1", &[])?;
    observer.wait("first", 500, SOON).await.with_context(|| first.log_tail(4_000))?;
    first.kill()?;
    let at_death = observer.count("first");
    cluster.say(&format!("killed with {at_death} of 5000 bound"));
    ensure!(at_death < 5_000, "too late to be in the middle");
    let second = cluster.muster("muster-2", &[])?;
    observer
        .wait("first", 5_000, Duration::from_secs(120))
        .await
        .with_context(|| second.log_tail(4_000))?;
    cluster.say("all bound by the second");
    observer.check()?;
    cluster.check_room().await?;
    Ok(second)
}

/// Starts a standby and waits until it has listed everything.
async fn standby(cluster: &Cluster, name: &str) -> Result<Process> {
    let standby = cluster.muster(name, &[])?;
    let begin = Instant::now();
    while !standby.log_tail(20_000).contains("caches are filled") {
        ensure!(begin.elapsed() < SOON, "{}", standby.log_tail(4_000));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(standby)
}

async fn standby_takes_over(
    cluster: &Cluster,
    observer: &Observer,
    leader: &Process,
) -> Result<Process> {
    let standby = standby(cluster, "muster-3").await?;
    leader.kill()?;
    let killed = Instant::now();
    cluster.pods("second", 50, "muster", "100m").await?;
    observer.wait("second", 1, SOON).await.with_context(|| standby.log_tail(4_000))?;
    let took = killed.elapsed();
    cluster.say(&format!("the standby bound {took:?} after SIGKILL"));
    ensure!(took < TAKEOVER, "took over after {took:?}");
    observer.wait("second", 50, SOON).await?;
    Ok(standby)
}

async fn lease_is_handed_over(
    cluster: &Cluster,
    observer: &Observer,
    leader: &Process,
) -> Result<Process> {
    let standby = standby(cluster, "muster-4").await?;
    leader.terminate()?;
    let told = Instant::now();
    let code = leader.wait_exit(SOON)?;
    ensure!(code == 0, "exit code {code}: {}", leader.log_tail(2_000));
    cluster.pods("third", 1, "muster", "100m").await?;
    observer.wait("third", 1, SOON).await.with_context(|| standby.log_tail(4_000))?;
    let took = told.elapsed();
    cluster.say(&format!("the standby bound {took:?} after SIGTERM"));
    ensure!(took < HANDOVER, "handed over after {took:?}");
    Ok(standby)
}

/// The pods wait before the scheduler starts, so that the API server goes away
/// in the middle of the work however slow the machine is.
async fn api_server_restarts(
    cluster: &Cluster,
    observer: &Observer,
    before: &Process,
) -> Result<Process> {
    before.terminate()?;
    ensure!(before.wait_exit(SOON)? == 0, "exit code after SIGTERM");
    cluster.pods("fourth", 1_500, "muster", "100m").await?;
    let muster = cluster.muster("muster-5", &[])?;
    observer.wait("fourth", 200, SOON).await?;
    cluster.cp.stop_api_server()?;
    let bound = observer.count("fourth");
    cluster.say(&format!("API server killed with {bound} of 1500 bound"));
    ensure!(bound < 1_500, "too late to be in the middle");
    cluster.cp.start_api_server()?;
    observer
        .wait("fourth", 1_500, Duration::from_secs(120))
        .await
        .with_context(|| muster.log_tail(4_000))?;
    ensure!(muster.is_running(), "{}", muster.log_tail(4_000));
    cluster.say("all bound after the API server's restart");
    Ok(muster)
}

/// Whoever holds the Lease now may schedule: the old leader must end, and say so
/// by its exit code.
async fn lease_is_taken_away(cluster: &Cluster) -> Result<()> {
    let leader = cluster.muster(
        "muster-6",
        &[
            "--leader-elect-lease-duration=3s",
            "--leader-elect-renew-deadline=2s",
            "--leader-elect-retry-period=500ms",
        ],
    )?;
    let leases: Api<Lease> = Api::namespaced(cluster.admin.clone(), "muster-system");
    eventually("the leader", SOON, || async {
        let spec = leases.get("muster").await?.spec.unwrap_or_default();
        Ok(spec.holder_identity.is_some_and(|holder| !holder.is_empty()))
    })
    .await?;
    let taken = json!({"spec": {"holderIdentity": "another", "leaseDurationSeconds": 60}});
    leases.patch("muster", &PatchParams::default(), &Patch::Merge(taken)).await?;
    let code = leader.wait_exit(SOON)?;
    ensure!(code == 1, "exit code {code} after a lost lease: {}", leader.log_tail(4_000));
    cluster.say("a leader whose lease was taken away has ended");
    Ok(())
}
