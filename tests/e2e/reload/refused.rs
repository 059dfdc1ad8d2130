//! Changes that are refused: the old configuration stays, and it is said and counted once.

use anyhow::{Context, Result, ensure};
use muster::plugin::Registry;
use muster::run::Scheduler;
use serde_json::json;

use super::{LOOK, Mounted, NAME, RELOADS, in_force, reloaded, version_text};
use crate::support::{Cluster, SOON, counted, end, eventually};

/// How often a change came to this result.
fn results(scheduler: &Scheduler, result: &str) -> f64 {
    let sample = format!("muster_config_reloads_total{{result=\"{result}\"}}");
    counted(scheduler.metrics(), &sample)
}

fn is_current(scheduler: &Scheduler) -> bool {
    counted(scheduler.metrics(), "muster_config_current") == 1.0
}

/// Each refusal in turn, on a scheduler that has been reloaded [`RELOADS`] times.
pub(super) async fn all(
    cluster: &Cluster,
    scheduler: &Scheduler,
    file: &Mounted,
    url: &str,
) -> Result<()> {
    let good = version_text(RELOADS, url);
    let shown = scheduler.configz();
    ensure!(is_current(scheduler), "the last version is in force");
    let args = format!("\"{NAME}\"");
    ensure!(shown.to_string().contains(&args), "{shown}");
    ensure!(shown.to_string().contains(&format!("\"version\":{RELOADS}")), "{shown}");
    let changed = |from: &str, to: &str| good.replace(from, to);
    let cases = [
        ("no YAML", "invalid", ": [".to_owned()),
        ("an unknown field", "invalid", format!("{good}unheardOf: 1\n")),
        (
            "an unknown plugin",
            "invalid",
            changed("disabled: []", "disabled: []}, score: {enabled: [{name: Nobody}]"),
        ),
        ("arguments that the plugin refuses", "invalid", changed("version: 200", "version: none")),
        ("an empty file", "invalid", String::new()),
        ("the client", "needs_restart", format!("{good}clientConnection: {{qps: 7}}\n")),
        ("threads", "needs_restart", format!("{good}parallelism: 3\n")),
        ("the election", "needs_restart", changed("leaderElect: false", "leaderElect: true")),
        ("names", "needs_restart", changed("schedulerName: reloaded", "schedulerName: other")),
        (
            "extenders that cannot be asked",
            "invalid",
            changed(
                "extenders: []",
                "extenders: [{urlPrefix: 'https://127.0.0.1:1', filterVerb: f, weight: 1, \
                 enableHTTPS: true, tlsConfig: {caFile: /nowhere}}]",
            ),
        ),
    ];
    for (case, result, text) in cases {
        ensure!(text != good, "{case}: it is no change");
        let before = results(scheduler, result);
        file.write(&text)?;
        let refused = || async { Ok(results(scheduler, result) == before + 1.0) };
        eventually("refused", SOON, refused).await.with_context(|| case.to_owned())?;
        ensure!(!is_current(scheduler) && in_force(scheduler) == RELOADS, "{case}");
        ensure!(scheduler.configz() == shown, "{case}: another configuration is shown");
        // Back to what is in force: no reload, and the refusal was counted once.
        file.write(&good)?;
        eventually("current", SOON, || async { Ok(is_current(scheduler)) }).await?;
        ensure!(results(scheduler, result) == before + 1.0, "{case}: counted twice");
        ensure!(in_force(scheduler) == RELOADS, "{case}");
    }
    let before = results(scheduler, "invalid");
    file.clear()?;
    let refused = || async { Ok(results(scheduler, "invalid") == before + 1.0) };
    eventually("missed", SOON, refused).await?;
    file.write(&version_text(RELOADS + 1, url))?;
    reloaded(scheduler, RELOADS + 1).await?;
    ensure!(scheduler.configz() != shown, "the new configuration is shown");
    cluster.say("refusals: counted once each, and the old configuration stayed");
    Ok(())
}

/// Whoever does not lead keeps its configuration current too.
pub(super) async fn standby(cluster: &Cluster) -> Result<()> {
    let now = jiff::Timestamp::now();
    cluster
        .create(&json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "held", "namespace": "default"},
            "spec": {"holderIdentity": "other", "leaseDurationSeconds": 3600,
                "acquireTime": format!("{now:.6}"), "renewTime": format!("{now:.6}"),
                "leaseTransitions": 1},
        }))
        .await?;
    let text = |backoff: i64| {
        format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
             leaderElection: {{resourceName: held, resourceNamespace: default}}\n\
             podMaxBackoffSeconds: {backoff}\n"
        )
    };
    let file = Mounted::new(&text(10))?;
    let scheduler = cluster.following(&file.file, &Registry::default(), LOOK).await?;
    file.write(&text(20))?;
    reloaded(&scheduler, 1).await?;
    ensure!(scheduler.configz().to_string().contains("\"podMaxBackoffSeconds\":20"));
    let leads = counted(scheduler.metrics(), "leader_election_master_status{name=\"held\"}");
    ensure!(leads == 0.0, "it leads");
    end(scheduler).await
}
