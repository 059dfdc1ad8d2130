//! `/livez`, `/readyz` and `/metrics` over HTTP.
//!
//! Owns the listener and its limits. Must never answer anything else, read a body, or be held up by a
//! slow client.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tracing::{info, warn};

use super::metrics::Metrics;

/// Connections at a time; more wait.
const MAX_CONNECTIONS: usize = 16;
/// A client has this long to ask.
const HEADERS: Duration = Duration::from_secs(5);
/// No connection is kept longer.
const LONGEST: Duration = Duration::from_secs(60);

/// Listens; the address is the one that was taken.
pub async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener =
        TcpListener::bind(address).await.with_context(|| format!("listen on {address}"))?;
    info!(address = %listener.local_addr()?, "serving /livez, /readyz and /metrics");
    Ok(listener)
}

/// Answers for ever.
pub async fn serve(listener: TcpListener, metrics: Arc<Metrics>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, for one.
                warn!("a connection was not accepted: {error}");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        let metrics = Arc::clone(&metrics);
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let answer = answer(request.method(), request.uri().path(), &metrics);
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADERS)
                .serve_connection(TokioIo::new(stream), service);
            let _ = tokio::time::timeout(LONGEST, connection).await;
            drop(place);
        });
    }
}

fn answer(method: &Method, path: &str, metrics: &Metrics) -> Response<Full<Bytes>> {
    let check = |well: bool, words: &'static str| match well {
        true => (StatusCode::OK, "ok".to_owned()),
        false => (StatusCode::SERVICE_UNAVAILABLE, words.to_owned()),
    };
    let (status, text) = match (method, path) {
        (&Method::GET | &Method::HEAD, "/livez") => {
            check(metrics.is_alive(), "the main loop is stuck")
        }
        (&Method::GET | &Method::HEAD, "/readyz") => {
            check(metrics.is_ready(), "the NodeTopology has not been written yet")
        }
        (&Method::GET, "/metrics") => (StatusCode::OK, metrics.encode()),
        _ => (StatusCode::NOT_FOUND, "/livez, /readyz and /metrics are here".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let kind = http::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_meant_to_be_asked_is_answered() {
        let metrics = Metrics::new();
        let status = |method: &Method, path: &str| answer(method, path, &metrics).status().as_u16();
        assert_eq!(status(&Method::GET, "/livez"), 200);
        assert_eq!(status(&Method::GET, "/readyz"), 503);
        assert_eq!(status(&Method::GET, "/metrics"), 200);
        assert_eq!(status(&Method::POST, "/metrics"), 404);
        assert_eq!(status(&Method::GET, "/debug"), 404);
        metrics.wrote("NodeTopology", true);
        assert_eq!(status(&Method::GET, "/readyz"), 200);
    }
}
