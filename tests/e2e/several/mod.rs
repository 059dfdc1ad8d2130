//! Several schedulers on one cluster: two Musters and the real kube-scheduler.
//!
//! On nodes of their own (shards) they never take more than there is; on shared nodes
//! they meet, and how often is measured.

mod disjoint;
mod history;
mod shared;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use muster_control_plane::{ControlPlane, Process, create_pods, pod};
use serde_json::{Value, json};

use self::history::{Conflict, Recorder};
use crate::support::{Cluster, SOON, eventually};

/// Pods of each kind ask for this much.
const POD: &str = "500m";
/// Nodes offer this much: room for eight pods.
const NODE: &str = "4";
const PODS_PER_NODE: usize = 8;

/// One of the schedulers.
struct Player {
    /// `spec.schedulerName` of its pods.
    name: &'static str,
    /// The value of `pool` on its nodes, where it has nodes of its own.
    pool: &'static str,
    /// As whom it talks to the API server.
    user: String,
    process: Process,
}

/// The name that the API server gives to pods which name nobody.
const DEFAULT: &str = "default-scheduler";
const TEAM: &str = "team-a";
const UPSTREAM: &str = "kube-scheduler-c";

/// Pool by scheduler.
const POOLS: [(&str, &str); 3] = [(TEAM, "a"), (DEFAULT, "b"), (UPSTREAM, "c")];

/// A cluster that records who asked for what.
async fn cluster() -> Result<Cluster> {
    let cluster = Cluster::start(ControlPlane::builder().audit_log(true)).await?;
    for pool in ["a", "b"] {
        permit(&cluster, &format!("muster-{pool}")).await?;
    }
    Ok(cluster)
}

/// The rights of one more Muster: those of the first, and a Lease of its own.
async fn permit(cluster: &Cluster, name: &str) -> Result<()> {
    let group = "rbac.authorization.k8s.io";
    let subjects = json!([{"kind": "User", "name": user(name), "apiGroup": group}]);
    let metadata = json!({"name": name, "namespace": "muster-system"});
    let api = format!("{group}/v1");
    for object in [
        json!({"apiVersion": api, "kind": "ClusterRoleBinding", "metadata": {"name": name},
               "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "muster"},
               "subjects": subjects}),
        json!({"apiVersion": api, "kind": "Role", "metadata": metadata, "rules": [
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
             "resourceNames": [name], "verbs": ["get", "list", "watch", "update"]}]}),
        json!({"apiVersion": api, "kind": "RoleBinding", "metadata": metadata,
               "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
               "subjects": subjects}),
    ] {
        cluster.create(&object).await?;
    }
    Ok(())
}

fn user(name: &str) -> String {
    format!("system:serviceaccount:muster-system:{name}")
}

/// Starts a Muster for one scheduler name, with a Lease of its own. `lease`: its name,
/// and that of its log and identity.
fn muster(
    cluster: &Cluster,
    lease: &str,
    log: &str,
    scheduler: &str,
    flags: &[&str],
) -> Result<Process> {
    let kubeconfig = cluster.cp.kubeconfig(&user(lease), &[])?;
    let config = cluster.cp.dir().join(format!("{log}.yaml"));
    let text = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"resourceName": lease, "resourceNamespace": "muster-system"},
        "clientConnection": {"kubeconfig": kubeconfig, "qps": 5_000, "burst": 5_000},
        "profiles": [{"schedulerName": scheduler}],
    });
    std::fs::write(&config, text.to_string())?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
    command.args(["run", "--secure-port=0", "--config"]).arg(config).args(flags);
    cluster.cp.spawn(log, &command)
}

/// Starts kube-scheduler under a name of its own, on the nodes of a pool or on all.
fn upstream(cluster: &Cluster, pool: Option<&str>) -> Result<Process> {
    // Its files and flags, with another configuration.
    let command = cluster.cp.kube_scheduler(&[])?;
    let path = cluster.cp.dir().join("scheduler.yaml");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
    let mut profile = json!({"schedulerName": UPSTREAM});
    if let Some(pool) = pool {
        profile["pluginConfig"] = json!([{"name": "NodeAffinity", "args": {
            "addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [
                    {"key": "pool", "operator": "In", "values": [pool]}]}]}}}}]);
    }
    config["profiles"] = json!([profile]);
    std::fs::write(&path, config.to_string())?;
    cluster.cp.spawn("kube-scheduler", &command)
}

/// The two Musters and kube-scheduler, each on its pool or all on all nodes.
fn players(cluster: &Cluster, sharded: bool) -> Result<[Player; 3]> {
    let flags = |selector: &'static str, seed: &'static str| {
        let seed = ["--seed", seed];
        if sharded { [&["--node-selector", selector], &seed[..]].concat() } else { seed.to_vec() }
    };
    let a = muster(cluster, "muster-a", "muster-a", TEAM, &flags("pool=a", "1"))?;
    let b = muster(cluster, "muster-b", "muster-b", DEFAULT, &flags("pool in (b)", "2"))?;
    let c = upstream(cluster, sharded.then_some("c"))?;
    let users = [user("muster-a"), user("muster-b"), "system:kube-scheduler".to_owned()];
    let mut players = [a, b, c].into_iter().zip(users).zip(POOLS);
    let mut next = || {
        let ((process, user), (name, pool)) = players.next().expect("three players");
        Player { name, pool, user, process }
    };
    Ok([next(), next(), next()])
}

/// Creates pods for a scheduler; those for the default one name nobody.
async fn pods(cluster: &Cluster, prefix: &str, player: &Player, n: usize) -> Result<()> {
    let scheduler = if player.name == DEFAULT { "" } else { player.name };
    let make = |i| pod(&format!("{prefix}-{}-{i:04}", player.pool), scheduler, POD, "0");
    create_pods(&cluster.admin, "default", n, make).await
}

/// The pod waits, and says that so many nodes were looked at.
async fn waits(cluster: &Cluster, name: &str, nodes: usize) -> Result<()> {
    let counts = format!("0/{nodes} nodes are available");
    let said = eventually("unschedulable", SOON, || async {
        let pod = cluster.get_pod(name).await?;
        ensure!(pod.spec.node_name.is_empty(), "{name} is bound to {}", pod.spec.node_name);
        Ok(pod.status.conditions.iter().any(|c| c.message.starts_with(&counts)))
    });
    said.await.with_context(|| format!("{name}: {counts}"))
}

/// Nobody but the scheduler that a pod names has so much as asked to bind it.
fn check_users(cluster: &Cluster, recorder: &Recorder, players: &[Player]) -> Result<usize> {
    let mut by_pod: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for event in cluster.cp.audit_events()? {
        let object = &event["objectRef"];
        if object["subresource"] == "binding" {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let users = by_pod.entry(text(&object["name"])).or_default();
            users.insert(text(&event["user"]["username"]));
        }
    }
    let binds = recorder.history().binds;
    for bind in &binds {
        let player = players.iter().find(|p| p.name == bind.scheduler).context("a stranger")?;
        let users = by_pod.get(&bind.pod).cloned().unwrap_or_default();
        let only = users.len() == 1 && users.contains(&player.user);
        ensure!(only, "{} was bound by {users:?}", bind.pod);
    }
    Ok(binds.len())
}

/// The schedulers run, and no Muster's checker has found anything wrong.
fn check_logs(players: &[Player]) -> Result<()> {
    for player in players {
        ensure!(player.process.is_running(), "{} has ended", player.name);
        let log = std::fs::read_to_string(player.process.log())?;
        let wrong = log.lines().find(|line| line.contains("audit: ") || line.contains("panic"));
        ensure!(wrong.is_none(), "{}: {wrong:?}", player.name);
    }
    Ok(())
}

/// Conflicts by scheduler, and the oldest news that each of them missed.
fn tell(conflicts: &[Conflict], binds: impl Fn(&str) -> usize) -> String {
    let each = POOLS.iter().map(|(name, _)| {
        let of: Vec<&Conflict> = conflicts.iter().filter(|c| c.bind.scheduler == *name).collect();
        let oldest = of.iter().filter_map(|c| c.blind).max().unwrap_or_default().as_millis();
        let (n, all) = (of.len(), binds(name));
        let rate = 100.0 * n as f64 / all.max(1) as f64;
        format!("{name} {n} of {all} binds ({rate:.1} %, missed news up to {oldest} ms old)")
    });
    each.collect::<Vec<_>>().join(", ")
}

/// Nobody overcommits a node with pods of its own alone, or by what it had long to see.
fn check_blindness(conflicts: &[Conflict], limit: Duration) -> Result<()> {
    for conflict in conflicts {
        let blind = conflict.blind.with_context(|| format!("alone: {:?}", conflict.bind))?;
        ensure!(blind < limit, "{:?} missed what was {blind:?} old", conflict.bind);
    }
    Ok(())
}
