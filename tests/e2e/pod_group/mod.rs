//! The kind `PodGroup` on a real API server: what it takes, what it refuses and in
//! which words, what it fills in, what `kubectl get` and `kubectl explain` show.

mod cases;
mod foreign;
mod status;

use anyhow::{Context, Result, ensure};
use http::{Method, Request};
use kube::Client;
use muster_api::muster::{self, PodGroup, PodGroupStatus};
use muster_control_plane::ControlPlane;
use serde_json::{Value, json};

use crate::support::{Cluster, SOON, eventually};

const GROUPS: &str = "/apis/muster.dev/v1alpha1/namespaces/default/podgroups";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// Sends a request; the answer, or the words of the refusal.
pub(crate) async fn ask(
    client: &Client,
    method: Method,
    path: &str,
    body: &Value,
) -> Result<Value, String> {
    let content = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).unwrap() };
    let request = Request::builder().method(method).uri(path).header("Content-Type", content);
    match client.request_text(request.body(body).unwrap()).await {
        Ok(text) => Ok(serde_json::from_str(&text).unwrap()),
        Err(kube::Error::Api(status)) => Err(status.message.clone()),
        Err(error) => Err(error.to_string()),
    }
}

/// Gives a cluster Muster's kinds, and waits until they are served.
pub(crate) async fn install(cluster: &Cluster) -> Result<()> {
    for crd in muster::crds() {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        ask(&cluster.admin, Method::POST, path, &crd).await.map_err(anyhow::Error::msg)?;
        let name = crd["metadata"]["name"].as_str().context("a definition without a name")?;
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        eventually(&format!("{name} established"), SOON, || async {
            let found = ask(&cluster.admin, Method::GET, &path, &Value::Null).await;
            let found = found.map_err(anyhow::Error::msg)?;
            Ok(is_true(&found, "Established"))
        })
        .await?;
    }
    eventually("served", SOON, || async {
        Ok(ask(&cluster.admin, Method::GET, GROUPS, &Value::Null).await.is_ok())
    })
    .await
}

fn is_true(object: &Value, condition: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == condition && c["status"] == "True")
}

fn group(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "muster.dev/v1alpha1", "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    })
}

#[tokio::test]
async fn the_api_server_takes_the_kind_and_keeps_its_rules() -> Result<()> {
    let cluster = Cluster::start(ControlPlane::builder()).await?;
    install(&cluster).await?;
    cluster.say("established");
    sound(&cluster.admin).await?;
    cases::check(&cluster.admin).await?;
    defaults(&cluster.admin).await?;
    status_and_columns(&cluster.admin).await?;
    explained(&cluster.admin).await?;
    cluster.say("done");
    Ok(())
}

/// The server has no complaint about the definitions, not even a mild one.
async fn sound(admin: &Client) -> Result<()> {
    for crd in muster::crds() {
        let name = crd["metadata"]["name"].as_str().unwrap();
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        let found = ask(admin, Method::GET, &path, &Value::Null).await.unwrap();
        ensure!(is_true(&found, "NamesAccepted"), "{found}");
        let conditions = found["status"]["conditions"].as_array().unwrap();
        let bad = conditions.iter().find(|c| c["type"] == "NonStructuralSchema");
        ensure!(bad.is_none(), "{bad:?}");
        let body = serde_json::to_vec(&crd)?;
        let path = format!("{path}?dryRun=All&fieldManager=test&fieldValidation=Strict&force=true");
        let request = Request::patch(path).header("Content-Type", "application/apply-patch+yaml");
        let answer = admin.send(request.body(kube::client::Body::from(body))?).await?;
        ensure!(answer.status().is_success(), "{answer:?}");
        let warning = answer.headers().get("Warning");
        ensure!(warning.is_none(), "the server warns: {warning:?}");
    }
    Ok(())
}

async fn defaults(admin: &Client) -> Result<()> {
    let asked = group("defaults", &json!({"minMember": 2, "disruption": {}}));
    let made = ask(admin, Method::POST, GROUPS, &asked).await.map_err(anyhow::Error::msg)?;
    assert_eq!(
        made["spec"],
        json!({"minMember": 2, "reservation": "Atomic", "disruption": {"mode": "SurplusFirst"}})
    );
    // What was left out and not filled in is decided by policies.
    let read: PodGroup = serde_json::from_value(made)?;
    assert_eq!((read.spec.when_half_bound, read.spec.schedule_timeout_seconds), (None, None));
    // What the types write is what the server keeps.
    let again = ask(
        admin,
        Method::POST,
        &format!("{GROUPS}?dryRun=All&fieldValidation=Strict"),
        &group("again", &serde_json::to_value(&read.spec)?),
    )
    .await
    .map_err(anyhow::Error::msg)?;
    assert_eq!(serde_json::from_value::<PodGroup>(again)?.spec, read.spec);
    Ok(())
}

async fn status_and_columns(admin: &Client) -> Result<()> {
    let spec = json!({"minMember": 4, "topology": {"required": "rack"}});
    let mut body = group("columns", &spec);
    body["status"] = json!({"phase": "Running"});
    let made = ask(admin, Method::POST, GROUPS, &body).await.map_err(anyhow::Error::msg)?;
    ensure!(made.get("status").is_none(), "status is not taken at creation: {made}");

    let path = format!("{GROUPS}/columns");
    let now = "2026-11-16T10:00:00Z";
    let status = json!({
        "observedGeneration": 1, "phase": "Waiting", "reason": muster::reason::WAITING_FOR_PERMIT,
        "minMember": 4, "members": {"existing": 4, "scheduled": 1, "running": 0, "ready": 3,
            "succeeded": 3, "failed": 0, "lost": 0, "terminating": 0},
        "domain": {"level": "rack", "key": "example.com/rack", "value": "r1"},
        "conditions": [{"type": muster::condition::SCHEDULED, "status": "False",
            "reason": muster::reason::WAITING_FOR_PERMIT, "message": "waits",
            "lastTransitionTime": now, "observedGeneration": 1}],
        "scheduleStartTime": now,
    });
    let written = ask(
        admin,
        Method::PATCH,
        &format!("{path}/status?fieldValidation=Strict"),
        &json!({"status": status, "spec": {"minMember": 9}}),
    )
    .await
    .map_err(anyhow::Error::msg)?;
    assert_eq!(written["status"], status);
    assert_eq!(written["spec"]["minMember"], 4, "the subresource changes the status only");
    let read: PodGroupStatus = serde_json::from_value(written["status"].clone())?;
    assert_eq!(serde_json::to_value(&read)?, status, "the types hold all of it");

    let request = Request::get(&path).header("Accept", TABLE).body(Vec::new())?;
    let table: Value = serde_json::from_str(&admin.request_text(request).await?)?;
    let columns: Vec<&str> =
        table["columnDefinitions"].as_array().unwrap().iter().map(name).collect();
    assert_eq!(columns, ["Name", "Min", "Ready", "Phase", "Reason", "Age"]);
    let mut cells = table["rows"][0]["cells"].as_array().unwrap().clone();
    let age = cells.pop().unwrap();
    assert_eq!(json!(cells), json!(["columns", 4, 3, "Waiting", "WaitingForPermit"]));
    ensure!(age.as_str().is_some_and(|a| a.ends_with('s')), "age: {age}");

    // A member is placed: what it was placed by stays.
    let refused = "PodGroup.muster.dev \"columns\" is invalid: spec.topology: Forbidden: \
                   may be changed only while no member is placed";
    for change in [json!({"required": "block"}), Value::Null] {
        let patch = json!({"spec": {"topology": change}});
        let answer = ask(admin, Method::PATCH, &path, &patch).await;
        assert_eq!(answer.unwrap_err(), refused);
    }
    let none = json!({"status": {"members": {"scheduled": 0}}});
    ask(admin, Method::PATCH, &format!("{path}/status"), &none).await.unwrap();
    let relaxed = json!({"spec": {"topology": {"required": "block"}, "minMember": 3}});
    ask(admin, Method::PATCH, &path, &relaxed).await.unwrap();
    Ok(())
}

fn name(column: &Value) -> &str {
    column["name"].as_str().unwrap_or_default()
}

/// `kubectl explain` reads the schemas that the server publishes.
async fn explained(admin: &Client) -> Result<()> {
    let path = "/openapi/v3/apis/muster.dev/v1alpha1";
    eventually("published", SOON, || async {
        let document = ask(admin, Method::GET, path, &Value::Null).await.unwrap_or_default();
        Ok(document["components"]["schemas"]["dev.muster.v1alpha1.PodGroup"].is_object())
    })
    .await?;
    let document = ask(admin, Method::GET, path, &Value::Null).await.unwrap();
    let kind = &document["components"]["schemas"]["dev.muster.v1alpha1.PodGroup"];
    let mut seen = 0;
    for part in ["spec", "status"] {
        described(part, &kind["properties"][part], &mut seen);
    }
    ensure!(seen > 80, "only {seen} properties are published");
    Ok(())
}

fn described(path: &str, schema: &Value, seen: &mut usize) {
    *seen += 1;
    let text = schema["description"].as_str().unwrap_or_default();
    assert!(text.len() > 8, "{path} has no description: {schema}");
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        described(&format!("{path}.{name}"), property, seen);
    }
    if schema["items"].is_object() {
        described(&format!("{path}[]"), &schema["items"], seen);
    }
}
