//! What goes away and comes back.

use std::time::Duration;

use anyhow::{Result, ensure};
use http::Method;
use serde_json::{Value, json};

use crate::kubelet::{Ask, Mood};
use crate::support::{
    Cluster, GPU, NAMESPACE, Node, PROMPT, SOON, call, condition, device, topology_path,
};

/// How long the API server is away: `MUSTER_AWAY_SECONDS`, or long enough for several attempts.
fn away() -> Duration {
    let seconds = std::env::var("MUSTER_AWAY_SECONDS").ok().and_then(|s| s.parse().ok());
    Duration::from_secs(seconds.unwrap_or(12))
}

fn written(object: &Value) -> bool {
    condition(object, "PodResourcesAvailable") == "True"
}

/// A pod on the node, as the API server shows it.
async fn pod(cluster: &Cluster, node: &Node, name: &str, predicted: &str) -> Result<()> {
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "default",
            "annotations": {"muster.dev/predicted-devices": predicted},
        },
        "spec": {"nodeName": node.name, "containers": [{"name": "main", "image": "i"}]},
    });
    cluster.create(&object).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_object_converges_whatever_was_away() -> Result<()> {
    let cluster = Cluster::start().await?;
    let mut node = Node::new(&cluster, "dgx-h100").await?;
    node.start(&cluster, &[])?;
    let ids = node.uuids();
    let two = Ask { resource: GPU, devices: 2, cpus: 4, ..Ask::default() };
    let (first, took) = node.until(&cluster, "written", SOON, written).await?;
    eprintln!("first object after {took:.1?}");

    eprintln!("a pod is admitted, as predicted");
    let wish = json!({GPU: [ids[0], ids[1]]}).to_string();
    pod(&cluster, &node, "a", &wish).await?;
    let got: Vec<&str> = vec![&ids[0], &ids[1]];
    node.kubelet.admit("default", "a", &Ask { ids: &got, ..two.clone() })?;
    let held = |object: &Value| {
        device(object, &ids[0]) == "Allocated" && object["status"]["predictions"]["held"] == 1
    };
    let (object, took) = node.until(&cluster, "allocated", PROMPT, held).await?;
    eprintln!("after {took:.1?}");
    let holder = object["status"]["devices"].as_array().into_iter().flatten();
    let holder = holder.into_iter().find(|d| d["id"] == ids[0].as_str());
    let pod_a = cluster.get("/api/v1/namespaces/default/pods/a").await?.unwrap_or_default();
    ensure!(
        holder.is_some_and(|d| d["pod"]["uid"] == pod_a["metadata"]["uid"]),
        "the device is its pod's: {holder:?}"
    );
    ensure!(object["status"]["podSet"]["count"] == 1, "{}", object["status"]["podSet"]);
    ensure!(object["hardware"]["hash"] == first["hardware"]["hash"], "the hardware is the same");

    eprintln!("a pod is admitted, and not as predicted");
    pod(&cluster, &node, "b", &wish).await?;
    let other: Vec<&str> = vec![&ids[2], &ids[3]];
    node.kubelet.admit("default", "b", &Ask { ids: &other, ..two.clone() })?;
    let missed = |object: &Value| condition(object, "PredictionsHold") == "False";
    node.until(&cluster, "missed", PROMPT, missed).await?;
    node.kubelet.release("default", "b")?;
    cluster.delete("/api/v1/namespaces/default/pods/b?gracePeriodSeconds=0").await?;
    let holds = |object: &Value| {
        condition(object, "PredictionsHold") == "True" && device(object, &ids[2]) == "Free"
    };
    node.until(&cluster, "forgiven", PROMPT, holds).await?;

    eprintln!("the kubelet is away, and comes back with a new socket");
    node.kubelet.stop().await;
    node.kubelet.write("cpu_manager_state", "{}")?;
    let silent = |object: &Value| condition(object, "PodResourcesAvailable") == "False";
    let (object, _) = node.until(&cluster, "silent", PROMPT, silent).await?;
    ensure!(device(&object, &ids[0]) == "Allocated", "what was seen last stays");
    node.kubelet.release("default", "a")?;
    node.kubelet.restart().await?;
    let back = |object: &Value| written(object) && device(object, &ids[0]) == "Free";
    let (_, took) = node.until(&cluster, "back", PROMPT, back).await?;
    eprintln!("after {took:.1?}");

    eprintln!("the kubelet refuses, talks nonsense, and is well again");
    for mood in [Mood::Refusing(8, "rate limit"), Mood::Babbling(vec![0, 0, 0, 0, 1, 0xff])] {
        node.kubelet.mood(mood);
        node.kubelet.write("cpu_manager_state", "{}")?;
        node.until(&cluster, "silent", PROMPT, silent).await?;
        node.kubelet.mood(Mood::Helpful);
        node.kubelet.write("cpu_manager_state", "{}")?;
        node.until(&cluster, "back", PROMPT, back).await?;
    }

    eprintln!("the API server is away for {:?}, and the kubelet gives something meanwhile", away());
    cluster.cp.stop_api_server()?;
    node.kubelet.admit("default", "a", &Ask { ids: &got, ..two.clone() })?;
    node.kubelet.unhealthy(GPU, &ids[7])?;
    tokio::time::sleep(away()).await;
    ensure!(node.agent()?.is_running(), "the agent has ended: {}", node.agent()?.log_tail(2000));
    cluster.cp.start_api_server()?;
    let seen = |object: &Value| {
        device(object, &ids[0]) == "Allocated" && device(object, &ids[7]) == "Unhealthy"
    };
    let (_, took) = node.until(&cluster, "caught up", Duration::from_secs(20), seen).await?;
    eprintln!("after {took:.1?}");

    eprintln!("the agent is killed, and knows of the broken device when it is back");
    node.agent()?.kill()?;
    node.kubelet.release("default", "a")?;
    let before = cluster.topology(&node.name).await?;
    node.start(&cluster, &[])?;
    let again = |object: &Value| {
        device(object, &ids[0]) == "Free" && device(object, &ids[7]) == "Unhealthy"
    };
    let (object, took) = node.until(&cluster, "converged", SOON, again).await?;
    eprintln!("after {took:.1?}");
    ensure!(object["status"]["startedAt"] != before["status"]["startedAt"], "a new life");

    eprintln!("somebody deletes the object, or changes it");
    cluster.delete(&topology_path(&node.name)).await?;
    node.until(&cluster, "written again", PROMPT, again).await?;
    let change = json!({"status": {"devices": []}});
    let kind = "application/merge-patch+json";
    let path = topology_path(&node.name);
    let (code, answer) = call(&cluster.admin, Method::PATCH, &path, kind, &change).await?;
    ensure!(code == 200, "{answer}");
    node.until(&cluster, "put right", PROMPT, again).await?;

    let lease = format!(
        "/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/muster-node-agent-{}",
        node.name
    );
    let lease = cluster.get(&lease).await?.unwrap_or_default();
    ensure!(lease["spec"]["leaseDurationSeconds"] == 40, "{lease}");
    eprintln!("{} writes, none within a second of another", cluster.check_pace()?);
    Ok(())
}
