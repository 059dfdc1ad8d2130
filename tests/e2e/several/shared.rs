//! Shared nodes: all three schedulers on all nodes. Nothing keeps two of them from
//! giving away the same room within the time that news needs; afterwards they know.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use muster_control_plane::{create_nodes, node};

use super::history::{Conflict, History, Recorder};
use super::{
    NODE, PODS_PER_NODE, Player, check_blindness, check_logs, check_users, cluster, players, pods,
    tell, waits,
};
use crate::support::{Cluster, eventually};

/// Nodes of each round.
const NODES: usize = 60;
/// For hundreds of binds, on a slow machine.
const LONG: Duration = Duration::from_secs(180);
/// From the moment a scheduler decides until the others have seen the bind.
const NEWS: Duration = Duration::from_secs(10);
/// Between two pods of one scheduler that come one by one.
const PACE: Duration = Duration::from_millis(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_shared_nodes_foreign_binds_are_planned_around_and_conflicts_are_counted() -> Result<()>
{
    let cluster = cluster().await?;
    let recorder = Recorder::start(&cluster.admin);
    let players = players(&cluster, false)?;
    warm(&cluster, &recorder, &players).await.context("all three work")?;
    let mut done = Done { cluster: &cluster, recorder: &recorder, seen: 0, conflicts: 0 };
    burst(&mut done, &players).await.context("pods at once")?;
    paced(&mut done, &players).await.context("pods one by one")?;
    queued(&mut done, &players).await.context("room for pods that wait")?;
    in_turn(&mut done, &players).await.context("one scheduler after the other")?;
    check_users(&cluster, &recorder, &players)?;
    check_logs(&players)?;
    cluster.say("done");
    Ok(())
}

/// What has been counted already.
struct Done<'a> {
    cluster: &'a Cluster,
    recorder: &'a Recorder,
    seen: usize,
    conflicts: usize,
}

impl Done<'_> {
    /// What happened since the last call.
    fn next(&mut self, what: Option<&str>) -> Result<Vec<Conflict>> {
        let history = self.recorder.history();
        let conflicts = history.conflicts();
        check_blindness(&conflicts, NEWS)?;
        let new = conflicts[self.conflicts..].to_vec();
        let recent = History { binds: history.binds[self.seen..].to_vec(), moves: Vec::new() };
        (self.seen, self.conflicts) = (history.binds.len(), conflicts.len());
        if let Some(what) = what {
            let figures = tell(&new, |name| recent.count(name));
            self.cluster.say(&format!("{what}: overcommitting binds: {figures}"));
        }
        Ok(new)
    }

    /// Places that are left on all nodes.
    fn free(&self) -> usize {
        let history = self.recorder.history();
        history.moves.iter().map(|node| places(&history, &node.node)).sum()
    }

    async fn bound(&self, players: &[Player], each: usize) -> Result<()> {
        let before = &self.recorder.history().binds[..self.seen];
        for player in players {
            let had = before.iter().filter(|b| b.scheduler == player.name).count();
            self.recorder.wait(player.name, had + each, LONG).await?;
        }
        Ok(())
    }
}

async fn create(cluster: &Cluster, prefix: &str, n: usize) -> Result<()> {
    create_nodes(&cluster.admin, n, |i| node(&format!("{prefix}-{i:02}"), NODE, "16Gi", 110)).await
}

/// One full node: every scheduler runs and has seen the others.
async fn warm(cluster: &Cluster, recorder: &Recorder, players: &[Player; 3]) -> Result<()> {
    create(cluster, "warm", 1).await?;
    for player in players {
        pods(cluster, "warm", player, 2).await?;
        recorder.wait(player.name, 2, LONG).await?;
    }
    pods(cluster, "rest", &players[0], PODS_PER_NODE - 6).await?;
    recorder.wait(players[0].name, 2 + PODS_PER_NODE - 6, LONG).await
}

/// All room is asked for in one moment, a third by each: the worst case.
async fn burst(done: &mut Done<'_>, players: &[Player; 3]) -> Result<()> {
    done.next(None)?;
    create(done.cluster, "burst", NODES).await?;
    let each = NODES * PODS_PER_NODE / 3;
    let [a, b, c] = players;
    tokio::try_join!(
        pods(done.cluster, "burst", a, each),
        pods(done.cluster, "burst", b, each),
        pods(done.cluster, "burst", c, each)
    )?;
    done.bound(players, each).await?;
    done.next(Some(&format!("3 x {each} pods at once for {} places", NODES * PODS_PER_NODE)))?;
    Ok(())
}

/// The same room, asked for in a stream, up to nine tenths of it.
async fn paced(done: &mut Done<'_>, players: &[Player; 3]) -> Result<()> {
    create(done.cluster, "paced", NODES).await?;
    let each = NODES * PODS_PER_NODE * 3 / 10;
    let mut pace = tokio::time::interval(PACE);
    for i in 0..each {
        pace.tick().await;
        let [a, b, c] = players;
        let prefix = format!("paced-{i:03}");
        tokio::try_join!(
            pods(done.cluster, &prefix, a, 1),
            pods(done.cluster, &prefix, b, 1),
            pods(done.cluster, &prefix, c, 1)
        )?;
    }
    done.bound(players, each).await?;
    let what = format!(
        "3 x {each} pods in a stream (one each per {PACE:?}) for {} places",
        NODES * PODS_PER_NODE
    );
    done.next(Some(&what))?;
    Ok(())
}

/// Pods of all three wait, and then nodes come: everybody wants each of them at once.
async fn queued(done: &mut Done<'_>, players: &[Player; 3]) -> Result<()> {
    // Nothing is left, so that they wait.
    brim(done, players).await?;
    let each = NODES * PODS_PER_NODE / 3;
    for player in players {
        pods(done.cluster, "queued", player, each).await?;
    }
    for player in players {
        // The last one waits: so do those before it.
        let last = format!("queued-{}-{:04}", player.pool, each - 1);
        waits(done.cluster, &last, 1 + 2 * NODES).await?;
    }
    create(done.cluster, "queued", NODES).await?;
    // Nodes that are taken twice leave others with room: nobody waits for ever.
    done.bound(players, each).await?;
    let places = NODES * PODS_PER_NODE;
    done.next(Some(&format!("3 x {each} waiting pods when {places} places come")))?;
    Ok(())
}

/// Takes all that is left.
async fn brim(done: &mut Done<'_>, players: &[Player; 3]) -> Result<()> {
    let free = done.free();
    pods(done.cluster, "brim", &players[0], free).await?;
    done.bound(&players[..1], free).await?;
    done.next(None)?;
    Ok(())
}

/// Each scheduler in turn takes some of what the others have left, to the last place. A
/// pod is told of after the binds that were before it, so whoever comes next knows all
/// of them, and not one bind is too many.
async fn in_turn(done: &mut Done<'_>, players: &[Player; 3]) -> Result<()> {
    create(done.cluster, "turn", 3).await?;
    let nodes = 4 + 3 * NODES;
    eventually("told of the nodes", LONG, || async {
        Ok(done.recorder.history().moves.len() == nodes)
    })
    .await?;
    let all = done.free();
    let mut free = all;
    ensure!(free > players.len(), "{free} places are left");
    for (turn, player) in players.iter().cycle().enumerate() {
        let some = free.min(5);
        if some == 0 {
            break;
        }
        pods(done.cluster, &format!("turn-{turn}"), player, some).await?;
        done.bound(std::slice::from_ref(player), some).await?;
        let conflicts = done.next(None)?;
        ensure!(conflicts.is_empty(), "what was long known was overlooked: {conflicts:?}");
        free -= some;
    }
    for player in players {
        pods(done.cluster, "none", player, 1).await?;
        waits(done.cluster, &format!("none-{}-0000", player.pool), nodes).await?;
    }
    done.cluster.say(&format!("then in turn, {all} places to the last: nobody overcommits"));
    Ok(())
}

/// How many more pods a node has room for.
fn places(history: &History, node: &str) -> usize {
    let taken = history.binds.iter().filter(|b| b.node == node).count();
    PODS_PER_NODE.saturating_sub(taken)
}
