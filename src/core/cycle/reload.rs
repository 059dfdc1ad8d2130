//! Another configuration while the scheduler runs.
//!
//! Owns which versions of profiles there are. An attempt holds the version it began with
//! and ends under it; whoever waits is taken over to the new one. Must never lose a pod
//! or end an attempt.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Core;
use crate::framework::{ExtenderId, Profile};
use crate::io::Tick;
use crate::queue::{Backoff, QueueCx};

/// Versions that attempts under way may hold at a time, the one in force among them.
pub const MAX_VERSIONS: usize = 16;

/// What a reload brings.
#[derive(Clone)]
pub struct Reload {
    /// Profiles under the same scheduler names as before.
    pub profiles: Vec<Profile>,
    /// Bounds of the backoff.
    pub backoff: Backoff,
}

/// Why a reload is refused; all is as before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReloadError {
    /// Profiles have other names.
    #[error("scheduler names are {before}, and would be {after}: restart to change them")]
    Names {
        /// Those in force.
        before: String,
        /// Those that were given.
        after: String,
    },
    /// What a plugin reads of pods is not known of those that wait.
    #[error(
        "profile {profile:?}: plugin {plugin:?} reads more of pods than was kept of those that \
         wait: restart to enable it or to change its arguments"
    )]
    Facet {
        /// The profile.
        profile: Arc<str>,
        /// The plugin.
        plugin: &'static str,
    },
    /// Too many versions are in use.
    #[error(
        "attempts under way hold {0} versions of the configuration, which is the most: it is \
         tried again when some have ended"
    )]
    Busy(usize),
}

impl Core {
    /// Puts other profiles into force. Attempts under way end under the version they
    /// began with; whoever waits is tried again under the new one.
    ///
    /// # Errors
    ///
    /// If it cannot be done while the scheduler runs; then nothing has changed.
    pub fn reload(&mut self, now: Tick, reload: Reload) -> Result<(), ReloadError> {
        self.may_reload(&reload)?;
        self.version += 1;
        for profile in reload.profiles {
            if let Some(&at) = self.by_scheduler.get(&**profile.scheduler_name()) {
                self.profiles[at] = Arc::new(profile.at_version(self.version));
            }
        }
        self.ledgers.clear();
        self.reload_vigil(now);
        let plugins = super::govern::score_plugins(self.profiles.iter().map(|p| &**p));
        if self.cluster.set_score_plugins(plugins) {
            self.scheduling_policies_changed(now);
        }
        let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
        self.queue.reload(&cx, reload.backoff);
        Ok(())
    }

    fn may_reload(&self, reload: &Reload) -> Result<(), ReloadError> {
        let names = |profiles: &mut dyn Iterator<Item = &Profile>| -> Vec<Arc<str>> {
            let mut names: Vec<_> = profiles.map(|p| Arc::clone(p.scheduler_name())).collect();
            names.sort_unstable();
            names
        };
        let before = names(&mut self.profiles.iter().map(|p| &**p));
        let after = names(&mut reload.profiles.iter());
        if before != after {
            let (before, after) = (before.join(", "), after.join(", "));
            return Err(ReloadError::Names { before, after });
        }
        for profile in &reload.profiles {
            let at = self.by_scheduler.get(&**profile.scheduler_name());
            let before = at.map(|at| &self.profiles[*at]);
            if let Some(plugin) = before.and_then(|before| profile.unread_facet(before)) {
                let profile = Arc::clone(profile.scheduler_name());
                return Err(ReloadError::Facet { profile, plugin });
            }
        }
        let versions: BTreeSet<u64> = self.held().map(|profile| profile.version()).collect();
        if versions.len() >= MAX_VERSIONS {
            return Err(ReloadError::Busy(versions.len()));
        }
        Ok(())
    }

    /// The profiles that attempts under way hold.
    fn held(&self) -> impl Iterator<Item = &Arc<Profile>> {
        let bindings = self.bindings.values().map(|binding| &binding.profile);
        bindings.chain(self.asking.values().map(|asking| &asking.profile))
    }

    /// The extenders that may still be asked: of the versions in force and of those that
    /// attempts under way hold.
    #[must_use]
    pub fn extenders_in_use(&self) -> BTreeSet<ExtenderId> {
        let profiles = self.profiles.iter().chain(self.held());
        profiles.flat_map(|profile| profile.extenders().iter()).map(|e| e.id).collect()
    }

    /// How many reloads there were.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }
}
