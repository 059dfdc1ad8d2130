//! The scheduler is killed, at random moments and at the worst ones.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use muster_control_plane::{ControlPlane, Process, RUN_SECONDS, create_nodes, create_pods, node};
use serde_json::json;

use super::record::Record;
use super::{GROUPS, check, end, form, group, make, member};
use crate::pod_group::install;
use crate::support::{Cluster, SOON};

/// No gang stays bound in part for longer, crash and restart included.
const PART: Duration = Duration::from_secs(5);

fn muster(cluster: &Cluster, number: usize) -> Result<Process> {
    cluster.muster(&format!("muster-{number}"), &["--leader-elect=false"])
}

/// A fixed sequence that looks like chance.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % limit.max(1)
    }
}

/// Killed at random moments while gangs are being bound: in the end all are whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_random_moments() -> Result<()> {
    const MIN: usize = 8;
    const GANGS: usize = 100;
    let cluster = Cluster::start(ControlPlane::builder()).await?;
    install(&cluster).await?;
    cluster.nodes(50).await?;
    let record = Record::start(cluster.admin.clone());
    let kills = form(10, 50);
    // So that there is something to bind until the last of them.
    let batch = GANGS / kills;
    let mut dice = Dice(20_261_117);
    for kill in 0..kills {
        let name = |i: usize| format!("gang-{:03}", kill * batch + i);
        muster_control_plane::create_objects(&cluster.admin, GROUPS, "groups", batch, |i| {
            group(&name(i), &json!({"minMember": MIN}))
        })
        .await?;
        create_pods(&cluster.admin, "default", batch * MIN, |i| {
            let gang = name(i / MIN);
            member(&format!("{gang}-{}", i % MIN), &gang, "100m")
        })
        .await?;
        let before = record.total();
        let target = before + dice.below((batch * MIN) as u64) as usize;
        let scheduler = muster(&cluster, kill)?;
        let reached = record.wait("under way", SOON, |r| r.total() >= target).await;
        reached.with_context(|| scheduler.log_tail(6_000))?;
        tokio::time::sleep(Duration::from_micros(dice.below(20_000))).await;
        scheduler.kill()?;
        check(&scheduler)?;
        let (bound, parts) = (record.total(), record.partial(MIN));
        cluster
            .say(&format!("killed with {bound} of {} bound, {parts:?}", (kill + 1) * batch * MIN));
    }
    let last = muster(&cluster, kills)?;
    let begin = Instant::now();
    let all = record.wait("all bound", SOON, |r| r.total() == GANGS * MIN).await;
    all.with_context(|| last.log_tail(6_000))?;
    cluster.say(&format!("all whole {:?} after the last start", begin.elapsed()));
    // Between a crash and the next start lies the making of the next pods.
    let longest = record.check("gang-", MIN, Some(Duration::from_secs(15)))?;
    cluster.say(&format!("bound in part for at most {longest:?}"));
    cluster.check_room().await?;
    end(&last)
}

/// Killed again and again just when a gang is seen bound in part, while gangs contend for
/// room: nobody is bound twice, all end, no part stays alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_the_worst_moments() -> Result<()> {
    let (gangs, min, kills) = (form(10, 40), form(16, 32), form(5, 40));
    let cluster = Cluster::start(ControlPlane::builder().kwok(true)).await?;
    install(&cluster).await?;
    // Room for a quarter of them: members ask for one CPU each.
    let nodes = gangs.div_ceil(4) * min / 4;
    create_nodes(&cluster.admin, nodes, |i| node(&format!("node-{i:03}"), "4", "16Gi", 110))
        .await?;
    let record = Record::start(cluster.admin.clone());
    for i in 0..gangs {
        make(&cluster, &format!("gang-{i:02}"), &json!({"minMember": min})).await?;
    }
    create_pods(&cluster.admin, "default", gangs * min, |i| {
        let gang = format!("gang-{:02}", i / min);
        let mut pod = member(&format!("{gang}-{:02}", i % min), &gang, "1");
        pod.metadata.annotations = Some([(RUN_SECONDS.to_owned(), "3".to_owned())].into());
        pod
    })
    .await?;
    let begin = Instant::now();
    let (mut killed, mut starts, mut before) = (0, 1, 0);
    let mut scheduler = muster(&cluster, 0)?;
    let over = |r: &Record| (0..gangs).all(|i| r.succeeded(&format!("gang-{i:02}")) == min);
    while !over(&record) {
        ensure!(
            begin.elapsed() < Duration::from_secs(form(180, 900) as u64),
            "not over: {}",
            scheduler.log_tail(6_000)
        );
        // Each has bound somebody before it dies: one that dies at its start mends nothing.
        if killed < kills && record.total() > before && !record.partial(min).is_empty() {
            scheduler.kill()?;
            check(&scheduler)?;
            killed += 1;
            scheduler = muster(&cluster, starts)?;
            starts += 1;
            // What the last one had sent has arrived, and this one is at work.
            let parts = record.partial(min);
            cluster.say(&format!("killed with {parts:?}"));
            let filled = scheduler.wait_until("at work", SOON, || {
                scheduler.log_tail(20_000).contains("caches are filled")
            });
            filled.with_context(|| scheduler.log_tail(6_000))?;
            before = record.total();
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let longest = record.check("gang-", min, Some(PART))?;
    cluster.say(&format!(
        "{gangs} gangs of {min} ended after {:?} and {killed} crashes; bound in part for at \
         most {longest:?}",
        begin.elapsed()
    ));
    ensure!(killed > 0, "no gang was seen bound in part");
    end(&scheduler)
}
