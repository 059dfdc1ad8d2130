//! What waits to be written: one call per pod, binds first.
//!
//! Evictions stand apart: each is answered, so none takes the place of another, and
//! only so many are on their way at a time that they do not crowd out binds.
//!
//! Upstream's dispatcher rules: a newer call of the same kind takes the place
//! of the older one (conditions merge), a bind takes the place of a status
//! patch, a patch behind a waiting bind is dropped, and whatever comes while a
//! call of the same pod is on its way waits for it. No I/O, no clock.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Evict;
use crate::hash::TextMap;
use crate::io::{EventRecord, PodRef, Removal, StatusPatch};
use crate::model::Predicted;

/// Most status patches that may wait: beyond it new ones are dropped. The core asks
/// again for a condition that the watch does not show.
pub const MAX_PATCHES: usize = 50_000;
/// Most events that may wait: beyond it new ones are dropped.
pub const MAX_EVENTS: usize = 10_000;
/// Most evictions that may wait: beyond it new ones are turned away at once.
pub const MAX_EVICTIONS: usize = 10_000;
/// Most evictions on their way at a time.
pub const MAX_FLYING_EVICTIONS: usize = 16;

/// A bind to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    /// The pod.
    pub pod: PodRef,
    /// The node.
    pub node: Arc<str>,
    /// Echoed in the answer.
    pub attempt: u64,
    /// The devices that the pod is expected to get, if any.
    pub devices: Option<Arc<Predicted>>,
}

/// A call about one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodCall {
    /// A bind.
    Bind(Bind),
    /// A status patch.
    Patch(StatusPatch),
    /// An eviction, or its dry run.
    Evict(Evict),
}

impl PodCall {
    /// The pod it is about: of an eviction the one to go.
    #[must_use]
    pub fn pod(&self) -> &PodRef {
        match self {
            Self::Bind(bind) => &bind.pod,
            Self::Patch(patch) => &patch.pod,
            Self::Evict(evict) => &evict.victim,
        }
    }

    /// Upstream's value of the label `call_type`.
    #[must_use]
    pub fn call_type(&self) -> &'static str {
        match self {
            Self::Bind(_) => "pod_binding",
            Self::Patch(_) => "pod_status_patch",
            Self::Evict(evict) => match evict.how {
                Removal::Checkpoint { .. } => "pod_checkpoint_request",
                Removal::DryRun => "pod_eviction_dry_run",
                Removal::Evict => "pod_eviction",
                Removal::Delete => "pod_deletion",
            },
        }
    }
}

#[derive(Default)]
struct Slot {
    /// A call of this pod is on its way.
    flying: bool,
    next: Option<PodCall>,
}

/// What became of a call that was handed in.
#[derive(Debug, PartialEq, Eq)]
pub enum Added {
    /// It waits; one more call is ready to be taken if `ready`.
    Waits {
        /// Whether it can be taken now.
        ready: bool,
    },
    /// It took the place of the call returned.
    Replaced(PodCall),
    /// It was merged into the waiting one, or is not worth writing.
    Dropped(PodCall),
}

/// The calls that wait. See the module's text.
#[derive(Default)]
pub struct Dispatch {
    slots: TextMap<Arc<str>, Slot>,
    /// Pods whose next call is a bind; may name pods that need nothing any more.
    binds: VecDeque<Arc<str>>,
    /// As `binds`, for patches.
    patches: VecDeque<Arc<str>>,
    /// Warnings go first: somebody may be waiting for the reason.
    warnings: VecDeque<EventRecord>,
    events: VecDeque<EventRecord>,
    evictions: VecDeque<Evict>,
    waiting_binds: usize,
    waiting_patches: usize,
    flying: usize,
    flying_evictions: usize,
}

impl Dispatch {
    /// Hands in a call.
    pub fn add(&mut self, call: PodCall) -> Added {
        let call = match call {
            PodCall::Evict(evict) => return self.add_eviction(evict),
            call => call,
        };
        if matches!(call, PodCall::Patch(_)) && self.waiting_patches >= MAX_PATCHES {
            return Added::Dropped(call);
        }
        let uid = call.pod().uid.clone();
        let slot = self.slots.entry(uid.clone()).or_default();
        let replaced = match (&mut slot.next, call) {
            (Some(PodCall::Bind(_)), call @ PodCall::Patch(_)) => return Added::Dropped(call),
            (Some(PodCall::Patch(old)), PodCall::Patch(new)) => {
                let merged = PodCall::Patch(new.clone());
                merge(old, new);
                return Added::Dropped(merged);
            }
            (Some(old @ PodCall::Bind(_)), call) => {
                return Added::Replaced(std::mem::replace(old, call));
            }
            (next, call) => next.replace(call),
        };
        let is_bind = matches!(slot.next, Some(PodCall::Bind(_)));
        let ready = !slot.flying;
        if is_bind {
            self.waiting_binds += 1;
        } else {
            self.waiting_patches += 1;
        }
        if ready {
            self.queue(is_bind, uid);
        }
        match replaced {
            None => Added::Waits { ready },
            Some(patch) => {
                self.waiting_patches -= 1;
                Added::Replaced(patch)
            }
        }
    }

    fn add_eviction(&mut self, evict: Evict) -> Added {
        if self.evictions.len() >= MAX_EVICTIONS {
            return Added::Dropped(PodCall::Evict(evict));
        }
        self.evictions.push_back(evict);
        Added::Waits { ready: true }
    }

    fn queue(&mut self, is_bind: bool, uid: Arc<str>) {
        if is_bind {
            self.binds.push_back(uid);
        } else {
            self.patches.push_back(uid);
        }
    }

    /// The next call to make: binds, then evictions, then patches. [`Dispatch::done`]
    /// must follow.
    pub fn take(&mut self) -> Option<PodCall> {
        while let Some(uid) = self.binds.pop_front() {
            if let Some(call) = self.start(&uid, true) {
                return Some(call);
            }
        }
        if self.flying_evictions < MAX_FLYING_EVICTIONS
            && let Some(evict) = self.evictions.pop_front()
        {
            self.flying_evictions += 1;
            return Some(PodCall::Evict(evict));
        }
        while let Some(uid) = self.patches.pop_front() {
            if let Some(call) = self.start(&uid, false) {
                return Some(call);
            }
        }
        None
    }

    /// Takes the waiting call of a pod if it is still of that sort.
    fn start(&mut self, uid: &Arc<str>, bind: bool) -> Option<PodCall> {
        let slot = self.slots.get_mut(uid)?;
        let same = matches!(slot.next, Some(PodCall::Bind(_))) == bind;
        if slot.flying || !same {
            return None;
        }
        let call = slot.next.take()?;
        slot.flying = true;
        self.flying += 1;
        if bind {
            self.waiting_binds -= 1;
        } else {
            self.waiting_patches -= 1;
        }
        Some(call)
    }

    /// A call that was taken has ended; `true` if another one became ready.
    pub fn done(&mut self, call: &PodCall) -> bool {
        match call {
            PodCall::Evict(_) => {
                self.flying_evictions -= 1;
                // One may have waited for the place.
                !self.evictions.is_empty()
            }
            PodCall::Bind(_) | PodCall::Patch(_) => self.free(&call.pod().uid),
        }
    }

    fn free(&mut self, uid: &Arc<str>) -> bool {
        let Some(slot) = self.slots.get_mut(uid) else {
            return false;
        };
        if slot.flying {
            slot.flying = false;
            self.flying -= 1;
        }
        let next_is_bind = slot.next.as_ref().map(|c| matches!(c, PodCall::Bind(_)));
        match next_is_bind {
            None => {
                self.slots.remove(uid);
                false
            }
            Some(is_bind) => {
                self.queue(is_bind, uid.clone());
                true
            }
        }
    }

    /// Queues an event; `false` if there is no room.
    pub fn add_event(&mut self, event: EventRecord) -> bool {
        if self.warnings.len() + self.events.len() >= MAX_EVENTS {
            return false;
        }
        if event.warning {
            self.warnings.push_back(event);
        } else {
            self.events.push_back(event);
        }
        true
    }

    /// The next event to write, warnings first.
    pub fn take_event(&mut self) -> Option<EventRecord> {
        let warning = self.warnings.pop_front();
        warning.or_else(|| self.events.pop_front())
    }

    /// Whether nothing waits and nothing is on its way, events aside.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.waiting_binds + self.waiting_patches + self.evictions.len() + self.flying() == 0
    }

    /// Whether an event waits.
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty() || !self.warnings.is_empty()
    }

    /// Calls on their way.
    #[must_use]
    pub fn flying(&self) -> usize {
        self.flying + self.flying_evictions
    }

    /// Throws away whatever was not started; returns the calls.
    pub fn discard(&mut self) -> Vec<PodCall> {
        self.events.clear();
        self.warnings.clear();
        self.binds.clear();
        self.patches.clear();
        (self.waiting_binds, self.waiting_patches) = (0, 0);
        let calls = self.slots.values_mut().filter_map(|s| s.next.take());
        let calls = calls.chain(self.evictions.drain(..).map(PodCall::Evict)).collect();
        self.slots.retain(|_, slot| slot.flying);
        calls
    }
}

fn merge(old: &mut StatusPatch, new: StatusPatch) {
    if new.condition.is_some() {
        old.condition = new.condition;
    }
    old.shown = new.shown;
    if new.nominated_node.is_some() {
        old.nominated_node = new.nominated_node;
    }
}

#[cfg(test)]
#[path = "dispatch_tests.rs"]
mod tests;
