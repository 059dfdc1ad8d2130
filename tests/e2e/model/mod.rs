//! The simulator's API server answers as the real one.
//!
//! One script of operations runs on both. After each, the answer (code, reason,
//! cause, words) and every pod and budget must be equal; at the end, so must the
//! watch: the same events in the same order. What a simulation proves is worth as
//! much as this.

mod real;
mod simulated;

use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};
use muster_control_plane::ControlPlane;

use crate::support::Cluster;
use real::Real;
use simulated::Simulated;

/// Which incarnation a write means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Uid {
    Any,
    Right,
    Wrong,
}

/// Which version a write means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Any,
    Current,
    Old,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Create {
        pod: &'static str,
        app: &'static str,
        gated: bool,
    },
    /// What the kubelet writes.
    Phase {
        pod: &'static str,
        phase: &'static str,
    },
    Bind {
        pod: &'static str,
        node: &'static str,
        uid: Uid,
    },
    Condition {
        pod: &'static str,
        uid: Uid,
        message: &'static str,
    },
    Delete {
        pod: &'static str,
        uid: Uid,
        version: Version,
        grace: Option<i64>,
        dry_run: bool,
    },
    Evict {
        pod: &'static str,
        uid: Uid,
        grace: Option<i64>,
        dry_run: bool,
    },
    Budget {
        name: &'static str,
        app: &'static str,
        min_available: i64,
        always: bool,
    },
}

/// What a server says to one operation; identifiers that differ are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Answer {
    code: u16,
    reason: String,
    cause: String,
    message: String,
}

/// Leaves out of a message what no two servers have in common.
fn alike(message: &str, identifiers: &[&str]) -> String {
    let known = identifiers.iter().filter(|id| !id.is_empty());
    known.fold(message.to_owned(), |text, id| text.replace(*id, "<id>"))
}

/// How a pod is shown, whoever stores it.
struct Shown<'a> {
    name: &'a str,
    node: &'a str,
    phase: &'a str,
    terminating: bool,
    conditions: Vec<(&'a str, &'a str, &'a str)>,
}

impl Shown<'_> {
    fn line(mut self) -> String {
        let going = if self.terminating { " terminating" } else { "" };
        let mut line = format!("pod {} node={} {}{going}", self.name, self.node, self.phase);
        self.conditions.sort_unstable();
        for (kind, status, reason) in self.conditions {
            let _ = write!(line, " {kind}={status}/{reason}");
        }
        line
    }
}

fn budget_line(name: &str, allowed: i64, current: i64, desired: i64, expected: i64) -> String {
    format!("budget {name} allows {allowed}: {current} of {desired} wanted, {expected} expected")
}

const fn bind(pod: &'static str, node: &'static str) -> Op {
    Op::Bind { pod, node, uid: Uid::Right }
}

const fn create(pod: &'static str, app: &'static str) -> Op {
    Op::Create { pod, app, gated: false }
}

const fn run(pod: &'static str) -> Op {
    Op::Phase { pod, phase: "Running" }
}

const fn delete(pod: &'static str) -> Op {
    Op::Delete { pod, uid: Uid::Any, version: Version::Any, grace: None, dry_run: false }
}

const fn evict(pod: &'static str) -> Op {
    Op::Evict { pod, uid: Uid::Any, grace: None, dry_run: false }
}

/// Binding: once, this incarnation, not gated, not going.
const BINDING: &[Op] = &[
    create("a", "web"),
    bind("missing", "n1"),
    Op::Bind { pod: "a", node: "n1", uid: Uid::Wrong },
    Op::Condition { pod: "a", uid: Uid::Right, message: "no room" },
    Op::Condition { pod: "a", uid: Uid::Wrong, message: "no room" },
    Op::Condition { pod: "missing", uid: Uid::Any, message: "no room" },
    Op::Condition { pod: "a", uid: Uid::Right, message: "no room" },
    bind("a", "n1"),
    bind("a", "n1"),
    bind("a", "n2"),
    bind("a", "no-such-node"),
    Op::Create { pod: "gated", app: "web", gated: true },
    bind("gated", "n1"),
    create("b", "web"),
    bind("b", "no-such-node"),
    run("a"),
    delete("a"),
    bind("a", "n1"),
];

/// Deletion: at once or with grace, guarded by UID and version.
const DELETION: &[Op] = &[
    create("pending", "x"),
    Op::Delete {
        pod: "pending",
        uid: Uid::Wrong,
        version: Version::Any,
        grace: None,
        dry_run: false,
    },
    Op::Delete {
        pod: "pending",
        uid: Uid::Right,
        version: Version::Any,
        grace: None,
        dry_run: true,
    },
    delete("pending"),
    delete("pending"),
    create("bound", "x"),
    bind("bound", "n1"),
    Op::Delete { pod: "bound", uid: Uid::Any, version: Version::Old, grace: None, dry_run: false },
    Op::Delete {
        pod: "bound",
        uid: Uid::Right,
        version: Version::Current,
        grace: Some(20),
        dry_run: false,
    },
    delete("bound"),
    Op::Delete {
        pod: "bound",
        uid: Uid::Any,
        version: Version::Any,
        grace: Some(0),
        dry_run: false,
    },
    create("done", "x"),
    bind("done", "n1"),
    Op::Phase { pod: "done", phase: "Succeeded" },
    delete("done"),
];

/// Evictions under budgets.
const EVICTION: &[Op] = &[
    Op::Budget { name: "guard", app: "db", min_available: 2, always: false },
    create("db-0", "db"),
    create("db-1", "db"),
    create("db-2", "db"),
    bind("db-0", "n1"),
    bind("db-1", "n1"),
    bind("db-2", "n2"),
    evict("missing"),
    run("db-0"),
    run("db-1"),
    evict("db-0"),
    run("db-2"),
    Op::Evict { pod: "db-0", uid: Uid::Right, grace: None, dry_run: true },
    evict("db-0"),
    evict("db-1"),
    Op::Evict { pod: "db-1", uid: Uid::Right, grace: None, dry_run: true },
    evict("db-0"),
    create("db-3", "db"),
    evict("db-3"),
    create("job", "job"),
    bind("job", "n1"),
    Op::Phase { pod: "job", phase: "Failed" },
    Op::Budget { name: "none", app: "job", min_available: 1, always: false },
    evict("job"),
    Op::Budget { name: "second", app: "db", min_available: 0, always: false },
    evict("db-1"),
    // An eviction that fails on its precondition has used up the budget all the same.
    Op::Budget { name: "spent", app: "cache", min_available: 1, always: false },
    create("cache-0", "cache"),
    create("cache-1", "cache"),
    bind("cache-0", "n1"),
    bind("cache-1", "n2"),
    run("cache-0"),
    run("cache-1"),
    Op::Evict { pod: "cache-0", uid: Uid::Wrong, grace: None, dry_run: false },
    evict("cache-0"),
    evict("cache-1"),
    Op::Budget { name: "lax", app: "sick", min_available: 1, always: true },
    create("sick", "sick"),
    bind("sick", "n1"),
    Op::Phase { pod: "sick", phase: "Unready" },
    evict("sick"),
    Op::Budget { name: "strict", app: "ill", min_available: 1, always: false },
    create("ill", "ill"),
    bind("ill", "n1"),
    Op::Phase { pod: "ill", phase: "Unready" },
    evict("ill"),
    create("free", "free"),
    bind("free", "n2"),
    run("free"),
    Op::Evict { pod: "free", uid: Uid::Any, grace: Some(0), dry_run: false },
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_simulated_api_server_answers_as_the_real_one() -> Result<()> {
    let plane = ControlPlane::builder().controllers(&["disruption-controller"]);
    let cluster = Cluster::start(plane).await?;
    for (namespace, script) in
        [("binding", BINDING), ("deletion", DELETION), ("eviction", EVICTION)]
    {
        let mut real = Real::start(&cluster, namespace).await?;
        let mut simulated = Simulated::new(namespace);
        for (i, op) in script.iter().enumerate() {
            let at = || format!("{namespace}, step {i}: {op:?}");
            let (expected, found) = (real.run(op).await?, simulated.run(op));
            ensure!(found == expected, "{}\nreal:      {expected:?}\nsimulated: {found:?}", at());
            let expected = real.settled(&simulated.state()).await.with_context(at)?;
            ensure!(
                simulated.state() == expected,
                "{}\nreal:\n{}\nsimulated:\n{}",
                at(),
                expected.join("\n"),
                simulated.state().join("\n")
            );
        }
        let (expected, found) = (real.watched().await?, simulated.watched());
        ensure!(
            found == expected,
            "{namespace}: the watch\nreal:\n{}\nsimulated:\n{}",
            expected.join("\n"),
            found.join("\n")
        );
        cluster.say(&format!("{namespace}: {} operations, {} events", script.len(), found.len()));
    }
    expired_versions(&cluster).await
}

/// A version that the server no longer remembers is gone: list again.
async fn expired_versions(cluster: &Cluster) -> Result<()> {
    let mut real = Real::start(cluster, "expiry").await?;
    let mut simulated = Simulated::new("expiry");
    for op in [create("a", "x"), delete("a"), create("b", "x")] {
        real.run(&op).await?;
        simulated.run(&op);
    }
    cluster.cp.restart_api_server()?;
    simulated.forget();
    let (expected, found) = (real.watch_from_start().await?, simulated.watch_from_start());
    ensure!(found == expected, "real {expected:?}, simulated {found:?}");
    ensure!(found == (410, "Expired".to_owned()), "{found:?}");
    Ok(())
}
