//! A control plane to install into, and replicas of the scheduler as the chart describes them.

use std::fs;
use std::net::TcpListener;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use http::Method;
use kube::Client;
use muster_control_plane::{ControlPlane, Process};
use serde_json::{Value, json};

use crate::support::{NAMESPACE, objects, root};

/// For whatever should happen soon, on a slow machine.
pub(super) const SOON: Duration = Duration::from_secs(90);

pub(super) struct Cluster {
    pub(super) cp: ControlPlane,
    pub(super) admin: Client,
    begin: Instant,
}

/// Kinds of others that the chart has objects of.
const MONITORING: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: PLURAL.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  names: {kind: KIND, listKind: KINDList, plural: PLURAL, singular: SINGULAR}
  scope: Namespaced
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

impl Cluster {
    /// With the kinds of others that are optional, so that every right has something to be
    /// needed for.
    pub(super) async fn start() -> Result<Self> {
        let begin = Instant::now();
        let cp = ControlPlane::builder()
            .kwok(true)
            .audit_log(true)
            .feature_gates(&["GenericWorkload=true"])
            .runtime_config(&["scheduling.k8s.io/v1beta1=true"])
            .start()?;
        let cluster = Self { admin: cp.admin()?, cp, begin };
        for kind in ["ServiceMonitor", "PrometheusRule"] {
            let singular = kind.to_lowercase();
            let text = MONITORING.replace("KIND", kind).replace("PLURAL", &format!("{singular}s"));
            cluster.apply(&text.replace("SINGULAR", &singular)).await?;
        }
        for file in [
            "tests/e2e/pod_group/coscheduling.yaml",
            "node-agent/tests/cluster/node-resource-topology.yaml",
        ] {
            cluster.apply(&fs::read_to_string(root().join(file))?).await?;
        }
        for (namespace, labels) in [
            (NAMESPACE, json!({})),
            ("monitoring", json!({})),
            ("ml", json!({"muster.dev/schedule": "enabled"})),
        ] {
            cluster
                .create(&json!({"apiVersion": "v1", "kind": "Namespace",
                    "metadata": {"name": namespace, "labels": labels}}))
                .await?;
        }
        cluster
            .create(&json!({"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": "prometheus", "namespace": "monitoring"}}))
            .await?;
        for path in [
            "/apis/monitoring.coreos.com/v1/servicemonitors",
            "/apis/monitoring.coreos.com/v1/prometheusrules",
            "/apis/scheduling.x-k8s.io/v1alpha1/podgroups",
        ] {
            eventually("served", SOON, async || Ok(cluster.get(path).await?.is_some())).await?;
        }
        cluster.say("control plane ready");
        Ok(cluster)
    }

    /// Prints where the test is.
    pub(super) fn say(&self, what: &str) {
        eprintln!("chart {:6.1} s  {what}", self.begin.elapsed().as_secs_f64());
    }

    async fn apply(&self, yaml: &str) -> Result<()> {
        for object in objects(yaml)? {
            self.create(&object).await?;
        }
        Ok(())
    }

    /// Creates an object of any kind and returns it.
    pub(super) async fn create(&self, object: &Value) -> Result<Value> {
        let answer = self.call(Method::POST, &collection(object)?, object).await?;
        answer.map_err(|refusal| anyhow::anyhow!("create {object}: {refusal}"))
    }

    /// An object or a list; None if there is none.
    pub(super) async fn get(&self, path: &str) -> Result<Option<Value>> {
        Ok(self.call(Method::GET, path, &Value::Null).await?.ok())
    }

    /// Makes a call; the inner error is a refusal of the API server.
    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<Result<Value, String>> {
        let patch = method == Method::PATCH;
        let kind = if patch { "application/merge-patch+json" } else { "application/json" };
        let bytes = if body.is_null() { Vec::new() } else { serde_json::to_vec(body)? };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, kind)
            .body(bytes)?;
        match self.admin.request_text(request).await {
            Ok(text) => Ok(Ok(serde_json::from_str(&text)?)),
            Err(kube::Error::Api(status)) => Ok(Err(status.message.clone())),
            Err(error) => Err(error.into()),
        }
    }

    /// Every one of these objects is on the API server.
    pub(super) async fn all_there(&self, objects: &[Value]) -> Result<()> {
        ensure!(!objects.is_empty(), "no objects");
        for object in objects {
            let path = path(object)?;
            ensure!(self.get(&path).await?.is_some(), "{path} is not there");
        }
        Ok(())
    }

    /// Soon none of these objects is on the API server.
    pub(super) async fn all_gone(&self, objects: &[Value]) -> Result<()> {
        ensure!(!objects.is_empty(), "no objects");
        for object in objects {
            let path = path(object)?;
            let gone = async || Ok(self.get(&path).await?.is_none());
            eventually("gone", SOON, gone).await.with_context(|| path.clone())?;
        }
        Ok(())
    }

    /// A token of a service account, as a pod has one.
    pub(super) async fn token(&self, namespace: &str, account: &str) -> Result<String> {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let request =
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let Ok(answer) = self.call(Method::POST, &path, &request).await? else {
            bail!("no token for {account}");
        };
        Ok(answer["status"]["token"].as_str().context("no token")?.to_owned())
    }
}

/// One pod of the Deployment, as a process of this machine.
pub(super) struct Replica {
    pub(super) number: u32,
    pub(super) process: Process,
}

impl Replica {
    pub(super) async fn two(cluster: &Cluster, port: u16) -> Result<Vec<Self>> {
        let first = Self::start(cluster, port).await?;
        Ok(vec![first, Self::start(cluster, free_port()?).await?])
    }

    /// Starts what the Deployment describes, with the account that it names.
    pub(super) async fn start(cluster: &Cluster, port: u16) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/muster");
        let deployment = cluster.get(&path).await?.context("the Deployment")?;
        let pod = &deployment["spec"]["template"]["spec"];
        let account = pod["serviceAccountName"].as_str().context("an account")?;
        let token = cluster.token(NAMESPACE, account).await?;
        let name = format!("replica-{number}");
        let kubeconfig = cluster.cp.token_kubeconfig(&name, &token)?;
        let map = pod["volumes"][0]["configMap"]["name"].as_str().context("a ConfigMap")?;
        let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{map}");
        let map = cluster.get(&path).await?.context("the ConfigMap")?;
        let file = cluster.cp.dir().join(format!("{name}.yaml"));
        fs::write(&file, map["data"]["config.yaml"].as_str().context("a configuration")?)?;

        let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
        for argument in pod["containers"][0]["args"].as_array().context("arguments")? {
            let argument = argument.as_str().context("an argument")?;
            match argument {
                "--config=/etc/muster/config.yaml" => {
                    command.arg("--config").arg(&file);
                }
                _ if argument.starts_with("--secure-port=") => {
                    command.arg(format!("--secure-port={port}"));
                }
                _ => {
                    command.arg(argument);
                }
            }
        }
        command.arg("--kubeconfig").arg(&kubeconfig);
        let process = cluster.cp.spawn(&name, &command)?;
        let surface = surface(port, None)?;
        eventually("ready", SOON, async || {
            ensure!(process.is_running(), "{}", process.log_tail(4_000));
            Ok(read(&surface, "/readyz").await.is_ok())
        })
        .await?;
        cluster.say(&format!("{name} ready"));
        Ok(Self { number, process })
    }

    /// Ends it as the kubelet does.
    pub(super) fn end(&self) -> Result<()> {
        self.process.terminate()?;
        ensure!(self.process.wait_exit(SOON)? == 0, "{}", self.process.log_tail(4_000));
        Ok(())
    }
}

/// A client of a replica's own port, whose certificate is its own.
pub(super) fn surface(port: u16, token: Option<String>) -> Result<Client> {
    let mut config = kube::Config::new(format!("https://127.0.0.1:{port}").parse()?);
    config.accept_invalid_certs = true;
    config.default_retry = false;
    config.auth_info.token = token.map(Into::into);
    Ok(Client::try_from(config)?)
}

pub(super) async fn read(client: &Client, path: &str) -> Result<String> {
    Ok(client.request_text(http::Request::get(path).body(Vec::new())?).await?)
}

/// A port that is free at this moment.
pub(super) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// The path to create an object at.
fn collection(object: &Value) -> Result<String> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]).to_lowercase());
    ensure!(!version.is_empty() && !kind.is_empty(), "no kind: {object}");
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if kind.ends_with('s') => format!("{kind}es"),
        None => format!("{kind}s"),
    };
    let root = if version.contains('/') { "apis" } else { "api" };
    let namespace = text(&object["metadata"]["namespace"]);
    Ok(match namespace.as_str() {
        "" => format!("/{root}/{version}/{plural}"),
        _ => format!("/{root}/{version}/namespaces/{namespace}/{plural}"),
    })
}

fn path(object: &Value) -> Result<String> {
    let name = object["metadata"]["name"].as_str().context("a name")?;
    Ok(format!("{}/{name}", collection(object)?))
}

/// Polls until `ready` says yes.
pub(super) async fn eventually(
    what: &str,
    timeout: Duration,
    ready: impl AsyncFn() -> Result<bool>,
) -> Result<()> {
    let begin = Instant::now();
    while !ready().await? {
        ensure!(begin.elapsed() < timeout, "not {what} after {timeout:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
