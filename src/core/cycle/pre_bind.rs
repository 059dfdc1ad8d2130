//! Answers to PreBind plugins, and what they wait for afterwards.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Core;
use super::binding::Stage;
use super::failure::Failure;
use crate::framework::ExtensionPoint;
use crate::io::{Reply, Tick, Token};
use crate::model::PodId;

/// How often a plugin that waits is asked again without a change.
const ASK_AGAIN_SECONDS: i64 = 1;

impl Core {
    /// The outside answered a PreBind plugin.
    pub(super) fn reply(&mut self, now: Tick, token: Token, reply: &Reply) {
        let Some(pod) = self.calls.remove(&token) else {
            return;
        };
        if self.at_permit(pod) {
            return self.permit_answered(now, pod, token, reply);
        }
        let Some((profile, plugin)) = self.bindings.get(&pod).and_then(|b| match b.stage {
            Stage::PreBind { plugin, .. } => Some((Arc::clone(&b.profile), plugin)),
            _ => None,
        }) else {
            return;
        };
        let answer = match reply {
            // Evictions and extenders have their own way.
            Reply::Evicted(_) | Reply::Extender(_) => return,
            Reply::Done(text) => Ok(&**text),
            Reply::Failed(text) => Err(&**text),
            Reply::Written { versions, .. } => {
                let versions: BTreeMap<_, _> = versions.iter().cloned().collect();
                self.cluster.volumes_mut().written(pod, versions);
                match reply.error() {
                    Some(error) => Err(error),
                    None => Ok(""),
                }
            }
        };
        let Some(record) = self.cluster.pod(pod) else {
            return;
        };
        let Some(waiting) = profile.plugins()[plugin].plugin.as_pre_bind() else {
            return;
        };
        if let Err(status) = waiting.resume(&record.key, answer) {
            let failure = Failure::pre_bind(&profile, plugin, &status);
            return self.fail_binding(now, pod, failure);
        }
        let until = now.after_secs(waiting.patience().0);
        self.set_stage(pod, Stage::Settling { plugin, until }, None);
        self.settle_binding(now, pod);
    }

    /// Asks a plugin that waits whether what it asked for has come about.
    pub(super) fn settle_binding(&mut self, now: Tick, pod: PodId) {
        let Some(binding) = self.bindings.get(&pod) else {
            return;
        };
        let Stage::Settling { plugin, until } = binding.stage else {
            return;
        };
        let profile = Arc::clone(&binding.profile);
        let (Some(placed), Some(waiting)) = (
            self.placed(pod, binding.node),
            profile.plugins().get(plugin).and_then(|p| p.plugin.as_pre_bind()),
        ) else {
            return;
        };
        let next = match waiting.settled(&placed) {
            Ok(true) => {
                let called = profile.at(ExtensionPoint::PreBind);
                let next = called.iter().position(|p| *p == plugin).map_or(called.len(), |n| n + 1);
                self.pre_bind_from(now, pod, next)
            }
            Ok(false) if now < until => {
                let again = now.after_secs(ASK_AGAIN_SECONDS).min(until);
                return self.arm(pod, Some(again));
            }
            Ok(false) => Err(Failure::pre_bind(&profile, plugin, &waiting.patience().1)),
            Err(status) => Err(Failure::pre_bind(&profile, plugin, &status)),
        };
        if let Err(failure) = next {
            self.fail_binding(now, pod, failure);
        }
    }

    /// A volume or claim changed: whoever waits for that is asked at once.
    pub(super) fn volumes_changed(&mut self, now: Tick, key: &str) {
        let pods: Vec<PodId> = self.cluster.volumes().waiting_for(key).collect();
        for pod in pods {
            self.settle_binding(now, pod);
        }
    }
}
