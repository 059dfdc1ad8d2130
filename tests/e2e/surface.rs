//! The HTTPS surface, asked by those with and without the right to ask.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Request;
use kube::Client;
use muster_control_plane::{ControlPlane, Process};
use serde_json::{Value, json};

use crate::observer::Observer;
use crate::support::{Cluster, SOON, eventually, free_port};

pub(crate) const READER: &str = r"
apiVersion: v1
kind: ServiceAccount
metadata: {name: prometheus, namespace: default}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: nobody, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: debug}
rules:
  - nonResourceURLs: [/configz, /debug/*]
    verbs: [get, put]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: metrics}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: muster-metrics-reader}
subjects: [{kind: ServiceAccount, name: prometheus, namespace: default}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: debug}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: debug}
subjects: [{kind: ServiceAccount, name: prometheus, namespace: default}]
";

/// Health is open; the rest needs a token and the right to the path. A
/// configuration file of kube-scheduler's works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shows_itself_to_whom_it_may() -> Result<()> {
    let cluster = Cluster::start(ControlPlane::builder()).await?;
    cluster.apply(READER).await?;
    cluster.nodes(3).await?;
    let port = free_port()?;
    let muster = start(&cluster, port)?;
    let open = surface(port, None)?;
    eventually("ready", SOON, || async {
        ensure!(muster.is_running(), "{}", muster.log_tail(4_000));
        Ok(get(&open, "/readyz").await.is_ok())
    })
    .await?;
    get(&open, "/livez").await?;

    let observer = Observer::start(cluster.admin.clone());
    cluster.pods("work", 3, "default-scheduler", "1").await?;
    cluster.pods("huge", 1, "default-scheduler", "64").await?;
    observer.wait("work", 3, SOON).await?;
    // The file says to pack.
    let nodes: BTreeSet<String> = observer.bound("work").into_iter().map(|b| b.node).collect();
    ensure!(nodes.len() == 1, "pods that are to be packed are on {nodes:?}");

    let nobody = surface(port, Some(token(&cluster, "nobody").await?))?;
    let prometheus = surface(port, Some(token(&cluster, "prometheus").await?))?;
    for path in ["/metrics", "/configz", "/debug/queue", "/debug/cache"] {
        ensure!(matches!(code(get(&open, path).await), 401 | 403), "{path} is open");
        ensure!(code(get(&nobody, path).await) == 403, "{path} is open to nobody");
        let text = get(&prometheus, path).await;
        ensure!(!text.with_context(|| path)?.is_empty(), "{path} is empty");
    }
    metrics_tell(&prometheus).await?;
    views_tell(&prometheus).await?;
    reload_tells(&cluster, &prometheus, &muster).await?;
    let log = muster.log_tail(1 << 26);
    ensure!(
        log.contains("verdicts:") && log.contains("NodeResourcesFit"),
        "-v 10 does not say what each plugin thought"
    );
    muster.terminate()?;
    ensure!(muster.wait_exit(SOON)? == 0, "exit code after SIGTERM");
    Ok(())
}

fn start(cluster: &Cluster, port: u16) -> Result<Process> {
    let file = cluster.cp.dir().join("config.yaml");
    let config = format!(
        "apiVersion: kubescheduler.config.k8s.io/v1\n\
         kind: KubeSchedulerConfiguration\n\
         clientConnection: {{kubeconfig: {}, qps: 100}}\n\
         leaderElection: {{resourceName: muster, resourceNamespace: muster-system}}\n\
         profiles:\n\
         - plugins: {{score: {{disabled: [{{name: \"*\"}}], enabled: [{{name: NodeResourcesFit, weight: 7}}]}}}}\n  \
           pluginConfig: [{{name: NodeResourcesFit, args: {{scoringStrategy: {{type: MostAllocated}}}}}}]\n",
        cluster.kubeconfig.display()
    );
    std::fs::write(&file, config)?;
    let (port, file) = (port.to_string(), file.display().to_string());
    cluster.muster(
        "muster",
        &["--config", &file, "--secure-port", &port, "--bind-address", "127.0.0.1", "-v", "10"],
    )
}

async fn metrics_tell(client: &Client) -> Result<()> {
    let expected = [
        "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"scheduled\"} 3",
        "scheduler_pending_pods{queue=\"unschedulable\"} 1",
        "scheduler_async_api_call_execution_total{call_type=\"pod_binding\",result=\"success\"} 3",
    ];
    // Gauges are refreshed now and then.
    eventually("told by the metrics", Duration::from_secs(10), || async {
        let text = get(client, "/metrics").await?;
        let missing: Vec<_> = expected.iter().filter(|line| !text.contains(**line)).collect();
        if !missing.is_empty() {
            eprintln!("metrics lack {missing:?}");
        }
        Ok(missing.is_empty())
    })
    .await
}

async fn views_tell(client: &Client) -> Result<()> {
    let queue: Value = serde_json::from_str(&get(client, "/debug/queue").await?)?;
    ensure!(queue.to_string().contains("huge-0000"), "{queue}");
    let cache: Value = serde_json::from_str(&get(client, "/debug/cache").await?)?;
    ensure!(cache.to_string().contains("default/work-0000"), "{cache}");
    let config: Value = serde_json::from_str(&get(client, "/configz").await?)?;
    let scores = &config["plugins"]["default-scheduler"]["score"];
    ensure!(*scores == json!([{"name": "NodeResourcesFit", "weight": 7}]), "{config}");
    let profile = &config["componentconfig"]["profiles"][0];
    let args = profile["pluginConfig"].as_array().into_iter().flatten();
    let mut args = args.filter(|config| config["name"] == "NodeResourcesFit");
    let kind = args.next().map(|config| &config["args"]["scoringStrategy"]["type"]);
    ensure!(kind == Some(&json!("MostAllocated")), "{config}");
    Ok(())
}

/// A change of the file is shown, and one that is refused is said in the log.
async fn reload_tells(cluster: &Cluster, client: &Client, muster: &Process) -> Result<()> {
    let file = cluster.cp.dir().join("config.yaml");
    let text = std::fs::read_to_string(&file)?.replace("weight: 7", "weight: 3");
    std::fs::write(&file, &text)?;
    let weight = || async {
        let config: Value = serde_json::from_str(&get(client, "/configz").await?)?;
        anyhow::Ok(config["plugins"]["default-scheduler"]["score"][0]["weight"].clone())
    };
    eventually("reloaded", SOON, || async { Ok(weight().await? == 3) }).await?;
    let metrics = get(client, "/metrics").await?;
    ensure!(metrics.contains("\nmuster_config_version 1\n"), "{metrics}");
    std::fs::write(&file, text.replace("weight: 3", "wieght: 3"))?;
    let refused = "muster_config_reloads_total{result=\"invalid\"} 1";
    let counted = || async { Ok(get(client, "/metrics").await?.contains(refused)) };
    eventually("refused", SOON, counted).await?;
    let log = muster.log_tail(1 << 26);
    let said = log.lines().find(|line| line.contains("a change of the configuration is refused"));
    let (said, path) = (said.context("nothing is said")?, file.display().to_string());
    ensure!(said.contains(&path) && said.contains("did you mean \"weight\"?"), "{said}");
    ensure!(weight().await? == 3, "the old configuration stays");
    Ok(())
}

/// A client of the surface, whose certificate is its own.
pub(crate) fn surface(port: u16, token: Option<String>) -> Result<Client> {
    let mut config = kube::Config::new(format!("https://127.0.0.1:{port}").parse()?);
    config.accept_invalid_certs = true;
    config.default_retry = false;
    config.auth_info.token = token.map(Into::into);
    Ok(Client::try_from(config)?)
}

pub(crate) async fn get(client: &Client, path: &str) -> kube::Result<String> {
    let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    client.request_text(request).await
}

/// The status of a refusal; 200 if there was none, 0 if there was no answer.
fn code(answer: kube::Result<String>) -> u16 {
    match answer {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(_) => 0,
    }
}

/// A token of a service account, as a pod has one.
pub(crate) async fn token(cluster: &Cluster, account: &str) -> Result<String> {
    let path = format!("/api/v1/namespaces/default/serviceaccounts/{account}/token");
    let body =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let request = Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(serde_json::to_vec(&body)?)?;
    let answer: Value = cluster.admin.request(request).await?;
    let token = answer["status"]["token"].as_str();
    Ok(token.context("no token")?.to_owned())
}
