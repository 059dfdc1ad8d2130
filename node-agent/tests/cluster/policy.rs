//! A token that is bound to a pod on a node writes that node's objects and no other's.

use anyhow::{Context, Result, ensure};
use http::Method;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::support::{Cluster, NAMESPACE, SOON, call, eventually};

async fn client(path: &std::path::Path) -> Result<Client> {
    let file = Kubeconfig::read_from(path)?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// The three objects that an agent writes, for `node`, owned by `owner`: path and object.
async fn objects(cluster: &Cluster, node: &str, owner: &str) -> Result<Vec<(String, Value)>> {
    let found = cluster.get(&format!("/api/v1/nodes/{owner}")).await?.context("the node")?;
    let owners = json!([{
        "apiVersion": "v1", "kind": "Node", "name": owner, "uid": found["metadata"]["uid"],
    }]);
    let lease = format!("muster-node-agent-{node}");
    Ok(vec![
        (
            format!("/apis/muster.dev/v1alpha1/nodetopologies/{node}"),
            json!({
                "apiVersion": "muster.dev/v1alpha1", "kind": "NodeTopology",
                "metadata": {"name": node, "ownerReferences": owners},
            }),
        ),
        (
            format!("/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies/{node}"),
            json!({
                "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
                "metadata": {"name": node, "ownerReferences": owners}, "zones": [],
            }),
        ),
        (
            format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{lease}"),
            json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": lease, "namespace": NAMESPACE, "ownerReferences": owners},
                "spec": {"leaseDurationSeconds": 40},
            }),
        ),
    ])
}

async fn apply(client: &Client, path: &str, object: &Value) -> Result<(u16, String)> {
    let path = format!("{path}?fieldManager=test&force=true");
    call(client, Method::PATCH, &path, "application/apply-patch+yaml", object).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_writes_its_own_nodes_objects_and_no_others() -> Result<()> {
    let cluster = Cluster::start().await?;
    let one = client(&cluster.identity("one").await?).await?;
    let two = client(&cluster.identity("two").await?).await?;
    // The policy is in force when it refuses; the API server learns of it by a watch of its own.
    let (path, object) = objects(&cluster, "one", "one").await?.remove(0);
    eventually("in force", SOON, async || Ok(apply(&two, &path, &object).await?.0 != 200)).await?;

    for (path, object) in objects(&cluster, "one", "one").await? {
        // To create, and to change what is there.
        let (code, answer) = apply(&two, &path, &object).await?;
        ensure!(code == 422 || code == 403, "{path} created by another: {code} {answer}");
        ensure!(answer.contains("the agent of node two may write"), "{answer}");
        let (code, answer) = apply(&one, &path, &object).await?;
        ensure!(code == 200, "{path} by its own agent: {code} {answer}");
        let (code, answer) = apply(&two, &path, &object).await?;
        ensure!(code == 422 || code == 403, "{path} changed by another: {code} {answer}");
        // Nobody gave it the right to delete, its own object among others.
        let none = Value::Null;
        let (code, _) = call(&one, Method::DELETE, &path, "application/json", &none).await?;
        ensure!(code == 403, "{path} deleted: {code}");
    }
    // Its object owned by another node: it would go when that one does.
    for (path, object) in objects(&cluster, "two", "one").await? {
        let (code, answer) = apply(&two, &path, &object).await?;
        ensure!(code != 200 && answer.contains("owned by its Node"), "{path}: {code} {answer}");
    }
    // A token of the account that is bound to no pod says no node.
    let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/muster-node-agent/token");
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let (_, answer) =
        call(&cluster.admin, Method::POST, &path, "application/json", &request).await?;
    let answer: Value = serde_json::from_str(&answer)?;
    let token = answer["status"]["token"].as_str().context("a token")?;
    let unbound = client(&cluster.kubeconfig("unbound", token)?).await?;
    for (path, object) in objects(&cluster, "one", "one").await? {
        let (code, answer) = apply(&unbound, &path, &object).await?;
        ensure!(code != 200 && answer.contains("not bound to a pod"), "{path}: {code} {answer}");
    }
    // Others are none of the policy's business.
    for (path, object) in objects(&cluster, "two", "two").await? {
        let (code, answer) = apply(&cluster.admin, &path, &object).await?;
        ensure!(code == 200, "{path} by an administrator: {code} {answer}");
    }
    // And what it has no business with at all.
    for path in ["/api/v1/secrets", "/api/v1/nodes", "/api/v1/nodes/one/proxy/configz"] {
        let none = Value::Null;
        let (code, answer) = call(&one, Method::GET, path, "application/json", &none).await?;
        ensure!(code == 403, "{path}: {code} {answer}");
    }
    Ok(())
}
