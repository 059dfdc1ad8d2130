//! A kubelet as far as the agent sees one: a podresources server on a unix socket below a directory,
//! the files beside it, and devices and CPUs that are given to pods.
//!
//! Driven by the test; it decides nothing by itself but the lowest free ids.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
use muster_node_agent::podresources::{SOCKET, grpc, proto};
use prost::Message;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

/// What the next calls meet.
#[derive(Clone, Debug, Default)]
pub(crate) enum Mood {
    #[default]
    Helpful,
    /// A gRPC status.
    Refusing(u32, &'static str),
    /// No answer at all.
    Silent,
    /// These bytes in place of a message.
    Babbling(Vec<u8>),
}

#[derive(Debug, Default)]
struct State {
    mood: Mood,
    calls: u64,
    /// Healthy devices, with their NUMA nodes.
    devices: BTreeMap<(String, String), Vec<i64>>,
    cpus: Vec<i64>,
    memory: Vec<proto::ContainerMemory>,
    pods: Vec<proto::PodResources>,
}

/// The fake; its socket is closed when it is dropped.
pub(crate) struct Kubelet {
    root: PathBuf,
    state: Arc<Mutex<State>>,
    server: Option<JoinHandle<()>>,
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.abort();
        }
    }
}

/// What a pod is to get.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ask<'a> {
    pub(crate) resource: &'a str,
    pub(crate) devices: usize,
    /// Exactly these, whatever is free.
    pub(crate) ids: &'a [&'a str],
    pub(crate) cpus: usize,
}

impl Kubelet {
    /// A running kubelet whose directory is `root`.
    pub(crate) fn start(root: &Path) -> Result<Self> {
        for dir in ["pod-resources", "device-plugins"] {
            fs::create_dir_all(root.join(dir))?;
        }
        let mut kubelet = Self { root: root.to_owned(), state: Arc::default(), server: None };
        kubelet.serve()?;
        Ok(kubelet)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.root.join(SOCKET)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&mut self) -> Result<()> {
        let socket = self.socket();
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).context("the kubelet's socket")?;
        let state = Arc::clone(&self.state);
        self.server = Some(tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(connection(stream, Arc::clone(&state)));
                while connections.try_join_next().is_some() {}
            }
        }));
        // The kubelet's registration socket is made anew at each start, and this is how
        // everybody learns of a restart.
        self.write("device-plugins/kubelet.sock", "")
    }

    /// Ends the server; the socket's file stays behind, as after a crash.
    pub(crate) async fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.abort();
            let _ = server.await;
        }
    }

    /// Ends it, if it runs, and makes a new socket in place of the old.
    pub(crate) async fn restart(&mut self) -> Result<()> {
        self.stop().await;
        self.serve()
    }

    pub(crate) fn mood(&self, mood: Mood) {
        self.state().mood = mood;
    }

    /// How often it was asked.
    pub(crate) fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Writes a file the way the kubelet does: beside it, then renamed over it.
    pub(crate) fn write(&self, name: &str, content: &str) -> Result<()> {
        let path = self.root.join(name);
        let beside = path.with_extension("tmp");
        fs::write(&beside, content)?;
        fs::rename(beside, path).with_context(|| format!("write {name}"))
    }

    /// Makes a device known, or healthy again.
    pub(crate) fn device(&self, resource: &str, id: &str, numa: &[i64]) -> Result<()> {
        self.state().devices.insert((resource.to_owned(), id.to_owned()), numa.to_vec());
        self.checkpoint()
    }

    /// A device is no longer offered.
    pub(crate) fn unhealthy(&self, resource: &str, id: &str) -> Result<()> {
        self.state().devices.remove(&(resource.to_owned(), id.to_owned()));
        self.checkpoint()
    }

    /// Switches the static CPU manager on.
    pub(crate) fn cpus(&self, ids: impl IntoIterator<Item = i64>) {
        self.state().cpus = ids.into_iter().collect();
    }

    /// Switches the static memory manager on.
    pub(crate) fn memory(&self, kind: &str, size: u64, numa: i64) {
        self.state().memory.push(proto::ContainerMemory {
            memory_type: kind.to_owned(),
            size,
            topology: topology(&[numa]),
        });
    }

    /// Gives a pod's container `main` what it asks for.
    pub(crate) fn admit(&self, namespace: &str, name: &str, ask: &Ask) -> Result<Vec<String>> {
        let mut state = self.state();
        let held = |d: &String| {
            let devices = state.pods.iter().flat_map(|p| &p.containers).flat_map(|c| &c.devices);
            devices.flat_map(|d| &d.device_ids).any(|id| id == d)
        };
        let free = state.devices.keys().filter(|(resource, _)| resource == ask.resource);
        let free: Vec<String> = free.map(|(_, id)| id.clone()).filter(|id| !held(id)).collect();
        let chosen: Vec<String> = if ask.ids.is_empty() {
            free.into_iter().take(ask.devices).collect()
        } else {
            ask.ids.iter().map(|id| (*id).to_owned()).collect()
        };
        ensure!(chosen.len() == ask.devices.max(ask.ids.len()), "{name}: not enough devices");
        let taken = |id: &i64| {
            state.pods.iter().flat_map(|p| &p.containers).any(|c| c.cpu_ids.contains(id))
        };
        let cpu_ids: Vec<i64> =
            state.cpus.iter().copied().filter(|id| !taken(id)).take(ask.cpus).collect();
        ensure!(cpu_ids.len() == ask.cpus, "{name}: not enough CPUs");
        let devices = chosen.iter().map(|id| {
            let key = (ask.resource.to_owned(), id.clone());
            let numa = state.devices.get(&key).cloned().unwrap_or_default();
            proto::ContainerDevices {
                resource_name: ask.resource.to_owned(),
                device_ids: vec![id.clone()],
                topology: topology(&numa),
            }
        });
        let devices = devices.collect();
        let container = proto::ContainerResources {
            name: "main".to_owned(),
            devices,
            cpu_ids,
            ..proto::ContainerResources::default()
        };
        state.pods.push(proto::PodResources {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            containers: vec![container],
            ..proto::PodResources::default()
        });
        drop(state);
        self.checkpoint()?;
        Ok(chosen)
    }

    /// A pod has this, whatever is free.
    pub(crate) fn hold(&self, pod: proto::PodResources) -> Result<()> {
        self.state().pods.push(pod);
        self.checkpoint()
    }

    /// A pod's resources are given back.
    pub(crate) fn release(&self, namespace: &str, name: &str) -> Result<()> {
        self.state().pods.retain(|pod| pod.namespace != namespace || pod.name != name);
        self.checkpoint()
    }

    fn checkpoint(&self) -> Result<()> {
        let calls = self.state().pods.len();
        self.write("device-plugins/kubelet_internal_checkpoint", &format!("{{\"pods\":{calls}}}"))
    }
}

pub(crate) fn topology(numa: &[i64]) -> Option<proto::TopologyInfo> {
    let nodes: Vec<_> = numa.iter().map(|&id| proto::NumaNode { id }).collect();
    (!nodes.is_empty()).then_some(proto::TopologyInfo { nodes })
}

async fn connection(stream: UnixStream, state: Arc<Mutex<State>>) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    let mut calls = tokio::task::JoinSet::new();
    while let Some(Ok((request, respond))) = connection.accept().await {
        let path = request.uri().path().to_owned();
        calls.spawn(answer(path, respond, Arc::clone(&state)));
    }
}

async fn answer(
    path: String,
    mut respond: h2::server::SendResponse<Bytes>,
    state: Arc<Mutex<State>>,
) {
    let (mood, body) = {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.calls += 1;
        (state.mood.clone(), body(&path, &state))
    };
    let (status, message, body) = match (mood, body) {
        (Mood::Silent, _) => return tokio::time::sleep(Duration::from_secs(3600)).await,
        (Mood::Refusing(code, words), _) => (code, words, None),
        (Mood::Babbling(bytes), _) => (0, "", Some(Bytes::from(bytes))),
        (Mood::Helpful, Some(body)) => (0, "", Some(body)),
        (Mood::Helpful, None) => (12, "unknown method", None),
    };
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(status));
    trailers.insert("grpc-message", HeaderValue::from_static(message));
    let mut head = Response::new(());
    head.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    let Some(body) = body else {
        // As grpc-go does it: the status in the head, and no body.
        head.headers_mut().extend(trailers);
        let _ = respond.send_response(head, true);
        return;
    };
    if let Ok(mut stream) = respond.send_response(head, false) {
        let _ = stream.send_data(body, false);
        let _ = stream.send_trailers(trailers);
    }
}

fn body(path: &str, state: &State) -> Option<Bytes> {
    let entries = state.devices.iter().map(|((resource, id), numa)| proto::ContainerDevices {
        resource_name: resource.clone(),
        device_ids: vec![id.clone()],
        topology: topology(numa),
    });
    match path {
        "/v1.PodResourcesLister/List" => {
            Some(frame(&proto::ListResponse { pod_resources: state.pods.clone() }))
        }
        "/v1.PodResourcesLister/GetAllocatableResources" => {
            Some(frame(&proto::AllocatableResponse {
                devices: entries.collect(),
                cpu_ids: state.cpus.clone(),
                memory: state.memory.clone(),
            }))
        }
        _ => None,
    }
}

fn frame(message: &impl Message) -> Bytes {
    grpc::frame(message)
}
