//! Connections: TLS, and HTTP/2 where the server speaks it.
//!
//! Owns: how calls share connections. Over HTTP/2 a burst of calls is one connection, one
//! handshake and few system calls, where HTTP/1 needs one of each per call under way. The
//! server chooses (ALPN), so a proxy that speaks HTTP/1 only works as well.
//!
//! Must never repeat a call, or keep one on a connection that is dead: the server is asked
//! for a sign of life.

use std::time::Duration;

use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::ConfigExt;
use rustls::pki_types::ServerName;

use super::ClientError;

/// Time to reach the server.
pub(super) const CONNECT: Duration = Duration::from_secs(5);
/// An idle connection is closed before the server would.
const IDLE: Duration = Duration::from_secs(45);
/// A shared connection over which nothing has come for this long is asked for a sign of life,
const PING: Duration = Duration::from_secs(5);
/// and given up if there is none: all calls on it fail.
const PONG: Duration = Duration::from_secs(3);
/// What the server may send ahead on one call, and on all calls of a connection.
const WINDOW: u32 = 1 << 20;
const WINDOWS: u32 = 8 << 20;

/// TLS as `config` wants it, with both versions of HTTP on offer.
pub(super) fn connector(
    config: &kube::Config,
) -> Result<HttpsConnector<HttpConnector>, ClientError> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(CONNECT));
    let tls = config.rustls_client_config().map_err(|e| ClientError::Client(Box::new(e)))?;
    let mut builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = ServerName::try_from(name.clone())
            .map_err(|_| ClientError::ServerName(name.clone()))?;
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    Ok(builder.enable_all_versions().wrap_connector(http))
}

/// What a pool of connections is made with: up to `connections` idle ones of HTTP/1, or one
/// of HTTP/2.
pub(super) fn pool(connections: usize) -> legacy::Builder {
    let mut builder = legacy::Client::builder(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(connections)
        .http2_initial_stream_window_size(WINDOW)
        .http2_initial_connection_window_size(WINDOWS)
        .http2_keep_alive_interval(PING)
        .http2_keep_alive_timeout(PONG)
        .http2_keep_alive_while_idle(true);
    builder
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use http_body_util::Empty;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;
    use tokio::time::Instant;
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::client::{Call, Wire};

    /// A server that speaks one version of HTTP and counts its connections; the
    /// configuration that trusts it.
    async fn server(version: &'static str) -> (kube::Config, Arc<AtomicUsize>) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let mut tls = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.into())
            .unwrap();
        tls.alpn_protocols = vec![version.as_bytes().to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let io = TokioIo::new(acceptor.accept(stream).await.unwrap());
                    let answer = service_fn(async |_| {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                        Ok::<_, Infallible>(http::Response::new(Empty::<Bytes>::new()))
                    });
                    if version == "h2" {
                        let build = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                        let _ = build.serve_connection(io, answer).await;
                    } else {
                        let build = hyper::server::conn::http1::Builder::new();
                        let _ = build.serve_connection(io, answer).await;
                    }
                });
            }
        });
        let mut config = kube::Config::new(format!("https://{address}").parse().unwrap());
        config.root_cert = Some(vec![made.cert.der().to_vec()]);
        (config, connections)
    }

    fn call() -> Call {
        let (method, path) = (http::Method::GET, "/version".to_owned());
        Call { method, path, content_type: "application/json", body: Bytes::new() }
    }

    /// One call, then fifty at a time; how many connections that took.
    async fn connections(version: &'static str) -> usize {
        let (config, connections) = server(version).await;
        let wire = Wire::new(&config, 64).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        wire.call(call(), until).await.unwrap();
        let mut calls = JoinSet::new();
        for _ in 0..50 {
            let wire = wire.clone();
            calls.spawn(async move { wire.call(call(), until).await });
        }
        for answer in calls.join_all().await {
            answer.unwrap();
        }
        connections.load(Ordering::SeqCst)
    }

    #[tokio::test]
    async fn a_server_of_http_2_has_one_connection_for_all_calls() {
        assert_eq!(connections("h2").await, 1);
    }

    #[tokio::test]
    async fn a_server_of_http_1_has_a_connection_for_each_call_under_way() {
        assert!(connections("http/1.1").await > 1);
    }

    #[tokio::test]
    async fn a_server_name_that_is_none_is_said() {
        let mut config = kube::Config::new("https://127.0.0.1:1".parse().unwrap());
        config.tls_server_name = Some("not a name".to_owned());
        let error = connector(&config).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with("tls-server-name \"not a name\" is not a name"), "{error}");
    }
}
