//! Reloads in random histories: plugins come, go and change their places.

use std::sync::Arc;

use super::driver::Driver;
use crate::audit::{PointLog, Witness};
use crate::framework::{ExtenderSpec, PluginArgs, Profile, Registry};
use crate::{Backoff, Config, Reload, ReloadError};

/// Steps from one reload to the next.
const EVERY: usize = 31;
/// Plugins that versions do without, in turn.
const WITHOUT: [&str; 5] =
    ["", "TaintToleration", "NodeUnschedulable", "NodePorts", "NodeAffinity"];

/// What is reloaded in a history, if anything.
pub(super) struct Reloads {
    seed: u64,
    extenders: Arc<[ExtenderSpec]>,
    log: PointLog,
    count: u64,
}

impl Reloads {
    pub(super) fn new(seed: u64, config: &Config, log: &PointLog) -> Self {
        let extenders = config.profiles.first().map(|p| Arc::clone(p.extenders()));
        Self { seed, extenders: extenders.unwrap_or_default(), log: Arc::clone(log), count: 0 }
    }

    /// Another version: it lacks a plugin, perhaps a witness, perhaps an extender.
    fn next(&mut self) -> Reload {
        self.count += 1;
        let count = self.count;
        let without = WITHOUT[((self.seed / 5 + count) % WITHOUT.len() as u64) as usize];
        let plugins = Profile::defaults().iter().copied().filter(|(name, _)| *name != without);
        let args = PluginArgs::default();
        let built = Profile::build("muster", plugins, &args, &Registry::in_tree());
        let mut profile = built.expect("a profile");
        let witnesses: &[&'static str] =
            if count.is_multiple_of(2) { &["First", "Second"] } else { &["Second"] };
        for name in witnesses.iter().filter(|_| self.seed % 4 != 3) {
            profile = profile.with_plugin(Arc::new(Witness::new(name, self.seed, &self.log)), 1);
        }
        let left = self.extenders.iter().skip(usize::from(count.is_multiple_of(3))).cloned();
        let backoff = match count % 3 {
            0 => Backoff { initial_secs: 1, max_secs: 16 },
            1 => Backoff { initial_secs: 3, max_secs: 3 },
            _ => Backoff::default(),
        };
        Reload { profiles: vec![profile.with_extenders(left)], backoff }
    }
}

impl Driver {
    /// Every fifth history has reloads, after every so many steps.
    pub(super) fn reload(&mut self, at: usize) {
        if self.reloads.seed % 5 != 3 || at % EVERY != EVERY - 1 {
            return;
        }
        let reload = self.reloads.next();
        match self.core.reload(self.now, reload) {
            Ok(()) | Err(ReloadError::Busy(_)) => {}
            Err(other) => panic!("seed {}: {other}", self.reloads.seed),
        }
        self.look();
    }
}
