//! One extender: where it is, and one call with a deadline.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::Instant;

use super::{ExtendError, tls};
use crate::config;
use crate::metrics::Metrics;

/// Upstream's limit on a call where none is configured.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle connections kept to an extender.
const IDLE_CONNECTIONS: usize = 16;
/// How long they are kept.
const IDLE: Duration = Duration::from_secs(45);

/// The most that is read of an answer to a body of so many bytes: an extender sends back
/// part of what it got, with words of its own.
#[must_use]
pub const fn answer_limit(sent: usize) -> usize {
    (1 << 20) + 4 * sent
}

/// What an extender can be asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Filter,
    Prioritize,
    Preempt,
    Bind,
}

impl Verb {
    const ALL: [Self; 4] = [Self::Filter, Self::Prioritize, Self::Preempt, Self::Bind];

    /// As metrics name it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Prioritize => "prioritize",
            Self::Preempt => "preempt",
            Self::Bind => "bind",
        }
    }
}

/// Why a call has no answer. Words as Go's client has them, where it has some.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nothing was sent.
    NotSent(String),
    /// The connection could not be made, broke, or the answer was too large.
    Broken { address: String, reason: String, sent: bool },
    /// No answer in time.
    TimedOut { address: String, sent: bool },
    /// An answer that is not 200.
    Status { verb: String, address: String, code: StatusCode },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(reason) => f.write_str(reason),
            Self::Broken { address, reason, .. } => write!(f, "Post {address:?}: {reason}"),
            Self::TimedOut { address, .. } => write!(
                f,
                "Post {address:?}: context deadline exceeded (Client.Timeout exceeded while \
                 awaiting headers)"
            ),
            Self::Status { verb, address, code } => {
                let code = code.as_u16();
                write!(f, "failed {verb} with extender at URL {address}, code {code}")
            }
        }
    }
}

impl Failure {
    /// Whether the extender may have acted all the same.
    pub(super) fn in_doubt(&self) -> bool {
        match self {
            Self::NotSent(_) | Self::Status { .. } => false,
            Self::Broken { sent, .. } | Self::TimedOut { sent, .. } => *sent,
        }
    }

    /// As metrics name it.
    pub(super) fn result(&self) -> &'static str {
        match self {
            Self::NotSent(_) => "not_sent",
            Self::Broken { .. } => "unreachable",
            Self::TimedOut { .. } => "timeout",
            Self::Status { .. } => "status",
        }
    }
}

/// An extender.
pub(super) struct Extender {
    pub(super) url: String,
    pub(super) timeout: Duration,
    pub(super) node_cache_capable: bool,
    pub(super) ignorable: bool,
    /// By verb: its name and where it is asked for, if it is.
    verbs: [Option<(String, Uri)>; 4],
    client: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    metrics: Metrics,
    config: config::Extender,
}

impl Extender {
    pub(super) fn new(config: &config::Extender, metrics: &Metrics) -> Result<Self, ExtendError> {
        let url = config.url_prefix.clone();
        let address = |reason: String| ExtendError::Address { url: url.clone(), reason };
        let mut verbs = [const { None }; 4];
        let names =
            [&config.filter_verb, &config.prioritize_verb, &config.preempt_verb, &config.bind_verb];
        for (slot, name) in verbs.iter_mut().zip(names).filter(|(_, name)| !name.is_empty()) {
            let at = format!("{}/{name}", url.trim_end_matches('/'));
            let uri: Uri = at.parse().map_err(|e: http::uri::InvalidUri| address(e.to_string()))?;
            if uri.host().is_none() || !matches!(uri.scheme_str(), Some("http" | "https")) {
                return Err(address("no scheme and host".to_owned()));
            }
            *slot = Some((name.clone(), uri));
        }
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        let connector = tls::connector(config, http)
            .map_err(|source| ExtendError::Tls { url: url.clone(), source })?;
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .build(connector);
        Ok(Self {
            url,
            timeout: config.http_timeout.filter(|t| !t.is_zero()).unwrap_or(DEFAULT_TIMEOUT),
            node_cache_capable: config.node_cache_capable,
            ignorable: config.ignorable,
            verbs,
            client,
            metrics: metrics.clone(),
            config: config.clone(),
        })
    }

    /// Whether it is configured just so.
    pub(super) fn is(&self, config: &config::Extender) -> bool {
        self.config == *config
    }

    /// Whether it is sent whole nodes.
    pub(super) fn wants_nodes(&self) -> bool {
        super::wants_nodes(&self.config)
    }

    fn verb(&self, verb: Verb) -> Option<&(String, Uri)> {
        let at = Verb::ALL.iter().position(|v| *v == verb)?;
        self.verbs[at].as_ref()
    }

    /// Where a verb is asked for, for people.
    pub(super) fn address(&self, verb: Verb) -> String {
        self.verb(verb).map_or_else(|| self.url.clone(), |(_, uri)| uri.to_string())
    }

    /// Counts what became of a call.
    pub(super) fn count(&self, verb: Verb, result: &str) {
        self.metrics.extender_call(&self.url, verb.name(), result);
    }

    /// Makes one call: the body of an answer that is 200.
    pub(super) async fn call(&self, verb: Verb, body: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let begin = Instant::now();
        let answer = match tokio::time::timeout(self.timeout, self.post(verb, body)).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::TimedOut { address: self.address(verb), sent: true }),
        };
        self.metrics.extender_seconds(&self.url, verb.name(), begin.elapsed().as_secs_f64());
        answer
    }

    async fn post(&self, verb: Verb, body: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let Some((name, uri)) = self.verb(verb) else {
            return Err(Failure::NotSent(format!("{} has no verb for this", self.url)));
        };
        let broken =
            |reason: String, sent: bool| Failure::Broken { address: uri.to_string(), reason, sent };
        let limit = answer_limit(body.len());
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri.clone();
        let json = HeaderValue::from_static("application/json");
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_TYPE, json);
        let agent = concat!("muster/", env!("CARGO_PKG_VERSION"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static(agent));
        let response = self.client.request(request).await;
        let response = response.map_err(|e| broken(crate::client::chain(&e), !e.is_connect()))?;
        if response.status() != StatusCode::OK {
            let (verb, address) = (name.clone(), uri.to_string());
            return Err(Failure::Status { verb, address, code: response.status() });
        }
        let body = Limited::new(response.into_body(), limit).collect().await;
        let body = body.map_err(|e| match e.downcast_ref::<LengthLimitError>() {
            Some(_) => broken(format!("the answer is larger than {limit} bytes"), true),
            None => broken(e.to_string(), true),
        })?;
        Ok(body.to_bytes().to_vec())
    }
}
