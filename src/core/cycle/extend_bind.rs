//! Binds that an extender makes.
//!
//! An extender has the first word, before the Bind plugins. What it says it did is
//! believed when the watch shows it: until then the room is kept, and no longer than
//! a limit. Must never send a bind of our own while one of an extender is under way.

use std::sync::Arc;

use super::Core;
use super::binding::Stage;
use super::failure::Failure;
use super::outside::binder;
use crate::io::{Effect, ExtenderCall, ExtenderReply, Request, Tick, Token};
use crate::model::PodId;

/// How long the watch may take to show a bind that an extender says it made, or may
/// have made.
const SHOWN_SECONDS: i64 = 10;

impl Core {
    /// Asks the first extender, from a position on, that binds such pods. False if
    /// there is none.
    pub(super) fn ask_binder(&mut self, pod: PodId, from: usize) -> bool {
        let (Some(binding), Some(record)) = (self.bindings.get(&pod), self.cluster.pod(pod)) else {
            return false;
        };
        let extenders = Arc::clone(binding.profile.extenders());
        let Some(at) = binder(&extenders, self.cluster.shape(record.shape), from) else {
            return false;
        };
        let node = Arc::clone(&self.cluster.node(binding.node).name);
        self.next_attempt += 1;
        let token = Token(self.next_attempt);
        let extender = &extenders[at];
        let call = ExtenderCall::Bind { extender: extender.id, node };
        let request = Request::Extender { attempt: token.0, call };
        let (plugin, key) = (Arc::clone(&extender.name), record.key.clone());
        self.effects.push(Effect::Call { token, pod: key, plugin, request });
        self.set_stage(pod, Stage::Lent { extender: at, token }, None);
        true
    }

    /// An extender that was asked to bind answered.
    pub(super) fn binder_replied(&mut self, now: Tick, token: Token, reply: &ExtenderReply) {
        let Some(pod) = self.calls.remove(&token) else {
            return;
        };
        let Some((profile, at)) = self.bindings.get(&pod).and_then(|b| match b.stage {
            Stage::Lent { extender, .. } => Some((Arc::clone(&b.profile), extender)),
            _ => None,
        }) else {
            return;
        };
        let Some(extender) = profile.extenders().get(at) else {
            return;
        };
        let until = Some(now.after_secs(SHOWN_SECONDS));
        match reply {
            ExtenderReply::Bound => {
                let error = format!(
                    "extender {:?} says that it bound the pod, but the API server does not show \
                     it after {SHOWN_SECONDS}s",
                    extender.name
                );
                self.set_stage(pod, Stage::Shown { error: error.into() }, until);
            }
            // The default way has the last word: if the extender did bind it, the server says so.
            ExtenderReply::Failed { .. } if extender.ignorable => {
                if !self.ask_binder(pod, at + 1)
                    && let Err(failure) = self.bind_by_plugin(now, pod)
                {
                    self.fail_binding(now, pod, failure);
                }
            }
            ExtenderReply::Failed { error, in_doubt: true } => {
                self.set_stage(pod, Stage::Shown { error: Arc::clone(error) }, until);
            }
            ExtenderReply::Failed { error, .. } => {
                let failure = Failure::error(error.to_string());
                self.fail_binding(now, pod, failure);
            }
            other => {
                let failure = Failure::error(format!("extender answered a bind by {other:?}"));
                self.fail_binding(now, pod, failure);
            }
        }
    }

    /// The watch did not show the bind in time.
    pub(super) fn never_shown(&mut self, now: Tick, pod: PodId) {
        let stage = self.bindings.get(&pod).map(|b| &b.stage);
        if let Some(Stage::Shown { error }) = stage {
            let failure = Failure::error(error.to_string());
            self.fail_binding(now, pod, failure);
        }
    }
}
