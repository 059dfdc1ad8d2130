//! The live scheduler.
//!
//! Owns: the wiring of watches, the core's owner, the writer, election and the
//! HTTP surface, and the order in which they end. Must never look into an
//! object or decide a placement.
//!
//! Exit codes: 0 after SIGTERM or SIGINT, 1 when the configuration is wrong or
//! the lease was lost, 2 when a part of the scheduler panicked.

mod clock;
mod compare;
mod decisions;
mod owner;
mod process;
mod reload;
mod shutdown;
mod surface;

pub use owner::{MAILBOX, MAX_UNANSWERED_BINDS, Message, Question, SETTLE};
pub use reload::{Follow, LOOK};
pub use shutdown::Shutdown;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use muster_core::audit::{Audit, Audited};
use muster_core::report::PolicyReport;
use muster_core::{Config, Core, Profile};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use self::clock::Clock;
use self::owner::{Listed, Owner};
use crate::ask::Asker;
use crate::config::Configuration;
use crate::controller::{self, Board};
use crate::elect::{self, ElectConfig, ElectError, Leadership};
use crate::extend::{self, Extenders};
use crate::metrics::Metrics;
use crate::plugin::Registry;
use crate::serve::{self, ServeConfig};
use crate::shard::{self, NodeSelector};
use crate::write::{self, Limits, Writer};
use crate::{client, watch};

/// What `muster run` was asked to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// The configuration, with flags applied.
    pub configuration: Configuration,
    /// Path of a kubeconfig; `None`: the pod's own service account.
    pub kubeconfig: Option<PathBuf>,
    /// The nodes to look after; `None`: all.
    pub node_selector: Option<NodeSelector>,
    /// The HTTP surface; `None`: none.
    pub serve: Option<ServeConfig>,
    /// Seed of tie-breaking.
    pub seed: u64,
    /// Seconds after which an unschedulable pod is tried again anyway.
    pub max_in_unschedulable_secs: i64,
    /// The configuration file whose changes are taken up while the scheduler runs.
    pub follow: Option<Follow>,
}

/// Runs the scheduler with these plugins until it is told to end, and says with
/// which code.
pub async fn run(options: Options, registry: &Registry) -> Result<ExitCode> {
    process::log_panics();
    process::size_pool(options.configuration.parallelism);
    let kubeconfig = options.kubeconfig.as_deref();
    let config = client::load(kubeconfig).await?;
    let mut scheduler = Scheduler::configured(options, registry, &config).await?;
    let code = scheduler.until_the_end().await?;
    Ok(code)
}

/// The parts, running. A program with plugins of its own starts one with
/// profiles that have them; `muster run` starts one with what the
/// configuration says.
pub struct Scheduler {
    writer: Writer,
    /// No cycle starts any more.
    stop: Shutdown,
    /// Everything ends.
    end: Shutdown,
    election: JoinHandle<Result<(), ElectError>>,
    owner_ended: oneshot::Receiver<()>,
    writer_ended: oneshot::Receiver<()>,
    watches_ended: oneshot::Receiver<()>,
    controller: JoinHandle<()>,
    mailbox: mpsc::Sender<Message>,
    client: kube::Client,
    nodes: Option<NodeSelector>,
    metrics: Metrics,
    extenders: Extenders,
    configz: Arc<Mutex<Value>>,
}

impl Scheduler {
    /// Starts what the configuration says, with plugins of this registry, their feeds,
    /// and whoever follows the configuration file.
    ///
    /// # Errors
    ///
    /// If a plugin cannot be made or a part cannot be started.
    pub async fn configured(
        options: Options,
        registry: &Registry,
        config: &kube::Config,
    ) -> Result<Self> {
        let profiles = options.configuration.core_profiles(registry.plugins())?;
        let (follow, in_force) = (options.follow.clone(), options.configuration.clone());
        let scheduler = Self::start(options, profiles.clone(), config).await?;
        let mut feeds = registry.feeds(&scheduler.mailbox, &scheduler.end);
        feeds.follow(&profiles);
        if let Some(Follow { read, every }) = follow
            && let Some(path) = read.file.clone()
        {
            let follower = reload::Follower {
                path,
                every,
                read,
                in_force,
                registry: registry.clone(),
                feeds,
                asked: scheduler.extenders.known(),
                extenders: scheduler.extenders.clone(),
                mailbox: scheduler.mailbox.clone(),
                metrics: scheduler.metrics.clone(),
                configz: Arc::clone(&scheduler.configz),
                end: scheduler.end.clone(),
            };
            tokio::spawn(follower.run());
        }
        Ok(scheduler)
    }

    /// Starts to schedule the pods of these profiles.
    ///
    /// # Errors
    ///
    /// If a part cannot be started.
    pub async fn start(
        options: Options,
        profiles: Vec<Profile>,
        config: &kube::Config,
    ) -> Result<Self> {
        let metrics = Metrics::new();
        let names: Vec<_> = profiles.iter().map(|p| Arc::clone(p.scheduler_name())).collect();
        let (stop, end) = (Shutdown::new(), Shutdown::new());
        let (mailbox, inbox) = mpsc::channel(MAILBOX);
        let client = client::watching(config)?;
        let calls = client::calling(config)?;
        let listed = Arc::new(Listed::default());
        let configuration = &options.configuration;
        let nodes = options.node_selector.as_ref();
        let schedules = shard::describe(&names, nodes);
        info!("scheduling {schedules}");
        metrics.set_shard(nodes.map_or("", NodeSelector::as_str));
        let configz = Arc::new(Mutex::new(surface::configz(configuration, nodes)));
        metrics.config_in_force(0, jiff::Timestamp::now().as_second());

        if let Some(serve) = options.serve.clone() {
            let status = surface::Status {
                mailbox: mailbox.clone(),
                listed: listed.clone(),
                stop: stop.clone(),
                configz: Arc::clone(&configz),
                explanations: Arc::new(tokio::sync::Semaphore::new(surface::EXPLANATIONS)),
            };
            let surface = Arc::new(status);
            let (address, _) =
                serve::start(serve, calls.clone(), metrics.clone(), surface, end.clone()).await?;
            info!(%address, "serving");
        }
        metrics.set_lease_name(&configuration.leader_election.resource_name);
        let (leadership, election) = elect(configuration, schedules, calls, &end);
        tokio::spawn(wake_on_change(leadership.clone(), mailbox.clone(), metrics.clone()));
        let limits = match configuration.client_connection.rate_limit() {
            Some((qps, burst)) => Limits { qps: qps.into(), burst },
            None => Limits::default(),
        };
        let (writer, writer_ended) = write::start(write::Setup {
            config: config.clone(),
            leadership: leadership.clone(),
            limits,
            answers: mailbox.clone(),
            metrics: metrics.clone(),
            host: process::hostname(),
        })?;
        let board = Board::new(names.clone());
        let board = Arc::new(if nodes.is_some() { board.seeing_a_part() } else { board });
        let controller = controller::start(
            config,
            board.clone(),
            leadership.clone(),
            metrics.clone(),
            end.clone(),
        )?;
        let refusals = Arc::new(Notify::new());
        let watches_ended = watch::start(
            config.clone(),
            nodes,
            mailbox.clone(),
            board.clone(),
            metrics.clone(),
            end.clone(),
            refusals.clone(),
        )
        .context("start the watches' thread")?;
        let extenders = Extenders::new(extend::Setup {
            config: config.clone(),
            shard: options.node_selector.clone(),
            leadership: leadership.clone(),
            answers: mailbox.clone(),
            metrics: metrics.clone(),
        })?;
        let specs = extenders.prepare(&configuration.extenders)?;
        let profiles = profiles.into_iter().map(|p| p.with_extenders(specs.clone())).collect();
        let clock = Clock::new();
        let owner = Owner {
            core: core(core_config(&options, profiles), clock),
            inbox,
            writer: writer.clone(),
            extenders: extenders.clone(),
            asker: Asker::start(mailbox.clone()),
            board,
            leadership,
            metrics: metrics.clone(),
            clock,
            listed,
            stop: stop.clone(),
            runtime: tokio::runtime::Builder::new_current_thread().enable_time().build()?,
            lists: Vec::new(),
            listed_at: None,
            leads_since: None,
            gauges: Instant::now(),
            reported: (PolicyReport::default(), 0, Instant::now()),
            compared: Instant::now(),
            verbosity: 0,
            refusals,
        };
        let owner_ended = start_owner(owner)?;
        info!(profiles = ?names, "started");
        Ok(Self {
            writer,
            stop,
            end,
            election,
            owner_ended,
            writer_ended,
            watches_ended,
            controller,
            mailbox,
            client,
            nodes: options.node_selector,
            metrics,
            extenders,
            configz,
        })
    }

    /// Waits for the first reason to end, and ends in good order.
    async fn until_the_end(&mut self) -> Result<ExitCode> {
        let mut terminate = signal(SignalKind::terminate()).context("handle SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("handle SIGINT")?;
        let mut compare = signal(SignalKind::user_defined2()).context("handle SIGUSR2")?;
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                _ = compare.recv() => {
                    let (client, mailbox) = (self.client.clone(), self.mailbox.clone());
                    let nodes = self.nodes.clone();
                    tokio::spawn(async move {
                        compare::run(&client, nodes.as_ref(), &mailbox).await;
                    });
                }
                _ = &mut self.owner_ended => {
                    error!("the scheduling thread has ended");
                    return Ok(ExitCode::from(2));
                }
                _ = &mut self.writer_ended => {
                    error!("the writing thread has ended");
                    return Ok(ExitCode::from(2));
                }
                _ = &mut self.watches_ended => {
                    error!("the watching thread has ended");
                    return Ok(ExitCode::from(2));
                }
                _ = &mut self.controller => {
                    error!("the controller has ended");
                    return Ok(ExitCode::from(2));
                }
                ended = &mut self.election => return Ok(lost(ended)),
            }
        }
        self.end().await;
        Ok(ExitCode::SUCCESS)
    }

    /// Where the core can be told something: a verdict on a pod that waits at
    /// Permit, for instance.
    #[must_use]
    pub fn mailbox(&self) -> mpsc::Sender<Message> {
        self.mailbox.clone()
    }

    /// What `/configz` shows: the configuration in force.
    #[must_use]
    pub fn configz(&self) -> Value {
        self.configz.lock().clone()
    }

    /// Its metrics.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Ends in good order: no new cycles, then the writes, then the rest.
    pub async fn end(&mut self) {
        info!("ending: no new cycles, waiting for writes");
        self.stop.trigger();
        self.extenders.drain().await;
        self.writer.drain().await;
        self.end.trigger();
        match (&mut self.election).await {
            Ok(Ok(())) => info!("ended"),
            Ok(Err(error)) => warn!("ended; the lease was not released: {error}"),
            Err(error) => warn!("ended; the lease was not released: {error}"),
        }
    }
}

/// The election ended by itself.
fn lost(ended: Result<Result<(), ElectError>, tokio::task::JoinError>) -> ExitCode {
    match ended {
        Ok(Ok(())) => error!("the election has ended"),
        Ok(Err(error)) => error!("{error}"),
        Err(error) => {
            error!("the election has failed: {error}");
            return ExitCode::from(2);
        }
    }
    ExitCode::FAILURE
}

/// Starts the election, or leads at once if there is none.
fn elect(
    configuration: &Configuration,
    schedules: String,
    client: kube::Client,
    end: &Shutdown,
) -> (Leadership, JoinHandle<Result<(), ElectError>>) {
    let election = &configuration.leader_election;
    if election.leader_elect {
        let config = ElectConfig { schedules, ..ElectConfig::from(election) };
        return elect::start(client, config, end.clone());
    }
    let end = end.clone();
    let idle = tokio::spawn(async move {
        end.wait().await;
        Ok(())
    });
    (Leadership::always(), idle)
}

/// The owner sleeps while it does not lead: it must hear when it does.
async fn wake_on_change(
    mut leadership: Leadership,
    mailbox: mpsc::Sender<Message>,
    metrics: Metrics,
) {
    loop {
        metrics.leader(leadership.is_leader());
        leadership.changed().await;
        if mailbox.send(Message::Wake).await.is_err() {
            return;
        }
    }
}

fn start_owner(owner: Owner) -> Result<oneshot::Receiver<()>> {
    let (alive, ended) = oneshot::channel();
    std::thread::Builder::new()
        .name("schedule".to_owned())
        .spawn(move || {
            owner.run();
            drop(alive);
        })
        .context("start the scheduling thread")?;
    Ok(ended)
}

#[allow(clippy::needless_update, reason = "a feature of the core, on in tests, adds a field")]
fn core_config(options: &Options, profiles: Vec<Profile>) -> Config {
    Config {
        profiles,
        seed: options.seed,
        backoff: reload::backoff(&options.configuration),
        max_in_unschedulable_secs: options.max_in_unschedulable_secs,
        ..Config::default()
    }
}

/// The core; builds with debug assertions have it checked step by step.
fn core(config: Config, clock: Clock) -> Audited {
    let audit = cfg!(debug_assertions).then(|| Audit::new(&config));
    let core = Core::new(config).with_stopwatch(Arc::new(clock));
    match audit {
        // The owner says when everything is compared.
        Some(audit) => Audited::with(core, audit, 0),
        None => Audited::unchecked(core),
    }
}
