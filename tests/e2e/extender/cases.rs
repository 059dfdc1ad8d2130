//! What extenders do, and what becomes of pods.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use muster::config::{Extender, ExtenderTls, ManagedResource};
use serde_json::{Value, json};

use super::server::{Answer, Certificate, Server, nodes_of, pass, scored};
use super::{bound, counted, end, extender, new_pod, start, waits};
use crate::support::{Cluster, SOON, eventually, free_port};

const GPU: &str = "example.com/gpu";
/// How long the extender over TLS may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// What the extender over TLS says, by the name of the pod.
fn tls_script(verb: &str, pod: &str, question: &Value) -> Answer {
    match (verb, pod) {
        ("prioritize", "wild") => {
            let far = [i64::MAX, -5, 1_000];
            let nodes = nodes_of(question).into_iter().chain(["ghost".to_owned()]);
            let scores = nodes.zip(far.into_iter().cycle());
            Answer::Json(scores.map(|(n, s)| json!({"Host": n, "Score": s})).collect())
        }
        ("prioritize", "scoreless") => Answer::Status(503),
        ("prioritize", _) => scored(question, |node| if node == "node-2" { 10 } else { 0 }),
        (_, "refused") => {
            let why = |reason: &str, at: usize| json!({nodes_of(question)[at].clone(): reason});
            Answer::Json(json!({
                "Nodes": {"items": []},
                "FailedNodes": why("no licence", 0),
                "FailedAndUnresolvableNodes": why("wrong rack", 1),
            }))
        }
        (_, "lies") => {
            let ghost = json!({"metadata": {"name": "node-9"}});
            Answer::Json(json!({"Nodes": {"items": [ghost]}}))
        }
        (_, "says-error") => Answer::Json(json!({"Error": "the device database is locked"})),
        (_, "status") => Answer::Status(500),
        (_, "garbage") => Answer::Text("<html>".to_owned()),
        (_, "huge") => Answer::Text(" ".repeat(32 << 20)),
        (_, "late") => Answer::Late(TIMEOUT * 2, Box::new(pass(question))),
        _ => pass(question),
    }
}

/// Not `nodeCacheCapable`: whole pods and whole nodes go over a verified connection.
pub(super) async fn over_tls(cluster: &Cluster) -> Result<()> {
    let certificate = Certificate::new()?;
    let address = "127.0.0.1:0";
    let server =
        Server::start(address, Some(&certificate), cluster.admin.clone(), tls_script).await?;
    let dir = tempfile::tempdir()?;
    let ca = dir.path().join("ca.pem");
    std::fs::write(&ca, &certificate.pem)?;
    let url = format!("https://{}/path/", server.address);
    let tls = ExtenderTls {
        server_name: "extender.test".to_owned(),
        ca_file: ca.display().to_string(),
        ..ExtenderTls::default()
    };
    let spec = Extender {
        enable_https: true,
        tls_config: Some(tls),
        node_cache_capable: false,
        http_timeout: Some(TIMEOUT),
        ..extender(&url, &["filter", "prioritize"])
    };
    let scheduler = start(cluster, "tls", vec![spec]).await?;
    let names = [
        "plain",
        "wild",
        "scoreless",
        "refused",
        "lies",
        "says-error",
        "status",
        "garbage",
        "huge",
        "late",
    ];
    for name in names {
        new_pod(cluster, "tls", name, &json!({})).await?;
    }
    ensure!(bound(cluster, "plain").await? == "node-2", "the extender's score decides");
    bound(cluster, "wild").await?;
    bound(cluster, "scoreless").await?;
    let at = format!("{url}filter");
    let cases = [
        ("refused", "Unschedulable", "0/3 nodes are available: 1 no licence, 1 node(s) didn't pass the filters of extenders, 1 wrong rack.".to_owned()),
        ("lies", "SchedulerError", format!("extender {url:?} claims a filtered node \"node-9\" which is not found in the input node list")),
        ("says-error", "SchedulerError", "the device database is locked".to_owned()),
        ("status", "SchedulerError", format!("failed filter with extender at URL {at}, code 500")),
        ("garbage", "SchedulerError", format!("cannot decode the answer of the extender at URL {at}")),
        ("huge", "SchedulerError", format!("Post {at:?}: the answer is larger than")),
        ("late", "SchedulerError", format!("Post {at:?}: context deadline exceeded")),
    ];
    for (name, reason, message) in &cases {
        waits(cluster, name, reason, message).await?;
    }
    // All of the pod and of each node, but what informers throw away.
    let [question] = <[Value; 1]>::try_from(server.asked("filter", "plain"))
        .map_err(|all| anyhow::anyhow!("asked {} times", all.len()))?;
    let (pod, node) = (&question["Pod"], &question["Nodes"]["items"][0]);
    ensure!(pod["metadata"]["annotations"]["told"] == "all", "{pod}");
    ensure!(pod["spec"]["containers"][0]["command"] == json!(["sleep"]), "{pod}");
    ensure!(node["status"]["capacity"].is_object() && node["metadata"]["uid"].is_string());
    ensure!(node["metadata"]["managedFields"].is_null(), "{node}");
    ensure!(nodes_of(&question).len() == 3 && question["NodeNames"].is_null(), "{question}");
    let calls = |verb: &str, result: &str| {
        let labels = format!("extender=\"{url}\",result=\"{result}\",verb=\"{verb}\"");
        counted(scheduler.metrics(), &format!("muster_extender_calls_total{{{labels}}}"))
    };
    for (verb, result) in [
        ("filter", "success"),
        ("filter", "error"),
        ("filter", "status"),
        ("filter", "malformed"),
        ("filter", "unreachable"),
        ("filter", "timeout"),
        ("prioritize", "success"),
        ("prioritize", "status"),
    ] {
        ensure!(calls(verb, result) > 0.0, "no {verb} call with result {result}");
    }
    let beyond = format!("muster_extender_scores_out_of_range_total{{extender=\"{url}\"}}");
    ensure!(counted(scheduler.metrics(), &beyond) > 0.0, "no score was out of range");
    end(scheduler).await?;
    drop(server);
    // A certificate that nobody we trust has signed is refused.
    let other = Certificate::new()?;
    let server = Server::start(address, Some(&other), cluster.admin.clone(), tls_script).await?;
    let url = format!("https://{}", server.address);
    let data = base64(certificate.pem.as_bytes());
    let tls = ExtenderTls { ca_data: data, ..ExtenderTls::default() };
    let spec = Extender { tls_config: Some(tls), ..extender(&url, &["filter"]) };
    let scheduler = start(cluster, "untrusted", vec![spec]).await?;
    new_pod(cluster, "untrusted", "untrusting", &json!({})).await?;
    waits(cluster, "untrusting", "SchedulerError", "invalid peer certificate").await?;
    ensure!(server.asked("filter", "untrusting").is_empty(), "it was told of the pod");
    end(scheduler).await?;
    cluster.say("over TLS: done");
    Ok(())
}

/// Nobody listens: pods wait and say why, or go on if the extender is ignorable. When it
/// is up they run.
pub(super) async fn dead_and_alive(cluster: &Cluster) -> Result<()> {
    let port = free_port()?;
    let url = format!("http://127.0.0.1:{port}");
    let dead = extender(&url, &["filter", "prioritize"]);
    let ignorable = Extender { ignorable: true, ..dead.clone() };
    let needs = start(cluster, "needs", vec![dead]).await?;
    let ignores = start(cluster, "ignores", vec![ignorable]).await?;
    new_pod(cluster, "needs", "needs", &json!({})).await?;
    new_pod(cluster, "ignores", "ignores", &json!({})).await?;
    let message = format!("Post \"{url}/filter\": ");
    waits(cluster, "needs", "SchedulerError", &message).await?;
    waits(cluster, "needs", "SchedulerError", "Connection refused").await?;
    bound(cluster, "ignores").await?;
    let refused = format!(
        "muster_extender_calls_total{{extender=\"{url}\",result=\"unreachable\",verb=\"filter\"}}"
    );
    for scheduler in [&needs, &ignores] {
        ensure!(counted(scheduler.metrics(), &refused) > 0.0, "not counted: {refused}");
    }
    let server =
        Server::start(&format!("127.0.0.1:{port}"), None, cluster.admin.clone(), tls_script)
            .await?;
    bound(cluster, "needs").await?;
    ensure!(server.asked("filter", "needs").len() == 1, "asked again without need");
    end(needs).await?;
    end(ignores).await?;
    cluster.say("dead and alive: done");
    Ok(())
}

/// Pods that name its resource concern it, and only those; the scheduler itself does not
/// count that resource; the extender binds.
pub(super) async fn managed(cluster: &Cluster) -> Result<()> {
    let script = |verb: &str, pod: &str, question: &Value| match (verb, pod) {
        ("bind", "no-bind") => Answer::Json(json!({"Error": "no device is left"})),
        ("bind", _) => Answer::Bind,
        _ => pass(question),
    };
    let server = Server::start("127.0.0.1:0", None, cluster.admin.clone(), script).await?;
    let url = format!("http://{}", server.address);
    let gpu = ManagedResource { name: GPU.to_owned(), ignored_by_scheduler: true };
    let spec = Extender { managed_resources: vec![gpu], ..extender(&url, &["filter", "bind"]) };
    let scheduler = start(cluster, "managed", vec![spec]).await?;
    // No node offers the resource: that is the extender's business.
    let wants = json!({"limits": {GPU: "1", "cpu": "100m"}});
    new_pod(cluster, "managed", "with-gpu", &wants).await?;
    new_pod(cluster, "managed", "no-bind", &wants).await?;
    new_pod(cluster, "managed", "without", &json!({})).await?;
    for name in ["with-gpu", "without"] {
        bound(cluster, name).await?;
    }
    waits(cluster, "no-bind", "SchedulerError", "no device is left").await?;
    ensure!(server.asked("filter", "without").is_empty(), "it was asked about another's pod");
    ensure!(server.asked("bind", "without").is_empty(), "it was to bind another's pod");
    let [question] = <[Value; 1]>::try_from(server.asked("bind", "with-gpu"))
        .map_err(|all| anyhow::anyhow!("{} binds", all.len()))?;
    let pod = cluster.get_pod("with-gpu").await?;
    ensure!(question["PodUID"] == pod.metadata.uid.as_str(), "{question}");
    ensure!(question["Node"] == pod.spec.node_name.as_str(), "{question}");
    let path =
        "/apis/events.k8s.io/v1/namespaces/default/events?fieldSelector=regarding.name%3Dwith-gpu";
    eventually("told of the bind", SOON, || async {
        let events: Vec<Value> = cluster.list(path).await?;
        Ok(events.iter().any(|e| e["reason"] == "Scheduled"))
    })
    .await?;
    end(scheduler).await?;
    // By the nodes' own figures there is no room for it.
    let path = "/api/v1/namespaces/default/pods/with-gpu";
    cluster.admin.request_text(http::Request::delete(path).body(Vec::new())?).await?;
    cluster.say("managed: done");
    Ok(())
}

/// The extender wants somebody else to go than we would choose.
pub(super) async fn preempts(cluster: &Cluster) -> Result<()> {
    let script = |verb: &str, _: &str, question: &Value| match verb {
        "preempt" => {
            let all = question["NodeNameToVictims"].as_object().cloned().unwrap_or_default();
            // It leaves one node, with the victims it was asked about.
            let last = all.iter().max_by_key(|(node, _)| (*node).clone());
            let victims = last.map(|(node, victims)| {
                let pods = victims["Pods"].as_array().cloned().unwrap_or_default();
                let uids = pods.iter().map(|p| json!({"UID": p["metadata"]["uid"]}));
                (node.clone(), json!({"Pods": uids.collect::<Value>(), "NumPDBViolations": 0}))
            });
            let kept: serde_json::Map<String, Value> = victims.into_iter().collect();
            Answer::Json(json!({"NodeNameToMetaVictims": kept}))
        }
        _ => pass(question),
    };
    let server = Server::start("127.0.0.1:0", None, cluster.admin.clone(), script).await?;
    let url = format!("http://{}", server.address);
    let spec = Extender { node_cache_capable: false, ..extender(&url, &["preempt"]) };
    let scheduler = start(cluster, "preempts", vec![spec]).await?;
    for i in 0..3 {
        new_pod(cluster, "preempts", &format!("fill-{i}"), &json!({"requests": {"cpu": "6"}}))
            .await?;
    }
    let mut victim = String::new();
    for i in 0..3 {
        let name = format!("fill-{i}");
        if bound(cluster, &name).await? == "node-2" {
            victim = name;
        }
    }
    let high = json!({"requests": {"cpu": "6"}, "class": "high"});
    new_pod(cluster, "preempts", "high", &high).await?;
    let node = bound(cluster, "high").await.context("the preemptor")?;
    ensure!(node == "node-2", "the extender left node-2 only, the pod is on {node}");
    ensure!(cluster.get_pod(&victim).await.is_err(), "{victim} is still there");
    let asked = server.asked("preempt", "high");
    let victims = &asked[0]["NodeNameToVictims"];
    ensure!(victims.as_object().map(serde_json::Map::len) == Some(3), "{victims}");
    let pod = &victims["node-2"]["Pods"][0];
    ensure!(pod["spec"]["containers"][0]["command"] == json!(["sleep"]), "whole pods: {pod}");
    end(scheduler).await?;
    cluster.say("preempts: done");
    Ok(())
}

/// As a file has it.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0_usize, |w, b| w << 8 | usize::from(*b));
        let word = word << (8 * (3 - chunk.len()));
        for i in 0..4 {
            let digit = char::from(DIGITS[word >> (18 - 6 * i) & 63]);
            text.push(if i <= chunk.len() { digit } else { '=' });
        }
    }
    text
}
