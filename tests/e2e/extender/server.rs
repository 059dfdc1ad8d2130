//! An extender of the test's own: what it answers goes by the name of the pod.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// What to do with a call.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// 200 with this body.
    Json(Value),
    /// 200 with this text.
    Text(String),
    /// Another status.
    Status(u16),
    /// As the other, after a while.
    Late(Duration, Box<Answer>),
    /// Bind the pod at the API server, as asked.
    Bind,
}

/// Verb, pod and the whole question: what to do.
type Script = dyn Fn(&str, &str, &Value) -> Answer + Send + Sync;

/// Questions by verb and pod.
type Asked = Arc<Mutex<BTreeMap<(String, String), Vec<Value>>>>;

/// A certificate for loopback, and the authority to trust.
pub(crate) struct Certificate {
    pub(crate) pem: String,
    acceptor: TlsAcceptor,
}

impl Certificate {
    pub(crate) fn new() -> Result<Self> {
        let made = rcgen::generate_simple_self_signed(vec!["extender.test".to_owned()])?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.into())?;
        Ok(Self { pem: made.cert.pem(), acceptor: TlsAcceptor::from(Arc::new(config)) })
    }
}

/// A running extender; it ends when dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    asked: Asked,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(crate) async fn start(
        address: &str,
        tls: Option<&Certificate>,
        admin: kube::Client,
        script: impl Fn(&str, &str, &Value) -> Answer + Send + Sync + 'static,
    ) -> Result<Self> {
        let listener = TcpListener::bind(address).await.context("bind")?;
        let address = listener.local_addr()?;
        let acceptor = tls.map(|tls| tls.acceptor.clone());
        let handler = Arc::new(Handler { script: Box::new(script), admin, asked: Arc::default() });
        let asked = Arc::clone(&handler.asked);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, handler) = (acceptor.clone(), Arc::clone(&handler));
                tokio::spawn(async move {
                    match acceptor {
                        None => serve(stream, handler).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, handler).await;
                            }
                        }
                    }
                });
            }
        });
        Ok(Self { address, asked, task })
    }

    /// Questions about a pod.
    pub(crate) fn asked(&self, verb: &str, pod: &str) -> Vec<Value> {
        let key = (verb.to_owned(), pod.to_owned());
        self.asked.lock().get(&key).cloned().unwrap_or_default()
    }
}

struct Handler {
    script: Box<Script>,
    admin: kube::Client,
    asked: Asked,
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send, handler: Arc<Handler>) {
    let service = service_fn(|request| {
        let handler = Arc::clone(&handler);
        async move { handler.handle(request).await }
    });
    // A client that hangs up is no concern of ours.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

impl Handler {
    async fn handle(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>> {
        let verb = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let body = request.into_body().collect().await?.to_bytes();
        let question: Value = serde_json::from_slice(&body)?;
        let name = question["Pod"]["metadata"]["name"].as_str();
        let pod = name.or(question["PodName"].as_str()).unwrap_or_default().to_owned();
        let answer = (self.script)(&verb, &pod, &question);
        self.asked.lock().entry((verb, pod)).or_default().push(question.clone());
        self.answer(answer, &question).await
    }

    async fn answer(&self, answer: Answer, question: &Value) -> Result<Response<Full<Bytes>>> {
        let (status, text) = match answer {
            Answer::Late(delay, then) => {
                tokio::time::sleep(delay).await;
                return Box::pin(self.answer(*then, question)).await;
            }
            Answer::Json(value) => (StatusCode::OK, value.to_string()),
            Answer::Text(text) => (StatusCode::OK, text),
            Answer::Status(code) => (StatusCode::from_u16(code)?, String::new()),
            Answer::Bind => (StatusCode::OK, self.bind(question).await.to_string()),
        };
        Ok(Response::builder().status(status).body(Full::new(Bytes::from(text)))?)
    }

    async fn bind(&self, question: &Value) -> Value {
        let (namespace, name) = (&question["PodNamespace"], &question["PodName"]);
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let path = format!("/api/v1/namespaces/{}/pods/{}/binding", text(namespace), text(name));
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": question["PodUID"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": question["Node"]},
        });
        let request = http::Request::post(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(binding.to_string().into_bytes());
        match request.map(|request| self.admin.request_text(request)) {
            Ok(call) => match call.await {
                Ok(_) => json!({}),
                Err(error) => json!({"Error": error.to_string()}),
            },
            Err(error) => json!({"Error": error.to_string()}),
        }
    }
}

/// The nodes of a question, by name.
pub(crate) fn nodes_of(question: &Value) -> Vec<String> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    match question["NodeNames"].as_array() {
        Some(names) => names.iter().map(text).collect(),
        None => {
            let items = question["Nodes"]["items"].as_array().cloned().unwrap_or_default();
            items.iter().map(|node| text(&node["metadata"]["name"])).collect()
        }
    }
}

/// All nodes of a question pass, answered as they were asked about.
pub(crate) fn pass(question: &Value) -> Answer {
    Answer::Json(json!({"Nodes": question["Nodes"], "NodeNames": question["NodeNames"]}))
}

/// Scores for the nodes of a question.
pub(crate) fn scored(question: &Value, score: impl Fn(&str) -> i64) -> Answer {
    let nodes = nodes_of(question);
    Answer::Json(nodes.iter().map(|n| json!({"Host": n, "Score": score(n)})).collect())
}
