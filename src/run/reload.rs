//! Follows the configuration file while the scheduler runs.
//!
//! Owns: when the file is looked at, what a change of it leads to, and what is said of a
//! refusal. The file is read as a whole, time and again, and not watched by the kernel's
//! means: a mounted ConfigMap changes by a swapped link, editors rename, network file
//! systems tell nobody, and reading some KiB sees all of these. Must never end the
//! scheduler, nor put half of a change into force: what is refused leaves all as it was.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use muster_core::framework::ExtenderId;
use muster_core::{Backoff, Profile, Reload, ReloadError};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tracing::{info, warn};

use super::Shutdown;
use super::owner::{Message, Question};
use super::surface::ask;
use crate::config::Configuration;
use crate::extend::Extenders;
use crate::metrics::Metrics;
use crate::plugin::{Feeds, Registry};

/// How often the file is looked at. A change is taken up when two looks in a row show the
/// same text: whoever writes it need not write it at once.
pub const LOOK: Duration = Duration::from_secs(1);

/// Which configuration file is followed, and how.
#[derive(Clone, Debug)]
pub struct Follow {
    /// What the file said at the start, before flags.
    pub read: Configuration,
    /// Between two looks.
    pub every: Duration,
}

/// Why a change is not taken up.
#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    /// It is wrong.
    Invalid(String),
    /// It is right, but not for a scheduler that runs.
    NeedsRestart(String),
    /// Not now.
    Busy(String),
    /// The scheduler ends.
    Ended,
}

impl Refusal {
    /// As metrics name it.
    fn result(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "invalid",
            Self::NeedsRestart(_) => "needs_restart",
            Self::Busy(_) | Self::Ended => "busy",
        }
    }
}

/// What a look at the file showed: its text, or why there is none.
type Shown = Result<String, String>;

/// What was seen of the file.
#[derive(Debug, Default)]
struct Looks {
    last: Option<Shown>,
    /// Taken up or refused.
    dealt_with: Option<Shown>,
    /// To be tried again, and said so.
    put_off: Option<Shown>,
}

impl Looks {
    /// Whether a look shows what has to be dealt with. What was not there before may be
    /// half written: the next look tells.
    fn is_news(&mut self, shown: &Shown) -> bool {
        let settled = self.last.as_ref() == Some(shown);
        self.last = Some(shown.clone());
        settled && self.dealt_with.as_ref() != Some(shown)
    }
}

/// The one who follows the file.
pub(super) struct Follower {
    pub(super) path: PathBuf,
    pub(super) every: Duration,
    /// What is in force, as the file said it.
    pub(super) read: Configuration,
    /// What is in force, with flags.
    pub(super) in_force: Configuration,
    pub(super) registry: Registry,
    pub(super) feeds: Feeds,
    pub(super) extenders: Extenders,
    pub(super) mailbox: mpsc::Sender<Message>,
    pub(super) metrics: Metrics,
    pub(super) configz: Arc<Mutex<Value>>,
    pub(super) end: Shutdown,
    /// The extenders in force.
    pub(super) asked: BTreeSet<ExtenderId>,
}

impl Follower {
    /// Looks at the file until the scheduler ends.
    pub(super) async fn run(mut self) {
        let mut looks = tokio::time::interval(self.every);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut seen = Looks::default();
        let end = self.end.clone();
        loop {
            tokio::select! {
                () = end.wait() => return,
                _ = looks.tick() => {}
            }
            let Some(shown) = self.look().await else {
                return;
            };
            if seen.is_news(&shown) {
                match self.take_up(&shown).await {
                    Ok(()) => seen.dealt_with = Some(shown),
                    Err(Refusal::Ended) => return,
                    Err(refusal @ Refusal::Busy(_)) => {
                        if seen.put_off.as_ref() != Some(&shown) {
                            self.refused(&refusal);
                        }
                        seen.put_off = Some(shown);
                    }
                    Err(refusal) => {
                        self.refused(&refusal);
                        seen.dealt_with = Some(shown);
                    }
                }
            }
            self.forget_extenders().await;
        }
    }

    /// Reads the file, off the threads that others need.
    async fn look(&self) -> Option<Shown> {
        let path = self.path.clone();
        let read = move || crate::config::read(&path).map_err(|error| error.to_string());
        tokio::task::spawn_blocking(read).await.ok()
    }

    fn refused(&self, refusal: &Refusal) {
        self.metrics.config_reload(refusal.result());
        let path = self.path.display();
        match refusal {
            Refusal::Invalid(why) => {
                warn!("a change of the configuration is refused, the old one stays: {why}");
            }
            Refusal::NeedsRestart(what) => {
                warn!(
                    "{path}: a change of the configuration needs a restart, the old one stays: {what}"
                );
            }
            Refusal::Busy(why) => {
                warn!("{path}: a change of the configuration has to wait: {why}");
            }
            Refusal::Ended => {}
        }
    }

    /// Puts what the file says into force, all of it or nothing.
    async fn take_up(&mut self, shown: &Shown) -> Result<(), Refusal> {
        let text = shown.as_ref().map_err(|error| Refusal::Invalid(error.clone()))?.clone();
        let (path, registry) = (self.path.clone(), self.registry.clone());
        let parse = move || {
            let read = Configuration::parse_with(&path, &text, registry.plugins())?;
            let profiles = read.core_profiles(registry.plugins())?;
            anyhow::Ok((read, profiles))
        };
        let parsed = tokio::task::spawn_blocking(parse).await;
        // A plugin of the user's own may panic when it is made.
        let parsed = parsed.map_err(|panic| Refusal::Invalid(panic.to_string()))?;
        let (read, profiles) = parsed.map_err(|error| Refusal::Invalid(error.to_string()))?;
        if read == self.read {
            self.metrics.config_unchanged();
            return Ok(());
        }
        let fields = read.needs_restart(&self.read);
        if !fields.is_empty() {
            return Err(Refusal::NeedsRestart(fields.join(", ")));
        }
        let version = self.reload(&read, profiles).await?;
        // Flags have the last word on the election, which is as it was.
        let leader_election = self.in_force.leader_election.clone();
        self.in_force = Configuration { leader_election, ..read.clone() };
        self.read = read;
        let mut shown = self.configz.lock();
        // The shard is a flag: it stays.
        let shard = shown.get_mut("muster").map(Value::take);
        *shown = self.in_force.configz();
        if let Some(shard) = shard {
            shown["muster"] = shard;
        }
        drop(shown);
        self.metrics.config_reload("applied");
        self.metrics.config_in_force(version, jiff::Timestamp::now().as_second());
        info!(version, file = %self.path.display(), "the configuration is reloaded");
        for warning in &self.in_force.warnings {
            warn!("{warning}");
        }
        Ok(())
    }

    async fn reload(
        &mut self,
        read: &Configuration,
        profiles: Vec<Profile>,
    ) -> Result<u64, Refusal> {
        let specs = self.extenders.prepare(&read.extenders);
        let specs =
            specs.map_err(|error| Refusal::Invalid(format!("{}: {error}", self.path.display())))?;
        let asking = profiles.iter().map(|p| p.clone().with_extenders(specs.clone()));
        let reload = Reload { profiles: asking.collect(), backoff: backoff(read) };
        let (answer, heard) = oneshot::channel();
        let sent = self.mailbox.send(Message::Reload(Box::new(reload), answer)).await;
        sent.map_err(|_| Refusal::Ended)?;
        let done = heard.await.map_err(|_| Refusal::Ended)?;
        let version = done.map_err(|error| match error {
            ReloadError::Busy(_) => Refusal::Busy(error.to_string()),
            other => Refusal::NeedsRestart(other.to_string()),
        })?;
        self.feeds.follow(&profiles);
        self.asked = specs.iter().map(|spec| spec.id).collect();
        Ok(version)
    }

    /// Forgets extenders that no attempt may ask any more.
    async fn forget_extenders(&self) {
        if self.extenders.known() == self.asked {
            return;
        }
        if let Ok(in_use) = ask(&self.mailbox, Question::Extenders).await {
            self.extenders.retain(&in_use);
        }
    }
}

/// The backoff that a configuration asks for.
pub(super) fn backoff(configuration: &Configuration) -> Backoff {
    Backoff {
        initial_secs: configuration.pod_initial_backoff_seconds,
        max_secs: configuration.pod_max_backoff_seconds,
    }
}

#[cfg(test)]
#[path = "reload_tests.rs"]
mod tests;
