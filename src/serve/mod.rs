//! The HTTPS surface: health, metrics, debug pages.
//!
//! Owns: the socket, the certificate, connections and their limits, and who may
//! see what. Must never: answer in plain HTTP; show anything but health to who
//! is not authorised; hold the scheduler up.
//!
//! | path | open to |
//! |---|---|
//! | `/livez` `/readyz` `/healthz` | everybody |
//! | `/livez/CHECK` `/readyz/CHECK` `/healthz/CHECK` | `get` on the path |
//! | `/metrics` `/configz` `/debug/queue` `/debug/cache` `/debug/explain` | `get` on the path |
//! | `/debug/flags/v` | `get` shows, `put` changes the verbosity |

mod auth;
mod health;
mod routes;
#[cfg(test)]
mod tests;
mod tls;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use futures::future::BoxFuture;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::metrics::Metrics;
use crate::run::Shutdown;
pub use tls::TlsError;
use tls::TlsFiles;

/// kube-scheduler's port.
pub const DEFAULT_PORT: u16 = 10_259;

/// How many connections are open at once; others wait to be accepted.
const MAX_CONNECTIONS: usize = 128;
/// How long a TLS handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may wait for a request to be complete.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a connection may live.
const MAX_AGE: Duration = Duration::from_secs(600);
/// How long a request may go on after its connection is to end.
const GRACE: Duration = Duration::from_secs(5);
/// Headers of a request.
const MAX_HEADERS: usize = 64;
/// Bytes of a request that are held at once, headers included.
const MAX_BUFFER: usize = 32 << 10;
/// Pause after a socket could not be accepted, for instance for want of files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where to listen, and with which certificate: that of `cert`, else that in
/// `cert_dir`, else one made at start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeConfig {
    /// Address and port; port 0 is any.
    pub address: SocketAddr,
    /// A directory with `tls.crt` and `tls.key`, as a mounted Secret has.
    pub cert_dir: Option<PathBuf>,
    /// Certificate (with its chain) and key, as PEM.
    pub cert: Option<(PathBuf, PathBuf)>,
}

impl Default for ServeConfig {
    fn default() -> Self {
        let address = (Ipv4Addr::UNSPECIFIED, DEFAULT_PORT).into();
        Self { address, cert_dir: None, cert: None }
    }
}

impl ServeConfig {
    fn tls_files(&self) -> Option<TlsFiles> {
        if let Some((certificate, key)) = self.cert.clone() {
            return Some(TlsFiles { certificate, key });
        }
        let dir = self.cert_dir.as_ref()?;
        let files = TlsFiles { certificate: dir.join("tls.crt"), key: dir.join("tls.key") };
        files.certificate.exists().then_some(files)
    }
}

/// What the scheduler shows of itself.
pub trait Surface: Send + Sync + 'static {
    /// Whether it is ready; if not, why (which only the log and the authorised
    /// learn).
    fn ready(&self) -> Result<(), String>;
    /// The configuration in force.
    fn configz(&self) -> serde_json::Value;
    /// What waits, and why.
    fn debug_queue(&self) -> BoxFuture<'static, serde_json::Value>;
    /// What the scheduler believes about the cluster.
    fn debug_cache(&self) -> BoxFuture<'static, serde_json::Value>;
    /// Why a pod goes where it goes; `None` if it is not known as waiting.
    fn debug_explain(
        &self,
        namespace: String,
        name: String,
    ) -> BoxFuture<'static, Result<Option<serde_json::Value>, String>>;
}

/// Serves until shutdown: the address it listens on, and its end.
pub async fn start(
    cfg: ServeConfig,
    client: kube::Client,
    metrics: Metrics,
    surface: Arc<dyn Surface>,
    shutdown: Shutdown,
) -> anyhow::Result<(SocketAddr, JoinHandle<()>)> {
    let tls_files = cfg.tls_files();
    let listener = TcpListener::bind(cfg.address).await.with_context(|| {
        format!("cannot listen on {}; is another scheduler running?", cfg.address)
    })?;
    let address = listener.local_addr()?;
    let tls = tls::config(tls_files, names(address))?;
    let authority = auth::Authority::new(client);
    let app = routes::App { metrics, surface, authority, shutdown: shutdown.clone() };
    let server = Server {
        tls: TlsAcceptor::from(Arc::new(tls)),
        router: routes::router(Arc::new(app)),
        shutdown,
    };
    tracing::info!(%address, "serving health, metrics and debug pages");
    Ok((address, tokio::spawn(server.accept(listener))))
}

/// Names for a certificate of our own making.
fn names(address: SocketAddr) -> Vec<String> {
    let mut names = vec!["localhost".to_owned(), Ipv4Addr::LOCALHOST.to_string()];
    if !address.ip().is_unspecified() && !address.ip().is_loopback() {
        names.push(address.ip().to_string());
    }
    names.extend(std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty()));
    names
}

#[derive(Clone)]
struct Server {
    tls: TlsAcceptor,
    router: Router,
    shutdown: Shutdown,
}

impl Server {
    async fn accept(self, listener: TcpListener) {
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = self.shutdown.wait() => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                accepted = next(&listener, &slots) => match accepted {
                    Ok((stream, slot)) => {
                        connections.spawn(self.clone().serve(stream, slot));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        }
        drop(listener);
        // Each ends by itself within its own grace.
        let _ = timeout(GRACE + ACCEPT_PAUSE, connections.join_all()).await;
    }

    async fn serve(self, stream: TcpStream, slot: OwnedSemaphorePermit) {
        let shaken = tokio::select! {
            () = self.shutdown.wait() => return,
            shaken = timeout(HANDSHAKE_TIMEOUT, self.tls.accept(stream)) => shaken,
        };
        let Ok(Ok(stream)) = shaken else {
            return;
        };
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_headers(MAX_HEADERS)
            .max_buf_size(MAX_BUFFER);
        let service = TowerToHyperService::new(self.router);
        let connection = http.serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        tokio::select! {
            // Errors are the client's: cut, late, or not HTTP.
            _ = connection.as_mut() => return,
            () = self.shutdown.wait() => {}
            () = sleep(MAX_AGE) => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = timeout(GRACE, connection).await;
        drop(slot);
    }
}

/// The next connection, once there is room for one.
async fn next(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let slot = Arc::clone(slots).acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, slot))
}
