//! Pod groups of others: Kubernetes' own and those of scheduler-plugins. Muster's own
//! kind is not installed.

use anyhow::Result;
use http::Method;
use muster_control_plane::{ControlPlane, RUN_SECONDS, create_objects};
use serde_json::{Value, json};

use super::ask;
use crate::support::{Cluster, SOON, eventually};

const NATIVE: &str = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups";
const COSCHEDULING: &str = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str, scheduler: &str, native: Option<&str>, label: Option<&str>) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {}, "annotations": {}},
        "spec": {"schedulerName": scheduler, "containers": [{"name": "main", "image": "i",
            "resources": {"requests": {"cpu": "10m"}}}]},
    });
    if let Some(group) = native {
        pod["spec"]["schedulingGroup"] = json!({"podGroupName": group});
    }
    if let Some(group) = label {
        pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = group.into();
        pod["metadata"]["annotations"][RUN_SECONDS] = "5".into();
    }
    pod
}

async fn make(cluster: &Cluster, path: &str, object: &Value) -> Result<()> {
    ask(&cluster.admin, Method::POST, path, object).await.map(drop).map_err(anyhow::Error::msg)
}

async fn status(cluster: &Cluster, path: &str) -> Result<Value> {
    let found = ask(&cluster.admin, Method::GET, path, &Value::Null).await;
    Ok(found.map_err(anyhow::Error::msg)?["status"].clone())
}

#[tokio::test]
async fn groups_of_others_have_their_status_in_their_own_form() -> Result<()> {
    let builder = ControlPlane::builder()
        .kwok(true)
        .feature_gates(&["GenericWorkload=true"])
        .runtime_config(&["scheduling.k8s.io/v1beta1=true"]);
    let cluster = Cluster::start(builder).await?;
    cluster.nodes(2).await?;
    let crd = serde_saphyr::from_str(include_str!("coscheduling.yaml"))?;
    make(&cluster, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await?;
    eventually("served", SOON, || async {
        Ok(ask(&cluster.admin, Method::GET, COSCHEDULING, &Value::Null).await.is_ok())
    })
    .await?;
    let muster = cluster.muster("muster", &[])?;
    native(&cluster).await?;
    coscheduling(&cluster).await?;
    muster.terminate()?;
    Ok(())
}

async fn native(cluster: &Cluster) -> Result<()> {
    for name in ["ours", "theirs"] {
        let group = json!({
            "apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup",
            "metadata": {"name": name},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}},
        });
        make(cluster, NATIVE, &group).await?;
    }
    create_objects(&cluster.admin, PODS, "pods", 6, |i| {
        let (group, scheduler) =
            if i < 3 { ("ours", "muster") } else { ("theirs", "default-scheduler") };
        pod(&format!("n{i}"), scheduler, Some(group), None)
    })
    .await?;
    let path = format!("{NATIVE}/ours");
    eventually("said to be scheduled", SOON, || async {
        Ok(status(cluster, &path).await?["conditions"][0]["status"] == "True")
    })
    .await?;
    let said = status(cluster, &path).await?;
    assert_eq!(said["conditions"].as_array().map(Vec::len), Some(1), "{said}");
    let condition = &said["conditions"][0];
    assert_eq!(condition["type"], "PodGroupInitiallyScheduled");
    assert_eq!(condition["reason"], "Scheduled");
    let theirs = status(cluster, &format!("{NATIVE}/theirs")).await?;
    assert!(theirs["conditions"].is_null(), "not ours to write: {theirs}");
    cluster.say("native group");
    Ok(())
}

async fn coscheduling(cluster: &Cluster) -> Result<()> {
    let group = json!({
        "apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup",
        "metadata": {"name": "c"}, "spec": {"minMember": 3, "scheduleTimeoutSeconds": 60},
    });
    make(cluster, COSCHEDULING, &group).await?;
    let path = format!("{COSCHEDULING}/c");
    create_objects(&cluster.admin, PODS, "pods", 3, |i| {
        pod(&format!("c{i}"), "muster", None, Some("c"))
    })
    .await?;
    for phase in ["Running", "Finished"] {
        eventually(phase, SOON, || async { Ok(status(cluster, &path).await?["phase"] == phase) })
            .await?;
        cluster.say(phase);
    }
    let said = status(cluster, &path).await?;
    assert_eq!((&said["running"], &said["succeeded"]), (&json!(0), &json!(3)), "{said}");
    assert!(said["scheduleStartTime"].is_string(), "{said}");
    Ok(())
}
