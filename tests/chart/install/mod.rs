//! The chart on a real API server: installed into an empty cluster, the scheduler and the node agent
//! run with the very tokens, roles, arguments and configuration that the chart gives them; upgraded,
//! rolled back, uninstalled.

mod agent;
mod cluster;
mod workload;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use muster_control_plane::{asked, helm, rights, unused};
use serde_json::{Value, json};

use crate::support::{NAMESPACE, chart, objects, of_kind, root};
use agent::Agent;
use cluster::{Cluster, Replica, SOON, eventually, free_port};

/// All that is optional, and what a test needs: addresses of this machine, and a test pod that
/// ends.
fn values(port: u16) -> Value {
    json!({
        "operator": {"bindAddress": "127.0.0.1", "port": port, "verbosity": 4, "logFormat": "text"},
        "agent": {"nodeResourceTopology": true, "runtimeClassName": "nvidia"},
        "assignment": {"enabled": true},
        "priorityClasses": {"create": true},
        "metrics": {
            "readers": [{"name": "prometheus", "namespace": "monitoring"}],
            "serviceMonitor": {"enabled": true},
            "prometheusRule": {"enabled": true},
            "dashboard": {"enabled": true},
        },
        "networkPolicy": {"enabled": true},
        "test": {"podAnnotations": {muster_control_plane::RUN_SECONDS: "1"}},
    })
}

/// Helm with a release in its namespace.
struct Release<'a> {
    cluster: &'a Cluster,
    values: std::path::PathBuf,
}

impl Release<'_> {
    fn run(&self, arguments: &[&str]) -> Result<String> {
        let kubeconfig = self.cluster.cp.admin_kubeconfig()?;
        let mut all: Vec<&str> = arguments.to_vec();
        all.extend(["--namespace", NAMESPACE, "--kubeconfig"]);
        all.push(kubeconfig.to_str().context("a path")?);
        let said = helm(&all).with_context(|| format!("helm {}", arguments.join(" ")))?;
        self.cluster.say(&format!("helm {}", arguments[0]));
        Ok(said)
    }

    fn with_chart(&self, verb: &str, chart: &Path, further: &[&str]) -> Result<String> {
        let (chart, values) = (chart.to_str(), self.values.to_str());
        let mut all = vec![verb, "muster", chart.context("a path")?];
        all.extend(["--values", values.context("a path")?]);
        all.extend(further);
        self.run(&all)
    }

    fn objects(&self) -> Result<Vec<Value>> {
        objects(&self.run(&["get", "manifest", "muster"])?)
    }
}

/// A chart as of an earlier release: another version, and an earlier form of a kind.
fn former(dir: &Path) -> Result<std::path::PathBuf> {
    let to = dir.join("former");
    copy(&chart(), &to)?;
    replace(&to.join("Chart.yaml"), "\nversion: 0.1.0\n", "\nversion: 0.0.9\n")?;
    replace(&to.join("files/crds/podgroups.muster.dev.yaml"), "- mpg\n", "- formerly\n")?;
    Ok(to)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

fn replace(file: &Path, old: &str, new: &str) -> Result<()> {
    let text = fs::read_to_string(file)?;
    ensure!(text.contains(old), "{}: no {old:?}", file.display());
    Ok(fs::write(file, text.replace(old, new))?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn installed_it_schedules_with_its_rights_and_leaves_nothing_but_what_is_kept() -> Result<()>
{
    let cluster = Cluster::start().await?;
    let dir = tempfile::tempdir()?;
    let (former, port) = (former(dir.path())?, free_port()?);
    let release = Release { cluster: &cluster, values: dir.path().join("values.json") };
    fs::write(&release.values, values(port).to_string())?;

    let notes = release.with_chart("install", &former, &[])?;
    ensure!(notes.contains("helm -n muster-system test muster"), "{notes}");
    let installed = release.objects()?;
    cluster.all_there(&installed).await?;
    let mut replicas = Replica::two(&cluster, port).await?;
    let agent = Agent::start(&cluster).await?;
    let played = workload::play(&cluster, port).await;
    played.with_context(|| replicas[0].process.log_tail(6_000))?;
    check_rights(&cluster, &installed, "muster", 40)
        .await
        .with_context(|| replicas[0].process.log_tail(4_000))?;
    check_rights(&cluster, &installed, "muster-node-agent", 8)
        .await
        .with_context(|| agent.log())?;
    release.run(&["test", "muster"])?;
    captured(&cluster)?;

    // Upgraded while gangs run and wait, and back again.
    let before = state(&cluster).await?;
    ensure!(short_names(&cluster).await? == json!(["formerly"]), "the former kind");
    for (verb, name) in [("upgrade", "mpg"), ("rollback", "formerly"), ("upgrade", "mpg")] {
        match verb {
            "rollback" => release.run(&["rollback", "muster", "1"])?,
            _ => release.with_chart("upgrade", &chart(), &[])?,
        };
        ensure!(short_names(&cluster).await? == json!([name]), "{verb}: the kind is not {name}");
        // A replica is replaced: the other one takes over.
        let old = replicas.remove(0);
        old.end()?;
        replicas.push(Replica::start(&cluster, free_port()?).await?);
        workload::gang(&cluster, &format!("after-{}", replicas[1].number), 3).await?;
        let now = state(&cluster).await?;
        for (what, uid) in &before {
            ensure!(now.get(what) == Some(uid), "{verb}: {what} is lost or another: {now:#?}");
        }
        cluster.say(&format!("{verb}: nothing lost, gangs are scheduled"));
    }

    agent.end()?;
    uninstalled(&release, &before).await
}

/// After uninstalling, what has `keep` is there with all objects of it, and nothing else;
/// what is installed later takes it over, and lets it go if told so.
async fn uninstalled(release: &Release<'_>, before: &BTreeMap<String, String>) -> Result<()> {
    let cluster = release.cluster;
    let manifest = release.objects()?;
    let keeps = |o: &Value| {
        o["metadata"]["annotations"]["helm.sh/resource-policy"].as_str() == Some("keep")
    };
    let (kept, gone): (Vec<Value>, Vec<Value>) = manifest.into_iter().partition(keeps);
    ensure!(kept.len() == of_kind(&kept, "CustomResourceDefinition").len(), "kept: {kept:?}");
    ensure!(kept.len() == fs::read_dir(root().join("crds"))?.count(), "{} kinds", kept.len());
    release.run(&["uninstall", "muster"])?;
    cluster.all_there(&kept).await?;
    cluster.all_gone(&gone).await?;
    let now = state(cluster).await?;
    for (what, uid) in before {
        ensure!(now.get(what) == Some(uid), "uninstall: {what} is lost");
    }
    release.with_chart("install", &chart(), &[])?;
    release.with_chart("upgrade", &chart(), &["--set", "crds.keep=false"])?;
    release.run(&["uninstall", "muster"])?;
    cluster.all_gone(&kept).await?;
    cluster.all_gone(&gone).await
}

/// What was captured of the cluster explains why a pod of it waits.
fn captured(cluster: &Cluster) -> Result<()> {
    let (file, kubeconfig) =
        (cluster.cp.dir().join("captured.json"), cluster.cp.admin_kubeconfig()?);
    let muster = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_muster")).args(arguments).output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        anyhow::Ok(said)
    };
    let path = |path: &Path| path.to_str().context("a path").map(str::to_owned);
    let (file, kubeconfig) = (path(&file)?, path(&kubeconfig)?);
    muster(&["capture", "-f", &file, "--kubeconfig", &kubeconfig])?;
    let said = muster(&["explain", "--cluster", &file, "--pod", "ml/huge"])?;
    ensure!(said.contains("0 of 9 nodes fit") && said.contains("Insufficient cpu"), "{said}");
    cluster.say("captured and explained");
    Ok(())
}

async fn short_names(cluster: &Cluster) -> Result<Value> {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/podgroups.muster.dev";
    let found = cluster.get(path).await?.context("the kind")?;
    Ok(found["spec"]["names"]["shortNames"].clone())
}

/// UIDs of what users have: groups, topologies, policies, pods with their nodes.
async fn state(cluster: &Cluster) -> Result<BTreeMap<String, String>> {
    let mut state = BTreeMap::new();
    for path in [
        "/apis/muster.dev/v1alpha1/podgroups",
        "/apis/muster.dev/v1alpha1/clustertopologies",
        "/apis/muster.dev/v1alpha1/schedulingpolicies",
        "/api/v1/namespaces/ml/pods",
    ] {
        let list = cluster.get(path).await?.with_context(|| path.to_owned())?;
        for item in list["items"].as_array().into_iter().flatten() {
            let node = item["spec"]["nodeName"].as_str().unwrap_or_default();
            let uid = item["metadata"]["uid"].as_str().unwrap_or_default();
            let key = format!("{path} {}", item["metadata"]["name"]);
            state.insert(key, format!("{uid} {node}"));
        }
    }
    Ok(state)
}

/// The audit log knows no request that was refused, and every right was needed.
async fn check_rights(
    cluster: &Cluster,
    installed: &[Value],
    account: &str,
    more_than: usize,
) -> Result<()> {
    let granted = rights(installed, NAMESPACE, account);
    ensure!(granted.len() > more_than, "{account}: {granted:?}");
    let user = format!("system:serviceaccount:{NAMESPACE}:{account}");
    let left = || {
        let asked = asked(&cluster.cp.audit_events()?, &user);
        ensure!(asked.forbidden.is_empty(), "refused: {:#?}", asked.forbidden);
        anyhow::Ok(unused(&granted, &asked))
    };
    // Something new every now and then has pods tried again, and events told again.
    let again = eventually("every right needed", SOON, async || {
        workload::poke(cluster).await?;
        Ok(left()?.is_empty())
    });
    again.await.with_context(|| format!("never needed: {:#?}", left()))?;
    cluster.say(&format!("{account}: {} rights, all needed, none missing", granted.len()));
    Ok(())
}
