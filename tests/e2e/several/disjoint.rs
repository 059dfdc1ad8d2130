//! Shards: each scheduler has nodes of its own.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::Client;
use muster_control_plane::{create_nodes, node};
use serde_json::json;

use super::history::{History, Recorder};
use super::{
    DEFAULT, NODE, PODS_PER_NODE, POOLS, Player, TEAM, check_blindness, check_logs, check_users,
    cluster, muster, players, pods, waits,
};
use crate::support::{Cluster, SOON, eventually};

/// Nodes of each pool.
const NODES: usize = 16;
/// Nodes that change their pool.
const MOVING: usize = 48;
/// Between two pods of each scheduler while nodes move.
const PACE: Duration = Duration::from_millis(60);
/// For hundreds of binds, on a slow machine.
const LONG: Duration = Duration::from_secs(180);
/// A scheduler binds on a node that has left its pool for no longer than this.
const LATE: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disjoint_shards_fill_their_nodes_and_never_overcommit_one() -> Result<()> {
    let cluster = cluster().await?;
    for (_, pool) in POOLS {
        create(&cluster, &format!("node-{pool}"), pool, NODES).await?;
    }
    let recorder = Recorder::start(&cluster.admin);
    let players = players(&cluster, true)?;
    full(&cluster, &recorder, &players).await.context("every shard is filled")?;
    shared_lease(&cluster, &players).await.context("two Musters with one Lease")?;
    moving(&cluster, &recorder, &players).await.context("nodes change their shard")?;
    check_logs(&players)?;
    cluster.say("done");
    Ok(())
}

async fn create(cluster: &Cluster, prefix: &str, pool: &str, n: usize) -> Result<()> {
    create_nodes(&cluster.admin, n, |i| {
        let mut node = node(&format!("{prefix}-{i:02}"), NODE, "16Gi", 110);
        let labels = node.metadata.labels.get_or_insert_default();
        labels.insert("pool".to_owned(), pool.to_owned());
        node
    })
    .await
}

/// As many pods as there is room for, and one more each.
async fn full(cluster: &Cluster, recorder: &Recorder, players: &[Player; 3]) -> Result<()> {
    let each = NODES * PODS_PER_NODE;
    let [a, b, c] = players;
    tokio::try_join!(
        pods(cluster, "fill", a, each),
        pods(cluster, "fill", b, each),
        pods(cluster, "fill", c, each)
    )?;
    for player in players {
        recorder.wait(player.name, each, LONG).await?;
    }
    let named = cluster.get_pod("fill-b-0000").await?.spec.scheduler_name;
    ensure!(named == DEFAULT, "the API server names {named:?}");
    for player in players {
        pods(cluster, "more", player, 1).await?;
        // kube-scheduler knows of the other pools' nodes, and of no room on them.
        let nodes = if player.pool == "c" { NODES * POOLS.len() } else { NODES };
        waits(cluster, &format!("more-{}-0000", player.pool), nodes).await?;
    }
    let history = recorder.history();
    let conflicts = history.conflicts();
    ensure!(conflicts.is_empty(), "overcommitted: {conflicts:?}");
    let strays = history.strays(&POOLS);
    ensure!(strays.is_empty(), "outside the shard: {strays:?}");
    cluster.check_room().await?;
    let binds = check_users(cluster, recorder, players)?;
    ensure!(binds == each * POOLS.len(), "{binds} pods are bound");
    cluster.say(&format!(
        "{binds} pods fill {} nodes of three shards exactly: no node overcommitted after any \
         bind, no pod outside its shard, none bound by another's scheduler",
        NODES * POOLS.len()
    ));
    Ok(())
}

/// A Muster that shares a Lease with one that schedules something else says so.
async fn shared_lease(cluster: &Cluster, players: &[Player; 3]) -> Result<()> {
    let flags = ["--node-selector", "pool=b"];
    let trap = muster(cluster, "muster-a", "muster-trap", TEAM, &flags)?;
    let warning = "the leader schedules pods of team-a on nodes pool=a, this process pods of \
                   team-a on nodes pool=b";
    eventually("warned of", SOON, || async {
        ensure!(trap.is_running(), "it has ended");
        Ok(std::fs::read_to_string(trap.log())?.contains(warning))
    })
    .await?;
    let log = std::fs::read_to_string(players[0].process.log())?;
    ensure!(log.contains("scheduling pods of team-a on nodes pool=a"), "the shard is not said");
    trap.terminate()?;
    ensure!(trap.wait_exit(SOON)? == 0, "a bad end");
    Ok(())
}

/// Puts a node into a pool.
async fn relabel(client: &Client, name: &str, pool: &str) -> Result<()> {
    let patch = json!({"metadata": {"labels": {"pool": pool}}});
    let request = http::Request::patch(format!("/api/v1/nodes/{name}"))
        .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
        .body(serde_json::to_vec(&patch)?)?;
    client.request_text(request).await.with_context(|| format!("{name} to {pool}"))?;
    Ok(())
}

/// Nodes wander between the shards while pods come; then they stand still and are
/// filled to the brim.
async fn moving(cluster: &Cluster, recorder: &Recorder, players: &[Player; 3]) -> Result<()> {
    let before = recorder.history().binds.len();
    // The pods that waited take the first three places.
    create(cluster, "moving", "a", MOVING).await?;
    let room = MOVING * PODS_PER_NODE;
    // A ninth each: in the end a pool has a third of the nodes, and even with all pods of
    // the two others there its own have room.
    let each = room / 9;
    // As fast as the server writes, for as long as pods come.
    let wander = async {
        for i in 0.. {
            let node = format!("moving-{:02}", i * 5 % MOVING);
            let pool = POOLS[(i / MOVING + i + 1) % POOLS.len()].1;
            relabel(&cluster.admin, &node, pool).await?;
        }
        anyhow::Ok(())
    };
    let arrive = async {
        let mut pace = tokio::time::interval(PACE);
        for i in 1..each {
            pace.tick().await;
            for player in players {
                pods(cluster, &format!("wave-{i:03}"), player, 1).await?;
            }
        }
        anyhow::Ok(())
    };
    tokio::select! {
        moved = wander => moved?,
        came = arrive => came?,
    }
    // Every pool gets a third of the nodes, so that whoever still waits finds room.
    for i in 0..MOVING {
        relabel(&cluster.admin, &format!("moving-{i:02}"), POOLS[i % POOLS.len()].1).await?;
    }
    // kube-scheduler is not woken by a node whose labels come to match addedAffinity, but
    // by one that comes: this one has no room.
    create_nodes(&cluster.admin, 1, |_| {
        let mut bell = node("bell", "0", "16Gi", 110);
        let labels = bell.metadata.labels.get_or_insert_default();
        labels.insert("pool".to_owned(), "c".to_owned());
        bell
    })
    .await?;
    let all = NODES * PODS_PER_NODE + each;
    for player in players {
        recorder.wait(player.name, all, LONG).await?;
    }
    let history = recorder.history();
    let under_load = judge(cluster, &history, before)?;

    // Now the shards are quiet, and a node that moves is known with all its pods: the
    // last places of all wandering nodes, in one shard.
    for i in 0..MOVING {
        relabel(&cluster.admin, &format!("moving-{i:02}"), "b").await?;
    }
    let free: usize = (0..MOVING)
        .map(|i| {
            let name = format!("moving-{i:02}");
            let taken = history.binds.iter().filter(|b| b.node == name).count();
            PODS_PER_NODE.saturating_sub(taken)
        })
        .sum();
    let [_, b, _] = players;
    pods(cluster, "last", b, free + 1).await?;
    recorder.wait(b.name, all + free, LONG).await?;
    let history = recorder.history();
    let after = history.conflicts().len();
    ensure!(
        after == under_load,
        "{after} conflicts after nodes moved in peace, {under_load} before"
    );
    ensure!(history.count(b.name) == all + free, "more pods than places");
    check_users(cluster, recorder, players)?;
    cluster.say(&format!("then all moved at rest: the last {free} places filled exactly"));
    Ok(())
}

/// What happened while nodes wandered; the number of conflicts.
fn judge(cluster: &Cluster, history: &History, before: usize) -> Result<usize> {
    let conflicts = history.conflicts();
    // One scheduler alone never puts more on a node than there is.
    check_blindness(&conflicts, LATE)?;
    let fixed = conflicts.iter().find(|c| !c.bind.node.starts_with("moving-"));
    ensure!(fixed.is_none(), "a node that did not move is overcommitted: {fixed:?}");
    let strays = history.strays(&POOLS);
    for stray in &strays {
        let late = stray.late.with_context(|| format!("never its node: {:?}", stray.bind))?;
        ensure!(late < LATE, "{:?} came {late:?} after the node had left", stray.bind);
    }
    let latest = strays.iter().filter_map(|s| s.late).max().unwrap_or_default();
    let latest = latest.as_millis();
    cluster.say(&format!(
        "{} moves of {MOVING} nodes among three shards under {} binds: {} binds on a node that \
         had just left (at most {latest} ms before), {} binds overcommitted a node by two \
         schedulers together, none by one alone",
        history.moves.len() - NODES * POOLS.len() - MOVING - 1,
        history.binds.len() - before,
        strays.len(),
        conflicts.len(),
    ));
    Ok(conflicts.len())
}
