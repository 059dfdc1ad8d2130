//! Ways to the API server.
//!
//! Owns: where the server is and who we are (a kubeconfig, or the pod's own
//! service account), the client for watches and reviews, and [`Wire`], the
//! client for writes. No client made here retries by itself: whoever calls
//! knows whether a call may be repeated and how long it may take.
//!
//! Must never decide what to write.

mod connect;

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig};
use muster_core::outbox::{Details, Failure};
use tokio::time::Instant;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceBuilder, ServiceExt};

/// A watch that says nothing for this long (bookmarks included) is dead.
const WATCH_SILENCE: Duration = Duration::from_secs(300);
/// Longest that an ordinary call may be silent.
const CALL_SILENCE: Duration = Duration::from_secs(10);
/// An error body longer than this is cut: it is for people.
const MAX_ERROR_BODY: usize = 64 * 1024;
/// The API server's own limit on an object.
const MAX_BODY: usize = 4 << 20;

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig is unreadable or incomplete.
    #[error(
        "kubeconfig {path}: {reason}; give --kubeconfig a file with a current context, or leave it out inside a pod"
    )]
    Kubeconfig {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        reason: Box<kube::config::KubeconfigError>,
    },
    /// Not inside a pod, and no kubeconfig.
    #[error(
        "no API server: not inside a pod ({0}) and no kubeconfig; give --kubeconfig or clientConnection.kubeconfig"
    )]
    InCluster(Box<kube::config::InClusterError>),
    /// The configuration does not make a client.
    #[error("the client configuration cannot be used: {0}")]
    Client(Box<kube::Error>),
    /// `tls-server-name` is not the name of a host.
    #[error("tls-server-name {0:?} is not a name; give it a host name or an IP address")]
    ServerName(String),
    /// The server's address is not a URL with a host.
    #[error("the server address {0} has no host; give a URL such as https://10.0.0.1:6443")]
    Address(Uri),
}

/// Loads the configuration from a kubeconfig, or from the pod we run in.
pub async fn load(kubeconfig: Option<&Path>) -> Result<kube::Config, ClientError> {
    // Fails only if a provider is installed already: just as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut config = match kubeconfig {
        Some(path) => {
            let fail = |reason| ClientError::Kubeconfig {
                path: path.to_owned(),
                reason: Box::new(reason),
            };
            let file = Kubeconfig::read_from(path).map_err(fail)?;
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .map_err(fail)?
        }
        None => kube::Config::incluster().map_err(|e| ClientError::InCluster(Box::new(e)))?,
    };
    config.default_retry = false;
    config.connect_timeout = Some(connect::CONNECT);
    Ok(config)
}

/// Loads the configuration of whoever asks, as kubectl does: a kubeconfig that is named,
/// `$KUBECONFIG`, `~/.kube/config`, or the pod we run in.
pub async fn load_as_user(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
) -> Result<kube::Config, ClientError> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let read = match kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let path = kubeconfig.map_or_else(|| PathBuf::from("of the user"), Path::to_owned);
    let fail = |reason| ClientError::Kubeconfig { path: path.clone(), reason: Box::new(reason) };
    let options =
        KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let mut config = match read {
        Ok(file) => kube::Config::from_custom_kubeconfig(file, &options).await.map_err(fail)?,
        Err(reason) if kubeconfig.is_some() || context.is_some() => return Err(fail(reason)),
        // Without a file: inside a pod there is none, and outside that is what is wrong.
        Err(reason) => kube::Config::incluster().map_err(|_| fail(reason))?,
    };
    config.default_retry = false;
    config.connect_timeout = Some(connect::CONNECT);
    Ok(config)
}

/// A client for lists and watches: all of them on one connection, if the server speaks HTTP/2.
pub fn watching(config: &kube::Config) -> Result<kube::Client, ClientError> {
    if config.proxy_url.is_some() {
        return with_silence(config, WATCH_SILENCE);
    }
    let fail = |e| ClientError::Client(Box::new(e));
    let mut connector = TimeoutConnector::new(connect::connector(config)?);
    connector.set_read_timeout(Some(WATCH_SILENCE));
    let client: legacy::Client<_, Body> = connect::pool(usize::MAX).build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(fail)?)
        .layer(config.extra_headers_layer().map_err(fail)?)
        .map_err(BoxError::from)
        .service(client);
    Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
}

/// A client for short calls: lease, reviews.
pub fn calling(config: &kube::Config) -> Result<kube::Client, ClientError> {
    with_silence(config, CALL_SILENCE)
}

fn with_silence(config: &kube::Config, silence: Duration) -> Result<kube::Client, ClientError> {
    let mut config = config.clone();
    config.default_retry = false;
    config.read_timeout = Some(silence);
    kube::Client::try_from(config).map_err(|e| ClientError::Client(Box::new(e)))
}

type Service = BoxCloneSyncService<Request<Full<Bytes>>, Response<Incoming>, BoxError>;

/// The client for writes: pooled connections, one attempt per call, a deadline
/// on each, and as little work per call as can be.
#[derive(Clone)]
pub struct Wire {
    service: Service,
    scheme: Scheme,
    authority: Authority,
    prefix: String,
    user_agent: HeaderValue,
}

impl Wire {
    /// A wire to the server of `config` with up to `connections` idle connections.
    pub fn new(config: &kube::Config, connections: usize) -> Result<Self, ClientError> {
        let fail = |e| ClientError::Client(Box::new(e));
        let uri = &config.cluster_url;
        let authority = uri.authority().cloned();
        let authority = authority.ok_or_else(|| ClientError::Address(uri.clone()))?;
        let client = connect::pool(connections).build(connect::connector(config)?);
        let service = ServiceBuilder::new()
            .option_layer(config.auth_layer().map_err(fail)?)
            .layer(config.extra_headers_layer().map_err(fail)?)
            .map_err(BoxError::from)
            .service(client);
        Ok(Self {
            service: BoxCloneSyncService::new(service.map_err(BoxError::from)),
            scheme: uri.scheme().cloned().unwrap_or(Scheme::HTTPS),
            authority,
            prefix: uri.path().trim_end_matches('/').to_owned(),
            user_agent: HeaderValue::from_static(concat!("muster/", env!("CARGO_PKG_VERSION"))),
        })
    }

    /// Makes one call and waits for its answer, at most until `deadline`. The
    /// body of a successful answer is read and thrown away.
    pub async fn call(&self, call: Call, deadline: Instant) -> Result<(), Failure> {
        let answer = async {
            let request = self.request(call)?;
            let response = self.service.clone().oneshot(request).await;
            finish(response.map_err(|e| not_sent(&e))?).await
        };
        match tokio::time::timeout_at(deadline, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::TimedOut),
        }
    }

    /// Opens a connection by a call whose answer does not matter; `true` if it is one that
    /// all calls share.
    pub async fn open(&self, call: Call, deadline: Instant) -> bool {
        let Ok(request) = self.request(call) else {
            return false;
        };
        let answer = self.service.clone().oneshot(request);
        let answer = tokio::time::timeout_at(deadline, answer).await;
        answer.is_ok_and(|answer| answer.is_ok_and(|a| a.version() == http::Version::HTTP_2))
    }

    /// As [`Wire::call`], and returns the body of a successful answer.
    pub async fn fetch(&self, call: Call, deadline: Instant) -> Result<Vec<u8>, Failure> {
        let answer = async {
            let request = self.request(call)?;
            let response = self.service.clone().oneshot(request).await;
            let response = response.map_err(|e| not_sent(&e))?;
            if !response.status().is_success() {
                return finish(response).await.map(|()| Vec::new());
            }
            let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
            let body = body.map_err(|e| Failure::Broken(e.to_string()))?;
            Ok(body.to_bytes().to_vec())
        };
        match tokio::time::timeout_at(deadline, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::TimedOut),
        }
    }

    fn request(&self, call: Call) -> Result<Request<Full<Bytes>>, Failure> {
        let path = if self.prefix.is_empty() {
            call.path
        } else {
            format!("{}{}", self.prefix, call.path)
        };
        let invalid = |e: &dyn std::fmt::Display| Failure::NotSent(format!("invalid request: {e}"));
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query =
            Some(PathAndQuery::from_maybe_shared(Bytes::from(path)).map_err(|e| invalid(&e))?);
        let mut request = Request::new(Full::new(call.body));
        *request.method_mut() = call.method;
        *request.uri_mut() = Uri::from_parts(parts).map_err(|e| invalid(&e))?;
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(call.content_type));
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(header::USER_AGENT, self.user_agent.clone());
        Ok(request)
    }
}

/// One request.
#[derive(Debug, Clone)]
pub struct Call {
    /// Method.
    pub method: Method,
    /// Path below the server's address, starting with a slash.
    pub path: String,
    /// Content type of the body.
    pub content_type: &'static str,
    /// Body.
    pub body: Bytes,
}

fn not_sent(error: &BoxError) -> Failure {
    let legacy = error.downcast_ref::<legacy::Error>();
    let text = chain(error.as_ref());
    if legacy.is_some_and(legacy::Error::is_connect) {
        Failure::NotSent(text)
    } else if legacy.is_none() {
        // A token that cannot be read, for one: before anything was sent.
        Failure::NotSent(text)
    } else {
        Failure::Broken(text)
    }
}

/// An error with all its causes.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

async fn finish(response: Response<Incoming>) -> Result<(), Failure> {
    let (head, mut body) = response.into_parts();
    if head.status.is_success() {
        // Read to the end, so that the connection can be used again.
        while let Some(frame) = body.frame().await {
            frame.map_err(|e| Failure::Broken(e.to_string()))?;
        }
        return Ok(());
    }
    let text = Limited::new(body, MAX_ERROR_BODY).collect().await;
    let text = text.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let (message, details) = said(&text, head.status);
    Err(Failure::Status {
        code: head.status.as_u16(),
        message,
        retry_after: retry_after(&head.headers),
        details,
    })
}

/// What a `metav1.Status` says, or whatever the server sent instead.
fn said(body: &[u8], status: http::StatusCode) -> (String, Details) {
    #[derive(serde::Deserialize)]
    struct Status {
        message: String,
        #[serde(default)]
        reason: String,
        #[serde(default)]
        details: Option<About>,
    }
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct About {
        kind: String,
        causes: Vec<Cause>,
    }
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Cause {
        reason: String,
    }
    match serde_json::from_slice::<Status>(body) {
        Ok(said) => {
            let about = said.details.unwrap_or_default();
            let causes = about.causes.into_iter().map(|cause| cause.reason).collect();
            (said.message, Details { reason: said.reason, kind: about.kind, causes })
        }
        Err(_) => {
            // Not an API server's own words: a proxy's, which is no reason to give up.
            let text = if body.is_empty() {
                status.to_string()
            } else {
                String::from_utf8_lossy(&body[..body.len().min(256)]).into_owned()
            };
            let reason = status.canonical_reason().unwrap_or("Unknown").to_owned();
            (text, Details { reason, ..Details::default() })
        }
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    value.trim().parse().ok().map(Duration::from_secs)
}
