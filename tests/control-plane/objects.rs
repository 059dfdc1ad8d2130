//! Objects in bulk.

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use serde::Serialize;
use serde_json::{Value, json};

use crate::binaries::say;

/// Pod annotation: kwok ends the pod (Succeeded) that many seconds after
/// `status.startTime`, which the API server cuts to whole seconds.
pub const RUN_SECONDS: &str = "muster.dev/sim-run-seconds";

/// Pod annotation: kwok removes a deleted pod after that many seconds instead
/// of at once.
pub const GRACE_SECONDS: &str = "muster.dev/sim-grace-seconds";

/// Requests in flight: enough to keep the API server busy.
const IN_FLIGHT: usize = 64;

/// A node for kwok with its host name label, capacity and a Ready condition
/// (so that it can be scheduled to without kwok as well).
pub fn node(name: &str, cpu: &str, memory: &str, pods: u32) -> Node {
    let capacity = json!({"cpu": cpu, "memory": memory, "pods": pods.to_string()});
    from(json!({
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            },
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "status": {
            "capacity": capacity, "allocatable": capacity,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }))
}

/// A pending pod with one container for the named scheduler.
pub fn pod(name: &str, scheduler: &str, cpu: &str, memory: &str) -> Pod {
    from(json!({
        "metadata": {"name": name},
        "spec": {
            "schedulerName": scheduler,
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "main", "image": "example.invalid/none",
                "resources": {"requests": {"cpu": cpu, "memory": memory}},
            }],
        },
    }))
}

#[expect(clippy::expect_used, reason = "the literals above have the shape of the type")]
fn from<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("a literal of the right shape")
}

/// Creates `n` nodes, `make(0)` to `make(n - 1)`.
pub async fn create_nodes(client: &Client, n: usize, make: impl Fn(usize) -> Node) -> Result<()> {
    create_objects(client, "/api/v1/nodes", "nodes", n, make).await
}

/// Creates `n` pods in a namespace.
pub async fn create_pods(
    client: &Client,
    namespace: &str,
    n: usize,
    make: impl Fn(usize) -> Pod,
) -> Result<()> {
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    create_objects(client, &path, "pods", n, make).await
}

/// Posts `n` objects of any kind to the collection at `path`, in order, many
/// at a time; `what` names them in the progress line.
pub async fn create_objects<T: Serialize>(
    client: &Client,
    path: &str,
    what: &str,
    n: usize,
    make: impl Fn(usize) -> T,
) -> Result<()> {
    let begin = std::time::Instant::now();
    let requests = stream::iter(0..n).map(|i| {
        let body = serde_json::to_vec(&make(i));
        async move {
            let request = http::Request::post(path)
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(body?)?;
            let answer = client.request_text(request).await;
            answer.with_context(|| format!("create number {i} of {n} {what}"))?;
            anyhow::Ok(())
        }
    });
    let mut done = 0_usize;
    let mut requests = requests.buffer_unordered(IN_FLIGHT);
    while requests.try_next().await?.is_some() {
        done += 1;
        if done.is_multiple_of(2_500) && done < n {
            say(&format!("{done} of {n} {what} created"));
        }
    }
    if n >= 2_500 {
        say(&format!("{n} {what} created in {:.1} s", begin.elapsed().as_secs_f64()));
    }
    Ok(())
}

/// Binds a pod as a scheduler does.
pub async fn bind(client: &Client, namespace: &str, pod: &str, node: &str) -> Result<()> {
    let body = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}/binding");
    let request = http::Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(serde_json::to_vec(&body)?)?;
    let answer = client.request_text(request).await;
    answer.with_context(|| format!("bind {pod} to {node}"))?;
    Ok(())
}
