//! The election on a real API server, under Muster's own role, with
//! kube-scheduler as a rival for the same Lease.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::{Api, DeleteParams};
use muster::elect::{ElectConfig, ElectError, Leadership, start};
use muster::run::Shutdown;
use muster_control_plane::{ControlPlane, Tool, binary};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::support::{Cluster, GROUPS, SOON, USER};

const NAMESPACE: &str = "muster-system";
const NAME: &str = "muster";
/// Faster than the defaults of 15, 10 and 2 s, in about the same proportion.
const LEASE: Duration = Duration::from_secs(6);
const RENEW: Duration = Duration::from_secs(4);
const RETRY: Duration = Duration::from_secs(1);
/// A release must be noticed within this.
const HANDOVER: Duration = Duration::from_secs(2);

struct Candidate {
    name: &'static str,
    leadership: Leadership,
    handle: JoinHandle<Result<(), ElectError>>,
    shutdown: Shutdown,
}

impl Candidate {
    fn new(cluster: &Cluster, name: &'static str) -> Result<Self> {
        let mut config = cluster.cp.config(USER, &GROUPS)?;
        config.default_retry = false;
        let cfg = ElectConfig {
            namespace: NAMESPACE.to_owned(),
            name: NAME.to_owned(),
            identity: name.to_owned(),
            lease_duration: LEASE,
            renew_deadline: RENEW,
            retry_period: RETRY,
            schedules: String::new(),
        };
        let shutdown = Shutdown::new();
        let (leadership, handle) = start(config.try_into()?, cfg, shutdown.clone());
        Ok(Self { name, leadership, handle, shutdown })
    }

    /// Waits for the next change, which must be to this.
    async fn becomes(&mut self, leader: bool, within: Duration) -> Result<Duration> {
        let begin = Instant::now();
        let changed = timeout(within, self.leadership.changed()).await;
        changed.with_context(|| format!("{} did not change within {within:?}", self.name))?;
        ensure!(self.leadership.is_leader() == leader, "{} changed to the other", self.name);
        Ok(begin.elapsed())
    }

    async fn stays_out(&mut self, during: Duration) -> Result<()> {
        let changed = timeout(during, self.leadership.changed()).await;
        ensure!(changed.is_err(), "{} leads beside another", self.name);
        Ok(())
    }

    async fn end(self) -> Result<Result<(), ElectError>> {
        Ok(timeout(SOON, self.handle).await.context("no end")??)
    }
}

async fn lease(cluster: &Cluster) -> Result<LeaseSpec> {
    let api: Api<Lease> = Api::namespaced(cluster.admin.clone(), NAMESPACE);
    Ok(api.get(NAME).await?.spec.unwrap_or_default())
}

async fn held_by(cluster: &Cluster, holder: &str, transitions: i32) -> Result<()> {
    let lease = lease(cluster).await?;
    let found = (lease.holder_identity.as_deref(), lease.lease_transitions);
    ensure!(found == (Some(holder), Some(transitions)), "{found:?}");
    Ok(())
}

/// One Lease goes through many hands: created, released, left by a crash, lost
/// with the API server, deleted, and shared with client-go's elector.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lease_changes_hands() -> Result<()> {
    let cluster = Cluster::start(ControlPlane::builder()).await?;
    let mut a = Candidate::new(&cluster, "a")?;
    a.becomes(true, SOON).await?;
    held_by(&cluster, "a", 0).await?;
    let b = released(&cluster, a).await?;
    let c = crashed(&cluster, b).await?;
    let d = deleted(&cluster, c).await?;
    let e = without_api_server(&cluster, d).await?;
    beside_kube_scheduler(&cluster, e).await?;
    cluster.say("done");
    Ok(())
}

async fn released(cluster: &Cluster, a: Candidate) -> Result<Candidate> {
    let mut b = Candidate::new(cluster, "b")?;
    // Longer than a lease: renewals are seen and keep b out.
    b.stays_out(LEASE + RETRY).await?;
    a.shutdown.trigger();
    let took = b.becomes(true, HANDOVER).await?;
    cluster.say(&format!("released: taken over after {took:?}"));
    a.end().await??;
    held_by(cluster, "b", 1).await?;
    Ok(b)
}

async fn crashed(cluster: &Cluster, b: Candidate) -> Result<Candidate> {
    let mut c = Candidate::new(cluster, "c")?;
    c.stays_out(2 * RETRY).await?;
    b.handle.abort();
    let crashed = Instant::now();
    let until = b.leadership.may_write_until().context("b leads")?;
    c.becomes(true, LEASE + RETRY).await?;
    ensure!(Instant::now() > until, "the crashed leader could still have written");
    cluster.say(&format!("crashed: taken over after {:?}", crashed.elapsed()));
    held_by(cluster, "c", 2).await?;
    Ok(c)
}

/// Somebody deletes the Lease: whoever leads makes it again.
async fn deleted(cluster: &Cluster, c: Candidate) -> Result<Candidate> {
    let api: Api<Lease> = Api::namespaced(cluster.admin.clone(), NAMESPACE);
    api.delete(NAME, &DeleteParams::default()).await?;
    let begin = Instant::now();
    while api.get_opt(NAME).await?.is_none() {
        ensure!(begin.elapsed() < SOON, "nobody made the lease again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    ensure!(c.leadership.is_leader(), "c leads on");
    held_by(cluster, "c", 0).await?;
    Ok(c)
}

/// The API server is away for longer than the renew deadline: the leader stops
/// in time, and when it is back the standby leads.
async fn without_api_server(cluster: &Cluster, mut d: Candidate) -> Result<Candidate> {
    let mut e = Candidate::new(cluster, "e")?;
    e.stays_out(2 * RETRY).await?;
    cluster.cp.stop_api_server()?;
    let gone = Instant::now();
    ensure!(d.leadership.is_leader(), "a moment without API server is survived");
    d.becomes(false, RENEW + RETRY).await?;
    cluster.say(&format!("no API server: stopped leading after {:?}", gone.elapsed()));
    match d.end().await? {
        Err(ElectError::Lost { .. }) => {}
        other => anyhow::bail!("expected a loss, got {other:?}"),
    }
    tokio::time::sleep_until(gone + LEASE + RETRY).await;
    ensure!(!e.leadership.is_leader(), "nobody can lead now");
    cluster.cp.start_api_server()?;
    let took = e.becomes(true, SOON).await?;
    cluster.say(&format!("API server back: taken over after {took:?}"));
    held_by(cluster, "e", 1).await?;
    Ok(e)
}

/// client-go's elector and ours respect each other's records.
async fn beside_kube_scheduler(cluster: &Cluster, e: Candidate) -> Result<()> {
    let mut command = Command::new(binary(Tool::KubeScheduler)?);
    let kubeconfig = cluster.cp.admin_kubeconfig()?;
    let flag = |name: &str, value: &str| format!("--leader-elect-{name}={value}");
    command.arg("--kubeconfig").arg(&kubeconfig).arg("--secure-port=0").args([
        flag("resource-name", NAME),
        flag("resource-namespace", NAMESPACE),
        flag("lease-duration", &format!("{}s", LEASE.as_secs())),
        flag("renew-deadline", &format!("{}s", RENEW.as_secs())),
        flag("retry-period", &format!("{}s", RETRY.as_secs())),
    ]);
    let rival = cluster.cp.spawn("kube-scheduler", &command)?;
    // It waits while ours leads.
    rival.wait_until("a candidate", SOON, || {
        rival.log_tail(100_000).contains("Attempting to acquire leader lease")
    })?;
    tokio::time::sleep(LEASE + RETRY).await;
    held_by(cluster, "e", 1).await?;

    // It takes what ours has released, and keeps ours out.
    e.shutdown.trigger();
    e.end().await??;
    let begin = Instant::now();
    while lease(cluster).await?.holder_identity.is_none_or(|holder| holder.is_empty()) {
        ensure!(begin.elapsed() < SOON, "{}", rival.log_tail(4_000));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    cluster.say(&format!("kube-scheduler took over after {:?}", begin.elapsed()));
    ensure!(lease(cluster).await?.lease_transitions == Some(2), "a transition");
    let mut f = Candidate::new(cluster, "f")?;
    f.stays_out(LEASE + RETRY).await?;

    // It crashes, and ours takes over.
    rival.kill()?;
    let took = f.becomes(true, LEASE + 2 * RETRY).await?;
    cluster.say(&format!("kube-scheduler crashed: taken over after {took:?}"));
    held_by(cluster, "f", 3).await?;
    f.shutdown.trigger();
    f.end().await??;
    held_by(cluster, "", 3).await
}
