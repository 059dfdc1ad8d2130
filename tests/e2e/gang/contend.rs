//! Two gangs that each fit alone and not together, their pods coming in turn.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use muster_control_plane::{ControlPlane, create_nodes, create_pods, node};
use serde_json::json;

use super::record::Record;
use super::{GROUPS, PODS, delete, end, form, make, member};
use crate::pod_group::install;
use crate::support::{Cluster, SOON};

/// Members of each gang; a pool has room for that many.
const MIN: usize = 8;
/// Pairs at a time, each on nodes of its own.
const PAIRS: usize = 10;
/// The first runs at once.
const AT_ONCE: Duration = Duration::from_secs(15);

/// Never a deadlock: one runs at once, the other after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_fit_alone_do_not_block_each_other() -> Result<()> {
    let cluster = Cluster::start(ControlPlane::builder()).await?;
    install(&cluster).await?;
    create_nodes(&cluster.admin, 2 * PAIRS, |i| {
        let mut node = node(&format!("node-{i:02}"), "4", "16Gi", 110);
        let labels = node.metadata.labels.get_or_insert_default();
        labels.insert("pool".to_owned(), (i % PAIRS).to_string());
        node
    })
    .await?;
    let record = Record::start(cluster.admin.clone());
    let muster = cluster.muster("muster", &["-v", "3"])?;
    for round in 0..form(20, 100).div_ceil(PAIRS) {
        let played = play(&cluster, &record, round).await;
        played.with_context(|| format!("round {round}: {}", muster.log_tail(6_000)))?;
    }
    end(&muster)
}

fn gang(round: usize, pair: usize, side: usize) -> String {
    format!("g{round}-{pair}-{side}")
}

/// The members of all pairs, of the two sides of a pair in turn.
fn nth(round: usize, i: usize) -> Pod {
    let (pair, turn) = (i % PAIRS, i / PAIRS);
    let (side, number) = (turn % 2, turn / 2);
    let gang = gang(round, pair, side);
    let mut pod = member(&format!("{gang}-{number}"), &gang, "1");
    if let Some(spec) = &mut pod.spec {
        spec.node_selector = Some([("pool".to_owned(), pair.to_string())].into());
    }
    pod
}

async fn play(cluster: &Cluster, record: &Record, round: usize) -> Result<()> {
    for pair in 0..PAIRS {
        for side in 0..2 {
            make(cluster, &gang(round, pair, side), &json!({"minMember": MIN})).await?;
        }
    }
    // One by one: the next is asked for when the one before is there.
    for i in 0..2 * MIN {
        create_pods(&cluster.admin, "default", PAIRS, |pair| nth(round, i * PAIRS + pair)).await?;
    }
    let begin = Instant::now();
    let whole = |r: &Record, pair: usize| -> Vec<usize> {
        (0..2).filter(|side| r.bound(&gang(round, pair, *side)) == MIN).collect()
    };
    let one_each = |r: &Record| (0..PAIRS).all(|pair| whole(r, pair).len() == 1);
    record.wait("one of each pair", AT_ONCE, one_each).await?;
    let first = begin.elapsed();
    let winners: Vec<usize> = (0..PAIRS).map(|pair| whole(record, pair)[0]).collect();
    for (pair, winner) in winners.iter().enumerate() {
        let other = gang(round, pair, 1 - winner);
        ensure!(record.bound(&other) == 0, "{other} is bound in part");
    }
    cluster.check_room().await?;
    for (pair, winner) in winners.iter().enumerate() {
        let done = gang(round, pair, *winner);
        for number in 0..MIN {
            delete(cluster, &format!("{PODS}/{done}-{number}")).await?;
        }
        delete(cluster, &format!("{GROUPS}/{done}")).await?;
    }
    let other = |r: &Record| {
        let other = |(pair, winner): (usize, &usize)| gang(round, pair, 1 - winner);
        winners.iter().enumerate().all(|at| r.bound(&other(at)) == MIN)
    };
    record.wait("the other of each pair", SOON, other).await?;
    let longest = record.check(&format!("g{round}-"), MIN, None)?;
    cluster.say(&format!(
        "round {round}: {PAIRS} bound after {first:?}, the others after {:?}, each within \
         {longest:?}",
        begin.elapsed()
    ));
    for (pair, winner) in winners.iter().enumerate() {
        let done = gang(round, pair, 1 - winner);
        for number in 0..MIN {
            delete(cluster, &format!("{PODS}/{done}-{number}")).await?;
        }
        delete(cluster, &format!("{GROUPS}/{done}")).await?;
    }
    Ok(())
}
