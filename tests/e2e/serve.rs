//! The HTTPS surface with a real API server to say who may see what.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Method, Request};
use kube::client::Body;
use muster::metrics::Metrics;
use muster::run::Shutdown;
use muster::serve::{ServeConfig, Surface, start};
use muster_control_plane::ControlPlane;
use serde_json::{Value, json};

use crate::support::{Cluster, GROUPS, SOON, USER};

/// Longer than an answer is remembered.
const FORGOTTEN: Duration = Duration::from_secs(12);

/// Rights of service accounts: `reader` may read the metrics, `operator` all.
const RIGHTS: &str = r#"
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: default}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: operator, namespace: default}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: stranger, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: muster-metrics-reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: default}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: operator}
rules:
- nonResourceURLs: [/metrics, /configz, /debug/*, /readyz/*]
  verbs: [get]
- nonResourceURLs: [/debug/flags/v]
  verbs: [put]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: operator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: operator}
subjects: [{kind: ServiceAccount, name: operator, namespace: default}]
"#;

struct Scheduler;

impl Surface for Scheduler {
    fn ready(&self) -> Result<(), String> {
        Err("not listed yet".to_owned())
    }
    fn configz(&self) -> Value {
        muster::config::Configuration::default().configz()
    }
    fn debug_queue(&self) -> BoxFuture<'static, Value> {
        async { json!({"active": []}) }.boxed()
    }
    fn debug_cache(&self) -> BoxFuture<'static, Value> {
        async { json!({"nodes": []}) }.boxed()
    }
    fn debug_explain(
        &self,
        namespace: String,
        name: String,
    ) -> BoxFuture<'static, Result<Option<Value>, String>> {
        let pod = format!("{namespace}/{name}");
        async move { Ok((name != "unknown").then(|| json!({ "pod": pod }))) }.boxed()
    }
}

/// A surface and how to reach it.
struct Server {
    address: SocketAddr,
    /// What clients trust.
    root: Vec<u8>,
    shutdown: Shutdown,
}

impl Server {
    /// Serves with a certificate from a directory, asking as this user.
    async fn start(cluster: &Cluster, user: &str, groups: &[&str]) -> Result<Self> {
        let dir = cluster.cp.dir().join(format!("certificate-of-{}", user.replace(':', "-")));
        std::fs::create_dir_all(&dir)?;
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        std::fs::write(dir.join("tls.crt"), made.cert.pem())?;
        std::fs::write(dir.join("tls.key"), made.signing_key.serialize_pem())?;
        let cfg = ServeConfig {
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            cert_dir: Some(dir),
            ..ServeConfig::default()
        };
        let mut config = cluster.cp.config(user, groups)?;
        config.default_retry = false;
        let shutdown = Shutdown::new();
        let surface = Arc::new(Scheduler);
        let client = config.try_into()?;
        let (address, _) = start(cfg, client, Metrics::new(), surface, shutdown.clone()).await?;
        Ok(Self { address, root: made.cert.der().to_vec(), shutdown })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        token: &str,
        body: &str,
    ) -> Result<(u16, String)> {
        let mut config = kube::Config::new(format!("https://{}", self.address).parse()?);
        config.root_cert = Some(vec![self.root.clone()]);
        config.default_retry = false;
        let client = kube::Client::try_from(config)?;
        let mut request = Request::builder().method(method).uri(path);
        if !token.is_empty() {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let answer = client.send(request.body(Body::from(body.as_bytes().to_vec()))?).await?;
        let code = answer.status().as_u16();
        let text = String::from_utf8(answer.into_body().collect_bytes().await?.to_vec())?;
        Ok((code, text))
    }

    async fn get(&self, path: &str, token: &str) -> Result<(u16, String)> {
        self.send(Method::GET, path, token, "").await
    }

    /// The code and the message of a refusal.
    async fn refusal(&self, path: &str, token: &str) -> Result<(u16, String)> {
        let (code, text) = self.get(path, token).await?;
        let status: Value =
            serde_json::from_str(&text).with_context(|| format!("{code} {text}"))?;
        ensure!(status["kind"] == "Status" && status["code"] == code, "{text}");
        Ok((code, status["message"].as_str().unwrap_or_default().to_owned()))
    }
}

/// A token of a service account, as a pod would have.
async fn token(cluster: &Cluster, account: &str) -> Result<String> {
    let path = format!("/api/v1/namespaces/default/serviceaccounts/{account}/token");
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600},
    });
    let request = Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(serde_json::to_vec(&body)?)?;
    let made: Value = serde_json::from_str(&cluster.admin.request_text(request).await?)?;
    Ok(made["status"]["token"].as_str().context("no token")?.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_server_says_who_may_see_what() -> Result<()> {
    let cluster = Cluster::start(ControlPlane::builder()).await?;
    cluster.apply(RIGHTS).await?;
    let server = Server::start(&cluster, USER, &GROUPS).await?;
    let reader = token(&cluster, "reader").await?;
    // The rights take a moment to be known.
    let begin = Instant::now();
    while server.get("/metrics", &reader).await?.0 != 200 {
        ensure!(begin.elapsed() < SOON, "the reader may not read");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    pages(&cluster, &server, &reader).await?;
    refusals(&cluster, &server, &reader).await?;
    cluster.say("rights hold");
    taken_away(&cluster, &server, &reader).await?;
    cluster.say("a right that was taken away is gone");
    unreviewed(&cluster, &server).await?;
    server.shutdown.trigger();
    Ok(())
}

async fn pages(cluster: &Cluster, server: &Server, reader: &str) -> Result<()> {
    let operator = token(cluster, "operator").await?;
    let (_, metrics) = server.get("/metrics", reader).await?;
    ensure!(metrics.contains("scheduler_pending_pods{queue=\"active\"} 0"), "{metrics}");
    ensure!(metrics.contains("muster_build_info{version="), "{metrics}");
    let (code, configz) = server.get("/configz", &operator).await?;
    let configz: Value = serde_json::from_str(&configz)?;
    ensure!(code == 200 && configz["componentconfig"]["profiles"][0]["schedulerName"] == "muster");
    for path in ["/debug/queue", "/debug/cache", "/debug/flags/v"] {
        let (code, text) = server.get(path, &operator).await?;
        ensure!(code == 200, "{path}: {code} {text}");
    }
    let put = server.send(Method::PUT, "/debug/flags/v", &operator, "2").await?;
    ensure!(put == (200, "successfully set verbosity to 2\n".to_owned()), "{put:?}");
    let reason = server.get("/readyz/sched-handler-sync", &operator).await?;
    ensure!(reason == (500, "internal server error: not listed yet\n".to_owned()), "{reason:?}");
    Ok(())
}

async fn refusals(cluster: &Cluster, server: &Server, reader: &str) -> Result<()> {
    let stranger = token(cluster, "stranger").await?;
    let user = |name: &str, verb: &str, path: &str| {
        let message = format!("forbidden: User \"{name}\" cannot {verb} path \"{path}\"");
        (403_u16, message)
    };
    let account = |name: &str| format!("system:serviceaccount:default:{name}");
    for (path, token, expected) in [
        ("/metrics", "", user("system:anonymous", "get", "/metrics")),
        ("/debug/queue", "", user("system:anonymous", "get", "/debug/queue")),
        ("/metrics", "nonsense", (401, "Unauthorized".to_owned())),
        ("/metrics", &*stranger, user(&account("stranger"), "get", "/metrics")),
        ("/configz", reader, user(&account("reader"), "get", "/configz")),
        ("/readyz/ping", reader, user(&account("reader"), "get", "/readyz/ping")),
    ] {
        let found = server.refusal(path, token).await?;
        ensure!(found == expected, "{path}: {found:?}, expected {expected:?}");
    }
    let put = server.send(Method::PUT, "/debug/flags/v", reader, "9").await?;
    ensure!(put.0 == 403, "{put:?}");
    // Health needs nobody's leave.
    let (code, text) = server.get("/readyz", "").await?;
    ensure!(
        code == 500 && text.contains("[-]sched-handler-sync failed: reason withheld"),
        "{text}"
    );
    let live = server.get("/livez", "nonsense").await?;
    ensure!(live == (200, "ok".to_owned()), "{live:?}");
    Ok(())
}

async fn taken_away(cluster: &Cluster, server: &Server, reader: &str) -> Result<()> {
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/reader";
    let request = Request::delete(path).body(Vec::new())?;
    cluster.admin.request_text(request).await?;
    let begin = Instant::now();
    while server.get("/metrics", reader).await?.0 == 200 {
        ensure!(begin.elapsed() < FORGOTTEN, "still allowed after {:?}", begin.elapsed());
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    Ok(())
}

/// Nobody gets in when the API server cannot be asked: not allowed to, or away.
async fn unreviewed(cluster: &Cluster, server: &Server) -> Result<()> {
    let operator = token(cluster, "operator").await?;
    let powerless = Server::start(cluster, "nobody", &[]).await?;
    let refused = powerless.refusal("/metrics", &operator).await?;
    ensure!(refused == (401, "Unauthorized".to_owned()), "{refused:?}");
    let anonymous = powerless.get("/metrics", "").await?;
    ensure!(
        anonymous
            == (500, "Internal Server Error: \"/metrics\": access cannot be reviewed\n".to_owned()),
        "{anonymous:?}"
    );
    ensure!(server.get("/metrics", &operator).await?.0 == 200, "fresh token");
    cluster.cp.stop_api_server()?;
    ensure!(server.get("/metrics", &operator).await?.0 == 200, "remembered");
    let other = server.get("/configz", "other").await?;
    ensure!(other.0 == 401, "{other:?}");
    ensure!(server.get("/livez", "").await?.0 == 200, "alive without API server");
    Ok(())
}
