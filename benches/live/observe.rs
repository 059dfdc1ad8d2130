//! Counts binds by a watch that costs next to nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use futures::{AsyncBufRead, AsyncBufReadExt};
use kube::Client;
use serde_json::Value;

/// Bound pods. The server sends one when it begins to match, that is at its
/// bind, and only its metadata.
const BOUND: &str = "/api/v1/pods?fieldSelector=spec.nodeName%21%3D";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Binds seen so far, by this process's clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) bound: usize,
    pub(crate) first: Option<Instant>,
    pub(crate) last: Option<Instant>,
    /// Why no more will be seen.
    pub(crate) lost: Option<String>,
}

#[derive(Clone, Default)]
pub(crate) struct Observer(Arc<Mutex<Seen>>);

impl Observer {
    /// Begins to watch; returns when the API server has accepted the watch.
    pub(crate) async fn start(client: &Client) -> Result<Self> {
        let list = http::Request::get(format!("{BOUND}&limit=1")).body(Vec::new())?;
        let list: Value = client.request(list).await?;
        let version = list["metadata"]["resourceVersion"].as_str();
        let mut version = version.context("a list without a resourceVersion")?.to_owned();
        let mut stream = watch(client, &version).await?;
        let observer = Self::default();
        let (task, client) = (observer.clone(), client.clone());
        tokio::spawn(async move {
            let lost = loop {
                if let Err(e) = task.follow(stream, &mut version).await {
                    break e;
                }
                // The API server drops watchers that fall behind, which happens
                // when the cores are taken. Nothing is missed, only seen later.
                stream = match watch(&client, &version).await {
                    Ok(stream) => stream,
                    Err(e) => break e,
                };
            };
            task.lock().lost = Some(format!("the watch of the pods failed: {lost:#}"));
        });
        Ok(observer)
    }

    /// Counts until the stream ends; `version` is where to resume.
    async fn follow(
        &self,
        mut stream: impl AsyncBufRead + Unpin,
        version: &mut String,
    ) -> Result<()> {
        let mut line = Vec::new();
        while stream.read_until(b'\n', &mut line).await? > 0 {
            // The pods are not decoded: two comparisons tell all.
            let text = std::str::from_utf8(&line)?;
            if text.starts_with(r#"{"type":"ERROR""#) {
                bail!("{text}");
            }
            if text.starts_with(r#"{"type":"ADDED""#) {
                let mut seen = self.lock();
                let now = Instant::now();
                seen.bound += 1;
                seen.first.get_or_insert(now);
                seen.last = Some(now);
            }
            let field = text.split(r#""resourceVersion":""#).nth(1);
            if let Some((value, _)) = field.and_then(|rest| rest.split_once('"')) {
                value.clone_into(version);
            }
            line.clear();
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn seen(&self) -> Seen {
        self.lock().clone()
    }
}

async fn watch(client: &Client, version: &str) -> Result<impl AsyncBufRead + Unpin + use<>> {
    let path = format!("{BOUND}&watch=true&timeoutSeconds=86400&resourceVersion={version}");
    let request =
        http::Request::get(path).header(http::header::ACCEPT, METADATA).body(Vec::new())?;
    Ok(Box::pin(client.request_stream(request).await?))
}
