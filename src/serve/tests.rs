//! The surface over real TLS, with an API server that knows three tokens.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::State;
use axum::http::{Method, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use futures::FutureExt;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// Reviews: `good` may get anything, `some` only /metrics, `broken` ends in an
/// error at the second review; others are unknown.
#[derive(Default)]
struct Reviews {
    tokens: AtomicUsize,
    access: Mutex<Vec<Value>>,
}

async fn token_review(
    State(reviews): State<Arc<Reviews>>,
    Json(mut review): Json<Value>,
) -> Json<Value> {
    reviews.tokens.fetch_add(1, Ordering::Relaxed);
    let token = review["spec"]["token"].as_str().unwrap().to_owned();
    let known = ["good", "some", "broken"].contains(&token.as_str());
    review["status"] = if known {
        json!({"authenticated": true, "user": {
            "username": format!("user-{token}"), "uid": "u1", "groups": ["g"],
            "extra": {"scopes": ["a", "b"]},
        }})
    } else {
        json!({"error": "unknown"})
    };
    Json(review)
}

async fn access_review(
    State(reviews): State<Arc<Reviews>>,
    Json(mut review): Json<Value>,
) -> Response {
    let spec = review["spec"].clone();
    reviews.access.lock().push(spec.clone());
    let allowed = match spec["user"].as_str() {
        Some("user-good") => true,
        Some("user-some") => {
            spec["nonResourceAttributes"] == json!({"path": "/metrics", "verb": "get"})
        }
        Some("user-broken") => return StatusCode::SERVICE_UNAVAILABLE.into_response(),
        _ => false,
    };
    review["status"] = json!({"allowed": allowed, "reason": if allowed { "" } else { "no rule" }});
    Json(review).into_response()
}

struct Scheduler(Result<(), String>);

impl Surface for Scheduler {
    fn ready(&self) -> Result<(), String> {
        self.0.clone()
    }
    fn configz(&self) -> Value {
        json!({"componentconfig": {"kind": "KubeSchedulerConfiguration"}})
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

struct Fixture {
    reviews: Arc<Reviews>,
    address: SocketAddr,
    handle: JoinHandle<()>,
    shutdown: Shutdown,
}

impl Fixture {
    async fn new(ready: Result<(), String>) -> Self {
        let reviews = Arc::new(Reviews::default());
        let api = Router::new()
            .route("/apis/authentication.k8s.io/v1/tokenreviews", post(token_review))
            .route("/apis/authorization.k8s.io/v1/subjectaccessreviews", post(access_review))
            .with_state(Arc::clone(&reviews));
        let cfg =
            ServeConfig { address: (Ipv4Addr::LOCALHOST, 0).into(), ..ServeConfig::default() };
        let shutdown = Shutdown::new();
        let (address, handle) = start(
            cfg,
            kube::Client::new(api, "default"),
            Metrics::new(),
            Arc::new(Scheduler(ready)),
            shutdown.clone(),
        )
        .await
        .unwrap();
        Self { reviews, address, handle, shutdown }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        token: Option<&str>,
        body: &str,
    ) -> (u16, String) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut config = kube::Config::new(format!("https://{}", self.address).parse().unwrap());
        config.accept_invalid_certs = true;
        config.default_retry = false;
        let client = kube::Client::try_from(config).unwrap();
        let mut request = Request::builder().method(method).uri(path);
        if let Some(token) = token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let request = request.body(Body::from(body.as_bytes().to_vec())).unwrap();
        let answer = client.send(request).await.unwrap();
        let code = answer.status().as_u16();
        assert_eq!(answer.headers()["cache-control"], "no-cache, private", "{path}");
        let body = answer.into_body().collect_bytes().await.unwrap();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn get(&self, path: &str, token: Option<&str>) -> (u16, String) {
        self.send(Method::GET, path, token, "").await
    }
}

#[tokio::test]
async fn health_is_open() {
    let well = Fixture::new(Ok(())).await;
    let ok = || (200, "ok".to_owned());
    for path in ["/livez", "/readyz", "/healthz"] {
        assert_eq!(well.get(path, None).await, ok(), "{path}");
    }
    let (code, text) = well.get("/readyz?verbose", None).await;
    assert_eq!(code, 200);
    assert_eq!(text, "[+]ping ok\n[+]shutdown ok\n[+]sched-handler-sync ok\nreadyz check passed\n");

    let ill = Fixture::new(Err("nodes are not listed yet".to_owned())).await;
    let (code, text) = ill.get("/readyz", None).await;
    assert_eq!(code, 500);
    assert_eq!(
        text,
        "[+]ping ok\n[+]shutdown ok\n[-]sched-handler-sync failed: reason withheld\nreadyz check failed\n"
    );
    assert_eq!(ill.get("/livez", None).await, ok());
    // Why is told to the authorised.
    let (code, text) = ill.get("/readyz/sched-handler-sync", Some("good")).await;
    assert_eq!((code, &*text), (500, "internal server error: nodes are not listed yet\n"));
    assert_eq!(ill.get("/readyz/ping", None).await.0, 403);
    assert_eq!(ill.get("/readyz/ping", Some("good")).await, ok());
    assert_eq!(ill.get("/readyz/nothing", Some("good")).await.0, 404);
    assert_eq!(ill.get("/nothing", None).await, (404, "404 page not found\n".to_owned()));
}

#[tokio::test]
async fn everything_else_is_guarded() {
    let server = Fixture::new(Ok(())).await;
    for path in
        ["/metrics", "/configz", "/debug/queue", "/debug/cache", "/debug/explain", "/debug/flags/v"]
    {
        let (code, text) = server.get(path, None).await;
        let body: Value = serde_json::from_str(&text).unwrap();
        let message =
            format!("forbidden: User \"system:anonymous\" cannot get path \"{path}\": no rule");
        assert_eq!(code, 403, "{path}");
        assert_eq!(
            body,
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": message, "reason": "Forbidden", "details": {}, "code": 403,
            })
        );
        let (code, text) = server.get(path, Some("wrong")).await;
        let body: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(code, 401, "{path}");
        assert_eq!(
            body,
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "Unauthorized", "reason": "Unauthorized", "code": 401,
            })
        );
        // It asks for a pod.
        let expected = if path == "/debug/explain" { 400 } else { 200 };
        assert_eq!(server.get(path, Some("good")).await.0, expected, "{path}");
    }
    assert_eq!(server.get("/metrics", Some("some")).await.0, 200);
    assert_eq!(server.get("/debug/queue", Some("some")).await.0, 403);
    let (code, text) = server.get("/metrics", Some("broken")).await;
    assert_eq!(code, 500);
    assert_eq!(text, "Internal Server Error: \"/metrics\": access cannot be reviewed\n");
    // Who is asked about is told in full.
    let asked = server.reviews.access.lock().iter().find(|a| a["user"] == "user-some").cloned();
    assert_eq!(
        asked.unwrap(),
        json!({
            "user": "user-some", "uid": "u1", "groups": ["g", "system:authenticated"],
            "extra": {"scopes": ["a", "b"]},
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        })
    );
}

#[tokio::test]
async fn answers_are_remembered_but_not_failures() {
    let server = Fixture::new(Ok(())).await;
    let counts =
        || (server.reviews.tokens.load(Ordering::Relaxed), server.reviews.access.lock().len());
    for _ in 0..3 {
        server.get("/metrics", Some("good")).await;
        server.get("/metrics", Some("wrong")).await;
        server.get("/metrics", None).await;
    }
    assert_eq!(counts(), (2, 2), "good and wrong; good and anonymous");
    for _ in 0..3 {
        server.get("/metrics", Some("broken")).await;
    }
    assert_eq!(counts(), (5, 5));
}

#[tokio::test]
async fn pages_show_what_they_should() {
    let server = Fixture::new(Ok(())).await;
    let page = async |path| server.get(path, Some("good")).await.1;
    assert!(page("/metrics").await.contains("scheduler_pending_pods{queue=\"active\"} 0"));
    assert_eq!(
        page("/configz").await,
        r#"{"componentconfig":{"kind":"KubeSchedulerConfiguration"}}"#
    );
    assert_eq!(page("/debug/queue").await, r#"{"active":[]}"#);
    assert_eq!(page("/debug/cache").await, r#"{"nodes":[]}"#);
    assert_eq!(page("/debug/explain?pod=ns/p").await, r#"{"pod":"ns/p"}"#);
    assert_eq!(page("/debug/explain?x=y&pod=ns%2Fp").await, r#"{"pod":"ns/p"}"#);
    let unknown = page("/debug/explain?pod=ns/unknown").await;
    assert_eq!(unknown, "pod ns/unknown does not wait for Muster\n");
    let help = "name the pod, as in /debug/explain?pod=NAMESPACE/NAME\n";
    assert_eq!(page("/debug/explain").await, help);
}

#[tokio::test]
async fn verbosity_is_changed_while_running() {
    let _alone = crate::logging::TEST_LOCK.lock().await;
    let server = Fixture::new(Ok(())).await;
    let path = "/debug/flags/v";
    let put =
        async |token: &str, body: &str| server.send(Method::PUT, path, Some(token), body).await;
    let before = crate::logging::verbosity();
    assert_eq!(put("some", "9").await.0, 403);
    assert_eq!(server.get(path, Some("good")).await, (200, format!("{before}\n")));
    assert_eq!(put("good", "3").await, (200, "successfully set verbosity to 3\n".to_owned()));
    assert_eq!(server.get(path, Some("good")).await.1, "3\n");
    let (code, text) = put("good", "loud").await;
    assert_eq!(code, 400);
    assert_eq!(
        text,
        "\"loud\" is no verbosity: invalid digit found in string; send a number, such as 4\n"
    );
    assert_eq!(put("good", &"1".repeat(100)).await.0, 400);
    let posted = server.send(Method::POST, path, Some("good"), "1").await;
    assert_eq!(posted, (406, "unsupported http method\n".to_owned()));
    assert_eq!(put("good", &before.to_string()).await.0, 200);
}

#[tokio::test]
async fn shutdown_ends_it() {
    let server = Fixture::new(Ok(())).await;
    // An idle connection does not hold it up.
    let _idle = TcpStream::connect(server.address).await.unwrap();
    server.shutdown.trigger();
    timeout(Duration::from_secs(20), server.handle).await.unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn plain_http_and_huge_headers_are_refused() {
    let server = Fixture::new(Ok(())).await;
    let mut plain = TcpStream::connect(server.address).await.unwrap();
    plain.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(Duration::from_secs(20), plain.read_to_end(&mut answer)).await.unwrap();
    assert!(!answer.starts_with(b"HTTP/"), "{answer:?}");
    let token = "x".repeat(2 * MAX_BUFFER);
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (code, _) = server
        .raw(&format!("GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"))
        .await;
    assert_eq!(code, Some(431));
}

impl Fixture {
    /// The status of the answer to these bytes.
    async fn raw(&self, request: &str) -> (Option<u16>, String) {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Arc::new(Anybody(Arc::clone(&provider)));
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        let stream = TcpStream::connect(self.address).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect("localhost".try_into().unwrap(), stream).await.unwrap();
        // The server may close before all is sent.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await.unwrap();
        let text = String::from_utf8_lossy(&answer).into_owned();
        (text.split(' ').nth(1).and_then(|code| code.parse().ok()), text)
    }
}

/// Trusts any certificate: the server's is of its own making.
#[derive(Debug)]
struct Anybody(Arc<rustls::crypto::CryptoProvider>);

impl rustls::client::danger::ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &rustls::pki_types::CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            cert,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &rustls::pki_types::CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            cert,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }
    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
