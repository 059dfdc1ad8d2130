//! ExternalApproval on a real API server: a condition decides, or a server of the
//! test's own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use axum::extract::{Json, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Router, http::StatusCode};
use kube::Client;
use muster_control_plane::{ControlPlane, Process, create_pods, pod};
use serde_json::{Value, json};

use crate::support::{Cluster, SOON, eventually, free_port};
use crate::surface::{READER, get, surface, token};

/// What the server was asked, by pod.
type Asked = Arc<Mutex<BTreeMap<String, Vec<Value>>>>;

struct Stage {
    cluster: Cluster,
    muster: Process,
    reader: Client,
    asked: Asked,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn placements_wait_for_approval() -> Result<()> {
    let cluster = Cluster::start(ControlPlane::builder()).await?;
    cluster.apply(READER).await?;
    cluster.nodes(2).await?;
    let asked = Asked::default();
    let url = approvals(&asked).await?;
    refuses_bad_arguments(&cluster)?;
    let (file, port) = (cluster.cp.dir().join("config.yaml"), free_port()?);
    std::fs::write(&file, config(&url))?;
    let (file, port_text) = (file.display().to_string(), port.to_string());
    let arguments = ["--config", &file, "--secure-port", &port_text, "--bind-address", "127.0.0.1"];
    let muster = cluster.muster("muster", &arguments)?;
    let reader = surface(port, Some(token(&cluster, "prometheus").await?))?;
    let stage = Stage { cluster, muster, reader, asked };
    let played = stage.play().await;
    played.with_context(|| stage.muster.log_tail(4_000))
}

fn profile(name: &str, args: &Value) -> Value {
    json!({
        "schedulerName": name,
        "plugins": {"permit": {"enabled": [{"name": "ExternalApproval"}]}},
        "pluginConfig": [{"name": "ExternalApproval", "args": args}],
    })
}

fn config(url: &str) -> String {
    let server = |timeout: u32| {
        let (request, retry) = (1, 1);
        json!({"url": url, "timeoutSeconds": timeout, "requestTimeoutSeconds": request,
               "retryAfterSeconds": retry})
    };
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": false},
        "profiles": [
            profile("by-condition", &json!({})),
            profile("by-condition-soon", &json!({"timeoutSeconds": 2})),
            profile("by-server", &server(60)),
            profile("by-server-soon", &server(3)),
            {"schedulerName": "muster"},
        ],
    })
    .to_string()
}

/// A server that decides by the pod's name.
async fn approvals(asked: &Asked) -> Result<String> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/approve", listener.local_addr()?);
    let app = Router::new().route("/approve", post(answer)).with_state(Arc::clone(asked));
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(url)
}

async fn answer(State(asked): State<Asked>, Json(question): Json<Value>) -> Response {
    let name = question["pod"]["name"].as_str().unwrap_or_default().to_owned();
    let times = {
        let mut asked = asked.lock().unwrap();
        let list = asked.entry(name.clone()).or_default();
        list.push(question);
        list.len()
    };
    match name.split_once("-0").map_or(name.as_str(), |(kind, _)| kind) {
        "allowed" => Json(json!({"allowed": true})).into_response(),
        "denied" => Json(json!({"allowed": false, "message": "over budget"})).into_response(),
        // Down first, then undecided, then in favour.
        "hesitant" => match times {
            1 => (StatusCode::SERVICE_UNAVAILABLE, "restarting").into_response(),
            2 => Json(json!({"retryAfterSeconds": 1, "message": "in review"})).into_response(),
            _ => Json(json!({"allowed": true})).into_response(),
        },
        _ => std::future::pending().await,
    }
}

/// The program ends at once and names the field.
fn refuses_bad_arguments(cluster: &Cluster) -> Result<()> {
    let file = cluster.cp.dir().join("bad.yaml");
    let bad = profile("muster", &json!({"timeoutSeconds": 5000}));
    let config = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [bad],
    });
    std::fs::write(&file, config.to_string())?;
    let muster = cluster.muster("bad", &["--config", &file.display().to_string()])?;
    ensure!(muster.wait_exit(SOON)? == 1, "it runs");
    let log = muster.log_tail(4_000);
    let expected = "args.timeoutSeconds: Invalid value: 5000: not in valid range [1, 900]";
    ensure!(log.contains("profiles[0]") && log.contains(expected), "{log}");
    Ok(())
}

impl Stage {
    async fn play(&self) -> Result<()> {
        self.create("held", "by-condition").await?;
        self.create("vetoed", "by-condition").await?;
        self.create("forgotten", "by-condition-soon").await?;
        self.create("allowed", "by-server").await?;
        self.create("denied", "by-server").await?;
        self.create("hesitant", "by-server").await?;
        self.create("silent", "by-server-soon").await?;
        self.waits_in_sight().await.context("a pod that waits")?;
        // Nobody else waits for them.
        self.create("other", "muster").await?;
        self.bound("other").await?;

        self.decide("held", "True", "").await?;
        self.bound("held").await?;
        self.decide("vetoed", "False", "not this week").await?;
        let words = "not approved: condition muster.dev/Approved is False: Board: not this week";
        self.rejected("vetoed", words).await?;
        let late = |n: u32| format!("rejected due to timeout after waiting {n}s at plugin");
        self.rejected("forgotten", &format!("{} ExternalApproval.", late(2))).await?;

        self.bound("allowed").await?;
        self.bound("hesitant").await?;
        self.rejected("denied", "not approved: over budget").await?;
        let silent = format!("{} ExternalApproval: no answer: nothing within 1s.", late(3));
        self.rejected("silent", &silent).await?;
        self.asked_as_documented()?;
        // Second thoughts: approved after the fact, it goes.
        self.decide("vetoed", "True", "").await?;
        self.bound("vetoed").await?;

        let metrics = get(&self.reader, "/metrics").await?;
        for line in [
            "scheduler_permit_wait_duration_seconds_count{result=\"Success\"} 3",
            "scheduler_permit_wait_duration_seconds_count{result=\"Unschedulable\"} 4",
        ] {
            ensure!(metrics.contains(line), "the metrics lack {line}");
        }
        self.cluster.check_room().await?;
        let log = self.muster.log_tail(1 << 26);
        ensure!(!log.contains("audit:"), "the checker objects: {log}");
        self.cluster.say("done");
        Ok(())
    }

    async fn create(&self, name: &str, scheduler: &str) -> Result<()> {
        let make = |_| pod(&format!("{name}-0"), scheduler, "100m", "64Mi");
        create_pods(&self.cluster.admin, "default", 1, make).await
    }

    async fn pod(&self, name: &str) -> Result<Value> {
        let path = format!("/api/v1/namespaces/default/pods/{name}-0");
        Ok(self.cluster.admin.request(http::Request::get(path).body(Vec::new())?).await?)
    }

    /// Sets the condition, as somebody who approves would.
    async fn decide(&self, name: &str, status: &str, message: &str) -> Result<()> {
        let condition = json!({"type": "muster.dev/Approved", "status": status,
            "reason": "Board", "message": message});
        let path = format!("/api/v1/namespaces/default/pods/{name}-0/status");
        let request = http::Request::patch(path)
            .header(http::header::CONTENT_TYPE, "application/strategic-merge-patch+json")
            .body(serde_json::to_vec(&json!({"status": {"conditions": [condition]}}))?)?;
        self.cluster.admin.request_text(request).await?;
        Ok(())
    }

    async fn bound(&self, name: &str) -> Result<()> {
        let bound = eventually("bound", SOON, || async {
            Ok(self.pod(name).await?["spec"]["nodeName"].is_string())
        });
        bound.await.with_context(|| name.to_owned())
    }

    /// Waits until the pod's condition says why it was not let in.
    async fn rejected(&self, name: &str, words: &str) -> Result<()> {
        let said = eventually("rejected", SOON, || async {
            let pod = self.pod(name).await?;
            ensure!(pod["spec"]["nodeName"].is_null(), "{name} is bound");
            Ok(scheduled(&pod).is_some_and(|c| {
                let message = c["message"].as_str().unwrap_or_default();
                c["reason"] == "Unschedulable" && message.contains(words)
            }))
        });
        said.await.with_context(|| format!("{name}: {words}"))?;
        // It is expected nowhere any more.
        eventually("cleared", SOON, || async {
            Ok(self.pod(name).await?["status"]["nominatedNodeName"].is_null())
        })
        .await
    }

    /// Condition, event and the debug view tell what a pod waits for and where.
    async fn waits_in_sight(&self) -> Result<()> {
        let words = "waiting at most 5m0s for ExternalApproval: condition muster.dev/Approved";
        eventually("told by the condition", SOON, || async {
            let pod = self.pod("held").await?;
            let node = pod["status"]["nominatedNodeName"].as_str().unwrap_or_default();
            let message = format!("{words} (node {node})");
            Ok(scheduled(&pod)
                .is_some_and(|c| c["reason"] == "WaitingOnPermit" && c["message"] == message))
        })
        .await?;
        let path = "/apis/events.k8s.io/v1/namespaces/default/events\
                    ?fieldSelector=regarding.name%3Dheld-0";
        eventually("told by an event", SOON, || async {
            let events: Vec<Value> = self.cluster.list(path).await?;
            let says = |e: &Value| e["note"].as_str().is_some_and(|note| note.starts_with(words));
            Ok(events.iter().any(|e| e["reason"] == "WaitingOnPermit" && says(e)))
        })
        .await?;
        let view: Value = serde_json::from_str(&get(&self.reader, "/debug/queue").await?)?;
        let pods = view["pods"].as_array().context("no pods")?;
        let held = pods.iter().find(|p| p["pod"] == "default/held-0").context("not in view")?;
        ensure!(held["queue"] == "permit" && held["message"] == words, "{held}");
        let cache: Value = serde_json::from_str(&get(&self.reader, "/debug/cache").await?)?;
        let assumed = cache["assumed"].as_array().context("no reservations")?;
        ensure!(assumed.iter().any(|pod| pod == "default/held-0"), "{assumed:?}");
        Ok(())
    }

    fn asked_as_documented(&self) -> Result<()> {
        let asked = self.asked.lock().unwrap();
        let of = |name: &str| asked.get(name).map_or(&[][..], Vec::as_slice);
        let first = of("allowed-0").first().context("not asked")?;
        ensure!(first["pod"]["namespace"] == "default", "{first}");
        ensure!(first["pod"]["uid"].as_str().is_some_and(|uid| uid.len() == 36), "{first}");
        ensure!(first["node"].as_str().is_some_and(|n| n.starts_with("node-00")), "{first}");
        ensure!(first["schedulerName"] == "by-server", "{first}");
        ensure!(of("allowed-0").len() == 1, "asked again although it was allowed");
        ensure!(of("denied-0").len() == 1, "asked again although it was denied");
        ensure!(of("hesitant-0").len() == 3, "{:?}", of("hesitant-0"));
        // Each second of three one question of one second, and a pause of one.
        ensure!((1..=2).contains(&of("silent-0").len()), "{:?}", of("silent-0"));
        Ok(())
    }
}

fn scheduled(pod: &Value) -> Option<&Value> {
    let conditions = pod["status"]["conditions"].as_array()?;
    conditions.iter().find(|c| c["type"] == "PodScheduled")
}
