//! The operations on a real API server.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use http::Method;
use kube::Client;
use serde_json::{Value, json};

use super::{Answer, Op, Shown, Uid, Version, alike, budget_line};
use crate::support::{Cluster, SOON};

/// How long a controller may take to say what it says in the end.
const SETTLE: Duration = Duration::from_secs(20);

pub(super) struct Real {
    client: Client,
    namespace: &'static str,
    start: String,
    /// A version that every pod has left behind.
    old: String,
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

impl Real {
    pub(super) async fn start(cluster: &Cluster, namespace: &'static str) -> Result<Self> {
        // Without hidden repetitions: a refusal is an answer.
        let mut config = cluster.cp.config("admin", &["system:masters"])?;
        config.default_retry = false;
        let client = Client::try_from(config)?;
        let body =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        let mut real = Self { client, namespace, start: String::new(), old: String::new() };
        let (code, answer) = real.call(Method::POST, "/api/v1/namespaces", &body).await?;
        if code != 201 {
            bail!("create namespace: {answer}");
        }
        let (_, list) = real.call(Method::GET, &real.pods(), &Value::Null).await?;
        text(&list, "/metadata/resourceVersion").clone_into(&mut real.start);
        real.old.clone_from(&real.start);
        Ok(real)
    }

    fn pods(&self) -> String {
        format!("/api/v1/namespaces/{}/pods", self.namespace)
    }

    async fn call(&self, method: Method, path: &str, body: &Value) -> Result<(u16, Value)> {
        let content = if method == Method::PATCH {
            "application/strategic-merge-patch+json"
        } else {
            "application/json"
        };
        let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(body)? };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, content)
            .body(kube::client::Body::from(body))?;
        let answer = self.client.send(request).await?;
        let code = answer.status().as_u16();
        let bytes = answer.into_body().collect_bytes().await?;
        Ok((code, serde_json::from_slice(&bytes).unwrap_or_default()))
    }

    /// The pod, or null.
    async fn pod(&self, name: &str) -> Result<Value> {
        let path = format!("{}/{name}", self.pods());
        let (code, pod) = self.call(Method::GET, &path, &Value::Null).await?;
        Ok(if code == 200 { pod } else { Value::Null })
    }

    fn preconditions(&self, pod: &Value, uid: Uid, version: Version) -> Value {
        let mut wanted = json!({});
        match uid {
            Uid::Any => {}
            Uid::Right => wanted["uid"] = pod["metadata"]["uid"].clone(),
            Uid::Wrong => wanted["uid"] = json!("another"),
        }
        match version {
            Version::Any => {}
            Version::Current => {
                wanted["resourceVersion"] = pod["metadata"]["resourceVersion"].clone();
            }
            Version::Old => wanted["resourceVersion"] = json!(self.old),
        }
        wanted
    }

    fn options(&self, pod: &Value, uid: Uid, version: Version, grace: Option<i64>) -> Value {
        let mut options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": self.preconditions(pod, uid, version),
        });
        if let Some(grace) = grace {
            options["gracePeriodSeconds"] = json!(grace);
        }
        options
    }

    /// Does it and says what the server said.
    pub(super) async fn run(&mut self, op: &Op) -> Result<Answer> {
        let (name, pods) = (name_of(op), self.pods());
        let pod = self.pod(name).await?;
        let (method, path, body) = match *op {
            Op::Create { pod, app, gated } => (Method::POST, pods, new_pod(pod, app, gated)),
            Op::Phase { pod, phase } => {
                (Method::PATCH, format!("{pods}/{pod}/status"), new_phase(phase))
            }
            Op::Bind { pod: name, node, uid } => {
                let metadata = self.preconditions(&pod, uid, Version::Any);
                let body = json!({
                    "apiVersion": "v1", "kind": "Binding",
                    "metadata": {"name": name, "uid": metadata["uid"]},
                    "target": {"kind": "Node", "name": node},
                });
                (Method::POST, format!("{pods}/{name}/binding"), body)
            }
            Op::Condition { pod: name, uid, message } => {
                let metadata = self.preconditions(&pod, uid, Version::Any);
                let body = json!({"metadata": metadata, "status": {"conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                     "message": message},
                ]}});
                (Method::PATCH, format!("{pods}/{name}/status"), body)
            }
            Op::Delete { pod: name, uid, version, grace, dry_run } => {
                let mut body = self.options(&pod, uid, version, grace);
                if dry_run {
                    // In the body: beside one, the query is not looked at.
                    body["dryRun"] = json!(["All"]);
                }
                (Method::DELETE, format!("{pods}/{name}"), body)
            }
            Op::Evict { pod: name, uid, grace, dry_run } => {
                let dry = if dry_run { "?dryRun=All" } else { "" };
                let body = json!({
                    "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name},
                    "deleteOptions": self.options(&pod, uid, Version::Any, grace),
                });
                (Method::POST, format!("{pods}/{name}/eviction{dry}"), body)
            }
            Op::Budget { name, app, min_available, always } => {
                let policy = if always { "AlwaysAllow" } else { "IfHealthyBudget" };
                let body = json!({
                    "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                    "metadata": {"name": name},
                    "spec": {"minAvailable": min_available, "unhealthyPodEvictionPolicy": policy,
                             "selector": {"matchLabels": {"app": app}}},
                });
                let namespace = self.namespace;
                let path = format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets");
                (Method::POST, path, body)
            }
        };
        let (code, answer) = self.call(method, &path, &body).await?;
        if code < 300 {
            return Ok(Answer::default());
        }
        Ok(Answer {
            code,
            reason: text(&answer, "/reason").to_owned(),
            cause: text(&answer, "/details/causes/0/reason").to_owned(),
            message: alike(
                text(&answer, "/message"),
                &[
                    text(&pod, "/metadata/uid"),
                    &format!("({})", text(&pod, "/metadata/resourceVersion")),
                    &format!("({})", self.old),
                ],
            ),
        })
    }

    /// The state once controllers have had their say, or after a while.
    pub(super) async fn settled(&self, expected: &[String]) -> Result<Vec<String>> {
        let begin = Instant::now();
        loop {
            let state = self.state().await?;
            if state == expected || begin.elapsed() > SETTLE {
                return Ok(state);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn state(&self) -> Result<Vec<String>> {
        let (_, pods) = self.call(Method::GET, &self.pods(), &Value::Null).await?;
        let path = format!("/apis/policy/v1/namespaces/{}/poddisruptionbudgets", self.namespace);
        let (_, budgets) = self.call(Method::GET, &path, &Value::Null).await?;
        let none = Vec::new();
        let items = |list: &Value| list["items"].as_array().unwrap_or(&none).clone();
        let mut lines: Vec<String> = items(&pods).iter().map(pod_line).collect();
        lines.extend(items(&budgets).iter().map(|budget| {
            let number = |field: &str| budget["status"][field].as_i64().unwrap_or_default();
            budget_line(
                text(budget, "/metadata/name"),
                number("disruptionsAllowed"),
                number("currentHealthy"),
                number("desiredHealthy"),
                number("expectedPods"),
            )
        }));
        lines.sort();
        Ok(lines)
    }

    async fn watch(&self) -> Result<Vec<Value>> {
        // The server ends the watch by itself; it has shown all by then.
        let path =
            format!("{}?watch=true&resourceVersion={}&timeoutSeconds=1", self.pods(), self.start);
        let request = http::Request::get(path).body(kube::client::Body::empty())?;
        let answer = tokio::time::timeout(SOON, async {
            self.client.send(request).await?.into_body().collect_bytes().await
        });
        let bytes = answer.await.context("the watch does not end")??;
        let events = serde_json::Deserializer::from_slice(&bytes).into_iter();
        Ok(events.collect::<Result<_, _>>()?)
    }

    /// What a watch from the beginning shows.
    pub(super) async fn watched(&self) -> Result<Vec<String>> {
        let events = self.watch().await?;
        Ok(events
            .iter()
            .map(|e| format!("{} {}", text(e, "/type"), pod_line(&e["object"])))
            .collect())
    }

    /// Code and reason of the first thing that a watch from the beginning says.
    pub(super) async fn watch_from_start(&self) -> Result<(u16, String)> {
        let events = self.watch().await?;
        let status = &events.first().context("an empty watch")?["object"];
        let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
        Ok((code.unwrap_or_default(), text(status, "/reason").to_owned()))
    }
}

fn name_of(op: &Op) -> &'static str {
    match *op {
        Op::Create { pod, .. }
        | Op::Phase { pod, .. }
        | Op::Bind { pod, .. }
        | Op::Condition { pod, .. }
        | Op::Delete { pod, .. }
        | Op::Evict { pod, .. } => pod,
        Op::Budget { name, .. } => name,
    }
}

fn new_pod(name: &str, app: &str, gated: bool) -> Value {
    let gates = if gated { json!([{"name": "wait"}]) } else { json!([]) };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": app}},
        "spec": {"schedulerName": "nobody", "schedulingGates": gates,
                 "containers": [{"name": "main", "image": "none"}]},
    })
}

fn new_phase(phase: &str) -> Value {
    let ready = if phase == "Running" { "True" } else { "False" };
    let phase = if phase == "Unready" { "Running" } else { phase };
    json!({"status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}})
}

fn pod_line(pod: &Value) -> String {
    let none = Vec::new();
    let conditions = pod["status"]["conditions"].as_array().unwrap_or(&none);
    Shown {
        name: text(pod, "/metadata/name"),
        node: text(pod, "/spec/nodeName"),
        phase: text(pod, "/status/phase"),
        terminating: !text(pod, "/metadata/deletionTimestamp").is_empty(),
        conditions: conditions
            .iter()
            .map(|c| (text(c, "/type"), text(c, "/status"), text(c, "/reason")))
            .collect(),
    }
    .line()
}
