//! Extenders: the core's questions as HTTP calls to programs of others.
//!
//! Owns: the clients, what goes over the wire (upstream's JSON, `k8s.io/kube-scheduler
//! /extender/v1`), the full objects that extenders want, deadlines and limits. Every
//! question is answered, once, whatever becomes of the call; nothing is asked twice.
//! Runs on a thread of its own, so that large bodies delay neither the core nor the
//! lease. Must never decide: what an answer means is the core's business.

mod ask;
mod binds;
mod client;
mod nodes;
mod pods;
#[cfg(test)]
mod tests;
mod tls;
mod wire;

pub use client::{DEFAULT_TIMEOUT, answer_limit};
pub use tls::TlsError;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use muster_core::framework::{ExtenderId, ExtenderSpec};
use muster_core::io::{ExtenderCall, ExtenderReply, Input, PodRef, Reply, Scores, Token};
use parking_lot::RwLock;
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, mpsc};
use tracing::{error, warn};

use self::binds::Binds;
use self::client::Extender;
use self::nodes::FullNodes;
use self::pods::FullPods;
use crate::client::ClientError;
use crate::config;
use crate::elect::Leadership;
use crate::metrics::Metrics;
use crate::run::Message;
use crate::shard::NodeSelector;

/// Calls on their way at a time, to all extenders together; more wait.
pub const MAX_FLYING: usize = 64;

/// At the end, binds that extenders were asked for are waited for this long.
pub const DRAIN: Duration = Duration::from_secs(5);

/// Why extenders cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum ExtendError {
    /// An address is none.
    #[error("extenders: urlPrefix {url:?}: {reason}; give a URL such as http://10.0.0.1:8888/path")]
    Address {
        /// What was given.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// TLS cannot be set up.
    #[error("extenders: {url}: {source}")]
    Tls {
        /// Which extender.
        url: String,
        /// What is wrong.
        source: TlsError,
    },
    /// The API server cannot be asked for full objects.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// No thread.
    #[error("cannot start the extenders' thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// What extenders need.
#[derive(Clone)]
pub struct Setup {
    /// Where the API server is.
    pub config: kube::Config,
    /// Which nodes are looked after; `None`: all.
    pub shard: Option<NodeSelector>,
    /// When a bind may be asked for.
    pub leadership: Leadership,
    /// Where answers go.
    pub answers: mpsc::Sender<Message>,
    /// Metrics.
    pub metrics: Metrics,
}

/// On whose behalf something is asked.
struct Asked {
    pod: PodRef,
    attempt: u64,
}

struct Shared {
    table: RwLock<Table>,
    pods: FullPods,
    leadership: Leadership,
    answers: mpsc::Sender<Message>,
    metrics: Metrics,
    flying: Semaphore,
    unanswered: AtomicUsize,
    binds: Binds,
}

/// Who may be asked.
#[derive(Default)]
struct Table {
    extenders: BTreeMap<ExtenderId, Arc<Extender>>,
    /// Only while an extender wants them.
    nodes: Option<Arc<FullNodes>>,
    /// The next one's number: none is given twice.
    next: u32,
}

/// The extenders' thread, once there is an extender.
#[derive(Default)]
struct Thread(OnceLock<Runtime>);

impl Thread {
    fn start(&self) -> Result<&Runtime, ExtendError> {
        if self.0.get().is_none() {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .thread_name("extend")
                .enable_all()
                .build()?;
            if let Err(spare) = self.0.set(runtime) {
                spare.shutdown_background();
            }
        }
        Ok(self.0.get().expect("it was set just now"))
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// The extenders that are configured, and those that attempts begun under an older
/// configuration may still ask.
#[derive(Clone)]
pub struct Extenders {
    shared: Arc<Shared>,
    thread: Arc<Thread>,
    config: Arc<kube::Config>,
    shard: Option<NodeSelector>,
}

impl Extenders {
    /// None yet.
    ///
    /// # Errors
    ///
    /// If the API server cannot be asked for whole objects.
    pub fn new(setup: Setup) -> Result<Self, ExtendError> {
        let shared = Arc::new(Shared {
            table: RwLock::default(),
            pods: FullPods::new(&setup.config)?,
            leadership: setup.leadership,
            answers: setup.answers,
            metrics: setup.metrics,
            flying: Semaphore::new(MAX_FLYING),
            unanswered: AtomicUsize::new(0),
            binds: Binds::new(),
        });
        let (config, shard) = (Arc::new(setup.config), setup.shard);
        Ok(Self { shared, thread: Arc::default(), config, shard })
    }

    /// Makes these extenders ready to be asked, beside those that are, and says what the
    /// core is told of them. One that is known by the same configuration stays as it is.
    ///
    /// # Errors
    ///
    /// If an address or a certificate cannot be used; then nothing has changed.
    pub fn prepare(&self, wanted: &[config::Extender]) -> Result<Vec<ExtenderSpec>, ExtendError> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let runtime = self.thread.start()?;
        let mut table = self.shared.table.write();
        let mut taken: Vec<(ExtenderId, Option<Arc<Extender>>)> = Vec::new();
        let mut next = table.next;
        for extender in wanted {
            let free = |id: &ExtenderId| taken.iter().all(|(other, _)| other != id);
            let known = table.extenders.iter().find(|(id, e)| e.is(extender) && free(id));
            match known {
                Some((id, _)) => taken.push((*id, None)),
                None => {
                    let client = Extender::new(extender, &self.shared.metrics)?;
                    taken.push((ExtenderId(next), Some(Arc::new(client))));
                    next += 1;
                }
            }
        }
        if table.nodes.is_none() && wanted.iter().any(wants_nodes) {
            let nodes = FullNodes::follow(&self.config, self.shard.as_ref(), runtime.handle())?;
            table.nodes = Some(Arc::new(nodes));
        }
        table.next = next;
        let specs = taken.iter().zip(wanted).map(|((id, _), e)| spec(*id, e)).collect();
        let new = taken.into_iter().filter_map(|(id, client)| Some((id, client?)));
        table.extenders.extend(new);
        Ok(specs)
    }

    /// Forgets all but these.
    pub fn retain(&self, in_use: &BTreeSet<ExtenderId>) {
        let mut table = self.shared.table.write();
        table.extenders.retain(|id, _| in_use.contains(id));
        if !table.extenders.values().any(|extender| extender.wants_nodes()) {
            table.nodes = None;
        }
    }

    /// Those that may be asked.
    #[must_use]
    pub fn known(&self) -> BTreeSet<ExtenderId> {
        self.shared.table.read().extenders.keys().copied().collect()
    }

    /// Takes a question over: the answer comes as an input.
    pub fn submit(&self, token: Token, pod: PodRef, attempt: u64, call: ExtenderCall) {
        let Some(runtime) = self.thread.0.get() else {
            return;
        };
        let shared = Arc::clone(&self.shared);
        shared.unanswered.fetch_add(1, Ordering::Relaxed);
        let asked = Asked { pod, attempt };
        let is_bind = matches!(call, ExtenderCall::Bind { .. });
        let may_start = !is_bind || shared.binds.begin();
        runtime.spawn(async move {
            let answers = shared.answers.clone();
            let of_call = Arc::clone(&shared);
            // A panic is an answer too: nobody else would tell the core.
            let work = tokio::spawn(async move {
                if may_start { of_call.reply(&asked, &call).await } else { failed(ENDING) }
            });
            let reply = work.await.unwrap_or_else(|ended| {
                error!("a call of an extender ended: {ended}");
                ExtenderReply::Failed { error: "the call ended".into(), in_doubt: true }
            });
            shared.unanswered.fetch_sub(1, Ordering::Relaxed);
            if is_bind && may_start {
                shared.binds.end();
            }
            let input = Input::Reply { token, reply: Reply::Extender(reply) };
            // Nobody listens only at the end.
            let _ = answers.send(Message::Input(input)).await;
        });
    }

    /// Lets no further bind begin and waits for those on their way, for at most
    /// [`DRAIN`]: what an extender was asked to do is known before the lease is given up.
    pub async fn drain(&self) {
        let left = self.shared.binds.drain(DRAIN).await;
        if left > 0 {
            warn!(left, "extenders still bind pods after {DRAIN:?}; not waiting any longer");
        }
    }

    /// Questions taken over and not answered yet.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.shared.unanswered.load(Ordering::Relaxed)
    }
}

/// Whether names do not suffice.
fn wants_nodes(extender: &config::Extender) -> bool {
    let sees_nodes = !extender.filter_verb.is_empty() || !extender.prioritize_verb.is_empty();
    !extender.node_cache_capable && sees_nodes
}

/// What the core is told of an extender.
fn spec(id: ExtenderId, e: &config::Extender) -> ExtenderSpec {
    ExtenderSpec {
        id,
        name: e.url_prefix.as_str().into(),
        filters: !e.filter_verb.is_empty(),
        prioritizes: !e.prioritize_verb.is_empty(),
        preempts: !e.preempt_verb.is_empty(),
        binds: !e.bind_verb.is_empty(),
        weight: e.weight,
        ignorable: e.ignorable,
        managed: e.managed_resources.iter().map(|r| r.name.as_str().into()).collect(),
    }
}

/// Resources that NodeResourcesFit leaves to extenders. As upstream, if there are any
/// they take the place of its own `ignoredResources`.
#[must_use]
pub fn ignored_resources(extenders: &[config::Extender]) -> Vec<String> {
    let resources = extenders.iter().flat_map(|e| &e.managed_resources);
    resources.filter(|r| r.ignored_by_scheduler).map(|r| r.name.clone()).collect()
}

impl Shared {
    async fn reply(&self, asked: &Asked, call: &ExtenderCall) -> ExtenderReply {
        let Ok(_turn) = self.flying.acquire().await else {
            return failed("extenders are not asked any more");
        };
        match call {
            ExtenderCall::Filter { extender, nodes } => match self.find(*extender) {
                Ok(extender) => self.filter(asked, &extender, nodes).await,
                Err(reply) => reply,
            },
            ExtenderCall::Prioritize { extenders, nodes } => {
                let each = extenders.iter().map(|id| async {
                    match self.find(*id) {
                        Ok(extender) => self.prioritize(asked, &extender, nodes).await,
                        Err(_) => Scores::Err(UNKNOWN.into()),
                    }
                });
                ExtenderReply::Prioritized(futures::future::join_all(each).await)
            }
            ExtenderCall::Preempt { extender, candidates } => match self.find(*extender) {
                Ok(extender) => self.preempt(asked, &extender, candidates).await,
                Err(reply) => reply,
            },
            ExtenderCall::Bind { extender, node } => match self.find(*extender) {
                Ok(extender) => self.bind(asked, &extender, node).await,
                Err(reply) => reply,
            },
        }
    }

    fn find(&self, id: ExtenderId) -> Result<Arc<Extender>, ExtenderReply> {
        self.table.read().extenders.get(&id).cloned().ok_or_else(|| {
            warn!(?id, "{UNKNOWN}");
            failed(UNKNOWN)
        })
    }
}

/// Said of a bind that would begin at the end.
const ENDING: &str = "the scheduler is ending";
const UNKNOWN: &str = "there is no such extender";

fn failed(error: &str) -> ExtenderReply {
    ExtenderReply::Failed { error: error.into(), in_doubt: false }
}
