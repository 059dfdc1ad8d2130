//! Ways to the API server.
//!
//! Owns: where the server is and who we are, and server-side apply with a deadline. No client made
//! here retries by itself: whoever calls knows when to try again. Must never decide what to
//! write.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use http::header;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Who wrote a field, to the API server.
pub const FIELD_MANAGER: &str = "muster-node-agent";
/// A watch that says nothing for this long (bookmarks included) is dead.
const WATCH_SILENCE: Duration = Duration::from_secs(300);
/// Time to reach the server.
const CONNECT: Duration = Duration::from_secs(5);
/// Longest that an ordinary call may take.
pub const CALL: Duration = Duration::from_secs(10);

/// Why a call came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no answer within {CALL:?}")]
    Silent,
    #[error("{0}")]
    Client(#[from] Box<kube::Error>),
    #[error("the request cannot be made: {0}")]
    Request(#[from] http::Error),
    #[error("the answer cannot be read: {0}")]
    Answer(#[from] serde_json::Error),
}

impl Error {
    /// The status code, if the server has spoken.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Client(error) => match error.as_ref() {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Both clients: for calls, and for watches.
#[derive(Clone)]
pub struct Clients {
    pub calls: kube::Client,
    pub watches: kube::Client,
}

/// From a kubeconfig, or from the pod we run in.
pub async fn connect(kubeconfig: Option<&Path>) -> anyhow::Result<Clients> {
    // Fails only if a provider is installed already: just as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut config = match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path)
                .with_context(|| format!("kubeconfig {}", path.display()))?;
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("kubeconfig {}", path.display()))?
        }
        None => kube::Config::incluster()
            .context("no API server: not inside a pod; give --kubeconfig")?,
    };
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT);
    let with = |silence| {
        let mut config = config.clone();
        config.read_timeout = Some(silence);
        kube::Client::try_from(config).context("the client configuration cannot be used")
    };
    Ok(Clients { calls: with(CALL)?, watches: with(WATCH_SILENCE)? })
}

/// Reads an object, or whatever is at `path`.
pub async fn get<T: DeserializeOwned>(client: &kube::Client, path: &str) -> Result<T, Error> {
    Ok(serde_json::from_str(&get_text(client, path).await?)?)
}

/// Reads the text at `path`.
pub async fn get_text(client: &kube::Client, path: &str) -> Result<String, Error> {
    let request = http::Request::get(path).body(Vec::new())?;
    send(client, request).await
}

/// Writes an object whole by server-side apply and returns its new version.
pub async fn apply(client: &kube::Client, path: &str, object: &Value) -> Result<String, Error> {
    #[derive(Deserialize)]
    struct Written {
        metadata: Meta,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Meta {
        #[serde(default)]
        resource_version: String,
    }
    let request = http::Request::patch(format!("{path}?fieldManager={FIELD_MANAGER}&force=true"))
        .header(header::CONTENT_TYPE, "application/apply-patch+yaml")
        .header(header::ACCEPT, "application/json")
        .body(serde_json::to_vec(object)?)?;
    let answer = send(client, request).await?;
    let written: Written = serde_json::from_str(&answer)?;
    Ok(written.metadata.resource_version)
}

/// Puts a question to the server, and returns the object with its answer.
pub async fn ask(client: &kube::Client, path: &str, question: &Value) -> Result<Value, Error> {
    let request = http::Request::post(path)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json")
        .body(serde_json::to_vec(question)?)?;
    Ok(serde_json::from_str(&send(client, request).await?)?)
}

async fn send(client: &kube::Client, request: http::Request<Vec<u8>>) -> Result<String, Error> {
    match tokio::time::timeout(CALL, client.request_text(request)).await {
        Ok(answer) => answer.map_err(|error| Error::Client(Box::new(error))),
        Err(_) => Err(Error::Silent),
    }
}
