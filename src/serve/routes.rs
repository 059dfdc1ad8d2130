//! The pages.
//!
//! Owns: paths, what is open and what is not, and the form of every answer.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::Surface;
use super::auth::{Authority, Verdict, bearer};
use super::health::{self, Checks, Wishes};
use crate::logging;
use crate::metrics::Metrics;
use crate::run::Shutdown;

/// How long an answer may take to be made.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// A verbosity is a short number.
const MAX_BODY: usize = 64;
const PLAIN: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What the pages show.
pub(super) struct App {
    pub(super) metrics: Metrics,
    pub(super) surface: Arc<dyn Surface>,
    pub(super) authority: Authority,
    pub(super) shutdown: Shutdown,
}

pub(super) fn router(app: Arc<App>) -> Router {
    let guarded = Router::new()
        .route("/metrics", get(metrics))
        .route("/configz", get(configz))
        .route("/debug/queue", get(debug_queue))
        .route("/debug/cache", get(debug_cache))
        .route("/debug/explain", get(debug_explain))
        .route("/debug/flags/v", any(verbosity))
        .route("/livez/{check}", get(live_check))
        .route("/healthz/{check}", get(live_check))
        .route("/readyz/{check}", get(ready_check))
        .route_layer(middleware::from_fn_with_state(Arc::clone(&app), guard));
    Router::new()
        .route("/livez", get(livez))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .merge(guarded)
        .fallback(async || text(StatusCode::NOT_FOUND, "404 page not found\n"))
        .layer(middleware::from_fn(finish))
        .with_state(app)
}

/// Every answer: in time, and not to be kept.
async fn finish(request: Request, next: Next) -> Response {
    let mut response = timeout(REQUEST_TIMEOUT, next.run(request)).await.unwrap_or_else(|_| {
        text(StatusCode::GATEWAY_TIMEOUT, "the scheduler did not answer in time\n")
    });
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Lets through whom the API server lets through.
async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let verb = request.method().as_str().to_ascii_lowercase();
    let path = request.uri().path().to_owned();
    match app.authority.check(bearer(header), &verb, &path).await {
        Ok(Verdict::Allowed) => next.run(request).await,
        Ok(Verdict::Unauthorized) => {
            status(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized", None)
        }
        Ok(Verdict::Forbidden(message)) => {
            status(StatusCode::FORBIDDEN, "Forbidden", &message, Some(json!({})))
        }
        Err(error) => {
            let message = format!("Internal Server Error: {path:?}: {error}\n");
            text(StatusCode::INTERNAL_SERVER_ERROR, message)
        }
    }
}

/// A Kubernetes Status, as API clients expect.
fn status(code: StatusCode, reason: &str, message: &str, details: Option<Value>) -> Response {
    let mut body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    if let Some(details) = details {
        body["details"] = details;
    }
    (code, Json(body)).into_response()
}

fn text(code: StatusCode, body: impl Into<Body>) -> Response {
    (code, [(CONTENT_TYPE, PLAIN)], body.into()).into_response()
}

async fn livez(query: RawQuery) -> Response {
    health("livez", &live(), &query)
}

async fn healthz(query: RawQuery) -> Response {
    health("healthz", &live(), &query)
}

async fn readyz(State(app): State<Arc<App>>, query: RawQuery) -> Response {
    health("readyz", &app.ready(), &query)
}

fn health(name: &str, checks: &Checks, RawQuery(query): &RawQuery) -> Response {
    let wishes = Wishes::parse(query.as_deref().unwrap_or_default());
    let (healthy, body) = health::answer(name, checks, &wishes);
    let code = if healthy { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    text(code, body)
}

fn live() -> Checks {
    vec![("ping", Ok(()))]
}

impl App {
    fn ready(&self) -> Checks {
        let going = if self.shutdown.is_set() {
            Err("process is shutting down".to_owned())
        } else {
            Ok(())
        };
        vec![("ping", Ok(())), ("shutdown", going), ("sched-handler-sync", self.surface.ready())]
    }
}

async fn live_check(Path(check): Path<String>) -> Response {
    one_check(&live(), &check)
}

async fn ready_check(State(app): State<Arc<App>>, Path(check): Path<String>) -> Response {
    one_check(&app.ready(), &check)
}

/// One check, with the reason: who comes here is authorised.
fn one_check(checks: &Checks, name: &str) -> Response {
    match checks.iter().find(|(check, _)| *check == name) {
        None => text(StatusCode::NOT_FOUND, "404 page not found\n"),
        Some((_, Ok(()))) => text(StatusCode::OK, "ok"),
        Some((_, Err(reason))) => {
            let message = format!("internal server error: {reason}\n");
            text(StatusCode::INTERNAL_SERVER_ERROR, message)
        }
    }
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    ([(CONTENT_TYPE, PROMETHEUS)], app.metrics.encode()).into_response()
}

async fn configz(State(app): State<Arc<App>>) -> Response {
    Json(app.surface.configz()).into_response()
}

async fn debug_queue(State(app): State<Arc<App>>) -> Response {
    Json(app.surface.debug_queue().await).into_response()
}

async fn debug_cache(State(app): State<Arc<App>>) -> Response {
    Json(app.surface.debug_cache().await).into_response()
}

/// Explains the pod that `?pod=NAMESPACE/NAME` names.
async fn debug_explain(State(app): State<Arc<App>>, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    let pod = query.split('&').find_map(|pair| pair.strip_prefix("pod="));
    let pod = pod.map(|p| p.replace("%2F", "/").replace("%2f", "/"));
    let Some((namespace, name)) = pod.as_deref().and_then(|p| p.split_once('/')) else {
        let message = "name the pod, as in /debug/explain?pod=NAMESPACE/NAME\n";
        return text(StatusCode::BAD_REQUEST, message);
    };
    match app.surface.debug_explain(namespace.to_owned(), name.to_owned()).await {
        Ok(Some(answer)) => Json(answer).into_response(),
        Ok(None) => {
            let message = format!("pod {namespace}/{name} does not wait for Muster\n");
            text(StatusCode::NOT_FOUND, message)
        }
        Err(error) => text(StatusCode::SERVICE_UNAVAILABLE, error + "\n"),
    }
}

/// Shows or changes the verbosity of the log.
async fn verbosity(request: Request) -> Response {
    if request.method() == Method::GET {
        return text(StatusCode::OK, format!("{}\n", logging::verbosity()));
    }
    if request.method() != Method::PUT {
        return text(StatusCode::NOT_ACCEPTABLE, "unsupported http method\n");
    }
    let Ok(body) = to_bytes(request.into_body(), MAX_BODY).await else {
        return text(StatusCode::BAD_REQUEST, "error reading request body: too long\n");
    };
    let body = String::from_utf8_lossy(&body);
    match body.parse::<u32>() {
        Ok(wanted) => {
            let level = u8::try_from(wanted).unwrap_or(u8::MAX);
            logging::set_verbosity(level);
            tracing::info!(level, "verbosity changed");
            text(StatusCode::OK, format!("successfully set verbosity to {level}\n"))
        }
        Err(error) => {
            let message = format!("{body:?} is no verbosity: {error}; send a number, such as 4\n");
            text(StatusCode::BAD_REQUEST, message)
        }
    }
}
